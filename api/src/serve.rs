//! Connections: accepted up to a limit, closed in order.

mod neighbours;
mod opening;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use self::neighbours::CONNECTIONS_PER_ADDRESS_MAX;
use self::{neighbours::Neighbours, opening::Opening};
use crate::caller::Peer;

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
/// Pause after the system refuses a connection, so that running out of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` is cancelled, then lets open requests end.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
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
        let router = router.clone();
        let peer = stream.peer_addr().ok().map(|peer| Peer(peer.ip().to_canonical()));
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            router.clone().oneshot(request)
        });
        let connection =
            builder.serve_connection_with_upgrades(TokioIo::new(Opening::new(stream, HEAD_TIMEOUT)), service);
        let connection = connection.into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection ended early");
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
