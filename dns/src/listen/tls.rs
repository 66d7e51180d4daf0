//! TLS for questions over TCP (DNS over TLS, RFC 7858): the certificate, and its replacement at run time.
//!
//! Certificate and key are loaded together and replaced as a pair; if a new pair is invalid, the old one stays in use.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{sync::watch, time::sleep};

/// Interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum size of a file in bytes. A certificate chain has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Protocol offered by ALPN (RFC 7858 §6, registry of ALPN protocols).
pub(crate) const PROTOCOL: &[u8] = b"dot";

/// Files with the certificate chain and its private key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    /// Certificate chain, beginning with the certificate of the server.
    pub(crate) certificate: PathBuf,
    /// Private key.
    pub(crate) key: PathBuf,
}

/// Reason for which a certificate cannot be used. Messages contain no key material.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A file cannot be read.
    #[error("{0} cannot be read")]
    Unreadable(PathBuf, #[source] io::Error),
    /// A file has unexpected contents.
    #[error("{0} must contain {1} as PEM")]
    Malformed(PathBuf, &'static str),
    /// Certificate and key do not match, or are of an unsupported type.
    #[error("the certificate and the key cannot be used together")]
    Mismatch(#[source] rustls::Error),
}

/// Current TLS settings.
pub(super) type TlsSettings = watch::Receiver<Arc<ServerConfig>>;

/// Certificate in use, replaced when its files change.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: CertificateFiles,
    stamp: Stamp,
    current: watch::Sender<Arc<ServerConfig>>,
}

/// Modification time and size of both files, by which changes are detected.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Certificate {
    /// Loads the certificate.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or the certificate cannot be used.
    pub(crate) fn load(files: CertificateFiles) -> Result<Self, CertificateError> {
        let stamp = files.stamp();
        let current = watch::Sender::new(Arc::new(files.load()?));
        Ok(Self { files, stamp, current })
    }

    /// Returns the current settings.
    pub(super) fn settings(&self) -> TlsSettings {
        self.current.subscribe()
    }

    /// Replaces the certificate when its files have changed, until the task is cancelled.
    pub(super) async fn follow(mut self) {
        let mut rejected = None;
        loop {
            sleep(CHECK_INTERVAL).await;
            let stamp = self.files.stamp();
            if stamp == self.stamp || rejected == Some(stamp) {
                continue;
            }
            match self.files.load() {
                Ok(config) => {
                    self.current.send_replace(Arc::new(config));
                    (self.stamp, rejected) = (stamp, None);
                    tracing::info!("the certificate of DNS over TLS was replaced");
                }
                Err(error) => {
                    rejected = Some(stamp);
                    let cause = base::chain(&error);
                    tracing::error!(cause, "the new certificate cannot be used; the old one stays in use");
                }
            }
        }
    }
}

impl CertificateFiles {
    fn stamp(&self) -> Stamp {
        let of = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        [of(&self.certificate), of(&self.key)]
    }

    fn load(&self) -> Result<ServerConfig, CertificateError> {
        let malformed =
            |path: &Path, expected: &'static str| CertificateError::Malformed(path.to_owned(), expected);
        let pem = read(&self.certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| malformed(&self.certificate, "certificates"))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?);
        let key = key.map_err(|_| malformed(&self.key, "one private key"))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Mismatch)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(CertificateError::Mismatch)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let unreadable = |error| CertificateError::Unreadable(path.to_owned(), error);
    if fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(CertificateError::Malformed(path.to_owned(), "at most 1 MiB"));
    }
    fs::read(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A missing file, other contents, and files in the wrong order are errors that name the file.
    #[test]
    fn unusable_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("text"), "no certificate").unwrap();
        let error = |certificate: &str, key: &str| {
            let files = CertificateFiles { certificate: path(certificate), key: path(key) };
            base::chain(&Certificate::load(files).unwrap_err())
        };
        assert!(error("missing", "text").contains("missing cannot be read"));
        assert!(error("text", "text").contains("text must contain certificates as PEM"));
    }
}
