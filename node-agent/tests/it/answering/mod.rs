//! Simulated endpoints in a namespace for health check tests: servers that respond well, badly, slowly or not
//! at all, and record the requests.

use std::{
    convert::Infallible,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Request, Response, body::Incoming, header::CONTENT_TYPE, server::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::support::Namespace;

/// Interval between checks for new connections.
const PAUSE: Duration = Duration::from_millis(1);

/// Server with scripted behavior that stops when dropped.
pub(crate) struct Answering {
    hits: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    /// Starts a TCP server at `address`. Calls `answer` for each connection, with its number from 1, on a
    /// separate thread.
    pub(crate) fn tcp(
        namespace: &Namespace,
        address: &str,
        answer: impl Fn(usize, TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let (hits, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let address: SocketAddr = address.parse().unwrap();
        let listener = namespace.run(|| TcpListener::bind(address).unwrap());
        listener.set_nonblocking(true).unwrap();
        let (counted, stopped) = (Arc::clone(&hits), Arc::clone(&stop));
        let answer = Arc::new(answer);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(PAUSE);
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let answer = Arc::clone(&answer);
                thread::spawn(move || answer(number, stream));
            }
        });
        Self { hits, requests: Arc::default(), stop, thread: Some(thread) }
    }

    /// Starts an HTTP server at `address`. `answer` returns the response to the request with the given
    /// number.
    pub(crate) fn http(
        namespace: &Namespace,
        address: &str,
        answer: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        let server = Self::tcp(namespace, address, move |number, mut stream| {
            noted.lock().unwrap().push(exchange(&mut stream, &answer(number)));
        });
        server.noting(requests)
    }

    /// Starts an HTTPS server at `address` that sends the same response to every request.
    pub(crate) fn https(
        namespace: &Namespace,
        address: &str,
        config: &Arc<ServerConfig>,
        answer: String,
    ) -> Self {
        let config = Arc::clone(config);
        Self::tcp(namespace, address, move |_, stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            exchange(&mut StreamOwned::new(connection, stream), &answer);
        })
    }

    /// Starts a gRPC server at `address` that replies to every call with the message bytes `message` and the
    /// gRPC status `status`; with TLS if there is a `config`.
    pub(crate) fn grpc(
        namespace: &Namespace,
        address: &str,
        config: Option<Arc<ServerConfig>>,
        message: &'static [u8],
        status: &'static str,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        let server = Self::tcp(namespace, address, move |_, stream| {
            let (config, noted) = (config.clone(), Arc::clone(&noted));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                stream.set_nonblocking(true).unwrap();
                let stream = tokio::net::TcpStream::from_std(stream).unwrap();
                let service = hyper::service::service_fn(move |request| {
                    call(request, Arc::clone(&noted), message, status)
                });
                let builder = http2::Builder::new(TokioExecutor::new());
                // The client closes after the response.
                let _ended = match config {
                    None => builder.serve_connection(TokioIo::new(stream), service).await,
                    Some(config) => {
                        let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                        builder.serve_connection(TokioIo::new(stream), service).await
                    }
                };
            });
        });
        server.noting(requests)
    }

    /// Starts a UDP server at `address` that replies to each datagram with `answer`; if `answer` is `None`,
    /// receives datagrams without a reply.
    pub(crate) fn udp(namespace: &Namespace, address: &str, answer: Option<&'static str>) -> Self {
        let (hits, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let address: SocketAddr = address.parse().unwrap();
        let socket = namespace.run(|| UdpSocket::bind(address).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (counted, stopped, noted) = (Arc::clone(&hits), Arc::clone(&stop), Arc::clone(&requests));
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::SeqCst) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                counted.fetch_add(1, Ordering::SeqCst);
                noted.lock().unwrap().push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                if let Some(answer) = answer {
                    let _ = socket.send_to(answer.as_bytes(), from);
                }
            }
        });
        Self { hits, requests, stop, thread: Some(thread) }
    }

    fn noting(mut self, requests: Arc<Mutex<Vec<String>>>) -> Self {
        self.requests = requests;
        self
    }

    /// Returns the number of connections or datagrams received so far.
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    /// Returns the requests that the server has received so far; HTTP requests are in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Builds a complete HTTP response.
pub(crate) fn page(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
}

/// Keeps a connection open without sending anything, until the peer closes it.
pub(crate) fn hang(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
}

/// Reads a request, sends a response, and waits until the peer closes the connection.
fn exchange(stream: &mut (impl Read + Write), answer: &str) -> String {
    let mut request = Vec::new();
    let mut byte = [0; 1];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return String::from_utf8_lossy(&request).to_lowercase(),
        }
    }
    let _ = stream.write_all(answer.as_bytes()).and_then(|()| stream.flush());
    let _ = stream.read(&mut byte);
    String::from_utf8_lossy(&request).to_lowercase()
}

async fn call(
    request: Request<Incoming>,
    noted: Arc<Mutex<Vec<String>>>,
    message: &'static [u8],
    status: &'static str,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let uri = request.uri().to_string();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    noted.lock().unwrap().push(format!("{uri} {:?}", &body[..]));
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
    let body = Full::new(Bytes::from_static(message)).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, "application/grpc".parse().unwrap());
    Ok(response)
}

/// Certificate authority that issues certificates for test servers.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Creates the TLS configuration of a server, with a certificate for `name` (a host name or an address)
    /// that is valid until the end of the year `last_year`.
    pub(crate) fn server(&self, name: &str, last_year: i32) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_no_client_auth();
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}
