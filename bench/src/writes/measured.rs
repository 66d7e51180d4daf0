//! The figures of a run.

use serde::{Deserialize, Serialize};

use super::render;
use crate::{
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// Where writes end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Store {
    /// A file of 4 KiB pages, without anything in between: the bound.
    Disk,
    /// SQLite, on the same disk.
    Sqlite,
    /// Three members of etcd, all on the same disk.
    Etcd,
}

impl Store {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Sqlite => "sqlite",
            Self::Etcd => "etcd",
        }
    }
}

/// One store, with so many clients that write so much at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// The store.
    pub store: Store,
    /// Clients at once.
    pub clients: u16,
    /// Objects in a request.
    pub objects: u32,
    /// Objects written per second, by turn.
    pub per_second: Vec<f64>,
    /// The median of the time of a request, by turn, in milliseconds.
    pub median_ms: Vec<f64>,
    /// Its 99th percentile, by turn.
    pub p99_ms: Vec<f64>,
}

/// What one turn found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) per_second: f64,
    pub(super) latency_ms: Summary,
}

impl Point {
    pub(super) fn new(store: Store, clients: u16, objects: u32) -> Self {
        Self { store, clients, objects, per_second: Vec::new(), median_ms: Vec::new(), p99_ms: Vec::new() }
    }

    pub(super) fn enter(&mut self, turn: &Turn) {
        self.per_second.push(turn.per_second);
        self.median_ms.push(turn.latency_ms.median);
        self.p99_ms.push(turn.latency_ms.p99);
    }

    /// The median of the turns.
    #[must_use]
    pub fn typical_per_second(&self) -> Option<f64> {
        Summary::of(self.per_second.iter().copied()).map(|summary| summary.median)
    }
}

impl Measure for Point {
    const NAME: &'static str = "writes";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}
