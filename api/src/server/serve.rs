//! Connections: accepted up to a limit, closed in order.

mod neighbours;
mod opening;

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
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use self::neighbours::CONNECTIONS_PER_ADDRESS_MAX;
use self::{neighbours::Neighbours, opening::Opening};
use crate::{security::certificates::Proven, server::tls::Tls, write::caller::Peer};

/// Connections at once: feeds, watches and their reports, with room for people.
const CONNECTIONS_MAX: usize = 8192;
/// Time a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Requests at once on one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 256;
/// Bytes of the headers of a request of HTTP/2, unpacked: as many as of one of HTTP/1.
const H2_HEADERS_BYTES_MAX: u32 = 64 * 1024;
/// Requests of HTTP/2 that a client may take back before the server has looked at them (CVE-2023-44487), and those that it may
/// make the server take back by breaking the protocol. Ordinary clients take back one now and then.
const H2_RESETS_MAX: usize = 20;
/// Silence after which a connection of HTTP/2 is asked whether somebody is there, and time to answer.
const H2_PING: Duration = Duration::from_secs(30);
/// Time that open requests get after the signal to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// Time that a client may take for the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first byte of every TLS connection: a record of the handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 22;
/// What is said to a client that speaks HTTP without TLS.
const NO_TLS: &str = "this port speaks TLS; use https://\n";
/// Time that such a client gets to take the answer.
const NO_TLS_LINGER: Duration = Duration::from_secs(1);
/// Bytes of its request that are read, so that the answer is not lost by a reset.
const NO_TLS_BYTES_MAX: u64 = 64 * 1024;
/// Connections that the kernel may hold until they are accepted: when a thousand agents come back at once, with two connections each,
/// what finds no room there tries again after one second, then after three, and so on. The kernel has a limit of its own
/// (`net.core.somaxconn`, 4,096 by default).
const BACKLOG: u32 = 8192;
/// Pause after the system refuses a connection, so that running out of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens at an address.
///
/// # Errors
/// Somebody else does, or the address is not one of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that starts again finds connections of the one before it that have ended and are not forgotten yet.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop` is cancelled, then lets open requests end. Without `tls`, in plain text.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<Arc<Tls>>, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS_MAX);
    builder.http2().max_header_list_size(H2_HEADERS_BYTES_MAX);
    builder.http2().max_pending_accept_reset_streams(H2_RESETS_MAX);
    builder.http2().max_local_error_reset_streams(H2_RESETS_MAX);
    builder.http2().keep_alive_interval(H2_PING).keep_alive_timeout(H2_PING);
    let neighbours = Neighbours::default();
    while let Some((stream, slot)) = accept(&listener, &slots, &stop).await {
        let Some(place) = enter(&neighbours, &stream) else { continue };
        let peer = stream.peer_addr().ok().map(|peer| Peer(peer.ip().to_canonical()));
        let (builder, router) = (builder.clone(), router.clone());
        let connection = Connection { builder, router, peer, watcher: graceful.watcher() };
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
        tracing::warn!("some requests did not end in time");
    }
}

/// Counts a connection among those of its address; `None` when it is one too many, or gone already.
fn enter(neighbours: &Neighbours, stream: &TcpStream) -> Option<neighbours::Place> {
    let address: IpAddr = stream.peer_addr().ok()?.ip();
    let place = neighbours.enter(address);
    if place.is_none() {
        tracing::debug!(%address, "a connection was closed: its address has too many");
    }
    place
}

/// What a connection needs once it is there.
struct Connection {
    builder: Builder<TokioExecutor>,
    router: Router,
    peer: Option<Peer>,
    watcher: Watcher,
}

impl Connection {
    /// Does the handshake, in its own time: nobody else waits for it.
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
            Some(Ok(Ok(None))) => tracing::debug!(?peer, "a connection came without TLS"),
            Some(Ok(Err(error))) => tracing::debug!(?peer, %error, "a handshake failed"),
            Some(Err(_)) => tracing::debug!(?peer, "a handshake took too long"),
            None => {}
        }
    }

    /// Serves the requests of a connection, as long as the certificate that it has shown counts.
    async fn hold<S>(self, stream: S, proven: Option<Proven>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { builder, router, peer, watcher } = self;
        let shown = proven.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            if let Some((proven, certificate)) =
                shown.as_ref().and_then(|proven| Some((proven, proven.current()?)))
            {
                request.extensions_mut().insert(certificate.clone());
                request.extensions_mut().insert(proven.clone());
            }
            router.clone().oneshot(request)
        });
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(Opening::new(stream, HEAD_TIMEOUT)), service)
            .into_owned();
        let ended = async {
            match &proven {
                Some(proven) => proven.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = watcher.watch(connection) => if let Err(error) = outcome {
                tracing::debug!(error, "a connection ended early");
            },
            () = ended => tracing::debug!(?peer, "a connection was cut: its certificate does not count any longer"),
        }
    }
}

/// Says to a client that speaks HTTP without TLS what is wrong; whatever else it speaks, it is not answered.
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
    // Who does not close in time is closed.
    let _closed = tokio::time::timeout(NO_TLS_LINGER, tokio::io::copy(&mut rest, &mut nowhere)).await;
    Ok(())
}

/// Waits for a free slot, then for a connection; `None` when it is time to stop.
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
                // Answers and frames are written whole; waiting for more would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY was not set");
                }
                return Some((stream, slot));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody accepts; the kernel takes as many as come when a few hundred agents come back at once.
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
