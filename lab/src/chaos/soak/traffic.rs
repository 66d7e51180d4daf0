//! Clients that connect all the time from everywhere, and the fate of each connection.

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
    timeline::{Kind, Timeline, Way},
};
use crate::{
    host::netns::Namespace,
    network::{
        client::{self, at},
        topology::node_addresses,
    },
};

/// Between two connections of a client.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections without an excuse that are told one by one.
const TOLD_MAX: usize = 50;

/// Where a client goes.
#[derive(Debug, Clone)]
struct Target {
    label: String,
    from: Namespace,
    to: SocketAddr,
    is_udp: bool,
    way: Way,
}

impl Target {
    /// Asks who is there. By UDP a second time when the first question had no answer: what came of that is told with the answer.
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

/// What became of connections.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Fates {
    /// Connections that were answered by a backend of ours.
    pub answered: u64,
    /// Those that were not while a fault was in force that may cost them, or shortly after, by that fault.
    pub excused: BTreeMap<Kind, u64>,
    /// The first of these.
    pub excused_told: Vec<String>,
    /// Those that were not although nothing should have kept them from it.
    pub lost: u64,
    /// The first of these.
    pub told: Vec<String>,
    /// Those of UDP that had no answer at first and one when the client asked again, without a fault that may cost them: what is on its
    /// way to an endpoint, or back from it, when that is taken away is lost, and whoever speaks UDP has to ask again.
    pub again: u64,
    /// The first of these.
    pub again_told: Vec<String>,
}

impl Fates {
    /// How many connections of a thousand may have needed a second question: an endpoint is taken away every other second, and a
    /// question is under way for less than a thousandth of one.
    pub const AGAIN_MAX_PER_THOUSAND: u64 = 1;

    /// Whether more had to ask again than such moments explain.
    #[must_use]
    pub const fn is_asked_again_too_often(&self) -> bool {
        self.again * 1_000 > self.answered * Self::AGAIN_MAX_PER_THOUSAND
    }
}

/// The running clients. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Traffic {
    is_over: Arc<AtomicBool>,
    is_paused: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    fates: Arc<Mutex<Fates>>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts a client for each place.
    pub(super) fn start(stage: &Stage, timeline: &Arc<Timeline>) -> Result<Self> {
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

    /// Makes clients wait, or go on: what they have asked is answered meanwhile.
    pub(super) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Connections that were answered so far.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// What became of connections so far.
    pub(super) fn fates(&self) -> Fates {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Fates { answered: self.answered(), ..fates }
    }

    /// Ends all clients.
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
    timeline: Arc<Timeline>,
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

/// The targets of each client.
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
