//! HTTP routing: from Gateways, HttpRoutes, TlsRoutes and Services to the decision for one request or connection.
//!
//! ```text
//! HttpObjects ──attach──▶ listeners of each route ──▶ Routes (precedence decided here)
//! Snapshot ─────backend──▶ BackendEndpoints of each referenced Service port
//! RequestHead ──▶ route(&HttpTable, &RequestHead) ──▶ Decision
//! server name ──▶ route_tls(&HttpTable, …) ──▶ TlsDecision
//! ```
//! The rules of precedence are those of the Gateway API: the listener with the most specific host name, then the most
//! specific host name of a route, an exact path, the longest path prefix, a method, the number of header matches, the
//! number of query matches, the oldest route, its namespace and name, and the order of its rules and matches. If no rule
//! of a route with a more specific host name matches, rules of less specific host names apply. A rule that refuses requests
//! precedes all rules with the same host name and path, at every listener.
//!
//! Paths are compared in a normal form, in which percent-encoding and repeated slashes make no difference.

mod acme;
mod attach;
mod backend;
mod certificate;
mod cors;
mod decide;
mod explain;
mod head;
mod hosts;
mod objects;
mod path;
mod refusal;
mod rewrite;
mod route_spec;
mod rule;
mod state;
mod table;
mod tls;
mod tls_routes;
mod validate;

pub(crate) use self::certificate::key_violation;
pub use self::{
    acme::{
        CHALLENGE_PREFIX, ChallengeTable, is_issued, is_order_due, renewal_in_window, renewal_time,
        retry_delay,
    },
    attach::{AttachProblem, AttachedListener, attach},
    backend::{
        BackendEndpoints, BackendKey, BackendProblem, BackendProtocol, HttpEndpoint, resolve_backend,
        resolve_bytes_backend,
    },
    certificate::{CertificateFacts, certified_key, chain, validate_certificate},
    cors::{CORS_RESPONSE_HEADERS, CorsHeaders},
    decide::{Decision, HttpFailure, normalize_host, route},
    explain::{
        HttpBackendShare, HttpCandidate, HttpEndpointShare, HttpExplanation, HttpOutcome, HttpParent,
        RuleOutcome, explain_http,
    },
    head::RequestHead,
    objects::{ConnectionUse, HttpObjectKey, HttpObjects, ListenerUses, RouteObject},
    rule::{CompiledBackend, CompiledFilters, CompiledMirror, CompiledRule, RuleId, backend_keys},
    state::HttpState,
    table::{HttpTable, ResolvedBackends, Routes},
    tls::{TlsProblem, TlsTable, certificate_refs, resolve_certificate},
    tls_routes::{CompiledTlsRoute, TlsDecision, TlsRoutes, route_tls},
    validate::{validate_gateway, validate_route, validate_tls_route},
};
