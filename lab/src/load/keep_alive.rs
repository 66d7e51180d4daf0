//! HTTP client that keeps its connection open between requests, for latency measurements.
//! [`Http`](crate::cluster::control::Http) opens a connection per request.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{cluster::control::http_builder, host::netns::Namespace};

/// Timeout of a request, long enough for a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum idle time before a connection is replaced. The server closes idle connections, which the client
/// cannot detect between requests, because its runtime only runs during a request.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// HTTP client in a namespace with its own persistent connection.
#[derive(Debug)]
pub struct KeepAlive {
    namespace: Namespace,
    base: String,
    client: reqwest::Client,
    runtime: Runtime,
}

/// Times at which a request was sent and its response was complete.
#[derive(Debug, Clone, Copy)]
pub struct RequestTiming {
    /// Time just before the request was sent.
    pub begun: Instant,
    /// Time after the response was read.
    pub answered: Instant,
    /// Store revision in the response to a write; `None` for reads.
    pub revision: Option<u64>,
}

impl KeepAlive {
    /// Creates a client for the server at `base` (`http://address:port`).
    ///
    /// # Errors
    /// Returns an error if no sockets or threads are available.
    pub fn new(namespace: &Namespace, base: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = http_builder()?.tcp_nodelay(true).timeout(REQUEST_TIMEOUT);
        let client = client.pool_idle_timeout(IDLE_MAX).build()?;
        Ok(Self { namespace: namespace.clone(), base: base.to_owned(), client, runtime })
    }

    /// Sends a JSON merge patch for the object at `path`, and returns the times of the request.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or rejects the patch.
    pub fn merge_patch(&self, path: &str, patch: &Value) -> Result<RequestTiming> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch.to_string())
    }

    /// Creates an object in the collection at `path`, and returns the times of the request.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or rejects the object.
    pub fn create(&self, path: &str, object: &Value) -> Result<RequestTiming> {
        self.send(Method::POST, path, "application/json", object.to_string())
    }

    /// Deletes the object at `path`, and returns the times of the request.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or rejects the deletion.
    pub fn delete(&self, path: &str) -> Result<RequestTiming> {
        self.send(Method::DELETE, path, "application/json", String::new())
    }

    fn send(&self, method: Method, path: &str, kind: &str, body: String) -> Result<RequestTiming> {
        let url = format!("{}{path}", self.base);
        let what = format!("{method} {url}");
        self.namespace.inside(|| {
            self.runtime.block_on(async {
                let request = self.client.request(method, &url).header("content-type", kind).body(body);
                let begun = Instant::now();
                let answer = request.send().await.with_context(|| what.clone())?;
                let status = answer.status();
                let revision = answer.headers().get("x-revision").and_then(|value| value.to_str().ok());
                let revision = revision.and_then(|text| text.parse().ok());
                let text = answer.text().await.with_context(|| what.clone())?;
                let answered = Instant::now();
                if !status.is_success() {
                    bail!("{what} answered {status}: {text}");
                }
                Ok(RequestTiming { begun, answered, revision })
            })
        })
    }
}
