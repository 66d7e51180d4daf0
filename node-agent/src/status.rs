//! What the agent says of itself at one moment: published by the loop, read by the report and the server.

use std::{collections::BTreeMap, sync::Arc};

use model::{
    kinds::{event::Event, node::ProxyMode, resource::ServiceKey},
    primitives::quantity::Position,
    wire::{hold::Held, report::Failure},
};

use crate::{
    agent::traffic::TrafficByService,
    dataplane::{BackendOptions, KernelCounters},
};

/// Where the agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// How the kernel is programmed.
    pub mode: ProxyMode,
    /// The options of the mode, as far as they make a difference in it.
    pub options: BackendOptions,
    /// Everything up to here has arrived; `None` before the first complete state.
    pub received: Option<Position>,
    /// Everything up to here, but for the failures, has been programmed and read back.
    pub verified: Option<Position>,
    /// The state that is held back or refused, if there is one.
    pub held: Option<Held>,
    /// Services held.
    pub services: usize,
    /// The first failures, at most `model::report::FAILURES_MAX`.
    pub failures: Arc<BTreeMap<ServiceKey, Failure>>,
    /// How many there are.
    pub failures_total: u64,
    /// Why the agent is not healthy; empty when it is.
    pub problems: Vec<String>,
    /// What is odd without making the agent unhealthy.
    pub warnings: Vec<String>,
    /// What was done to the kernel.
    pub kernel: KernelCounters,
    /// Bytes of memory in use by the relay process of userspace mode, as it said last.
    pub relay_heap_bytes: Option<u64>,
    /// The size of the journal, in bytes.
    pub journal_bytes: u64,
    /// What happened of late, oldest first.
    pub events: Arc<Vec<Event>>,
    /// The last reading of the traffic counters.
    pub traffic: Arc<TrafficByService>,
    /// How far the node was when that reading was taken.
    pub traffic_at: Option<Position>,
}

impl Status {
    /// Whether state is loaded and the last pass succeeded.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}
