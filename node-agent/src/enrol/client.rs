//! The HTTP client to control: whom it believes, and what it shows.

use std::path::Path;

use anyhow::Context as _;
use reqwest::Client;
use rustls_pki_types::CertificateDer;
use tls_trust::Trust;

use super::identity::Identity;
use crate::control;

/// Reads the file of authorities that the operator names.
///
/// # Errors
/// It cannot be read, or holds none.
pub(super) fn read_ca_file(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    tls_trust::read(path).with_context(|| format!("--ca-file {}", path.display()))
}

/// Those authorities; when there are none, the machine's own.
///
/// # Errors
/// One of them is none.
pub(super) fn roots(authorities: Vec<CertificateDer<'static>>) -> anyhow::Result<Trust> {
    if authorities.is_empty() {
        return Ok(Trust::system());
    }
    Trust::authorities(authorities).context("an authority of control cannot be used")
}

/// A client that believes these, and shows this certificate.
///
/// # Errors
/// The key does not fit the certificate, or the system gives out no resources.
pub(super) fn client(trust: Trust, identity: Option<&Identity>) -> anyhow::Result<Client> {
    let config = trust.client().context("TLS 1.3 cannot be spoken")?;
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.shown()?;
            config.with_client_auth_cert(chain, key).context("the saved certificate cannot be used")?
        }
    };
    control::client_with(config)
}
