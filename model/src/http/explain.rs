//! Explanation of the decision for one request: listener, certificate, rule, filters, backends and endpoints, and the
//! reasons for which other rules do not apply.
//!
//! Invariant: the decision is that of [`route`] on the compiled table of the gateways. The reasons of other rules are read
//! from the same table, so that an explanation cannot differ from the treatment of a request.

mod candidates;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::candidates::RuleCandidates;
use super::{
    backend::{BackendEndpoints, BackendKey, BackendProblem},
    decide::{Decision, matching, route},
    head::RequestHead,
    objects::HttpObjectKey,
    rule::{CompiledRule, RuleId},
    state::HttpState,
    tls_routes::{CompiledTlsRoute, TlsDecision, route_tls},
};
use crate::{
    kinds::{
        condition_reason::ConditionReason,
        gateway::GatewayListener,
        http_route::{HttpFilter, HttpRouteMatch},
        resource::{Kind, ObjectKey},
    },
    primitives::quantity::Revision,
};

/// Status code of the answers to preflight requests.
const PREFLIGHT_STATUS: u16 = 204;

/// Explanation of the decision of gateways for one request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpExplanation {
    /// Method and address of the request.
    #[schema(example = "GET https://www.example.org/api")]
    pub request: String,
    /// Revision of the state from which the decision is computed.
    pub revision: Revision,
    /// Decision of the gateways.
    pub decision: HttpOutcome,
    /// Status code of the response; absent if an endpoint responds, or if the connection is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 599)]
    pub status: Option<u16>,
    /// Reason of the decision in words.
    #[schema(example = "rule shop/www/0 applies")]
    pub reason: String,
    /// Address of a redirection; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Listeners to which the request belongs, as `namespace/gateway/listener`. Gateways may share a port and host name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<String>,
    /// TlsRoute that forwards the connection, as `namespace/name`; absent if the gateway serves the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "shop/mail")]
    pub tls_route: Option<String>,
    /// Certificate of the connection, as `namespace/name`; absent if the gateway does not decrypt the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Rule that applies, as `namespace/route/rule`; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Conditions of the rule that the request meets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<HttpRouteMatch>,
    /// Filters of the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<HttpFilter>,
    /// New path of a forwarded request; absent if the path remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_path: Option<String>,
    /// New host name of a forwarded request; absent if the host name remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_host: Option<String>,
    /// Address that gateways append to `X-Forwarded-For`; absent if the client is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub forwarded_for: Option<IpAddr>,
    /// Backends of the rule with their shares and endpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<HttpBackendShare>,
    /// Rules of the listeners with the reason for which each applies or does not, the most specific one first, at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<HttpCandidate>,
    /// Number of further rules, all of which do not apply.
    #[serde(default)]
    pub omitted: usize,
    /// Parents of the routes of the candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<HttpParent>,
}

/// Decision of gateways: `Forward`, `ForwardConnection`, `Redirect`, `Preflight`, `Fail` or `Refuse`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
pub enum HttpOutcome {
    /// An endpoint receives the request.
    Forward,
    /// An endpoint receives the bytes of the connection by a TlsRoute, and answers the request.
    ForwardConnection,
    /// The gateway redirects the client.
    Redirect,
    /// The gateway answers a preflight request of a browser (filter `CORS`).
    Preflight,
    /// The gateway responds with the status code of an error.
    #[default]
    Fail,
    /// The client has no connection over which to send the request.
    Refuse,
}

/// Backend of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpBackendShare {
    /// Service port as `namespace/service:port`.
    #[schema(example = "shop/web:80")]
    pub backend: String,
    /// Share of the requests relative to the other backends.
    pub weight: u32,
    /// Endpoints that receive new requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<HttpEndpointShare>,
    /// Status code of the gateway for this share of the requests; absent if an endpoint responds, or with weight 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 500, maximum = 599)]
    pub status: Option<u16>,
    /// Reason for which the backend cannot receive requests in words; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Endpoint of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpEndpointShare {
    /// Address and port of the endpoint.
    #[schema(value_type = String, example = "10.1.0.1:8080")]
    pub address: SocketAddr,
    /// Share of the requests of the backend relative to the other endpoints.
    pub weight: u16,
}

/// Rule of a route with the reason for which it applies to a request or does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpCandidate {
    /// Route that contains the rule, as `namespace/name`.
    #[schema(example = "shop/www")]
    pub route: String,
    /// Name of the rule, or its number from 0; absent if no rule of the route is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Host name and path that the rule matches, as `HOST/PATH`, with a final `*` for a prefix; absent if no rule of the route
    /// is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "*.example.org/api/*")]
    pub place: Option<String>,
    /// Outcome for the request.
    pub outcome: RuleOutcome,
    /// Reason of the outcome in words.
    #[schema(example = "requires the header x-canary: always")]
    pub message: String,
}

/// Outcome of a rule for a request: `Applies`, or the reason for which it does not apply.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, strum::Display,
)]
pub enum RuleOutcome {
    /// The rule decides the request.
    Applies,
    /// The request meets all conditions, and the client has no connection over which to send it.
    NoConnection,
    /// The request meets all conditions, and another rule is more specific or older.
    LowerPrecedence,
    /// The request has another method.
    Method,
    /// The request lacks a header, or has another value of it.
    Header,
    /// The request lacks a query parameter, or has another value of it.
    QueryParam,
    /// The request has another path.
    Path,
    /// The request has another host name.
    Hostname,
    /// The route is attached to a listener of the port with another host name.
    Listener,
    /// The route is attached to listeners of other ports.
    Port,
    /// No listener serves the route.
    NotAttached,
}

/// Parent of a route, and the reason for which it does not accept the route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpParent {
    /// Route that names the parent, as `namespace/name`.
    pub route: String,
    /// Gateway and, if named, listener and port, as `namespace/gateway[/listener][:port]`.
    #[schema(example = "shop/edge/http")]
    pub parent: String,
    /// True if the parent accepts the route.
    pub accepted: bool,
    /// Reason of the condition `Accepted`, as in the status of the route.
    #[schema(value_type = String, example = "Valid")]
    pub reason: ConditionReason,
    /// Description of the reason; absent if the parent accepts the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Remedy for users; absent if the parent accepts the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Explains the decision for a request, of a client with an address if one is given.
#[must_use]
pub fn explain_http<'a>(
    state: &'a HttpState,
    head: &RequestHead<'a>,
    client: Option<IpAddr>,
) -> HttpExplanation {
    let candidates = RuleCandidates::of(state, head);
    let scheme = if head.server_name.is_some() { "https" } else { "http" };
    let mut explanation = HttpExplanation {
        request: request_line(head, scheme),
        revision: state.snapshot().revision(),
        decision: HttpOutcome::Fail,
        status: None,
        reason: String::new(),
        location: None,
        listeners: listeners(state, head),
        tls_route: None,
        certificate: None,
        rule: None,
        matched: None,
        filters: Vec::new(),
        new_path: None,
        new_host: None,
        forwarded_for: client,
        backends: Vec::new(),
        candidates: candidates.shown,
        omitted: candidates.omitted,
        parents: candidates.parents,
    };
    let outcome = connect(state, head, &mut explanation);
    if outcome == Ok(ConnectionContent::Requests) {
        decide(state, head, &mut explanation);
        return explanation;
    }
    let mut message = "would apply, but a TlsRoute forwards the connection";
    if let Err(reason) = outcome {
        (explanation.decision, explanation.reason) = (HttpOutcome::Refuse, reason);
        message = "would apply, but the client has no connection";
    }
    for one in explanation.candidates.iter_mut().filter(|one| one.outcome == RuleOutcome::Applies) {
        one.outcome = RuleOutcome::NoConnection;
        one.message = message.to_owned();
    }
    explanation
}

/// Content of a connection for the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionContent {
    Requests,
    Bytes,
}

fn request_line(head: &RequestHead<'_>, scheme: &str) -> String {
    let RequestHead { port, method, host, path, query, .. } = *head;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let is_default = matches!((scheme, port.get()), ("http", 80) | ("https", 443));
    let port = if is_default { String::new() } else { format!(":{port}") };
    format!("{method} {scheme}://{host}{port}{path}{query}")
}

/// Adds the certificate of the connection, and the TlsRoute that forwards it.
///
/// # Errors
/// Returns the reason if there is no connection.
fn connect(
    state: &HttpState,
    head: &RequestHead<'_>,
    explanation: &mut HttpExplanation,
) -> Result<ConnectionContent, String> {
    let (table, port) = (state.table(), head.port);
    if !table.routes.ports().any(|known| known == port) {
        let ports: Vec<_> = table.routes.ports().map(|port| port.to_string()).collect();
        let others = if ports.is_empty() {
            "there is no listener".to_owned()
        } else {
            format!("the listeners have the ports {}", ports.join(", "))
        };
        return Err(format!("no Gateway listens at port {port}; {others}"));
    }
    let Some(name) = head.server_name else {
        let is_tls = table.tls.is_tls(port);
        return if is_tls {
            Err(format!("the listeners of port {port} expect TLS"))
        } else {
            Ok(ConnectionContent::Requests)
        };
    };
    if !table.tls.is_tls(port) {
        return Err(format!("the listeners of port {port} have no TLS"));
    }
    match route_tls(table, port, name, 0) {
        Ok(TlsDecision::Serve { certificate }) => {
            explanation.certificate = Some(certificate.to_string());
            Ok(ConnectionContent::Requests)
        }
        Ok(TlsDecision::Forward { certificate, route, .. }) => {
            forward(state, (certificate, route), explanation);
            Ok(ConnectionContent::Bytes)
        }
        Err(problem) => Err(problem.describe(port, name)),
    }
}

/// Adds the backends of a TlsRoute that forwards the connection.
fn forward(
    state: &HttpState,
    (certificate, route): (Option<&HttpObjectKey>, &CompiledTlsRoute),
    explanation: &mut HttpExplanation,
) {
    explanation.decision = HttpOutcome::ForwardConnection;
    explanation.certificate = certificate.map(ToString::to_string);
    let form = if certificate.is_some() { "decrypted" } else { "unchanged" };
    explanation.reason = format!("TlsRoute {route} forwards the connection {form}");
    explanation.tls_route = Some(route.to_string());
    for (backend, weight) in &route.backends {
        let found = state.table().tls_backends.get(backend);
        explanation.backends.push(share_of(found, backend, *weight, None));
    }
    let failing = explanation.backends.iter().filter(|share| share.problem.is_some()).count();
    if failing > 0 {
        let all = explanation.backends.len();
        explanation.reason.push_str(&format!("; {failing} of {all} backends cannot answer"));
    }
}

fn decide<'a>(state: &'a HttpState, head: &RequestHead<'a>, explanation: &mut HttpExplanation) {
    let table = state.table();
    let first = route(table, head, 0);
    let rule = match &first {
        Decision::Fail { rule, .. } => *rule,
        Decision::Redirect { rule, .. }
        | Decision::Preflight { rule, .. }
        | Decision::Forward { rule, .. } => Some(*rule),
    };
    let Some(rule) = rule else { return answer(explanation, first) };
    let mut best = first;
    let mut before = 0;
    for backend in &rule.backends {
        let share = (backend.weight > 0).then(|| route(table, head, before));
        before += u64::from(backend.weight);
        explanation.backends.push(backend_share(state, &backend.key, backend.weight, share.as_ref()));
        if let Some(share) = share.filter(|_| matches!(best, Decision::Fail { .. })) {
            best = share;
        }
    }
    explanation.rule = Some(rule.id.to_string());
    if let Ok((entry, _)) = matching(table, head) {
        describe(state, &rule.id, entry.index, explanation);
    }
    answer(explanation, best);
    let failing = explanation.backends.iter().filter(|share| share.status.is_some()).count();
    if explanation.decision == HttpOutcome::Forward && failing > 0 {
        let reason = &mut explanation.reason;
        reason.push_str(&format!("; {failing} of {} backends cannot respond", explanation.backends.len()));
    }
}

/// Adds the decision, its status code and its reason.
fn answer(explanation: &mut HttpExplanation, decision: Decision<'_>) {
    let rule = |rule: &CompiledRule| format!("rule {} applies", rule.id);
    match decision {
        Decision::Fail { failure, rule: of } => {
            explanation.decision = HttpOutcome::Fail;
            explanation.status = Some(failure.status());
            let refusal = of.and_then(|of| Some((&of.id, of.refusal.as_ref()?)));
            explanation.reason = match refusal {
                Some((id, refusal)) => format!("rule {id} refuses the request: {}", refusal.reason),
                None => failure.message().to_owned(),
            };
        }
        Decision::Redirect { rule: of, status, location } => {
            explanation.decision = HttpOutcome::Redirect;
            explanation.status = Some(status);
            (explanation.location, explanation.reason) = (Some(location), rule(of));
        }
        Decision::Preflight { rule: of, headers: _ } => {
            explanation.decision = HttpOutcome::Preflight;
            (explanation.status, explanation.reason) = (Some(PREFLIGHT_STATUS), rule(of));
        }
        Decision::Forward { rule: of, path, host, .. } => {
            explanation.decision = HttpOutcome::Forward;
            (explanation.new_path, explanation.new_host) = (path, host.map(str::to_owned));
            explanation.reason = rule(of);
        }
    }
}

/// Adds the match that the request meets and the filters of the rule, as they are in the object.
fn describe(state: &HttpState, id: &RuleId, index: usize, explanation: &mut HttpExplanation) {
    let RuleId { namespace, route, rule, name: _ } = id;
    let (namespace, name) = (Some(namespace.clone()), route.clone());
    let object = state.snapshot().get(&ObjectKey { kind: Kind::HttpRoute, namespace, name });
    let rules = object.and_then(|object| object.as_http_route()).map(|spec| &spec.rules);
    if let Some(rule) = rules.and_then(|rules| rules.get(*rule)) {
        explanation.matched = Some(rule.matches.get(index).cloned().unwrap_or_default());
        explanation.filters.clone_from(&rule.filters);
    }
}

fn backend_share(
    state: &HttpState,
    backend: &BackendKey,
    weight: u32,
    share: Option<&Decision<'_>>,
) -> HttpBackendShare {
    let status = match share {
        Some(Decision::Fail { failure, rule: _ }) => Some(failure.status()),
        Some(Decision::Redirect { .. } | Decision::Preflight { .. } | Decision::Forward { .. }) | None => {
            None
        }
    };
    share_of(state.table().backends.get(backend), backend, weight, status)
}

/// Returns a backend with its endpoints.
fn share_of(
    found: Option<&Result<Arc<BackendEndpoints>, BackendProblem>>,
    backend: &BackendKey,
    weight: u32,
    status: Option<u16>,
) -> HttpBackendShare {
    let (endpoints, problem) = match found {
        Some(Ok(found)) => {
            let endpoints = found.list().iter();
            let endpoints: Vec<_> =
                endpoints.map(|one| HttpEndpointShare { address: one.address, weight: one.weight }).collect();
            let problem = endpoints.is_empty().then_some("the Service has no endpoint in service");
            (endpoints, problem)
        }
        Some(Err(BackendProblem::ExternalName)) => {
            (Vec::new(), Some("the Service is of type ExternalName, which gateways do not resolve"))
        }
        Some(Err(BackendProblem::NoPort)) => {
            (Vec::new(), Some("the Service has no single TCP port with the number"))
        }
        Some(Err(BackendProblem::ProxyProtocol)) => {
            (Vec::new(), Some("the Service has spec.proxyProtocol, which gateways do not send"))
        }
        Some(Err(BackendProblem::Protocol)) => {
            (Vec::new(), Some("the appProtocol of the port includes TLS, which gateways do not use"))
        }
        Some(Err(BackendProblem::NoService)) | None => {
            (Vec::new(), Some("the Service does not exist, or has no addresses"))
        }
    };
    HttpBackendShare {
        backend: backend.to_string(),
        weight,
        endpoints,
        status,
        problem: problem.map(str::to_owned),
    }
}

/// Returns the listeners that own the host name of a request: of those of its port that match the host name, the ones with
/// the most specific host name.
fn listeners(state: &HttpState, head: &RequestHead<'_>) -> Vec<String> {
    let matches = |listener: &&GatewayListener| {
        listener.port == head.port && listener.hostname.as_ref().is_none_or(|name| name.matches(head.host))
    };
    let specific = |listener: &GatewayListener| {
        let name = listener.hostname.as_ref();
        name.map(|name| (name.wildcard_base().is_none(), name.as_str().len()))
    };
    let mut found = Vec::new();
    for object in state.snapshot().list(Kind::Gateway, None, None) {
        let (Some(spec), Some(namespace)) = (object.as_gateway(), &object.metadata.namespace) else {
            continue;
        };
        let key = HttpObjectKey { namespace: namespace.clone(), name: object.metadata.name.clone() };
        for listener in spec.listeners.iter().filter(matches) {
            found.push((specific(listener), format!("{key}/{}", listener.name)));
        }
    }
    let best = found.iter().map(|(specific, _)| *specific).max();
    found.into_iter().filter(|(specific, _)| Some(*specific) == best).map(|(_, name)| name).collect()
}
