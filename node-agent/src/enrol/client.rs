//! HTTP clients for the control servers, with trusted CAs and the client certificate of this node.

use std::path::Path;

use anyhow::Context as _;
use reqwest::Client;
use rustls_pki_types::CertificateDer;
use tls_trust::Trust;

use super::identity::Identity;
use crate::control;

/// Reads the CA file named by the operator.
///
/// # Errors
/// Returns an error if the file cannot be read or contains no certificate.
pub(super) fn read_ca_file(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    tls_trust::read(path).with_context(|| format!("--ca-file {}", path.display()))
}

/// Returns a trust store with these CAs, or with the CAs of the machine if there are none.
///
/// # Errors
///
/// Returns an error if a CA certificate is invalid.
pub(super) fn roots(authorities: Vec<CertificateDer<'static>>) -> anyhow::Result<Trust> {
    if authorities.is_empty() {
        return Ok(Trust::system());
    }
    Trust::authorities(authorities).context("invalid CA certificate of control")
}

/// Creates a client with these trusted CAs and this client certificate.
///
/// # Errors
/// Returns an error if the key does not match the certificate, or the client cannot be created.
pub(super) fn client(trust: Trust, identity: Option<&Identity>) -> anyhow::Result<Client> {
    let config = trust.control_client().context("TLS 1.3 is not available")?;
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.shown()?;
            config.with_client_auth_cert(chain, key).context("cannot use the saved certificate")?
        }
    };
    control::client_with(config)
}
