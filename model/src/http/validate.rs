//! Validation rules of Gateways, HttpRoutes and TlsRoutes.

mod policies;
mod tls_route;

use std::collections::{BTreeMap, BTreeSet};

use self::policies::{check_cors, check_mirror, check_refusal, check_retry, check_timeouts};
pub use self::tls_route::validate_tls_route;
use crate::{
    kinds::{
        gateway::{
            CERTIFICATE_REFS_MAX, GatewayListener, GatewaySpec, LISTENERS_MAX, ListenerProtocol, TlsMode,
        },
        http_route::{
            BACKEND_WEIGHT_MAX, FIELD_NAME_BYTES_MAX, FIELD_VALUE_BYTES_MAX, FieldMatch, HeaderModifier,
            HttpFilter, HttpFilterType, HttpRouteMatch, HttpRouteRule, HttpRouteSpec, MATCHES_MAX,
            PARENT_REFS_MAX, PATH_BYTES_MAX, ParentRef, PathMatchType, PathModifier, PathModifierType,
            ROUTE_HOSTNAMES_MAX, ROUTE_RULES_MAX, RULE_PARTS_MAX, RequestRedirect,
        },
    },
    primitives::{
        hostname_pattern::HostnamePattern,
        violation::{
            Violation,
            ViolationCode::{Conflict, Duplicate, Invalid, Required, TooLong},
            check_length, check_unique,
        },
    },
};

/// Status codes of redirections.
const REDIRECT_CODES: [u16; 5] = [301, 302, 303, 307, 308];
/// Headers that a filter must not change, because they belong to the connection, the body or the host name.
const FIXED_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Adds the violations of the rules between the fields of a Gateway.
pub fn validate_gateway(spec: &GatewaySpec, found: &mut Vec<Violation>) {
    let at = "/spec/listeners";
    if spec.listeners.is_empty() {
        found.push(Violation::new(at, Required, "must have at least one listener"));
    }
    if !check_length(at, spec.listeners.len(), LISTENERS_MAX, found) {
        return;
    }
    check_unique(spec.listeners.iter().map(|one| &one.name), |index| format!("{at}/{index}/name"), found);
    let mut seen = BTreeSet::new();
    let mut protocols = BTreeMap::new();
    for (index, listener) in spec.listeners.iter().enumerate() {
        check_tls(&format!("{at}/{index}"), listener, found);
        let first = *protocols.entry(listener.port).or_insert(listener.protocol);
        if first.has_tls() != listener.protocol.has_tls() {
            let message = format!("must share the port with the protocol {first} of another listener");
            let violation = Violation::new(format!("{at}/{index}/protocol"), Conflict, message);
            found.push(violation.hint("HTTPS and TLS can share a port, HTTP needs one of its own"));
        }
        if !seen.insert((listener.port, listener.hostname.as_ref())) {
            let message = "must differ from the other listeners of the Gateway in port or host name";
            found.push(Violation::new(format!("{at}/{index}/hostname"), Duplicate, message));
        }
    }
}

fn check_tls(at: &str, listener: &GatewayListener, found: &mut Vec<Violation>) {
    let at = format!("{at}/tls");
    let hint = match listener.protocol {
        ListenerProtocol::Http | ListenerProtocol::Https => "name a Certificate in tls.certificateRefs",
        ListenerProtocol::Tls => "set tls.mode to Passthrough, or name a Certificate in tls.certificateRefs",
    };
    let is_tls = listener.protocol.has_tls();
    match &listener.tls {
        None if is_tls => {
            let message = format!("must be set for the protocol {}", listener.protocol);
            found.push(Violation::new(at, Required, message).hint(hint));
        }
        Some(_) if !is_tls => {
            found.push(Violation::new(at, Conflict, "must not be set for the protocol HTTP"));
        }
        Some(tls) if tls.mode == TlsMode::Passthrough => {
            if listener.protocol != ListenerProtocol::Tls {
                let message = format!("must not be Passthrough for the protocol {}", listener.protocol);
                let violation = Violation::new(format!("{at}/mode"), Conflict, message);
                found.push(
                    violation.hint("set the protocol to TLS, and forward the connections with a TlsRoute"),
                );
            }
            if !tls.certificate_refs.is_empty() {
                let message =
                    "must be left out: the gateway does not decrypt connections with the mode Passthrough";
                found.push(Violation::new(format!("{at}/certificateRefs"), Conflict, message));
            }
        }
        Some(tls) => {
            let at = format!("{at}/certificateRefs");
            if tls.certificate_refs.is_empty() {
                found.push(Violation::new(&*at, Required, "must name at least one Certificate"));
            }
            if check_length(&at, tls.certificate_refs.len(), CERTIFICATE_REFS_MAX, found) {
                check_unique(tls.certificate_refs.iter(), |index| format!("{at}/{index}"), found);
            }
        }
        None => {}
    }
}

/// Adds the violations of the rules between the fields of an HttpRoute.
pub fn validate_route(spec: &HttpRouteSpec, found: &mut Vec<Violation>) {
    check_attachment(&spec.parent_refs, &spec.hostnames, found);
    let at = "/spec/rules";
    if spec.rules.is_empty() {
        found.push(Violation::new(at, Required, "must have at least one rule"));
    }
    if !check_length(at, spec.rules.len(), ROUTE_RULES_MAX, found) {
        return;
    }
    let mut names = BTreeSet::new();
    for (index, rule) in spec.rules.iter().enumerate() {
        let at = format!("{at}/{index}");
        if let Some(name) = rule.name.as_ref().filter(|name| !names.insert(*name)) {
            let message = format!("must not repeat `{name}`, the name of an earlier rule");
            found.push(Violation::new(format!("{at}/name"), Duplicate, message));
        }
        check_rule(&at, rule, found);
    }
}

/// Checks the parents and host names of a route.
fn check_attachment(parents: &[ParentRef], hostnames: &[HostnamePattern], found: &mut Vec<Violation>) {
    let at = "/spec/parentRefs";
    if parents.is_empty() {
        found.push(Violation::new(at, Required, "must name at least one Gateway"));
    }
    if check_length(at, parents.len(), PARENT_REFS_MAX, found) {
        check_unique(parents.iter(), |index| format!("{at}/{index}"), found);
    }
    let at = "/spec/hostnames";
    if check_length(at, hostnames.len(), ROUTE_HOSTNAMES_MAX, found) {
        check_unique(hostnames.iter(), |index| format!("{at}/{index}"), found);
    }
}

/// Checks the weight of a backend.
fn check_weight(at: &str, weight: u32, found: &mut Vec<Violation>) {
    if weight > BACKEND_WEIGHT_MAX {
        let message = format!("must be between 0 and {BACKEND_WEIGHT_MAX}, not {weight}");
        found.push(Violation::new(format!("{at}/weight"), Invalid, message));
    }
}

fn check_rule(at: &str, rule: &HttpRouteRule, found: &mut Vec<Violation>) {
    if check_length(&format!("{at}/matches"), rule.matches.len(), MATCHES_MAX, found) {
        for (index, one) in rule.matches.iter().enumerate() {
            check_match(&format!("{at}/matches/{index}"), one, found);
        }
    }
    let at_backends = format!("{at}/backendRefs");
    if check_length(&at_backends, rule.backend_refs.len(), RULE_PARTS_MAX, found) {
        for (index, backend) in rule.backend_refs.iter().enumerate() {
            let at = format!("{at_backends}/{index}");
            check_weight(&at, backend.weight, found);
            if check_length(&format!("{at}/filters"), backend.filters.len(), RULE_PARTS_MAX, found) {
                check_filters(&at, &backend.filters, rule, found);
                check_backend_filters(&at, &backend.filters, found);
            }
        }
    }
    if check_length(&format!("{at}/filters"), rule.filters.len(), RULE_PARTS_MAX, found) {
        check_filters(at, &rule.filters, rule, found);
        let redirects = rule.filters.iter().any(|one| one.filter_type == HttpFilterType::RequestRedirect);
        if redirects && !rule.backend_refs.is_empty() {
            let message = "must be left out: a filter of the rule redirects the requests";
            found.push(Violation::new(at_backends, Conflict, message));
        }
    }
    check_timeouts(&format!("{at}/timeouts"), rule.timeouts.as_ref(), found);
    if let Some(retry) = &rule.retry {
        check_retry(&format!("{at}/retry"), retry, found);
    }
    if let Some(refusal) = &rule.refuse {
        check_refusal(at, refusal, rule, found);
    }
}

/// Rejects the filters that decide a request before its backend is chosen.
fn check_backend_filters(at: &str, filters: &[HttpFilter], found: &mut Vec<Violation>) {
    for (index, _) in filters.iter().enumerate().filter(|(_, one)| one.filter_type == HttpFilterType::Cors) {
        let message = "must not be CORS, which is for whole rules";
        found.push(Violation::new(format!("{at}/filters/{index}/type"), Invalid, message));
    }
}

fn check_match(at: &str, one: &HttpRouteMatch, found: &mut Vec<Violation>) {
    check_path(&format!("{at}/path/value"), &one.path.value, found);
    check_fields(&format!("{at}/headers"), &one.headers, true, found);
    check_fields(&format!("{at}/queryParams"), &one.query_params, false, found);
}

/// Checks a path of a match or of a filter: such paths are compared with the paths of requests, byte by byte.
fn check_path(at: &str, path: &str, found: &mut Vec<Violation>) {
    if path.len() > PATH_BYTES_MAX {
        let message = format!("must have at most {PATH_BYTES_MAX} bytes, has {}", path.len());
        return found.push(Violation::new(at, TooLong, message));
    }
    if !path.starts_with('/') {
        found.push(Violation::new(at, Invalid, "must begin with `/`"));
    }
    let lower = path.to_ascii_lowercase();
    let is_dots = |element: &str| matches!(element.replace("%2e", ".").as_str(), "." | "..");
    if path.contains("//") || lower.contains("%2f") || lower.split('/').any(is_dots) {
        let message = "must contain neither `//`, `%2f` nor an element `.` or `..`";
        found.push(Violation::new(at, Invalid, message));
    }
    if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@%".contains(&byte)) {
        let message = "must consist of letters, digits, `-/._~!$&'()*+,;=:@` and percent-encoded bytes";
        found.push(Violation::new(at, Invalid, message));
    }
    let is_encoded = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !path.split('%').skip(1).all(is_encoded) {
        found.push(Violation::new(at, Invalid, "must have two hexadecimal digits after each `%`"));
    }
}

fn check_fields(at: &str, fields: &[FieldMatch], is_header: bool, found: &mut Vec<Violation>) {
    if !check_length(at, fields.len(), RULE_PARTS_MAX, found) {
        return;
    }
    let normal = |name: &str| if is_header { name.to_ascii_lowercase() } else { name.to_owned() };
    check_unique(fields.iter().map(|one| normal(&one.name)), |index| format!("{at}/{index}/name"), found);
    for (index, field) in fields.iter().enumerate() {
        if is_header {
            check_header_name(&format!("{at}/{index}/name"), &field.name, found);
        } else if field.name.is_empty() || field.name.len() > FIELD_NAME_BYTES_MAX {
            let message = format!("must have 1 to {FIELD_NAME_BYTES_MAX} bytes");
            found.push(Violation::new(format!("{at}/{index}/name"), Invalid, message));
        }
        check_value(&format!("{at}/{index}/value"), &field.value, found);
    }
}

fn check_header_name(at: &str, name: &str, found: &mut Vec<Violation>) {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !(1..=FIELD_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_token) {
        let message =
            format!("must be the name of a header: 1 to {FIELD_NAME_BYTES_MAX} token characters (RFC 9110)");
        found.push(Violation::new(at, Invalid, message));
    }
}

/// Checks the value of a header or query parameter. Control characters would end the header.
fn check_value(at: &str, value: &str, found: &mut Vec<Violation>) {
    let is_printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if !(1..=FIELD_VALUE_BYTES_MAX).contains(&value.len()) || !value.bytes().all(is_printable) {
        let message = format!("must have 1 to {FIELD_VALUE_BYTES_MAX} printable ASCII characters");
        found.push(Violation::new(at, Invalid, message));
    }
}

fn check_filters(at: &str, filters: &[HttpFilter], rule: &HttpRouteRule, found: &mut Vec<Violation>) {
    let types = || filters.iter().map(|filter| filter.filter_type);
    // A rule may have several mirrors, one of each other type.
    let mut seen = BTreeSet::new();
    for (index, one) in types().enumerate() {
        if one != HttpFilterType::RequestMirror && !seen.insert(one) {
            let message = format!("must not repeat the type {one}");
            found.push(Violation::new(format!("{at}/filters/{index}/type"), Duplicate, message));
        }
    }
    let redirects = types().any(|one| one == HttpFilterType::RequestRedirect);
    if redirects && types().any(|one| one == HttpFilterType::UrlRewrite) {
        let message = "must not have both RequestRedirect and URLRewrite";
        found.push(Violation::new(format!("{at}/filters"), Conflict, message));
    }
    for (index, filter) in filters.iter().enumerate() {
        check_filter(&format!("{at}/filters/{index}"), filter, rule, found);
    }
}

fn check_filter(at: &str, filter: &HttpFilter, rule: &HttpRouteRule, found: &mut Vec<Violation>) {
    let HttpFilter { filter_type, .. } = filter;
    let fields = [
        (
            HttpFilterType::RequestHeaderModifier,
            "requestHeaderModifier",
            filter.request_header_modifier.is_some(),
        ),
        (
            HttpFilterType::ResponseHeaderModifier,
            "responseHeaderModifier",
            filter.response_header_modifier.is_some(),
        ),
        (HttpFilterType::RequestRedirect, "requestRedirect", filter.request_redirect.is_some()),
        (HttpFilterType::UrlRewrite, "urlRewrite", filter.url_rewrite.is_some()),
        (HttpFilterType::RequestMirror, "requestMirror", filter.request_mirror.is_some()),
        (HttpFilterType::Cors, "cors", filter.cors.is_some()),
    ];
    for (of, field, is_set) in fields {
        if of == *filter_type && !is_set {
            let message = format!("must be set for the type {filter_type}");
            found.push(Violation::new(format!("{at}/{field}"), Required, message));
        }
        if of != *filter_type && is_set {
            let message = format!("must be left out for the type {filter_type}");
            found.push(Violation::new(format!("{at}/{field}"), Conflict, message));
        }
    }
    if let Some(modifier) = &filter.request_header_modifier {
        check_modifier(&format!("{at}/requestHeaderModifier"), modifier, found);
    }
    if let Some(modifier) = &filter.response_header_modifier {
        check_modifier(&format!("{at}/responseHeaderModifier"), modifier, found);
    }
    if let Some(redirect) = &filter.request_redirect {
        check_redirect(&format!("{at}/requestRedirect"), redirect, rule, found);
    }
    if let Some(rewrite) = &filter.url_rewrite {
        let at = format!("{at}/urlRewrite");
        check_precise(&at, rewrite.hostname.as_ref(), found);
        check_path_modifier(&at, rewrite.path.as_ref(), rule, found);
    }
    if let Some(mirror) = &filter.request_mirror {
        check_mirror(&format!("{at}/requestMirror"), mirror, found);
    }
    if let Some(policy) = &filter.cors {
        check_cors(&format!("{at}/cors"), policy, found);
    }
}

fn check_modifier(at: &str, modifier: &HeaderModifier, found: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for (part, fields) in [("set", &modifier.set), ("add", &modifier.add)] {
        check_length(&format!("{at}/{part}"), fields.len(), RULE_PARTS_MAX, found);
        for (index, field) in fields.iter().enumerate() {
            let at = format!("{at}/{part}/{index}");
            check_changed_header(&format!("{at}/name"), &field.name, &mut seen, found);
            check_value(&format!("{at}/value"), &field.value, found);
        }
    }
    check_length(&format!("{at}/remove"), modifier.remove.len(), RULE_PARTS_MAX, found);
    for (index, name) in modifier.remove.iter().enumerate() {
        check_changed_header(&format!("{at}/remove/{index}"), name, &mut seen, found);
    }
}

fn check_changed_header(at: &str, name: &str, seen: &mut BTreeSet<String>, found: &mut Vec<Violation>) {
    check_header_name(at, name, found);
    let name = name.to_ascii_lowercase();
    if FIXED_HEADERS.contains(&name.as_str()) {
        let message = format!("must not be `{name}`, which the gateway sets itself");
        found.push(Violation::new(at, Invalid, message).hint("change the host name by urlRewrite"));
    }
    if !seen.insert(name) {
        found.push(Violation::new(at, Duplicate, "must not change a header twice"));
    }
}

fn check_redirect(at: &str, redirect: &RequestRedirect, rule: &HttpRouteRule, found: &mut Vec<Violation>) {
    if !REDIRECT_CODES.contains(&redirect.status_code) {
        let message = format!("must be 301, 302, 303, 307 or 308, not {}", redirect.status_code);
        found.push(Violation::new(format!("{at}/statusCode"), Invalid, message));
    }
    check_precise(at, redirect.hostname.as_ref(), found);
    check_path_modifier(at, redirect.path.as_ref(), rule, found);
}

fn check_precise(at: &str, hostname: Option<&HostnamePattern>, found: &mut Vec<Violation>) {
    if hostname.is_some_and(|hostname| hostname.wildcard_base().is_some()) {
        found.push(Violation::new(format!("{at}/hostname"), Invalid, "must not be a wildcard name"));
    }
}

fn check_path_modifier(
    at: &str,
    modifier: Option<&PathModifier>,
    rule: &HttpRouteRule,
    found: &mut Vec<Violation>,
) {
    let Some(PathModifier { modifier_type, replace_full_path, replace_prefix_match }) = modifier else {
        return;
    };
    let (set, other, field) = match modifier_type {
        PathModifierType::ReplaceFullPath => (replace_full_path, replace_prefix_match, "replaceFullPath"),
        PathModifierType::ReplacePrefixMatch => {
            (replace_prefix_match, replace_full_path, "replacePrefixMatch")
        }
    };
    match set.as_deref() {
        None => found.push(Violation::new(format!("{at}/path/{field}"), Required, "must be set")),
        // An empty replacement removes the prefix.
        Some("") if *modifier_type == PathModifierType::ReplacePrefixMatch => {}
        Some(path) => check_path(&format!("{at}/path/{field}"), path, found),
    }
    if other.is_some() {
        let message = format!("must have only {field}, which belongs to its type");
        found.push(Violation::new(format!("{at}/path"), Conflict, message));
    }
    let has_prefix = match rule.matches.as_slice() {
        [] => true,
        [one] => one.path.match_type == PathMatchType::PathPrefix,
        [_, ..] => false,
    };
    if *modifier_type == PathModifierType::ReplacePrefixMatch && !has_prefix {
        let message = "must not replace a prefix unless the rule has exactly one match, of type PathPrefix";
        found.push(Violation::new(format!("{at}/path/type"), Conflict, message));
    }
}
