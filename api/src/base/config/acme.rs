//! Settings of ACME servers, from which the control servers order certificates.

use std::path::PathBuf;

use clap::Args;
use model::kinds::certificate::ACME_DIRECTORY_DEFAULT;
use reqwest::Url;
use rustls::RootCertStore;
use tls_trust::Trust;

/// Test server of Let's Encrypt.
const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";
/// Maximum number of permitted ACME servers.
const DIRECTORIES_MAX: usize = 16;

/// Flags for ACME servers.
#[derive(Debug, Clone, Default, Args)]
pub struct AcmeFlags {
    /// URL of the directory of an ACME server from which Certificates may be ordered; may be repeated [default: those
    /// of Let's Encrypt for production and staging]
    #[arg(long, env = "TIDEGATE_ACME_DIRECTORY", value_name = "URL", value_delimiter = ',')]
    pub acme_directory: Vec<Url>,
    /// PEM file with the CA certificates to verify ACME servers with [default: the system's CA certificates]
    #[arg(long, env = "TIDEGATE_ACME_CA_FILE", value_name = "FILE")]
    pub acme_ca_file: Option<PathBuf>,
}

/// Settings of ACME servers.
#[derive(Debug, Clone)]
pub struct AcmeServers {
    /// URLs of the directories from which Certificates may be ordered, with the scheme `https`.
    pub directories: Vec<String>,
    /// CA certificates to verify the ACME servers with; `None` for those of the system.
    pub roots: Option<RootCertStore>,
}

impl Default for AcmeServers {
    fn default() -> Self {
        Self { directories: vec![ACME_DIRECTORY_DEFAULT.to_owned(), STAGING.to_owned()], roots: None }
    }
}

/// Reason why the settings of ACME servers are rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidAcme {
    /// URL with another scheme than `https`, or with a user name or password.
    #[error("--acme-directory must be https://… without user name and password, not `{0}`")]
    Url(String),
    /// More ACME servers than permitted.
    #[error("--acme-directory may be given {DIRECTORIES_MAX} times")]
    TooMany,
    /// CA file that cannot be used.
    #[error("--acme-ca-file {}: {cause}", path.display())]
    Authorities {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        cause: tls_trust::Untrusted,
    },
}

impl AcmeServers {
    /// Checks the flags and reads the file that they name.
    ///
    /// # Errors
    /// Returns the first invalid setting, with the flag to change.
    pub fn new(flags: AcmeFlags) -> Result<Self, InvalidAcme> {
        let AcmeFlags { acme_directory, acme_ca_file } = flags;
        if acme_directory.len() > DIRECTORIES_MAX {
            return Err(InvalidAcme::TooMany);
        }
        for url in &acme_directory {
            let is_plain = url.username().is_empty() && url.password().is_none() && url.has_host();
            if url.scheme() != "https" || !is_plain {
                let shown = format!("{}://{}…", url.scheme(), url.host_str().unwrap_or_default());
                return Err(InvalidAcme::Url(shown));
            }
        }
        let roots = match acme_ca_file {
            None => None,
            Some(path) => {
                let trust = Trust::file(&path).map_err(|cause| InvalidAcme::Authorities { path, cause })?;
                roots_of(trust)
            }
        };
        let given: Vec<_> = acme_directory.iter().map(Url::to_string).collect();
        let directories = if given.is_empty() { Self::default().directories } else { given };
        Ok(Self { directories, roots })
    }

    /// Returns the CA certificates to verify ACME servers with. Reads those of the system if no others are set.
    #[must_use]
    pub fn trusted(&self) -> RootCertStore {
        self.roots.clone().or_else(|| roots_of(Trust::system())).unwrap_or_else(RootCertStore::empty)
    }
}

fn roots_of(trust: Trust) -> Option<RootCertStore> {
    match trust {
        Trust::Roots(roots) => Some(roots),
        Trust::Pin(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(urls: &[&str]) -> Result<AcmeServers, String> {
        let acme_directory = urls.iter().map(|url| url.parse().unwrap()).collect();
        AcmeServers::new(AcmeFlags { acme_directory, acme_ca_file: None }).map_err(|error| error.to_string())
    }

    #[test]
    fn only_https_servers_without_credentials_are_permitted() {
        assert_eq!(new(&[]).unwrap().directories, [ACME_DIRECTORY_DEFAULT, STAGING]);
        let own = "https://ca.example.org/acme/directory";
        assert_eq!(new(&[own]).unwrap().directories, [own]);
        for bad in ["http://ca.example.org/", "https://kim:hidden@ca.example.org/", "unix:/run/x"] {
            let error = new(&[bad]).unwrap_err();
            assert!(error.starts_with("--acme-directory must be") && !error.contains("hidden"), "{error}");
        }
        assert!(new(&[own; 17]).unwrap_err().contains("16 times"));
        let flags = AcmeFlags { acme_ca_file: Some("/nonexistent".into()), ..AcmeFlags::default() };
        assert!(AcmeServers::new(flags).unwrap_err().to_string().starts_with("--acme-ca-file /nonexistent"));
    }
}
