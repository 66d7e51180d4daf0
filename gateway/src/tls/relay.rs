//! Connections that TlsRoutes forward as bytes.
//!
//! A connection lasts until both ends have closed it: protocols such as IMAP are silent for long. The kernel finds ends that
//! have disappeared. After one end has closed it, the other one may send more, but is not waited for longer than
//! `--idle-timeout` without bytes: otherwise, a client that never closes would keep the place of its connection for ever. When the
//! process stops, connections have the time of `--drain-timeout`.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use model::http::BackendEndpoints;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::timeout,
};
use tokio_rustls::server::TlsStream;

use super::{INTERNAL_ERROR, prefixed::PrefixedStream};
use crate::{
    listen::{Front, set_options},
    metrics::ConnectionEnd,
    upstream::EndpointUse,
};

/// Maximum number of endpoints to which a connection is offered.
const ATTEMPTS_MAX: usize = 3;
/// Size of the buffer of each direction in bytes.
const BUFFER_BYTES: usize = 8 << 10;

/// Connection with the endpoints that may receive it.
pub(crate) struct ForwardedConnection {
    pub(crate) client: RelayClient,
    /// Endpoints of the chosen backend.
    pub(crate) endpoints: Arc<BackendEndpoints>,
    /// TlsRoute that applies.
    pub(crate) route: String,
}

/// Connection of a client.
pub(crate) enum RelayClient {
    /// Connection that the endpoint decrypts.
    Encrypted(PrefixedStream),
    /// Connection that the gateway decrypts.
    Decrypted(Box<TlsStream<PrefixedStream>>),
}

/// Forwards a connection to an endpoint until both ends have closed it.
pub(crate) async fn run(connection: ForwardedConnection, front: Arc<Front>, slot: OwnedSemaphorePermit) {
    let ForwardedConnection { client, endpoints, route } = connection;
    front.metrics.connections.inc();
    match (connect(&front, &endpoints).await, client) {
        (Some((stream, endpoint)), client) => {
            front.metrics.forward(&route);
            match client {
                RelayClient::Encrypted(client) => relay(client, stream, front.times.idle).await,
                RelayClient::Decrypted(client) => relay(*client, stream, front.times.idle).await,
            }
            drop(endpoint);
        }
        (None, client) => {
            front.metrics.end(ConnectionEnd::NoEndpoint);
            refuse(client).await;
        }
    }
    front.metrics.connections.dec();
    drop(slot);
}

/// Opens a connection to one of the endpoints.
async fn connect(front: &Front, endpoints: &BackendEndpoints) -> Option<(TcpStream, EndpointUse)> {
    let mut tried = Vec::new();
    let upstream = &front.proxy.upstream;
    while tried.len() < ATTEMPTS_MAX {
        let endpoint = upstream.choose(endpoints, &tried)?;
        if tried.contains(&endpoint.address()) {
            return None;
        }
        match upstream.connect(&endpoint).await {
            Ok(stream) => {
                if let Err(error) = set_options(&stream) {
                    tracing::debug!(%error, "cannot set an option of a connection");
                }
                return Some((stream, endpoint));
            }
            Err(error) => {
                front.metrics.upstream_failures.inc();
                tracing::debug!(endpoint = %endpoint.address(), %error, "no connection to an endpoint");
                tried.push(endpoint.address());
            }
        }
    }
    None
}

/// Copies both directions until both ends have closed the connection, or one has and the other one is silent for `idle`.
async fn relay(client: impl AsyncRead + AsyncWrite, endpoint: impl AsyncRead + AsyncWrite, idle: Duration) {
    let moved = AtomicU64::new(0);
    let (client_in, client_out) = split(client);
    let (endpoint_in, endpoint_out) = split(endpoint);
    let mut forth = pin!(copy(client_in, endpoint_out, &moved));
    let mut back = pin!(copy(endpoint_in, client_out, &moved));
    let outcome = tokio::select! {
        ended = &mut forth => match ended {
            Ok(()) => rest(back, &moved, idle).await,
            Err(error) => Err(error),
        },
        ended = &mut back => match ended {
            Ok(()) => rest(forth, &moved, idle).await,
            Err(error) => Err(error),
        },
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a forwarded connection ended");
    }
}

/// Copies one direction until its end, which is passed on. Counts the parts in `moved`.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let size = from.read(&mut buffer).await?;
        if size == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..size).unwrap_or_default()).await?;
        to.flush().await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for the end of the direction that is left.
///
/// # Errors
/// Returns an error if the direction fails, or if no bytes were copied for `idle`.
async fn rest(
    mut direction: Pin<&mut impl Future<Output = io::Result<()>>>,
    moved: &AtomicU64,
    idle: Duration,
) -> io::Result<()> {
    loop {
        let before = moved.load(Ordering::Relaxed);
        match timeout(idle, direction.as_mut()).await {
            Ok(outcome) => return outcome,
            Err(_) if moved.load(Ordering::Relaxed) == before => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "one end has closed it, and the other is silent",
                ));
            }
            Err(_) => {}
        }
    }
}

/// Ends a connection that no endpoint accepts. The client may have closed it.
async fn refuse(client: RelayClient) {
    match client {
        RelayClient::Encrypted(mut stream) => {
            let _ = stream.write_all(&INTERNAL_ERROR).await;
            let _ = stream.shutdown().await;
        }
        RelayClient::Decrypted(mut stream) => {
            let _ = stream.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, time::sleep};

    use super::*;

    const IDLE: Duration = Duration::from_secs(2);

    /// An end that closes the connection is passed on; the other end may go on while it sends bytes.
    #[tokio::test]
    async fn a_half_closed_connection_ends_when_the_other_end_is_silent() {
        let (mut client, client_side) = duplex(64);
        let (mut endpoint, endpoint_side) = duplex(64);
        let relay = tokio::spawn(relay(client_side, endpoint_side, IDLE));
        endpoint.write_all(b"bye").await.unwrap();
        endpoint.shutdown().await.unwrap();
        let mut received = [0; 4];
        assert_eq!(client.read(&mut received).await.unwrap(), 3);
        assert_eq!(client.read(&mut received).await.unwrap(), 0, "the end is passed on");
        for _ in 0..4 {
            sleep(IDLE / 3).await;
            client.write_all(b"more").await.unwrap();
            endpoint.read_exact(&mut received).await.unwrap();
        }
        relay.await.unwrap();
        assert_eq!(endpoint.read(&mut received).await.unwrap(), 0);
    }

    /// A connection that both ends keep is never silent for too long.
    #[tokio::test]
    async fn a_silent_connection_stays_open() {
        let (mut client, client_side) = duplex(64);
        let (mut endpoint, endpoint_side) = duplex(64);
        let relay = tokio::spawn(relay(client_side, endpoint_side, Duration::from_millis(20)));
        sleep(Duration::from_millis(200)).await;
        client.write_all(b"wake").await.unwrap();
        let mut received = [0; 4];
        endpoint.read_exact(&mut received).await.unwrap();
        drop((client, endpoint));
        relay.await.unwrap();
    }
}
