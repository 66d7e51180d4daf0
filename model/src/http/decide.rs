//! Decision for one request.

use std::{net::IpAddr, sync::Arc};

use super::{
    backend::{BackendEndpoints, BackendKey},
    cors::{self, CorsHeaders},
    head::RequestHead,
    path::normal_path,
    refusal::{RefusalRival, RuleRank, refusal_of},
    rewrite::{location, modify_path},
    rule::{CompiledBackend, CompiledFilters, CompiledRule},
    table::{HttpTable, RouteEntry},
};
use crate::{
    kinds::http_route::RouteMethod,
    primitives::{
        hostname_pattern::HostnamePattern,
        name::{LABEL_LENGTH_MAX, SUBDOMAIN_LENGTH_MAX},
    },
};

/// Treatment of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<'a> {
    /// The gateway answers with a status code of a failure.
    Fail {
        /// Reason for the failure.
        failure: HttpFailure,
        /// Rule that matched, if any.
        rule: Option<&'a Arc<CompiledRule>>,
    },
    /// The gateway redirects the client.
    Redirect {
        /// Rule that matched.
        rule: &'a Arc<CompiledRule>,
        /// Status code of the response.
        status: u16,
        /// Value of the header `Location`.
        location: String,
    },
    /// The gateway answers a preflight request of a browser with 204.
    Preflight {
        /// Rule that matched.
        rule: &'a Arc<CompiledRule>,
        /// Headers of the response.
        headers: CorsHeaders,
    },
    /// The gateway forwards the request to one of the endpoints.
    Forward {
        /// Rule that matched.
        rule: &'a Arc<CompiledRule>,
        /// Chosen backend.
        backend: &'a Arc<CompiledBackend>,
        /// Endpoints of the backend, at least one.
        endpoints: &'a Arc<BackendEndpoints>,
        /// New path; `None` if the path of the request remains.
        path: Option<String>,
        /// New host name; `None` if that of the request remains.
        host: Option<&'a str>,
        /// Service ports that receive copies, each with at least one endpoint.
        mirrors: Vec<(&'a BackendKey, &'a Arc<BackendEndpoints>)>,
        /// Headers of the response for pages of other origins.
        cors: CorsHeaders,
    },
}

/// Reason for which a gateway cannot forward a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HttpFailure {
    /// No listener of the port has the host name (404).
    NoListener,
    /// The host name belongs to another listener than the server name of the TLS connection (421, RFC 9110 §15.5.20).
    Misdirected,
    /// No rule matches (404).
    NoRoute,
    /// The rule refuses requests, because gateways cannot enforce a restriction of their path (500).
    Refused,
    /// The rule has no backend with a weight above 0 (500).
    NoBackend,
    /// The Service or its port does not exist, or the gateway cannot use it (500).
    InvalidBackend,
    /// The Service has no usable endpoint (503).
    NoEndpoints,
}

impl HttpFailure {
    /// Returns the status code of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::NoListener | Self::NoRoute => 404,
            Self::Misdirected => 421,
            Self::Refused | Self::NoBackend | Self::InvalidBackend => 500,
            Self::NoEndpoints => 503,
        }
    }

    /// Returns the text of the response, which does not name objects of the cluster.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoListener => "no listener has this host name",
            Self::Misdirected => "the connection was opened for another host name",
            Self::NoRoute => "no route matches this request",
            Self::Refused => {
                "a rule refuses requests for this path, because a restriction of it could not be translated"
            }
            Self::NoBackend => "the route has no backend",
            Self::InvalidBackend => "the backend of the route is invalid",
            Self::NoEndpoints => "the backend has no endpoint in service",
        }
    }
}

/// Returns the host name of a `Host` header or an authority: in lower case, without port and final dot. Returns `None` if
/// it is neither a host name nor an IP address.
#[must_use]
pub fn normalize_host(text: &str) -> Option<String> {
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((address, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let IpAddr::V6(address) = address.parse().ok()? else { return None };
        let is_valid = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return is_valid.then(|| format!("[{address}]"));
    }
    let host = match text.split_once(':') {
        Some((host, port)) => is_port(port).then_some(host)?,
        None => text,
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=LABEL_LENGTH_MAX).contains(&label.len()) && label.bytes().all(is_allowed)
    };
    (host.len() <= SUBDOMAIN_LENGTH_MAX && host.split('.').all(is_label)).then_some(host)
}

/// Returns the entry that applies to a request, with the matched prefix of its path.
///
/// # Errors
/// Returns the reason if no entry applies.
pub(super) fn matching<'a>(
    table: &'a HttpTable,
    head: &RequestHead<'a>,
) -> Result<(&'a RouteEntry, &'a str), HttpFailure> {
    let port = table.routes.ports.get(&head.port);
    let listener = |host| port.and_then(|listeners| listeners.ranked(host).next());
    let (listener_rank, hosts) = listener(head.host).ok_or(HttpFailure::NoListener)?;
    let of_connection = head.server_name.map(listener);
    if of_connection.is_some_and(|other| other.is_none_or(|(_, other)| !std::ptr::eq(other, hosts))) {
        return Err(HttpFailure::Misdirected);
    }
    let path = normal_path(head.path);
    let mut candidates =
        hosts.ranked(head.host).flat_map(|(host, paths)| paths.candidates(&path).map(move |one| (host, one)));
    let found = candidates.find(|(_, one)| unmet(one.entry, head).is_none());
    let rule = found.map(|(host, one)| RuleRank { host, path: one.rank });
    let rival = RefusalRival { listener: listener_rank, rule };
    if let Some(refusal) = refusal_of(&table.routes.refusals, head, &path, rival) {
        return Ok((&refusal.entry, &refusal.path));
    }
    found.map(|(_, one)| (one.entry, one.matched)).ok_or(HttpFailure::NoRoute)
}

/// Decides a request. `pick` chooses among the backends of the matching rule, and if mirrors receive a copy: consecutive or
/// uniform random numbers choose them in proportion to their weights and shares.
#[must_use]
pub fn route<'a>(table: &'a HttpTable, head: &RequestHead<'a>, pick: u64) -> Decision<'a> {
    let fail = |failure, rule| Decision::Fail { failure, rule };
    let (entry, prefix) = match matching(table, head) {
        Ok(found) => found,
        Err(failure) => return fail(failure, None),
    };
    let rule = &entry.rule;
    if rule.refusal.is_some() {
        return fail(HttpFailure::Refused, Some(rule));
    }
    if let Some(headers) = rule.cors.as_ref().and_then(|policy| cors::preflight(policy, head)) {
        return Decision::Preflight { rule, headers };
    }
    if let Some(decision) = redirect(rule, &rule.filters, head, prefix) {
        return decision;
    }
    let Some((backend, pick)) = choose(rule, pick) else { return fail(HttpFailure::NoBackend, Some(rule)) };
    if let Some(decision) = redirect(rule, &backend.filters, head, prefix) {
        return decision;
    }
    let endpoints = match table.backends.get(&backend.key) {
        Some(Ok(endpoints)) if endpoints.list().is_empty() => {
            return fail(HttpFailure::NoEndpoints, Some(rule));
        }
        Some(Ok(endpoints)) => endpoints,
        Some(Err(_)) | None => return fail(HttpFailure::InvalidBackend, Some(rule)),
    };
    let rewrites = || [&backend.filters, &rule.filters].into_iter().filter_map(|one| one.rewrite.as_ref());
    let path = rewrites().find_map(|rewrite| rewrite.path.as_ref());
    Decision::Forward {
        rule,
        backend,
        endpoints,
        path: path.map(|modifier| modify_path(modifier, prefix, head.path)),
        host: rewrites().find_map(|rewrite| rewrite.hostname.as_ref()).map(HostnamePattern::as_str),
        mirrors: mirrors(table, rule, backend, pick),
        cors: rule.cors.as_ref().map(|policy| cors::response(policy, head)).unwrap_or_default(),
    }
}

/// Returns the redirection of a request by the filters of its rule or backend, if they have one.
fn redirect<'a>(
    rule: &'a Arc<CompiledRule>,
    filters: &CompiledFilters,
    head: &RequestHead<'_>,
    prefix: &str,
) -> Option<Decision<'a>> {
    let redirect = filters.redirect.as_ref()?;
    let path = redirect.path.as_ref().map(|modifier| modify_path(modifier, prefix, head.path));
    let location = location(redirect, head, path.as_deref().unwrap_or(head.path));
    Some(Decision::Redirect { rule, status: redirect.status_code, location })
}

/// Returns the mirrors of a rule and its backend that receive a copy for a number, with their endpoints. A mirror without an
/// endpoint receives none.
fn mirrors<'a>(
    table: &'a HttpTable,
    rule: &'a CompiledRule,
    backend: &'a CompiledBackend,
    pick: u64,
) -> Vec<(&'a BackendKey, &'a Arc<BackendEndpoints>)> {
    let all = rule.filters.mirrors.iter().chain(&backend.filters.mirrors);
    let chosen = all.filter(|mirror| {
        let (numerator, denominator) = mirror.share;
        pick.checked_rem(denominator.into()).is_some_and(|number| number < numerator.into())
    });
    let found =
        chosen.filter_map(|mirror| Some((&mirror.key, table.backends.get(&mirror.key)?.as_ref().ok()?)));
    found.filter(|(_, endpoints)| !endpoints.list().is_empty()).collect()
}

/// Condition of an entry, other than host name and path, that a request does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnmetCondition<'a> {
    Method(RouteMethod),
    /// Name, in lower case, and value of a header.
    Header(&'a str, &'a str),
    /// Name and value of a query parameter.
    QueryParam(&'a str, &'a str),
}

/// Returns the first condition of an entry, other than host name and path, that a request does not meet; `None` if it meets
/// all of them.
pub(super) fn unmet<'a>(entry: &'a RouteEntry, head: &RequestHead<'_>) -> Option<UnmetCondition<'a>> {
    let has_header = |(name, value): &&(String, String)| {
        (head.header)(name).is_some_and(|found| found.trim() == value.trim())
    };
    let has_parameter = |(name, value): &&(String, String)| {
        let mut pairs =
            head.query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let first = pairs.find(|(found, _)| decode(found) == name.as_bytes());
        first.is_some_and(|(_, found)| decode(found) == value.as_bytes())
    };
    if let Some(method) = entry.method.filter(|method| <&str>::from(method) != head.method) {
        return Some(UnmetCondition::Method(method));
    }
    if let Some((name, value)) = entry.headers.iter().find(|field| !has_header(field)) {
        return Some(UnmetCondition::Header(name, value));
    }
    let parameter = entry.query.iter().find(|field| !has_parameter(field));
    parameter.map(|(name, value)| UnmetCondition::QueryParam(name, value))
}

/// Decodes percent-encoded bytes. Malformed sequences remain as they are.
fn decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let encoded = after.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        let byte = encoded.filter(|two| two.bytes().all(|one| one.is_ascii_hexdigit()));
        match byte.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

/// Returns the backend of a rule for a number, and a number for further choices, which does not depend on the backend.
/// Returns `None` if all weights are 0.
fn choose(rule: &CompiledRule, pick: u64) -> Option<(&Arc<CompiledBackend>, u64)> {
    let total: u64 = rule.backends.iter().map(|backend| u64::from(backend.weight)).sum();
    let mut left = pick.checked_rem(total)?;
    let backend = rule.backends.iter().find(|backend| match left.checked_sub(backend.weight.into()) {
        None => true,
        Some(rest) => {
            left = rest;
            false
        }
    });
    Some((backend?, pick.checked_div(total)?))
}
