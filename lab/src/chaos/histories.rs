//! Consistency checker for the store: decides if the concurrent observations of several clients fit one
//! linearizable history.
//!
//! ```text
//! clients   ── operations, each with begin and end ──┐
//! watchers  ── events in order of arrival ───────────┼──▶ check ──▶ violations
//! agents    ── states at their `synced` frames ──────┤
//! the log   ── change log of the store ──────────────┘
//! ```
//! Every write carries a unique value, and every response names revisions, so no search is needed: the order
//! of revisions is the only possible order of the writes, and the observations either fit it or do not.
//!
//! Checked guarantees:
//! - **Writes are linearizable.** An accepted write is in the log once, completely, at its revision. Its
//!   precondition held on the state before. A revision observed before a write began is lower than that of
//!   the write. A write with an unknown outcome is in the log once or not at all, a rejected one never, and
//!   the rejection is justified by a state that the store had during the request.
//! - **Reads are monotonic** per server: they return a state that the store had, no older than any state the
//!   same server returned or accepted before, nor older than the position named by the reader. Reads from
//!   different servers may go back.
//! - **Watches are complete**: every event after the start, in order, once, across all servers used.
//! - **Agents never go back**, and at each `synced` hold exactly the state of that position.
//! - **No address has two holders.**
//!
//! The checker has no clock and does no I/O; times were recorded on one monotonic clock.

use std::collections::BTreeMap;

mod feeds;
mod kept;
mod reads;
mod refusals;
mod timeline;
mod watches;
mod writes;

#[cfg(test)]
mod tests;

pub use timeline::Timeline;

/// All observations of one run, which started without any of its objects.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Revision before the first operation.
    pub start: u64,
    /// Client operations in any order.
    pub operations: Vec<Operation>,
    /// Change log of the store after `start`, oldest first.
    pub log: Vec<ChangeEvent>,
    /// Last revision of the log.
    pub head: u64,
    /// Observations of the watchers.
    pub watches: Vec<Watch>,
    /// Observations of the agent feeds.
    pub feeds: Vec<Feed>,
}

/// A request and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Index of the client.
    pub client: usize,
    /// Index of the server.
    pub server: usize,
    /// Send time of the request in nanoseconds.
    pub begin: u64,
    /// Time of the response or of the timeout.
    pub end: u64,
    /// The request.
    pub asked: ClientRequest,
    /// The outcome.
    pub answer: RequestOutcome,
}

/// A client request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRequest {
    /// Changes objects, all or none.
    Write {
        /// The new state of each object; no object twice.
        changes: Vec<ObjectChange>,
        /// Precondition.
        demand: Demand,
    },
    /// Reads one object, from a state no older than a revision if one is given.
    Read {
        /// Name of the object.
        key: String,
        /// Minimum revision.
        at_least: Option<u64>,
    },
    /// Lists all objects.
    List {
        /// Minimum revision.
        at_least: Option<u64>,
    },
}

/// Change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectChange {
    /// Name of the object.
    pub key: String,
    /// A unique value, or none to delete the object.
    pub value: Option<String>,
    /// Requested address.
    pub address: Option<String>,
}

/// Precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// No precondition.
    Nothing,
    /// The objects must not exist.
    Absent,
    /// The objects must exist.
    Present,
    /// The objects must have this revision.
    Revision(u64),
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The write was committed at this revision.
    Accepted(u64),
    /// The write was rejected.
    Refused(Refusal),
    /// The outcome is unknown.
    Unknown,
    /// The current object.
    Object(Option<ObjectState>),
    /// All objects at a revision.
    Listing {
        /// Revision of the listing.
        at: u64,
        /// Objects by name.
        objects: BTreeMap<String, ObjectState>,
    },
    /// A response that does not fit the request.
    Unexpected(String),
}

/// Reason for the rejection of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present,
    /// The object has another revision than the named one.
    Changed,
    /// Another object holds the address.
    Taken,
    /// A reason unrelated to the state.
    Busy,
}

/// State of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectState {
    /// Value of the last write.
    pub value: String,
    /// Revision of the last write.
    pub revision: u64,
}

/// Change event of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Revision of the change.
    pub revision: u64,
    /// Name of the object.
    pub key: String,
    /// Kind of change.
    pub happened: ChangeEventKind,
    /// New value; for a deletion, the last one.
    pub value: String,
    /// Address of the object; for a deletion, the last one.
    pub address: Option<String>,
}

/// Kind of change event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeEventKind {
    /// The object was created.
    Added,
    /// The object was modified.
    Modified,
    /// The object was deleted.
    Deleted,
}

/// Observations of one watcher over all its consecutive streams.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Name for messages.
    pub name: String,
    /// Revision before the first event.
    pub start: u64,
    /// Observations in order.
    pub steps: Vec<WatchStep>,
}

/// An observation of a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStep {
    /// A change event.
    Event(ChangeEvent),
    /// The watcher holds everything up to this revision.
    Reached(u64),
    /// The watch expired, and the watcher listed all objects at this revision.
    Listed {
        /// Revision of the listing.
        at: u64,
        /// Objects by name.
        objects: BTreeMap<String, ObjectState>,
    },
}

/// Observations of one agent feed over all its consecutive streams.
#[derive(Debug, Clone, Default)]
pub struct Feed {
    /// Name for messages.
    pub name: String,
    /// State at each `synced`, in order.
    pub steps: Vec<FeedStep>,
}

/// State of an agent at a `synced` frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedStep {
    /// Revision of the frame.
    pub at: u64,
    /// Address of each object that has one.
    pub addresses: BTreeMap<String, String>,
}

/// A checked guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The log is in order and self-consistent.
    Log,
    /// An accepted write is in the log, once and complete.
    Lost,
    /// Every log entry was requested, once, and not rejected.
    Unasked,
    /// The precondition of a write held on the state before it.
    Precondition,
    /// The order of revisions is consistent with real time.
    RealTime,
    /// A rejection is justified by a state during the request.
    Refusal,
    /// Reads return an existing state.
    Read,
    /// Reads do not go back.
    ReadOrder,
    /// Watches deliver every event once, in order.
    Watch,
    /// Agents do not go back and hold the state of their position.
    Feed,
    /// No address has two holders.
    Address,
    /// Responses conform to the API.
    Answer,
}

/// A violation of a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The violated guarantee.
    pub rule: Rule,
    /// Description of the observation.
    pub seen: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.seen)
    }
}

/// Checks a history and returns all violations.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Violations::default();
    let timeline = Timeline::new(history, &mut found);
    let made = writes::check(history, &timeline, &mut found);
    let bounds = kept::Bounds::new(history, &made);
    kept::check(history, &made, &bounds, &mut found);
    refusals::check(history, &timeline, &bounds, &mut found);
    reads::check(history, &timeline, &bounds, &mut found);
    watches::check(history, &timeline, &mut found);
    feeds::check(history, &timeline, &mut found);
    found.violations
}

/// Collector of violations.
#[derive(Debug, Default)]
struct Violations {
    violations: Vec<Violation>,
}

impl Violations {
    fn add(&mut self, rule: Rule, seen: String) {
        self.violations.push(Violation { rule, seen });
    }
}
