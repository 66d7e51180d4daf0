//! Simulated agent of the load generator. Uses two connections: one to read its feed (stream of cluster
//! state) and one to send reports.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::LineBuffer;
use model::{
    primitives::quantity::Position,
    wire::{feed::Frame, report::Report},
};
use reqwest::{Client, Response};
use serde_json::json;
use tokio::{sync::watch, time::timeout};

use super::{node, serve::Follower};
use crate::cluster::control::http_builder;

/// Interval between reports while the agent makes no progress.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Timeout of a request, long enough for a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without data on the feed, after which the agent reconnects: three times the interval of
/// heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Maximum length of a line of the feed (stream of cluster state) in bytes.
const LINE_BYTES_MAX: usize = 32 << 20;
/// Prefixes of feed lines that are not parsed, because the CPU time of a simulated agent is not to be
/// measured.
const SKIPPED: [&[u8]; 5] = [
    br#"{"type":"service""#,
    br#"{"type":"network""#,
    br#"{"type":"removed""#,
    br#"{"type":"address""#,
    br#"{"type":"addressRemoved""#,
];

/// Reads the feed (stream of cluster state) and sends reports until an error occurs. `held` is the position
/// (epoch and revision) from which the feed resumes, and is updated with each batch.
pub(super) async fn follow(follower: &Follower, held: &mut Option<Position>) -> Result<()> {
    let client = http_builder()?.tcp_nodelay(true).local_address(follower.from).build()?;
    let (reached, known) = watch::channel(*held);
    tokio::select! {
        ended = listen(follower, &client, held, &reached) => ended,
        ended = report(follower, &client, known) => ended,
    }
}

async fn listen(
    follower: &Follower,
    client: &Client,
    held: &mut Option<Position>,
    reached: &watch::Sender<Option<Position>>,
) -> Result<()> {
    let mut url = format!("http://{}/v1/nodes/{}/state", follower.server, node(follower.number));
    if let Some(held) = held {
        url.push_str(&format!("?resume={held}"));
    }
    let answer = timeout(REQUEST_TIMEOUT, client.get(url).send()).await.context("no answer")??;
    let mut feed = Lines::new(answer.error_for_status()?);
    let mut has_begun = false;
    loop {
        let moved = timeout(SILENCE_MAX, feed.next(hear)).await.context("the feed is silent")??;
        // The first batch confirms that the control server has registered the node, even if the batch is empty.
        if *held != Some(moved) || !has_begun {
            has_begun = true;
            ensure!(held.is_none_or(|held| held <= moved), "the feed went back from {held:?} to {moved}");
            *held = Some(moved);
            reached.send_replace(Some(moved));
        }
    }
}

/// Returns the position (epoch and revision) in a feed line that follows a complete batch (`synced` or a
/// heartbeat), or `None` for other lines. The server sends no heartbeat before the first `synced`.
fn hear(line: &[u8]) -> Result<Option<Position>> {
    if SKIPPED.iter().any(|skipped| line.starts_with(skipped)) {
        return Ok(None);
    }
    Ok(match serde_json::from_slice(line).context("parsing a line of the feed")? {
        Frame::Synced { position, .. } | Frame::Heartbeat { position } => Some(position),
        Frame::Start { .. }
        | Frame::Network(_)
        | Frame::Node(_)
        | Frame::Service { .. }
        | Frame::Removed { .. }
        | Frame::Address { .. }
        | Frame::AddressRemoved { .. }
        | Frame::WorkloadNetwork { .. }
        | Frame::WorkloadNetworkRemoved { .. }
        | Frame::Block { .. }
        | Frame::BlockRemoved { .. }
        | Frame::PolicySet { .. }
        | Frame::PolicySetRemoved { .. }
        | Frame::PolicyWorkload { .. }
        | Frame::PolicyWorkloadRemoved { .. }
        | Frame::Ask { .. } => None,
    })
}

/// Sends a report after each batch of the feed, and at intervals without one. Batches that arrive while a
/// report is in flight share the next report. `known` contains the position (epoch and revision) after the
/// last batch.
async fn report(
    follower: &Follower,
    client: &Client,
    mut known: watch::Receiver<Option<Position>>,
) -> Result<()> {
    let url = format!("http://{}/v1/nodes/{}/report", follower.server, node(follower.number));
    let mut report = first_report(follower)?;
    // An agent sends no report before its first batch.
    known.changed().await.context("the feed has ended")?;
    loop {
        let position = known.borrow_and_update().unwrap_or_default();
        (report.received, report.applied, report.verified) = (position, position, position);
        report.counters.passes += 1;
        let answer = client.put(&url).json(&report).timeout(REQUEST_TIMEOUT).send().await?;
        let status = answer.status();
        ensure!(status.is_success(), "report: {status}: {}", answer.text().await.unwrap_or_default());
        answer.bytes().await?;
        follower.tally.note(follower.number, position.revision.0);
        if let Ok(changed) = timeout(REPORT_EVERY, known.changed()).await {
            changed.context("the feed has ended")?;
        }
    }
}

/// Builds the first report of an agent: healthy, with one interface, and without announcements or
/// health-checked endpoints.
fn first_report(follower: &Follower) -> Result<Report> {
    let [high, low] = follower.number.to_be_bytes();
    let address = format!("172.{}.{low}.10", 16 + high);
    let report = json!({
        "bootId": format!("fleet-{}-{}", std::process::id(), follower.number),
        "agentVersion": env!("CARGO_PKG_VERSION"),
        "mode": "nftables",
        "received": Position::default(),
        "applied": Position::default(),
        "verified": Position::default(),
        "facts": {
            "addresses": [address],
            "subnets": {"eth0": [format!("172.{}.{low}.0/24", 16 + high)]},
            "kernel": "simulated",
            "capabilities": ["nftables"],
        },
        "announcementsComplete": true,
        "bgpRoutesComplete": true,
        "healthComplete": true,
    });
    serde_json::from_value(report).context("building the report of a healthy agent")
}

/// Reader that splits a streamed response into lines.
pub(super) struct Lines {
    answer: Response,
    buffer: LineBuffer,
}

impl Lines {
    pub(super) fn new(answer: Response) -> Self {
        Self { answer, buffer: LineBuffer::new(LINE_BYTES_MAX) }
    }

    /// Reads lines until `hear` returns a value for one of them, and returns that value. Of several lines
    /// that were received together, the last one with a value counts.
    pub(super) async fn next<T>(&mut self, hear: impl Fn(&[u8]) -> Result<Option<T>>) -> Result<T> {
        loop {
            self.buffer.push(&self.answer.chunk().await?.context("the stream has ended")?);
            let mut newest = None;
            while let Some(line) = self.buffer.next_line()? {
                newest = hear(&line)?.or(newest);
            }
            if let Some(newest) = newest {
                return Ok(newest);
            }
        }
    }
}
