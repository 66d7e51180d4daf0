//! Middleware around every request: request id, authentication, limits, timeout, logging, and a uniform error
//! format. A request passes these layers in order:
//!
//! ```text
//! outermost ─▶ around: id, caller, log, count, catch a panic, write problems ─▶ host ─▶ concurrency ─▶ timeout ─▶ position
//!           ─▶ routes
//! ```
//! The layer `around` also authenticates the caller. The layers below it check the `Host` header, limit the
//! number and the duration of requests, and wait until this server has the state that the request requires
//! (`position`).
//!
//! The layers of `tower-http` do not fit here: the audit entry, the metrics and the log line of a request need
//! its final response, also after a panic or a timeout; a request id of the client is validated; requests
//! beyond the limit are rejected instead of queued; and the security headers depend on the settings.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::{FromRequestParts, MatchedPath, Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header, request::Parts};
use model::primitives::quantity::{Position, Revision};
use traces::{Span, SpanKind, TRACEPARENT, Tracer};
use tracing::Instrument;

use crate::{
    base::{
        config::Settings,
        error::{Code, LoginRedirect, Problem},
    },
    context::server_state::ServerState,
    http::{kubernetes, response_progress},
    security::{
        Access, Caller, Identity,
        account::Account,
        caller::{Peer, may_change},
        page::{self, PageRequest},
    },
    state::response_budget::RequestClass,
    telemetry::metrics::RequestLabels,
    write::audit::AuditResponse,
};

/// Maximum time until the handler returns the head of a response. Streams have timeouts of their own.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length in characters of a request id that a client sends.
const REQUEST_ID_LENGTH_MAX: usize = 128;
/// `Retry-After` if a request took too long, in seconds.
const RETRY_SECS: u32 = 1;
/// Request header with the minimum position (epoch and revision) of the state that the response must reflect.
/// The server delays the request until its state has this position.
pub(crate) const X_MIN_POSITION: HeaderName = HeaderName::from_static("x-tidegate-min-position");
/// Value of the header [`X_MIN_POSITION`] for a read that includes every commit of the store.
const LATEST: &str = "latest";
/// Response header that disables browser features such as the camera (`Permissions-Policy`).
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
/// Response header that isolates pages from windows of other origins (`Cross-Origin-Opener-Policy`).
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Response header that forbids other origins to embed the response (`Cross-Origin-Resource-Policy`).
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// Header with the request id, in requests and responses.
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Value of `Content-Security-Policy`: same origin only, no inline code, no framing.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; \
                      connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Value of `Permissions-Policy`: the listed browser features are disabled, because no page of this server needs
/// them.
const ABILITIES: &str = "accelerometer=(), camera=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), \
                         midi=(), payment=(), usb=()";

/// Routes that agents and monitoring systems request periodically. They begin no trace, because thousands of agents
/// report each second.
const PERIODIC_ROUTES: [&str; 9] = [
    "/healthz",
    "/livez",
    "/metrics",
    "/readyz",
    "/v1/dns/servers/{server}/report",
    "/v1/http/gateways/{gateway}/report",
    "/v1/nodes/{node}/answers/{id}",
    "/v1/nodes/{node}/report",
    "/v1/nodes/{node}/state",
];

/// Id of the current request, stored in the request's extensions and logged.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for RequestId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let id = parts.extensions.get::<Self>().cloned();
        id.ok_or_else(|| Problem::new(Code::Internal, "the request has no id"))
    }
}

/// Wraps the routes in the middleware for all requests: request ids, host check, limits, timeout, and the wait for
/// a minimum position.
pub(crate) fn wrap(router: Router, app: Arc<ServerState>) -> Router {
    let state = |app: &Arc<ServerState>| Arc::clone(app);
    router
        .layer(from_fn_with_state(state(&app), wait_for_position))
        .layer(from_fn_with_state(state(&app), limit))
        .layer(from_fn_with_state(state(&app), check_host))
        .layer(from_fn_with_state(state(&app), around))
}

async fn around(State(app): State<Arc<ServerState>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    request.extensions_mut().insert(RequestId(id.clone()));
    let peer = request.extensions().get::<Peer>().copied();
    let now = app.source.now();
    let identified = app.authenticator.identify(request.headers(), request.extensions(), now).await;
    let (access, refused) = match identified {
        Ok(access) => (Arc::new(access), None),
        Err(problem) => (Arc::new(Access::of(Identity::Nobody)), Some(problem)),
    };
    let asked =
        PageRequest { method: &method, uri: request.uri(), headers: request.headers(), route: &route };
    let is_read_only = app.settings.page.is_read_only;
    let refused = refused.or_else(|| page::check(&asked, &access, is_read_only).err());
    let account = Account::of(&access, peer);
    let connection = request.extensions().get().cloned().unwrap_or_default();
    let caller = Caller::read((&method, &path), request.headers(), (peer, &id), &access);
    let mut trace = start_span(&app.settings.tracer, request.headers(), (&method, &route));
    let caller = caller.map(|caller| caller.traced(trace.context()));
    let span = tracing::info_span!("request", id, %method, path);
    let known = caller.as_ref().ok().cloned();
    let permitted = match (refused, caller) {
        (Some(problem), _) => Err(problem),
        (None, Ok(caller)) => Ok(caller),
        // The author header of a read is ignored.
        (None, Err(_)) if !may_change(&method) => Ok(Caller::without_author(access, peer)),
        (None, Err(problem)) => Err(problem),
    };
    let serve = async {
        match permitted {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(problem) => problem.into_response(),
        }
    };
    let served = AssertUnwindSafe(serve).catch_unwind().instrument(span.clone()).await;
    let response = served.unwrap_or_else(|_| {
        span.in_scope(|| tracing::error!("the handler panicked"));
        Problem::new(Code::Internal, "the server failed to process the request; the log has the details")
            .into_response()
    });
    let login = response.extensions().get::<LoginRedirect>().copied();
    let code = response.extensions().get::<Problem>().map(Problem::code);
    let code = code.or_else(|| login.and_then(|LoginRedirect(code)| code));
    let is_view = app.settings.has_kubernetes_view && kubernetes::is_below(&path);
    let mut response = write_problem(response, &path, &id, is_view);
    let is_refused = code.is_some_and(|code| matches!(code, Code::Unauthenticated | Code::Forbidden));
    if let Some(caller) = known.filter(|_| may_change(&method) || is_refused || login.is_some()) {
        let (at, status) = (app.source.now(), response.status());
        let answered = AuditResponse { at, method: method.clone(), path: path.clone(), status, code };
        app.audit.add(&route, &caller, answered);
    }
    secure(response.headers_mut(), &app.settings);
    let value = HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("invalid"));
    response.headers_mut().insert(X_REQUEST_ID, value);
    let took = started.elapsed();
    finish_span(&mut trace, &id, &response);
    span.in_scope(|| log(&method, &response, took));
    let labels = RequestLabels { route, method: word(&method), status: response.status().as_u16() };
    app.metrics.request(labels, took);
    response_progress::track(response, connection, (&app.responses, &account))
}

/// Starts the span of a request, in the trace of the client if the request has a valid trace context.
fn start_span(tracer: &Tracer, headers: &HeaderMap, (method, route): (&Method, &str)) -> Span {
    let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    if parent.is_none() && PERIODIC_ROUTES.contains(&route) {
        return Span::default();
    }
    let mut span = tracer.start("request", SpanKind::Server, parent);
    if span.is_recording() {
        span.set("http.request.method", word(method));
        span.set("http.route", route.to_owned());
    }
    span
}

fn finish_span(span: &mut Span, id: &str, response: &Response) {
    if !span.is_recording() {
        return;
    }
    let status = response.status();
    span.set("http.response.status_code", i64::from(status.as_u16()));
    span.set("tidegate.request_id", id.to_owned());
    if status.is_server_error() {
        span.fail(status.as_str());
    }
}

/// Returns the request id that the client sent if it is well-formed, otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(X_REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_fit = |id: &&str| {
        (1..=REQUEST_ID_LENGTH_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    given.filter(is_fit).map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned)
}

/// Writes the body of every error response, including those of libraries, as a problem (RFC 9457) or, for the
/// Kubernetes API, as a `Status`.
fn write_problem(mut response: Response, path: &str, id: &str, is_view: bool) -> Response {
    let status = response.status();
    let problem = response.extensions_mut().remove::<Problem>();
    let problem = match problem {
        Some(problem) => problem,
        None if status.is_client_error() || status.is_server_error() => Problem::of_status(status, path),
        None => return response,
    };
    let (mut parts, _) = response.into_parts();
    parts.status = problem.code().status();
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = problem.finish(path, id);
    let (content_type, body) = if is_view {
        ("application/json", kubernetes::answer(&body))
    } else {
        let bytes = serde_json::to_vec(&body).expect("problems have string keys only");
        ("application/problem+json", Body::from(bytes))
    };
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Response::from_parts(parts, body)
}

fn secure(headers: &mut HeaderMap, settings: &Settings) {
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (PERMISSIONS_POLICY, ABILITIES),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if settings.is_insecure {
        // On insecure origins browsers ignore this header and log a warning.
        headers.remove(OPENER_POLICY);
    }
    // Responses must not be cached unless a handler allows it.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn log(method: &Method, response: &Response, took: Duration) {
    let status = response.status().as_u16();
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if response.status().is_server_error() {
        tracing::warn!(status, took_ms, "responded with a server error");
    } else if method.is_safe() || method == Method::PUT && response.status().as_u16() == 204 {
        // Users do not look for reads and agent reports in the log.
        tracing::debug!(status, took_ms, "answered");
    } else {
        tracing::info!(status, took_ms, "answered");
    }
}

fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Rejects requests with a `Host` that is not accepted: on loopback, a web page could otherwise resolve its own
/// name to this server (DNS rebinding).
async fn check_host(State(app): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let hosts = match hosts_of(&request) {
        Ok(hosts) => hosts,
        Err(problem) => return problem.into_response(),
    };
    if hosts.iter().all(|host| app.settings.hosts.allow(host)) {
        return next.run(request).await;
    }
    Problem::bad_request("the header `Host` must be localhost, an address, or an allowed name of this server")
        .hint("start the server with --allowed-host to allow another name")
        .into_response()
}

/// Returns the host names in the header and the target of a request. An HTTP/1.1 request has exactly one
/// `Host` header (RFC 9112, 3.2).
fn hosts_of(request: &Request) -> Result<Vec<&str>, Problem> {
    let headers: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    if headers.len() > 1 {
        return Err(Problem::bad_request("the header `Host` is given more than once"));
    }
    let is_from_afar = request.extensions().get::<Peer>().is_some();
    if headers.is_empty() && is_from_afar && request.version() == Version::HTTP_11 {
        return Err(Problem::bad_request("the header `Host` is missing"));
    }
    let texts = headers.into_iter().map(|value| value.to_str().unwrap_or_default());
    Ok(texts.chain(request.uri().host()).collect())
}

/// Delays a request until this server has reached the minimum position in the request header. The value `latest`
/// requests every commit that was complete before the request, confirmed by the store: a read after that is
/// linearizable.
async fn wait_for_position(State(app): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let waited = match request.headers().get(X_MIN_POSITION) {
        None => Ok(()),
        // An unauthenticated caller is rejected right after, and must not wait.
        Some(_) if is_unauthenticated(&request) => Ok(()),
        Some(value) if value.as_bytes().trim_ascii() == LATEST.as_bytes() => app.confirm().await,
        Some(value) => match min_position(value, &app) {
            Ok(position) => app.reach(position).await,
            Err(problem) => Err(problem),
        },
    };
    match waited {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn is_unauthenticated(request: &Request) -> bool {
    Caller::of(request.extensions()).is_ok_and(|caller| *caller.access().identity() == Identity::Nobody)
}

fn min_position(value: &HeaderValue, app: &ServerState) -> Result<Position, Problem> {
    let text = value.to_str().unwrap_or_default().trim();
    let of_epoch = |revision| Position { epoch: app.hub.load().epoch, revision: Revision(revision) };
    let position = text.parse().ok().or_else(|| text.parse().ok().map(of_epoch));
    position.ok_or_else(|| {
        Problem::bad_request("the header `X-Tidegate-Min-Position` must be a position, a revision or `latest`, such as 1795251600-17 or 17")
    })
}

/// Limits the number of requests in progress, the unsent bytes of their responses, and the duration of each. The
/// permit of a request becomes part of its response, which holds it until the client has received the last byte.
async fn limit(State(app): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let account = match Caller::of(request.extensions()) {
        Ok(caller) => caller.account().clone(),
        Err(problem) => return problem.into_response(),
    };
    let class = if may_change(request.method()) { RequestClass::Write } else { RequestClass::Read };
    let permit = match app.responses.enter(&account, class) {
        Ok(permit) => permit,
        Err(exceeded) => return exceeded.problem(&account).into_response(),
    };
    let Ok(mut response) = tokio::time::timeout(TIMEOUT, next.run(request)).await else {
        let detail =
            format!("no response within {} seconds; a write may still take effect", TIMEOUT.as_secs());
        return Problem::new(Code::Timeout, detail).retry_after(RETRY_SECS).into_response();
    };
    // Streams have limits of their own.
    if let Some(bytes) = response.body().size_hint().exact() {
        if let Err(exceeded) = permit.set_bytes(bytes) {
            return exceeded.problem(&account).into_response();
        }
        app.authenticator.charge(&account, bytes, app.source.now());
        response.extensions_mut().insert(permit);
    }
    response
}
