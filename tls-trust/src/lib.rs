//! TLS trust settings of the programs that connect to control servers (the CLI, the agents and the adapters), and of
//! `tidegate-dns` for upstream servers over TLS.
//! A program trusts the CAs of a file, the CAs of the operating system, or a pinned certificate.
//!
//! Invariants: a server is trusted only with a valid chain to a trusted certificate, and only TLS 1.3 is
//! used.

mod hint;
mod pin;
mod proof;

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    crypto::{CryptoProvider, ring},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};

pub use self::{pin::Pin, proof::expired_renewal_message};

/// Maximum size of a CA file in bytes. The CA bundle of an operating system is smaller.
const CA_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Certificates that a client trusts when it connects to a server.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Trusts servers whose certificate is signed by one of the contained CAs.
    Roots(RootCertStore),
    /// Trusts servers whose own certificate or CA certificate has the contained SHA-256 hash.
    Pin(Pin),
}

/// Error in the TLS trust settings, with the cause in its message.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// CA file that cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// CA file larger than [`CA_FILE_BYTES_MAX`].
    #[error("the file is longer than {CA_FILE_BYTES_MAX} bytes")]
    TooLong,
    /// CA file that is not valid PEM.
    #[error("the file must contain PEM certificates: {0}")]
    Form(rustls_pki_types::pem::Error),
    /// CA file without any certificate.
    #[error("the file contains no certificate (PEM, `-----BEGIN CERTIFICATE-----`)")]
    Empty,
    /// Certificate that cannot be used as a CA, or TLS settings that the TLS library rejects.
    #[error("{0}")]
    Unusable(rustls::Error),
}

impl Trust {
    /// Creates the trust settings for the CAs in a PEM file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or contains no CA certificate.
    pub fn file(path: &Path) -> Result<Self, Untrusted> {
        Self::authorities(read(path)?)
    }

    /// Creates the trust settings for the given CAs. With an empty list no server is trusted.
    ///
    /// # Errors
    /// Returns an error if a certificate cannot be used as a CA.
    pub fn authorities(
        authorities: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, Untrusted> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(Untrusted::Unusable)?;
        }
        Ok(Self::Roots(roots))
    }

    /// Creates the trust settings for the CAs of the operating system.
    #[must_use]
    pub fn system() -> Self {
        let mut roots = RootCertStore::empty();
        let _unusable = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::Roots(roots)
    }

    /// Starts a TLS client configuration that verifies servers by these certificates. The caller adds the client's
    /// own certificate, if any.
    ///
    /// # Errors
    /// Returns an error if TLS 1.3 is not available.
    pub fn client(self) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Untrusted> {
        self.configure(false)
    }

    /// Starts a TLS client configuration for a control server, as [`Trust::client`] does. The client also names the
    /// authorities to the server, unless there are many. A control server with a certificate of another authority then
    /// presents one of its own authority to clients that trust only that one.
    ///
    /// # Errors
    /// Returns an error if TLS 1.3 is not available.
    pub fn control_client(self) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Untrusted> {
        self.configure(true)
    }

    fn configure(
        self,
        names_authorities: bool,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Untrusted> {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Untrusted::Unusable)?;
        Ok(match self {
            Self::Roots(roots) if names_authorities && (1..=hint::AUTHORITIES_MAX).contains(&roots.len()) => {
                let verifier = hint::Hinting::new(roots, provider).map_err(Untrusted::Unusable)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            Self::Roots(roots) => builder.with_root_certificates(roots),
            Self::Pin(pin) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(pin::Pinned { pin, provider }))
            }
        })
    }
}

/// Reads the certificates of a PEM file, which must contain at least one.
///
/// # Errors
/// Returns an error if the file cannot be read or contains no certificate.
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

/// Parses the certificates in a PEM text, possibly none.
///
/// # Errors
/// Returns an error if the text is not valid PEM.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Untrusted> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(Untrusted::Form)
}
