//! Conformance tests of the Gateway API as rows: each request goes through the sockets of a gateway to an endpoint on this
//! machine, over HTTP/1.1 and HTTP/2. `model/tests/it/http/conformance.rs` compares the same rows with the decisions of the
//! model. A page in `docs/reference/` lists all tests with their results.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt::Write as _,
    future::Future,
    net::{IpAddr, Ipv4Addr},
    sync::Mutex,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use model::{http::normalize_host, wire::certificate_keys::CertificateKeyList};
use rcgen::{CertificateParams, KeyPair};
use reference_pages::golden;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::{secure::HANDSHAKE_TIMES, *};
use crate::keys::RingBuilder;

const OBJECTS: &str = include_str!("../../../../model/tests/http/objects.json");
const CASES: &str = include_str!("../../../../model/tests/http/cases.json");
const TLS_CASES: &str = include_str!("../../../../model/tests/http/tls_cases.json");
const UPSTREAM: &str = include_str!("../../../../model/tests/http/upstream.txt");

/// Protocols over which each request is sent.
const PROTOCOLS: [&str; 2] = ["http/1.1", "h2"];

/// Request of a row: `[METHOD ][https://][HOST]/PATH[?QUERY][ port=PORT][ sni=NAME][ HEADER:VALUE]…`.
#[derive(Clone)]
struct RowRequest {
    method: String,
    host: String,
    port: u16,
    server_name: Option<String>,
    target: String,
    headers: Vec<(String, String)>,
}

impl RowRequest {
    fn parse(text: &str, port: u16) -> Self {
        let mut words = text.split(' ').peekable();
        let has_method = words.peek().is_some_and(|word| word.bytes().all(|c| c.is_ascii_uppercase()));
        let method = if has_method { words.next().unwrap() } else { "GET" };
        let target = words.next().unwrap();
        let secure = target.strip_prefix("https://");
        let (host, path) = secure.unwrap_or(target).split_at(secure.unwrap_or(target).find('/').unwrap());
        let host = if host.is_empty() { "gateway.test" } else { host };
        let mut request = Self {
            method: method.to_owned(),
            host: host.to_owned(),
            port: if secure.is_some() { 443 } else { port },
            server_name: secure.and_then(|_| normalize_host(host)),
            target: path.to_owned(),
            headers: Vec::new(),
        };
        for word in words {
            if let Some(port) = word.strip_prefix("port=") {
                request.port = port.parse().unwrap();
            } else if let Some(name) = word.strip_prefix("sni=") {
                request.server_name = Some(name.to_owned());
            } else {
                let (name, value) = word.split_once(':').unwrap();
                request.headers.push((name.to_ascii_lowercase(), value.to_owned()));
            }
        }
        request
    }

    fn request(&self, protocol: &str) -> Request<Empty<Bytes>> {
        let is_h1 = protocol == "http/1.1";
        let uri: Uri = match is_h1 {
            true => self.target.parse().unwrap(),
            false => {
                let scheme = if self.server_name.is_some() { "https" } else { "http" };
                format!("{scheme}://{}{}", self.host, self.target).parse().unwrap()
            }
        };
        let mut request = Request::builder().method(self.method.as_str()).uri(uri);
        if is_h1 {
            request = request.header("host", &self.host);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Empty::new()).unwrap()
    }
}

/// Names of Services with the numbers of the rows whose requests or copies their endpoints have received.
pub(super) type RowLog = Arc<Mutex<BTreeSet<(String, String)>>>;

/// Numbers of the requests that endpoints have received for each row.
static ATTEMPTS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Header with the number of a row.
const ROW: &str = "x-row";

/// Response of a row: that of an endpoint contains the request that it received.
struct RowResponse {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl RowResponse {
    /// Compares the response with `STATUS` or the name of a backend, followed by words: `path=…`, `host=…`, `mirror=…`, which
    /// is compared elsewhere, an address of a redirection, `>NAME:VALUE` and `>!NAME` for headers of the forwarded request, `<NAME:VALUE` and `<!NAME` for those
    /// of the response. Values are compared without spaces.
    fn check(&self, request: &RowRequest, expected: &str) -> Result<(), String> {
        let mut words = expected.split(' ');
        let first = words.next().unwrap_or_default();
        let backend = self.headers.get("x-backend").map(|value| value.to_str().unwrap());
        let own = self.status.to_string();
        let found = backend.filter(|_| self.status == 200).unwrap_or(&own);
        if found != first {
            return Err(format!("{found}, not {first}"));
        }
        let mut head = self.body.lines();
        let path = head.next().unwrap_or_default().split(['?', ' ']).nth(1).unwrap_or_default();
        let received: BTreeMap<_, _> = head.filter_map(|line| line.split_once(": ")).collect();
        let original = request.target.split('?').next().unwrap_or_default();
        let mut wanted_path = backend.is_some().then_some(original);
        for word in words {
            let is_met = if let Some(path) = word.strip_prefix("path=") {
                wanted_path = Some(path);
                true
            } else if word.starts_with("mirror=") {
                true
            } else if let Some(host) = word.strip_prefix("host=") {
                received.get("host") == Some(&host)
            } else if let Some(header) = word.strip_prefix('>') {
                has(header, |name| received.get(name).map(|value| (*value).to_owned()))
            } else if let Some(header) = word.strip_prefix('<') {
                has(header, |name| {
                    let values = self.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
                    let values: Vec<_> = values.collect();
                    (!values.is_empty()).then(|| values.join(","))
                })
            } else {
                self.headers.get("location").is_some_and(|value| value == word)
            };
            if !is_met {
                return Err(format!("not {word}: {:?} {}", self.headers, self.body));
            }
        }
        match wanted_path {
            Some(wanted) if wanted != path => Err(format!("path {path}, not {wanted}")),
            Some(_) | None => Ok(()),
        }
    }
}

fn has(header: &str, value_of: impl Fn(&str) -> Option<String>) -> bool {
    match header.strip_prefix('!') {
        Some(name) => value_of(name).is_none(),
        None => {
            let (name, wanted) = header.split_once(':').unwrap();
            value_of(name).is_some_and(|value| value.replace(' ', "") == wanted)
        }
    }
}

/// Starts an endpoint of a Service, which answers with its name and the head of the request, and returns its port. The header
/// `x-echo-set-header` of a request, `NAME=VALUE,…`, adds headers to the response, and the query delays it
/// or lets the first attempts of a row fail.
pub(super) async fn start_echo(name: String, received: RowLog) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (name, received) = (name.clone(), Arc::clone(&received));
            let service = service_fn(move |request| echo(name.clone(), Arc::clone(&received), request));
            tokio::spawn(async move {
                let server = Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

async fn echo(
    name: String,
    received: RowLog,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let uri = request.uri();
    if let Some(row) = request.headers().get(ROW).and_then(|row| row.to_str().ok()) {
        received.lock().unwrap().insert((name.clone(), row.to_owned()));
    }
    let attempt = {
        let mut attempts = ATTEMPTS.lock().unwrap();
        let row = request.headers().get(ROW).and_then(|row| row.to_str().ok()).unwrap_or_default();
        let count = attempts.entry(row.to_owned()).or_insert(0_usize);
        *count += 1;
        *count
    };
    // `delay=MILLISECONDS`, or `FAILURE,COUNT` for the first attempts: a status code, or a delay that ends with `ms`.
    let (failure, count) = uri.query().and_then(|query| query.split_once(',')).unwrap_or(("0", "0"));
    let is_failing = attempt <= count.parse().unwrap();
    let delay = uri.query().and_then(|query| query.strip_prefix("delay="));
    if let Some(delay) = delay.or_else(|| failure.strip_suffix("ms").filter(|_| is_failing)) {
        tokio::time::sleep(Duration::from_millis(delay.parse().unwrap())).await;
    }
    if let Some(code) = failure.parse::<u16>().ok().filter(|_| is_failing) {
        return Ok(Response::builder().status(code).body(Full::default()).unwrap());
    }
    let version = request.version();
    let mut text =
        format!("{} {}\nreceived-version: {version:?}\n", request.method(), uri.path_and_query().unwrap());
    if let Some(authority) = uri.authority() {
        let _ = writeln!(text, "host: {authority}");
    }
    for name in request.headers().keys() {
        let values = request.headers().get_all(name).iter().filter_map(|one| one.to_str().ok());
        let _ = writeln!(text, "{name}: {}", values.collect::<Vec<_>>().join(","));
    }
    let mut response = Response::new(Full::new(text.into()));
    let added = request.headers().get("x-echo-set-header").and_then(|value| value.to_str().ok());
    for (name, value) in
        added.into_iter().flat_map(|all| all.split(',')).filter_map(|one| one.split_once('='))
    {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        response.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
    }
    response.headers_mut().insert("x-backend", HeaderValue::from_str(&name).unwrap());
    Ok(response)
}

/// Sends a request over a connection of its own.
async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>, protocol: &str) -> hyper::Result<RowResponse>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = TokioIo::new(stream);
    if protocol == "h2" {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        finish(connection, sender.send_request(request)).await
    } else {
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        finish(connection, sender.send_request(request)).await
    }
}

async fn finish<E>(
    connection: impl Future<Output = E> + Send + 'static,
    sent: impl Future<Output = hyper::Result<Response<Incoming>>>,
) -> hyper::Result<RowResponse>
where
    E: Send + 'static,
{
    let connection = tokio::spawn(connection);
    let (parts, body) = sent.await?.into_parts();
    let body = body.collect().await?.to_bytes();
    connection.abort();
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(RowResponse { status: parts.status.as_u16(), headers: parts.headers, body })
}

/// Gateway with the Gateways of the cases, and one endpoint of each Service.
struct ConformanceStage {
    gateway: TestGateway,
    base: Vec<Arc<Object>>,
    tls: TlsConnectors,
    received: RowLog,
}

/// Clients that trust the certificate of the gateway, by protocol.
type TlsConnectors = BTreeMap<&'static str, TlsConnector>;

/// Decodes an object, which is younger than those with lower numbers.
pub(super) fn decode(mut object: Value, number: usize) -> Arc<Object> {
    object["apiVersion"] = "tidegate/v1".into();
    object["metadata"]["creationTimestamp"] =
        format!("2026-01-01T00:{:02}:{:02}Z", number / 60, number % 60).into();
    Arc::new(decode_received(&object).unwrap_or_else(|found| panic!("{object}: {found:?}")))
}

impl ConformanceStage {
    async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let names = ["example.org", "second-example.org", "unknown-example.org", "*.wildcard.org"];
        let certificate =
            CertificateParams::new(names.map(str::to_owned)).unwrap().self_signed(&key).unwrap();
        let pem = certificate.pem();
        let mut objects: Vec<Value> = serde_json::from_str(OBJECTS).unwrap();
        let metadata = json!({"namespace": "infra", "name": "tls"});
        objects.push(json!({"kind": "Certificate", "metadata": metadata, "spec": {"certificate": pem}}));
        let received = RowLog::default();
        for object in &mut objects {
            if object["kind"] == "EndpointSet" {
                let name = object["spec"]["service"].as_str().unwrap().to_owned();
                let port = start_echo(name, Arc::clone(&received)).await;
                object["spec"]["ports"] = json!([{"port": port}]);
                object["spec"]["endpoints"] = json!([{"address": "127.0.0.1"}]);
            }
        }
        let base: Vec<_> = objects.into_iter().enumerate().map(|(number, one)| decode(one, number)).collect();
        let keys = json!([{"namespace": "infra", "name": "tls", "certificate": pem, "privateKey": key.serialize_pem()}]);
        let list: CertificateKeyList = serde_json::from_value(json!({"revision": 1, "keys": keys})).unwrap();
        let ring = RingBuilder::new(Arc::new(Metrics::default())).ring(&list);
        let certificates = watch::channel(Arc::new(ring)).1;
        // The ports of the listeners are those of the cases, at an address that no other process uses.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = SocketAddr::from((IpAddr::from([127, 64 | (high & 63), middle, low]), 443));
        let snapshot = Snapshot::from_objects(Revision(1), base.iter().cloned());
        let gateway = TestGateway::serve(snapshot, address, certificates, HANDSHAKE_TIMES).await;
        let tls = connectors(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
        Self { gateway, base, tls, received }
    }

    /// Replaces the routes by those of a case.
    fn set_case(&self, case: &Value) {
        let parent = case["parent"].as_str().unwrap_or("same-namespace");
        let routes = case["routes"].as_array().unwrap().iter().enumerate();
        let routes =
            routes.map(|(number, spec)| decode(route_of(&format!("route-{number}"), parent, spec), number));
        let snapshot = Snapshot::from_objects(Revision(1), self.base.iter().cloned().chain(routes));
        let state = HttpState::new(Arc::new(BTreeSet::new()), snapshot);
        self.gateway.states.send_replace(Some(Arc::new(state)));
    }

    async fn send(&self, row: &RowRequest, protocol: &str) -> hyper::Result<RowResponse> {
        let address = SocketAddr::new(self.gateway.address.ip(), row.port);
        let stream = TcpStream::connect(address).await.unwrap();
        let request = row.request(protocol);
        let Some(name) = &row.server_name else { return exchange(stream, request, protocol).await };
        let name = ServerName::try_from(name.clone()).unwrap();
        let stream = self.tls[protocol].connect(name, stream).await.unwrap();
        exchange(stream, request, protocol).await
    }
}

/// Returns the clients that trust a certificate.
fn connectors(root: &CertificateDer<'static>) -> TlsConnectors {
    let connector = |protocol: &'static str| {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        (protocol, TlsConnector::from(Arc::new(config)))
    };
    PROTOCOLS.map(connector).into()
}

/// Returns the HttpRoute of a case, which names the Gateway `parent` unless it has parents of its own.
fn route_of(name: &str, parent: &str, spec: &Value) -> Value {
    let mut reference = json!({"name": parent});
    if let Some(section) = spec.get("section") {
        reference["sectionName"] = section.clone();
    }
    let parents = spec.get("parents").cloned().unwrap_or_else(|| json!([reference]));
    let hostnames = spec.get("hostnames").cloned().unwrap_or_else(|| json!([]));
    let namespace = spec.get("namespace").and_then(Value::as_str).unwrap_or("infra");
    json!({
        "kind": "HttpRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": parents, "hostnames": hostnames, "rules": spec["rules"]},
    })
}

/// Returns the rows of a case: those of the table, and those that only a gateway can meet.
fn rows_of(case: &Value) -> impl Iterator<Item = (&str, &str)> {
    let lists = [&case["rows"], &case["wire"]].into_iter().filter_map(Value::as_array);
    lists.flatten().map(|row| (row[0].as_str().unwrap(), row[1].as_str().unwrap()))
}

impl ConformanceStage {
    /// Compares the response to a request, and the receivers of its copies, with an expectation.
    async fn check(
        &self,
        request: &RowRequest,
        response: &RowResponse,
        expected: &str,
    ) -> Result<(), String> {
        response.check(request, expected)?;
        let row = request.headers.iter().find(|(name, _)| name == ROW).map(|(_, row)| row.clone());
        for name in expected.split(' ').filter_map(|word| word.strip_prefix("mirror=")) {
            let key = (name.to_owned(), row.clone().unwrap_or_default());
            let copied = async {
                while !self.received.lock().unwrap().contains(&key) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(2), copied)
                .await
                .map_err(|_| format!("no copy for {name}"))?;
        }
        Ok(())
    }
}

/// F141 F142: each request of the rows gets its response through the sockets of a gateway, in both protocols. Requests that
/// have several rows may get any of their responses.
#[tokio::test]
async fn f141_f142_requests_get_the_responses_of_the_table() {
    let stage = ConformanceStage::start().await;
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut failures = Vec::new();
    let mut number = 0;
    for case in &cases {
        stage.set_case(case);
        let port = u16::try_from(case["port"].as_u64().unwrap_or(80)).unwrap();
        let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (request, expected) in rows_of(case) {
            rows.entry(request).or_default().push(expected);
        }
        for (text, expected) in rows {
            for protocol in PROTOCOLS {
                number += 1;
                let mut request = RowRequest::parse(text, port);
                request.headers.push((ROW.to_owned(), number.to_string()));
                let response = stage.send(&request, protocol).await;
                let response = response.unwrap_or_else(|error| panic!("{text} ({protocol}): {error:?}"));
                let mut outcomes = Vec::new();
                for one in &expected {
                    outcomes.push(stage.check(&request, &response, one).await);
                }
                if outcomes.iter().all(Result::is_err) {
                    failures.push(format!("{} ({protocol}): {text}: {outcomes:?}", case["name"]));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const HEAD: &str = "\
<!-- Written by `UPDATE_GOLDEN=1 cargo test -p gateway conformance`; the suite fails when it differs. -->

# Conformance with the Gateway API

Result of each conformance test of the [Gateway API](https://gateway-api.sigs.k8s.io/) (`conformance/tests` of its repository at
commit 4564255, without the tests of meshes). The suite itself needs a Kubernetes cluster, so its assertions are rows in
`model/tests/http/cases.json`: a request and the expected backend, status code, redirection or headers. Each row is compared with
the decision of the routing table, and then sent through the sockets of a gateway over HTTP/1.1 and HTTP/2, with TLS where the test
has it. The rows of TLSRoutes are in `model/tests/http/tls_cases.json`: a port and a server name, and the endpoint that answers or the
alert of TLS. Conditions in statuses are compared with the stored objects. For objects of a cluster that have no counterpart in Tidegate,
the rows are in `sync/tests/kubernetes/gateway_conformance.yaml`: they go through the translation of the Kubernetes adapter, and are
compared with decisions and with the conditions that it writes.

| result | meaning |
|---|---|
| pass | all rows are met, or another test, which is named, proves the same |
| partial | rows are met for the supported part |
| no | not supported, for the given reason |
";

/// Each conformance test of the Gateway API has rows, the name of a test that proves the same, or a reason. The page with the
/// results is current.
#[test]
fn every_conformance_test_has_a_row_on_the_page() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &cases {
        *rows.entry(case["name"].as_str().unwrap()).or_default() += rows_of(case).count();
    }
    let tls_cases: Value = serde_json::from_str(TLS_CASES).unwrap();
    for case in tls_cases["cases"].as_array().unwrap() {
        *rows.entry(case["name"].as_str().unwrap()).or_default() += rows_of(case).count();
    }
    let mut page = HEAD.to_owned();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in UPSTREAM.lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            let _ = write!(page, "\n## {title}\n\n| test | result | proof or reason |\n|---|---|---|\n");
            continue;
        }
        let (name, rest) = line.split_once(": ").unwrap_or((line, ""));
        let of_rows = rows.remove(name).map(|count| format!("{count} rows"));
        let (result, text) = match (of_rows, rest.split_once(' ')) {
            (Some(rows), None) if rest.is_empty() => ("pass", rows),
            (Some(rows), Some(("partial", reason))) => ("partial", format!("{rows}; {reason}")),
            (None, Some((result @ ("pass" | "no"), text))) => (result, text.to_owned()),
            (of_rows, _) => panic!("{name} needs rows or a reason: {of_rows:?} {rest:?}"),
        };
        *counts.entry(result).or_default() += 1;
        let _ = writeln!(page, "| {name} | {result} | {text} |");
    }
    assert!(rows.is_empty(), "not in upstream.txt: {rows:?}");
    let summary: Vec<_> = counts.iter().map(|(result, count)| format!("{count} {result}")).collect();
    let _ = writeln!(page, "\n{} tests: {}.", counts.values().sum::<usize>(), summary.join(", "));
    golden::check("gateway-api-conformance.md", &page).unwrap();
}
