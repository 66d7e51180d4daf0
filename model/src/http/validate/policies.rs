//! Validation rules of mirrors, CORS filters, timeouts and refusals.

use super::check_header_name;
use crate::{
    kinds::http_route::{
        CORS_LIST_MAX, CorsPolicy, HttpRouteRule, MIRROR_PERCENT_MAX, ORIGIN_BYTES_MAX,
        REFUSAL_REASON_BYTES_MAX, RETRY_ATTEMPTS_MAX, RULE_PARTS_MAX, RequestMirror, RouteRetry,
        RouteTimeouts, RuleRefusal,
    },
    primitives::violation::{
        Violation,
        ViolationCode::{Conflict, Invalid, Required},
        check_length,
    },
};

/// Entry of a list that stands for every value.
const ANY: &str = "*";

/// Checks a refusal and the absence of fields that have no effect beside it.
pub(super) fn check_refusal(
    at: &str,
    refusal: &RuleRefusal,
    rule: &HttpRouteRule,
    found: &mut Vec<Violation>,
) {
    let reason = &refusal.reason;
    if !(1..=REFUSAL_REASON_BYTES_MAX).contains(&reason.len()) || reason.chars().any(char::is_control) {
        let message = format!("must have 1 to {REFUSAL_REASON_BYTES_MAX} bytes without control characters");
        found.push(Violation::new(format!("{at}/refuse/reason"), Invalid, message));
    }
    for (field, is_set) in [
        ("filters", !rule.filters.is_empty()),
        ("backendRefs", !rule.backend_refs.is_empty()),
        ("timeouts", rule.timeouts.is_some()),
        ("retry", rule.retry.is_some()),
    ] {
        if is_set {
            let message = "must be left out: the rule refuses the requests";
            found.push(Violation::new(format!("{at}/{field}"), Conflict, message));
        }
    }
}

/// Checks the share of the requests that a mirror receives.
pub(super) fn check_mirror(at: &str, mirror: &RequestMirror, found: &mut Vec<Violation>) {
    if mirror.percent.is_some() && mirror.fraction.is_some() {
        found.push(Violation::new(at, Conflict, "must not have both percent and fraction"));
    }
    if let Some(percent) = mirror.percent.filter(|percent| *percent > MIRROR_PERCENT_MAX) {
        let message = format!("must be between 0 and {MIRROR_PERCENT_MAX}, not {percent}");
        found.push(Violation::new(format!("{at}/percent"), Invalid, message));
    }
    let Some(fraction) = &mirror.fraction else { return };
    if fraction.denominator == 0 {
        found.push(Violation::new(format!("{at}/fraction/denominator"), Invalid, "must be at least 1"));
    }
    if fraction.numerator > fraction.denominator {
        let message = format!("must be at most {}, the denominator", fraction.denominator);
        found.push(Violation::new(format!("{at}/fraction/numerator"), Invalid, message));
    }
}

/// Checks the lists of a CORS filter, whose entries become parts of headers.
pub(super) fn check_cors(at: &str, policy: &CorsPolicy, found: &mut Vec<Violation>) {
    let CorsPolicy {
        allow_origins, allow_credentials: _, allow_methods, allow_headers, expose_headers, ..
    } = policy;
    if allow_origins.is_empty() {
        found.push(Violation::new(format!("{at}/allowOrigins"), Required, "must have at least one origin"));
    }
    if check_length(&format!("{at}/allowOrigins"), allow_origins.len(), CORS_LIST_MAX, found) {
        for (index, origin) in allow_origins.iter().enumerate().filter(|(_, one)| !is_origin(one)) {
            let message = format!("must be `*` or an origin such as `https://*.example.org`, not `{origin}`");
            found.push(Violation::new(format!("{at}/allowOrigins/{index}"), Invalid, message));
        }
    }
    for (field, list) in
        [("allowMethods", allow_methods), ("allowHeaders", allow_headers), ("exposeHeaders", expose_headers)]
    {
        let at = format!("{at}/{field}");
        if !check_length(&at, list.len(), CORS_LIST_MAX, found) {
            continue;
        }
        // Methods have the characters of header names (RFC 9110 §9.1).
        for (index, one) in list.iter().enumerate().filter(|(_, one)| *one != ANY) {
            check_header_name(&format!("{at}/{index}"), one, found);
        }
        if list.len() > 1 && list.iter().any(|one| one == ANY) {
            found.push(Violation::new(at, Conflict, "must have `*` only as its single entry"));
        }
    }
}

/// Returns true for `*` and for `SCHEME://HOST[:PORT]`, whose host name may have the first label `*`.
fn is_origin(text: &str) -> bool {
    if text == ANY {
        return true;
    }
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let host = host.strip_prefix("*.").unwrap_or(host);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    text.len() <= ORIGIN_BYTES_MAX
        && !scheme.is_empty()
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !host.is_empty()
        && host.bytes().all(is_host)
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Checks that an attempt does not have more time than its request.
pub(super) fn check_timeouts(at: &str, timeouts: Option<&RouteTimeouts>, found: &mut Vec<Violation>) {
    let Some(RouteTimeouts { request: Some(request), backend_request: Some(backend) }) = timeouts else {
        return;
    };
    let (Some(request), Some(backend)) = (request.limit(), backend.limit()) else { return };
    if backend > request {
        let message = "must not be longer than the timeout `request`";
        found.push(Violation::new(format!("{at}/backendRequest"), Invalid, message));
    }
}

/// Checks the numbers of a repetition.
pub(super) fn check_retry(at: &str, retry: &RouteRetry, found: &mut Vec<Violation>) {
    if let Some(attempts) = retry.attempts.filter(|attempts| *attempts > RETRY_ATTEMPTS_MAX) {
        let message = format!("must be between 0 and {RETRY_ATTEMPTS_MAX}, not {attempts}");
        found.push(Violation::new(format!("{at}/attempts"), Invalid, message));
    }
    if check_length(&format!("{at}/codes"), retry.codes.len(), RULE_PARTS_MAX, found) {
        for (index, code) in retry.codes.iter().enumerate().filter(|(_, code)| !(400..=599).contains(*code)) {
            let message = format!("must be between 400 and 599, not {code}");
            found.push(Violation::new(format!("{at}/codes/{index}"), Invalid, message));
        }
    }
}
