//! Clients of a soak test that connect to Services continuously from all locations, and the results of their
//! connections.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    stage::{LIVE_SET, Stage},
    timeline::{EpisodeKind, EpisodeTimeline, Way},
};
use crate::{
    host::netns::Namespace,
    network::{
        client::{self, at},
        topology::node_addresses,
    },
};

/// Pause between two connections of a client.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of failures of each kind whose descriptions are kept.
const TOLD_MAX: usize = 50;

/// Frontend to which a client connects from a certain namespace, with the path that determines the faults
/// that excuse a failure.
#[derive(Debug, Clone)]
struct Target {
    label: String,
    from: Namespace,
    to: SocketAddr,
    is_udp: bool,
    way: Way,
}

impl Target {
    /// Connects once and waits for a reply. A UDP request is retried once; if the retry succeeds, returns the
    /// error of the first attempt as `Some`.
    ///
    /// # Errors
    /// Returns an error if there is no reply.
    fn ask(&self) -> Result<Option<anyhow::Error>> {
        if !self.is_udp {
            return client::tcp(&self.from, self.to).map(|_| None);
        }
        let client = client::UdpClient::open(&self.from, self.to)?;
        match client.ask() {
            Ok(_) => Ok(None),
            Err(error) => client.ask().map(|_| Some(error)),
        }
    }
}

/// Results of the client connections of a soak test, with the failures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Fates {
    /// Number of connections that received a reply from a backend of the test.
    pub answered: u64,
    /// Number of failed connections that are excused by a fault at the same time or shortly before, by kind
    /// of fault.
    pub excused: BTreeMap<EpisodeKind, u64>,
    /// Descriptions of the first excused failures.
    pub excused_told: Vec<String>,
    /// Number of failed connections that no fault excuses.
    pub lost: u64,
    /// Descriptions of the first unexcused failures.
    pub told: Vec<String>,
    /// Number of UDP requests that were answered only on the second attempt although no fault explains this.
    /// A datagram is lost if its endpoint is removed while the datagram is in flight, so UDP clients must
    /// retry.
    pub again: u64,
    /// Descriptions of the first UDP requests answered only on the second attempt.
    pub again_told: Vec<String>,
}

impl Fates {
    /// Maximum number of retried UDP requests per thousand connections. A request is only lost if an endpoint
    /// is removed during it; since a removal happens every two seconds and a request takes less than a
    /// millisecond, this is rare.
    pub const AGAIN_MAX_PER_THOUSAND: u64 = 1;

    /// Returns true if more UDP requests had to be retried than the removals of endpoints explain.
    #[must_use]
    pub const fn is_asked_again_too_often(&self) -> bool {
        self.again * 1_000 > self.answered * Self::AGAIN_MAX_PER_THOUSAND
    }
}

/// Client threads of a soak test, with the results of their connections. Dropping the value ends them.
#[derive(Debug)]
pub(super) struct Traffic {
    is_over: Arc<AtomicBool>,
    is_paused: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    fates: Arc<Mutex<Fates>>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts one client per location.
    pub(super) fn start(stage: &Stage, timeline: &Arc<EpisodeTimeline>) -> Result<Self> {
        let mut traffic = Self {
            is_over: Arc::default(),
            is_paused: Arc::default(),
            answered: Arc::default(),
            fates: Arc::default(),
            threads: Vec::new(),
        };
        for targets in targets(stage)? {
            let client = Client {
                targets,
                timeline: Arc::clone(timeline),
                is_over: Arc::clone(&traffic.is_over),
                is_paused: Arc::clone(&traffic.is_paused),
                answered: Arc::clone(&traffic.answered),
                fates: Arc::clone(&traffic.fates),
                begun: Instant::now(),
            };
            traffic.threads.push(thread::spawn(move || client.run()));
        }
        Ok(traffic)
    }

    /// Pauses or resumes the clients. Connections in progress are completed.
    pub(super) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Returns the number of connections so far in which a backend replied.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns the results of all connections so far.
    pub(super) fn fates(&self) -> Fates {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Fates { answered: self.answered(), ..fates }
    }

    /// Ends all clients and returns the results.
    pub(super) fn end(mut self) -> Fates {
        self.join();
        self.fates()
    }

    fn join(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.join();
    }
}

struct Client {
    targets: Vec<Target>,
    timeline: Arc<EpisodeTimeline>,
    is_over: Arc<AtomicBool>,
    is_paused: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    fates: Arc<Mutex<Fates>>,
    begun: Instant,
}

impl Client {
    fn run(&self) {
        for target in self.targets.iter().cycle() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if self.is_paused.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
                continue;
            }
            let begun = Instant::now();
            match target.ask() {
                Ok(first) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    if let Some(error) = first {
                        self.asked_again(target, begun, &error);
                    }
                }
                Err(error) => self.lost(target, begun, &error),
            }
            thread::sleep(PAUSE);
        }
    }

    fn what(&self, target: &Target, begun: Instant, error: &anyhow::Error) -> String {
        let (at, took) = ((begun - self.begun).as_secs_f64(), begun.elapsed().as_secs_f64());
        format!("{at:.1} s ({took:.2} s): {}: {error:#}", target.label)
    }

    fn asked_again(&self, target: &Target, begun: Instant, error: &anyhow::Error) {
        if self.timeline.excuse(target.way, begun, Instant::now()).is_some() {
            return;
        }
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        fates.again += 1;
        if fates.again_told.len() < TOLD_MAX {
            fates.again_told.push(self.what(target, begun, error));
        }
    }

    fn lost(&self, target: &Target, begun: Instant, error: &anyhow::Error) {
        let excuse = self.timeline.excuse(target.way, begun, Instant::now());
        let what = self.what(target, begun, error);
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        match excuse {
            Some(kind) => {
                *fates.excused.entry(kind).or_default() += 1;
                if fates.excused_told.len() < TOLD_MAX {
                    fates.excused_told.push(format!("{}: {what}", kind.name()));
                }
            }
            None => {
                fates.lost += 1;
                if fates.told.len() < TOLD_MAX {
                    fates.told.push(what);
                }
            }
        }
    }
}

/// Returns the frontends to which each client connects in turn, as one list per client.
fn targets(stage: &Stage) -> Result<Vec<Vec<Target>>> {
    let cluster = &stage.cluster;
    let target = |from: &str, service: &str, to: SocketAddr, is_udp: bool, node: u8| {
        let place = stage.place(from)?.clone();
        let label = format!("{from} to {service} at {to}{}", if is_udp { " (UDP)" } else { "" });
        anyhow::Ok(Target { label, from: place, to, is_udp, way: Way { node } })
    };
    let mut clients = Vec::new();
    let ip = |service: &str, family| cluster.cluster_ip(&format!("default/{service}"), family);
    for number in 1..=3_u8 {
        let from = format!("inside-{number}");
        clients.push(vec![
            target(&from, "live-inside", at(ip("live-inside", 0)?, 80), false, number)?,
            target(&from, "live-inside", at(ip("live-inside", 1)?, 80), false, number)?,
            target(&from, "live-inside", at(ip("live-inside", 0)?, 53), true, number)?,
            target(&from, "live-checked", at(ip("live-checked", 0)?, 80), false, number)?,
            target(&from, "live-sticky", at(ip("live-sticky", 0)?, 80), false, number)?,
            target(&from, LIVE_SET, at(ip(LIVE_SET, 0)?, 80), false, number)?,
            target(&from, LIVE_SET, at(ip(LIVE_SET, 0)?, 53), true, number)?,
        ]);
    }
    let node_port = cluster.node_port("default/live-node-port", 0)?;
    let by_node = |number: u8| {
        target("client", "live-node-port", at(node_addresses(number)[0], node_port), false, number)
    };
    clients.push(vec![by_node(1)?, by_node(2)?, by_node(3)?]);
    let near = cluster.wait_load_balancer_ip("default/live-near")?;
    clients.push(vec![target("client", "live-near", at(near, 80), false, 0)?]);
    let far = cluster.wait_load_balancer_ip("default/live-far")?;
    clients.push(vec![
        target("outside", "live-far", at(far, 80), false, 0)?,
        target("outside", "live-far", at(far, 53), true, 0)?,
    ]);
    Ok(clients)
}
