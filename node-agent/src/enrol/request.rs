//! Certificate signing requests to the control server.

use std::time::Duration;

use model::primitives::{name::Name, secret::Secret};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use reqwest::{Client, StatusCode, Url};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
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

/// Request body, for joining with a token or for renewing the certificate.
#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Join { token: &'a Secret, node: &'a Name, csr: &'a str },
    Renew { csr: &'a str },
}

#[derive(Deserialize)]
struct EnrolmentResponse {
    certificate: String,
    ca: String,
}

/// Requests a certificate for a new key of this node, authenticated by a join token or by the client
/// certificate. Returns the identity with the CA certificates.
pub(super) async fn sign(
    client: &Client,
    url: Url,
    node: &Name,
    token: Option<&Secret>,
) -> Result<(Identity, String), Refusal> {
    let key = KeyPair::generate().map_err(|error| Refusal::Unusable(error.into()))?;
    let mut params = CertificateParams::default();
    // Control sets all names.
    params.distinguished_name = DistinguishedName::new();
    let csr = params.serialize_request(&key).and_then(|request| request.pem());
    let csr = csr.map_err(|error| Refusal::Unusable(error.into()))?;
    let body = match token {
        Some(token) => Body::Join { token, node, csr: &csr },
        None => Body::Renew { csr: &csr },
    };
    let request = client.post(url).timeout(REQUEST_TIMEOUT).json(&body);
    let response = request.send().await.map_err(Refusal::Unreachable)?;
    let status = response.status();
    let text = read_error(response).await;
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(Refusal::Busy { status, body: text });
    }
    if !status.is_success() {
        return Err(Refusal::Refused { status, body: text });
    }
    let EnrolmentResponse { certificate, ca } =
        serde_json::from_str(&text).map_err(|error| Refusal::Unusable(error.into()))?;
    let identity = Identity::new(Secret::new(key.serialize_pem()), certificate, node);
    Ok((identity.map_err(Refusal::Unusable)?, ca))
}
