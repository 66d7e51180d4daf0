//! Tests of TLS over real sockets: protocols, authentication, enrollment, and confidentiality.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test may fail")]

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use api::{
    CertificateFiles, Tls, TlsOptions,
    base::{
        clock_and_random::{Source, System},
        config::{Hosts, tls::TlsMin},
    },
    context::server_state::ServerState,
    server::{serve::serve, start::Running},
};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use model::primitives::quantity::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, crypto::ring, version};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use store::Store;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::support;

mod expired;
mod names;
mod presented;
mod rotation;

/// Time limit for changes by background tasks on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clock that differs from the system clock by an offset in seconds.
#[derive(Default)]
struct Shifted(AtomicI64);

impl Source for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_seconds(System.now().unix_seconds() + self.0.load(Ordering::SeqCst))
    }

    fn seed(&self) -> u64 {
        System.seed()
    }

    fn secret(&self) -> [u8; 32] {
        System.secret()
    }
}

/// HTTPS server on a loopback port.
struct Server {
    address: SocketAddr,
    running: Running,
    source: Arc<Shifted>,
    store: Arc<dyn Store>,
    stop: CancellationToken,
    /// CA certificates that the clients of this server trust.
    roots: Vec<CertificateDer<'static>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.stop_streams();
        self.stop.cancel();
    }
}

fn own() -> TlsOptions {
    let names = vec![ServerName::try_from("localhost").unwrap()];
    TlsOptions {
        names,
        files: None,
        min: TlsMin::V1_3,
        agent_life_secs: 86_400,
        agent_renewal_grace_secs: 30 * 86_400,
    }
}

async fn start(tls: TlsOptions) -> Server {
    let source = Arc::new(Shifted::default());
    let store = store::open("memory:", source.now()).await.unwrap();
    start_on(tls, store, source).await
}

async fn start_on(tls: TlsOptions, store: Arc<dyn Store>, source: Arc<Shifted>) -> Server {
    log();
    let mut settings = support::settings(30000..=32767);
    (settings.tls, settings.hosts) = (Some(tls), Hosts::Any);
    let running = ServerState::start(settings, Arc::clone(&store), source.clone()).await.unwrap();
    let tls = Tls::start(&running.app).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, Arc::clone(&running.app), Some(tls), stop.clone()));
    let record: Value = serde_json::from_slice(&store.vault().await.unwrap()["ca/current"].body).unwrap();
    let pem = record["certificate"].as_str().unwrap();
    let roots = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
    Server { address, running, source, store, stop, roots }
}

/// Certificate chain that a client presents, and its private key.
type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

async fn connect(
    address: SocketAddr,
    roots: &[CertificateDer<'static>],
    shown: Option<&Shown>,
    versions: &[&'static SupportedProtocolVersion],
) -> io::Result<TlsStream<TcpStream>> {
    let mut store = RootCertStore::empty();
    roots.iter().for_each(|root| store.add(root.clone()).unwrap());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(store);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config.with_client_auth_cert(chain.clone(), key.clone_key()).unwrap(),
    };
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

impl Server {
    async fn connect(&self, shown: Option<&Shown>) -> io::Result<TlsStream<TcpStream>> {
        connect(self.address, &self.roots, shown, &[&version::TLS13]).await
    }

    async fn try_call(
        &self,
        shown: Option<&Shown>,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> io::Result<(u16, String)> {
        exchange(self.connect(shown).await?, method, path, body).await
    }

    async fn call(
        &self,
        shown: Option<&Shown>,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let (status, text) = self.try_call(shown, method, path, body).await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn token(&self, request: Value) -> String {
        let (status, made) = self.call(None, "POST", "/v1/jointokens", Some(request)).await;
        assert_eq!(status, 201, "{made}");
        made["token"].as_str().unwrap().to_owned()
    }

    async fn enrol(&self, token: &str, node: &str, csr: &str) -> (u16, Value) {
        let body = json!({ "token": token, "node": node, "csr": csr });
        self.call(None, "POST", "/v1/enrol", Some(body)).await
    }

    /// Enrolls a machine with a new join token. Returns the certificate chain and the private key of the node.
    async fn join(&self, node: &str) -> Shown {
        let token = self.token(json!({ "node": node })).await;
        let (key, csr) = request(|_| {});
        let (status, answer) = self.enrol(&token, node, &csr).await;
        assert_eq!(status, 200, "{answer}");
        shown(&answer, &key)
    }
}

async fn exchange(
    stream: TlsStream<TcpStream>,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> io::Result<(u16, String)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.header("content-type", "application/json");
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let response = sender.send_request(request.body(body).unwrap()).await.map_err(io::Error::other)?;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

fn request(change: impl FnOnce(&mut CertificateParams)) -> (KeyPair, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    change(&mut params);
    let csr = params.serialize_request(&key).unwrap().pem().unwrap();
    (key, csr)
}

fn shown(answer: &Value, key: &KeyPair) -> Shown {
    let pem = answer["certificate"].as_str().unwrap();
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap();
    (chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

/// Creates a CA that the cluster does not trust, and two certificates that it signs: one for a node, one for
/// localhost.
fn foreign(uri: &str) -> (CertificateDer<'static>, Shown, [String; 2]) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, format!("authority of {uri}"));
    let root = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    if !uri.is_empty() {
        leaf.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    }
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let pems = [leaf.pem() + &root.pem(), key.serialize_pem()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    (root.der().clone(), (vec![leaf.der().clone()], key), pems)
}

/// Log output of this process, collected in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let begin = || {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_env_filter("trace,rustls=debug,hyper=info,h2=info,sqlx=info")
            .with_writer(move || writer.clone())
            .init();
        log
    };
    LOG.get_or_init(begin).clone()
}

#[tokio::test]
async fn tls_1_3_is_spoken_and_nothing_older_and_plain_http_is_told_so() {
    let server = start(own()).await;
    let (status, _) = server.call(None, "GET", "/readyz", None).await;
    assert_eq!(status, 200);
    let old = connect(server.address, &server.roots, None, &[&version::TLS12]).await;
    assert!(old.unwrap_err().to_string().contains("ProtocolVersion"), "TLS 1.2 is refused");
    let lenient = start(TlsOptions { min: TlsMin::V1_2, ..own() }).await;
    for version in [&version::TLS12, &version::TLS13] {
        let stream = connect(lenient.address, &lenient.roots, None, &[version]).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version), "as --tls-min 1.2 asks");
    }
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("use https://"), "{answer}");
    let mut noise = TcpStream::connect(server.address).await.unwrap();
    noise.write_all(b"\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    // Closed or reset, but without a response.
    let _end = noise.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn certificates_of_other_authorities_are_believed_by_neither_side() {
    let server = start(own()).await;
    let (other, their_node, _) = foreign("spiffe://tidegate/node/n1");
    let refused = connect(server.address, &[other], None, &[&version::TLS13]).await;
    assert!(refused.unwrap_err().to_string().contains("UnknownIssuer"));
    // The server's rejection arrives with the first response (RFC 8446, 4.4.2.4).
    assert!(server.try_call(Some(&their_node), "GET", "/readyz", None).await.is_err());
    // Agent certificates are valid for client authentication only.
    let node = server.join("n1").await;
    let end = rustls::server::ParsedCertificate::try_from(&node.0[0]);
    assert!(end.is_ok());
    let (status, _) = server.call(Some(&node), "GET", "/readyz", None).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_handshake_that_stalls_keeps_nobody_waiting_and_comes_to_an_end() {
    let server = start(own()).await;
    let mut stalled = Vec::new();
    for number in 0..40 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // Half of them are silent, half begin a handshake.
        if number % 2 == 0 {
            stream.write_all(&[22, 3, 1]).await.unwrap();
        }
        stalled.push(stream);
    }
    let (status, _) = server.call(None, "GET", "/readyz", None).await;
    assert_eq!(status, 200);
    for mut stream in stalled {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "the server ends a handshake that does not go on");
    }
}

#[tokio::test]
async fn certificates_of_the_operator_are_replaced_while_the_server_runs_but_never_by_half() {
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        certificate: folder.path().join("server.pem"),
        key: folder.path().join("server.key"),
    };
    let (first, _, [chain, key]) = foreign("");
    std::fs::write(&files.certificate, chain).unwrap();
    std::fs::write(&files.key, key).unwrap();
    let server = start(TlsOptions { names: Vec::new(), files: Some(files.clone()), ..own() }).await;
    let is_served = async |root: &CertificateDer<'static>| {
        connect(server.address, std::slice::from_ref(root), None, &[&version::TLS13]).await.is_ok()
    };
    assert!(is_served(&first).await);
    // The pin in a token is that of the operator's CA.
    let mut server_trusting = start_copy(&server);
    server_trusting.roots = vec![first.clone()];
    let token = server_trusting.token(json!({})).await;
    let pin = token.rsplit('_').next().unwrap().to_owned();

    // After replacing the certificate without its key, the old pair stays in use, and the log has an error.
    let (second, _, [chain, key]) = foreign("");
    std::fs::write(&files.certificate, chain).unwrap();
    until("the mismatch is in the log", async || {
        let log = String::from_utf8_lossy(&log().0.lock().unwrap()).into_owned();
        log.contains("the old one stays in force")
    })
    .await;
    assert!(is_served(&first).await && !is_served(&second).await);
    std::fs::write(&files.key, key).unwrap();
    until("the new pair is in force", async || is_served(&second).await).await;
    assert!(!is_served(&first).await);
    server_trusting.roots = vec![second];
    let token = server_trusting.token(json!({})).await;
    assert_ne!(token.rsplit('_').next().unwrap(), pin, "tokens pin what is presented");
}

/// Client of a server with CA certificates of its own, which can differ from those of [`Server`].
struct Client {
    address: SocketAddr,
    roots: Vec<CertificateDer<'static>>,
}

fn start_copy(server: &Server) -> Client {
    Client { address: server.address, roots: server.roots.clone() }
}

impl Client {
    async fn token(&self, request: Value) -> String {
        let stream = connect(self.address, &self.roots, None, &[&version::TLS13]).await.unwrap();
        let (status, text) = exchange(stream, "POST", "/v1/jointokens", Some(request)).await.unwrap();
        assert_eq!(status, 201, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["token"].as_str().unwrap().to_owned()
    }
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_machine_joins_once_with_a_token_and_renews_its_certificate_by_itself() {
    let server = start(own()).await;
    let token = server.token(json!({})).await;
    let pin = token.rsplit('_').next().unwrap();
    let fingerprint: String = {
        use sha2::Digest;
        sha2::Sha256::digest(&server.roots[0]).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    assert_eq!(pin, fingerprint);
    let (key, csr) = request(|params| params.distinguished_name.push(DnType::CommonName, "n1"));
    let (status, answer) = server.enrol(&token, "n1", &csr).await;
    assert_eq!(status, 200, "{answer}");
    let node = shown(&answer, &key);
    let (_, certificate) = x509_parser::parse_x509_certificate(&node.0[0]).unwrap();
    let names = format!("{:?}", certificate.subject_alternative_name().unwrap().unwrap().value);
    assert!(names.contains("spiffe://tidegate/node/n1"), "{names}");
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !certificate.is_ca());

    // Used up, for the same and for every other node.
    for name in ["n1", "n2"] {
        let (status, answer) = server.enrol(&token, name, &csr).await;
        assert_eq!((status, answer["code"].as_str()), (401, Some("Unauthenticated")), "{answer}");
    }
    // Without a client certificate there is no renewal; the node can renew its own.
    let (_, again) = request(|_| {});
    let body = json!({ "csr": again });
    assert_eq!(server.call(None, "POST", "/v1/renew", Some(body.clone())).await.0, 401);
    let (new_key, again) = request(|_| {});
    let (status, answer) = server.call(Some(&node), "POST", "/v1/renew", Some(json!({ "csr": again }))).await;
    assert_eq!(status, 200, "{answer}");
    let renewed = shown(&answer, &new_key);
    assert_eq!(server.call(Some(&renewed), "GET", "/readyz", None).await.0, 200);
    let (_, agents) = server.call(None, "GET", "/v1/agents", None).await;
    assert_eq!((&agents["items"][0]["node"], &agents["items"][0]["isValid"]), (&json!("n1"), &json!(true)));

    // A day later both have expired and are rejected; a new token helps.
    server.source.0.fetch_add(86_401, Ordering::SeqCst);
    for ended in [&node, &renewed] {
        assert!(server.try_call(Some(ended), "GET", "/readyz", None).await.is_err());
    }
    server.join("n1").await;
}

#[tokio::test]
async fn a_token_lets_in_only_whom_it_was_made_for_and_only_for_a_while() {
    let server = start(own()).await;
    let (_, csr) = request(|_| {});
    let token = server.token(json!({ "node": "n1", "ttlSeconds": 60 })).await;
    let (status, answer) = server.enrol(&token, "n2", &csr).await;
    assert_eq!((status, answer["code"].as_str()), (403, Some("Forbidden")));
    // An invalid request does not consume the token.
    let foreign = SanType::URI("spiffe://tidegate/node/n2".try_into().unwrap());
    let (_, greedy) = request(|params| params.subject_alt_names = vec![foreign]);
    for bad in [greedy.as_str(), "no request", ""] {
        let (status, answer) = server.enrol(&token, "n1", bad).await;
        assert_eq!((status, &answer["errors"][0]["pointer"]), (422, &json!("/csr")), "{answer}");
    }
    // One changed digit of the secret.
    let mut parts: Vec<_> = token.split('_').map(str::to_owned).collect();
    let flipped = if parts[2].ends_with('0') { "1" } else { "0" };
    parts[2].pop();
    parts[2].push_str(flipped);
    assert_eq!(server.enrol(&parts.join("_"), "n1", &csr).await.0, 401);
    server.source.0.fetch_add(61, Ordering::SeqCst);
    assert_eq!(server.enrol(&token, "n1", &csr).await.0, 401, "the token has ended");
    let (_, list) = server.call(None, "GET", "/v1/jointokens", None).await;
    assert_eq!(list["items"], json!([]));

    for (bad, pointer) in
        [(json!({ "ttlSeconds": 86_401 }), "/ttlSeconds"), (json!({ "ttlSeconds": 0 }), "/ttlSeconds")]
    {
        let (status, answer) = server.call(None, "POST", "/v1/jointokens", Some(bad)).await;
        assert_eq!((status, &answer["errors"][0]["pointer"]), (422, &json!(pointer)));
    }
    let token = server.token(json!({})).await;
    let (_, list) = server.call(None, "GET", "/v1/jointokens", None).await;
    let id = list["items"][0]["id"].as_str().unwrap();
    assert_eq!(server.call(None, "DELETE", &format!("/v1/jointokens/{id}"), None).await.0, 204);
    assert_eq!(server.call(None, "DELETE", &format!("/v1/jointokens/{id}"), None).await.0, 404);
    assert_eq!(server.enrol(&token, "n1", &csr).await.0, 401, "the token was removed");
}

#[tokio::test]
async fn a_name_that_is_held_is_not_taken_by_a_token_for_new_machines() {
    let server = start(own()).await;
    let holder = server.join("n1").await;
    let token = server.token(json!({})).await;
    let (_, csr) = request(|_| {});
    let (status, answer) = server.enrol(&token, "n1", &csr).await;
    assert_eq!((status, answer["code"].as_str()), (409, Some("Conflict")), "{answer}");
    assert_eq!(server.call(Some(&holder), "GET", "/readyz", None).await.0, 200);
    assert_eq!(server.enrol(&token, "n2", &csr).await.0, 200, "the token was not used up");

    // A token created for the name moves it: the previous holder is disconnected.
    let mut open = server.connect(Some(&holder)).await.unwrap();
    let successor = server.join("n1").await;
    let mut rest = Vec::new();
    let cut = tokio::time::timeout(PATIENCE, open.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "the connection of the former holder is cut");
    let (_, csr) = request(|_| {});
    let body = Some(json!({ "csr": csr }));
    assert_ne!(
        server.try_call(Some(&holder), "POST", "/v1/renew", body.clone()).await.map_or(0, |answer| answer.0),
        200
    );
    assert_eq!(server.call(Some(&successor), "POST", "/v1/renew", body.clone()).await.0, 200);

    // After revocation, connections are closed and renewal is rejected, with the reason.
    let mut open = server.connect(Some(&successor)).await.unwrap();
    assert_eq!(server.call(None, "DELETE", "/v1/agents/n1/certificate", None).await.0, 204);
    let cut = tokio::time::timeout(PATIENCE, open.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "the connection is cut");
    let (status, answer) = server.call(Some(&successor), "POST", "/v1/renew", body).await;
    assert_eq!((status, answer["code"].as_str()), (401, Some("Unauthenticated")), "{answer}");
    assert_eq!(server.call(Some(&successor), "GET", "/v1/nodes/n1/state", None).await.0, 401);
    server.join("n1").await;
}

#[tokio::test]
async fn replicas_share_the_authority_and_a_token_counts_once_for_all_of_them() {
    let one = start(own()).await;
    let other = start_on(own(), Arc::clone(&one.store), Arc::clone(&one.source)).await;
    assert_eq!(one.roots, other.roots);
    for round in 0..5 {
        let token = one.token(json!({})).await;
        let (_, csr) = request(|_| {});
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (first, second) = tokio::join!(one.enrol(&token, &a, &csr), other.enrol(&token, &b, &csr));
        let mut answers = [first.0, second.0];
        answers.sort_unstable();
        assert_eq!(answers, [200, 401]);
    }
}

#[tokio::test]
async fn secrets_of_the_authority_and_of_tokens_are_in_no_answer_and_no_log() {
    let server = start(own()).await;
    let (used, unused) = (server.token(json!({})).await, server.token(json!({ "node": "n9" })).await);
    let (_, csr) = request(|_| {});
    assert_eq!(server.enrol(&used, "n1", &csr).await.0, 200);
    let secret = |token: &str| token.split('_').nth(2).unwrap().to_owned();
    let mut planted = vec![secret(&used), secret(&unused)];
    let vault = server.store.vault().await.unwrap();
    let record: Value = serde_json::from_slice(&vault["ca/current"].body).unwrap();
    let key = record["key"].as_str().unwrap();
    planted.extend(key.lines().filter(|line| !line.starts_with("--")).map(str::to_owned));
    assert!(planted.len() >= 4 && planted.iter().all(|text| text.len() >= 16), "{}", planted.len());

    let mut answers = Vec::new();
    let document: Value = serde_json::from_str(&api::document()).unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        if operations.get("get").is_none_or(support::is_stream) {
            continue;
        }
        let path = path.replace("{namespace}", "default").replace("{node}", "n1").replace("{name}", "n1");
        let path = path.replace("{id}", &secret(&unused)[..16]);
        answers.push(server.try_call(None, "GET", &path, None).await.unwrap().1);
    }
    // Rejected requests with the secret in wrong places.
    for body in [
        json!({ "token": unused, "node": "n8", "csr": csr }),
        json!({ "token": [unused], "node": "n9", "csr": csr }),
        json!({ "token": { "a": unused }, "node": "n9", "csr": csr }),
        json!({ "token": unused, "node": "n9", "csr": "x", "more": 1 }),
        json!({ "token": format!("x{unused}"), "node": "n9", "csr": csr }),
    ] {
        let (status, text) = server.try_call(None, "POST", "/v1/enrol", Some(body)).await.unwrap();
        assert!(status >= 400);
        answers.push(text);
    }
    let log = String::from_utf8_lossy(&log().0.lock().unwrap()).into_owned();
    assert!(log.contains("a node has joined"), "the log is looked at");
    for text in &planted {
        assert!(!log.contains(text), "a secret is in the log");
        assert!(answers.iter().all(|answer| !answer.contains(text)), "a secret is in an answer");
    }
    println!(
        "{} secrets looked for in {} answers and {} bytes of log",
        planted.len(),
        answers.len(),
        log.len()
    );
}
