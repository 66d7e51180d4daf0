//! Tests of the confidentiality of secrets: unique texts are stored wherever a secret can be written, and must not
//! appear in any response or log.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test may fail, and prints counts"
)]

use std::{
    env, io,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{
    self, Lines,
    secured::{self, Secured, Who},
};

const PASSWORD: &str = "canary-8f2c61d0";
const LATER: &str = "canary-51e97ab3";
/// Secret of the key of a DnsZone, and a text in its place that is not base64.
const KEY: &str = "Y2FuYXJ5LWMzZDg3ZjVhLXNlY3JldA==";
const BAD_KEY: &str = "canary-0e2b7d44";
/// Paths that return secrets to the programs that need them.
const SECRETS: [&str; 2] = ["/v1/dns/keys", "/v1/http/keys"];
/// Environment variable that is set in the process in which the test searches for the secrets.
const INSIDE: &str = "TIDEGATE_TEST_CANARY";
const NAME: &str = "canary::f010_no_answer_and_no_log_line_shows_a_secret";

/// Log output collected in memory.
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

/// Search for the secrets in responses, with the number of responses and bytes searched.
struct Search {
    secrets: Vec<String>,
    answers: usize,
    bytes: usize,
}

impl Search {
    fn look(&mut self, place: &str, text: &str) {
        self.answers += 1;
        self.bytes += text.len();
        for secret in &self.secrets {
            assert!(!text.contains(secret.as_str()), "{place} shows a secret: {text}");
        }
    }

    async fn ask(&mut self, secured: &Secured, method: &str, path: &str, body: Option<Value>) -> String {
        let response = secured.send(&secured.admin, method, path, body.as_ref()).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.look(&format!("{method} {path}"), &text);
        text
    }
}

fn peer(password: &str) -> Value {
    json!({
        "kind": "BgpPeer", "metadata": { "name": "tor" },
        "spec": { "peerAddress": "192.0.2.254", "peerASN": 65001, "password": password },
    })
}

/// Returns a certificate and its private key in PEM.
fn identity() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["www.example.org".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn zone(secret: &str) -> Value {
    let key = json!({ "name": "secondary.example.org", "operations": ["Transfer"], "secret": secret });
    json!({
        "kind": "DnsZone", "metadata": { "name": "zone" }, "spec": { "zone": "example.org", "keys": [key] },
    })
}

/// Returns the paths of all GET operations of the OpenAPI document, with the names of the test's objects in place
/// of parameters, without those that return secrets.
fn reads(token: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(&api::document()).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let reads = paths.filter(|(path, item)| {
        item["get"].is_object() && !support::is_stream(&item["get"]) && !SECRETS.contains(&path.as_str())
    });
    reads
        .map(|(path, _)| {
            let name = if path.starts_with("/v1/nodes/") { "n1" } else { "tor" };
            let path = path.replace("{namespace}", "default").replace("{node}", "n1").replace("{name}", name);
            let path = path.replace("{service}", "web").replace("{revision}", "2").replace("{id}", token);
            match path.as_str() {
                "/v1/explain" => "/v1/explain?destination=192.0.2.254".to_owned(),
                "/v1/whoami/may" => "/v1/whoami/may?verb=get&kind=Token".to_owned(),
                _ => path,
            }
        })
        .collect()
}

/// F010: runs in a separate process, whose log is that of this test alone. In a common process, the level of a log
/// statement depends on the thread that reaches it first.
#[test]
fn f010_no_answer_and_no_log_line_shows_a_secret() {
    if env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(search_everywhere());
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([NAME, "--exact", "--nocapture"]).env(INSIDE, "1").stderr(Stdio::inherit());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success() && text.contains("test result: ok. 1 passed"), "{}", output.status);
}

/// Writes and plans the private key of a Certificate, and a text in its place that is none.
async fn write_certificates(search: &mut Search, secured: &Secured) {
    let (certificate, key) = identity();
    search.secrets.push(key.lines().nth(1).unwrap().to_owned());
    let object = |key: &str| {
        let spec = json!({ "certificate": certificate, "privateKey": key });
        json!({ "kind": "Certificate", "metadata": { "name": "tls" }, "spec": spec })
    };
    for (path, key) in [
        ("/v1/plan?nodes=false", &*key),
        ("/v1/apply", &key),
        ("/v1/apply", LATER),
        ("/v1/plan?nodes=false", &identity().1),
    ] {
        search.ask(secured, "POST", path, Some(json!([object(key)]))).await;
    }
    search.ask(secured, "GET", "/v1/namespaces/default/certificates/tls", None).await;
}

async fn search_everywhere() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let secured = secured::start().await;
    let Who::Token(first) = secured.admin.clone() else { panic!("the first token is a token") };
    let secrets = vec![PASSWORD.to_owned(), LATER.to_owned(), first, KEY.to_owned(), BAD_KEY.to_owned()];
    let mut search = Search { secrets, answers: 0, bytes: 0 };
    let node =
        json!({ "kind": "Node", "metadata": { "name": "n1" }, "spec": { "addresses": ["192.0.2.1"] } });
    search.ask(&secured, "POST", "/v1/nodes", Some(node)).await;
    // The session cookie is set once and returned nowhere else.
    let login = Some(json!({ "token": search.secrets[2].clone() }));
    let response = secured.send(&Who::Nobody, "POST", "/v1/session", login.as_ref()).await;
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    let value = cookie.split(['=', ';']).nth(1).unwrap().to_owned();
    assert_eq!(value.len(), 64, "{cookie}");
    search.secrets.push(value);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    search.look("POST /v1/session", &String::from_utf8_lossy(&bytes));
    for (method, path) in
        [("GET", "/v1/session"), ("GET", "/v1/status"), ("POST", "/v1/apply"), ("DELETE", "/v1/session")]
    {
        let pair = cookie.split(';').next().unwrap();
        let request = http::Request::builder().method(method).uri(path).header("cookie", pair);
        let response = secured.server.send(request.body(axum::body::Body::empty()).unwrap()).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        search.look(&format!("{method} {path} by cookie"), &String::from_utf8_lossy(&bytes));
    }
    // Written, dry-run, planned, patched, rejected and rolled back.
    search.ask(&secured, "POST", "/v1/bgppeers?dryRun=true", Some(peer(PASSWORD))).await;
    search.ask(&secured, "POST", "/v1/apply", Some(json!([peer(PASSWORD)]))).await;
    search.ask(&secured, "POST", "/v1/plan?nodes=false", Some(json!([peer(LATER)]))).await;
    let change = json!({ "spec": { "password": LATER } });
    search.ask(&secured, "PATCH", "/v1/bgppeers/tor", Some(change)).await;
    search.ask(&secured, "PUT", "/v1/bgppeers/tor", Some(peer(LATER))).await;
    let mut wrong = peer(PASSWORD);
    wrong["spec"]["peerASN"] = json!("no number");
    for body in [wrong, json!({ "spec": { "password": [PASSWORD] } }), json!(PASSWORD)] {
        search.ask(&secured, "POST", "/v1/bgppeers", Some(body)).await;
    }
    search.ask(&secured, "POST", "/v1/rollback?dryRun=true", Some(json!({ "revision": 2 }))).await;
    for (path, secret) in [
        ("/v1/plan?nodes=false", KEY),
        ("/v1/apply", KEY),
        ("/v1/apply", BAD_KEY),
        ("/v1/plan?nodes=false", LATER),
    ] {
        search.ask(&secured, "POST", path, Some(json!([zone(secret)]))).await;
    }
    write_certificates(&mut search, &secured).await;
    let received = secured.admin("GET", "/v1/dns/keys", None).await;
    assert_eq!(received["keys"][0]["secret"], KEY);
    // The text of a token is returned once.
    let made = secured
        .admin("POST", "/v1/tokens", Some(json!({ "name": "ci", "bindings": [{ "role": "viewer" }] })))
        .await;
    search.secrets.push(made["token"].as_str().unwrap().to_owned());
    let id = made["id"].as_str().unwrap();
    search.ask(&secured, "GET", &format!("/v1/tokens/{id}"), None).await;
    for path in reads(id) {
        search.ask(&secured, "GET", &path, None).await;
    }
    search.ask(&secured, "POST", "/v1/tokens", Some(made.clone())).await;
    let response = secured.send(&secured.admin, "GET", "/v1/watch", None).await;
    let mut lines = Lines::new(response.into_body());
    let seen = lines.until("BOOKMARK").await;
    assert!(seen.iter().any(|line| line.contains("\"tor\"")), "{seen:?}");
    search.look("GET /v1/watch", &seen.concat());
    search.ask(&secured, "DELETE", "/v1/bgppeers/tor", None).await;
    search.look("GET /v1/watch", &lines.until("DELETED").await.concat());
    for path in ["/v1/history", "/v1/history/2", "/v1/history/3", "/v1/audit"] {
        let text = search.ask(&secured, "GET", path, None).await;
        assert!(text.contains("tor") || path == "/v1/history/2", "{path}: {text}");
    }
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("/v1/bgppeers"), "the log was not caught");
    search.look("the log", &logged);
    println!(
        "abuse: canaries: 0 of {} secrets found in {} answers and the log, {} bytes",
        search.secrets.len(),
        search.answers - 1,
        search.bytes
    );
}
