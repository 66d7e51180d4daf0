//! What is asked of control: to sign a key.

use std::time::Duration;

use model::primitives::{name::Name, secret::Secret};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use reqwest::{Client, StatusCode, Url};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::feed::read_error;

/// Time that an answer may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// No answer.
    #[error("control cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// Refused: the same will be refused again.
    #[error("control refused with {status}: {body}")]
    Refused { status: StatusCode, body: String },
    /// Busy, or away from its store.
    #[error("control cannot do it at this moment ({status}): {body}")]
    Busy { status: StatusCode, body: String },
    /// What was signed cannot be used, or nothing can be asked for.
    #[error("the certificate cannot be had")]
    Unusable(#[source] anyhow::Error),
}

/// To join, or to renew.
#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Join { token: &'a Secret, node: &'a Name, csr: &'a str },
    Renew { csr: &'a str },
}

#[derive(Deserialize)]
struct Answer {
    certificate: String,
    ca: String,
}

/// Has a new key of this node signed at a server: with a join token, or else with the certificate that the client shows.
/// Answers it with the authorities.
pub(super) async fn sign(
    client: &Client,
    url: Url,
    node: &Name,
    token: Option<&Secret>,
) -> Result<(Identity, String), Refusal> {
    let key = KeyPair::generate().map_err(|error| Refusal::Unusable(error.into()))?;
    let mut params = CertificateParams::default();
    // Control sets every name.
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
    let Answer { certificate, ca } =
        serde_json::from_str(&text).map_err(|error| Refusal::Unusable(error.into()))?;
    let identity = Identity::new(Secret::new(key.serialize_pem()), certificate, node);
    Ok((identity.map_err(Refusal::Unusable)?, ca))
}
