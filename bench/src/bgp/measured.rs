//! Results of the BGP benchmark.

use serde::{Deserialize, Serialize};

use super::{Options, render, routers::Both};
use crate::{
    host::{Host, Load},
    pages::record::Report,
};

/// Measurements of one BGP implementation; all times are in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpSeries {
    /// Name of the BGP implementation in tables.
    pub contestant: String,
    /// Description of the implementation's configuration.
    pub settings: String,
    /// Resident memory in KiB before any announcement.
    pub memory_kib: u64,
    /// Duration in milliseconds of the command or request that announces a prefix, one value per prefix.
    pub command_ms: Vec<f64>,
    /// Time in milliseconds until the kernel of each router had the route, one value per prefix.
    pub announced_ms: Vec<Both<f64>>,
    /// Time in milliseconds until the kernel of each router had removed the prefix, one value per prefix.
    pub withdrawn_ms: Vec<Both<f64>>,
    /// Time in milliseconds from the link failure of the node until each router had removed the route, one value
    /// per failure.
    pub failed_ms: Vec<Both<f64>>,
    /// Time in milliseconds from the opening of the sessions until all prefixes were installed; `None` if the
    /// bulk run was skipped.
    pub bulk_ms: Option<Both<f64>>,
    /// Resident memory in KiB after the bulk run.
    pub bulk_memory_kib: Option<u64>,
}

/// Results of the BGP benchmark with their environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpResults {
    /// Description of the measuring machine.
    pub host: Host,
    /// Versions of the BGP implementations and of the routers.
    pub versions: Vec<String>,
    /// Number of prefixes announced one by one.
    pub rounds: u16,
    /// Number of prefixes that the bulk run announces at once.
    pub bulk: u32,
    /// Load of the machine during the run; `None` before the end of the run.
    pub load: Option<Load>,
    /// Measurements, one entry per BGP implementation.
    pub series: Vec<BgpSeries>,
}

impl BgpResults {
    pub(super) fn new(host: Host, options: Options, versions: Vec<String>) -> Self {
        let Options { rounds, failures: _, bulk } = options;
        Self { host, versions, rounds, bulk, load: None, series: Vec::new() }
    }

    pub(super) fn add(&mut self, contestant: &str, settings: String, memory_kib: u64) {
        self.series.push(BgpSeries {
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

    pub(super) fn enter(&mut self, contestant: &str, enter: impl FnOnce(&mut BgpSeries)) {
        if let Some(series) = self.series.iter_mut().find(|series| series.contestant == contestant) {
            enter(series);
        }
    }
}

impl Report for BgpResults {
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
