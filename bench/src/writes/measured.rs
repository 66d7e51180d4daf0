//! Results of the write benchmark.

use serde::{Deserialize, Serialize};

use super::render;
use crate::{
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// Store that receives the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WritesStore {
    /// A file of 4 KiB pages without a database: the baseline.
    Disk,
    /// SQLite on the same disk.
    Sqlite,
    /// Three etcd members, all on the same disk.
    Etcd,
}

impl WritesStore {
    /// Returns the name of the store in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Sqlite => "sqlite",
            Self::Etcd => "etcd",
        }
    }
}

/// Results of one store with one number of clients and one request size.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WritesPoint {
    /// Store that receives the writes.
    pub store: WritesStore,
    /// Number of concurrent clients.
    pub clients: u16,
    /// Number of objects in each write request.
    pub objects: u32,
    /// Objects written per second, one value per round.
    pub per_second: Vec<f64>,
    /// Median request time in milliseconds, one value per round.
    pub median_ms: Vec<f64>,
    /// 99th percentile of the request time in milliseconds, one value per round.
    pub p99_ms: Vec<f64>,
}

/// Result of one store in one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritesTurn {
    pub(super) per_second: f64,
    pub(super) latency_ms: Summary,
}

impl WritesPoint {
    pub(super) fn new(store: WritesStore, clients: u16, objects: u32) -> Self {
        Self { store, clients, objects, per_second: Vec::new(), median_ms: Vec::new(), p99_ms: Vec::new() }
    }

    pub(super) fn enter(&mut self, turn: &WritesTurn) {
        self.per_second.push(turn.per_second);
        self.median_ms.push(turn.latency_ms.median);
        self.p99_ms.push(turn.latency_ms.p99);
    }

    /// Returns the median over all rounds of the rate in objects per second; `None` without rounds.
    #[must_use]
    pub fn typical_per_second(&self) -> Option<f64> {
        Summary::of(self.per_second.iter().copied()).map(|summary| summary.median)
    }
}

impl Measure for WritesPoint {
    const NAME: &'static str = "writes";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}
