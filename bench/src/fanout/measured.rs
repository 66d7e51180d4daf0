//! Results of the fan-out benchmark.

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

/// Kind of receiver of the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReceiverKind {
    /// Simulated agents, which report each change back to the server.
    Agents,
    /// Clients of `GET /v1/watch`.
    Watchers,
    /// Raw sockets that receive from the baseline sender.
    Sockets,
}

impl ReceiverKind {
    /// Returns the name of the kind in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Watchers => "watchers",
            Self::Sockets => "sockets, baseline sender",
        }
    }
}

/// Results for one kind and number of receivers; one value per round unless noted otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FanoutPoint {
    /// Kind of the receivers.
    pub told: ReceiverKind,
    /// Number of receivers connected at the same time.
    pub count: u16,
    /// Number of Services in the store.
    pub services: u32,
    /// Number of changes per second during the measurement.
    pub per_second: u32,
    /// Milliseconds from the request of a change until the last receiver has it; one value per change over
    /// all rounds.
    pub last_ms: Vec<f64>,
    /// Summary of the delivery times over all changes and receivers, one per round.
    pub each_ms: Vec<Summary>,
    /// Summary of the response times of the writes, one per round.
    pub answer_ms: Vec<Summary>,
    /// Number of changes that at least one receiver never received.
    pub lost: usize,
    /// Number of deliveries per round; one delivery may contain several changes.
    pub deliveries: Vec<u64>,
    /// CPU time of the server per change in microseconds.
    pub server_us_per_change: Vec<f64>,
    /// CPU time of the server per delivery in microseconds.
    pub server_us_per_delivery: Vec<f64>,
    /// Number of bytes on the wire per change and receiver.
    pub bytes_per_change: Vec<f64>,
    /// Resident memory of the server in KiB after the changes, one value per round.
    pub resident_kib: Vec<u64>,
    /// Peak resident memory of the server in KiB during the changes, one value per round.
    pub peak_kib: Vec<u64>,
    /// Milliseconds from the simultaneous reconnect of all receivers until the last one has the change that was
    /// made while they were disconnected.
    pub herd_ms: Vec<f64>,
    /// Peak resident memory of the server in KiB during the mass reconnect, one value per round.
    pub herd_peak_kib: Vec<u64>,
}

/// Measurements of the receivers in one round.
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

/// Returns the number of deliveries in `seen`: the reports that contain a new revision. An agent also reports
/// every few seconds without a new revision; such reports are not counted.
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
