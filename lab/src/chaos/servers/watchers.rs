//! Watchers that record the change events they receive. Some switch between servers, often in the middle of a
//! stream.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use client::Lines;
use reqwest::{Client, Response};
use serde_json::Value;
use tokio::{sync::watch, time::timeout};

use super::site::{Site, client, event, position};
use crate::host::random::Random;
use crate::{
    chaos::histories::{ChangeEvent, Freshness, RequestOutcome, Watch, WatchStep},
    host::wait,
};

/// Timeout for the first byte of a stream.
const ANSWER_PATIENCE: Duration = Duration::from_millis(1500);
/// Minimum and maximum duration of a watch stream in milliseconds.
const STREAM_MS: (u64, u64) = (30, 500);

/// Maximum duration of a stream of a watcher that uses one server only. Limited, because the stream may hang
/// on a connection that the server has lost.
const ONE_STREAM: Duration = Duration::from_secs(5);

/// Maximum length of a line in bytes, far above the server's limit for one object.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;

/// Receiver of the final revision that watchers and agents must reach. Contains `None` until this revision is
/// known.
pub type Goal = watch::Receiver<Option<u64>>;

/// Choice of the server for each stream that a watcher opens.
#[derive(Debug, Clone, Copy)]
pub enum Course {
    /// Random server for each stream. Each stream is cut at a random time.
    Random {
        /// Seed of the order of servers and of the durations of the streams.
        seed: u64,
        /// Number of the random sequence within the seed, different for each watcher.
        lane: u64,
    },
    /// Always the server with this index.
    Server(usize),
}

/// Follows the events of a round until the watcher reaches the final revision in `goal`, or until the test
/// timeout has passed since that revision became known.
///
/// # Errors
/// Returns an error if the HTTP client cannot be created.
pub async fn watch(site: Arc<Site>, name: String, course: Course, goal: Goal) -> Result<Watch> {
    let client = client()?;
    let mut watcher = Watcher {
        at: site.start,
        watch: Watch { name, start: site.start, steps: Vec::new() },
        site,
        pending: Vec::new(),
        goal,
    };
    let (seed, lane) = match course {
        Course::Random { seed, lane } => (seed, 500 + lane),
        Course::Server(server) => (0, server as u64),
    };
    let mut random = Random::new(seed, lane);
    let mut given_up = None;
    while !watcher.is_there() {
        let (server, life) = match course {
            Course::Random { .. } => {
                (random.index(watcher.site.servers.len()), random.millis(STREAM_MS.0, STREAM_MS.1))
            }
            Course::Server(server) => (server, ONE_STREAM),
        };
        watcher.follow(&client, server, life).await;
        let is_late = *given_up.get_or_insert(Instant::now() + wait::PATIENCE) < Instant::now();
        match *watcher.goal.borrow() {
            None => given_up = None,
            // The history check reports the missed events.
            Some(_) if is_late => break,
            Some(_) => {}
        }
    }
    Ok(watcher.watch)
}

struct Watcher {
    site: Arc<Site>,
    watch: Watch,
    at: u64,
    /// Events of an incomplete revision; a resumed stream repeats them.
    pending: Vec<ChangeEvent>,
    goal: Goal,
}

impl Watcher {
    fn is_there(&self) -> bool {
        self.goal.borrow().is_some_and(|goal| self.at >= goal)
    }

    /// Follows one watch stream until it ends or `life` has elapsed. Every end is acceptable, because the
    /// watcher then opens another stream.
    async fn follow(&mut self, client: &Client, server: usize, life: Duration) {
        self.pending.clear();
        let path = format!(
            "/v1/watch?kinds=Service&namespace={}&resume={}",
            self.site.namespace,
            self.site.token(self.at)
        );
        let request = client.get(self.site.url(server, &path)).send();
        let Ok(Ok(response)) = timeout(ANSWER_PATIENCE, request).await else {
            return tokio::time::sleep(Duration::from_millis(10)).await;
        };
        match response.status().as_u16() {
            200 => {}
            410 => return self.begin_anew(client, server).await,
            _ => return tokio::time::sleep(Duration::from_millis(20)).await,
        }
        let mut goal = self.goal.clone();
        let lines = self.lines(response);
        tokio::pin!(lines);
        tokio::select! {
            _ = &mut lines => return,
            () = tokio::time::sleep(life) => return,
            _ = goal.wait_for(Option::is_some) => {}
        }
        // Once the goal is known, this stream is followed up to it or for the usual duration.
        let _ = timeout(life, lines).await;
    }

    async fn lines(&mut self, response: Response) -> Result<()> {
        let mut lines = Lines::new(response, LINE_BYTES_MAX, ONE_STREAM);
        while !self.is_there() {
            let Some(line) = lines.next().await? else { bail!("it ended") };
            self.hear(&serde_json::from_slice(&line)?)?;
        }
        Ok(())
    }

    fn hear(&mut self, line: &Value) -> Result<()> {
        if let Some(event) = event(line) {
            self.pending.push(event);
        } else if !matches!(line["type"].as_str(), Some("HEARTBEAT" | "BOOKMARK")) {
            bail!("the stream ends: {line}");
        }
        if line.get("position").is_some() {
            let (_, revision) = position(&line["position"])?;
            self.watch.steps.extend(self.pending.drain(..).map(WatchStep::Event));
            self.watch.steps.push(WatchStep::Reached(revision));
            self.at = revision;
        }
        Ok(())
    }

    /// Lists all objects after the resume token has expired, and lets the watcher continue from that list.
    async fn begin_anew(&mut self, client: &Client, server: usize) {
        if let Ok(RequestOutcome::Listing { at, objects }) =
            self.site.list(client, server, Freshness::AtLeast(self.at)).await
        {
            self.watch.steps.push(WatchStep::Listed { at, objects });
            self.at = at;
        }
    }
}
