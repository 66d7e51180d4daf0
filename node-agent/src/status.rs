//! Snapshot of the agent's status: published by the loop, read by the reporter and the status server.

use std::{collections::BTreeMap, sync::Arc};

use dataplane::{BackendOptions, KernelCounters};
use model::{
    kinds::{event::Event, node::ProxyMode, resource::ServiceKey},
    primitives::quantity::Position,
    wire::{
        hold::HeldState,
        report::{Failure, PolicyReport, TargetTraffic},
    },
};

/// Traffic by Service, one entry per used target. Unused targets have no entry: most nodes send no traffic
/// to most targets of a large cluster, and entries with zeros would use memory here and in the control
/// server.
pub type TrafficByService = BTreeMap<ServiceKey, Vec<TargetTraffic>>;

/// Status of the agent after an iteration of the control loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Active proxy mode.
    pub mode: ProxyMode,
    /// Options of the active mode; options without effect in the mode have their default value.
    pub options: BackendOptions,
    /// Position (epoch and revision) up to which all changes have been received; `None` before the first
    /// complete state.
    pub received: Option<Position>,
    /// Position (epoch and revision) up to which all changes have been programmed and read back, except for
    /// the Services in `failures`; `None` before the first complete kernel update.
    pub verified: Option<Position>,
    /// State that the state guard holds pending confirmation, or the older state that the control server
    /// offers; `None` otherwise.
    pub held: Option<HeldState>,
    /// Number of Services in the received state.
    pub services: usize,
    /// Failures by Service, at most `model::report::FAILURES_MAX` of them.
    pub failures: Arc<BTreeMap<ServiceKey, Failure>>,
    /// Number of all failures, including those not listed.
    pub failures_total: u64,
    /// Reasons why the agent is unhealthy; empty if it is healthy.
    pub problems: Vec<String>,
    /// Problems that do not make the agent unhealthy.
    pub warnings: Vec<String>,
    /// Enforcement of network policy; `None` in agents without it.
    pub policy: Option<PolicyReport>,
    /// Counters of kernel writes, summed over all backends that this process has used.
    pub kernel: KernelCounters,
    /// Allocated heap bytes of the relay process in userspace mode, from its last report; `None` in other
    /// modes.
    pub relay_heap_bytes: Option<u64>,
    /// Size of the journal in bytes.
    pub journal_bytes: u64,
    /// Recent events of the agent, oldest first.
    pub events: Arc<Vec<Event>>,
    /// Latest sample of the traffic counters.
    pub traffic: Arc<TrafficByService>,
    /// Position (epoch and revision) that was verified when the sample in `traffic` was taken; `None` if
    /// there was none.
    pub traffic_at: Option<Position>,
}

impl Status {
    /// Returns true if a state is loaded and the last update of the kernel succeeded.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}
