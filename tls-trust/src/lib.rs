//! Whom clients of the control servers believe: authorities of a file, those of the system, or a pinned certificate. The command,
//! the agents and the adapters believe by the same rules.
//!
//! What must not happen: a server is believed without a chain to what is believed; anything older than TLS 1.3 is spoken with one.

mod pin;

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    crypto::{CryptoProvider, ring},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};

pub use self::pin::Pin;

/// Bytes of a file of authorities: those of a whole operating system fit.
const CA_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Whom a client believes to be control.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Servers of these authorities.
    Roots(RootCertStore),
    /// Servers that show the certificate of this hash, as their own or as their authority's.
    Pin(Pin),
}

/// Why somebody cannot be believed; the whole cause is in the text.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// The file of authorities cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// It is not a file of authorities.
    #[error("it is longer than {CA_FILE_BYTES_MAX} bytes")]
    TooLong,
    /// It is not in the form of PEM.
    #[error("it must hold certificates as PEM: {0}")]
    Form(rustls_pki_types::pem::Error),
    /// There is none in it.
    #[error("there is no certificate in it (PEM, `-----BEGIN CERTIFICATE-----`)")]
    Empty,
    /// One of them is no authority, or TLS cannot be set up.
    #[error("{0}")]
    Unusable(rustls::Error),
}

impl Trust {
    /// Believes servers of the authorities in a file.
    ///
    /// # Errors
    /// It cannot be read, or holds none.
    pub fn file(path: &Path) -> Result<Self, Untrusted> {
        Self::authorities(read(path)?)
    }

    /// Believes servers of these authorities, and nobody when there are none.
    ///
    /// # Errors
    /// One of them is none.
    pub fn authorities(
        authorities: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, Untrusted> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(Untrusted::Unusable)?;
        }
        Ok(Self::Roots(roots))
    }

    /// Believes servers of the authorities that the system believes.
    #[must_use]
    pub fn system() -> Self {
        let mut roots = RootCertStore::empty();
        let _unusable = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::Roots(roots)
    }

    /// The TLS settings of a client that believes these, but for who it is itself.
    ///
    /// # Errors
    /// TLS 1.3 cannot be spoken.
    pub fn client(self) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Untrusted> {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Untrusted::Unusable)?;
        Ok(match self {
            Self::Roots(roots) => builder.with_root_certificates(roots),
            Self::Pin(pin) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(pin::Pinned { pin, provider }))
            }
        })
    }
}

/// The certificates of a file, at least one.
///
/// # Errors
/// It cannot be read, or holds none.
pub fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, Untrusted> {
    let mut pem = Vec::new();
    let file = File::open(path).map_err(Untrusted::Unreadable)?;
    file.take(CA_FILE_BYTES_MAX + 1).read_to_end(&mut pem).map_err(Untrusted::Unreadable)?;
    if pem.len() as u64 > CA_FILE_BYTES_MAX {
        return Err(Untrusted::TooLong);
    }
    let found = certificates(&pem)?;
    if found.is_empty() { Err(Untrusted::Empty) } else { Ok(found) }
}

/// The certificates of a PEM text.
///
/// # Errors
/// It is none.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Untrusted> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(Untrusted::Form)
}
