//! The HTTP client to control: whom it believes, and what it shows.

use std::{fs::File, io::Read, path::Path, sync::Arc};

use anyhow::{Context as _, ensure};
use reqwest::Client;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use super::{identity::Identity, pin::Pinned};
use crate::control;

/// Bytes of a file of authorities: those of a whole operating system fit.
const CA_FILE_BYTES_MAX: u64 = 4 << 20;

/// Whom an agent believes to be control.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// Servers of these authorities.
    Roots(RootCertStore),
    /// Servers that present the certificate of this hash, until the authorities are known.
    Pin(String),
}

/// Reads the file of authorities that the operator names.
///
/// # Errors
/// It cannot be read, or holds none.
pub(super) fn read_ca_file(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let mut pem = Vec::new();
    let file = File::open(path).with_context(|| format!("--ca-file {shown} cannot be read"))?;
    file.take(CA_FILE_BYTES_MAX)
        .read_to_end(&mut pem)
        .with_context(|| format!("--ca-file {shown} cannot be read"))?;
    let found =
        certificates(&pem).with_context(|| format!("--ca-file {shown} must hold certificates as PEM"))?;
    ensure!(!found.is_empty(), "--ca-file {shown} must hold certificates as PEM; it holds none");
    Ok(found)
}

/// The certificates of a PEM text.
pub(super) fn certificates(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?)
}

/// Those authorities; when there are none, the machine's own.
///
/// # Errors
/// One of them is none.
pub(super) fn roots(authorities: Vec<CertificateDer<'static>>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if authorities.is_empty() {
        let (_added, _ignored) =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for authority in authorities {
        roots.add(authority).context("an authority of control cannot be used")?;
    }
    Ok(roots)
}

/// A client that believes these, and shows this certificate.
///
/// # Errors
/// The key does not fit the certificate, or the system gives out no resources.
pub(super) fn client(trust: Trust, identity: Option<&Identity>) -> anyhow::Result<Client> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("TLS 1.3 cannot be spoken")?;
    let config = match trust {
        Trust::Roots(roots) => config.with_root_certificates(roots),
        Trust::Pin(pin) => {
            config.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { pin, provider }))
        }
    };
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.shown()?;
            config.with_client_auth_cert(chain, key).context("the saved certificate cannot be used")?
        }
    };
    control::client_with(config)
}
