//! Random route tables that the gateway, HAProxy and nginx serve, and random requests to which all of them must respond alike.
//!
//! ```text
//!   table of rules ──▶ HttpRoutes of a gateway ───────────────┐
//!                  ├─▶ HAProxy: conditions in the order of the Gateway API's precedence   ──▶ the same endpoints
//!                  └─▶ nginx: the same by `map`, or its own precedence of names and paths ┘
//! ```
//! `TIDEGATE_SEED` repeats one run; with `TIDEGATE_SOAK`, many are made.

mod configuration;
mod table;

use std::{
    collections::BTreeMap,
    fs,
    net::IpAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use serde_json::json;

use self::{
    configuration::{haproxy, nginx},
    table::{Pick, RouteTable, TableRequest},
};
use super::{
    conformance::{RowLog, decode, start_echo},
    secure::HANDSHAKE_TIMES,
    *,
};

/// Number of tables of a run.
const TABLES: usize = 8;
/// Number of requests to each table: with three proxies, more than 1,000 of a run are compared.
const REQUESTS: usize = 160;
/// Number of endpoints, each of a Service of its own.
const BACKENDS: usize = 4;
/// Number of runs of a long test.
const SOAK_RUNS: u64 = 50;

/// Process that is killed when dropped.
struct PeerProcess(Child);

impl PeerProcess {
    fn start(program: &str, arguments: &[&str], log: &Path) -> Self {
        let log = fs::File::create(log).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; run lab/setup.sh")))
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sockets of one table at each proxy.
struct TableSockets {
    gateway: SocketAddr,
    haproxy: SocketAddr,
    nginx: SocketAddr,
}

impl TableSockets {
    /// Returns sockets at an address that no other process uses. Clients do not connect from these ports, so that a connection
    /// to a port that is not open yet fails.
    fn new(run: u64, table: usize) -> Self {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = IpAddr::from([127, 128 | (high & 63), middle, low]);
        let first = 8000 + 3 * (u16::try_from(run % SOAK_RUNS).unwrap() * 16 + u16::try_from(table).unwrap());
        let socket = |number| SocketAddr::new(address, first + number);
        Self { gateway: socket(0), haproxy: socket(1), nginx: socket(2) }
    }
}

/// Client of one proxy, which connects again if the proxy has closed the connection.
struct PeerClient {
    address: SocketAddr,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl PeerClient {
    const fn new(address: SocketAddr) -> Self {
        Self { address, sender: None }
    }

    async fn send(&mut self, request: &TableRequest) -> String {
        for _ in 0..3 {
            if self.sender.as_ref().is_none_or(SendRequest::is_closed) {
                let stream = TcpStream::connect(self.address).await.unwrap();
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                self.sender = Some(sender);
            }
            let sender = self.sender.as_mut().unwrap();
            if sender.ready().await.is_ok()
                && let Ok(response) = sender.send_request(request_of(request)).await
            {
                return outcome(response).await;
            }
            self.sender = None;
        }
        panic!("no response from {} for {request:?}", self.address);
    }
}

fn request_of(request: &TableRequest) -> Request<Empty<Bytes>> {
    let mut built =
        Request::builder().method(request.method).uri(&request.target).header("host", request.host);
    if let Some(value) = request.header {
        built = built.header("x-a", value);
    }
    built.body(Empty::new()).unwrap()
}

/// Returns the backend with the path that it received, the redirection, or the status code.
async fn outcome(response: Response<Incoming>) -> String {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    match (header("x-backend"), header("location")) {
        (Some(backend), _) => {
            let body = String::from_utf8_lossy(&body);
            let target = body.lines().next().unwrap_or_default().split(' ').nth(1).unwrap_or_default();
            format!("{backend} {target}")
        }
        (None, Some(location)) => format!("{} {location}", parts.status.as_u16()),
        (None, None) => parts.status.as_u16().to_string(),
    }
}

/// Returns the objects of tables: a Gateway for each, with an HttpRoute for each rule, and the Services.
fn objects(tables: &[RouteTable], sockets: &[TableSockets], backends: &[u16]) -> Vec<Arc<Object>> {
    let mut objects: Vec<_> = backends
        .iter()
        .enumerate()
        .flat_map(|(number, port)| service(&format!("backend-{number}"), &[*port]))
        .collect();
    for (number, (table, sockets)) in tables.iter().zip(sockets).enumerate() {
        let listeners = json!([{"name": "http", "port": sockets.gateway.port(), "protocol": "HTTP"}]);
        objects.push(object("Gateway", &format!("table-{number}"), &json!({"listeners": listeners})));
        for (index, rule) in table.rules.iter().enumerate() {
            let metadata = json!({"name": format!("table-{number}-rule-{index}"), "namespace": "default"});
            let spec = rule.http_route(&format!("table-{number}"));
            objects.push(decode(json!({"kind": "HttpRoute", "metadata": metadata, "spec": spec}), index));
        }
    }
    objects
}

/// Waits until a socket accepts connections.
async fn wait_open(address: SocketAddr, log: &Path) {
    let begun = Instant::now();
    while TcpStream::connect(address).await.is_err() {
        let log = || fs::read_to_string(log).unwrap_or_default();
        assert!(begun.elapsed() < PATIENCE, "{address} is closed: {}", log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Compares the responses to the requests of one run. Returns the number of each kind of outcome.
async fn run(seed: u64) -> BTreeMap<String, usize> {
    let mut pick = Pick::new(seed);
    // Tables with an even number have conditions for host names and paths alone, for which nginx has a precedence of its own.
    let tables: Vec<_> = (0..TABLES).map(|number| RouteTable::random(&mut pick, number % 2 == 0)).collect();
    let mut backends = Vec::new();
    for number in 0..BACKENDS {
        backends.push(start_echo(format!("backend-{number}"), RowLog::default()).await);
    }
    let sockets: Vec<_> = (0..TABLES).map(|table| TableSockets::new(seed, table)).collect();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    fs::write(file("haproxy.cfg"), haproxy(&tables, &sockets, &backends)).unwrap();
    fs::write(file("nginx.conf"), nginx(&tables, &sockets, &backends, directory.path())).unwrap();
    let (haproxy_log, nginx_log) = (directory.path().join("haproxy.log"), directory.path().join("nginx.log"));
    let _haproxy = PeerProcess::start("haproxy", &["-db", "-f", &file("haproxy.cfg")], &haproxy_log);
    let arguments = ["-p", &file(""), "-e", "stderr", "-c", &file("nginx.conf")];
    let _nginx = PeerProcess::start("nginx", &arguments, &nginx_log);
    let snapshot = Snapshot::from_objects(Revision(1), objects(&tables, &sockets, &backends));
    let certificates = watch::channel(Arc::new(CertificateRing::default())).1;
    let gateway = TestGateway::serve(snapshot, sockets[0].gateway, certificates, HANDSHAKE_TIMES).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (table, sockets) in tables.iter().zip(&sockets) {
        wait_open(sockets.gateway, &nginx_log).await;
        wait_open(sockets.haproxy, &haproxy_log).await;
        wait_open(sockets.nginx, &nginx_log).await;
        let mut clients = [sockets.gateway, sockets.haproxy, sockets.nginx].map(PeerClient::new);
        for _ in 0..REQUESTS {
            let request = TableRequest::random(&mut pick);
            let [gateway, haproxy, nginx] = &mut clients;
            let own = gateway.send(&request).await;
            for (name, other) in
                [("HAProxy", haproxy.send(&request).await), ("nginx", nginx.send(&request).await)]
            {
                assert_eq!(own, other, "{name}, TIDEGATE_SEED={seed}: {request:?} {:?}", table.sorted());
            }
            *counts.entry(own.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    gateway.front.end.stop.cancel();
    counts
}

/// F141 F142: HAProxy and nginx choose the same backend, path and redirection for each request as the gateway, with the same routes.
#[tokio::test]
async fn f141_f142_haproxy_and_nginx_respond_alike() {
    let variable = |name: &str| std::env::var(name).ok();
    let seeds =
        match (variable("TIDEGATE_SEED").and_then(|seed| seed.parse().ok()), variable("TIDEGATE_SOAK")) {
            (Some(seed), _) => seed..seed + 1,
            (None, Some(_)) => 0..SOAK_RUNS,
            (None, None) => 0..1,
        };
    for seed in seeds {
        let counts = run(seed).await;
        // Each kind of outcome is compared, and not only failures.
        let count = |name: &str| counts.get(name).copied().unwrap_or_default();
        let forwarded: usize = (0..BACKENDS).map(|number| count(&format!("backend-{number}"))).sum();
        let redirected = count("302") + count("301") + count("308");
        assert!(forwarded > 100 && redirected > 0 && count("404") > 0, "{counts:?}");
        assert_eq!(counts.values().sum::<usize>(), TABLES * REQUESTS, "{counts:?}");
    }
}
