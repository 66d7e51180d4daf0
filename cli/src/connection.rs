//! Connection settings, merged from flags, environment variables and the configuration file, and validated.

use std::{
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use reqwest::{Url, header::HeaderValue};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Deserializer};
use tls_trust::{Pin, Trust};

use crate::{
    args::{Global, parse_api},
    error::Failure,
};

/// Default API URL.
const API_DEFAULT: &str = "http://127.0.0.1:7440";
/// Maximum number of control servers; more than any store has members.
const APIS_MAX: usize = 8;
/// Environment variable with a token. There is no flag for the token itself, because process arguments are
/// visible to all users of a machine.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// Maximum size of a token file in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Maximum size of the configuration file in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Connection settings.
pub(crate) struct Connection {
    /// Servers in the order in which they are tried; at least one.
    pub(crate) urls: Vec<Url>,
    /// TLS settings with the trusted CAs.
    pub(crate) tls: rustls::ClientConfig,
    /// Credential, if any.
    pub(crate) token: Option<Token>,
    /// `curl` options with equivalent trust settings.
    pub(crate) curl_trust: Option<String>,
    /// Warnings that do not prevent the command.
    pub(crate) warnings: Vec<String>,
}

/// Bearer token.
pub(crate) struct Token {
    /// Value of the Authorization header; hidden from `Debug`.
    pub(crate) header: HeaderValue,
    /// `curl` options with a reference to the token instead of the secret.
    pub(crate) curl: String,
}

/// Configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Settings {
    #[serde(deserialize_with = "one_or_several")]
    api: Vec<String>,
    ca_file: Option<PathBuf>,
    ca_hash: Option<String>,
    token_file: Option<PathBuf>,
}

/// Deserializes a list, or a single value as a list of one.
fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a URL, or a list of URLs")]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }
    Ok(match OneOrSeveral::deserialize(from)? {
        OneOrSeveral::One(one) => vec![one],
        OneOrSeveral::Several(several) => several,
    })
}

impl Connection {
    /// Merges the settings: flags take precedence over environment variables, both over the configuration
    /// file, and all over the defaults.
    pub(crate) fn of(global: &Global) -> Result<Self, Failure> {
        let file = Settings::read()?;
        let mut warnings = Vec::new();
        let urls = servers(&global.api, &file.api)?;
        // CA file and pin are taken from the same source: a pin given as a flag is not weakened by the file's
        // CAs.
        let (ca_file, pin) = if global.ca_file.is_some() || global.ca_hash.is_some() {
            (global.ca_file.clone(), global.ca_hash)
        } else {
            (file.ca_file, file.ca_hash.map(|pin| parse_pin(&pin)).transpose()?)
        };
        if ca_file.is_some() && pin.is_some() {
            return Err(Failure::usage("both a CA file and a pinned hash are given", "use only one of them"));
        }
        let is_used = urls.iter().any(|url| url.scheme() == "https");
        let tls = believed(ca_file.as_deref(), pin, is_used)?;
        let curl_trust = match (&ca_file, pin) {
            (Some(path), _) => Some(format!("--cacert {}", quoted_path(path))),
            // curl does not support this kind of pin.
            (None, Some(_)) => Some("-k".to_owned()),
            (None, None) => None,
        };
        let token = token(global.token_file.as_ref(), file.token_file.as_ref(), &mut warnings)?;
        if token.is_some()
            && let Some(url) = urls.iter().find(|url| !is_private(url))
        {
            let message =
                format!("refusing to send the token to {} over an unencrypted connection", origin(url));
            return Err(Failure::usage(message, "use https://, or omit the token"));
        }
        Ok(Self { urls, tls, token, curl_trust, warnings })
    }
}

/// Builds the TLS settings. `https` URLs connect only to servers verified by the pin, the CA file or the
/// system's CAs.
fn believed(ca_file: Option<&Path>, pin: Option<Pin>, is_used: bool) -> Result<ClientConfig, Failure> {
    let trust = match (pin, ca_file) {
        (Some(pin), _) => Trust::Pin(pin),
        (None, Some(path)) => Trust::file(path)
            .map_err(|error| Failure::File { path: path.to_owned(), cause: error.to_string() })?,
        (None, None) if is_used => Trust::system(),
        // Plain HTTP needs no CAs, and loading those of the system takes longer than the request.
        (None, None) => Trust::Roots(RootCertStore::empty()),
    };
    let client = trust.client().map_err(|error| Failure::Usage { message: error.to_string(), hint: None })?;
    Ok(client.with_no_client_auth())
}

/// Returns the display form of a URL.
pub(crate) fn origin(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

fn servers(said: &[Url], of_file: &[String]) -> Result<Vec<Url>, Failure> {
    let mut urls = said.to_vec();
    if urls.is_empty() {
        let texts = of_file.iter().flat_map(|text| text.split(','));
        let parsed = texts.map(|text| parse_api(text.trim()).map_err(|error| (text, error)));
        urls = parsed.collect::<Result<_, _>>().map_err(|(text, error)| {
            Failure::usage(format!("`api` in the configuration file: `{text}`"), error)
        })?;
    }
    if urls.is_empty() {
        urls.extend(Url::parse(API_DEFAULT).ok());
    }
    if urls.len() > APIS_MAX {
        let message = format!("--api lists {} servers", urls.len());
        return Err(Failure::usage(message, format!("use at most {APIS_MAX}")));
    }
    Ok(urls)
}

fn parse_pin(text: &str) -> Result<Pin, Failure> {
    text.parse().map_err(|error: String| Failure::usage("`ca-hash` in the configuration file", error))
}

/// Returns true if requests to `url` cannot be read on the network: HTTPS or loopback.
fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || is_loopback
}

fn token(
    flag: Option<&PathBuf>,
    of_file: Option<&PathBuf>,
    warnings: &mut Vec<String>,
) -> Result<Option<Token>, Failure> {
    let variable = || std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let (text, curl, place) = match (flag, variable(), of_file) {
        (None, Some(text), _) => (text, format!("${TOKEN_VARIABLE}"), TOKEN_VARIABLE.to_owned()),
        (Some(path), _, _) | (None, None, Some(path)) => {
            let bytes = read_small(path, TOKEN_BYTES_MAX)?;
            warnings.extend(readable_by_others(path));
            let place = path.display().to_string();
            (String::from_utf8_lossy(&bytes).into_owned(), format!("$(cat {})", quoted_path(path)), place)
        }
        (None, None, None) => return Ok(None),
    };
    let wrong = || {
        Failure::usage(
            format!("{place} contains no valid token"),
            "a token is a single line of letters, \
                                                              digits and _",
        )
    };
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong());
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| wrong())?;
    header.set_sensitive(true);
    Ok(Some(Token { header, curl: format!("-H \"Authorization: Bearer {curl}\"") }))
}

fn readable_by_others(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o077 != 0)
        .then(|| format!("warning: {0} is readable by other users; run `chmod 600 {0}`", path.display()))
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let unusable = |cause: String| Failure::File { path: path.to_owned(), cause };
    let file = std::fs::File::open(path).map_err(|error| unusable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| unusable(error.to_string()))?;
    if bytes.len() as u64 > limit {
        return Err(unusable(format!("the file is longer than {limit} bytes")));
    }
    Ok(bytes)
}

fn quoted_path(path: &Path) -> String {
    crate::client::shell_quoted(&path.display().to_string())
}

impl Settings {
    /// Reads the configuration file, if it exists.
    fn read() -> Result<Self, Failure> {
        let Some(path) = Self::path().filter(|path| path.exists()) else { return Ok(Self::default()) };
        let bytes = read_small(&path, FILE_BYTES_MAX)?;
        let parsed = toml::from_str(&String::from_utf8_lossy(&bytes));
        parsed.map_err(|error| Failure::File { path, cause: error.message().to_owned() })
    }

    fn path() -> Option<PathBuf> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base =
            absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
        Some(base.join("tidegate/config.toml"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_only_where_nobody_else_reads_it() {
        for (url, expected) in [
            ("https://control:7440", true),
            ("http://127.0.0.1:7440", true),
            ("http://[::1]:7440", true),
            ("http://localhost:7440", true),
            ("http://10.0.0.1:7440", false),
            ("http://localhost.example:7440", false),
        ] {
            assert_eq!(is_private(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
