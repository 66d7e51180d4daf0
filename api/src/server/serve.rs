//! Acceptance of connections up to a limit, TLS handshakes, and graceful shutdown.

mod neighbours;
mod opening;
mod socket;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto::Builder,
        graceful::{GracefulShutdown, Watcher},
    },
};
use nix::sys::socket::{
    setsockopt,
    sockopt::{SndBuf, TcpUserTimeout},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use self::{
    neighbours::CONNECTIONS_PER_ADDRESS_MAX,
    socket::{listen_socket, passed_socket},
};
use self::{neighbours::Neighbours, opening::Opening};
use crate::{
    context::server_state::ServerState,
    http::{response_progress::ConnectionProgress, routes::service},
    security::{EndedCertificate, LocalClient, caller::Peer, certificates::ConnectionCertificate},
    server::tls::Tls,
};

/// Maximum number of open connections. The agents' state streams, watches and reports need fewer, so that
/// users can still connect.
const CONNECTIONS_MAX: usize = 8192;
/// Maximum number of open connections of the Unix socket.
const SOCKET_CONNECTIONS_MAX: usize = 256;
/// Maximum time for the head of an HTTP request to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a request head in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of concurrent requests (streams) on one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 256;
/// Maximum size in bytes of the decoded headers of an HTTP/2 request; the same as for HTTP/1.
const H2_HEADERS_BYTES_MAX: u32 = 64 * 1024;
/// Maximum number of HTTP/2 streams that a client may reset before the server has processed them (CVE-2023-44487),
/// and of those that the server resets because of protocol violations. Ordinary clients rarely reset streams.
const H2_RESETS_MAX: usize = 20;
/// Idle time after which the server sends an HTTP/2 ping, and maximum time for the client to acknowledge it.
const H2_PING: Duration = Duration::from_secs(30);
/// Maximum time for open requests to finish after the server receives the stop signal.
const DRAIN: Duration = Duration::from_secs(10);
/// Maximum duration of the TLS handshake of a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// First byte of every TLS connection: the type of a handshake record (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 22;
/// Response to a client that uses HTTP without TLS.
const NO_TLS: &str = "this port requires TLS; use https://\n";
/// Time for which a plain HTTP connection to the TLS port stays open after the error response, so that the client
/// can read it.
const NO_TLS_LINGER: Duration = Duration::from_secs(1);
/// Maximum number of bytes read from a plain HTTP connection to the TLS port. Closing the connection while
/// bytes are unread would reset it and discard the error response.
const NO_TLS_BYTES_MAX: u64 = 64 * 1024;
/// Number of connections that the kernel queues until the server accepts them. When a thousand agents reconnect at
/// once with two connections each, those beyond the backlog are retried after one second, then three, and so on.
/// The kernel applies its own limit as well (`net.core.somaxconn`, 4,096 by default).
const BACKLOG: u32 = 8192;
/// Size of the send buffer of a connection in bytes, of which the kernel reserves the double. Without it, the
/// kernel would buffer several mebibytes for each client that does not read. At a round-trip time of 100 ms, a
/// connection still transmits 2.5 MB/s.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Pause after an error of `accept`, so that the loop does not consume all CPU time while no file descriptor
/// is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Opens a TCP listener at an address.
///
/// # Errors
/// Returns an error if the address is in use or does not belong to this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Allows a restart while connections of the previous process are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves requests until `stop` is cancelled, then waits for open requests to finish. Without `tls`, serves plain
/// HTTP.
pub async fn serve(
    listener: TcpListener,
    app: Arc<ServerState>,
    tls: Option<Arc<Tls>>,
    stop: CancellationToken,
) {
    let router = service(Arc::clone(&app));
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let builder = builder();
    let neighbours = Neighbours::default();
    while let Some((stream, slot)) = accept(&listener, &slots, &stop).await {
        let Some(place) = enter(&neighbours, &stream) else { continue };
        limit_socket(&stream, app.settings.responses.write_timeout);
        let peer = stream.peer_addr().ok().map(|peer| Peer(peer.ip().to_canonical()));
        let (builder, router) = (builder.clone(), router.clone());
        let (app, watcher) = (Arc::clone(&app), graceful.watcher());
        let connection = Connection { app, builder, router, peer, is_local: false, watcher };
        let (tls, stop) = (tls.clone(), stop.clone());
        tokio::spawn(async move {
            match tls {
                None => connection.hold(stream, None).await,
                Some(tls) => connection.hold_encrypted(stream, &tls, &stop).await,
            }
            drop((slot, place));
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time");
    }
}

/// Serves requests on a Unix socket until `stop` is cancelled, then waits for open requests to finish. Its clients
/// need no credentials.
pub async fn serve_socket(listener: UnixListener, app: Arc<ServerState>, stop: CancellationToken) {
    let router = service(Arc::clone(&app));
    let (graceful, builder) = (GracefulShutdown::new(), builder());
    let slots = Arc::new(Semaphore::new(SOCKET_CONNECTIONS_MAX));
    let next = async || {
        let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
        Some((listener.accept().await, slot))
    };
    while let Some(Some((accepted, slot))) = stop.run_until_cancelled(next()).await {
        let (app, builder, router, watcher) =
            (Arc::clone(&app), builder.clone(), router.clone(), graceful.watcher());
        match accepted {
            Ok((stream, _)) => {
                let connection = Connection { app, builder, router, peer: None, is_local: true, watcher };
                tokio::spawn(async move {
                    connection.hold(stream, None).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of the socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests of the socket did not finish in time");
    }
}

/// Returns the HTTP settings of every connection.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS_MAX);
    builder.http2().max_header_list_size(H2_HEADERS_BYTES_MAX);
    builder.http2().max_pending_accept_reset_streams(H2_RESETS_MAX);
    builder.http2().max_local_error_reset_streams(H2_RESETS_MAX);
    builder.http2().keep_alive_interval(H2_PING).keep_alive_timeout(H2_PING);
    builder
}

/// Counts a new connection for its client address. Returns `None` if the address has reached its limit or the
/// connection is already closed.
fn enter(neighbours: &Neighbours, stream: &TcpStream) -> Option<neighbours::ConnectionSlot> {
    let address: IpAddr = stream.peer_addr().ok()?.ip();
    let place = neighbours.enter(address);
    if place.is_none() {
        tracing::debug!(%address, "closed a connection: its address has too many");
    }
    place
}

/// Limits the memory of the kernel for a client that does not read, and the time for which the kernel keeps bytes
/// that such a client does not accept.
fn limit_socket(stream: &TcpStream, write_timeout: Duration) {
    // Later than the timeout of the server, which is counted.
    let timeout_ms = u32::try_from(2 * write_timeout.as_millis()).unwrap_or(u32::MAX);
    let limited = setsockopt(stream, SndBuf, &SEND_BUFFER_BYTES)
        .and_then(|()| setsockopt(stream, TcpUserTimeout, &timeout_ms));
    if let Err(error) = limited {
        tracing::debug!(%error, "the limits of a socket were not set");
    }
}

/// State that the task of a connection needs.
struct Connection {
    app: Arc<ServerState>,
    builder: Builder<TokioExecutor>,
    router: Router,
    peer: Option<Peer>,
    /// True for a connection of the Unix socket.
    is_local: bool,
    watcher: Watcher,
}

impl Connection {
    /// Performs the TLS handshake in the connection's own task, so that a slow client does not delay others, and
    /// serves the connection.
    async fn hold_encrypted(self, stream: TcpStream, tls: &Tls, stop: &CancellationToken) {
        let peer = self.peer;
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
            let mut first = [0];
            stream.peek(&mut first).await?;
            if first[0] != TLS_HANDSHAKE {
                return answer_unencrypted(stream).await.map(|()| None);
            }
            tls.accept(stream).await.map(Some)
        });
        match stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(Some((stream, proven))))) => self.hold(stream, proven).await,
            Some(Ok(Ok(None))) => tracing::debug!(?peer, "a client connected without TLS"),
            Some(Ok(Err(error))) => tracing::debug!(?peer, %error, "a handshake failed"),
            Some(Err(_)) => tracing::debug!(?peer, "a TLS handshake timed out"),
            None => {}
        }
    }

    /// Serves the requests of a connection until it ends, the client stops reading a response, or its client
    /// certificate is no longer valid. Requests with a certificate that was revoked before get a response with the reason.
    async fn hold<S>(self, stream: S, proven: Option<ConnectionCertificate>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { app, builder, router, peer, is_local, watcher } = self;
        let shown = proven.clone();
        let progress = Arc::new(ConnectionProgress::default());
        let responses = Arc::clone(&progress);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            if let Some(proven) = &shown {
                match proven.current() {
                    Some(certificate) => {
                        request.extensions_mut().insert(certificate.clone());
                        request.extensions_mut().insert(proven.clone());
                    }
                    None => drop(request.extensions_mut().insert(EndedCertificate)),
                }
            }
            if is_local {
                request.extensions_mut().insert(LocalClient);
            }
            request.extensions_mut().insert(Arc::clone(&responses));
            router.clone().oneshot(request)
        });
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(Opening::new(stream, HEAD_TIMEOUT)), service)
            .into_owned();
        let current = proven.filter(|proven| proven.current().is_some());
        let ended = async {
            match &current {
                Some(proven) => proven.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = watcher.watch(connection) => if let Err(error) = outcome {
                tracing::debug!(error, "a connection ended early");
            },
            () = progress.stalled(app.settings.responses.write_timeout) => {
                app.metrics.stalled_connections.inc();
                tracing::debug!(?peer, "closed a connection: the client does not read a response");
            }
            () = ended => tracing::debug!(?peer, "closed a connection: its certificate is no longer valid"),
        }
    }
}

/// Responds to a client that sends plain HTTP to the TLS port. Other protocols get no response.
async fn answer_unencrypted(mut stream: TcpStream) -> io::Result<()> {
    let mut first = [0];
    if stream.read(&mut first).await? == 0 || !first[0].is_ascii_uppercase() {
        return Ok(());
    }
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{NO_TLS}", NO_TLS.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let rest = stream.take(NO_TLS_BYTES_MAX);
    let (mut rest, mut nowhere) = (rest, tokio::io::sink());
    // Close after the timeout even if the client keeps the connection open.
    let _closed = tokio::time::timeout(NO_TLS_LINGER, tokio::io::copy(&mut rest, &mut nowhere)).await;
    Ok(())
}

/// Waits until the number of connections is below the limit, then accepts one. Returns `None` when the server
/// stops.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let slot = tokio::select! {
        biased;
        () = stop.cancelled() => return None,
        slot = Arc::clone(slots).acquire_owned() => slot.ok()?,
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Responses and frames are written as a whole; Nagle's algorithm would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY was not set");
                }
                return Some((stream, slot));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel queues several hundred connections although the server accepts none.
    #[tokio::test]
    async fn hundreds_of_connections_wait_until_they_are_accepted() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for _ in 0..400 {
            let connected = tokio::time::timeout(Duration::from_secs(20), TcpStream::connect(address)).await;
            waiting.push(connected.expect("there is room").unwrap());
        }
    }
}
