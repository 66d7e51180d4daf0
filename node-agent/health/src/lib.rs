//! Health checks: probes endpoints and reports the results to the control server, which decides if an
//! endpoint is taken out of service.
//!
//! ```text
//!  loop ──changes──▶ inbox ─▶ plan (assignment) ─▶ engine (schedule) ─▶ probe (one request) ─▶ machine (rise, fall)
//!                                                                                              │
//!  report, metrics ◀──────────────────────── shown ◀───────────────────────────────────────────┘
//! ```
//! Runs on a dedicated thread in the network namespace of the agent. Invariants: probes connect only to the
//! endpoint's own address (`pinned`), follow no redirect, read a response of limited size and run no
//! command. Faults of this machine do not count as failures of an endpoint. This crate takes no endpoint out
//! of service: an agent without a connection to the control server continues its checks, and its kernel
//! rules stay as they are.

mod engine;
mod inbox;
pub mod machine;
pub mod pinned;
pub mod plan;
mod probe;
mod refusals;
mod slots;
mod status;
mod thread;
pub mod verdict;

use std::{
    io,
    sync::{Arc, atomic::AtomicI64},
};

use base::Refusals;
use model::primitives::name::Name;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use tokio::sync::watch;

use self::{inbox::Inbox, plan::Changes};
pub use self::{
    slots::{CHECKS_IN_FLIGHT_MAX, CHECKS_IN_FLIGHT_PER_NAMESPACE_MAX, CHECKS_IN_FLIGHT_PER_SERVICE_MAX},
    status::{CheckedEndpoints, Counts},
};

/// Sender to the health check thread, which ends when the sender is dropped. The default value is not
/// connected to a thread and discards everything.
#[derive(Debug, Default)]
pub struct Checking(Option<Arc<Inbox>>);

/// Handles of the running health check thread.
#[derive(Debug)]
pub struct Running {
    /// Sender of state changes and refused connections to the thread.
    pub checking: Checking,
    /// Receiver of the health of all checked endpoints, notified when a state changes.
    pub shown: watch::Receiver<CheckedEndpoints>,
}

/// Metrics of health checks. Clones share the same metrics.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Counter of finished health checks, by outcome (label `result`).
    pub checks: Family<[(&'static str, &'static str); 1], Counter>,
    /// Number of health checks that should have started but wait, because the maximum number of checks is
    /// running.
    pub waiting: Gauge<i64, AtomicI64>,
}

/// Starts health checks for a node, in the network namespace of the calling thread.
///
/// # Errors
/// Returns an I/O error if the thread cannot be created.
pub fn start(node: Name, metrics: Metrics) -> io::Result<Running> {
    let (publish, shown) = watch::channel(CheckedEndpoints::default());
    let inbox = Arc::new(Inbox::default());
    thread::spawn(node, Arc::clone(&inbox), publish, metrics)?;
    Ok(Running { checking: Checking(Some(inbox)), shown })
}

impl Checking {
    /// Sends state changes from the control server to the thread; never blocks.
    pub fn follow(&self, changes: Changes) {
        if let Some(inbox) = &self.0 {
            inbox.put(changes);
        }
    }
}

impl Checking {
    /// Sends the current numbers of refused client connections to the thread; never blocks.
    pub fn refuse(&self, refusals: Vec<Refusals>) {
        if let Some(inbox) = &self.0 {
            inbox.put_refusals(refusals);
        }
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        if let Some(inbox) = &self.0 {
            inbox.close();
        }
    }
}
