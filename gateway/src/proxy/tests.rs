//! Requests through real sockets: a gateway with the listeners of a Gateway, and endpoints on this machine.

mod conformance;
mod differential;
mod grpc;
mod limits;
mod passthrough;
mod secure;

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use model::{
    admission::decode::decode_received,
    cluster::{change::ObjectChange, snapshot::Snapshot},
    http::HttpState,
    kinds::resource::Object,
    primitives::quantity::Revision,
};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tokio_util::task::TaskTracker;

use super::{COPIES_MAX, Proxy, ProxyOptions};
use crate::{
    gate::GateTimes,
    handover::{InheritedSockets, OpenSockets},
    keys::{CertificateRing, Certificates},
    listen::{End, Front, Listeners},
    metrics::Metrics,
    state::SharedState,
    upstream::Upstream,
};

/// Limit of the time without progress.
const IDLE: Duration = Duration::from_millis(400);

/// Limit of the time for the head of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(600);

/// Maximum time for the end of a connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// Gateway of a test.
struct TestGateway {
    address: SocketAddr,
    states: watch::Sender<SharedState>,
    front: Arc<Front>,
}

/// Endpoint of a test.
struct TestEndpoint {
    port: u16,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

fn object(kind: &str, name: &str, spec: &Value) -> Arc<Object> {
    let metadata = json!({"name": name, "namespace": "default"});
    let value = json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": metadata, "spec": spec});
    Arc::new(decode_received(&value).unwrap_or_else(|found| panic!("{value}: {found:?}")))
}

/// Returns a Service with endpoints on this machine.
fn service(name: &str, ports: &[u16]) -> Vec<Arc<Object>> {
    let set = |port: &u16| {
        let endpoints = json!([{"address": "127.0.0.1"}]);
        let spec = json!({"service": name, "ports": [{"name": "web", "port": port}], "endpoints": endpoints});
        object("EndpointSet", &format!("{name}-{port}"), &spec)
    };
    let spec = json!({"clusterIP": "10.96.0.10", "ports": [{"name": "web", "port": 80}]});
    [object("Service", name, &spec)].into_iter().chain(ports.iter().map(set)).collect()
}

fn routes(rules: &Value) -> Arc<Object> {
    object("HttpRoute", "all", &json!({"parentRefs": [{"name": "edge"}], "rules": rules}))
}

/// Returns a port that no socket uses now.
async fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port()
}

impl TestGateway {
    async fn start(objects: Vec<Arc<Object>>) -> Self {
        let port = free_port().await;
        let listeners = json!([{"name": "http", "port": port, "protocol": "HTTP"}]);
        let certificates = watch::channel(Arc::new(CertificateRing::default())).1;
        let times = GateTimes { head: IDLE / 2, idle: IDLE };
        Self::start_at(port, &listeners, objects, certificates, times).await
    }

    /// Starts a gateway with listeners at a port.
    async fn start_at(
        port: u16,
        listeners: &Value,
        objects: Vec<Arc<Object>>,
        certificates: Certificates,
        times: GateTimes,
    ) -> Self {
        let listeners = json!({"listeners": listeners});
        let gateway = object("Gateway", "edge", &listeners);
        let snapshot = Snapshot::from_objects(Revision(1), objects.into_iter().chain([gateway]));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self::serve(snapshot, address, certificates, times).await
    }

    /// Starts a gateway with the listeners of all Gateways at one address, and waits until it listens on the port of
    /// `address`.
    async fn serve(
        snapshot: Snapshot,
        address: SocketAddr,
        certificates: Certificates,
        times: GateTimes,
    ) -> Self {
        let state = HttpState::new(Arc::new(BTreeSet::new()), snapshot);
        let (sender, states) = watch::channel(Some(Arc::new(state)));
        let metrics = Arc::new(Metrics::default());
        let options = ProxyOptions {
            trusted: Vec::new(),
            response_timeout: RESPONSE_TIMEOUT,
            idle: IDLE,
            access_log: false,
        };
        let upstream = Upstream::new(Duration::from_secs(2));
        let copies = Arc::new(Semaphore::new(COPIES_MAX));
        let proxy =
            Proxy { states: states.clone(), upstream, options, metrics: Arc::clone(&metrics), copies };
        let front = Arc::new(Front {
            proxy: Arc::new(proxy),
            metrics,
            certificates,
            slots: Arc::new(Semaphore::new(10)),
            times,
            connections: TaskTracker::new(),
            end: End::new(),
        });
        let addresses = vec![address.ip()];
        let listeners = Listeners {
            addresses,
            states,
            front: Arc::clone(&front),
            inherited: InheritedSockets::new(),
            sockets: OpenSockets::default(),
            opened: watch::channel(None).0,
        };
        tokio::spawn(listeners.run());
        while TcpStream::connect(address).await.is_err() {
            tokio::task::yield_now().await;
        }
        Self { address, states: sender, front }
    }

    fn change(&self, changes: Vec<ObjectChange>) {
        let state = self.states.borrow().clone().unwrap();
        self.states.send_replace(Some(Arc::new(state.update(Revision(2), changes))));
    }

    async fn connect(&self) -> BufReader<TcpStream> {
        BufReader::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends bytes over a connection of their own, and returns the response.
    async fn send(&self, text: &str) -> (String, String) {
        let mut connection = self.connect().await;
        connection.get_mut().write_all(text.as_bytes()).await.unwrap();
        response(&mut connection).await
    }

    async fn get(&self, path: &str) -> (String, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: www.example.org\r\n\r\n")).await
    }
}

/// Reads a response with its length, and returns its head in lower case and its body.
async fn response(connection: &mut BufReader<TcpStream>) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(connection.read_line(&mut head).await.unwrap() > 0, "no response: {head:?}");
    }
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |digits| digits.parse().unwrap())];
    connection.read_exact(&mut body).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

impl TestEndpoint {
    /// Starts a server that answers with the heads of the requests that it receives. The path `/slow` is never answered,
    /// `/cut` closes the connection, and a request for WebSocket switches to an echo.
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let endpoint = Self { port, connections: Arc::clone(&connections), requests: Arc::clone(&requests) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(BufReader::new(stream), Arc::clone(&requests)));
            }
        });
        endpoint
    }
}

async fn serve(mut stream: BufReader<TcpStream>, requests: Arc<AtomicUsize>) {
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        requests.fetch_add(1, Ordering::Relaxed);
        if head.contains(" /cut ") {
            return;
        }
        if head.contains(" /slow ") {
            std::future::pending::<()>().await;
        }
        if head.contains("upgrade: websocket") {
            let switch =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.get_mut().write_all(switch.as_bytes()).await.unwrap();
            let mut bytes = [0; 16];
            while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                stream.get_mut().write_all(&bytes[..count]).await.unwrap();
            }
            return;
        }
        let length = head.to_ascii_lowercase().split("content-length: ").nth(1).map(|rest| rest.to_owned());
        let length: usize = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let text = [head.as_bytes(), &body].concat();
        let answer =
            format!("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: {}\r\n\r\n", text.len());
        stream.get_mut().write_all(&[answer.as_bytes(), &text].concat()).await.unwrap();
    }
}

/// Rules of the tests: all paths go to `web`, and each special path to its own treatment.
fn rules() -> Value {
    let web = json!([{"name": "web", "port": 80}]);
    let path = |path: &str| json!([{"path": {"type": "PathPrefix", "value": path}}]);
    let headers = json!({"set": [{"name": "x-set", "value": "new"}], "remove": ["x-gone"]});
    json!([
        {"backendRefs": web},
        {"matches": path("/missing"), "backendRefs": [{"name": "missing", "port": 80}]},
        {"matches": path("/empty"), "backendRefs": [{"name": "empty", "port": 80}]},
        {"matches": path("/move"), "filters": [
            {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}]},
        {"matches": path("/change"), "backendRefs": web, "filters": [
            {"type": "RequestHeaderModifier", "requestHeaderModifier": headers},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": headers},
            {"type": "URLRewrite", "urlRewrite": {"hostname": "inside.example",
                "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}}]},
    ])
}

async fn stage() -> (TestGateway, TestEndpoint) {
    let endpoint = TestEndpoint::start().await;
    let objects = [service("web", &[endpoint.port]), service("empty", &[]), vec![routes(&rules())]].concat();
    (TestGateway::start(objects).await, endpoint)
}

/// A request reaches the endpoint without headers of the connection, with those that describe the client. Filters change
/// headers, host name and path. Requests of several clients share a connection to the endpoint.
#[tokio::test]
async fn requests_are_forwarded_and_changed() {
    let (gateway, endpoint) = stage().await;
    let request = "POST /a?b=c HTTP/1.1\r\nHost: WWW.example.org:8080\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
                   X-Forwarded-For: 192.0.2.1\r\nContent-Length: 5\r\n\r\nhello";
    let (head, body) = gateway.send(request).await;
    assert!(head.starts_with("http/1.1 200 ") && !head.contains("keep-alive"), "{head}");
    let body = body.to_ascii_lowercase();
    assert!(body.starts_with("post /a?b=c http/1.1\r\n") && body.ends_with("\r\n\r\nhello"), "{body}");
    for line in ["host: www.example.org:8080", "x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http"] {
        assert!(body.contains(&format!("\r\n{line}\r\n")), "{line}: {body}");
    }
    assert!(!body.contains("x-hop") && !body.contains("192.0.2.1"), "{body}");

    let change = "GET /change/x?y HTTP/1.1\r\nHost: a.example\r\nX-Set: old\r\nX-Gone: 1\r\n\r\n";
    let (head, body) = gateway.send(change).await;
    assert!(head.contains("\r\nx-set: new\r\n"), "{head}");
    let body = body.to_ascii_lowercase();
    assert!(body.starts_with("get /new/x?y http/1.1\r\n") && body.contains("\r\nx-set: new\r\n"), "{body}");
    assert!(body.contains("\r\nhost: inside.example\r\n") && !body.contains("x-gone"), "{body}");
    for _ in 0..20 {
        assert!(gateway.get("/").await.0.starts_with("http/1.1 200 "));
    }
    assert!(endpoint.connections.load(Ordering::Relaxed) < 10);
}

/// Failures have the status codes of the Gateway API. Requests that could be read in two ways get 400 and are not
/// forwarded, and neither are the bytes after them.
#[tokio::test]
async fn failures_have_their_status_codes() {
    let (gateway, endpoint) = stage().await;
    for (path, code) in
        [("/missing", "500"), ("/empty", "503"), ("/slow", "504"), ("/cut", "502"), ("/a/../b", "400")]
    {
        let (head, _) = gateway.get(path).await;
        assert!(head.starts_with(&format!("http/1.1 {code} ")), "{path}: {head}");
    }
    let (head, _) = gateway.get("/move/x").await;
    assert!(
        head.starts_with("http/1.1 301 ")
            && head.contains("\r\nlocation: https://www.example.org/move/x\r\n"),
        "{head}"
    );
    let requests = endpoint.requests.load(Ordering::Relaxed);
    let smuggled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    let (head, _) = gateway.send(smuggled).await;
    assert!(head.starts_with("http/1.1 400 "), "{head}");
    assert_eq!(endpoint.requests.load(Ordering::Relaxed), requests);
    let (head, _) =
        gateway.send(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(33_500))).await;
    assert!(head.starts_with("http/1.1 431 "), "{head}");
    // Without a route, and without a listener.
    gateway.change(vec![ObjectChange::Removed(routes(&rules()).key())]);
    assert!(gateway.get("/").await.0.starts_with("http/1.1 404 "));
}

/// An endpoint that refuses connections costs no request, whatever the method: each goes to another endpoint. A request
/// that an endpoint may have received is repeated only if its method is idempotent.
#[tokio::test]
async fn failed_attempts_are_repeated_at_other_endpoints() {
    let endpoint = TestEndpoint::start().await;
    // Bound, so that no other socket gets the port, but not listening.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let closed = socket.local_addr().unwrap().as_socket().unwrap().port();
    let objects = [service("web", &[endpoint.port, closed]), vec![routes(&rules())]].concat();
    let gateway = TestGateway::start(objects).await;
    for number in 0..20 {
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        let (head, body) = gateway.send(post).await;
        assert!(head.starts_with("http/1.1 200 ") && body.ends_with("hello"), "{number}: {head}");
    }
    // The only endpoint that accepts connections closes each.
    let cut = |method: &str| format!("{method} /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    for (method, attempts) in [("POST", 1..=1), ("DELETE", 2..=3)] {
        endpoint.requests.store(0, Ordering::Relaxed);
        gateway.change(vec![ObjectChange::Removed(service("web", &[closed])[1].key())]);
        assert!(gateway.send(&cut(method)).await.0.starts_with("http/1.1 502 "));
        let requests = endpoint.requests.load(Ordering::Relaxed);
        assert!(attempts.contains(&requests), "{method}: {requests}");
    }
}

/// A request to endpoints that refuse connections is sent as often as its rule permits, and then gets 503.
#[tokio::test]
async fn refused_connections_are_repeated_and_give_503() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let closed = socket.local_addr().unwrap().as_socket().unwrap().port();
    let web = json!([{"name": "web", "port": 80}]);
    let all = routes(&json!([{"backendRefs": web, "retry": {"codes": [500], "attempts": 4}}]));
    let gateway = TestGateway::start([service("web", &[closed]), vec![all]].concat()).await;
    for (method, failures) in [("GET", 5), ("POST", 10)] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert!(gateway.send(&request).await.0.starts_with("http/1.1 503 "), "{method}");
        assert_eq!(gateway.front.metrics.upstream_failures.get(), failures, "{method}");
    }
}

/// A client of HTTP/2 without encryption gets the same answers.
#[tokio::test]
async fn clients_of_http2_are_answered() {
    let (gateway, _endpoint) = stage().await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
    for (path, code) in [("/", 200), ("/missing", 500)] {
        let answer = client.get(format!("http://{}{path}", gateway.address).parse().unwrap()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (code, http::Version::HTTP_2));
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(code != 200 || body.starts_with(b"GET / HTTP/1.1\r\n"), "{body:?}");
    }
}

/// A connection that switches to WebSocket carries bytes in both directions, for longer than the limits of requests.
#[tokio::test]
async fn websocket_connections_are_passed_through() {
    let (gateway, _endpoint) = stage().await;
    let mut connection = gateway.connect().await;
    let switch =
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    connection.get_mut().write_all(switch.as_bytes()).await.unwrap();
    let (head, _) = response(&mut connection).await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    for text in ["\0\u{1}frame", "\r\nother\n"] {
        connection.get_mut().write_all(text.as_bytes()).await.unwrap();
        let mut echo = vec![0; text.len()];
        connection.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, text.as_bytes());
        tokio::time::sleep(2 * IDLE).await;
    }
}

/// A client that sends nothing, or a part of a head, is disconnected. At the end, requests in progress are answered, and
/// no connection is accepted.
#[tokio::test]
async fn idle_clients_and_the_end_of_the_process_close_connections() {
    let (gateway, _endpoint) = stage().await;
    let mut idle = gateway.connect().await;
    let mut text = String::new();
    let end = tokio::time::timeout(PATIENCE, idle.read_to_string(&mut text));
    assert_eq!(end.await.unwrap().unwrap(), 0);
    // A part of a head does not count as a request.
    let mut part = gateway.connect().await;
    part.get_mut().write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    let end = tokio::time::timeout(PATIENCE, part.read_to_string(&mut text));
    assert!(end.await.unwrap().is_ok_and(|bytes| bytes == 0));
    let mut slow = gateway.connect().await;
    slow.get_mut().write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(IDLE / 4).await;
    gateway.front.end.stop.cancel();
    let (head, _) = response(&mut slow).await;
    assert!(head.starts_with("http/1.1 504 "), "{head}");
    gateway.front.connections.close();
    tokio::time::timeout(PATIENCE, gateway.front.connections.wait()).await.unwrap();
    assert!(TcpStream::connect(gateway.address).await.is_err());
}
