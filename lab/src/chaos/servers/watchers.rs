//! Watchers that go from server to server, often in the middle of a stream, and note what they are told.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use reqwest::{Client, Response};
use serde_json::Value;
use tokio::{sync::watch, time::timeout};

use super::site::{Site, client, event, position};
use crate::host::random::Random;
use crate::{
    chaos::histories::{Answer, Event, Watch, WatchStep},
    host::wait,
};

/// How long the first byte of a stream may take.
const ANSWER_PATIENCE: Duration = Duration::from_millis(1500);
/// A watcher follows one stream for so many milliseconds at most.
const STREAM_MS: (u64, u64) = (30, 500);

/// Who follows one server only begins another stream after so long: the old one may hang on a connection that the server
/// has forgotten.
const ONE_STREAM: Duration = Duration::from_secs(5);

/// What is known of the end: the revision that everybody has to reach.
pub type Goal = watch::Receiver<Option<u64>>;

/// Whom a watcher follows.
#[derive(Debug, Clone, Copy)]
pub enum Course {
    /// One server after the other, cut off at random.
    Random {
        /// What the order follows from.
        seed: u64,
        /// Tells watchers apart.
        lane: u64,
    },
    /// One server only.
    Server(usize),
}

/// Follows everything until the goal is reached, or nothing comes for as long as tests wait.
///
/// # Errors
/// There is no HTTP client.
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
            // The check of the history says what it has missed.
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
    /// Events of a revision of which the last has not come yet: a stream that resumes begins with them again.
    pending: Vec<Event>,
    goal: Goal,
}

impl Watcher {
    fn is_there(&self) -> bool {
        self.goal.borrow().is_some_and(|goal| self.at >= goal)
    }

    /// Follows one stream to its end; why it ends does not matter, because another one is begun.
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
        // The end is known: this stream is followed to it, or for as long as any other.
        let _ = timeout(life, lines).await;
    }

    async fn lines(&mut self, mut response: Response) -> Result<()> {
        let mut text = Vec::new();
        while !self.is_there() {
            let Some(piece) = response.chunk().await? else { bail!("it ended") };
            text.extend_from_slice(&piece);
            while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                self.hear(&serde_json::from_slice(&line)?)?;
            }
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

    /// Its token has expired: it reads everything and goes on from there.
    async fn begin_anew(&mut self, client: &Client, server: usize) {
        if let Ok(Answer::Listing { at, objects }) = self.site.list(client, server, Some(self.at)).await {
            self.watch.steps.push(WatchStep::Listed { at, objects });
            self.at = at;
        }
    }
}
