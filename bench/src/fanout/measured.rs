//! Results of a run.

use std::collections::BTreeMap;

use lab::load::{
    feed_load::{FollowerProgress, first_seen},
    http_load::CompletedWrite,
};
use serde::{Deserialize, Serialize};

use super::render;
use crate::{
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// Kind of receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReceiverKind {
    /// Agents of nodes, which report each change back.
    Agents,
    /// Clients of `GET /v1/watch`.
    Watchers,
    /// Sockets of the baseline sender.
    Sockets,
}

impl ReceiverKind {
    /// Returns the name in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Watchers => "watchers",
            Self::Sockets => "sockets, baseline sender",
        }
    }
}

/// Results of one kind and number of receivers; one value per round unless noted otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FanoutPoint {
    /// Kind of receiver.
    pub told: ReceiverKind,
    /// Number of receivers.
    pub count: u16,
    /// Number of Services.
    pub services: u32,
    /// Changes per second.
    pub per_second: u32,
    /// For each change of all rounds, milliseconds from its request until the last receiver has it.
    pub last_ms: Vec<f64>,
    /// For each round, the summary over all changes and receivers.
    pub each_ms: Vec<Summary>,
    /// For each round, the summary of the response times.
    pub answer_ms: Vec<Summary>,
    /// Number of changes that some receiver never received.
    pub lost: usize,
    /// Number of deliveries; one may contain several changes.
    pub deliveries: Vec<u64>,
    /// CPU time of the server per change in microseconds.
    pub server_us_per_change: Vec<f64>,
    /// CPU time of the server per delivery in microseconds.
    pub server_us_per_delivery: Vec<f64>,
    /// Bytes on the wire per change and receiver.
    pub bytes_per_change: Vec<f64>,
    /// Resident memory of the server after the changes.
    pub resident_kib: Vec<u64>,
    /// Peak memory during the changes.
    pub peak_kib: Vec<u64>,
    /// Reconnect of all receivers at once: milliseconds until the last one has the change made meanwhile.
    pub herd_ms: Vec<f64>,
    /// Peak memory of the server during the reconnect.
    pub herd_peak_kib: Vec<u64>,
}

/// Receiver results of a round.
#[derive(Debug, Clone)]
pub(super) struct RoundResults {
    pub(super) last_ms: Vec<f64>,
    pub(super) each_ms: Option<Summary>,
    pub(super) answer_ms: Option<Summary>,
    pub(super) fewest: usize,
    pub(super) deliveries: u64,
}

impl RoundResults {
    pub(super) fn of(written: &[CompletedWrite], seen: &[FollowerProgress]) -> Self {
        let revisions: Vec<u64> = written.iter().map(|one| one.revision).collect();
        let first = first_seen(seen, &revisions);
        let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let (mut last_ms, mut each, mut fewest) = (Vec::new(), Vec::new(), usize::MAX);
        for one in written {
            let times = first.get(&one.revision).map_or(&[][..], Vec::as_slice);
            fewest = fewest.min(times.len());
            last_ms.extend(times.iter().max().map(|last| ms(one.sent_ns, *last)));
            each.extend(times.iter().map(|at| ms(one.sent_ns, *at)));
        }
        Self {
            last_ms,
            each_ms: Summary::of(each),
            answer_ms: Summary::of(written.iter().map(|one| ms(one.sent_ns, one.answered_ns))),
            fewest,
            deliveries: steps(seen),
        }
    }
}

/// Counts the observations with progress; an agent also reports every few seconds without any.
fn steps(seen: &[FollowerProgress]) -> u64 {
    let mut has: BTreeMap<u16, u64> = BTreeMap::new();
    let is_step = |one: &&FollowerProgress| has.insert(one.follower, one.revision) != Some(one.revision);
    seen.iter().filter(is_step).count() as u64
}

impl FanoutPoint {
    pub(super) fn new(told: ReceiverKind, count: u16, services: u32, per_second: u32) -> Self {
        Self {
            told,
            count,
            services,
            per_second,
            last_ms: Vec::new(),
            each_ms: Vec::new(),
            answer_ms: Vec::new(),
            lost: 0,
            deliveries: Vec::new(),
            server_us_per_change: Vec::new(),
            server_us_per_delivery: Vec::new(),
            bytes_per_change: Vec::new(),
            resident_kib: Vec::new(),
            peak_kib: Vec::new(),
            herd_ms: Vec::new(),
            herd_peak_kib: Vec::new(),
        }
    }

    pub(super) fn enter(&mut self, measured: RoundResults) {
        let RoundResults { last_ms, each_ms, answer_ms, fewest, deliveries } = measured;
        self.last_ms.extend(last_ms);
        self.each_ms.extend(each_ms);
        self.answer_ms.extend(answer_ms);
        self.lost += usize::from(fewest < usize::from(self.count));
        self.deliveries.push(deliveries);
    }
}

impl Measure for FanoutPoint {
    const NAME: &'static str = "fanout";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}
