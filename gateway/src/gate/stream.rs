//! Connection of a client, whose bytes pass the gate before the HTTP server reads them.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use model::primitives::quantity::Port;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::machine::{GatePhase, RequestGate};
use crate::metrics::{ConnectionEnd, Metrics};

/// Number of bytes that are read at once.
const READ_BYTES: usize = 8 * 1024;

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
    is_tunnel: AtomicBool,
    requests: AtomicUsize,
}

/// Request that is in progress on a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<ConnectionState>);

impl ConnectionState {
    pub(crate) const fn new(peer: IpAddr, port: Port, server_name: Option<String>) -> Self {
        Self { peer, port, server_name, is_tunnel: AtomicBool::new(false), requests: AtomicUsize::new(0) }
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
    buffer: Box<[u8]>,
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
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
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
            let mut read = ReadBuf::new(&mut this.buffer);
            match Pin::new(&mut this.inner).poll_read(cx, &mut read) {
                Poll::Pending => return this.poll_deadline(cx),
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    let before = this.gate.phase();
                    let bytes = read.filled();
                    this.gate.accept(bytes, &mut this.ready.0);
                    if this.gate.is_refused() {
                        this.metrics.end(ConnectionEnd::Malformed);
                    }
                    this.set_deadline(before);
                }
                Poll::Ready(ended) => return Poll::Ready(ended),
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
