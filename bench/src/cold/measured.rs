//! Results of the agent start benchmark.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::render;
use crate::{
    fixture_cluster::Size,
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// Results of one proxy mode at one size; times in milliseconds, one value per round.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ColdPoint {
    /// Proxy mode of the node.
    pub mode: String,
    /// Number of Services on the node.
    pub services: u32,
    /// Number of endpoints of each Service.
    pub endpoints: u8,
    /// Time in milliseconds from a cold start until everything is verified.
    pub cold_ms: Vec<f64>,
    /// CPU time of the agent in milliseconds for a cold start.
    pub cold_processor_ms: Vec<f64>,
    /// Number of kernel messages that the agent sent in the last cold start.
    pub messages: u64,
    /// Number of kernel transactions that the agent committed in the last cold start.
    pub transactions: u64,
    /// Time in milliseconds from a restart with journal and rules in place until everything is verified.
    pub restart_ms: Vec<f64>,
    /// CPU time of the agent in milliseconds for a restart with journal and rules in place.
    pub restart_processor_ms: Vec<f64>,
    /// Observed rule changes plus transactions counted by the agent during a restart.
    pub restart_writes: Vec<u64>,
    /// Time in milliseconds to load the same rules with the kernel's own tool.
    pub bound_ms: Vec<f64>,
    /// Resident memory of the agent in KiB at rest after a cold start.
    pub resident_kib: Vec<u64>,
    /// Peak resident memory of the agent in KiB during the cold start.
    pub peak_kib: Vec<u64>,
    /// Resident memory of the agent in KiB at rest after a restart.
    pub restart_resident_kib: Vec<u64>,
}

impl ColdPoint {
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

impl fmt::Display for ColdPoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = |figures: &[f64]| figures.last().map_or("–".to_owned(), |ms| format!("{ms:.0} ms"));
        let kib = self.resident_kib.last().copied().unwrap_or(0);
        write!(
            out,
            "{} Services × {}: cold start {}, restart {}, {} writes; the tool alone {}; {} MiB",
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

impl Measure for ColdPoint {
    const NAME: &'static str = "cold";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}

/// Returns the median of values in KiB, converted to MiB.
pub(super) fn mebibytes(kib: &[u64]) -> f64 {
    Summary::of(kib.iter().map(|&kib| kib as f64 / 1024.0)).map_or(0.0, |summary| summary.median)
}
