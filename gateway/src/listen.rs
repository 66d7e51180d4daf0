//! Listening sockets at the ports of the listeners, and the connections of clients.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use model::primitives::quantity::Port;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    gate::{ConnectionState, GateStream, GateTimes, HEAD_BYTES_MAX},
    keys::Certificates,
    metrics::{ConnectionEnd, Metrics},
    proxy::Proxy,
    state::SharedState,
    tls::{self, TlsConnection},
};

/// Length of the queue of connections that have not been accepted.
const BACKLOG: i32 = 4096;
/// Delay after an error of a listening socket, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Delay before the next attempt to open sockets that could not be opened.
const BIND_PAUSE: Duration = Duration::from_secs(3);
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 100;
/// Maximum number of concurrent requests of an HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 250;
/// Maximum number of requests of an HTTP/2 connection that the client cancelled and that are still in progress.
const H2_RESETS_MAX: usize = 32;
/// Interval and timeout of the pings that find out if the client of an HTTP/2 connection is still there.
const H2_PING: Duration = Duration::from_secs(20);
/// Time of silence after which the kernel probes the other end of a connection, and interval of the probes.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Maximum time in which a client accepts no bytes of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Sockets of all listeners.
pub(crate) struct Listeners {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) states: watch::Receiver<SharedState>,
    pub(crate) front: Arc<Front>,
}

/// Parts that all connections of clients share.
pub(crate) struct Front {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) certificates: Certificates,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) times: GateTimes,
    pub(crate) connections: TaskTracker,
}

impl Listeners {
    /// Opens and closes sockets as the listeners change, until `stop` is cancelled.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut open: BTreeMap<SocketAddr, CancellationToken> = BTreeMap::new();
        let mut reported: BTreeMap<SocketAddr, io::ErrorKind> = BTreeMap::new();
        loop {
            let wanted = self.wanted();
            open.retain(|address, token| {
                let is_wanted = wanted.contains(address);
                if !is_wanted {
                    token.cancel();
                    tracing::info!(%address, "stopped listening");
                }
                is_wanted
            });
            reported.retain(|address, _| wanted.contains(address));
            for address in &wanted {
                if open.contains_key(address) {
                    continue;
                }
                match bind(*address) {
                    Ok(listener) => {
                        let token = stop.child_token();
                        let port = wanted_port(*address);
                        tokio::spawn(accept_all(listener, port, Arc::clone(&self.front), token.clone()));
                        open.insert(*address, token);
                        reported.remove(address);
                        tracing::info!(%address, "listening");
                    }
                    Err(error) if reported.insert(*address, error.kind()) != Some(error.kind()) => {
                        tracing::warn!(%address, %error, "cannot listen; other listeners are not affected");
                    }
                    Err(_) => {}
                }
            }
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            self.front.metrics.sockets.set(number(open.len()));
            self.front.metrics.sockets_failed.set(number(reported.len()));
            let again = async {
                if reported.is_empty() { std::future::pending().await } else { sleep(BIND_PAUSE).await }
            };
            tokio::select! {
                changed = self.states.changed() => if changed.is_err() { return },
                () = again => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn wanted(&mut self) -> Vec<SocketAddr> {
        let Some(state) = self.states.borrow_and_update().clone() else { return Vec::new() };
        let ports = state.table().routes.ports();
        let of_port = |port: Port| self.addresses.iter().map(move |ip| SocketAddr::new(*ip, port.get()));
        ports.flat_map(of_port).collect()
    }
}

/// Returns the port of an address of a listener.
fn wanted_port(address: SocketAddr) -> Port {
    Port::new(address.port()).expect("a listener has a port above 0")
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections of an earlier process may still be closing.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts connections of one socket until `stop` is cancelled.
async fn accept_all(listener: TcpListener, port: Port, front: Arc<Front>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, port = port.get(), "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&front.slots).try_acquire_owned() else {
            front.metrics.end(ConnectionEnd::TooMany);
            continue;
        };
        let task = open(stream, (client.ip().to_canonical(), port), Arc::clone(&front), slot, stop.clone());
        front.connections.spawn(task);
    }
}

/// Serves one connection of a client to a port, with TLS if a listener of the port requires it.
async fn open(
    stream: TcpStream,
    (client, port): (IpAddr, Port),
    front: Arc<Front>,
    slot: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "cannot set an option of a connection");
    }
    let state = front.proxy.states.borrow().clone();
    if !state.as_ref().is_some_and(|state| state.table().tls.is_tls(port)) {
        let connection = Arc::new(ConnectionState::new(client, port, None));
        return serve(stream, connection, front, slot, stop).await;
    }
    let connected = tokio::select! {
        connected = tls::accept(stream, port, state.as_deref(), &front) => connected,
        () = stop.cancelled() => return,
    };
    match connected {
        Ok(TlsConnection { stream, server_name }) => {
            let connection = Arc::new(ConnectionState::new(client, port, Some(server_name)));
            serve(stream, connection, front, slot, stop).await;
        }
        Err(end) => front.metrics.end(end),
    }
}

/// Serves the requests of one connection. After `stop` is cancelled, only those in progress.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Arc<ConnectionState>,
    front: Arc<Front>,
    slot: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    front.metrics.connections.inc();
    let io = GateStream::new(stream, Arc::clone(&connection), front.times, Arc::clone(&front.metrics));
    let service = service_fn(|request| {
        let (proxy, connection) = (Arc::clone(&front.proxy), Arc::clone(&connection));
        async move { proxy.answer(connection, request).await }
    });
    let builder = builder();
    let served = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    let mut served = std::pin::pin!(served);
    let outcome = tokio::select! {
        outcome = served.as_mut() => outcome,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(error, "a connection ended");
    }
    front.metrics.connections.dec();
    drop(slot);
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    socket.set_tcp_user_timeout(Some(WRITE_TIMEOUT))
}

/// Returns the HTTP settings of every connection.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // The gate limits the time of heads, also before the first one.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    builder.http1().max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX);
    let head_bytes = u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS_MAX);
    builder.http2().max_header_list_size(head_bytes);
    builder.http2().max_pending_accept_reset_streams(H2_RESETS_MAX);
    builder.http2().max_local_error_reset_streams(H2_RESETS_MAX);
    builder.http2().keep_alive_interval(H2_PING).keep_alive_timeout(H2_PING);
    builder
}
