//! Simulated control server: serves the API paths that an agent uses, with scripted responses. Unlike a real
//! server, it can send half a frame, stop sending, or return to an older state.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use futures::channel::mpsc as stream;
use model::wire::{feed::Frame, report::Report};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle, time::timeout};

/// Maximum time to wait for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Control {
    pub address: SocketAddr,
    streams: mpsc::UnboundedReceiver<Stream>,
    listeners: mpsc::UnboundedReceiver<Stream>,
    said: Arc<Mutex<Said>>,
    server: JoinHandle<()>,
}

/// Requests that the simulated control server has received, and settings that determine its responses.
#[derive(Default)]
pub struct Said {
    /// Every request in order, as `METHOD path`.
    pub requests: Vec<String>,
    /// Bodies of the registration requests.
    pub registrations: Vec<serde_json::Value>,
    /// Reports that were accepted.
    pub reports: Vec<Report>,
    /// True if the agent's node is registered.
    pub knows_node: bool,
    /// True if registrations are to be rejected.
    pub refuses_nodes: bool,
    /// True if query streams are to be rejected, as by a server that does not support them.
    pub refuses_listeners: bool,
    /// Replies to queries, each with the number of its query.
    pub answers: Vec<(u64, serde_json::Value)>,
    /// True if reports are to be rejected while they contain `/facts/kernel`, as by an older server without this field.
    pub is_older: bool,
    /// True if reports are to be answered with status 503.
    pub refuses_reports: bool,
    /// Time for which each report request is delayed.
    pub report_time: Duration,
    /// Current and maximum number of concurrent report requests.
    pub reports_in_flight: (u32, u32),
}

/// Feed stream (state) or query stream that an agent has opened at the simulated control server. Dropping it
/// ends the stream.
pub struct Stream {
    /// Position (epoch and revision) from which the agent's request resumes.
    pub resume: Option<String>,
    body: stream::UnboundedSender<std::io::Result<Vec<u8>>>,
}

impl Stream {
    pub fn send(&self, frames: &[Frame]) {
        for frame in frames {
            let mut line = serde_json::to_vec(frame).unwrap();
            line.push(b'\n');
            self.send_bytes(line);
        }
    }

    pub fn send_bytes(&self, bytes: impl Into<Vec<u8>>) {
        self.body.unbounded_send(Ok(bytes.into())).expect("the agent reads the stream");
    }

    /// Breaks the stream off in the middle of the transfer, as a crashed server would.
    pub fn cut(self) {
        let _ = self.body.unbounded_send(Err(std::io::Error::other("cut")));
    }

    /// Waits until the agent has disconnected.
    pub async fn left(&self) {
        let left = async {
            while !self.body.is_closed() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, left).await.expect("the agent leaves the stream");
    }
}

#[derive(Clone)]
struct Shared {
    said: Arc<Mutex<Said>>,
    streams: mpsc::UnboundedSender<Stream>,
    listeners: mpsc::UnboundedSender<Stream>,
}

impl Control {
    /// Starts a simulated control server that already has a Node object for the agent's node.
    pub async fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let said = Arc::new(Mutex::new(Said { knows_node: true, ..Said::default() }));
        let (opened, streams) = mpsc::unbounded_channel();
        let (listening, listeners) = mpsc::unbounded_channel();
        let shared = Shared { said: Arc::clone(&said), streams: opened, listeners: listening };
        let router = Router::new()
            .route("/v1/nodes/{node}/state", get(state))
            .route("/v1/nodes/{node}/report", put(report))
            .route("/v1/nodes/{node}/answers/{id}", put(answer))
            .route("/v1/nodes", post(register))
            .with_state(shared);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, streams, listeners, said, server }
    }

    pub fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap()
    }

    /// Waits until the agent opens a feed stream, and returns the stream.
    pub async fn accept(&mut self) -> Stream {
        timeout(PATIENCE, self.streams.recv()).await.expect("the agent connects").unwrap()
    }

    /// Waits until the agent opens a query stream, and returns the stream.
    pub async fn accept_listener(&mut self) -> Stream {
        timeout(PATIENCE, self.listeners.recv()).await.expect("the agent listens").unwrap()
    }

    /// Waits until the received requests satisfy a condition.
    pub async fn until(&self, what: &str, condition: impl Fn(&Said) -> bool) {
        let met = async {
            while !condition(&self.said()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, met).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(serde::Deserialize)]
struct Resume {
    resume: Option<String>,
    asks: Option<String>,
}

async fn state(State(shared): State<Shared>, Query(Resume { resume, asks }): Query<Resume>) -> Response {
    {
        let mut said = shared.said.lock().unwrap();
        said.requests.push(if asks.is_some() { "GET questions" } else { "GET state" }.to_owned());
        if asks.is_some() && said.refuses_listeners {
            return StatusCode::BAD_REQUEST.into_response();
        }
        if !said.knows_node {
            return (StatusCode::NOT_FOUND, r#"{"code":"NodeNotFound"}"#).into_response();
        }
    }
    let (body, lines) = stream::unbounded();
    let to = if asks.is_some() { &shared.listeners } else { &shared.streams };
    to.send(Stream { resume, body }).unwrap();
    Body::from_stream(lines).into_response()
}

async fn register(State(shared): State<Shared>, Json(node): Json<serde_json::Value>) -> Response {
    let mut said = shared.said.lock().unwrap();
    said.requests.push("POST nodes".to_owned());
    said.registrations.push(node);
    if said.refuses_nodes {
        return (StatusCode::UNPROCESSABLE_ENTITY, r#"{"code":"Invalid"}"#).into_response();
    }
    said.knows_node = true;
    StatusCode::CREATED.into_response()
}

async fn answer(
    State(shared): State<Shared>,
    Path((_node, id)): Path<(String, u64)>,
    Json(reply): Json<serde_json::Value>,
) -> StatusCode {
    shared.said.lock().unwrap().answers.push((id, reply));
    StatusCode::NO_CONTENT
}

async fn report(State(shared): State<Shared>, Json(mut report): Json<serde_json::Value>) -> Response {
    let report_time = {
        let mut said = shared.said.lock().unwrap();
        said.requests.push("PUT report".to_owned());
        if said.refuses_reports {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        if !said.knows_node {
            return StatusCode::NOT_FOUND.into_response();
        }
        if said.is_older {
            if report["facts"].get("kernel").is_some() {
                let error = serde_json::json!({"pointer": "/facts/kernel", "code": "Invalid", "message": "unknown field `kernel`"});
                return (StatusCode::UNPROCESSABLE_ENTITY, Json(serde_json::json!({"errors": [error]})))
                    .into_response();
            }
            // For the type of this version.
            report["facts"]["kernel"] = "left out".into();
        }
        let (running, most) = said.reports_in_flight;
        said.reports_in_flight = (running + 1, most.max(running + 1));
        said.report_time
    };
    tokio::time::sleep(report_time).await;
    let mut said = shared.said.lock().unwrap();
    said.reports_in_flight.0 -= 1;
    said.reports.push(serde_json::from_value(report).expect("agents send reports"));
    StatusCode::NO_CONTENT.into_response()
}
