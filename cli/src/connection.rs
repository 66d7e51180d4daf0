//! Connection settings of the command: control servers, trusted certificates and token.

use std::{
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
};

use client::{Token, TokenSource, Url};

use crate::{args::Global, error::Failure};

/// URL of the control API if no flag, environment variable or settings file specifies one, and this user has no
/// access to the default socket.
const API_DEFAULT: &str = "http://127.0.0.1:7440";
/// Environment variable with a token. There is no flag for the token itself, because process arguments are
/// visible to all users of a machine.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";

/// Resolved connection settings of a command, with the warnings found while resolving them.
pub(crate) struct Connection {
    /// Control server URLs, trusted certificates and credential.
    pub(crate) control: client::Connection,
    /// `curl` options with equivalent trust settings, and a reference to the token instead of the secret.
    pub(crate) curl: Vec<String>,
    /// Warnings printed on stderr before the command runs; they do not prevent it.
    pub(crate) warnings: Vec<String>,
}

impl Connection {
    /// Creates the connection to the default socket of this machine, without a token.
    pub(crate) fn of_socket() -> Self {
        let control = client::Connection {
            urls: socket_url().into_iter().collect(),
            ca_file: None,
            pin: None,
            identity: None,
            token: TokenSource::None,
        };
        let curl = vec![format!("--unix-socket {}", client::socket::PATH_DEFAULT)];
        Self { control, curl, warnings: Vec::new() }
    }

    /// Resolves the settings: applies the defaults, and reads the token.
    pub(crate) fn of(global: &Global) -> Result<Self, Failure> {
        let mut warnings = Vec::new();
        let mut urls = global.api.clone();
        if urls.is_empty() {
            urls.extend(default_api());
        }
        let (ca_file, pin) = (global.ca_file.clone(), global.ca_hash);
        let curl_trust = match (&ca_file, pin) {
            (Some(path), _) => Some(format!("--cacert {}", quoted_path(path))),
            // curl does not support this kind of pin.
            (None, Some(_)) => Some("-k".to_owned()),
            (None, None) => None,
        };
        let (token, curl_token) = token(global, &mut warnings)?.unzip();
        let token = token.map_or(TokenSource::None, TokenSource::Fixed);
        let curl_socket = urls.first().and_then(client::socket::path_of);
        let curl_socket = curl_socket.map(|path| format!("--unix-socket {}", quoted_path(&path)));
        let curl = curl_socket.into_iter().chain(curl_trust).chain(curl_token).collect();
        let control = client::Connection { urls, ca_file, pin, identity: None, token };
        Ok(Self { control, curl, warnings })
    }
}

/// Returns the URL of the default socket ([`client::socket::PATH_DEFAULT`]).
fn socket_url() -> Option<Url> {
    client::socket::parse(&format!("{}:{}", client::socket::SCHEME, client::socket::PATH_DEFAULT))?.ok()
}

/// Returns the URL of the default socket if this user has access to it, else
/// [`API_DEFAULT`].
fn default_api() -> Option<Url> {
    let has_access = UnixStream::connect(client::socket::PATH_DEFAULT).is_ok();
    socket_url().filter(|_| has_access).or_else(|| Url::parse(API_DEFAULT).ok())
}

/// Returns the token, and the `curl` option that refers to its file or variable. `None` if no token is
/// configured.
fn token(global: &Global, warnings: &mut Vec<String>) -> Result<Option<(Token, String)>, Failure> {
    let variable = || std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    // The variable takes precedence over the settings file, like every other variable, but not over a context that is
    // given by flag or variable.
    let is_flag_given = global.token_file.is_some() && !global.is_token_file_from_settings;
    let variable = if is_flag_given || global.context.is_some() { None } else { variable() };
    let (token, reference) = match (variable, &global.token_file) {
        (Some(text), _) => (Token::parse(&text, TOKEN_VARIABLE)?, format!("${TOKEN_VARIABLE}")),
        (None, Some(path)) => {
            warnings.extend(readable_by_others(path));
            (Token::read(path)?, format!("$(cat {})", quoted_path(path)))
        }
        (None, None) => return Ok(None),
    };
    Ok(Some((token, format!("-H \"Authorization: Bearer {reference}\""))))
}

fn readable_by_others(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o077 != 0)
        .then(|| format!("warning: {0} is readable by other users; run `chmod 600 {0}`", path.display()))
}

fn quoted_path(path: &Path) -> String {
    crate::client::shell_quoted(&path.display().to_string())
}
