//! Tests of failover between control servers, of TLS trust and of authentication.

use std::{
    io::Write as _,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, ServerConnection, crypto::ring};
use rustls_pki_types::PrivateKeyDer;
use sha2::{Digest as _, Sha256};

use crate::stub::{JSON, PROBLEM, Stub, begin_stream, command, ended, run, write_answer};

const NO_NODES: &str =
    r#"{"kind":"NodeList","metadata":{},"items":[{"kind":"Node","metadata":{"name":"n1"}}]}"#;
const UNAVAILABLE: &str = r#"{"code":"Unavailable","status":503,"detail":"the store is not reached"}"#;

/// Returns a URL whose port is closed, so that connections are refused.
fn closed() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

fn cuts() -> Stub {
    Stub::new(|_, _, _| {})
}

#[test]
fn reads_go_to_the_next_server_when_one_is_closed_cuts_or_is_not_ready() {
    let not_ready = Stub::fixed("503 Service Unavailable", PROBLEM, UNAVAILABLE);
    for first in [closed(), cuts().url, not_ready.url] {
        let good = Stub::fixed("200 OK", JSON, NO_NODES);
        let (code, out, err) = run(&format!("{first},{}", good.url), &["get", "nodes", "-o", "name"]);
        assert_eq!((code, out.as_str(), err.as_str()), (0, "node/n1\n", ""), "{first}");
        assert_eq!(good.first_lines().len(), 1);
    }
    let silent = Stub::new(|_, _, _| thread::sleep(Duration::from_secs(20)));
    let good = Stub::fixed("200 OK", JSON, NO_NODES);
    let both = format!("{},{}", silent.url, good.url);
    let (code, out, err) = run(&both, &["get", "nodes", "-o", "name", "--timeout", "8s"]);
    assert_eq!((code, out.as_str()), (0, "node/n1\n"), "{err}");
}

#[test]
fn an_answer_that_is_no_failure_of_the_server_is_the_answer() {
    let refusal = Stub::fixed("404 Not Found", PROBLEM, r#"{"code":"NotFound","detail":"there is none"}"#);
    let other = Stub::fixed("200 OK", JSON, NO_NODES);
    let (code, _, err) = run(&format!("{},{}", refusal.url, other.url), &["get", "node", "n9"]);
    assert_eq!(code, 1, "{err}");
    assert_eq!(other.first_lines(), Vec::<String>::new());
}

/// F016: a failover after the loss of a server does not apply a write twice.
#[test]
fn f016_a_write_goes_to_another_server_only_when_the_first_cannot_have_it() {
    let deleted = r#"{"kind":"Workload","metadata":{"name":"a"}}"#;
    let good = Stub::fixed("200 OK", JSON, deleted);
    let (code, out, err) = run(&format!("{},{}", closed(), good.url), &["delete", "wl", "a"]);
    assert_eq!((code, out.as_str()), (0, "workload/a deleted\n"), "{err}");
    assert_eq!(good.first_lines().len(), 1);

    let not_ready = Stub::fixed("503 Service Unavailable", PROBLEM, UNAVAILABLE);
    for (first, expected) in [(cuts(), 4), (not_ready, 1)] {
        let other = Stub::fixed("200 OK", JSON, deleted);
        let (code, _, err) = run(&format!("{},{}", first.url, other.url), &["delete", "wl", "a"]);
        assert_eq!(code, expected, "{err}");
        assert_eq!((first.first_lines().len(), other.first_lines().len()), (1, 0), "it is not sent twice");
        // A dry run may be retried on any server.
        let (code, _, err) =
            run(&format!("{},{}", first.url, other.url), &["delete", "wl", "a", "--dry-run"]);
        assert_eq!((code, other.first_lines().len()), (0, 1), "{err}");
    }
}

#[test]
fn f016_a_watch_that_is_cut_goes_on_at_the_other_server_from_the_same_position() {
    let event = |revision: u32, name: &str| {
        format!(
            r#"{{"type":"ADDED","revision":{revision},"position":"9-{revision}","object":{{"kind":"Service","metadata":{{"name":"{name}"}}}}}}"#
        ) + "\n"
    };
    let (first, second) = (event(1, "a"), event(2, "b"));
    let first = Stub::new(move |_, _, stream| begin_stream(stream, &first));
    let second = Stub::new(move |_, _, stream| {
        begin_stream(stream, &second);
        thread::sleep(Duration::from_secs(30));
    });
    let mut child = command(&format!("{},{}", first.url, second.url), &["watch", "svc"]).spawn().unwrap();
    let begun = Instant::now();
    while second.first_lines().is_empty() && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    let (out, err) = (child.wait_with_output().unwrap(), second.first_lines());
    assert_eq!(err, ["GET /v1/watch?kinds=Service&resume=9-1 HTTP/1.1"]);
    assert!(String::from_utf8(out.stdout).unwrap().contains("service/a"));
    assert_eq!(first.first_lines().len(), 1);
}

/// Reads on any server require at least the state given by `--min-position`, or the state after the last
/// write of the same command.
#[test]
fn reads_ask_for_no_older_state_than_was_named_or_written() {
    let asked = |stub: &Stub| -> Vec<Option<String>> {
        let header = |request: &String| {
            let line = request.lines().find_map(|line| line.strip_prefix("x-tidegate-min-position: "));
            line.map(str::to_owned)
        };
        stub.requests.lock().unwrap().iter().map(header).collect()
    };
    let good = Stub::fixed("200 OK", JSON, NO_NODES);
    let arguments = ["get", "nodes", "-o", "name", "--min-position", "1795251600-17", "--show-request"];
    let (code, _, err) = run(&format!("{},{}", closed(), good.url), &arguments);
    assert_eq!((code, asked(&good)), (0, vec![Some("1795251600-17".to_owned())]), "{err}");
    assert!(err.contains("-H 'x-tidegate-min-position: 1795251600-17'"), "{err}");
    let (code, _, err) = run(&good.url, &["get", "nodes", "--min-position", "soon"]);
    assert_eq!(code, 2, "{err}");

    // The first server accepts the write of a drain and then disappears: the request to the other one
    // requires a state that includes the write.
    let node = r#"{"kind":"Node","metadata":{"name":"n1"},"spec":{},"status":{}}"#;
    let mut is_written = false;
    let first = Stub::new(move |_, request, stream| {
        if is_written {
            return;
        }
        if request.starts_with("GET ") {
            write_answer(stream, "200 OK", JSON, NO_NODES);
        } else {
            is_written = true;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\nx-revision: 18\r\nconnection: close\r\n");
            write!(stream, "{head}content-length: {}\r\n\r\n{node}", node.len()).unwrap();
        }
    });
    let second = Stub::fixed("200 OK", JSON, NO_NODES);
    let both = format!("{},{}", first.url, second.url);
    let (_, _, err) =
        run(&both, &["drain", "node", "n1", "--wait", "--wait-timeout", "1s", "--timeout", "5s"]);
    assert!(asked(&first).iter().filter(|asked| asked.is_some()).count() <= 1, "{err}");
    assert!(asked(&second).iter().all(|asked| asked.as_deref() == Some("18")), "{:?}", asked(&second));
    assert!(!second.first_lines().is_empty(), "{err}");
}

#[test]
fn status_says_how_each_server_is() {
    let fixtures: serde_json::Value = serde_json::from_str(include_str!("../fixtures/objects.json")).unwrap();
    let mut healthy = fixtures["healthy"].clone();
    healthy["replica"] = serde_json::json!({"name": "control-a", "isLeader": true});
    let good = Stub::fixed("200 OK", JSON, healthy.to_string());
    let closed = closed();
    let (code, out, err) = run(&format!("{closed},{}", good.url), &["status"]);
    assert_eq!(code, 0, "{out}{err}");
    let mut lines = out.lines();
    let down = lines.next().unwrap();
    assert!(down.starts_with(&format!("Servers    {closed}")) && down.contains("cannot reach"), "{out}");
    assert!(lines.next().unwrap().ends_with("replica control-a, leads"), "{out}");
    let (_, one, _) = run(&good.url, &["status"]);
    assert!(one.starts_with("Control "), "{one}");
}

#[test]
fn a_token_is_sent_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "tgt_0123_canary\n").unwrap();
    let file = path.to_str().unwrap();
    let chmod = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    let good = Stub::fixed("200 OK", JSON, NO_NODES);
    chmod(0o600);
    let (code, _, err) = run(&good.url, &["get", "nodes", "--show-request", "--token-file", file]);
    assert_eq!(code, 0);
    assert!(err.contains(&format!("-H \"Authorization: Bearer $(cat '{file}')\"")), "{err}");
    assert!(!err.contains("canary") && !err.contains("warning"), "{err}");
    assert!(good.requests.lock().unwrap()[0].contains("Bearer tgt_0123_canary"));
    chmod(0o644);
    let (_, _, err) = run(&good.url, &["get", "nodes", "--token-file", file]);
    assert!(err.contains("is readable by other users") && err.contains("chmod 600"), "{err}");

    let with_variable = |url: &str| {
        let mut command = command(url, &["get", "nodes"]);
        ended(command.env("TIDEGATE_TOKEN", "tgt_4567_canary").output().unwrap())
    };
    assert_eq!(with_variable(&good.url).0, 0);
    assert!(good.requests.lock().unwrap()[2].contains("Bearer tgt_4567_canary"));
    let (code, _, err) = with_variable("http://192.0.2.1:7440");
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("over an unencrypted connection") && err.contains("https://"), "{err}");
    assert!(!err.contains("canary"), "{err}");
}

#[test]
fn a_refusal_of_who_asks_says_where_tokens_are_given() {
    let stub = Stub::fixed("401 Unauthorized", PROBLEM, r#"{"code":"Unauthenticated","detail":"who asks?"}"#);
    let (code, _, err) = run(&stub.url, &["get", "nodes"]);
    assert_eq!(code, 1);
    assert!(err.contains("--token-file") && err.contains("TIDEGATE_TOKEN"), "{err}");
}

#[test]
fn the_file_of_settings_counts_where_nothing_else_is_said() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".config/tidegate");
    std::fs::create_dir_all(&directory).unwrap();
    let write = |text: &str| std::fs::write(directory.join("config.toml"), text).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = command("", arguments);
        ended(command.env_remove("TIDEGATE_API").env("HOME", home.path()).output().unwrap())
    };
    let (good, other) = (Stub::fixed("200 OK", JSON, NO_NODES), Stub::fixed("200 OK", JSON, NO_NODES));
    write(&format!("api = [\"{}\", \"{}\"]\n", closed(), good.url));
    let (code, _, err) = run(&["get", "nodes"]);
    assert_eq!((code, good.first_lines().len()), (0, 1), "{err}");
    let (code, _, err) = run(&["get", "nodes", "--api", &other.url]);
    assert_eq!((code, good.first_lines().len(), other.first_lines().len()), (0, 1, 1), "{err}");
    write("apis = 1\n");
    let (code, _, err) = run(&["get", "nodes"]);
    assert_eq!(code, 1);
    assert!(err.contains("config.toml") && err.contains("unknown setting `apis`"), "{err}");
}

/// Starts a TLS server with a certificate signed by a new CA. Returns the server's URL, the CA certificate as
/// PEM, and the certificate's pin.
fn tls_server() -> (String, String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let own_key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&own_key, &issuer).unwrap();
    let hash: String = Sha256::digest(authority.der()).iter().map(|byte| format!("{byte:02x}")).collect();
    let chain = vec![own.der().clone(), authority.der().clone()];
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::Pkcs8(own_key.serialize_der().into()))
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
            let mut request = [0; 8192];
            // A client that does not trust this server sends an alert instead of a request.
            if std::io::Read::read(&mut stream, &mut request).is_ok() {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
                let _gone = write!(stream, "{head}content-length: {}\r\n\r\n{NO_NODES}", NO_NODES.len());
                stream.conn.send_close_notify();
                let _gone = stream.flush();
            }
        }
    });
    (url, authority.pem(), hash)
}

#[test]
fn a_server_is_believed_by_its_authority_or_its_hash_and_not_without() {
    let (url, authority, hash) = tls_server();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let get = |more: &[&str]| run(&url, &[&["get", "nodes", "-o", "name"], more].concat());
    let (code, out, err) = get(&[]);
    assert_eq!((code, out.as_str()), (4, ""), "{err}");
    assert!(err.contains("--ca-file FILE") && err.contains("--ca-hash"), "{err}");
    let ca = write("ca.pem", &authority);
    let (code, out, err) = get(&["--ca-file", &ca]);
    assert_eq!((code, out.as_str()), (0, "node/n1\n"), "{err}");
    let (code, out, err) = get(&["--ca-hash", &format!("sha256:{hash}")]);
    assert_eq!((code, out.as_str()), (0, "node/n1\n"), "{err}");
    let (code, _, err) = get(&["--ca-hash", &format!("sha256:{}", "00".repeat(32))]);
    assert_eq!(code, 4, "{err}");
    let (_, other, _) = tls_server();
    assert_eq!(get(&["--ca-file", &write("other.pem", &other)]).0, 4);
    let (code, _, err) = get(&["--ca-file", &write("empty.pem", "")]);
    assert_eq!(code, 1);
    assert!(err.contains("contains no certificate") && Path::new(&ca).exists(), "{err}");
}
