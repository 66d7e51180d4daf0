//! A client that keeps its connection, for those who measure what a request takes: [`crate::control::Http`] makes one anew for
//! each request.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{cluster::control::no_tls, host::netns::Namespace};

/// How long one request may take on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection may rest and be used again. The server closes it after a while, and nobody here would notice:
/// the client works only while a request is under way.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// An HTTP client in a namespace with a connection of its own.
#[derive(Debug)]
pub struct KeepAlive {
    namespace: Namespace,
    base: String,
    client: reqwest::Client,
    runtime: Runtime,
}

/// When a request began and when its answer was there.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// Just before it was sent.
    pub begun: Instant,
    /// When the answer had been read.
    pub answered: Instant,
    /// The revision that the store was at then, of a write.
    pub revision: Option<u64>,
}

impl KeepAlive {
    /// A client for the server at `base` (`http://address:port`).
    ///
    /// # Errors
    /// No sockets or threads are left.
    pub fn new(namespace: &Namespace, base: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = reqwest::Client::builder().tls_backend_preconfigured(no_tls()?).tcp_nodelay(true);
        let client = client.timeout(REQUEST_TIMEOUT).pool_idle_timeout(IDLE_MAX).no_proxy().build()?;
        Ok(Self { namespace: namespace.clone(), base: base.to_owned(), client, runtime })
    }

    /// Patches an object by a JSON merge patch.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn merge_patch(&self, path: &str, patch: &Value) -> Result<Timed> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch.to_string())
    }

    /// Creates an object in the collection at a path.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn create(&self, path: &str, object: &Value) -> Result<Timed> {
        self.send(Method::POST, path, "application/json", object.to_string())
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn delete(&self, path: &str) -> Result<Timed> {
        self.send(Method::DELETE, path, "application/json", String::new())
    }

    fn send(&self, method: Method, path: &str, kind: &str, body: String) -> Result<Timed> {
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
                Ok(Timed { begun, answered, revision })
            })
        })
    }
}
