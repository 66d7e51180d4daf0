//! Connections to endpoints, and the choice of an endpoint by its weight and load.

mod h2c;

use std::{
    collections::HashMap,
    error::Error,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use model::http::{BackendEndpoints, BackendProtocol};
use tokio::{net::TcpStream, time::timeout};

use self::h2c::H2cPool;

/// Time after which an idle connection to an endpoint is closed. Many servers close theirs after 60 s or more.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// Maximum number of idle connections to one endpoint.
const POOL_MAX: usize = 64;
/// Maximum size of the head of a response in bytes.
const RESPONSE_HEAD_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of headers of a response.
const RESPONSE_HEADERS_MAX: usize = 200;
/// Time of silence after which the kernel probes the other end of a connection.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Number of endpoints with a load at which those without requests are forgotten.
const LOADS_MAX: usize = 10_000;

/// Error of an attempt.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The endpoint cannot have received the request.
    Connect(String),
    /// The endpoint may have received the request.
    Exchange(String),
}

/// Load of one endpoint.
#[derive(Debug, Default)]
struct EndpointLoad {
    requests: AtomicUsize,
    /// True if the last attempt to connect failed.
    is_failing: AtomicBool,
}

/// Request in progress at an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct EndpointUse {
    address: SocketAddr,
    load: Arc<EndpointLoad>,
}

impl EndpointUse {
    /// Returns the address and port of the endpoint.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for EndpointUse {
    fn drop(&mut self) {
        self.load.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Client of all endpoints, for requests with bodies of one type.
pub(crate) struct Upstream<B> {
    client: Client<HttpConnector, B>,
    h2c: H2cPool<B>,
    loads: Mutex<HashMap<SocketAddr, Arc<EndpointLoad>>>,
    connect_timeout: Duration,
}

impl<B> Upstream<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_MAX)
            .http1_max_buf_size(RESPONSE_HEAD_BYTES_MAX)
            .http1_max_headers(RESPONSE_HEADERS_MAX)
            .set_host(false)
            .build(connector);
        Self { client, h2c: H2cPool::new(connect_timeout), loads: Mutex::default(), connect_timeout }
    }

    /// Chooses an endpoint: of two random ones, in proportion to their weights, the one that can be connected to and has
    /// fewer requests. Endpoints in `tried` are chosen only if there is no other. Returns `None` without endpoints.
    pub(crate) fn choose(&self, endpoints: &BackendEndpoints, tried: &[SocketAddr]) -> Option<EndpointUse> {
        let one = endpoints.pick(fastrand::u64(..), tried)?;
        let other = endpoints.pick(fastrand::u64(..), tried)?;
        let (first, second) = (self.load(one), self.load(other));
        let cost = |load: &EndpointLoad| {
            (load.is_failing.load(Ordering::Relaxed), load.requests.load(Ordering::Relaxed))
        };
        let (address, load) = if cost(&second) < cost(&first) { (other, second) } else { (one, first) };
        load.requests.fetch_add(1, Ordering::Relaxed);
        Some(EndpointUse { address, load })
    }

    fn load(&self, endpoint: SocketAddr) -> Arc<EndpointLoad> {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        if loads.len() >= LOADS_MAX && !loads.contains_key(&endpoint) {
            loads.retain(|_, load| load.requests.load(Ordering::Relaxed) > 0);
        }
        Arc::clone(loads.entry(endpoint).or_default())
    }

    /// Opens a connection to an endpoint.
    ///
    /// # Errors
    /// Returns the error if there is no connection in time.
    pub(crate) async fn connect(&self, endpoint: &EndpointUse) -> io::Result<TcpStream> {
        let connecting = timeout(self.connect_timeout, TcpStream::connect(endpoint.address)).await;
        let outcome = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        endpoint.load.is_failing.store(outcome.is_err(), Ordering::Relaxed);
        outcome
    }

    /// Sends a request to an endpoint in a protocol, over an open connection if there is one, and returns the head of the
    /// response.
    ///
    /// # Errors
    /// Returns an error if there is no connection or no valid response.
    pub(crate) async fn send(
        &self,
        request: Request<B>,
        protocol: BackendProtocol,
        endpoint: &EndpointUse,
    ) -> Result<Response<Incoming>, SendError> {
        let outcome = match protocol {
            BackendProtocol::Http1 => self.client.request(request).await.map_err(|error| {
                let text = base::chain(&error);
                if error.is_connect() { SendError::Connect(text) } else { SendError::Exchange(text) }
            }),
            BackendProtocol::H2c => self.h2c.send(request, endpoint.address).await,
        };
        let is_unreachable = matches!(outcome, Err(SendError::Connect(_)));
        endpoint.load.is_failing.store(is_unreachable, Ordering::Relaxed);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Empty;
    use model::http::HttpEndpoint;

    use super::*;

    /// The endpoint that refused the last connection, or has more requests, is chosen less often than its weight says,
    /// and one that was tried is not chosen.
    #[test]
    fn endpoints_are_chosen_by_their_load() {
        let upstream = Upstream::<Empty<Bytes>>::new(Duration::from_secs(1));
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let endpoint = |port| HttpEndpoint { address: address(port), weight: 1 };
        let endpoints = BackendEndpoints::new(vec![endpoint(1), endpoint(2)]);
        let count = || {
            let chosen = (0..400).filter_map(|_| upstream.choose(&endpoints, &[]));
            chosen.filter(|chosen| chosen.address() == address(1)).count()
        };
        assert!((120..280).contains(&count()), "{}", count());
        let held = upstream.load(address(1));
        held.requests.store(1, Ordering::Relaxed);
        assert!((50..150).contains(&count()), "{}", count());
        held.requests.store(0, Ordering::Relaxed);
        held.is_failing.store(true, Ordering::Relaxed);
        assert!((50..150).contains(&count()), "{}", count());
        assert!((0..50).all(|_| upstream.choose(&endpoints, &[address(2)]).unwrap().address() == address(1)));
        assert!(upstream.choose(&BackendEndpoints::default(), &[]).is_none());
    }
}
