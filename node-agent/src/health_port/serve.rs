//! HTTP server of the health check node ports, on a dedicated thread.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::TcpListener,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    body::Body,
    http::{Request, Response, StatusCode, header},
};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use model::{kinds::resource::ServiceKey, primitives::quantity::Port};
use serde_json::json;
use tokio::{
    runtime::{Builder, Runtime},
    task::AbortHandle,
};

use super::connections::Connections;

/// Maximum time in which a client must send its request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum duration of a connection.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// Delay after an error from `accept`, for example for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Response header with the number of local ready endpoints, for load balancers that weight nodes.
const WEIGHT_HEADER: &str = "X-Load-Balancing-Endpoint-Weight";

/// Data for the responses of all health check node ports, shared by the agent loop and the HTTP server.
#[derive(Debug, Default)]
pub(super) struct Answers(RwLock<Truth>);

#[derive(Debug, Default)]
struct Truth {
    is_healthy: bool,
    ports: BTreeMap<Port, (ServiceKey, u32)>,
}

impl Answers {
    pub(super) fn set_healthy(&self, is_healthy: bool) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).is_healthy = is_healthy;
    }

    pub(super) fn set_ports(&self, ports: BTreeMap<Port, (ServiceKey, u32)>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).ports = ports;
    }

    /// Returns the response of a port: 200 if this node has ready endpoints of the Service and its kernel can
    /// be programmed, otherwise 503.
    fn answer(&self, port: Port) -> Response<Body> {
        let truth = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some((service, local_endpoints)) = truth.ports.get(&port) else {
            return status(StatusCode::NOT_FOUND, Body::empty());
        };
        let is_good = truth.is_healthy && *local_endpoints > 0;
        let code = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = json!({
            "service": {"namespace": service.namespace, "name": service.name},
            "localEndpoints": local_endpoints,
            "serviceProxyHealthy": truth.is_healthy,
        });
        let mut response = status(code, Body::from(body.to_string()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        headers.insert(
            header::HeaderName::from_static("x-content-type-options"),
            header::HeaderValue::from_static("nosniff"),
        );
        if let Ok(name) = header::HeaderName::from_bytes(WEIGHT_HEADER.as_bytes()) {
            headers.insert(name, header::HeaderValue::from(*local_endpoints));
        }
        response
    }
}

fn status(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

/// Handle of the HTTP server thread. The thread ends when the handle is dropped.
pub(super) struct Server {
    runtime: Option<Runtime>,
    connections: Arc<Connections>,
}

/// Listening socket, served by the HTTP server until dropped.
pub(super) struct Listening(AbortHandle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Server {
    pub(super) fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("health-ports").enable_all().build()?;
        Ok(Self { runtime: Some(runtime), connections: Arc::default() })
    }

    pub(super) fn serve(&self, listener: TcpListener, answers: Arc<Answers>) -> io::Result<Listening> {
        let port = listener.local_addr()?.port();
        let (Some(runtime), Some(port)) = (&self.runtime, Port::new(port)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        listener.set_nonblocking(true)?;
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accepting = accept(listener, port, answers, Arc::clone(&self.connections));
        Ok(Listening(runtime.spawn(accepting).abort_handle()))
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    port: Port,
    answers: Arc<Answers>,
    connections: Arc<Connections>,
) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let slot = connections.open(peer.ip(), port);
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            let service = service_fn(move |_: Request<_>| {
                std::future::ready(Ok::<_, Infallible>(answers.answer(port)))
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIME_MAX).keep_alive(false);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            // Client errors are ignored.
            tokio::select! {
                _ended = tokio::time::timeout(CONNECTION_TIME_MAX, connection) => {}
                () = slot.closed() => {}
            }
        });
    }
}
