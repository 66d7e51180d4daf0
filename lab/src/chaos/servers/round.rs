//! One round of the consistency test, determined by a seed: clients write and read during faults, then
//! without faults, and the checker verifies their observations.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use tokio::{runtime::Runtime, sync::watch, task::JoinSet};

use super::{
    faults::{ServerFault, Targets},
    feeders,
    site::Site,
    watchers::{self, Course},
    writers::ClientWriter,
};
use crate::host::random::Random;
use crate::{
    chaos::histories::{Freshness, History, RequestOutcome, Violation, Watch, WatchStep, check},
    host::{netns::Namespace, wait},
};

/// Parameters of one round of the consistency test.
#[derive(Debug, Clone)]
pub struct Round {
    /// Random seed of requests and faults.
    pub seed: u64,
    /// Number of clients that write and read in a closed loop.
    pub writers: usize,
    /// Number of watchers that switch between servers.
    pub watchers: usize,
    /// Number of faults injected during the round.
    pub faults: usize,
    /// Node whose feed a simulated agent follows; `None` runs the round without an agent.
    pub node: Option<String>,
}

/// Observations in a round, and the guarantees that they violate.
#[derive(Debug)]
pub struct RoundOutcome {
    /// Observations of all clients.
    pub history: History,
    /// Faults injected during the round.
    pub faults: Vec<ServerFault>,
    /// Guarantees that the observations violate.
    pub violations: Vec<Violation>,
}

impl Round {
    /// Runs the round, with its clients in the network namespace `clients` and faults in `targets`. In the
    /// end, all servers run and serve.
    ///
    /// # Errors
    /// Returns an error if a tool fails or a server does not recover.
    pub fn run(&self, clients: &Namespace, targets: &mut Targets) -> Result<RoundOutcome> {
        let servers: Vec<SocketAddr> = targets.servers.iter().map(|server| server.address).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (calm, is_calm) = watch::channel(false);
        let mut random = Random::new(self.seed, 0);
        let (gathered, struck) = thread::scope(|scope| {
            let gathering = scope.spawn(|| {
                clients.inside(|| -> Result<History> {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                    self.gather(&runtime, &servers, &stop, is_calm)
                })
            });
            let struck = targets.storm(&mut random, self.faults).and_then(|faults| {
                targets.wait_calm()?;
                Ok(faults)
            });
            stop.store(true, Ordering::Relaxed);
            // The recorder ends by itself even if the receiver is gone.
            let _ = calm.send(true);
            (gathering.join(), struck)
        });
        let faults = struck?;
        let Ok(history) = gathered else { bail!("the clients panicked") };
        let history = history?;
        let violations = check(&history);
        Ok(RoundOutcome { history, faults, violations })
    }

    fn gather(
        &self,
        runtime: &Runtime,
        servers: &[SocketAddr],
        stop: &Arc<AtomicBool>,
        mut is_calm: watch::Receiver<bool>,
    ) -> Result<History> {
        runtime.block_on(async {
            let site = Arc::new(Site::new(servers, self.seed).await?);
            let (goal, goals) = watch::channel(None);
            let mut writers = JoinSet::new();
            for index in 0..self.writers {
                writers.spawn(ClientWriter::new(&site, index, self.seed)?.run(Arc::clone(stop)));
            }
            let mut watches = JoinSet::new();
            for lane in 0..self.watchers {
                let course = Course::Random { seed: self.seed, lane: lane as u64 };
                let name = format!("watcher {}", lane + 1);
                watches.spawn(watchers::watch(Arc::clone(&site), name, course, goals.clone()));
            }
            let feed = self.node.as_ref().map(|node| {
                tokio::spawn(feeders::feed(Arc::clone(&site), node.clone(), self.seed, goals.clone()))
            });
            let mut operations: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
            is_calm.wait_for(|calm| *calm).await?;
            let (head, last) = self.mark_end(&site).await?;
            operations.extend(last);
            goal.send(Some(head))?;
            // The log of each server.
            for server in 0..servers.len() {
                let (course, name) = (Course::Server(server), format!("log of server {}", server + 1));
                watches.spawn(watchers::watch(Arc::clone(&site), name, course, goals.clone()));
            }
            let watches = watches.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
            let mut feeds = Vec::new();
            if let Some(feed) = feed {
                feeds.push(feed.await.context("the agent panicked")??);
            }
            let log = log_of(&watches, head);
            // Objects that cannot be deleted only clutter later rounds.
            let _ = site.clear(&super::site::client()?).await;
            Ok(History { start: site.start, operations, log, head, watches, feeds })
        })
    }

    /// Ends the history after the faults: writes through every server and lists all objects at every server.
    /// Returns the last revision and these operations.
    async fn mark_end(&self, site: &Arc<Site>) -> Result<(u64, Vec<crate::chaos::histories::Operation>)> {
        let mut writer = ClientWriter::new(site, self.writers, self.seed)?;
        let mut head = 0;
        let deadline = Instant::now() + wait::PATIENCE;
        for server in 0..site.servers.len() {
            let mut attempt = 0;
            head = loop {
                if let Some(revision) = writer.mark(server, attempt).await {
                    break revision.max(head);
                }
                if Instant::now() >= deadline {
                    bail!("server {} accepts no write: {:?}", server + 1, writer.into_operations().last());
                }
                attempt += 1;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            };
        }
        for server in 0..site.servers.len() {
            writer.list(server, Freshness::AtLeast(head)).await;
        }
        Ok((head, writer.into_operations()))
    }
}

/// Returns the change log up to revision `head`, as received by the watcher of the first server. The watches
/// of the other servers are checked against it.
fn log_of(watches: &[Watch], head: u64) -> Vec<crate::chaos::histories::ChangeEvent> {
    let first = watches.iter().find(|watch| watch.name == "log of server 1");
    let steps = first.map(|watch| &watch.steps[..]).unwrap_or_default();
    let event = |step: &WatchStep| match step {
        WatchStep::Event(event) => Some(event.clone()).filter(|event| event.revision <= head),
        WatchStep::Reached(_) | WatchStep::Listed { .. } => None,
    };
    steps.iter().filter_map(event).collect()
}

impl fmt::Display for RoundOutcome {
    /// Formats the statistics of the round on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for operation in &self.history.operations {
            let what = match operation.answer {
                RequestOutcome::Accepted(_) => "accepted",
                RequestOutcome::Refused(_) => "refused",
                RequestOutcome::Unknown => "unknown",
                RequestOutcome::Object(_) | RequestOutcome::Listing { .. } => "read",
                RequestOutcome::Unexpected(_) => "unexpected",
            };
            *counts.entry(what).or_default() += 1;
        }
        let steps = self.history.watches.iter().flat_map(|watch| &watch.steps);
        let anew = steps.filter(|step| matches!(step, WatchStep::Listed { .. })).count();
        let faults: Vec<_> = self.faults.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{} operations {counts:?}, {} events, {anew} watches begun anew, {} synced; {}",
            self.history.operations.len(),
            self.history.log.len(),
            self.history.feeds.iter().map(|feed| feed.steps.len()).sum::<usize>(),
            faults.join(", "),
        )
    }
}
