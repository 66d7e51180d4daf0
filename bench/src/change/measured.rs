//! Results of the change benchmark.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::render;
use crate::{
    fixture_cluster::Size,
    pages::record::{Measure, Record},
    statistics::figures::Summary,
};

/// Results of one proxy mode at one size.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePoint {
    /// Proxy mode of the node.
    pub mode: String,
    /// Number of Services without traffic in addition to the measured ones.
    pub services: u32,
    /// Number of endpoints of each Service.
    pub endpoints: u8,
    /// True if the values were measured in the guest VM, where times are not meaningful.
    pub is_guest: bool,
    /// Milliseconds from an endpoint write to its response.
    pub write_ms: Vec<f64>,
    /// Milliseconds from an endpoint write to the first reply through the virtual address.
    pub first_ms: Vec<f64>,
    /// Milliseconds from the creation of a Service to the first reply through its virtual address.
    pub service_first_ms: Vec<f64>,
    /// Cost of one endpoint change, one value per group of changes.
    pub costs: Vec<Cost>,
    /// Cost of deleting and recreating one Service, one value per group of changes.
    pub service_costs: Vec<Cost>,
    /// Resident memory of the control server in KiB.
    pub control_kib: u64,
    /// Resident memory of the agent in KiB.
    pub agent_kib: u64,
}

/// Mean cost of one change in a group of changes, after subtraction of the cost that arises in the same time
/// without the changes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// CPU time of the control server in microseconds.
    pub control_us: f64,
    /// CPU time of the agent in microseconds, including kernel work on its behalf.
    pub agent_us: f64,
    /// Bytes that the agent received from its feed.
    pub feed_bytes: f64,
    /// Number of netlink messages, or of lines passed to `iptables-restore`.
    pub kernel_messages: f64,
    /// Size in bytes of the netlink messages or `iptables-restore` input.
    pub kernel_bytes: f64,
    /// Number of kernel transactions that the agent committed.
    pub kernel_transactions: f64,
}

/// Resource counters at one time, or the difference between two readings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    /// Time from the start of the fixture cluster to the reading, or between the two readings.
    pub(super) time: Duration,
    pub(super) control_ns: u64,
    pub(super) agent_ns: u64,
    pub(super) feed_bytes: u64,
    pub(super) kernel_messages: u64,
    pub(super) kernel_bytes: u64,
    pub(super) kernel_transactions: u64,
}

impl Spent {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            time: self.time.saturating_sub(before.time),
            // A thread that ends takes its CPU time with it.
            control_ns: self.control_ns.saturating_sub(before.control_ns),
            agent_ns: self.agent_ns.saturating_sub(before.agent_ns),
            feed_bytes: self.feed_bytes.saturating_sub(before.feed_bytes),
            kernel_messages: self.kernel_messages.saturating_sub(before.kernel_messages),
            kernel_bytes: self.kernel_bytes.saturating_sub(before.kernel_bytes),
            kernel_transactions: self.kernel_transactions.saturating_sub(before.kernel_transactions),
        }
    }

    /// Returns the cost per change: the resources used (`self`), minus the resources used without changes
    /// (`idle`, scaled to the same duration), divided by `changes`.
    pub(super) fn less(&self, idle: &Self, changes: f64) -> Cost {
        let longer = self.time.as_secs_f64() / idle.time.as_secs_f64().max(1e-3);
        let each = |busy: u64, idle: u64, unit: f64| (busy as f64 - idle as f64 * longer) / unit / changes;
        Cost {
            control_us: each(self.control_ns, idle.control_ns, 1e3),
            agent_us: each(self.agent_ns, idle.agent_ns, 1e3),
            feed_bytes: each(self.feed_bytes, idle.feed_bytes, 1.0),
            kernel_messages: each(self.kernel_messages, idle.kernel_messages, 1.0),
            kernel_bytes: each(self.kernel_bytes, idle.kernel_bytes, 1.0),
            kernel_transactions: each(self.kernel_transactions, idle.kernel_transactions, 1.0),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "control {:.0} µs, agent {:.0} µs, {:.0} feed bytes, {:.1} kernel messages of {:.0} bytes in \
             {:.2} transactions",
            self.control_us,
            self.agent_us,
            self.feed_bytes,
            self.kernel_messages,
            self.kernel_bytes,
            self.kernel_transactions
        )
    }
}

impl ChangePoint {
    pub(super) fn new(size: &Size) -> Self {
        Self {
            mode: size.mode.to_owned(),
            services: size.services,
            endpoints: size.endpoints,
            is_guest: lab::host::guest::is_inside(),
            write_ms: Vec::new(),
            first_ms: Vec::new(),
            service_first_ms: Vec::new(),
            costs: Vec::new(),
            service_costs: Vec::new(),
            control_kib: 0,
            agent_kib: 0,
        }
    }

    /// Returns the median time from an endpoint write to the first reply.
    pub(super) fn typical_ms(&self) -> Option<f64> {
        Summary::of(self.first_ms.iter().copied()).map(|summary| summary.median)
    }
}

impl fmt::Display for ChangePoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = |figures: &[f64]| match Summary::of(figures.iter().copied()) {
            Some(summary) => format!("{:.1} ms (p99 {:.1})", summary.median, summary.p99),
            None => "–".to_owned(),
        };
        write!(
            out,
            "{} Services × {}: write {}, first reply {}, of a new Service {}",
            self.services,
            self.endpoints,
            summary(&self.write_ms),
            summary(&self.first_ms),
            summary(&self.service_first_ms)
        )
    }
}

impl Measure for ChangePoint {
    const NAME: &'static str = "change";

    fn page(record: &Record<Self>) -> String {
        render::page(record)
    }

    fn plot(record: &Record<Self>) -> String {
        render::plot(record)
    }
}
