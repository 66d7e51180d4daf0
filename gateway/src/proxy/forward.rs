//! Forwarding of requests to endpoints, with further attempts at other endpoints.

use std::{future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, uri::PathAndQuery,
};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use model::{
    http::BackendProtocol, kinds::http_route::RouteRetry, primitives::gateway_duration::GatewayDuration,
};
use tokio::{
    io::copy_bidirectional,
    time::{Instant, sleep, timeout_at},
};

use super::{
    Forwarding, Proxy,
    body::{AccessRecord, BodyFailure, Content, RequestBody},
    filters,
    head::{RequestOrigin, accepts_trailers, is_websocket, remove_hop_headers, set_forwarded},
    is_idempotent,
};
use crate::{
    gate::ConnectionState,
    upstream::{EndpointUse, SendError},
};

/// Maximum number of attempts for one request, unless its rule has a number.
const ATTEMPTS_MAX: usize = 3;

/// Reason for which no endpoint answered a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum ForwardFailure {
    /// No endpoint is in service.
    NoEndpoint,
    /// The new path or an endpoint forms no valid address.
    InvalidTarget,
    /// No connection to an endpoint is possible.
    Unreachable,
    /// The endpoint ended the connection without a response, or the response is malformed.
    Upstream,
    /// The endpoint did not begin its response in time.
    Timeout,
    /// The client did not send the body of its request.
    Client(BodyFailure),
}

impl ForwardFailure {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::NoEndpoint | Self::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            Self::InvalidTarget => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upstream => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Client(BodyFailure::Malformed) => StatusCode::BAD_REQUEST,
            Self::Client(BodyFailure::Timeout) => StatusCode::REQUEST_TIMEOUT,
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NoEndpoint => "the backend has no endpoint in service",
            Self::InvalidTarget => "the route leads to an invalid path",
            Self::Unreachable => "the backend accepts no connections",
            Self::Upstream => "the backend did not answer",
            Self::Timeout => "the backend did not answer in time",
            Self::Client(BodyFailure::Malformed) => "the body of the request is malformed or incomplete",
            Self::Client(BodyFailure::Timeout) => "the body of the request did not arrive in time",
        }
    }
}

/// Request in the form in which each attempt sends it.
#[derive(Clone)]
pub(super) struct Outgoing {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    /// True if the client of the request accepts trailers.
    has_trailers: bool,
    pub(super) body: RequestBody,
}

impl Outgoing {
    /// Returns the request with another body.
    pub(super) fn with_body(&self, body: RequestBody) -> Self {
        Self { body, ..self.clone() }
    }

    /// Returns the request for an endpoint in a protocol.
    pub(super) fn request(
        &self,
        endpoint: SocketAddr,
        protocol: BackendProtocol,
    ) -> Result<Request<RequestBody>, ForwardFailure> {
        let mut headers = self.headers.clone();
        let (authority, version) = match protocol {
            BackendProtocol::Http1 => (endpoint.to_string(), Version::HTTP_11),
            BackendProtocol::H2c => {
                if self.has_trailers {
                    headers.insert(header::TE, HeaderValue::from_static("trailers"));
                }
                let host = headers.remove(header::HOST);
                let host = host.and_then(|host| host.to_str().map(str::to_owned).ok());
                (host.unwrap_or_else(|| endpoint.to_string()), Version::HTTP_2)
            }
        };
        let uri = Uri::builder().scheme("http").authority(authority).path_and_query(self.path.clone());
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.build().map_err(|_| ForwardFailure::InvalidTarget)?;
        *request.version_mut() = version;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Limits of the time for a request (field `timeouts` of its rule).
struct TimeLimits {
    /// End of the request with its response.
    end: Option<Instant>,
    /// Maximum time of one attempt with its response.
    attempt: Option<Duration>,
    /// Maximum time from the last part of the request to the head of the response.
    head: Option<Duration>,
}

impl TimeLimits {
    fn new(forwarding: &Forwarding, response_timeout: Duration) -> Self {
        let timeouts = &forwarding.rule.timeouts;
        let is_default = timeouts.request.is_none() && timeouts.backend_request.is_none();
        Self {
            end: timeouts.request.and_then(GatewayDuration::limit).map(|limit| Instant::now() + limit),
            attempt: timeouts.backend_request.and_then(GatewayDuration::limit),
            head: is_default.then_some(response_timeout),
        }
    }

    /// Returns the end of an attempt that begins now, with its response.
    fn end_of_attempt(&self) -> Option<Instant> {
        let attempt = self.attempt.map(|limit| Instant::now() + limit);
        self.end.into_iter().chain(attempt).min()
    }

    /// Waits for the head of a response. The limit for it begins when the last part of the body has been read, so that a
    /// long upload that makes progress is not cut. Returns `None` at the end of the time.
    async fn wait_head<T>(
        &self,
        end: Option<Instant>,
        body: &RequestBody,
        sending: impl Future<Output = T>,
    ) -> Option<T> {
        let begun = Instant::now();
        let mut sending = pin!(sending);
        loop {
            let silent = self.head.map(|limit| body.read_at().map_or(begun, |at| at.max(begun)) + limit);
            let sent = within(end.into_iter().chain(silent).min(), sending.as_mut()).await;
            let is_over = end.is_some_and(|end| Instant::now() >= end);
            let has_progress = body.read_at() > silent.zip(self.head).map(|(until, limit)| until - limit);
            if sent.is_some() || is_over || !has_progress {
                return sent;
            }
        }
    }
}

/// Rules for the repetition of a request (field `retry` of its rule).
struct RetryRules<'a> {
    attempts_max: usize,
    /// Status codes after which a request is repeated.
    codes: &'a [u16],
    backoff: Duration,
    /// True if a request may be repeated that an endpoint may have received.
    is_idempotent: bool,
    /// True if a request is repeated after the end of the time of an attempt.
    after_timeout: bool,
}

impl<'a> RetryRules<'a> {
    fn new(retry: Option<&'a RouteRetry>, is_idempotent: bool) -> Self {
        let attempts = retry.and_then(|retry| retry.attempts).and_then(|count| usize::try_from(count).ok());
        Self {
            attempts_max: attempts.map_or(ATTEMPTS_MAX, |attempts| attempts + 1),
            codes: retry.map_or(&[], |retry| &retry.codes),
            backoff: retry.and_then(|retry| retry.backoff?.limit()).unwrap_or_default(),
            is_idempotent,
            after_timeout: retry.is_some() && is_idempotent,
        }
    }
}

/// Waits for the result of a future until `end`; `None` stands for no limit.
async fn within<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => timeout_at(end, work).await.ok(),
        None => Some(work.await),
    }
}

impl Proxy {
    /// Forwards a request to an endpoint, and returns its response.
    ///
    /// # Errors
    /// Returns the reason if no endpoint answers.
    pub(super) async fn forward(
        self: &Arc<Self>,
        connection: &Arc<ConnectionState>,
        mut request: Request<Incoming>,
        forwarding: &Forwarding,
        record: &mut AccessRecord,
    ) -> Result<Response<Content>, ForwardFailure> {
        let client = is_websocket(&request).then(|| hyper::upgrade::on(&mut request));
        let outgoing = self.outgoing(connection, request, forwarding, client.is_some())?;
        if client.is_none() {
            self.mirror(&outgoing, &forwarding.mirrors);
        }
        // No server accepts WebSocket in a request of HTTP/2 with `Upgrade`.
        let protocol = match client {
            Some(_) => BackendProtocol::Http1,
            None => forwarding.endpoints.protocol(),
        };
        let (response, endpoint, end) = self.attempt(&outgoing, forwarding, protocol, record).await?;
        self.relay(connection, response, (endpoint, end), client)
    }

    fn outgoing(
        &self,
        connection: &ConnectionState,
        request: Request<Incoming>,
        forwarding: &Forwarding,
        is_switch: bool,
    ) -> Result<Outgoing, ForwardFailure> {
        let (parts, body) = request.into_parts();
        let path = match (&forwarding.path, parts.uri.query()) {
            (None, _) => parts.uri.path_and_query().cloned().ok_or(ForwardFailure::InvalidTarget)?,
            (Some(path), None) => path.parse().map_err(|_| ForwardFailure::InvalidTarget)?,
            (Some(path), Some(query)) => {
                format!("{path}?{query}").parse().map_err(|_| ForwardFailure::InvalidTarget)?
            }
        };
        let authority = parts.uri.authority().and_then(|one| HeaderValue::from_str(one.as_str()).ok());
        let mut headers = parts.headers;
        let host = authority.or_else(|| headers.get(header::HOST).cloned());
        let has_trailers = accepts_trailers(&headers);
        remove_hop_headers(&mut headers);
        // The gateway has answered it, and an endpoint would answer once more.
        headers.remove(header::EXPECT);
        let trusted = &self.options.trusted;
        let origin = RequestOrigin {
            peer: connection.peer,
            port: connection.port.get(),
            is_tls: connection.server_name.is_some(),
            trusted,
        };
        set_forwarded(&mut headers, host.clone(), &origin);
        let all = [&forwarding.rule.filters, &forwarding.backend.filters];
        for modifier in all.into_iter().filter_map(|filters| filters.request_headers.as_ref()) {
            filters::modify(&mut headers, modifier);
        }
        let new_host = forwarding.host.as_ref().and_then(|host| HeaderValue::from_str(host).ok());
        if let Some(host) = new_host.or(host) {
            headers.insert(header::HOST, host);
        }
        if is_switch {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        let body = RequestBody::new(body, self.options.idle);
        Ok(Outgoing { method: parts.method, path, headers, has_trailers, body })
    }

    /// Sends a request to one endpoint after another, until one answers. An endpoint that may have received the request
    /// is the last one, unless the method is idempotent; so is one that has received a part of the body.
    async fn attempt(
        &self,
        outgoing: &Outgoing,
        forwarding: &Forwarding,
        protocol: BackendProtocol,
        record: &mut AccessRecord,
    ) -> Result<(Response<Incoming>, EndpointUse, Option<Instant>), ForwardFailure> {
        let mut tried = Vec::new();
        let limits = TimeLimits::new(forwarding, self.options.response_timeout);
        let retry = RetryRules::new(forwarding.rule.retry.as_ref(), is_idempotent(&outgoing.method));
        loop {
            let endpoint = self.upstream.choose(&forwarding.endpoints, &tried);
            let endpoint = endpoint.ok_or(ForwardFailure::NoEndpoint)?;
            record.endpoint = Some(endpoint.address());
            tried.push(endpoint.address());
            let request = outgoing.request(endpoint.address(), protocol)?;
            let end = limits.end_of_attempt();
            let sending = self.upstream.send(request, protocol, &endpoint);
            let sent = limits.wait_head(end, &outgoing.body, sending).await;
            let is_last = outgoing.body.is_begun() || tried.len() >= retry.attempts_max;
            let (failure, may_repeat) = match sent {
                Some(Ok(response)) if is_last || !retry.codes.contains(&response.status().as_u16()) => {
                    return Ok((response, endpoint, end));
                }
                Some(Ok(_)) => (ForwardFailure::Upstream, true),
                Some(Err(SendError::Connect(error))) => {
                    tracing::debug!(endpoint = %endpoint.address(), error, "no connection to an endpoint");
                    (ForwardFailure::Unreachable, true)
                }
                Some(Err(SendError::Exchange(_))) if let Some(failure) = outgoing.body.failure() => {
                    return Err(ForwardFailure::Client(failure));
                }
                Some(Err(SendError::Exchange(error))) => {
                    tracing::debug!(endpoint = %endpoint.address(), error, "no response of an endpoint");
                    (ForwardFailure::Upstream, retry.is_idempotent)
                }
                None => (ForwardFailure::Timeout, retry.after_timeout),
            };
            self.metrics.upstream_failures.inc();
            if !may_repeat || is_last {
                return Err(failure);
            }
            // A pause that is longer than the request may take ends it.
            let pause = within(limits.end, sleep(retry.backoff)).await;
            if pause.is_none() || limits.end.is_some_and(|end| Instant::now() >= end) {
                return Err(ForwardFailure::Timeout);
            }
            self.metrics.retries.inc();
        }
    }

    /// Converts the response of an endpoint to that for the client.
    fn relay(
        &self,
        connection: &Arc<ConnectionState>,
        mut response: Response<Incoming>,
        (endpoint, end): (EndpointUse, Option<Instant>),
        client: Option<OnUpgrade>,
    ) -> Result<Response<Content>, ForwardFailure> {
        let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let upgraded = is_switched.then(|| hyper::upgrade::on(&mut response));
        let (mut parts, body) = response.into_parts();
        remove_hop_headers(&mut parts.headers);
        parts.version = Version::HTTP_11;
        let Some(upgraded) = upgraded else {
            let content = Content::relayed(body, self.options.idle, end, endpoint);
            return Ok(Response::from_parts(parts, content));
        };
        // An endpoint must not switch to a protocol that the client did not ask for.
        let client = client.ok_or(ForwardFailure::Upstream)?;
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        connection.switch();
        let (metrics, open) = (Arc::clone(&self.metrics), connection.begin());
        tokio::spawn(async move {
            metrics.tunnels.inc();
            if let Err(error) = tunnel(client, upgraded).await {
                tracing::debug!(error, "a connection of another protocol ended");
            }
            metrics.tunnels.dec();
            drop((endpoint, open));
        });
        Ok(Response::from_parts(parts, Content::text(String::new())))
    }
}

/// Copies bytes in both directions until both ends are closed.
async fn tunnel(client: OnUpgrade, endpoint: OnUpgrade) -> Result<(), super::body::BodyError> {
    let (client, endpoint) = tokio::try_join!(client, endpoint)?;
    copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(endpoint)).await?;
    Ok(())
}
