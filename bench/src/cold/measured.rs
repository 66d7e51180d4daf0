//! The figures of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::render;
use crate::{
    fixture_cluster::Size,
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// A mode at a size; times in milliseconds, a figure a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// The proxy mode.
    pub mode: String,
    /// Services.
    pub services: u32,
    /// Endpoints of each.
    pub endpoints: u8,
    /// From a start with nothing to everything verified.
    pub cold_ms: Vec<f64>,
    /// Processor time of the agent for that.
    pub cold_processor_ms: Vec<f64>,
    /// Messages to the kernel, and transactions, of the last such start.
    pub messages: u64,
    /// See [`Self::messages`].
    pub transactions: u64,
    /// From a start with everything in place to everything verified.
    pub restart_ms: Vec<f64>,
    /// Processor time of the agent for that.
    pub restart_processor_ms: Vec<f64>,
    /// Changes of rules that were heard of then, and transactions that the agent counted.
    pub restart_writes: Vec<u64>,
    /// Loading the same rules by the kernel's own tool.
    pub bound_ms: Vec<f64>,
    /// Resident memory of the agent after a start with nothing, when it is at rest.
    pub resident_kib: Vec<u64>,
    /// The most that it had then.
    pub peak_kib: Vec<u64>,
    /// Resident memory after a start with everything in place, when it is at rest.
    pub restart_resident_kib: Vec<u64>,
}

impl Point {
    pub(super) fn new(size: &Size) -> Self {
        Self {
            mode: size.mode.to_owned(),
            services: size.services,
            endpoints: size.endpoints,
            cold_ms: Vec::new(),
            cold_processor_ms: Vec::new(),
            messages: 0,
            transactions: 0,
            restart_ms: Vec::new(),
            restart_processor_ms: Vec::new(),
            restart_writes: Vec::new(),
            bound_ms: Vec::new(),
            resident_kib: Vec::new(),
            peak_kib: Vec::new(),
            restart_resident_kib: Vec::new(),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = |figures: &[f64]| figures.last().map_or("–".to_owned(), |ms| format!("{ms:.0} ms"));
        let kib = self.resident_kib.last().copied().unwrap_or(0);
        write!(
            out,
            "{} Services × {}: from nothing {}, restart {}, {} writes; the tool alone {}; {} MiB",
            self.services,
            self.endpoints,
            last(&self.cold_ms),
            last(&self.restart_ms),
            self.restart_writes.last().copied().unwrap_or(0),
            last(&self.bound_ms),
            kib / 1024
        )
    }
}

impl Measure for Point {
    const NAME: &'static str = "cold";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}

/// The median of figures in KiB, in MiB.
pub(super) fn mebibytes(kib: &[u64]) -> f64 {
    Summary::of(kib.iter().map(|&kib| kib as f64 / 1024.0)).map_or(0.0, |summary| summary.median)
}
