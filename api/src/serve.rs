//! Connections: accepted up to a limit, closed in order.

use std::{sync::Arc, time::Duration};

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

use crate::caller::Peer;

/// Connections at once: feeds, watches and their reports, with room for people.
const CONNECTIONS_MAX: usize = 8192;
/// Time a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Requests at once on one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 256;
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
    while let Some((stream, slot)) = accept(&listener, &slots, &stop).await {
        let router = router.clone();
        let peer = stream.peer_addr().ok().map(|peer| Peer(peer.ip().to_canonical()));
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            router.clone().oneshot(request)
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection ended early");
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
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
