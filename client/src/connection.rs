//! Connection settings: servers, TLS and authentication.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use reqwest::Url;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tls_trust::{Pin, Trust, Untrusted};

use crate::{
    socket,
    token::{TokenError, TokenSource},
};

/// Maximum number of control servers in a client configuration; no store has that many members.
pub const SERVERS_MAX: usize = 8;

/// Servers, trusted certificates and credentials of a client.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// URLs of the control servers in the order in which they are tried, 1 to [`SERVERS_MAX`]; or the URL of one
    /// socket ([`crate::socket`]).
    pub urls: Vec<Url>,
    /// PEM file with the trusted CAs; `None` trusts the CAs of the system.
    pub ca_file: Option<PathBuf>,
    /// Hash of a certificate that must be in the certificate chain of each server. Mutually exclusive with
    /// `ca_file`.
    pub pin: Option<Pin>,
    /// Client certificate for authentication, if any.
    pub identity: Option<Arc<Identity>>,
    /// Source of the bearer token for authentication.
    pub token: TokenSource,
}

/// Client certificate with its chain and private key.
#[derive(Debug)]
pub struct Identity {
    /// Certificate chain, with the client's own certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key of the client's own certificate, the first of `chain`.
    pub key: PrivateKeyDer<'static>,
}

/// Error of the connection settings, found before any request is sent.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Server list that is empty or longer than [`SERVERS_MAX`]. The payload is its length.
    #[error("--api must list 1 to {SERVERS_MAX} servers, found {0}")]
    ServerCount(usize),
    /// A socket is given together with other servers.
    #[error("--api must list either servers or one socket")]
    SocketAmongServers,
    /// Both a CA file and a certificate pin are given.
    #[error("--ca-file and --ca-hash are mutually exclusive: use only one of them")]
    TwoTrusts,
    /// The CA file cannot be used.
    #[error("--ca-file {}: {cause}", path.display())]
    CaFile {
        /// Path of the CA file.
        path: PathBuf,
        /// Reason why the CA file cannot be used.
        cause: Untrusted,
    },
    /// A token would be sent over unencrypted HTTP to another machine.
    #[error(
        "refusing to send the token to {0} over an unencrypted connection: use https://, or omit the token"
    )]
    UnencryptedToken(String),
    /// The file or variable with the token is unreadable or contains no valid token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Author of writes that contains control characters and therefore cannot be sent in a header.
    #[error("the author of writes must be text without control characters")]
    Author,
    /// The TLS configuration or the HTTP client cannot be created.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

impl Connection {
    /// Validates the settings.
    ///
    /// # Errors
    /// Returns the first invalid or contradictory setting, or the error of the token source.
    pub fn check(&self) -> Result<(), SetupError> {
        if self.urls.is_empty() || self.urls.len() > SERVERS_MAX {
            return Err(SetupError::ServerCount(self.urls.len()));
        }
        if self.urls.len() > 1 && self.urls.iter().any(|url| url.scheme() == socket::SCHEME) {
            return Err(SetupError::SocketAmongServers);
        }
        if self.ca_file.is_some() && self.pin.is_some() {
            return Err(SetupError::TwoTrusts);
        }
        let readable = self.urls.iter().find(|url| self.token.is_some() && !is_private(url));
        if let Some(url) = readable {
            return Err(SetupError::UnencryptedToken(origin(url)));
        }
        self.token.token()?;
        Ok(())
    }

    /// Builds the TLS configuration. `https` URLs connect only to servers verified by the pin, the CA file or
    /// the CAs of the system.
    ///
    /// # Errors
    /// Returns an error if the CA file or the client certificate cannot be used.
    pub fn tls(&self) -> Result<ClientConfig, SetupError> {
        let unusable = |error: &dyn std::error::Error| SetupError::Tls(error.to_string());
        let trust = match (self.pin, &self.ca_file) {
            (Some(pin), _) => Trust::Pin(pin),
            (None, Some(path)) => {
                Trust::file(path).map_err(|cause| SetupError::CaFile { path: path.clone(), cause })?
            }
            (None, None) if self.urls.iter().any(|url| url.scheme() == "https") => Trust::system(),
            // Plain HTTP needs no CAs, and loading those of the system takes longer than a request.
            (None, None) => Trust::Roots(RootCertStore::empty()),
        };
        let config = trust.control_client().map_err(|error| unusable(&error))?;
        match self.identity.as_deref() {
            None => Ok(config.with_no_client_auth()),
            Some(Identity { chain, key }) => {
                let config = config.with_client_auth_cert(chain.clone(), key.clone_key());
                config.map_err(|error| unusable(&error))
            }
        }
    }
}

/// Returns the URL of a server in the form used in messages.
pub(crate) fn origin(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Returns true if `url` uses HTTPS, a socket or a loopback address, so that requests to it cannot be read on
/// the network.
pub(crate) fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    ["https", socket::SCHEME].contains(&url.scheme()) || is_loopback
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    const SOCKET: &str = "unix:/run/tidegate/api.sock";

    fn to(urls: &[&str]) -> Connection {
        let urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        Connection { urls, ..Connection::default() }
    }

    fn with_token(urls: &[&str]) -> Connection {
        Connection { token: TokenSource::Fixed(Token::parse("tg_x", "it").unwrap()), ..to(urls) }
    }

    #[test]
    fn a_token_is_sent_only_where_it_cannot_be_read_on_the_network() {
        for (url, expected) in [
            ("https://control:7440", true),
            ("http://127.0.0.1:7440", true),
            ("http://[::1]:7440", true),
            ("http://localhost:7440", true),
            ("http://10.0.0.1:7440", false),
            ("http://localhost.example:7440", false),
        ] {
            let connection = with_token(&["http://localhost:1", url]);
            assert_eq!(connection.check().is_ok(), expected, "{url}");
        }
        with_token(&[SOCKET]).check().unwrap();
    }

    #[test]
    fn contradictions_are_errors_with_the_flag() {
        let error = |connection: Connection| connection.check().unwrap_err().to_string();
        assert!(error(to(&[])).contains("--api must list 1 to 8 servers, found 0"));
        assert!(error(to(&["http://a"; 9])).contains("found 9"));
        assert!(error(to(&[SOCKET, "http://a"])).contains("either servers or one socket"));
        let pin = format!("sha256:{}", "0".repeat(64)).parse().ok();
        let both = Connection { ca_file: Some("ca.pem".into()), pin, ..to(&["https://a"]) };
        assert!(error(both).contains("mutually exclusive"));
        let missing = Connection { token: TokenSource::File("/nonexistent".into()), ..to(&["https://a"]) };
        assert!(error(missing).contains("--token-file /nonexistent"));
        let missing = Connection { ca_file: Some("/nonexistent".into()), ..to(&["https://a"]) };
        assert!(missing.tls().unwrap_err().to_string().starts_with("--ca-file /nonexistent: "));
        to(&["http://a"]).tls().unwrap();
    }
}
