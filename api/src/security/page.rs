//! Protection against cross-site request forgery, and the read-only mode of the status page.
//!
//! Browsers add the session cookie to every request to this server, also to requests triggered by other
//! sites. Mutating requests with the cookie therefore need a header that other sites cannot add without a
//! CORS preflight, which this server never allows. If the browser names the requesting site (`Origin`,
//! `Sec-Fetch-Site`), the site must be this server.

use http::{HeaderMap, HeaderName, Method, Uri, header};

use super::{Access, Identity};
use crate::base::error::{Code, Problem};

/// Request header that the status page sends with every request; other origins cannot set it without CORS.
const X_PAGE: HeaderName = HeaderName::from_static("x-tidegate-page");
/// Fetch Metadata header with the relation between the requesting page and this server.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Routes with unsafe methods that a read-only status page may use: previews of changes, login and logout.
const QUESTIONS: [&str; 3] = ["/v1/plan", "/v1/rollback/plan", "/v1/session"];

/// Properties of a request that the protection against cross-site requests reads.
#[derive(Debug)]
pub(crate) struct PageRequest<'a> {
    /// HTTP method of the request.
    pub(crate) method: &'a Method,
    /// Target of the request.
    pub(crate) uri: &'a Uri,
    /// Headers of the request.
    pub(crate) headers: &'a HeaderMap,
    /// Path pattern of the route that matches the request.
    pub(crate) route: &'a str,
}

/// Returns true if the status page sent the request: the request has a session or, without authentication, the
/// header [`X_PAGE`].
pub(crate) fn is_from_page(access: &Access, headers: &HeaderMap) -> bool {
    access.is_by_page() || (*access.identity() == Identity::Anyone && headers.contains_key(X_PAGE))
}

/// Rejects requests that a page of another site may have triggered, and changes by a read-only status page.
pub(crate) fn check(asked: &PageRequest<'_>, access: &Access, is_read_only: bool) -> Result<(), Problem> {
    if asked.method.is_safe() {
        return Ok(());
    }
    // Browsers do not add a token header or agent certificate on their own.
    let rests_on_browser =
        access.is_by_page() || matches!(access.identity(), Identity::Anyone | Identity::Nobody);
    if rests_on_browser {
        check_site(asked)?;
    }
    if access.is_by_page() && asked.headers.get(X_PAGE).is_none_or(|value| value != "1") {
        return Err(cross_site("a session of the page needs the header `X-Tidegate-Page: 1`"));
    }
    if is_read_only && is_from_page(access, asked.headers) && !QUESTIONS.contains(&asked.route) {
        let problem = Problem::new(
            Code::ReadOnly,
            "the status page is read-only: the server runs with \
                                          --page-read-only",
        );
        return Err(problem.hint("use the command line, or the API with a token"));
    }
    Ok(())
}

/// Checks by `Sec-Fetch-Site` and `Origin` that the page that sent the request belongs to this server.
/// Requests without these headers are accepted.
fn check_site(asked: &PageRequest<'_>) -> Result<(), Problem> {
    let sites = asked.headers.get_all(FETCH_SITE).iter();
    if sites.into_iter().any(|site| site != "same-origin" && site != "none") {
        return Err(cross_site("a page of another site made the browser send this request"));
    }
    let origins: Vec<_> = asked.headers.get_all(header::ORIGIN).iter().collect();
    let Some(origin) = origins.first() else { return Ok(()) };
    let own = asked.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let own = own.or_else(|| asked.uri.authority().map(http::uri::Authority::as_str));
    let is_own = |own: &str| is_same(origin.to_str().unwrap_or_default(), own);
    if origins.len() == 1 && own.is_some_and(is_own) {
        return Ok(());
    }
    Err(cross_site("the header `Origin` does not match the host of the request"))
}

/// Returns true if an `Origin` header matches the `Host`. The scheme is used only for the default port, because a
/// proxy may terminate TLS in front of this server.
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
        .hint("send a token with `Authorization: Bearer` instead of the cookie")
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
