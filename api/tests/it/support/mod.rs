//! Server in the process of the tests, with a memory store and with a clock and random numbers that the test
//! controls.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod etcd;
pub(crate) mod secured;
pub(crate) mod shared;

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering},
};

use api::{
    base::{
        clock_and_random::Source,
        config::{Hosts, NodeLostAfter, ResponseLimits, Settings},
    },
    context::server_state::ServerState,
    server::start::Running,
};
use axum::{Router, body::Body, response::Response};
use http::Request;
use http_body_util::BodyExt;
use model::{cluster::config::ClusterConfig, primitives::quantity::Timestamp};
use serde_json::Value;
use store::Store;
use tower::ServiceExt;

/// Start time of the tests in Unix seconds: 2026-11-21T09:00:00Z.
pub(crate) const START: i64 = 1_795_251_600;

tokio::task_local! {
    /// Marker that is set while the server processes a request of a test. Such a request draws random numbers from
    /// a sequence of its own.
    static ASKED: ();
}

/// First number of the sequence from which background tasks of the server draw random numbers.
const BY_ITSELF: u64 = 1 << 32;

/// Clock that advances only when the test moves it, and deterministic random numbers. Requests of a test have a
/// sequence of their own, which background tasks do not affect.
#[derive(Debug)]
pub(crate) struct Fixed {
    now: AtomicI64,
    seed: AtomicU64,
    own_seed: AtomicU64,
    secret: AtomicU8,
}

impl Fixed {
    pub(crate) fn at(now: i64) -> Arc<Self> {
        Self::seeded(now, 1)
    }

    /// Creates a clock that starts at `now`, and a generator whose random numbers depend on `seed`.
    pub(crate) fn seeded(now: i64, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicI64::new(now),
            seed: AtomicU64::new(seed),
            own_seed: AtomicU64::new(BY_ITSELF + seed),
            secret: AtomicU8::new(7),
        })
    }

    pub(crate) fn advance(&self, secs: i64) {
        self.now.fetch_add(secs, Ordering::SeqCst);
    }
}

impl Source for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_seconds(self.now.load(Ordering::SeqCst))
    }

    fn seed(&self) -> u64 {
        let seed = if ASKED.try_with(|()| ()).is_ok() { &self.seed } else { &self.own_seed };
        seed.fetch_add(1, Ordering::SeqCst)
    }

    fn secret(&self) -> [u8; 32] {
        [self.secret.fetch_add(1, Ordering::SeqCst); 32]
    }
}

pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) running: Running,
    pub(crate) source: Arc<Fixed>,
}

/// Returns true if an operation of the OpenAPI document answers with a stream, which does not end by itself.
pub(crate) fn is_stream(operation: &Value) -> bool {
    operation["responses"]["200"]["content"].get("application/x-ndjson").is_some()
}

/// Returns settings with two small Service ranges, one allowed external range, and `node_ports` as the node
/// port range.
pub(crate) fn settings(node_ports: std::ops::RangeInclusive<u16>) -> Settings {
    let ranges = vec!["10.96.0.0/16".parse().unwrap(), "fd00:96::/112".parse().unwrap()];
    let external = vec!["192.0.2.0/24".parse().unwrap()];
    Settings {
        cluster: ClusterConfig::new(ranges, node_ports, external).unwrap(),
        is_insecure: false,
        hosts: Hosts::Local(Default::default()),
        health_guard_percent: 33,
        node_lost_after: NodeLostAfter::default(),
        replica_name: "test".to_owned(),
        tls: None,
        is_auth_required: false,
        page: Default::default(),
        webhooks: Default::default(),
        acme: Default::default(),
        oidc: None,
        has_kubernetes_view: false,
        responses: ResponseLimits::default(),
        tracer: Default::default(),
    }
}

pub(crate) async fn start_with(settings: Settings) -> Server {
    let source = Fixed::at(START);
    let store = store::open("memory:", source.now()).await.unwrap();
    start_on(settings, store, source).await
}

/// Starts a server on an existing store, which may contain data of the test or of an earlier server.
pub(crate) async fn start_on(settings: Settings, store: Arc<dyn Store>, source: Arc<Fixed>) -> Server {
    let running = ServerState::start(settings, store, source.clone()).await.unwrap();
    Server { router: api::service(Arc::clone(&running.app)), running, source }
}

pub(crate) async fn start() -> Server {
    start_with(settings(30000..=32767)).await
}

impl Server {
    pub(crate) async fn send(&self, request: Request<Body>) -> Response {
        ASKED.scope((), self.router.clone().oneshot(request)).await.unwrap()
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let builder = Request::builder().method(method).uri(path).header("if-match", "*");
        let request = match body {
            Some(body) => {
                builder.header("content-type", "application/json").body(Body::from(body.to_string()))
            }
            None => builder.body(Body::empty()),
        };
        let response = self.send(request.unwrap()).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

/// Reader of the lines of a streaming response.
pub(crate) struct Lines {
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, buffer: Vec::new() }
    }

    /// Returns the next line with its line end, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                return Some(String::from_utf8(line).unwrap());
            }
            if !self.read_piece().await {
                return None;
            }
        }
    }

    /// Reads one piece of the body, whose lines `next` returns. Returns false at the end of the stream.
    pub(crate) async fn read_piece(&mut self) -> bool {
        let frame = tokio::time::timeout(std::time::Duration::from_secs(30), self.body.frame()).await;
        let Some(frame) = frame.expect("the stream went silent") else { return false };
        if let Ok(data) = frame.unwrap().into_data() {
            self.buffer.extend_from_slice(&data);
        }
        true
    }

    /// Returns the lines up to and including the first that contains a text.
    pub(crate) async fn until(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.next().await {
            let is_last = line.contains(text);
            lines.push(line);
            if is_last {
                return lines;
            }
        }
        panic!("the stream ended before {text}: {lines:?}");
    }
}
