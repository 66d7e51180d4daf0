//! Tests of the real server process: output at start, shutdown, and recovery of agents and watches after
//! `kill -9`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// Server process that is killed at the end of the test, even on failure.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-api"));
    command.env_clear().args(["--listen", "127.0.0.1:0"]);
    command
}

fn start(store: &Path) -> Server {
    let store = format!("sqlite:{}", store.display());
    let mut child =
        command().args(["--store", &store]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("tidegate-api listening on http://").unwrap().to_owned();
    Server { child, address }
}

fn refused(args: &[&str]) -> String {
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_tidegate-api")).args(args).output().unwrap();
    assert!(!status.success());
    String::from_utf8(stderr).unwrap()
}

impl Server {
    fn send(&self, method: &str, path: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        BufReader::new(stream)
    }

    fn call(&self, method: &str, path: &str, body: &str) -> String {
        let mut answer = String::new();
        self.send(method, path, body).read_to_string(&mut answer).unwrap();
        answer
    }

    /// Opens a stream and returns its lines up to and including the first one that contains a text.
    fn stream_until(&self, path: &str, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.send("GET", path, "").lines() {
            let line = line.unwrap();
            let is_last = line.contains(text);
            if line.starts_with('{') {
                lines.push(line);
            }
            if is_last {
                return lines;
            }
        }
        panic!("the stream ended before {text}: {lines:?}");
    }
}

fn position(line: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    value["position"].as_str().unwrap().to_owned()
}

#[test]
fn it_refuses_to_listen_off_loopback_unless_told_that_this_is_insecure() {
    let message = refused(&["--listen", "0.0.0.0:0", "--store", "memory:", "--tls", "off"]);
    assert!(message.contains("--insecure") && message.contains("0.0.0.0:0"), "{message}");
}

#[test]
fn it_names_the_setting_that_is_wrong() {
    assert!(refused(&["--store", "mysql://x"]).contains("sqlite:PATH"));
    assert!(refused(&["--store", "memory:", "--service-cidr", "127.0.0.0/8"]).contains("--service-cidr"));
    assert!(refused(&["--node-port-range", "5"]).contains("FROM-TO"));
}

#[test]
fn after_kill_9_what_was_answered_is_there_and_streams_resume_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.sqlite");
    let mut server = start(&file);
    server.call("POST", "/v1/nodes", r#"{"metadata":{"name":"n1"},"spec":{}}"#);
    let created = server.call(
        "POST",
        "/v1/namespaces/default/services",
        r#"{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}"#,
    );
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let fed = server.stream_until("/v1/nodes/n1/state", "\"synced\"");
    let watched = server.stream_until("/v1/watch", "BOOKMARK");
    server.child.kill().unwrap();
    server.child.wait().unwrap();

    let server = start(&file);
    let read = server.call("GET", "/v1/namespaces/default/services/web", "");
    assert!(read.starts_with("HTTP/1.1 200"), "{read}");
    let resumed = position(fed.last().unwrap());
    let fed = server.stream_until(&format!("/v1/nodes/n1/state?resume={resumed}"), "\"synced\"");
    assert!(fed[0].contains("\"delta\""), "{fed:?}");
    assert!(!fed.iter().any(|line| line.contains("\"type\":\"service\"")), "nothing is sent again: {fed:?}");
    let resumed = position(watched.last().unwrap());
    server.call("DELETE", "/v1/namespaces/default/services/web", "");
    let watched = server.stream_until(&format!("/v1/watch?resume={resumed}"), "DELETED");
    assert_eq!(watched.len(), 1);
}

#[test]
fn sigterm_ends_streams_and_the_process_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(&folder.path().join("t.sqlite"));
    let mut watch = server.send("GET", "/v1/watch", "");
    let mut line = String::new();
    watch.read_line(&mut line).unwrap();
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut rest = String::new();
    watch.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the chunked stream is closed properly: {rest:?}");
    assert!(server.child.wait().unwrap().success());
}

/// If the reader of the log disconnects, for example on a restart of a log collector, the server still responds to
/// requests, and SIGTERM stops it.
#[test]
fn a_server_whose_log_nobody_reads_goes_on_and_ends_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("s.sqlite").display());
    let mut child =
        command().args(["--store", &store]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(child.stderr.take());
    let address = line.trim().strip_prefix("tidegate-api listening on http://").unwrap().to_owned();
    let mut server = Server { child, address };
    for _ in 0..3 {
        assert!(server.call("GET", "/v1/services", "").starts_with("HTTP/1.1 200"));
    }
    let kill = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let ended = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        server.child.try_wait().unwrap()
    });
    assert!(ended.unwrap().success());
}
