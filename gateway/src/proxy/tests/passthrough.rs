//! Connections that TlsRoutes forward, through the sockets of a gateway: the rows of `model/tests/http/tls_cases.json`, clients
//! without a server name or with other protocols, long first messages, and endpoints that refuse connections.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use model::wire::certificate_keys::CertificateKeyList;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{secure::HANDSHAKE_TIMES, *};
use crate::keys::RingBuilder;

const CASES: &str = include_str!("../../../../model/tests/http/tls_cases.json");
/// Names of the certificates of the endpoints.
const NAMES: [&str; 4] = ["abc.example.com", "other.example.com", "tls.example.com", "www.example.com"];

/// Certificate with its private key.
struct TestIdentity {
    certificate: String,
    key: String,
}

impl TestIdentity {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(NAMES.map(str::to_owned)).unwrap().self_signed(&key).unwrap();
        Self { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Answers a line with the name of the endpoint and the line.
async fn answer(name: String, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    stream.write_all(format!("{name} {line}").as_bytes()).await?;
    stream.shutdown().await
}

/// Starts an endpoint with TLS, or with plain TCP without a certificate, and returns its port.
async fn start_endpoint(name: String, pair: Option<&TestIdentity>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = pair.map(|pair| {
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(vec![pair.der()], key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (name, acceptor) = (name.clone(), acceptor.clone());
            tokio::spawn(async move {
                match acceptor {
                    Some(acceptor) => answer(name, acceptor.accept(stream).await?).await,
                    None => answer(name, stream).await,
                }
            });
        }
    });
    port
}

/// Gateway with the Gateways of the cases, and one endpoint of each Service.
struct PassthroughStage {
    gateway: TestGateway,
    base: Vec<Arc<Object>>,
    /// Certificates of the endpoints and of the gateway.
    endpoints: TestIdentity,
    own: TestIdentity,
    cases: Value,
}

impl PassthroughStage {
    async fn start() -> Self {
        let (endpoints, own) = (TestIdentity::new(), TestIdentity::new());
        let mut cases: Value = serde_json::from_str(CASES).unwrap();
        let mut base = vec![object("Certificate", "tls", &json!({"certificate": own.certificate}))];
        for one in cases["objects"].as_array_mut().unwrap() {
            if one["kind"] == "EndpointSet" {
                let name = one["spec"]["service"].as_str().unwrap().to_owned();
                let pair = name.starts_with("tls").then_some(&endpoints);
                one["spec"]["ports"] = json!([{"port": start_endpoint(name, pair).await}]);
                one["spec"]["endpoints"] = json!([{"address": "127.0.0.1"}]);
            }
            base.push(object(
                one["kind"].as_str().unwrap(),
                one["metadata"]["name"].as_str().unwrap(),
                &one["spec"],
            ));
        }
        let keys = json!([{"namespace": "default", "name": "tls", "certificate": own.certificate, "privateKey": own.key}]);
        let list: CertificateKeyList = serde_json::from_value(json!({"revision": 1, "keys": keys})).unwrap();
        let ring = RingBuilder::new(Arc::new(Metrics::default())).ring(&list);
        // The ports of the listeners are those of the cases, at an address that no other process uses.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        // Tests of one process run at the same time.
        static STAGES: AtomicUsize = AtomicUsize::new(0);
        let block = [64, 128, 192][STAGES.fetch_add(1, Ordering::Relaxed) % 3];
        let address = SocketAddr::from(([127, block | (high & 63), middle, low], 9008));
        let snapshot = Snapshot::from_objects(Revision(1), base.iter().cloned());
        let certificates = watch::channel(Arc::new(ring)).1;
        let gateway = TestGateway::serve(snapshot, address, certificates, HANDSHAKE_TIMES).await;
        Self { gateway, base, endpoints, own, cases }
    }

    fn set_routes(&self, routes: impl Iterator<Item = Arc<Object>>) {
        let snapshot = Snapshot::from_objects(Revision(1), self.base.iter().cloned().chain(routes));
        let state = HttpState::new(Arc::new(BTreeSet::new()), snapshot);
        self.gateway.states.send_replace(Some(Arc::new(state)));
    }

    async fn open(&self, port: u16) -> TcpStream {
        // The gateway begins to listen shortly after it has received the state.
        for _ in 0..200 {
            match TcpStream::connect(SocketAddr::new(self.gateway.address.ip(), port)).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                outcome => return outcome.unwrap(),
            }
        }
        panic!("the gateway does not listen at port {port}")
    }

    /// Connects with TLS, and returns the name of the endpoint that answers a line, or the alert. `trusted` is the certificate
    /// that the client accepts.
    async fn exchange(&self, port: u16, name: &str, trusted: &TestIdentity) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der()).unwrap();
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        config.enable_sni = !name.is_empty();
        // Of a protocol that gateways do not know.
        config.alpn_protocols = vec![b"imap".to_vec()];
        let server = ServerName::try_from(if name.is_empty() { NAMES[0] } else { name }.to_owned()).unwrap();
        let stream = self.open(port).await;
        let mut stream = match TlsConnector::from(Arc::new(config)).connect(server, stream).await {
            Ok(stream) => stream,
            Err(error) => return alert(&error),
        };
        stream.write_all(b"hello\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text.strip_suffix(" hello\n").unwrap_or(&text).to_owned()
    }
}

/// Returns the alert that an error of a handshake contains, as the standard names it.
fn alert(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase().replace(' ', "");
    for (word, name) in [
        ("unrecogni", "unrecognized_name"),
        ("internalerror", "internal_error"),
        ("applicationprotocol", "no_application_protocol"),
    ] {
        if text.contains(word) {
            return name.to_owned();
        }
    }
    text
}

fn tls_route(name: &str, case: &Value) -> Arc<Object> {
    let mut parent = json!({"name": case["parent"]});
    if let Some(section) = case.get("section") {
        parent["sectionName"] = section.clone();
    }
    let backends = case["backends"].as_array().unwrap().iter().map(|text| {
        let (name, port) = text.as_str().unwrap().split_once(':').unwrap();
        json!({"name": name, "port": port.parse::<u16>().unwrap()})
    });
    let backends: Vec<_> = backends.collect();
    let spec =
        json!({"parentRefs": [parent], "hostnames": case["hostnames"], "rules": [{"backendRefs": backends}]});
    object("TlsRoute", name, &spec)
}

/// F141 F144: each row gets its endpoint or alert. Endpoints with TLS show their own certificate, and those behind a listener that
/// terminates TLS receive plain bytes. A port may have both, and HTTPS.
#[tokio::test]
async fn f141_f144_connections_reach_the_endpoints_of_the_table() {
    let stage = PassthroughStage::start().await;
    let mut failures = Vec::new();
    for case in stage.cases["cases"].as_array().unwrap() {
        let routes = case["routes"].as_array().unwrap().iter().enumerate();
        stage.set_routes(routes.map(|(number, one)| tls_route(&format!("route-{number}"), one)));
        for row in case["rows"].as_array().unwrap() {
            let (text, expected) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
            let (port, name) = text.split_once(' ').unwrap_or((text, ""));
            // The gateway does not know the protocol of the client, so that a listener for requests rejects it.
            let expected = if expected == "requests" { "no_application_protocol" } else { expected };
            let trusted = if expected == "tcp-backend" { &stage.own } else { &stage.endpoints };
            let found = stage.exchange(port.parse().unwrap(), name, trusted).await;
            if found != expected {
                failures.push(format!("{}: {text}: {found}, not {expected}", case["name"]));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let metrics = stage.gateway.front.metrics.text();
    for line in [
        r#"tidegate_gateway_connections_closed_total{reason="NoTlsRoute"}"#,
        r#"tidegate_gateway_connections_closed_total{reason="NoEndpoint"}"#,
        r#"tidegate_gateway_tls_connections_total{route="default/route-0"}"#,
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// Clients that send no TLS, stop in the middle of the first message, or send it byte by byte: the first two are closed within the
/// time for a head, and the last one is served. An endpoint that refuses the connection gives an alert.
#[tokio::test]
async fn first_messages_are_bounded_and_may_be_slow() {
    let stage = PassthroughStage::start().await;
    let dead = free_port().await;
    let set = json!({"service": "empty", "ports": [{"port": dead}], "endpoints": [{"address": "127.0.0.1"}]});
    let routes = [
        tls_route(
            "a",
            &json!({"parent": "any", "hostnames": ["abc.example.com"], "backends": ["tls-backend:443"]}),
        ),
        tls_route(
            "b",
            &json!({"parent": "any", "hostnames": ["other.example.com"], "backends": ["empty:443"]}),
        ),
        object("EndpointSet", "empty", &set),
    ];
    stage.set_routes(routes.into_iter());
    for text in [
        &b"GET / HTTP/1.1\r\nHost: abc.example.com\r\n\r\n"[..],
        &[22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3],
        &[0; 100],
    ] {
        let mut stream = stage.open(9004).await;
        stream.write_all(text).await.unwrap();
        let mut rest = Vec::new();
        // The connection may be reset, because bytes that were not read are left.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{text:?}: {rest:?}");
    }
    assert_eq!(stage.exchange(9004, "other.example.com", &stage.endpoints).await, "internal_error");

    // A relay between client and gateway that passes one byte at a time.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let slow = listener.local_addr().unwrap();
    let target = SocketAddr::new(stage.gateway.address.ip(), 9004);
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let gateway = TcpStream::connect(target).await.unwrap();
        gateway.set_nodelay(true).unwrap();
        let ((mut from, mut to), (mut back, mut into)) = (client.into_split(), gateway.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut back, &mut to).await });
        let mut byte = [0];
        while from.read(&mut byte).await.unwrap() > 0 {
            into.write_all(&byte).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(stage.endpoints.der()).unwrap();
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("abc.example.com").unwrap();
    let stream = TcpStream::connect(slow).await.unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    stream.write_all(b"slow\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "tls-backend slow\n");
}
