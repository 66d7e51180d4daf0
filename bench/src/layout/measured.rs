//! Results of the layout benchmark.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Layout, render,
    tool::{Took, TransactionSize},
};
use crate::{
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// Results of one ruleset layout at one size; one value per round.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutPoint {
    /// Ruleset layout that was measured.
    pub layout: Layout,
    /// Number of Services in the ruleset.
    pub services: u32,
    /// Number of endpoints of each Service.
    pub endpoints: u8,
    /// Size of the ruleset as text in bytes.
    pub text_bytes: usize,
    /// Cost of loading the whole ruleset into an empty kernel.
    pub load: Costs,
    /// Kernel memory after the load in KiB; empty if it cannot be read.
    pub kernel_kib: Vec<u64>,
    /// Cost of a run of `nft` with an empty input, which every change includes.
    pub nothing: Costs,
    /// Cost of adding one Service.
    pub add: Change,
    /// Cost of replacing one endpoint of the added Service.
    pub replace: Change,
    /// Cost of removing the added Service.
    pub remove: Change,
    /// Microseconds from the connect call to the reply of the backend, for the first, the middle and the last
    /// Service.
    pub connect_us: [Vec<Summary>; 3],
    /// Connections per second of many concurrent clients to the middle Service.
    pub per_second: Vec<f64>,
    /// Number of connections through the ruleset that failed.
    pub failed: u64,
    /// Reason why this layout was not measured at larger sizes; `None` if no load was too slow.
    pub gave_up: Option<String>,
}

/// Time and CPU cost of runs of `nft`, in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// Elapsed time of the `nft` process in milliseconds, one value per round.
    pub wall_ms: Vec<f64>,
    /// CPU time of `nft` and of the kernel on its behalf in milliseconds, one value per round.
    pub processor_ms: Vec<f64>,
    /// CPU time spent in the kernel in milliseconds, one value per round.
    pub system_ms: Vec<f64>,
}

/// Cost of one kind of change, with the size of its transaction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Time and CPU cost of the change.
    pub costs: Costs,
    /// Number of netlink messages, including the first and last of the transaction.
    pub messages: u32,
    /// Total size of the messages in bytes.
    pub bytes: u64,
}

/// Names of the changes, in the order in which they are made.
pub(super) const CHANGES: [&str; 3] = ["add a Service", "replace an endpoint", "remove a Service"];

impl Costs {
    pub(super) fn enter(&mut self, took: Took) {
        let Took { wall_ms, user_ms, system_ms } = took;
        self.wall_ms.push(wall_ms);
        self.processor_ms.push(user_ms + system_ms);
        self.system_ms.push(system_ms);
    }
}

impl Change {
    pub(super) fn enter_sent(&mut self, sent: TransactionSize) {
        let TransactionSize { messages, bytes } = sent;
        (self.messages, self.bytes) = (messages, bytes);
    }
}

impl LayoutPoint {
    pub(super) fn new(layout: Layout, services: u32, endpoints: u8, text: &str) -> Self {
        Self {
            layout,
            services,
            endpoints,
            text_bytes: text.len(),
            load: Costs::default(),
            kernel_kib: Vec::new(),
            nothing: Costs::default(),
            add: Change::default(),
            replace: Change::default(),
            remove: Change::default(),
            connect_us: [Vec::new(), Vec::new(), Vec::new()],
            per_second: Vec::new(),
            failed: 0,
            gave_up: None,
        }
    }

    /// Returns mutable references to the results of each kind of change, in the order of [`CHANGES`].
    pub(super) fn changes_mut(&mut self) -> [&mut Change; 3] {
        [&mut self.add, &mut self.replace, &mut self.remove]
    }

    /// Returns the results of each kind of change with the name of the change, in the order of [`CHANGES`].
    pub(super) fn changes(&self) -> [(&'static str, &Change); 3] {
        let [add, replace, remove] = CHANGES;
        [(add, &self.add), (replace, &self.replace), (remove, &self.remove)]
    }
}

impl fmt::Display for LayoutPoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |figures: &[f64]| median(figures).map_or("–".to_owned(), crate::pages::page::short);
        write!(
            out,
            "{:<15} {:>6} Services: load {} ms ({} ms CPU), add {} ms ({}), replace {} ms ({}), {} \
             connections/s",
            self.layout.name(),
            self.services,
            shown(&self.load.wall_ms),
            shown(&self.load.processor_ms),
            shown(&self.add.costs.wall_ms),
            shown(&self.add.costs.processor_ms),
            shown(&self.replace.costs.wall_ms),
            shown(&self.replace.costs.processor_ms),
            shown(&self.per_second)
        )
    }
}

impl Measure for LayoutPoint {
    const NAME: &'static str = "layout";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}

pub(super) fn median(figures: &[f64]) -> Option<f64> {
    Summary::of(figures.iter().copied()).map(|summary| summary.median)
}
