//! Forwarding of requests to endpoints, with further attempts at other endpoints.

use std::{net::SocketAddr, sync::Arc};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, uri::PathAndQuery,
};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::{io::copy_bidirectional, time::timeout};

use super::{
    Forwarding, Proxy,
    body::{AccessRecord, Content, RequestBody},
    filters,
    head::{RequestOrigin, is_websocket, remove_hop_headers, set_forwarded},
    is_idempotent,
};
use crate::{
    gate::ConnectionState,
    upstream::{EndpointUse, SendError},
};

/// Maximum number of attempts for one request.
const ATTEMPTS_MAX: usize = 3;

/// Reason for which no endpoint answered a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum ForwardFailure {
    /// No endpoint is in service.
    NoEndpoint,
    /// The new path or an endpoint forms no valid address.
    InvalidTarget,
    /// The connection to the endpoint failed, or the response is malformed.
    Upstream,
    /// The endpoint did not begin its response in time.
    Timeout,
}

impl ForwardFailure {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::NoEndpoint => StatusCode::SERVICE_UNAVAILABLE,
            Self::InvalidTarget => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Upstream => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NoEndpoint => "the backend has no endpoint in service",
            Self::InvalidTarget => "the route leads to an invalid path",
            Self::Upstream => "the backend did not answer",
            Self::Timeout => "the backend did not answer in time",
        }
    }
}

/// Request in the form in which each attempt sends it.
struct Outgoing {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    body: RequestBody,
}

impl Outgoing {
    fn request(&self, endpoint: SocketAddr) -> Result<Request<RequestBody>, ForwardFailure> {
        let uri = Uri::builder().scheme("http").authority(endpoint.to_string());
        let uri = uri.path_and_query(self.path.clone()).build();
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.map_err(|_| ForwardFailure::InvalidTarget)?;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

impl Proxy {
    /// Forwards a request to an endpoint, and returns its response.
    ///
    /// # Errors
    /// Returns the reason if no endpoint answers.
    pub(super) async fn forward(
        &self,
        connection: &Arc<ConnectionState>,
        mut request: Request<Incoming>,
        forwarding: Forwarding,
        record: &mut AccessRecord,
    ) -> Result<Response<Content>, ForwardFailure> {
        let client = is_websocket(&request).then(|| hyper::upgrade::on(&mut request));
        let outgoing = self.outgoing(connection, request, &forwarding, client.is_some())?;
        let (response, endpoint) = self.attempt(&outgoing, &forwarding, record).await?;
        self.relay(connection, response, endpoint, client)
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
        if let Some(modifier) = &forwarding.rule.request_headers {
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
        Ok(Outgoing { method: parts.method, path, headers, body })
    }

    /// Sends a request to one endpoint after another, until one answers. An endpoint that may have received the request
    /// is the last one, unless the method is idempotent; so is one that has received a part of the body.
    async fn attempt(
        &self,
        outgoing: &Outgoing,
        forwarding: &Forwarding,
        record: &mut AccessRecord,
    ) -> Result<(Response<Incoming>, EndpointUse), ForwardFailure> {
        let mut tried = Vec::new();
        loop {
            let endpoint = self.upstream.choose(&forwarding.endpoints, &tried);
            let endpoint = endpoint.ok_or(ForwardFailure::NoEndpoint)?;
            record.endpoint = Some(endpoint.address());
            tried.push(endpoint.address());
            let request = outgoing.request(endpoint.address())?;
            let sent = timeout(self.options.response_timeout, self.upstream.send(request, &endpoint)).await;
            let (failure, may_repeat) = match sent {
                Ok(Ok(response)) => return Ok((response, endpoint)),
                Ok(Err(SendError::Connect(error))) => {
                    tracing::debug!(endpoint = %endpoint.address(), error, "no connection to an endpoint");
                    (ForwardFailure::Upstream, true)
                }
                Ok(Err(SendError::Exchange(error))) => {
                    tracing::debug!(endpoint = %endpoint.address(), error, "no response of an endpoint");
                    (ForwardFailure::Upstream, is_idempotent(&outgoing.method))
                }
                Err(_elapsed) => (ForwardFailure::Timeout, false),
            };
            self.metrics.upstream_failures.inc();
            if !may_repeat || outgoing.body.is_begun() || tried.len() >= ATTEMPTS_MAX {
                return Err(failure);
            }
            self.metrics.retries.inc();
        }
    }

    /// Converts the response of an endpoint to that for the client.
    fn relay(
        &self,
        connection: &Arc<ConnectionState>,
        mut response: Response<Incoming>,
        endpoint: EndpointUse,
        client: Option<OnUpgrade>,
    ) -> Result<Response<Content>, ForwardFailure> {
        let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let upgraded = is_switched.then(|| hyper::upgrade::on(&mut response));
        let (mut parts, body) = response.into_parts();
        remove_hop_headers(&mut parts.headers);
        parts.version = Version::HTTP_11;
        let Some(upgraded) = upgraded else {
            let content = Content::relayed(body, self.options.idle, endpoint);
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
