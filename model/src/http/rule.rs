//! Compiled rules: the treatment of the requests that a rule matches, with its filters and backends.

use std::{fmt, sync::Arc};

use super::backend::BackendKey;
use crate::{
    kinds::{
        http_route::{
            CorsPolicy, HeaderModifier, HttpFilter, HttpRouteRule, RequestMirror, RequestRedirect,
            RouteRetry, RouteTimeouts, RuleRefusal, UrlRewrite,
        },
        resource::ServiceKey,
    },
    primitives::{
        name::{Label, Name, Namespace},
        quantity::Port,
    },
};

/// Identity of a rule of an HttpRoute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    /// Namespace of the route.
    pub namespace: Namespace,
    /// Name of the route.
    pub route: Name,
    /// Position of the rule in the route, from 0.
    pub rule: usize,
    /// Name of the rule, if it has one.
    pub name: Option<Label>,
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.namespace, self.route)?;
        match &self.name {
            Some(name) => name.fmt(f),
            None => self.rule.fmt(f),
        }
    }
}

/// Treatment of the requests that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledRule {
    /// Identity of the rule.
    pub id: RuleId,
    /// Filters of all requests of the rule.
    pub filters: CompiledFilters,
    /// Requests from pages of other origins.
    pub cors: Option<CorsPolicy>,
    /// Limits of the time for a request.
    pub timeouts: RouteTimeouts,
    /// Repetition of failed requests; `None` if the gateway decides.
    pub retry: Option<RouteRetry>,
    /// Refusal of the requests; `None` if they are served.
    pub refusal: Option<RuleRefusal>,
    /// Backends with their weights.
    pub backends: Vec<Arc<CompiledBackend>>,
}

/// Filters of a rule or of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompiledFilters {
    /// Changes of the headers of the request.
    pub request_headers: Option<HeaderModifier>,
    /// Changes of the headers of the response.
    pub response_headers: Option<HeaderModifier>,
    /// Redirection of the requests.
    pub redirect: Option<RequestRedirect>,
    /// Change of the host name and path.
    pub rewrite: Option<UrlRewrite>,
    /// Services that receive copies of the requests.
    pub mirrors: Vec<CompiledMirror>,
}

/// Backend of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledBackend {
    /// Service port of the backend.
    pub key: BackendKey,
    /// Share of the requests relative to the other backends of the rule.
    pub weight: u32,
    /// Filters of the requests of this backend, which apply after those of the rule.
    pub filters: CompiledFilters,
}

/// Service port that receives copies of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledMirror {
    /// Service port of the copies.
    pub key: BackendKey,
    /// Share of the requests as numerator and denominator, which is at least 1.
    pub share: (u32, u32),
}

impl CompiledRule {
    pub(super) fn new(id: RuleId, rule: &HttpRouteRule) -> Self {
        let namespace = &id.namespace;
        let backends = rule.backend_refs.iter().map(|backend| {
            Arc::new(CompiledBackend {
                key: key(namespace, &backend.name, backend.port),
                weight: backend.weight,
                filters: CompiledFilters::new(namespace, &backend.filters),
            })
        });
        Self {
            filters: CompiledFilters::new(namespace, &rule.filters),
            cors: rule.filters.iter().find_map(|filter| filter.cors.clone()),
            timeouts: rule.timeouts.unwrap_or_default(),
            retry: rule.retry.clone(),
            refusal: rule.refuse.clone(),
            backends: backends.collect(),
            id,
        }
    }
}

impl CompiledFilters {
    fn new(namespace: &Namespace, filters: &[HttpFilter]) -> Self {
        let mirror = |mirror: &RequestMirror| CompiledMirror {
            key: key(namespace, &mirror.backend_ref.name, mirror.backend_ref.port),
            share: mirror.share(),
        };
        let mirrors = filters.iter().filter_map(|filter| filter.request_mirror.as_ref());
        Self {
            request_headers: filters.iter().find_map(|filter| filter.request_header_modifier.clone()),
            response_headers: filters.iter().find_map(|filter| filter.response_header_modifier.clone()),
            redirect: filters.iter().find_map(|filter| filter.request_redirect.clone()),
            rewrite: filters.iter().find_map(|filter| filter.url_rewrite.clone()),
            mirrors: mirrors.map(mirror).collect(),
        }
    }
}

/// Returns the Service ports that a rule of a route in a namespace names, those of mirrors included.
pub fn backend_keys(namespace: &Namespace, rule: &HttpRouteRule) -> Vec<BackendKey> {
    let backends = rule.backend_refs.iter().map(|backend| key(namespace, &backend.name, backend.port));
    let filters = rule.filters.iter().chain(rule.backend_refs.iter().flat_map(|backend| &backend.filters));
    let mirrors = filters.filter_map(|filter| filter.request_mirror.as_ref());
    let mirrors = mirrors.map(|mirror| key(namespace, &mirror.backend_ref.name, mirror.backend_ref.port));
    backends.chain(mirrors).collect()
}

/// Returns the key of a port of a Service in a namespace.
pub(super) fn key(namespace: &Namespace, name: &Name, port: Port) -> BackendKey {
    BackendKey { service: ServiceKey { namespace: namespace.clone(), name: name.clone() }, port }
}
