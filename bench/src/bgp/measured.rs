//! The results of a run.

use serde::{Deserialize, Serialize};

use super::{Options, render, routers::Both};
use crate::{
    host::{Host, Load},
    pages::record::Report,
};

/// What was measured of one contestant; times in milliseconds, from the beginning of the write.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// The contestant.
    pub contestant: String,
    /// How it is set.
    pub settings: String,
    /// Resident memory before anything is announced.
    pub memory_kib: u64,
    /// How long the write took.
    pub command_ms: Vec<f64>,
    /// Until the router's kernel had the route.
    pub announced_ms: Vec<Both<f64>>,
    /// Until it had lost it.
    pub withdrawn_ms: Vec<Both<f64>>,
    /// From the cut of the node's cable until the route was lost.
    pub failed_ms: Vec<Both<f64>>,
    /// From the opening of the sessions until all prefixes of the bulk run were there.
    pub bulk_ms: Option<Both<f64>>,
    /// Resident memory then.
    pub bulk_memory_kib: Option<u64>,
}

/// Everything that a run of the benchmark has found.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The machine.
    pub host: Host,
    /// What was measured, with versions.
    pub versions: Vec<String>,
    /// Prefixes announced one by one.
    pub rounds: u16,
    /// Prefixes announced at once.
    pub bulk: u32,
    /// Set at the end.
    pub load: Option<Load>,
    /// By contestant.
    pub series: Vec<Series>,
}

impl Measured {
    pub(super) fn new(host: Host, options: Options, versions: Vec<String>) -> Self {
        let Options { rounds, failures: _, bulk } = options;
        Self { host, versions, rounds, bulk, load: None, series: Vec::new() }
    }

    pub(super) fn add(&mut self, contestant: &str, settings: String, memory_kib: u64) {
        self.series.push(Series {
            contestant: contestant.to_owned(),
            settings,
            memory_kib,
            command_ms: Vec::new(),
            announced_ms: Vec::new(),
            withdrawn_ms: Vec::new(),
            failed_ms: Vec::new(),
            bulk_ms: None,
            bulk_memory_kib: None,
        });
    }

    pub(super) fn enter(&mut self, contestant: &str, enter: impl FnOnce(&mut Series)) {
        if let Some(series) = self.series.iter_mut().find(|series| series.contestant == contestant) {
            enter(series);
        }
    }
}

impl Report for Measured {
    const NAME: &'static str = "bgp";

    fn page(&self) -> String {
        render::page(self)
    }

    fn plot(&self) -> String {
        render::plot(self)
    }

    fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }
}
