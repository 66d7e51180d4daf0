//! Answers to the requests of clients: the decision of the model, and its execution.

mod body;
mod filters;
mod forward;
mod head;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, convert::Infallible, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use ipnet::IpNet;
use model::http::{BackendEndpoints, CompiledRule, Decision, HttpTable, RequestHead, route};
use tokio::sync::watch;

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
}

/// Decision for a request, independent of the state that it follows from.
enum Step {
    /// The gateway answers itself.
    Answer {
        status: StatusCode,
        text: &'static str,
        location: Option<String>,
        rule: Option<Arc<CompiledRule>>,
    },
    /// An endpoint answers.
    Forward(Forwarding),
}

/// Request that is forwarded.
pub(crate) struct Forwarding {
    rule: Arc<CompiledRule>,
    endpoints: Arc<BackendEndpoints>,
    /// New path; `None` if the path of the request remains.
    path: Option<String>,
    /// New host name; `None` if that of the request remains.
    host: Option<String>,
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
        let step = match (Target::of(&request), state) {
            (Err(text), _) => answer_of(StatusCode::BAD_REQUEST, text),
            (_, None) => answer_of(StatusCode::SERVICE_UNAVAILABLE, "the routes are not known yet"),
            (Ok(target), Some(state)) => decide(state.table(), &connection, &target, &request),
        };
        let (response, of_rule) = match step {
            Step::Answer { status, text, location, rule } => (own_response(status, text, location), rule),
            Step::Forward(forwarding) => {
                let rule = Arc::clone(&forwarding.rule);
                let response = self.forward(&connection, request, forwarding, &mut record).await;
                (
                    response.unwrap_or_else(|failure| own_response(failure.status(), failure.text(), None)),
                    Some(rule),
                )
            }
        };
        let (mut parts, body) = response.into_parts();
        if let Some(rule) = &of_rule {
            record.set_route(&rule.id);
            if let Some(modifier) = &rule.response_headers {
                filters::modify(&mut parts.headers, modifier);
            }
        }
        record.status = parts.status.as_u16();
        Ok(Response::from_parts(parts, ResponseBody::new(body, record)))
    }
}

fn answer_of(status: StatusCode, text: &'static str) -> Step {
    Step::Answer { status, text, location: None, rule: None }
}

fn decide(
    table: &HttpTable,
    connection: &ConnectionState,
    target: &Target,
    request: &Request<Incoming>,
) -> Step {
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
            Step::Answer { status, text: failure.message(), location: None, rule: rule.cloned() }
        }
        Decision::Redirect { rule, status, location } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND);
            let rule = Some(Arc::clone(rule));
            Step::Answer { status, text: "", location: Some(location), rule }
        }
        Decision::Forward { rule, backend: _, endpoints, path, host } => Step::Forward(Forwarding {
            rule: Arc::clone(rule),
            endpoints: Arc::clone(endpoints),
            path,
            host: host.map(str::to_owned),
        }),
    }
}

/// Creates a response of the gateway itself.
fn own_response(status: StatusCode, text: &'static str, location: Option<String>) -> Response<body::Content> {
    let text = if text.is_empty() { String::new() } else { format!("{text}\n") };
    let mut response = Response::new(body::Content::text(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Some(location) = location.and_then(|text| header::HeaderValue::from_str(&text).ok()) {
        headers.insert(header::LOCATION, location);
    }
    response
}

/// Returns true if a request may be sent again although an endpoint may have received it (RFC 9110 §9.2.2).
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}
