//! Certificate signing requests to the control server.

use std::{path::Path, time::Duration};

use base::clock::wall_clock;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use reqwest::{Client, StatusCode, Url};
use serde::{Deserialize, Serialize};

use super::identity::{Identity, next_key};
use crate::feed::read_error;

/// Timeout of one certificate request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Reason why no certificate was obtained.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The control server could not be reached, or did not respond in time.
    #[error("control cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The control server rejected the request; a repetition would fail, too.
    #[error("control rejected the request with {status}: {body}")]
    Refused { status: StatusCode, body: String },
    /// The control server rejected the request temporarily: it is busy or cannot reach its store.
    #[error("control cannot handle the request now ({status}): {body}")]
    Busy { status: StatusCode, body: String },
    /// The control server returned an unusable certificate, or the signing request could not be created.
    #[error("cannot obtain a certificate")]
    Unusable(#[source] anyhow::Error),
}

/// Credential of a certificate request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Credential<'a> {
    /// Join token.
    Token(&'a Secret),
    /// Client certificate of the connection.
    Connection,
    /// Certificate that has expired, whose key signs the request.
    Expired(&'a Identity),
}

impl Credential<'_> {
    /// Returns the path of the control server for requests with this credential.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Token(_) => "/v1/enrol",
            Self::Connection => "/v1/renew",
            Self::Expired(_) => "/v1/renew/expired",
        }
    }
}

/// Request body, for joining with a token or for renewing the certificate.
#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Join { token: &'a Secret, node: &'a Name, csr: &'a str },
    Renew { csr: &'a str },
    RenewExpired { certificate: String, csr: &'a str, time: Timestamp, signature: String },
}

/// Reason and remedy in an error response (RFC 9457).
#[derive(Deserialize)]
struct Explanation {
    detail: String,
    hint: Option<String>,
}

/// Returns reason and remedy of an error response, without the id of the request: an unchanged reason is logged once.
fn explanation(body: String) -> String {
    match serde_json::from_str(&body) {
        Ok(Explanation { detail, hint: Some(hint) }) => format!("{detail} ({hint})"),
        Ok(Explanation { detail, hint: None }) => detail,
        Err(_) => body,
    }
}

#[derive(Deserialize)]
struct EnrolmentResponse {
    certificate: String,
    ca: String,
}

/// Requests a certificate for a new key of this node. Returns the identity with the CA certificates.
pub(super) async fn sign(
    client: &Client,
    url: Url,
    (node, state_dir): (&Name, &Path),
    credential: Credential<'_>,
) -> Result<(Identity, String), Refusal> {
    let key = match credential {
        // A join does not use a key that a former user of the machine may know.
        Credential::Token(_) => KeyPair::generate().map_err(anyhow::Error::from),
        Credential::Connection | Credential::Expired(_) => next_key(state_dir),
    };
    let key = key.map_err(Refusal::Unusable)?;
    let mut params = CertificateParams::default();
    // Control sets all names.
    params.distinguished_name = DistinguishedName::new();
    let csr = params.serialize_request(&key).and_then(|request| request.pem());
    let csr = csr.map_err(|error| Refusal::Unusable(error.into()))?;
    let body = match credential {
        Credential::Token(token) => Body::Join { token, node, csr: &csr },
        Credential::Connection => Body::Renew { csr: &csr },
        Credential::Expired(identity) => {
            let time = wall_clock();
            let (certificate, signature) = identity.prove(&csr, time).map_err(Refusal::Unusable)?;
            Body::RenewExpired { certificate, csr: &csr, time, signature: BASE64_STANDARD.encode(signature) }
        }
    };
    let request = client.post(url).timeout(REQUEST_TIMEOUT).json(&body);
    let response = request.send().await.map_err(Refusal::Unreachable)?;
    let status = response.status();
    let text = read_error(response).await;
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(Refusal::Busy { status, body: explanation(text) });
    }
    if !status.is_success() {
        return Err(Refusal::Refused { status, body: explanation(text) });
    }
    let EnrolmentResponse { certificate, ca } =
        serde_json::from_str(&text).map_err(|error| Refusal::Unusable(error.into()))?;
    let identity = Identity::new(Secret::new(key.serialize_pem()), certificate, node);
    Ok((identity.map_err(Refusal::Unusable)?, ca))
}
