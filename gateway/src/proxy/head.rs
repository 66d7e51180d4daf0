//! Heads of requests: the host name and path on which routing depends, and the headers that an endpoint receives.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use ipnet::IpNet;
use model::http::normalize_host;

/// Headers that belong to one connection (RFC 9110 §7.6.1), besides those that `Connection` names.
const HOP_HEADERS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];
/// Further headers of one connection, of older programs.
const OLD_HOP_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("proxy-connection"), HeaderName::from_static("http2-settings")];
/// Headers that `Connection` must not name, because they belong to the message.
const KEPT_HEADERS: [HeaderName; 5] =
    [header::HOST, header::CONTENT_LENGTH, header::AUTHORIZATION, header::COOKIE, header::CACHE_CONTROL];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// Target of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Host name in lower case, without port; empty if the request has none.
    pub(crate) host: String,
}

impl Target {
    /// Reads the target of a request.
    ///
    /// # Errors
    /// Returns the reason if the request has no valid host name or path, or two host names. An endpoint could choose the
    /// other one.
    pub(crate) fn of<B>(request: &Request<B>) -> Result<Self, &'static str> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let of_header = match (hosts.next(), hosts.next()) {
            (None, None) => None,
            (Some(one), None) => Some(one.to_str().ok().and_then(normalize_host).ok_or(INVALID_HOST)?),
            (_, Some(_)) => return Err("the request has two host names"),
        };
        let of_target = match request.uri().authority() {
            Some(authority) => Some(normalize_host(authority.as_str()).ok_or(INVALID_HOST)?),
            None => None,
        };
        let host = match (of_target, of_header) {
            (Some(one), Some(other)) if one != other => return Err("the request has two host names"),
            (Some(host), _) | (None, Some(host)) => host,
            (None, None) => String::new(),
        };
        let path = request.uri().path();
        if !path.starts_with('/') {
            return Err("the target of the request is not a path");
        }
        if has_dot_segment(path) {
            return Err("the path has an element `.` or `..`");
        }
        Ok(Self { host })
    }
}

const INVALID_HOST: &str = "the host name is invalid";

/// Returns true if an endpoint could resolve the path to another one than the routes see (RFC 3986 §5.2.4).
fn has_dot_segment(path: &str) -> bool {
    if !path.contains('.') && !path.contains('%') {
        return false;
    }
    let path = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    let path = path.replace("%3b", ";");
    // Some endpoints remove the parameters of an element before they resolve it.
    let mut names = path.split(['/', '\\']).filter_map(|element| element.split(';').next());
    names.any(|name| name == "." || name == "..") || path.contains("%00")
}

/// Removes the headers that belong to one connection.
pub(super) fn remove_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<_> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .filter(|name| !KEPT_HEADERS.contains(name))
        .collect();
    for name in named.iter().chain(&HOP_HEADERS).chain(&OLD_HOP_HEADERS) {
        headers.remove(name);
    }
}

/// Returns true if the sender of a request accepts trailers, as clients of gRPC do (RFC 9110 §10.1.4).
pub(super) fn accepts_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("trailers"))
}

/// Origin of a request.
pub(super) struct RequestOrigin<'a> {
    /// Address of the client, or of a proxy in front.
    pub(super) peer: IpAddr,
    /// Port of the listener.
    pub(super) port: u16,
    /// True if the client uses TLS.
    pub(super) is_tls: bool,
    /// Networks of proxies whose headers are kept.
    pub(super) trusted: &'a [IpNet],
}

/// Sets the headers that tell the endpoint the client, host name, scheme and port of a request.
pub(super) fn set_forwarded(headers: &mut HeaderMap, host: Option<HeaderValue>, origin: &RequestOrigin<'_>) {
    let is_trusted = origin.trusted.iter().any(|network| network.contains(&origin.peer));
    if !is_trusted {
        for name in [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, FORWARDED_PORT, header::FORWARDED] {
            headers.remove(name);
        }
    }
    let mut chain: Vec<_> =
        headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
    let peer = origin.peer.to_string();
    chain.push(&peer);
    if let Ok(value) = HeaderValue::from_str(&chain.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
    if let Some(host) = host {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    let scheme = HeaderValue::from_static(if origin.is_tls { "https" } else { "http" });
    headers.entry(FORWARDED_PROTO).or_insert(scheme);
    headers.entry(FORWARDED_PORT).or_insert(HeaderValue::from(origin.port));
}

/// Returns true if a request asks to switch to WebSocket (RFC 6455 §4.1).
pub(super) fn is_websocket<B>(request: &Request<B>) -> bool {
    let has = |name: HeaderName, word: &str| {
        let values = request.headers().get_all(name);
        let mut words = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(','));
        words.any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    request.version() == http::Version::HTTP_11
        && request.method() == http::Method::GET
        && has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn the_host_name_is_unambiguous_and_the_path_is_resolved() {
        let host =
            |target: &str, hosts: &[&str]| Target::of(&request(target, hosts)).map(|target| target.host);
        assert_eq!(host("/", &["WWW.Example.org.:80"]).as_deref(), Ok("www.example.org"));
        assert_eq!(host("http://a.example/", &[]).as_deref(), Ok("a.example"));
        assert_eq!(host("http://a.example/", &["A.example"]).as_deref(), Ok("a.example"));
        assert_eq!(host("/", &[]).as_deref(), Ok(""));
        assert!(host("http://a.example/", &["b.example"]).is_err());
        assert!(host("/", &["a", "a"]).is_err());
        assert!(host("/", &["a b"]).is_err());
        assert!(host("*", &["a"]).is_err());
        for path in [
            "/a/../b",
            "/a/%2e%2E/b",
            "/a%2f..%2fb",
            "/.",
            "/a\\..\\b",
            "/a/..%5cb",
            "/a%00",
            "/x/..;/b",
            "/x/.%2e;a=b/b",
            "/x/..%3B/b",
        ] {
            assert!(host(path, &["a"]).is_err(), "{path}");
        }
        for path in ["/a.b/c..d", "/...", "/a%20b", "//a", "/a%2fb"] {
            assert!(host(path, &["a"]).is_ok(), "{path}");
        }
    }

    #[test]
    fn headers_of_the_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("connection", "Cookie"),
            ("x-hop", "1"),
            ("cookie", "a=b"),
            ("te", "trailers"),
            ("keep-alive", "timeout=5"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        remove_hop_headers(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["cookie", "accept"]);
    }

    /// Headers of a client are replaced, and those of a proxy in a trusted network are extended.
    #[test]
    fn forwarded_headers_are_those_of_trusted_proxies_only() {
        let trusted = ["192.0.2.0/24".parse().unwrap()];
        let of = |peer: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(FORWARDED_FOR, HeaderValue::from_static("198.51.100.1"));
            headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
            let origin =
                RequestOrigin { peer: peer.parse().unwrap(), port: 80, is_tls: false, trusted: &trusted };
            set_forwarded(&mut headers, Some(HeaderValue::from_static("a.example")), &origin);
            let text = |name: HeaderName| headers[name].to_str().unwrap().to_owned();
            [text(FORWARDED_FOR), text(FORWARDED_PROTO), text(FORWARDED_HOST), text(FORWARDED_PORT)].join(" ")
        };
        assert_eq!(of("203.0.113.7"), "203.0.113.7 http a.example 80");
        assert_eq!(of("192.0.2.9"), "198.51.100.1, 192.0.2.9 https a.example 80");
    }
}
