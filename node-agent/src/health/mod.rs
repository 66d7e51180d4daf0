//! Health checks: asks endpoints whether they work, and says so to control, which decides.
//!
//! ```text
//!  loop ──changes──▶ inbox ─▶ plan (whose checks) ─▶ engine (when) ─▶ probe (one question) ─▶ machine (rise, fall)
//!                                                                                              │
//!  report, metrics ◀──────────────────────── shown ◀───────────────────────────────────────────┘
//! ```
//! A thread of its own, in the network namespace of the agent. What must not happen here: a connection to anything but the
//! endpoint's own address (`pinned`), a redirect that is followed, an answer that is read without a bound, a command that is
//! run, and a fault of this machine that is taken for one of an endpoint. Nothing here takes an endpoint out of service:
//! an agent that is cut off from control goes on checking, and its kernel stays as control said last.

mod engine;
mod inbox;
pub mod machine;
pub mod pinned;
pub mod plan;
mod probe;
mod refusals;
mod shown;
mod slots;
mod thread;
pub mod verdict;

use std::{io, sync::Arc};

use model::primitives::name::Name;
use tokio::sync::watch;

use self::{inbox::Inbox, plan::Changes};
pub use self::{
    shown::{Checked, Counts},
    slots::{CHECKS_IN_FLIGHT_MAX, CHECKS_IN_FLIGHT_PER_SERVICE_MAX},
};
use crate::{dataplane::Refusals, tally::Tally};

/// Says to the thread what is to be checked; the thread ends when this is dropped. By default nobody listens.
#[derive(Debug, Default)]
pub struct Checking(Option<Arc<Inbox>>);

/// The thread and what it shows.
#[derive(Debug)]
pub struct Running {
    /// Where it is told what to check.
    pub checking: Checking,
    /// What it has found.
    pub shown: watch::Receiver<Checked>,
}

/// Starts checking for a node, in the network namespace of the calling thread.
///
/// # Errors
/// When the kernel gives no thread.
pub fn start(node: Name, tally: Tally) -> io::Result<Running> {
    let (publish, shown) = watch::channel(Checked::default());
    let inbox = Arc::new(Inbox::default());
    thread::spawn(node, Arc::clone(&inbox), publish, tally)?;
    Ok(Running { checking: Checking(Some(inbox)), shown })
}

impl Checking {
    /// Brings changes of the state; never waits.
    pub fn follow(&self, changes: Changes) {
        if let Some(inbox) = &self.0 {
            inbox.put(changes);
        }
    }
}

impl Checking {
    /// Brings who refuses connections of clients at this moment; never waits.
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
