//! Snapshot of the agent's status: published by the loop, read by the reporter and the status server.

use std::{collections::BTreeMap, sync::Arc};

use dataplane::{BackendOptions, KernelCounters};
use model::{
    kinds::{event::Event, node::ProxyMode, resource::ServiceKey},
    primitives::quantity::Position,
    wire::{
        hold::HeldState,
        report::{Failure, TargetTraffic},
    },
};

/// Traffic per Service and target. Unused targets have no row: most nodes send no traffic to most targets of
/// a large cluster, and rows of zeros would waste memory here and in control.
pub type TrafficByService = BTreeMap<ServiceKey, Vec<TargetTraffic>>;

/// Status of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The active proxy mode.
    pub mode: ProxyMode,
    /// Options of the mode; irrelevant ones have their default value.
    pub options: BackendOptions,
    /// Position up to which everything has been received; `None` before the first complete state.
    pub received: Option<Position>,
    /// Position up to which everything, except `failures`, has been programmed and read back.
    pub verified: Option<Position>,
    /// The state that is held back or rejected, if any.
    pub held: Option<HeldState>,
    /// Number of Services.
    pub services: usize,
    /// The first failures, at most `model::report::FAILURES_MAX`.
    pub failures: Arc<BTreeMap<ServiceKey, Failure>>,
    /// Total number of failures.
    pub failures_total: u64,
    /// Reasons for which the agent is unhealthy; empty if it is healthy.
    pub problems: Vec<String>,
    /// Irregularities that do not make the agent unhealthy.
    pub warnings: Vec<String>,
    /// Counters of kernel writes.
    pub kernel: KernelCounters,
    /// Allocated bytes of the relay process in userspace mode, from its last report.
    pub relay_heap_bytes: Option<u64>,
    /// Size of the journal in bytes.
    pub journal_bytes: u64,
    /// Recent events, oldest first.
    pub events: Arc<Vec<Event>>,
    /// Latest sample of the traffic counters.
    pub traffic: Arc<TrafficByService>,
    /// Verified position at the time of that sample.
    pub traffic_at: Option<Position>,
}

impl Status {
    /// Returns true if a state is loaded and the last pass succeeded.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}
