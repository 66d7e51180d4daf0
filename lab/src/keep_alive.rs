//! A client that keeps its connection, for those who measure what a request takes: [`crate::control::Http`] makes one anew for
//! each request.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{control::no_tls, netns::Namespace};

/// How long one request may take on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

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
}

impl KeepAlive {
    /// A client for the server at `base` (`http://address:port`).
    ///
    /// # Errors
    /// No sockets or threads are left.
    pub fn new(namespace: &Namespace, base: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = reqwest::Client::builder().tls_backend_preconfigured(no_tls()?).tcp_nodelay(true);
        let client = client.timeout(REQUEST_TIMEOUT).pool_idle_timeout(None).no_proxy().build()?;
        Ok(Self { namespace: namespace.clone(), base: base.to_owned(), client, runtime })
    }

    /// Patches an object by a JSON merge patch.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn merge_patch(&self, path: &str, patch: &Value) -> Result<Timed> {
        let url = format!("{}{path}", self.base);
        let body = patch.to_string();
        self.namespace.inside(|| {
            self.runtime.block_on(async {
                let request =
                    self.client.patch(&url).header("content-type", "application/merge-patch+json").body(body);
                let begun = Instant::now();
                let answer = request.send().await.with_context(|| format!("PATCH {url}"))?;
                let status = answer.status();
                let text = answer.text().await.with_context(|| format!("PATCH {url}"))?;
                let answered = Instant::now();
                if !status.is_success() {
                    bail!("PATCH {url} answered {status}: {text}");
                }
                Ok(Timed { begun, answered })
            })
        })
    }
}
