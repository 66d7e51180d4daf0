//! Settings of webhooks: URLs that receive notices about problems of the cluster.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, value_parser};
use reqwest::Url;
use rustls::RootCertStore;
use tls_trust::Trust;

/// Maximum number of receivers.
const RECEIVERS_MAX: usize = 16;
/// Prefix of a secret in the format of Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";
/// Minimum and maximum length of a decoded secret in bytes, as in the specification of Standard Webhooks.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Maximum size of a secret file in bytes.
const SECRET_FILE_BYTES_MAX: u64 = 1024;
/// Default time in seconds for which a problem has to last.
const DELAY_SECS_DEFAULT: u16 = 30;

/// Flags for webhooks.
#[derive(Debug, Clone, Default, Args)]
pub struct WebhookFlags {
    /// URL that receives a POST request when a problem has begun, when its impact changes and when it has ended; may be
    /// repeated
    #[arg(long, env = "TIDEGATE_WEBHOOK", value_name = "URL", value_delimiter = ',')]
    pub webhook: Vec<Url>,
    /// File with the secret that signs the requests to webhooks (Standard Webhooks), in the form whsec_BASE64 with 24 to
    /// 64 bytes [default: requests are not signed]
    #[arg(long, env = "TIDEGATE_WEBHOOK_SECRET_FILE", value_name = "FILE")]
    pub webhook_secret_file: Option<PathBuf>,
    /// PEM file with the CA certificates to verify the receivers of webhooks with [default: the system's CA
    /// certificates]
    #[arg(long, env = "TIDEGATE_WEBHOOK_CA_FILE", value_name = "FILE")]
    pub webhook_ca_file: Option<PathBuf>,
    /// Time in seconds for which a problem has to last before webhooks receive it, and to be absent before they receive
    /// its end, 0 to 3600 [default: 30]
    #[arg(long, env = "TIDEGATE_WEBHOOK_DELAY_SECS", value_name = "SECONDS", value_parser = value_parser!(u16).range(0..=3600))]
    pub webhook_delay_secs: Option<u16>,
}

/// Settings of webhooks.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// URLs of the receivers; at most 16, each with the scheme `http` or `https`.
    pub receivers: Vec<Url>,
    /// Secret that signs the requests; `None` sends them without a signature.
    pub secret: Option<WebhookSecret>,
    /// CA certificates to verify receivers with.
    pub roots: RootCertStore,
    /// Time in seconds for which a problem has to last or to be absent, 0 to 3600.
    pub delay_secs: u16,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self { receivers: Vec::new(), secret: None, roots: RootCertStore::empty(), delay_secs: 0 }
    }
}

/// Secret that signs requests. `Debug` does not print it.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    /// Parses a secret of the form `whsec_BASE64` after removing surrounding white space. Returns `None` unless it has 24
    /// to 64 bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.trim().strip_prefix(SECRET_PREFIX)?).ok()?;
        SECRET_BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Returns the key of the signatures.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// Reason why the settings of webhooks are rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidWebhook {
    /// URL with another scheme than `http` or `https`, or with a user name or password.
    #[error("--webhook must be http://… or https://… without user name and password, not `{0}`")]
    Url(String),
    /// More receivers than permitted.
    #[error("--webhook may be given {RECEIVERS_MAX} times")]
    TooMany,
    /// Setting without a receiver.
    #[error("{0} requires --webhook")]
    NoReceiver(&'static str),
    /// Secret file that cannot be read.
    #[error("--webhook-secret-file {}: {cause}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        cause: io::Error,
    },
    /// Secret file without a valid secret.
    #[error(
        "--webhook-secret-file {} must contain whsec_ followed by the Base64 form of 24 to 64 bytes: \
         echo whsec_$(openssl rand -base64 32)", .0.display()
    )]
    Secret(PathBuf),
    /// CA file that cannot be used.
    #[error("--webhook-ca-file {}: {cause}", path.display())]
    Authorities {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        cause: tls_trust::Untrusted,
    },
}

impl WebhookSettings {
    /// Checks the flags and reads the files that they name.
    ///
    /// # Errors
    /// Returns the first invalid setting, with the flag to change.
    pub fn new(flags: WebhookFlags) -> Result<Self, InvalidWebhook> {
        let WebhookFlags { webhook, webhook_secret_file, webhook_ca_file, webhook_delay_secs } = flags;
        if webhook.is_empty() {
            let orphan = [
                ("--webhook-secret-file", webhook_secret_file.is_some()),
                ("--webhook-ca-file", webhook_ca_file.is_some()),
                ("--webhook-delay-secs", webhook_delay_secs.is_some()),
            ];
            let orphan = orphan.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag));
            return orphan.map_or_else(|| Ok(Self::default()), |flag| Err(InvalidWebhook::NoReceiver(flag)));
        }
        if webhook.len() > RECEIVERS_MAX {
            return Err(InvalidWebhook::TooMany);
        }
        for url in &webhook {
            let is_plain = url.username().is_empty() && url.password().is_none() && url.has_host();
            if !["http", "https"].contains(&url.scheme()) || !is_plain {
                let shown = format!("{}://{}…", url.scheme(), url.host_str().unwrap_or_default());
                return Err(InvalidWebhook::Url(shown));
            }
        }
        let secret = webhook_secret_file.map(|path| read_secret(&path)).transpose()?;
        let trust = match webhook_ca_file {
            None => Trust::system(),
            Some(path) => Trust::file(&path).map_err(|cause| InvalidWebhook::Authorities { path, cause })?,
        };
        let roots = match trust {
            Trust::Roots(roots) => roots,
            Trust::Pin(_) => RootCertStore::empty(),
        };
        let delay_secs = webhook_delay_secs.unwrap_or(DELAY_SECS_DEFAULT);
        Ok(Self { receivers: webhook, secret, roots, delay_secs })
    }
}

fn read_secret(path: &Path) -> Result<WebhookSecret, InvalidWebhook> {
    use io::Read as _;
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|cause| InvalidWebhook::Unreadable { path: path.to_owned(), cause })?;
    WebhookSecret::parse(&text).ok_or_else(|| InvalidWebhook::Secret(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(flags: WebhookFlags) -> Result<WebhookSettings, String> {
        WebhookSettings::new(flags).map_err(|error| error.to_string())
    }

    fn to(url: &str) -> WebhookFlags {
        WebhookFlags { webhook: vec![url.parse().unwrap()], ..WebhookFlags::default() }
    }

    #[test]
    fn errors_name_the_flag_and_show_no_secret() {
        assert!(new(WebhookFlags::default()).unwrap().receivers.is_empty());
        assert_eq!(new(to("https://example.org/x")).unwrap().delay_secs, 30);
        for bad in ["ftp://example.org/x", "https://kim:hidden@example.org/", "unix:/run/x"] {
            let error = new(to(bad)).unwrap_err();
            assert!(error.starts_with("--webhook must be") && !error.contains("hidden"), "{error}");
        }
        let many = vec!["http://example.org".parse().unwrap(); 17];
        assert!(
            new(WebhookFlags { webhook: many, ..WebhookFlags::default() }).unwrap_err().contains("16 times")
        );
        let alone = WebhookFlags { webhook_delay_secs: Some(5), ..WebhookFlags::default() };
        assert_eq!(new(alone).unwrap_err(), "--webhook-delay-secs requires --webhook");
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, is_valid) in [
            ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n", true),
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", false),
            ("whsec_AAEC", false),
            ("", false),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let secret = Some(file.path().to_owned());
            let read = new(WebhookFlags { webhook_secret_file: secret, ..to("http://example.org") });
            assert_eq!(read.is_ok(), is_valid, "{text}");
            let shown = format!("{read:?}");
            assert!(!shown.contains("AAEC") && !shown.contains("0, 1, 2"), "{shown}");
        }
    }
}
