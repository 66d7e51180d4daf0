//! The figures of a run.

use std::collections::BTreeMap;

use lab::load::{
    feed_load::{Seen, first_seen},
    http_load::Written,
};
use serde::{Deserialize, Serialize};

use super::render;
use crate::{
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// Who is told of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// Agents of nodes, who report that they have them.
    Agents,
    /// Clients of `GET /v1/watch`.
    Watchers,
    /// Sockets of a sender that only sends.
    Sockets,
}

impl Told {
    /// The word in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Watchers => "watchers",
            Self::Sockets => "sockets, the sender alone",
        }
    }
}

/// So many of a sort; a figure a round where nothing else is said.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// Who is told.
    pub told: Told,
    /// How many.
    pub count: u16,
    /// Services that there are.
    pub services: u32,
    /// Changes a second.
    pub per_second: u32,
    /// Of each change of all rounds, from its request until the last has it, in milliseconds.
    pub last_ms: Vec<f64>,
    /// Of each round, the summary over all changes and all who are told.
    pub each_ms: Vec<Summary>,
    /// Of each round, the summary of the answers to the requests.
    pub answer_ms: Vec<Summary>,
    /// Changes that somebody never had.
    pub lost: usize,
    /// Times that somebody said, or noticed, that there was something new: several changes may be told at once.
    pub deliveries: Vec<u64>,
    /// Processor time of the server for each change, in microseconds.
    pub server_us_per_change: Vec<f64>,
    /// The same for each delivery.
    pub server_us_per_delivery: Vec<f64>,
    /// Bytes on the wire for each change to each who is told.
    pub bytes_per_change: Vec<f64>,
    /// Resident memory of the server after the changes.
    pub resident_kib: Vec<u64>,
    /// The most that it had meanwhile.
    pub peak_kib: Vec<u64>,
    /// All are cut off and come back at once: until the last has what was changed meanwhile, in milliseconds.
    pub herd_ms: Vec<f64>,
    /// The most memory that the server had then.
    pub herd_peak_kib: Vec<u64>,
}

/// What a round found of those who are told.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) last_ms: Vec<f64>,
    pub(super) each_ms: Option<Summary>,
    pub(super) answer_ms: Option<Summary>,
    pub(super) fewest: usize,
    pub(super) deliveries: u64,
}

impl Measured {
    pub(super) fn of(written: &[Written], seen: &[Seen]) -> Self {
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

/// How often somebody had more than before; an agent reports every few seconds also when it has not.
fn steps(seen: &[Seen]) -> u64 {
    let mut has: BTreeMap<u16, u64> = BTreeMap::new();
    let is_step = |one: &&Seen| has.insert(one.follower, one.revision) != Some(one.revision);
    seen.iter().filter(is_step).count() as u64
}

impl Point {
    pub(super) fn new(told: Told, count: u16, services: u32, per_second: u32) -> Self {
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

    pub(super) fn enter(&mut self, measured: Measured) {
        let Measured { last_ms, each_ms, answer_ms, fewest, deliveries } = measured;
        self.last_ms.extend(last_ms);
        self.each_ms.extend(each_ms);
        self.answer_ms.extend(answer_ms);
        self.lost += usize::from(fewest < usize::from(self.count));
        self.deliveries.push(deliveries);
    }
}

impl Measure for Point {
    const NAME: &'static str = "fanout";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}
