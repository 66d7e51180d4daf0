//! Tests of the client against servers whose responses are late, incorrect, endless or missing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use client::{
    Client, Connection, Error, Failover, Limits, MIN_POSITION, Method, OnSend, Options, Request, Token,
    TokenSource,
};
use serde_json::json;

const PROBLEM: &str = "application/problem+json";
const JSON: &str = "application/json";

/// Test server that records requests. A closure receives the number of each request and writes the response.
struct Stub {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    fn new(respond: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (all, respond) = (Arc::clone(&requests), Arc::new(respond));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (all, respond) = (Arc::clone(&all), Arc::clone(&respond));
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let request = read_request(&stream);
                    let number = {
                        let mut all = all.lock().unwrap();
                        all.push(request);
                        all.len() - 1
                    };
                    respond(number, &mut stream);
                });
            }
        });
        Self { url, requests }
    }

    fn fixed(status: &'static str, media_type: &'static str, body: impl ToString) -> Self {
        let body = body.to_string();
        Self::new(move |_, stream| respond(stream, status, media_type, &body))
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn read_request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
    for line in head.lines() {
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn respond(stream: &mut TcpStream, status: &str, media_type: &str, body: &str) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\nx-revision: 18\r\nconnection: close\r\n");
    let _gone = write!(stream, "{head}content-length: {length}\r\n\r\n{body}");
}

/// Writes a response head without `Content-Length`, and `body`. Only the end of the connection ends the response.
fn begin(stream: &mut TcpStream, body: &str) {
    let _gone = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\nconnection: close\r\n\r\n{body}");
}

fn closed() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

fn cut() -> Stub {
    Stub::new(|_, _| {})
}

fn not_ready() -> Stub {
    Stub::fixed("503 Service Unavailable", PROBLEM, json!({"code": "Unavailable", "detail": "starting"}))
}

fn options(failover: Failover) -> Options {
    Options {
        user_agent: "client-test",
        author: Some("jo".to_owned()),
        connect_timeout: Duration::from_secs(5),
        timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
        failover,
        min_position: None,
        reads_own_writes: true,
        limits: Limits { response: 1024, rejection: 512, line: 64 },
        trace_parent: None,
        on_send: None,
    }
}

fn with(urls: &[&str], options: Options) -> Client {
    let urls = urls.iter().map(|url| url.parse().unwrap()).collect();
    Client::new(Connection { urls, ..Connection::default() }, options).unwrap()
}

fn safe(urls: &[&str]) -> Client {
    with(urls, options(Failover::Safe))
}

#[tokio::test]
async fn reads_go_to_the_next_server_and_writes_only_if_the_first_cannot_have_them() {
    let get = Request::get("/v1/nodes");
    let put = Request::put("/v1/nodes/n").json(&json!({}));
    let (closed, cut, not_ready) = (closed(), cut(), not_ready());
    for first in [&closed, &cut.url, &not_ready.url] {
        let good = Stub::fixed("200 OK", JSON, json!({"ok": true}));
        let to = safe(&[first, &good.url]);
        assert_eq!(to.send(&get).await.unwrap(), json!({"ok": true}), "{first}");
        assert_eq!((to.url(), to.count()), (good.url.clone(), 2), "the good server stays the current one");
        let outcome = safe(&[first, &good.url]).send(&put).await;
        assert_eq!((outcome.is_ok(), good.count()), (*first == closed, if *first == closed { 2 } else { 1 }));
        let dry = put.clone().query("dryRun", Some("true"));
        safe(&[first, &good.url]).send(&dry).await.unwrap();
    }
    let unsent = safe(&[&closed]).send(&put).await.unwrap_err();
    assert!(unsent.is_definitely_unsent(), "{unsent}");
    let unknown = safe(&[&cut.url]).send(&put).await.unwrap_err();
    assert!(!unknown.is_definitely_unsent() && unknown.to_string().starts_with("cannot reach"), "{unknown}");
}

#[tokio::test]
async fn repeatable_writes_go_to_the_next_server_after_everything_but_a_final_rejection() {
    let post = Request::post("/v1/apply").json(&json!([]));
    let token = Stub::fixed("401 Unauthorized", PROBLEM, json!({"code": "Unauthenticated"}));
    let page = Stub::fixed("200 OK", "text/html", "<html>");
    for first in [closed(), cut().url, not_ready().url, token.url, page.url] {
        let good = Stub::fixed("200 OK", JSON, "{}");
        with(&[&first, &good.url], options(Failover::Repeatable)).send(&post).await.unwrap();
    }
    let (refuses, good) =
        (Stub::fixed("422 X", PROBLEM, json!({"code": "Invalid"})), Stub::fixed("200 OK", JSON, "{}"));
    let error = with(&[&refuses.url, &good.url], options(Failover::Repeatable)).send(&post).await;
    assert_eq!((error.unwrap_err().code(), good.count()), (Some("Invalid"), 0));
}

#[tokio::test]
async fn a_silent_server_is_left_after_its_share_of_the_timeout() {
    let silent = Stub::new(|_, _| thread::sleep(Duration::from_secs(30)));
    let short = || Options { timeout: Duration::from_millis(600), ..options(Failover::Safe) };
    let error = with(&[&silent.url], short()).send(&Request::get("/")).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{} did not respond within 0.6 s", silent.url));
    let good = Stub::fixed("200 OK", JSON, "{}");
    with(&[&silent.url, &good.url], short()).send(&Request::get("/")).await.unwrap();
}

#[tokio::test]
async fn responses_that_are_not_of_the_api_are_described_without_control_characters() {
    for (status, media_type, body) in [
        ("200 OK", "text/html", "<html>\u{1b}[31mhello"),
        ("502 Bad Gateway", "text/html", "<h1>bad</h1>"),
        ("302 Found\r\nlocation: /other", "text/plain", ""),
        ("404 Not Found", JSON, r#"{"code": "NotFound"}"#),
        ("500 Internal Server Error", PROBLEM, "[1"),
    ] {
        let stub = Stub::fixed(status, media_type, body);
        let error = safe(&[&stub.url]).send(&Request::get("/")).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unexpected { .. }) && !text.contains('\u{1b}'), "{status}: {text}");
        assert!(text.contains(media_type) && stub.count() == 1, "{text}");
    }
}

#[tokio::test]
async fn huge_and_endless_bodies_are_given_up_at_the_limit() {
    let endless = |head: &'static str| {
        Stub::new(move |_, stream| {
            let _gone = write!(stream, "HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
            while stream.write_all(&[b' '; 4096]).is_ok() {}
        })
    };
    for (head, limit) in [("200 OK", 1024), ("500 X\r\ncontent-type: application/problem+json", 512)] {
        let error = safe(&[&endless(head).url]).send(&Request::get("/")).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: found, .. } if found == limit), "{error}");
    }
    let mut received = 0;
    let stub = Stub::fixed("200 OK", JSON, "x".repeat(5000));
    let keep = |bytes: &[u8]| {
        received += bytes.len();
        Ok(())
    };
    safe(&[&stub.url]).download(&Request::get("/"), keep).await.unwrap();
    assert_eq!(received, 5000, "a download has no limit");
}

#[tokio::test]
async fn a_stream_ends_with_the_server_a_long_line_no_json_or_silence() {
    let stream_of = |body: &'static str, stays: bool| {
        Stub::new(move |_, stream| {
            begin(stream, body);
            if stays {
                thread::sleep(Duration::from_secs(30));
            }
        })
    };
    let watch = Request::get("/v1/watch");
    let stub = stream_of("{\"a\":1}\n\n{\"b\":2}\n{\"half", false);
    let mut stream = safe(&[&closed(), &stub.url]).stream(&watch).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Some(json!({"a": 1})));
    assert_eq!(stream.next().await.unwrap(), Some(json!({"b": 2})));
    assert_eq!((stream.next().await.unwrap(), stream.url()), (None, stub.url.as_str()));

    let endless = Stub::new(|_, stream| {
        begin(stream, "");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let error = safe(&[&endless.url]).stream(&watch).await.unwrap().next().await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 64, .. }), "{error}");

    let page = stream_of("<html>\n", false);
    let error = safe(&[&page.url]).stream(&watch).await.unwrap().next().await.unwrap_err();
    assert!(error.to_string().contains("`<html>`"), "{error}");

    let silent = stream_of("{}\n", true);
    let short = Options { idle_timeout: Duration::from_millis(300), ..options(Failover::Safe) };
    let mut stream = with(&[&silent.url], short).stream(&watch).await.unwrap();
    assert!(stream.next().await.unwrap().is_some());
    let error = stream.next().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn listings_are_read_to_the_end_and_restart_when_their_snapshot_expires() {
    let stub = Stub::new(|number, stream| match number {
        0 => respond(stream, "200 OK", JSON, r#"{"metadata":{"continue":"a"},"items":["stale"]}"#),
        1 => respond(stream, "410 Gone", PROBLEM, r#"{"code":"PageExpired"}"#),
        2 => respond(stream, "200 OK", JSON, r#"{"metadata":{"continue":"b&"},"items":[1]}"#),
        _ => respond(stream, "200 OK", JSON, r#"{"metadata":{},"items":[2]}"#),
    });
    let listing = safe(&[&stub.url]).list(|| Request::get("/v1/nodes")).await.unwrap();
    assert_eq!(listing.envelope["items"], json!([1, 2]));
    assert!(stub.requests.lock().unwrap()[3].starts_with("GET /v1/nodes?continue=b%26 HTTP/1.1"));
    let same = Stub::fixed("200 OK", JSON, r#"{"metadata":{"continue":"same"},"items":[]}"#);
    let error = safe(&[&same.url]).list(|| Request::get("/v1/nodes")).await.unwrap_err();
    assert!(error.to_string().contains("pages repeat"), "{error}");
}

#[tokio::test]
async fn requests_carry_token_author_tag_and_the_revision_of_the_last_write() {
    let stub = Stub::fixed("200 OK", JSON, "{}");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let on_send: OnSend = Box::new(move |request, url, min_position| {
        let position = min_position.map(str::to_owned);
        log.lock().unwrap().push((request.method.clone(), url.path().to_owned(), position));
    });
    let connection = Connection {
        urls: vec![stub.url.parse().unwrap()],
        token: TokenSource::Fixed(Token::parse("tg_secret", "it").unwrap()),
        ..Connection::default()
    };
    let options = Options { on_send: Some(on_send), ..options(Failover::Safe) };
    let client = Client::new(connection, options).unwrap();
    let delete = Request::delete("/v1/nodes/n").if_match("\"7\"".to_owned()).message(Some("why".to_owned()));
    client.send(&Request::get("/v1/nodes")).await.unwrap();
    client.send(&delete).await.unwrap();
    client.send(&Request::get("/v1/nodes")).await.unwrap();
    let requests = stub.requests.lock().unwrap();
    for header in ["authorization: Bearer tg_secret", "x-tidegate-author: jo", "if-match: \"7\""] {
        assert!(requests[1].contains(header), "{}", requests[1]);
    }
    assert!(requests[1].contains("x-change-message: why") && !requests[0].contains("tidegate-author"));
    assert!(!requests[0].contains(MIN_POSITION) && requests[2].contains("x-tidegate-min-position: 18"));
    assert_eq!(
        seen.lock().unwrap().last(),
        Some(&(Method::GET, "/v1/nodes".to_owned(), Some("18".to_owned())))
    );
}
