//! Connections of HTTP/2 without encryption to endpoints, with prior knowledge (RFC 9113 §3.3). Each endpoint has one
//! connection, which all requests share.

use std::{
    collections::HashMap,
    error::Error,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::{Body, Incoming},
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{KEEPALIVE, POOL_IDLE, SendError};

/// Interval and timeout of the pings that find out if an endpoint is still there.
const PING: Duration = Duration::from_secs(20);

/// Open connections by endpoint.
pub(super) struct H2cPool<B> {
    connections: Mutex<HashMap<SocketAddr, H2cConnection<B>>>,
    connect_timeout: Duration,
}

struct H2cConnection<B> {
    sender: SendRequest<B>,
    last_use: Instant,
}

impl<B> H2cPool<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(super) fn new(connect_timeout: Duration) -> Self {
        Self { connections: Mutex::default(), connect_timeout }
    }

    /// Sends a request to an endpoint, and returns the head of the response.
    ///
    /// # Errors
    /// Returns an error if there is no connection or no valid response.
    pub(super) async fn send(
        &self,
        request: Request<B>,
        endpoint: SocketAddr,
    ) -> Result<Response<Incoming>, SendError> {
        let mut sender = match self.open(endpoint) {
            Some(sender) => sender,
            None => self.connect(endpoint).await.map_err(SendError::Connect)?,
        };
        sender.try_send_request(request).await.map_err(|mut error| {
            let is_unsent = error.take_message().is_some();
            let text = base::chain(error.error());
            // The connection ended before the request was written.
            if is_unsent { SendError::Connect(text) } else { SendError::Exchange(text) }
        })
    }

    fn open(&self, endpoint: SocketAddr) -> Option<SendRequest<B>> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = connections.get_mut(&endpoint).filter(|one| !one.sender.is_closed())?;
        connection.last_use = Instant::now();
        Some(connection.sender.clone())
    }

    /// Opens a connection. Connections of other endpoints without recent requests are closed.
    async fn connect(&self, endpoint: SocketAddr) -> Result<SendRequest<B>, String> {
        let opening = async {
            let stream = TcpStream::connect(endpoint).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
            SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(|error| error.to_string())?;
            let mut builder = Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| base::chain(&error))
        };
        let opened = timeout(self.connect_timeout, opening).await;
        let (sender, connection) = opened.map_err(|_elapsed| "no connection in time".to_owned())??;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%endpoint, error = base::chain(&error), "a connection to an endpoint ended");
            }
        });
        let now = Instant::now();
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|_, one| !one.sender.is_closed() && now - one.last_use < POOL_IDLE);
        connections.insert(endpoint, H2cConnection { sender: sender.clone(), last_use: now });
        Ok(sender)
    }
}
