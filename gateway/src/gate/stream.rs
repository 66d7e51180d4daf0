//! Connection of a client, whose bytes pass the gate before the HTTP server reads them.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use model::primitives::quantity::Port;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::CancellationToken;

use super::machine::{GatePhase, PREFACE, RequestGate};
use crate::metrics::{ConnectionEnd, Metrics};

/// Number of bytes that are read at once.
const READ_BYTES: usize = 8 * 1024;
/// Capacity in bytes that a connection keeps while it waits for a request. Most heads are shorter.
const KEPT_BYTES: usize = 512;

/// Version of HTTP that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    /// HTTP/1.0 or HTTP/1.1, or bytes that are no request.
    Http1,
    /// HTTP/2, with or without TLS.
    Http2,
}

/// Limits of the time of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GateTimes {
    /// Maximum time from the first byte of a head to its end.
    pub(crate) head: Duration,
    /// Maximum time without a request.
    pub(crate) idle: Duration,
}

/// Properties of a connection that its requests share.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Address of the client.
    pub(crate) peer: IpAddr,
    /// Port of the listener.
    pub(crate) port: Port,
    /// Server name of the TLS connection in lower case, which is empty if the client sent none; `None` without TLS.
    pub(crate) server_name: Option<String>,
    /// Cancelled when the client is to open another connection for its next request.
    pub(crate) leaving: CancellationToken,
    is_tunnel: AtomicBool,
    requests: AtomicUsize,
}

/// Request that is in progress on a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<ConnectionState>);

impl ConnectionState {
    pub(crate) const fn new(
        peer: IpAddr,
        port: Port,
        server_name: Option<String>,
        leaving: CancellationToken,
    ) -> Self {
        let (is_tunnel, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { peer, port, server_name, leaving, is_tunnel, requests }
    }

    /// Notes that the bytes after the response belong to another protocol.
    pub(crate) fn switch(&self) {
        self.is_tunnel.store(true, Ordering::Release);
    }

    /// Notes a request, which keeps the connection open.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        OpenRequest(Arc::clone(self))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connection behind the gate.
pub(crate) struct GateStream<S> {
    inner: S,
    gate: RequestGate,
    /// Bytes to hand over, and the number of those that were.
    ready: (Vec<u8>, usize),
    deadline: Pin<Box<Sleep>>,
    times: GateTimes,
    connection: Arc<ConnectionState>,
    metrics: Arc<Metrics>,
}

impl<S> GateStream<S> {
    pub(crate) fn new(
        inner: S,
        connection: Arc<ConnectionState>,
        times: GateTimes,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            inner,
            gate: RequestGate::new(),
            ready: (Vec::new(), 0),
            deadline: Box::pin(sleep(times.idle)),
            times,
            connection,
            metrics,
        }
    }

    /// Hands over bytes that passed the gate. Returns false if there are none.
    fn hand_over(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let (bytes, from) = &mut self.ready;
        let rest = bytes.get(*from..).unwrap_or_default();
        let part = rest.get(..rest.len().min(buffer.remaining())).unwrap_or_default();
        buffer.put_slice(part);
        *from += part.len();
        let has_bytes = !part.is_empty();
        if *from == bytes.len() {
            bytes.clear();
            *from = 0;
            if self.gate.phase() == GatePhase::Idle {
                bytes.shrink_to(KEPT_BYTES);
                self.gate.shrink_to(KEPT_BYTES);
            }
        }
        has_bytes
    }

    fn set_deadline(&mut self, before: GatePhase) {
        let time = match self.gate.phase() {
            GatePhase::Idle => self.times.idle,
            GatePhase::Head if before != GatePhase::Head => self.times.head,
            GatePhase::Head | GatePhase::Body => return,
        };
        self.deadline.as_mut().reset(Instant::now() + time);
    }

    /// Ends the connection if the client takes too long for a head. The time for a body is limited elsewhere.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let phase = self.gate.phase();
        loop {
            if phase == GatePhase::Body || self.deadline.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if phase == GatePhase::Head {
                self.metrics.end(ConnectionEnd::SlowHead);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if self.connection.requests.load(Ordering::Relaxed) == 0 {
                return Poll::Ready(Ok(()));
            }
            self.deadline.as_mut().reset(Instant::now() + self.times.idle);
        }
    }
}

impl<S: AsyncRead + Unpin> GateStream<S> {
    /// Waits for the first request, and returns the version of HTTP that the client speaks. Returns `None` if the
    /// client sent nothing.
    ///
    /// # Errors
    /// Returns the error that ended the connection.
    pub(crate) async fn version(&mut self) -> io::Result<Option<HttpVersion>> {
        poll_fn(|cx| {
            loop {
                let (bytes, _) = &self.ready;
                if !bytes.is_empty() || self.gate.is_refused() {
                    let is_http2 = bytes.starts_with(PREFACE);
                    let version = if is_http2 { HttpVersion::Http2 } else { HttpVersion::Http1 };
                    return Poll::Ready(Ok(Some(version)));
                }
                if ready!(self.poll_more(cx))? == 0 {
                    return Poll::Ready(Ok(None));
                }
            }
        })
        .await
    }

    /// Passes further bytes of the client through the gate, and returns their number, which is 0 at the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // On the stack, because thousands of connections wait here for their next request.
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space);
        match Pin::new(&mut self.inner).poll_read(cx, &mut read) {
            Poll::Pending => return self.poll_deadline(cx).map_ok(|()| 0),
            Poll::Ready(outcome) => outcome?,
        }
        let bytes = read.filled();
        if !bytes.is_empty() {
            let before = self.gate.phase();
            self.gate.accept(bytes, &mut self.ready.0);
            if self.gate.is_refused() {
                self.metrics.end(ConnectionEnd::Malformed);
            }
            self.set_deadline(before);
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GateStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.gate.is_passing() && this.connection.is_tunnel.load(Ordering::Acquire) {
                this.gate.pass(&mut this.ready.0);
            }
            if this.hand_over(buffer) || this.gate.is_refused() {
                return Poll::Ready(Ok(()));
            }
            if this.gate.is_passing() {
                return Pin::new(&mut this.inner).poll_read(cx, buffer);
            }
            if ready!(this.poll_more(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GateStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
