//! Unix socket of a control server on this machine, given as the URL `unix:/run/tidegate/api.sock`.
//!
//! Requests over the socket have the URL `http://localhost`. Access is limited by the permissions of the
//! socket, so they need no token.

use std::path::PathBuf;

use reqwest::Url;

/// Scheme of the URL of a socket.
pub const SCHEME: &str = "unix";
/// Path of the socket that the command uses by default.
pub const PATH_DEFAULT: &str = "/run/tidegate/api.sock";

/// Parses the URL of a socket. Returns `None` if the text has another scheme.
///
/// # Errors
/// Returns a message if the path is not absolute, or has characters that a URL escapes.
#[must_use]
pub fn parse(text: &str) -> Option<Result<Url, String>> {
    let path = text.strip_prefix("unix:")?;
    let url =
        Url::parse(text).ok().filter(|url| url.path() == path && path.starts_with('/') && path.len() > 1);
    Some(url.ok_or_else(|| format!("must have an absolute path, such as unix:{PATH_DEFAULT}")))
}

/// Returns the path of the socket if `url` is that of a socket.
#[must_use]
pub fn path_of(url: &Url) -> Option<PathBuf> {
    (url.scheme() == SCHEME).then(|| PathBuf::from(url.path()))
}

/// Returns the base URL of requests to a server: `http://localhost` for the URL of a socket, otherwise `url`
/// itself.
///
/// # Panics
/// Never panics: the URL is valid.
#[must_use]
pub fn request_base(url: &Url) -> Url {
    if url.scheme() == SCHEME {
        Url::parse("http://localhost").expect("the URL is valid")
    } else {
        url.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_an_absolute_path_and_is_no_other_url() {
        let url = parse("unix:/run/tidegate/api.sock").unwrap().unwrap();
        assert_eq!(path_of(&url), Some(PathBuf::from("/run/tidegate/api.sock")));
        assert_eq!(request_base(&url).as_str(), "http://localhost/");
        for bad in [
            "unix:",
            "unix:/",
            "unix:api.sock",
            "unix://host/api.sock",
            "unix:/a b",
            "unix:/a?b",
            "unix:/a/../b",
        ] {
            assert!(parse(bad).unwrap().is_err(), "{bad}");
        }
        assert!(parse("http://localhost").is_none());
        let http = Url::parse("http://localhost:7440").unwrap();
        assert_eq!((path_of(&http), request_base(&http)), (None, http));
    }
}
