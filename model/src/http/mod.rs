//! HTTP routing: from Gateways, HttpRoutes and Services to the decision for one request.
//!
//! ```text
//! HttpObjects ──attach──▶ listeners of each route ──▶ Routes (precedence decided here)
//! Snapshot ─────backend──▶ BackendEndpoints of each referenced Service port
//! RequestHead ──▶ route(&HttpTable, &RequestHead) ──▶ Decision
//! ```
//! The rules of precedence are those of the Gateway API: the listener with the most specific host name, then the most
//! specific host name of a route, an exact path, the longest path prefix, a method, the number of header matches, the
//! number of query matches, the oldest route, its namespace and name, and the order of its rules and matches. If no rule
//! of a route with a more specific host name matches, rules of less specific host names apply.

mod attach;
mod backend;
mod certificate;
mod cors;
mod decide;
mod explain;
mod hosts;
mod objects;
mod rewrite;
mod rule;
mod state;
mod table;
mod tls;
mod validate;

pub(crate) use self::certificate::key_violation;
pub use self::{
    attach::{AttachProblem, AttachedListener, attach},
    backend::{BackendEndpoints, BackendKey, BackendProblem, BackendProtocol, HttpEndpoint, resolve_backend},
    certificate::{CertificateFacts, certified_key, chain, validate_certificate},
    cors::{CORS_RESPONSE_HEADERS, CorsHeaders},
    decide::{Decision, HttpFailure, RequestHead, normalize_host, route},
    explain::{
        HttpBackendShare, HttpCandidate, HttpEndpointShare, HttpExplanation, HttpOutcome, HttpParent,
        RuleOutcome, explain_http,
    },
    objects::{HttpObjectKey, HttpObjects, RouteObject},
    rule::{CompiledBackend, CompiledFilters, CompiledMirror, CompiledRule, RuleId, backend_keys},
    state::HttpState,
    table::{HttpTable, Routes},
    tls::{TlsProblem, TlsTable, certificate_refs, resolve_certificate},
    validate::{validate_gateway, validate_route},
};
