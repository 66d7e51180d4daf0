//! Simulated agent that switches between control servers and records its state at each `synced` frame (end of
//! a consistent batch of changes).

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use client::Lines;
use reqwest::{Client, Response};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    site::{Site, client, position},
    watchers::{Goal, LINE_BYTES_MAX},
};
use crate::host::random::Random;
use crate::{
    chaos::histories::{Feed, FeedStep},
    host::wait,
};

/// Timeout for the start of a feed, and for the next data in it.
const ANSWER_PATIENCE: Duration = Duration::from_millis(1500);
/// Minimum and maximum duration of a feed stream in milliseconds.
const STREAM_MS: (u64, u64) = (50, 500);

/// Follows the feed (stream of state) of a node until the agent reaches the final revision in `goal`, or
/// until the test timeout has passed since that revision became known. The first stream starts with a full
/// sync, because the agent has no position yet.
///
/// # Errors
/// Returns an error if the HTTP client cannot be created.
pub async fn feed(site: Arc<Site>, node: String, seed: u64, goal: Goal) -> Result<Feed> {
    let client = client()?;
    let mut random = Random::new(seed, 900);
    let mut agent = SilentAgent {
        feed: Feed { name: format!("agent of {node}"), steps: Vec::new() },
        site,
        node,
        at: None,
        taken: BTreeMap::new(),
        working: BTreeMap::new(),
        is_open: false,
    };
    let mut given_up = None;
    loop {
        let reached = agent.at.unwrap_or(0);
        if goal.borrow().is_some_and(|goal| reached >= goal) {
            return Ok(agent.feed);
        }
        let (server, life) =
            (random.index(agent.site.servers.len()), random.millis(STREAM_MS.0, STREAM_MS.1));
        agent.follow(&client, server, life).await;
        let is_late = *given_up.get_or_insert(Instant::now() + wait::PATIENCE) < Instant::now();
        match *goal.borrow() {
            None => given_up = None,
            Some(_) if is_late => return Ok(agent.feed),
            Some(_) => {}
        }
    }
}

struct SilentAgent {
    site: Arc<Site>,
    node: String,
    feed: Feed,
    at: Option<u64>,
    /// Address of each object at the last `synced` frame.
    taken: BTreeMap<String, String>,
    /// Address of each object after the frames that followed the last `synced`.
    working: BTreeMap<String, String>,
    /// True if the received state may be inconsistent: from the start of a stream or a change until the next
    /// `synced` frame. A heartbeat in this time does not confirm the state.
    is_open: bool,
}

impl SilentAgent {
    async fn follow(&mut self, client: &Client, server: usize, life: Duration) {
        // Discards the changes of a stream that was cut between two `synced`.
        self.working.clone_from(&self.taken);
        self.is_open = true;
        let resume = self.at.map(|at| format!("?resume={}", self.site.token(at))).unwrap_or_default();
        let path = format!("/v1/nodes/{}/state{resume}", self.node);
        let request = client.get(self.site.url(server, &path)).send();
        match timeout(ANSWER_PATIENCE, request).await {
            Ok(Ok(response)) if response.status().is_success() => {
                let _ = timeout(life, self.lines(response)).await;
            }
            Ok(Ok(_) | Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }

    async fn lines(&mut self, response: Response) -> Result<()> {
        let mut lines = Lines::new(response, LINE_BYTES_MAX, ANSWER_PATIENCE);
        while let Some(line) = lines.next().await? {
            self.hear(&serde_json::from_slice(&line)?)?;
        }
        bail!("it ended")
    }

    fn hear(&mut self, frame: &Value) -> Result<()> {
        match frame["type"].as_str() {
            Some("start") => {
                // Like a real agent, rejects an older state.
                let (_, revision) = position(&frame["position"])?;
                if self.at.is_some_and(|at| revision < at) {
                    bail!("the server is behind");
                }
                if frame["mode"] == "full" {
                    self.working.clear();
                }
            }
            Some("service") => {
                self.is_open = true;
                let service = &frame["service"];
                let address = service["clusterIPs"][0].as_str();
                if let Some(key) = self.key(&service["service"]) {
                    match address {
                        Some(address) => drop(self.working.insert(key, address.to_owned())),
                        None => drop(self.working.remove(&key)),
                    }
                }
            }
            Some("removed") => {
                self.is_open = true;
                if let Some(key) = self.key(&frame["service"]) {
                    self.working.remove(&key);
                }
            }
            // A heartbeat within a batch is no consistent point.
            Some("heartbeat") if self.is_open => {}
            Some("synced" | "heartbeat") => {
                self.is_open = false;
                let (_, at) = position(&frame["position"])?;
                self.taken.clone_from(&self.working);
                self.feed.steps.push(FeedStep { at, addresses: self.taken.clone() });
                self.at = Some(at);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the name of a Service, or `None` if the Service does not belong to this round of the test.
    fn key(&self, service: &Value) -> Option<String> {
        let (namespace, name) = service.as_str()?.split_once('/')?;
        (namespace == self.site.namespace).then(|| name.to_owned())
    }
}
