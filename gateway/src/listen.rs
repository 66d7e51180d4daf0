//! Listening sockets at the ports of the listeners, and the connections of clients.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model::primitives::quantity::{Port, Revision};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    gate::{ConnectionState, GateStream, GateTimes, HEAD_BYTES_MAX, HttpVersion},
    handover::OpenSockets,
    keys::Certificates,
    metrics::{ConnectionEnd, Metrics},
    proxy::Proxy,
    state::SharedState,
    tls::{self, ClientStream, TlsConnection, relay},
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
    /// Listening sockets of the process that this one replaces.
    pub(crate) inherited: BTreeMap<SocketAddr, std::net::TcpListener>,
    pub(crate) sockets: OpenSockets,
    /// Receives the revision of the state whose sockets are open.
    pub(crate) opened: watch::Sender<Option<Revision>>,
}

/// Parts that all connections of clients share.
pub(crate) struct Front {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) certificates: Certificates,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) times: GateTimes,
    pub(crate) connections: TaskTracker,
    pub(crate) end: End,
}

/// Stages of the end of the process.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// Cancelled when no more connections are accepted. Open ones end after their next response.
    pub(crate) leaving: CancellationToken,
    /// Cancelled when connections end after the requests in progress. Implies `leaving`.
    pub(crate) stop: CancellationToken,
}

impl End {
    pub(crate) fn new() -> Self {
        let stop = CancellationToken::new();
        Self { leaving: stop.child_token(), stop }
    }

    /// Returns the end of one socket and its connections, which may come earlier than this one.
    fn child(&self) -> Self {
        Self { leaving: self.leaving.child_token(), stop: self.stop.child_token() }
    }

    fn cancel(&self) {
        self.leaving.cancel();
        self.stop.cancel();
    }
}

impl Listeners {
    /// Opens and closes sockets as the listeners change, until no more connections are to be accepted.
    pub(crate) async fn run(mut self) {
        let end = self.front.end.clone();
        let mut open: BTreeMap<SocketAddr, End> = BTreeMap::new();
        let mut reported: BTreeMap<SocketAddr, io::ErrorKind> = BTreeMap::new();
        loop {
            let (wanted, revision) = self.wanted();
            open.retain(|address, end| {
                let is_wanted = wanted.contains(address);
                if !is_wanted {
                    end.cancel();
                    self.sockets.remove(*address);
                    tracing::info!(%address, "stopped listening");
                }
                is_wanted
            });
            reported.retain(|address, _| wanted.contains(address));
            for address in &wanted {
                if open.contains_key(address) {
                    continue;
                }
                match self.bind(*address) {
                    Ok(listener) => {
                        self.sockets.insert(*address, &listener);
                        let end = end.child();
                        let port = wanted_port(*address);
                        tokio::spawn(accept_all(listener, port, Arc::clone(&self.front), end.clone()));
                        open.insert(*address, end);
                        reported.remove(address);
                        tracing::info!(%address, "listening");
                    }
                    Err(error) if reported.insert(*address, error.kind()) != Some(error.kind()) => {
                        tracing::warn!(%address, %error, "cannot listen; other listeners are not affected");
                    }
                    Err(_) => {}
                }
            }
            self.front.metrics.set_sockets(open.keys(), &reported);
            if revision.is_some() {
                self.inherited.clear();
                self.opened.send_replace(revision);
            }
            let again = async {
                if reported.is_empty() { std::future::pending().await } else { sleep(BIND_PAUSE).await }
            };
            tokio::select! {
                changed = self.states.changed() => if changed.is_err() { return },
                () = again => {}
                () = end.leaving.cancelled() => return,
            }
        }
    }

    /// Returns the addresses of the listeners, and the revision of the state, which is `None` before the first one.
    fn wanted(&mut self) -> (Vec<SocketAddr>, Option<Revision>) {
        let Some(state) = self.states.borrow_and_update().clone() else { return (Vec::new(), None) };
        let ports = state.table().routes.ports();
        let of_port = |port: Port| self.addresses.iter().map(move |ip| SocketAddr::new(*ip, port.get()));
        (ports.flat_map(of_port).collect(), Some(state.snapshot().revision()))
    }

    fn bind(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        self.inherited.remove(&address).map_or_else(|| bind(address), from_process)
    }
}

/// Returns the port of an address of a listener.
fn wanted_port(address: SocketAddr) -> Port {
    Port::new(address.port()).expect("a listener has a port above 0")
}

/// Returns a listening socket of another process as one of this runtime.
///
/// # Errors
/// Returns an error if the socket cannot be used without blocking.
pub(crate) fn from_process(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
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

/// Accepts connections of one socket until it is to be closed.
async fn accept_all(listener: TcpListener, port: Port, front: Arc<Front>, end: End) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.leaving.cancelled() => return,
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
        let task = open(stream, (client.ip().to_canonical(), port), Arc::clone(&front), slot, end.clone());
        front.connections.spawn(task);
    }
}

/// Serves one connection of a client to a port, with TLS if a listener of the port requires it.
async fn open(
    stream: TcpStream,
    (client, port): (IpAddr, Port),
    front: Arc<Front>,
    slot: OwnedSemaphorePermit,
    end: End,
) {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "cannot set an option of a connection");
    }
    let state = front.proxy.states.borrow().clone();
    // On the heap, so that a connection takes the memory of its own kind only.
    if state.as_ref().is_some_and(|state| state.table().tls.is_tls(port)) {
        Box::pin(open_with_tls(stream, (client, port), state, front, slot, end)).await;
    } else {
        let connection = Arc::new(ConnectionState::new(client, port, None, end.leaving.clone()));
        drop(state);
        Box::pin(serve(stream, connection, front, slot, end)).await;
    }
}

async fn open_with_tls(
    stream: TcpStream,
    (client, port): (IpAddr, Port),
    state: SharedState,
    front: Arc<Front>,
    slot: OwnedSemaphorePermit,
    end: End,
) {
    let connected = tokio::select! {
        connected = Box::pin(tls::accept(stream, port, state.as_deref(), &front)) => connected,
        () = end.stop.cancelled() => return,
    };
    drop(state);
    match connected {
        Ok(ClientStream::Bytes(connection)) => Box::pin(relay::run(connection, front, slot)).await,
        Ok(ClientStream::Requests(connection)) => {
            let TlsConnection { stream, server_name } = *connection;
            let connection =
                Arc::new(ConnectionState::new(client, port, Some(server_name), end.leaving.clone()));
            Box::pin(serve(stream, connection, front, slot, end)).await;
        }
        Err(reason) => front.metrics.end(reason),
    }
}

/// Serves the requests of one connection until the end of the connection or of its socket.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Arc<ConnectionState>,
    front: Arc<Front>,
    slot: OwnedSemaphorePermit,
    end: End,
) {
    front.metrics.connections.inc();
    let mut io = GateStream::new(stream, Arc::clone(&connection), front.times, Arc::clone(&front.metrics));
    let version = tokio::select! {
        version = io.version() => version.map_err(|error| tracing::debug!(%error, "a connection ended")),
        () = end.stop.cancelled() => Ok(None),
    };
    let proxy = Arc::clone(&front.proxy);
    // On the heap, so that a connection without a request has no room for one.
    let service =
        service_fn(move |request| Box::pin(Arc::clone(&proxy).answer(Arc::clone(&connection), request)));
    let outcome = match version {
        Ok(Some(HttpVersion::Http1)) => {
            let served = http1().serve_connection(TokioIo::new(io), service).with_upgrades();
            Box::pin(until_end(served, |served| served.graceful_shutdown(), end.stop)).await
        }
        Ok(Some(HttpVersion::Http2)) => {
            // The client is told which of its requests are served (RFC 9113 §6.8), so that none gets lost.
            let served = http2().serve_connection(TokioIo::new(io), service);
            Box::pin(until_end(served, |served| served.graceful_shutdown(), end.leaving)).await
        }
        Ok(None) | Err(()) => Ok(()),
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended");
    }
    front.metrics.connections.dec();
    drop(slot);
}

/// Serves a connection until its end. After `stop` is cancelled, ends it when its requests in progress have ended.
async fn until_end<C: Future>(
    served: C,
    shut_down: impl Fn(Pin<&mut C>),
    stop: CancellationToken,
) -> C::Output {
    let mut served = pin!(served);
    tokio::select! {
        outcome = served.as_mut() => outcome,
        () = stop.cancelled() => {
            shut_down(served.as_mut());
            served.await
        }
    }
}

/// Sets the options of a connection with a client or endpoint.
///
/// # Errors
/// Returns the error of the kernel.
pub(crate) fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    socket.set_tcp_user_timeout(Some(WRITE_TIMEOUT))
}

/// Returns the settings of connections with HTTP/1.
fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The gate limits the time of heads, also before the first one.
    builder.timer(TokioTimer::new()).header_read_timeout(None);
    builder.max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX);
    builder
}

/// Returns the settings of connections with HTTP/2.
fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let head_bytes = u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX);
    builder.timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS_MAX);
    builder.max_header_list_size(head_bytes);
    builder.max_pending_accept_reset_streams(H2_RESETS_MAX);
    builder.max_local_error_reset_streams(H2_RESETS_MAX);
    builder.keep_alive_interval(H2_PING).keep_alive_timeout(H2_PING);
    builder
}
