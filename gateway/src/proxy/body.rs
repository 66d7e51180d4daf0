//! Bodies of requests and responses, with their limits and records.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use model::http::RuleId;
use tokio::time::{Sleep, sleep};

use super::Proxy;
use crate::{
    gate::{ConnectionState, OpenRequest},
    metrics::Metrics,
    upstream::EndpointUse,
};

/// Error of a body.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// Body that ends with an error if it makes no progress for too long.
pub(crate) struct IdleBody {
    inner: Incoming,
    idle: Duration,
    /// End of the wait for the next part, if there is one. The time in which nobody reads the body does not count.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl IdleBody {
    pub(super) fn new(inner: Incoming, idle: Duration) -> Self {
        Self { inner, idle, deadline: None }
    }
}

impl Body for IdleBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.deadline = None;
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(this.idle)));
                ready!(deadline.as_mut().poll(cx));
                Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Body of a request, which can be sent again as long as no attempt has read a part of it.
#[derive(Clone)]
pub(crate) struct RequestBody(Arc<SharedBody>);

struct SharedBody {
    inner: Mutex<IdleBody>,
    is_begun: AtomicBool,
}

impl RequestBody {
    pub(super) fn new(inner: Incoming, idle: Duration) -> Self {
        let inner = Mutex::new(IdleBody::new(inner, idle));
        Self(Arc::new(SharedBody { inner, is_begun: AtomicBool::new(false) }))
    }

    /// Returns true if an attempt has read a part of the body.
    pub(super) fn is_begun(&self) -> bool {
        self.0.is_begun.load(Ordering::Relaxed)
    }

    fn with<T>(&self, work: impl FnOnce(&mut IdleBody) -> T) -> T {
        work(&mut self.0.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.with(|inner| Pin::new(inner).poll_frame(cx));
        if polled.is_ready() {
            self.0.is_begun.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.with(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|inner| inner.size_hint())
    }
}

/// Bytes of a response.
pub(crate) enum Content {
    /// Text of the gateway.
    Text(Full<Bytes>),
    /// Body of an endpoint, which counts as its request until the end.
    Relayed { inner: IdleBody, _endpoint: EndpointUse },
}

impl Content {
    pub(super) fn text(text: String) -> Self {
        Self::Text(Full::new(text.into()))
    }

    pub(super) fn relayed(inner: Incoming, idle: Duration, endpoint: EndpointUse) -> Self {
        Self::Relayed { inner: IdleBody::new(inner, idle), _endpoint: endpoint }
    }
}

/// Body of a response, at the end of which the request is recorded.
pub(crate) struct ResponseBody {
    content: Content,
    record: AccessRecord,
}

impl ResponseBody {
    pub(super) const fn new(content: Content, record: AccessRecord) -> Self {
        Self { content, record }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = match &mut this.content {
            Content::Text(text) => Pin::new(text).poll_frame(cx).map_err(|never| match never {}),
            Content::Relayed { inner, .. } => Pin::new(inner).poll_frame(cx),
        };
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                this.record.bytes += frame.data_ref().map_or(0, |data| data.len());
            }
            Poll::Ready(Some(Err(_))) => this.record.is_cut = true,
            Poll::Ready(None) | Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.is_end_stream(),
            Content::Relayed { inner, .. } => inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Text(text) => text.size_hint(),
            Content::Relayed { inner, .. } => inner.size_hint(),
        }
    }
}

/// Record of a request, which is counted and logged when it is dropped at the end of the response.
pub(crate) struct AccessRecord {
    metrics: Arc<Metrics>,
    is_logged: bool,
    start: std::time::Instant,
    _open: OpenRequest,
    peer: std::net::IpAddr,
    method: http::Method,
    uri: http::Uri,
    host: Option<http::HeaderValue>,
    route: String,
    /// Endpoint that answered, if any.
    pub(super) endpoint: Option<std::net::SocketAddr>,
    /// Status code of the response.
    pub(super) status: u16,
    bytes: usize,
    is_cut: bool,
}

impl AccessRecord {
    pub(super) fn new<B>(proxy: &Proxy, connection: &Arc<ConnectionState>, request: &Request<B>) -> Self {
        Self {
            metrics: Arc::clone(&proxy.metrics),
            is_logged: proxy.options.access_log,
            start: std::time::Instant::now(),
            _open: connection.begin(),
            peer: connection.peer,
            method: request.method().clone(),
            uri: request.uri().clone(),
            host: request.headers().get(http::header::HOST).cloned(),
            route: String::new(),
            endpoint: None,
            // Code of nginx for a client that closed the connection before there was a response.
            status: 499,
            bytes: 0,
            is_cut: false,
        }
    }

    pub(super) fn set_route(&mut self, rule: &RuleId) {
        self.route = rule.to_string();
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        let Self {
            metrics,
            is_logged,
            start,
            _open: _,
            peer,
            method,
            uri,
            host,
            route,
            endpoint,
            status,
            bytes,
            is_cut,
        } = self;
        let duration = start.elapsed();
        metrics.count(route, *status, duration);
        if *is_logged {
            let host = host.as_ref().and_then(|host| host.to_str().ok()).or_else(|| uri.host());
            let endpoint = endpoint.map(tracing::field::display);
            tracing::info!(
                target: "access", client = %peer, %method, host, path = uri.path(), status, route, endpoint, bytes,
                duration_ms = duration.as_secs_f64() * 1000.0, is_cut, "request"
            );
        }
    }
}
