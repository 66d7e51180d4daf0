//! The figures of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Layout, render,
    tool::{Sent, Took},
};
use crate::{
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// A layout at a size; a figure a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// How Services are laid out.
    pub layout: Layout,
    /// Services.
    pub services: u32,
    /// Endpoints of each.
    pub endpoints: u8,
    /// Bytes of the ruleset as text.
    pub text_bytes: usize,
    /// Loading the whole ruleset into an empty kernel.
    pub load: Costs,
    /// Memory that the kernel has then, in KiB; empty where it cannot be read.
    pub kernel_kib: Vec<u64>,
    /// A run of the tool that is given nothing to do: the least that any change takes.
    pub nothing: Costs,
    /// A Service comes.
    pub add: Change,
    /// One of its endpoints becomes another one.
    pub replace: Change,
    /// It goes.
    pub remove: Change,
    /// From the call that connects to the backend's answer, in microseconds, by place: the first Service, the one in the middle,
    /// the last one.
    pub connect_us: [Vec<Summary>; 3],
    /// Connections per second of many clients at once, to the Service in the middle.
    pub per_second: Vec<f64>,
    /// Connections that were not answered.
    pub failed: u64,
    /// Why this layout was not measured at larger sizes.
    pub gave_up: Option<String>,
}

/// What runs of the tool took, in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// By the clock.
    pub wall_ms: Vec<f64>,
    /// On a processor, tool and kernel together.
    pub processor_ms: Vec<f64>,
    /// On a processor, the kernel's part.
    pub system_ms: Vec<f64>,
}

/// What a transaction takes and sends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What it took.
    pub costs: Costs,
    /// Netlink messages, first and last of the transaction included.
    pub messages: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// What the changes are called, in the order in which they are made.
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
    pub(super) fn enter_sent(&mut self, sent: Sent) {
        let Sent { messages, bytes } = sent;
        (self.messages, self.bytes) = (messages, bytes);
    }
}

impl Point {
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

    /// The changes, in the order in which they are made.
    pub(super) fn changes_mut(&mut self) -> [&mut Change; 3] {
        [&mut self.add, &mut self.replace, &mut self.remove]
    }

    /// The same, to read, with their names.
    pub(super) fn changes(&self) -> [(&'static str, &Change); 3] {
        let [add, replace, remove] = CHANGES;
        [(add, &self.add), (replace, &self.replace), (remove, &self.remove)]
    }
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |figures: &[f64]| median(figures).map_or("–".to_owned(), crate::pages::page::short);
        write!(
            out,
            "{:<15} {:>6} Services: load {} ms ({} ms of processors), add {} ms ({}), replace {} ms ({}), {} connections/s",
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

impl Measure for Point {
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
