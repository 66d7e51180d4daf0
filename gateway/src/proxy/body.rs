//! Bodies of requests and responses, with their limits and records.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use model::http::RuleId;
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep, sleep_until},
};

use super::Proxy;
use crate::{
    gate::{ConnectionState, OpenRequest},
    metrics::Metrics,
    upstream::EndpointUse,
};

/// Error of a body.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// Maximum size of a body of which mirrors receive a copy, in bytes.
const COPY_BYTES_MAX: usize = 1024 * 1024;

/// Body that ends with an error if it makes no progress for too long, or takes too long as a whole.
pub(crate) struct IdleBody {
    inner: Incoming,
    idle: Duration,
    /// Latest end of the body, if it has one.
    end: Option<Pin<Box<Sleep>>>,
    /// End of the wait for the next part, if there is one. The time in which nobody reads the body does not count.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl IdleBody {
    pub(super) fn new(inner: Incoming, idle: Duration, end: Option<Instant>) -> Self {
        Self { inner, idle, end: end.map(|end| Box::pin(sleep_until(end))), deadline: None }
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
        let timed_out = || Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())));
        if this.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            return timed_out();
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.deadline = None;
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(this.idle)));
                ready!(deadline.as_mut().poll(cx));
                timed_out()
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
pub(crate) struct RequestBody(BodySource);

#[derive(Clone)]
enum BodySource {
    /// Body of a client.
    Client(Arc<SharedBody>),
    /// Copy of a body for a mirror.
    Copy(Full<Bytes>),
}

struct SharedBody {
    inner: Mutex<CopiedBody>,
    is_begun: AtomicBool,
}

/// Failure of a client to send the body of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFailure {
    /// The body is malformed, or it is cut off.
    Malformed,
    /// The client made no progress for too long.
    Timeout,
}

/// Body of a client, and the copy of its parts for mirrors.
struct CopiedBody {
    body: IdleBody,
    copy: Option<BodyCopy>,
    /// Time at which the last part was read, or that of the request.
    read_at: Instant,
    failure: Option<BodyFailure>,
}

struct BodyCopy {
    bytes: BytesMut,
    receivers: Vec<oneshot::Sender<Bytes>>,
}

impl CopiedBody {
    /// Adds a part to the copy. A body that is too large has no copy.
    fn extend(&mut self, part: &Bytes) {
        if let Some(copy) = &mut self.copy {
            copy.bytes.extend_from_slice(part);
            if copy.bytes.len() > COPY_BYTES_MAX {
                self.copy = None;
            }
        }
    }

    /// Sends the copy if the body has ended.
    fn finish(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        let bytes = copy.bytes.freeze();
        for receiver in copy.receivers {
            // A receiver that has ended needs no copy.
            let _ = receiver.send(bytes.clone());
        }
    }
}

impl RequestBody {
    pub(super) fn new(inner: Incoming, idle: Duration) -> Self {
        let body = IdleBody::new(inner, idle, None);
        let inner = Mutex::new(CopiedBody { body, copy: None, read_at: Instant::now(), failure: None });
        Self(BodySource::Client(Arc::new(SharedBody { inner, is_begun: AtomicBool::new(false) })))
    }

    pub(super) fn of_copy(bytes: Bytes) -> Self {
        Self(BodySource::Copy(Full::new(bytes)))
    }

    /// Returns receivers of a copy of the body, which it sends at its end. They receive none if the body is too large or cut
    /// off.
    pub(super) fn copies(&self, count: usize) -> Vec<oneshot::Receiver<Bytes>> {
        let BodySource::Client(shared) = &self.0 else { return Vec::new() };
        let (receivers, copies) = (0..count).map(|_| oneshot::channel()).unzip();
        let mut inner = shared.lock();
        inner.copy = Some(BodyCopy { bytes: BytesMut::new(), receivers });
        if inner.body.is_end_stream() {
            inner.finish();
        }
        copies
    }

    /// Returns the time at which the last part was read, or that of the request if there was none yet.
    pub(super) fn read_at(&self) -> Option<Instant> {
        match &self.0 {
            BodySource::Client(shared) => Some(shared.lock().read_at),
            BodySource::Copy(_) => None,
        }
    }

    /// Returns the failure of the client, if the body did not arrive as a whole because of it.
    pub(super) fn failure(&self) -> Option<BodyFailure> {
        match &self.0 {
            BodySource::Client(shared) => shared.lock().failure,
            BodySource::Copy(_) => None,
        }
    }

    /// Returns true if an attempt has read a part of the body.
    pub(super) fn is_begun(&self) -> bool {
        match &self.0 {
            BodySource::Client(shared) => shared.is_begun.load(Ordering::Relaxed),
            BodySource::Copy(_) => false,
        }
    }
}

impl SharedBody {
    fn lock(&self) -> MutexGuard<'_, CopiedBody> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut inner = self.lock();
        let polled = ready!(Pin::new(&mut inner.body).poll_frame(cx));
        self.is_begun.store(true, Ordering::Relaxed);
        inner.read_at = Instant::now();
        match &polled {
            Some(Ok(frame)) => {
                if let Some(part) = frame.data_ref() {
                    inner.extend(part);
                }
                // Senders do not read a body after its end.
                if inner.body.is_end_stream() {
                    inner.finish();
                }
            }
            Some(Err(error)) => {
                inner.copy = None;
                let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
                let is_timeout = kind == Some(io::ErrorKind::TimedOut);
                inner.failure = Some(if is_timeout { BodyFailure::Timeout } else { BodyFailure::Malformed });
            }
            None => inner.finish(),
        }
        Poll::Ready(polled)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().0 {
            BodySource::Client(shared) => shared.poll_frame(cx),
            BodySource::Copy(bytes) => Pin::new(bytes).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Client(shared) => shared.lock().body.is_end_stream(),
            BodySource::Copy(bytes) => bytes.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Client(shared) => shared.lock().body.size_hint(),
            BodySource::Copy(bytes) => bytes.size_hint(),
        }
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

    /// Returns an empty body instead of a text of the gateway.
    pub(super) fn without_text(self) -> Self {
        match self {
            Self::Text(_) => Self::text(String::new()),
            relayed @ Self::Relayed { .. } => relayed,
        }
    }

    /// Creates the body of a response of an endpoint, which ends at `end` at the latest.
    pub(super) fn relayed(
        inner: Incoming,
        idle: Duration,
        end: Option<Instant>,
        endpoint: EndpointUse,
    ) -> Self {
        Self::Relayed { inner: IdleBody::new(inner, idle, end), _endpoint: endpoint }
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
