//! Cross-origin resource sharing: answers to preflight requests, and headers of responses (Fetch standard, section 3.3).

use super::head::RequestHead;
use crate::kinds::http_route::CorsPolicy;

/// Entry of a list that stands for every value.
const ANY: &str = "*";
const ORIGIN: &str = "origin";
const REQUEST_METHOD: &str = "access-control-request-method";
const REQUEST_HEADERS: &str = "access-control-request-headers";

/// Headers with names in lower case and their values.
pub type CorsHeaders = Vec<(&'static str, String)>;

/// Names of the headers of responses that a gateway with a policy sets itself. Those of endpoints are removed, because
/// browsers reject responses that have one twice.
pub const CORS_RESPONSE_HEADERS: [&str; 3] =
    ["access-control-allow-origin", "access-control-allow-credentials", "access-control-expose-headers"];

/// Returns the headers of the response to a preflight request, which are none if its origin is not allowed; `None` if the
/// request is another one.
pub(super) fn preflight(policy: &CorsPolicy, head: &RequestHead<'_>) -> Option<CorsHeaders> {
    let is_preflight = head.method == "OPTIONS" && (head.header)(ORIGIN).is_some();
    let method = (head.header)(REQUEST_METHOD).filter(|_| is_preflight)?;
    let mut headers = response(policy, head);
    if !headers.iter().any(|(name, _)| *name == CORS_RESPONSE_HEADERS[0]) {
        return Some(headers);
    }
    let mut add = |name, list: &[String], requested: &str| {
        let is_any = list.iter().any(|one| one == ANY);
        // Browsers read `*` as a literal name in requests with credentials.
        let value = match is_any {
            true if policy.allow_credentials => requested.to_owned(),
            true => ANY.to_owned(),
            false => list.join(", "),
        };
        if !value.is_empty() {
            headers.push((name, value));
        }
    };
    add("access-control-allow-methods", &policy.allow_methods, &method);
    let requested = (head.header)(REQUEST_HEADERS).unwrap_or_default();
    add("access-control-allow-headers", &policy.allow_headers, &requested);
    headers.push(("access-control-max-age", policy.max_age.to_string()));
    Some(headers)
}

/// Returns the headers of the response to a request from a page of another origin. They allow nothing if the origin is not
/// allowed.
pub(super) fn response(policy: &CorsPolicy, head: &RequestHead<'_>) -> CorsHeaders {
    let is_any = policy.allow_origins.iter().any(|one| one == ANY);
    let is_same_for_all = is_any && !policy.allow_credentials;
    let mut headers = CorsHeaders::new();
    if !is_same_for_all {
        // The response depends on the origin, also without one, so that caches keep one response for each.
        headers.push(("vary", "origin".to_owned()));
    }
    let Some(origin) = (head.header)(ORIGIN) else { return headers };
    if !is_any && !policy.allow_origins.iter().any(|pattern| is_match(pattern, &origin)) {
        return headers;
    }
    let allowed = if is_same_for_all { ANY.to_owned() } else { origin.into_owned() };
    headers.push((CORS_RESPONSE_HEADERS[0], allowed));
    if policy.allow_credentials {
        headers.push((CORS_RESPONSE_HEADERS[1], "true".to_owned()));
    }
    if !policy.expose_headers.is_empty() {
        headers.push((CORS_RESPONSE_HEADERS[2], policy.expose_headers.join(", ")));
    }
    headers
}

/// Returns true if a pattern, such as `https://*.example.org`, matches an origin. Scheme and host name are not
/// case-sensitive.
fn is_match(pattern: &str, origin: &str) -> bool {
    let (pattern, origin) = (pattern.to_ascii_lowercase(), origin.to_ascii_lowercase());
    match pattern.split_once("://*.") {
        None => pattern == origin,
        Some((scheme, base)) => {
            let host = origin.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
            let labels = host.and_then(|host| host.strip_suffix(base)?.strip_suffix('.'));
            labels.is_some_and(|labels| !labels.is_empty() && !labels.contains(['/', ':', '@']))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_with_patterns() {
        for (pattern, origin, expected) in [
            ("https://www.example.org", "https://www.example.org", true),
            ("https://www.example.org", "HTTPS://WWW.example.org", true),
            ("https://www.example.org", "http://www.example.org", false),
            ("https://www.example.org", "https://www.example.org:8443", false),
            ("https://*.example.org", "https://a.b.example.org", true),
            ("https://*.example.org", "https://example.org", false),
            ("https://*.example.org", "https://xexample.org", false),
            ("https://*.example.org", "https://.example.org", false),
            ("https://*.example.org", "https://evil.net/.example.org", false),
            ("https://*.example.org:8443", "https://a.example.org:8443", true),
            ("https://*.example.org:8443", "https://a.example.org", false),
            ("https://*.example.org", "null", false),
        ] {
            assert_eq!(is_match(pattern, origin), expected, "{pattern} {origin}");
        }
    }
}
