//! Many clients of one server at once, each with a connection of its own, and how long each request took.

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

use crate::{cluster::control::no_tls, host::netns::Namespace, load::feed_load::now_ns};

/// How long one request may take on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What a client sends.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The HTTP method.
    pub method: &'static str,
    /// The path with its query.
    pub path: String,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// Sends requests from so many clients, each one after the other, until the time is over; says how long each took. `next` makes the
/// request of a number: they are counted over all clients.
///
/// # Errors
/// The server cannot be reached, or refuses a request.
pub fn drive(
    from: &Namespace,
    base: &str,
    clients: usize,
    time: Duration,
    next: impl Fn(u64) -> Sent + Send + Sync,
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

/// A write that was made at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// When the request was sent, as [`now_ns`].
    pub sent_ns: u64,
    /// When it was answered.
    pub answered_ns: u64,
    /// The revision that holds it.
    pub revision: u64,
}

/// Sends so many requests at so many a second, each at its time, whether those before it are answered or not.
///
/// # Errors
/// The server cannot be reached, refuses a request, or names no revision.
pub fn pace(
    from: &Namespace,
    base: &str,
    per_second: u32,
    count: u32,
    next: impl Fn(u32) -> Sent + Send + Sync,
) -> Result<Vec<Written>> {
    from.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = reqwest::Client::builder().tls_backend_preconfigured(no_tls()?).tcp_nodelay(true);
            let client = client.timeout(REQUEST_TIMEOUT).no_proxy().build()?;
            let (begun, mut under_way) = (tokio::time::Instant::now(), JoinSet::new());
            for number in 0..count {
                tokio::time::sleep_until(begun + Duration::from_secs(1) * number / per_second).await;
                under_way.spawn(write(client.clone(), base.to_owned(), next(number)));
            }
            under_way.join_all().await.into_iter().collect()
        })
    })
}

async fn write(client: reqwest::Client, base: String, sent: Sent) -> Result<Written> {
    let Sent { method, path, content_type, body } = sent;
    let url = format!("{base}{path}");
    let request = client.request(reqwest::Method::from_bytes(method.as_bytes())?, &url);
    let sent_ns = now_ns();
    let answer = request.header("content-type", content_type).body(body).send().await?;
    let answered_ns = now_ns();
    let revision = answer.headers().get("x-revision").and_then(|value| value.to_str().ok()?.parse().ok());
    let status = answer.status();
    let text = answer.text().await.with_context(|| url.clone())?;
    ensure!(status.is_success(), "{url} answered {status}: {text}");
    Ok(Written { sent_ns, answered_ns, revision: revision.context("a write names its revision")? })
}

async fn one(base: &str, end: Instant, next: impl Fn() -> Sent) -> Result<Vec<Duration>> {
    let client = reqwest::Client::builder().tls_backend_preconfigured(no_tls()?).tcp_nodelay(true);
    let client = client.timeout(REQUEST_TIMEOUT).no_proxy().build()?;
    let mut took = Vec::new();
    while Instant::now() < end {
        let Sent { method, path, content_type, body } = next();
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
