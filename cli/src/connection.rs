//! How control is reached: what flags, environment and the file of settings say, put together and checked.

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

/// Where control is when nobody says anything.
const API_DEFAULT: &str = "http://127.0.0.1:7440";
/// Control servers that are tried: more than any store has members.
const APIS_MAX: usize = 8;
/// The variable with a token. It is no flag: everybody on a machine sees the arguments of everybody's processes.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// Bytes of a token with room to spare.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Bytes of the file of settings.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How control is reached.
pub(crate) struct Connection {
    /// The servers in the order in which they are tried; at least one.
    pub(crate) urls: Vec<Url>,
    /// Whom to believe to be one.
    pub(crate) tls: rustls::ClientConfig,
    /// Who asks.
    pub(crate) token: Option<Token>,
    /// What to add to a `curl` command so that it believes the same.
    pub(crate) curl_trust: Option<String>,
    /// What is odd and stops nothing.
    pub(crate) warnings: Vec<String>,
}

/// What proves who asks.
pub(crate) struct Token {
    /// The header's value; not shown by `Debug`.
    pub(crate) header: HeaderValue,
    /// The same for a `curl` command, without the secret itself.
    pub(crate) curl: String,
}

/// The file of settings.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Settings {
    #[serde(deserialize_with = "one_or_several")]
    api: Vec<String>,
    ca_file: Option<PathBuf>,
    ca_hash: Option<String>,
    token_file: Option<PathBuf>,
}

/// Takes a list, or what would be the only one of it.
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
    /// Puts together what is said: a flag wins over its variable, both over the file, that over the default.
    pub(crate) fn of(global: &Global) -> Result<Self, Failure> {
        let file = Settings::read()?;
        let mut warnings = Vec::new();
        let urls = servers(&global.api, &file.api)?;
        // What names an authority belongs together: a flag's pin is not weakened by the file's authorities.
        let (ca_file, pin) = if global.ca_file.is_some() || global.ca_hash.is_some() {
            (global.ca_file.clone(), global.ca_hash)
        } else {
            (file.ca_file, file.ca_hash.map(|pin| parse_pin(&pin)).transpose()?)
        };
        if ca_file.is_some() && pin.is_some() {
            return Err(Failure::usage(
                "an authority's file and a pinned hash are given",
                "give one of both",
            ));
        }
        let is_used = urls.iter().any(|url| url.scheme() == "https");
        let tls = believed(ca_file.as_deref(), pin, is_used)?;
        let curl_trust = match (&ca_file, pin) {
            (Some(path), _) => Some(format!("--cacert {}", quoted_path(path))),
            // curl knows no such pin.
            (None, Some(_)) => Some("-k".to_owned()),
            (None, None) => None,
        };
        let token = token(global.token_file.as_ref(), file.token_file.as_ref(), &mut warnings)?;
        if token.is_some()
            && let Some(url) = urls.iter().find(|url| !is_private(url))
        {
            let message = format!("the token would be sent to {} where others can read it", origin(url));
            return Err(Failure::usage(message, "write https://, or leave the token out"));
        }
        Ok(Self { urls, tls, token, curl_trust, warnings })
    }
}

/// The TLS settings for whom the settings name: `https` URLs lead nowhere but to a server that is believed.
fn believed(ca_file: Option<&Path>, pin: Option<Pin>, is_used: bool) -> Result<ClientConfig, Failure> {
    let trust = match (pin, ca_file) {
        (Some(pin), _) => Trust::Pin(pin),
        (None, Some(path)) => Trust::file(path)
            .map_err(|error| Failure::File { path: path.to_owned(), cause: error.to_string() })?,
        (None, None) if is_used => Trust::system(),
        // Plain HTTP needs none, and reading those of the system takes longer than the request.
        (None, None) => Trust::Roots(RootCertStore::empty()),
    };
    let client = trust.client().map_err(|error| Failure::Usage { message: error.to_string(), hint: None })?;
    Ok(client.with_no_client_auth())
}

/// A URL as it is shown.
pub(crate) fn origin(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

fn servers(said: &[Url], of_file: &[String]) -> Result<Vec<Url>, Failure> {
    let mut urls = said.to_vec();
    if urls.is_empty() {
        let texts = of_file.iter().flat_map(|text| text.split(','));
        let parsed = texts.map(|text| parse_api(text.trim()).map_err(|error| (text, error)));
        urls = parsed.collect::<Result<_, _>>().map_err(|(text, error)| {
            Failure::usage(format!("`api` in the file of settings: `{text}`"), error)
        })?;
    }
    if urls.is_empty() {
        urls.extend(Url::parse(API_DEFAULT).ok());
    }
    if urls.len() > APIS_MAX {
        let message = format!("--api names {} servers", urls.len());
        return Err(Failure::usage(message, format!("name at most {APIS_MAX}")));
    }
    Ok(urls)
}

fn parse_pin(text: &str) -> Result<Pin, Failure> {
    text.parse().map_err(|error: String| Failure::usage("`ca-hash` in the file of settings", error))
}

/// Whether nobody else reads what is sent there.
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
    let wrong =
        || Failure::usage(format!("{place} holds no token"), "a token is one line of letters, digits and _");
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
    (mode & 0o077 != 0).then(|| format!("warning: others can read {0}; `chmod 600 {0}`", path.display()))
}

/// A file that is small or not what it should be.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let unusable = |cause: String| Failure::File { path: path.to_owned(), cause };
    let file = std::fs::File::open(path).map_err(|error| unusable(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| unusable(error.to_string()))?;
    if bytes.len() as u64 > limit {
        return Err(unusable(format!("it is longer than {limit} bytes")));
    }
    Ok(bytes)
}

fn quoted_path(path: &Path) -> String {
    crate::client::shell_quoted(&path.display().to_string())
}

impl Settings {
    /// The file of settings, if there is one.
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
