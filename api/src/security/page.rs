//! What is asked of requests that a browser may have been made to send, and what the page may not do.
//!
//! A cookie goes with every request to this server, whoever made the browser send it. So what may change something needs a
//! header that no page of others can add without asking this server first, which never allows it; and where the browser
//! says which page asks, it has to be one of this server.

use http::{HeaderMap, HeaderName, Method, Uri, header};

use super::{Access, Identity};
use crate::base::error::{Code, Problem};

/// What the page adds to its requests.
const X_PAGE: HeaderName = HeaderName::from_static("x-tidegate-page");
/// How the page that asks is related to this server (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Paths whose requests change nothing although they have a body, or end the session itself.
const QUESTIONS: [&str; 3] = ["/v1/plan", "/v1/rollback/plan", "/v1/session"];

/// What of a request is looked at.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// The method.
    pub(crate) method: &'a Method,
    /// The target.
    pub(crate) uri: &'a Uri,
    /// The headers.
    pub(crate) headers: &'a HeaderMap,
    /// The path as the router has it.
    pub(crate) route: &'a str,
}

/// Whether a request comes from the page.
pub(crate) fn is_from_page(access: &Access, headers: &HeaderMap) -> bool {
    access.is_by_page() || (*access.identity() == Identity::Anyone && headers.contains_key(X_PAGE))
}

/// Refuses what a page of others may have made a browser send, and what the page may not do.
pub(crate) fn check(asked: &Asked<'_>, access: &Access, is_read_only: bool) -> Result<(), Problem> {
    if asked.method.is_safe() {
        return Ok(());
    }
    // A token in a header, or a certificate that agents have, is nothing that a browser adds by itself.
    let rests_on_browser =
        access.is_by_page() || matches!(access.identity(), Identity::Anyone | Identity::Nobody);
    if rests_on_browser {
        check_site(asked)?;
    }
    if access.is_by_page() && asked.headers.get(X_PAGE).is_none_or(|value| value != "1") {
        return Err(cross_site("a session of the page counts only with the header `X-Tidegate-Page: 1`"));
    }
    if is_read_only && is_from_page(access, asked.headers) && !QUESTIONS.contains(&asked.route) {
        let problem =
            Problem::new(Code::ReadOnly, "the page may only read: the server runs with --page-read-only");
        return Err(problem.hint("use the command line, or the API with a token"));
    }
    Ok(())
}

/// Where the browser says which page asks, it must be one of this server.
fn check_site(asked: &Asked<'_>) -> Result<(), Problem> {
    let sites = asked.headers.get_all(FETCH_SITE).iter();
    if sites.into_iter().any(|site| site != "same-origin" && site != "none") {
        return Err(cross_site("a page of another server made the browser send this"));
    }
    let origins: Vec<_> = asked.headers.get_all(header::ORIGIN).iter().collect();
    let Some(origin) = origins.first() else { return Ok(()) };
    let own = asked.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let own = own.or_else(|| asked.uri.authority().map(http::uri::Authority::as_str));
    let is_own = |own: &str| is_same(origin.to_str().unwrap_or_default(), own);
    if origins.len() == 1 && own.is_some_and(is_own) {
        return Ok(());
    }
    Err(cross_site("the header `Origin` names another server than the one that was called"))
}

/// Whether a page of an origin is of the server that is called by a name. Who ends TLS before this server calls it in plain
/// text, so the scheme is left out, but for the port that it stands for.
fn is_same(origin: &str, host: &str) -> bool {
    let Some((scheme, site)) = origin.split_once("://") else { return false };
    let default = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return false,
    };
    let bare = |name: &str| name.strip_suffix(default).unwrap_or(name).to_ascii_lowercase();
    !site.is_empty() && bare(site) == bare(host)
}

fn cross_site(detail: &str) -> Problem {
    Problem::new(Code::CrossSite, detail)
        .hint("send a token as `Authorization: Bearer` in place of the cookie")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_by_host_and_port() {
        for (origin, host) in [
            ("http://localhost:7440", "localhost:7440"),
            ("https://tide.example", "tide.example"),
            ("https://tide.example", "Tide.Example:443"),
            ("http://[::1]:7440", "[::1]:7440"),
        ] {
            assert!(is_same(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "localhost"),
            ("", ""),
            ("http://", ""),
            ("file://x", "x"),
            ("http://localhost:7441", "localhost:7440"),
            ("http://evil.example", "tide.example"),
            ("http://tide.example.evil.example", "tide.example"),
            ("http://tide.example", "tide.example:443"),
        ] {
            assert!(!is_same(origin, host), "{origin} {host}");
        }
    }
}
