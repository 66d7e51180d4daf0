//! Tests with clients that request large responses and do not read them. The bytes that the server holds for them
//! stay within the budget, other clients are served, and each such client is disconnected.

use std::time::Duration;

use api::base::config::{ResponseLimits, Settings};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Mutex,
};

use crate::{
    http2::{END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, get},
    site::{PATIENCE, Site, refused, rest, status},
    support,
};

const PING: u8 = 6;
const ACK: u8 = 1;
/// HTTP/2 setting of the flow-control window of each stream (RFC 9113, 6.5.2).
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
/// Number of Services, whose listing has several pages.
const SERVICES: usize = 2000;
/// Largest listing that a client may request.
const LISTING: &str = "/v1/services?limit=5000";
/// Time after which the server disconnects a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size in bytes of the small responses, which do not count for the budget.
const SMALL_BYTES: u64 = 1024 * 1024;

/// Lock that runs one of these tests at a time, because each server has a large state.
static ONE_SERVER: Mutex<()> = Mutex::const_new(());

/// Metrics of the server at one time.
#[derive(Debug)]
struct Seen {
    unsent_bytes: u64,
    requests: u64,
    stalled: u64,
    watchers: u64,
}

async fn start() -> Site {
    let responses = ResponseLimits { write_timeout: WRITE_TIMEOUT, ..ResponseLimits::default() };
    let site = Site::start_with(Settings { responses, ..support::settings(30000..=32767) }).await;
    let service = |at: usize| {
        json!({
            "kind": "Service",
            "metadata": { "name": format!("s{at}"), "namespace": "default", "annotations": { "note": "x".repeat(1000) } },
            "spec": { "ports": [{ "port": 80, "protocol": "TCP" }] },
        })
    };
    let items: Vec<Value> = (0..SERVICES).map(service).collect();
    let answer =
        site.send("POST", "/v1/apply", "application/json", json!(items).to_string().as_bytes()).await;
    assert_eq!(status(&answer), 200, "{}", answer.chars().take(2000).collect::<String>());
    site
}

/// Writes an object as a client from another address, and reads the metrics as this client.
async fn other_client(site: &Site, at: usize) -> Seen {
    let body =
        json!({ "metadata": { "name": format!("other{at}") }, "spec": { "clusterIP": "None" } }).to_string();
    let head = "POST /v1/namespaces/other/services HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\n";
    let mut stream = site.connect_from(9).await;
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert_eq!(status(&answer), 201, "{answer}");
    let mut stream = site.connect_from(9).await;
    stream.write_all(request_of("/metrics").as_bytes()).await.unwrap();
    let text = rest(&mut stream).await;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    Seen {
        unsent_bytes: value("tidegate_response_unsent_bytes"),
        requests: value("tidegate_requests_in_progress"),
        stalled: value("tidegate_stalled_connections_total"),
        watchers: value("tidegate_watchers"),
    }
}

fn request_of(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Observes the server as another client until it holds no response of a silent reader. Returns the number of
/// connections closed because of unread responses.
async fn until_all_are_cut(site: &Site, is_held: impl Fn(&Seen) -> bool) -> u64 {
    let budget = ResponseLimits::default().bytes_per_caller_max + SMALL_BYTES;
    let (mut bytes_max, mut at, mut last) = (0, 0, None);
    let observing = async {
        loop {
            let seen = last.insert(other_client(site, at).await);
            bytes_max = bytes_max.max(seen.unsent_bytes);
            assert!(seen.unsent_bytes <= budget, "{} bytes are held", seen.unsent_bytes);
            // The request for the metrics itself is in progress.
            if seen.requests <= 1 && seen.stalled > 0 && !is_held(seen) {
                println!("at most {bytes_max} bytes held; {at} writes of another client meanwhile");
                return seen.stalled;
            }
            at += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // Beside other lanes the server waits for CPU time.
    let observed = tokio::time::timeout(2 * PATIENCE, observing).await;
    observed.unwrap_or_else(|_| panic!("silent readers are kept: {last:?}"))
}

/// Two hundred connections request the largest listing and do not read. Each gets a part of a page until it is
/// disconnected, or a rejection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_http1_responses_hold_no_more_than_their_budget() {
    const READERS: usize = 200;
    let _turn = ONE_SERVER.lock().await;
    let site = start().await;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut stream = site.connect_from(2).await;
        stream.write_all(request_of(LISTING).as_bytes()).await.unwrap();
        readers.push(stream);
    }
    let stalled = until_all_are_cut(&site, |_| false).await;
    let (mut cut, mut rejected) = (0, 0);
    for mut stream in readers {
        let answer = rest(&mut stream).await;
        match status(&answer) {
            // 503: it waited 30 s for its turn to be rendered, as on a loaded machine.
            429 | 503 => rejected += 1,
            200 | 0 => {
                let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                assert!(serde_json::from_str::<Value>(body).is_err(), "a reader received everything");
                cut += 1;
            }
            other => panic!("{other}: {}", answer.chars().take(1000).collect::<String>()),
        }
    }
    assert!(u64::try_from(cut).unwrap() >= stalled && cut >= 8, "{cut} readers, {stalled} connections");
    refused("unread responses of HTTP/1", cut + rejected, READERS);
}

/// HTTP/2 connections with a window of zero bytes, or of one byte, request the largest listing on many streams,
/// acknowledge every ping, and never extend a window. They are disconnected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_http2_streams_hold_no_more_than_their_budget() {
    const STREAMS: u32 = 250;
    let _turn = ONE_SERVER.lock().await;
    let site = start().await;
    // Few enough that each connection has a response with a body.
    let windows = [0_u32, 1];
    let mut connections = Vec::new();
    for window in windows {
        let stream = site.connect_from(2).await;
        let settings = [&INITIAL_WINDOW_SIZE[..], &window.to_be_bytes()].concat();
        let (mut reader, mut writer) = stream.into_split();
        writer.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()).await.unwrap();
        for at in 0..STREAMS {
            let request = frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, &get(LISTING));
            writer.write_all(&request).await.unwrap();
        }
        connections.push(tokio::spawn(async move {
            let mut head = [0; 9];
            while reader.read_exact(&mut head).await.is_ok() {
                let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).await.is_err() {
                    break;
                }
                let reply = match (head[3], head[4]) {
                    (PING, flags) if flags & ACK == 0 => frame(PING, ACK, 0, &body),
                    (SETTINGS, flags) if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
                    _ => continue,
                };
                if writer.write_all(&reply).await.is_err() {
                    break;
                }
            }
        }));
    }
    let stalled = until_all_are_cut(&site, |seen| seen.stalled < windows.len() as u64).await;
    for connection in connections {
        tokio::time::timeout(PATIENCE, connection).await.expect("a connection is kept").unwrap();
    }
    assert_eq!(stalled, windows.len() as u64);
    // A new connection from the same address is served.
    let mut stream = site.connect_from(2).await;
    stream.write_all(request_of("/v1/nodes").as_bytes()).await.unwrap();
    assert_eq!(status(&rest(&mut stream).await), 200);
    refused("connections with unread streams", windows.len(), windows.len());
}

/// Watches that are not read are disconnected, with all that is queued for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_watches_are_cut() {
    const WATCHES: usize = 40;
    let _turn = ONE_SERVER.lock().await;
    let site = start().await;
    let mut watches: Vec<TcpStream> = Vec::new();
    for _ in 0..WATCHES {
        let mut stream = site.connect_from(2).await;
        stream.write_all(request_of("/v1/watch?kinds=Service").as_bytes()).await.unwrap();
        watches.push(stream);
    }
    until_all_are_cut(&site, |seen| seen.watchers > 0).await;
    let (mut cut, mut rejected) = (0, 0);
    for mut stream in watches {
        let answer = rest(&mut stream).await;
        match status(&answer) {
            // 503: it waited 30 s for its turn, as on a loaded machine.
            429 | 503 => rejected += 1,
            200 | 0 => cut += 1,
            other => panic!("{other}: {}", answer.chars().take(1000).collect::<String>()),
        }
    }
    let stalled = other_client(&site, 1_000_000).await.stalled;
    assert!(stalled == cut && cut >= 8, "{cut} watches, {stalled} connections");
    refused("unread watches", usize::try_from(cut).unwrap() + rejected, WATCHES);
}
