//! Answers to the requests of clients: the decision of the model, and its execution.

mod body;
mod filters;
mod forward;
mod head;
mod mirror;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, convert::Infallible, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use ipnet::IpNet;
use model::http::{
    BackendEndpoints, CompiledBackend, CompiledRule, CorsHeaders, Decision, HttpTable, RequestHead, route,
};
use tokio::sync::{Semaphore, watch};

pub(crate) use self::mirror::COPIES_MAX;
use self::{
    body::{AccessRecord, RequestBody, ResponseBody},
    head::Target,
};
use crate::{gate::ConnectionState, metrics::Metrics, state::SharedState, upstream::Upstream};

/// Settings of the requests.
#[derive(Debug, Clone)]
pub(crate) struct ProxyOptions {
    /// Networks of proxies whose `X-Forwarded` headers are kept.
    pub(crate) trusted: Vec<IpNet>,
    /// Maximum time for the head of a response.
    pub(crate) response_timeout: Duration,
    /// Maximum time without progress of a body.
    pub(crate) idle: Duration,
    /// True if every request is logged.
    pub(crate) access_log: bool,
}

/// Treatment of requests.
pub(crate) struct Proxy {
    pub(crate) states: watch::Receiver<SharedState>,
    pub(crate) upstream: Upstream<RequestBody>,
    pub(crate) options: ProxyOptions,
    pub(crate) metrics: Arc<Metrics>,
    /// Limit of the number of copies for mirrors.
    pub(crate) copies: Arc<Semaphore>,
}

/// Decision for a request, independent of the state that it follows from.
enum Step {
    /// The gateway answers itself.
    Answer { status: StatusCode, text: &'static str, headers: CorsHeaders, rule: Option<Arc<CompiledRule>> },
    /// The gateway answers an ACME server, which verifies a host name.
    Challenge { answer: String },
    /// An endpoint answers.
    Forward(Forwarding),
}

/// Request that is forwarded.
pub(crate) struct Forwarding {
    rule: Arc<CompiledRule>,
    backend: Arc<CompiledBackend>,
    endpoints: Arc<BackendEndpoints>,
    /// New path; `None` if the path of the request remains.
    path: Option<String>,
    /// New host name; `None` if that of the request remains.
    host: Option<String>,
    /// Endpoints of the Services that receive copies.
    mirrors: Vec<Arc<BackendEndpoints>>,
    /// Headers of the response for pages of other origins.
    cors: CorsHeaders,
}

impl Proxy {
    /// Answers a request. Never fails, because every failure has a status code.
    pub(crate) async fn answer(
        self: Arc<Self>,
        connection: Arc<ConnectionState>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let mut record = AccessRecord::new(&self, &connection, &request);
        let state = self.states.borrow().clone();
        let (is_head, is_http2) = (request.method() == Method::HEAD, request.version() == Version::HTTP_2);
        let step = match (Target::of(&request), state) {
            (Err(text), _) => answer_of(StatusCode::BAD_REQUEST, text),
            (_, None) => answer_of(StatusCode::SERVICE_UNAVAILABLE, "the routes are not known yet"),
            (Ok(target), Some(state)) => decide(state.table(), &connection, &target, &request),
        };
        let (response, of_rule) = match step {
            Step::Answer { status, text, headers, rule } => {
                let mut response = own_response(status, text, &headers);
                let of_rule = rule.as_ref().map(|rule| &rule.filters);
                filters::modify_response(response.headers_mut(), of_rule);
                (response, rule)
            }
            Step::Challenge { answer } => (Response::new(body::Content::text(answer)), None),
            Step::Forward(forwarding) => {
                let response = self.forward(&connection, request, &forwarding, &mut record).await;
                let mut response =
                    response.unwrap_or_else(|failure| own_response(failure.status(), failure.text(), &[]));
                let Forwarding { rule, backend, cors, .. } = forwarding;
                let headers = response.headers_mut();
                if rule.cors.is_some() {
                    filters::set_cors(headers, &cors);
                }
                filters::modify_response(headers, [&rule.filters, &backend.filters]);
                (response, Some(rule))
            }
        };
        let (mut parts, body) = response.into_parts();
        let is_last = !is_http2 && connection.leaving.is_cancelled();
        if is_last && parts.status != StatusCode::SWITCHING_PROTOCOLS {
            parts.headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        if let Some(rule) = &of_rule {
            record.set_route(&rule.id);
        }
        record.status = parts.status.as_u16();
        // Clients of HTTP/2 reject a response to HEAD that has a body (RFC 9110 §9.3.2).
        let body = if is_head { body.without_text() } else { body };
        Ok(Response::from_parts(parts, ResponseBody::new(body, record)))
    }
}

fn answer_of(status: StatusCode, text: &'static str) -> Step {
    Step::Answer { status, text, headers: Vec::new(), rule: None }
}

fn decide(
    table: &HttpTable,
    connection: &ConnectionState,
    target: &Target,
    request: &Request<Incoming>,
) -> Step {
    // Requests of ACME servers are answered before routes apply, which may redirect all requests to HTTPS.
    if connection.server_name.is_none() && [Method::GET, Method::HEAD].contains(request.method()) {
        let answer = table.challenges.answer(connection.port, &target.host, request.uri().path());
        if let Some(answer) = answer {
            return Step::Challenge { answer: answer.to_owned() };
        }
    }
    let joined = |name: &str| {
        let mut values = request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
        let first = values.next()?;
        Some(values.fold(Cow::Borrowed(first), |all, next| Cow::Owned(format!("{all},{next}"))))
    };
    let head = RequestHead {
        port: connection.port,
        server_name: connection.server_name.as_deref(),
        method: request.method().as_str(),
        host: &target.host,
        path: request.uri().path(),
        query: request.uri().query(),
        header: &joined,
    };
    match route(table, &head, fastrand::u64(..)) {
        Decision::Fail { failure, rule } => {
            // The status codes of the model are valid.
            let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Step::Answer { status, text: failure.message(), headers: Vec::new(), rule: rule.cloned() }
        }
        Decision::Redirect { rule, status, location } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND);
            let rule = Some(Arc::clone(rule));
            Step::Answer { status, text: "", headers: vec![("location", location)], rule }
        }
        Decision::Preflight { rule, headers } => {
            let rule = Some(Arc::clone(rule));
            Step::Answer { status: StatusCode::NO_CONTENT, text: "", headers, rule }
        }
        Decision::Forward { rule, backend, endpoints, path, host, mirrors, cors } => {
            Step::Forward(Forwarding {
                rule: Arc::clone(rule),
                backend: Arc::clone(backend),
                endpoints: Arc::clone(endpoints),
                path,
                host: host.map(str::to_owned),
                mirrors: mirrors.into_iter().map(|(_, endpoints)| Arc::clone(endpoints)).collect(),
                cors,
            })
        }
    }
}

/// Creates a response of the gateway itself.
fn own_response(
    status: StatusCode,
    text: &'static str,
    added: &[(&'static str, String)],
) -> Response<body::Content> {
    let text = if text.is_empty() { String::new() } else { format!("{text}\n") };
    let mut response = Response::new(body::Content::text(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if status != StatusCode::NO_CONTENT {
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    filters::insert(headers, added);
    response
}

/// Returns true if a request may be sent again although an endpoint may have received it (RFC 9110 §9.2.2).
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}
