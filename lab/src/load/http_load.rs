//! HTTP load generator: many concurrent clients of one server, each with its own connection. Measures the
//! latency of each request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tokio::task::JoinSet;

use crate::{cluster::control::http_builder, host::netns::Namespace, load::feed_load::now_ns};

/// Timeout of a request, long enough for a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// HTTP request that a load generator sends.
#[derive(Debug, Clone)]
pub struct HttpRequestSpec {
    /// HTTP method of the request.
    pub method: &'static str,
    /// Path and query of the request.
    pub path: String,
    /// Content type of the body.
    pub content_type: &'static str,
    /// Body of the request.
    pub body: String,
}

/// Generates closed-loop load: each of `clients` clients sends its next request as soon as it has the
/// response to the previous one, for the duration `time`. `next` builds each request from its number, which
/// is counted over all clients. Returns the latency of each request.
///
/// # Errors
/// Returns an error if the server cannot be reached or rejects a request.
pub fn drive(
    from: &Namespace,
    base: &str,
    clients: usize,
    time: Duration,
    next: impl Fn(u64) -> HttpRequestSpec + Send + Sync,
) -> Result<Vec<Duration>> {
    from.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (number, end) = (Arc::new(AtomicU64::new(0)), Instant::now() + time);
            let next = &next;
            let client = |_| {
                let number = Arc::clone(&number);
                async move { one(base, end, || next(number.fetch_add(1, Ordering::Relaxed))).await }
            };
            let took = try_join_all((0..clients).map(client)).await?;
            Ok(took.into_iter().flatten().collect())
        })
    })
}

/// Write of an open-loop run, with its times and its revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedWrite {
    /// Time at which the request was sent, as returned by [`now_ns`].
    pub sent_ns: u64,
    /// Time at which the response arrived, as returned by [`now_ns`].
    pub answered_ns: u64,
    /// Revision that the write created.
    pub revision: u64,
}

/// Generates open-loop load: sends `count` write requests at a rate of `per_second`, each at its scheduled
/// time even if earlier responses are still missing. `next` builds each request from its number.
///
/// # Errors
/// Returns an error if the server cannot be reached, rejects a request or returns no revision.
pub fn pace(
    from: &Namespace,
    base: &str,
    per_second: u32,
    count: u32,
    next: impl Fn(u32) -> HttpRequestSpec + Send + Sync,
) -> Result<Vec<CompletedWrite>> {
    from.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = http_builder()?.tcp_nodelay(true).timeout(REQUEST_TIMEOUT).build()?;
            let (begun, mut under_way) = (tokio::time::Instant::now(), JoinSet::new());
            for number in 0..count {
                tokio::time::sleep_until(begun + Duration::from_secs(1) * number / per_second).await;
                under_way.spawn(write(client.clone(), base.to_owned(), next(number)));
            }
            under_way.join_all().await.into_iter().collect()
        })
    })
}

async fn write(client: reqwest::Client, base: String, sent: HttpRequestSpec) -> Result<CompletedWrite> {
    let HttpRequestSpec { method, path, content_type, body } = sent;
    let url = format!("{base}{path}");
    let request = client.request(reqwest::Method::from_bytes(method.as_bytes())?, &url);
    let sent_ns = now_ns();
    let answer = request.header("content-type", content_type).body(body).send().await?;
    let answered_ns = now_ns();
    let revision = answer.headers().get("x-revision").and_then(|value| value.to_str().ok()?.parse().ok());
    let status = answer.status();
    let text = answer.text().await.with_context(|| url.clone())?;
    ensure!(status.is_success(), "{url} answered {status}: {text}");
    Ok(CompletedWrite {
        sent_ns,
        answered_ns,
        revision: revision.context("the response to a write has a revision")?,
    })
}

async fn one(base: &str, end: Instant, next: impl Fn() -> HttpRequestSpec) -> Result<Vec<Duration>> {
    let client = http_builder()?.tcp_nodelay(true).timeout(REQUEST_TIMEOUT).build()?;
    let mut took = Vec::new();
    while Instant::now() < end {
        let HttpRequestSpec { method, path, content_type, body } = next();
        let url = format!("{base}{path}");
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let request = client.request(method, &url).header("content-type", content_type).body(body);
        let begun = Instant::now();
        let answer = request.send().await.with_context(|| url.clone())?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| url.clone())?;
        took.push(begun.elapsed());
        ensure!(status.is_success(), "{url} answered {status}: {text}");
    }
    Ok(took)
}
