//! Consistency checker of a test: decides if the responses and events that concurrent clients received from
//! the control servers fit one linearizable history of the store. An agent receives its state in a stream of
//! frames, in which the frame `synced` ends a consistent batch of changes.
//!
//! ```text
//! clients   ── operations, each with begin and end ──┐
//! watchers  ── events in order of arrival ───────────┼──▶ check ──▶ violations
//! agents    ── states at their `synced` frames ──────┤
//! the log   ── change log of the store ──────────────┘
//! ```
//! Every write carries a unique value, and every response contains revisions. Therefore the checker need not
//! search for an order of the writes: only the order of their revisions is possible.
//!
//! Checked guarantees:
//! - **Writes are linearizable.** An accepted write is in the log once, completely, at its revision, and the state
//!   before this revision satisfies the precondition of the write. No client has observed this revision before the
//!   write began. A write with an unknown outcome is in the log once or not at all, a rejected write never. A
//!   rejection is justified by a state that the store had during the request.
//! - **Reads are monotonic** per server: a read returns a state that the store had. This state is not older than
//!   any state that the same server returned or accepted before, nor than the minimum position in the request.
//!   Reads from different servers may return an older state after a newer one.
//! - **Reads of the latest state are linearizable**: the returned state is not older than any state that any
//!   server had returned or accepted before the read began.
//! - **Watches are complete**: a watcher receives every event after its start once and in order, even if it
//!   switches between servers.
//! - **Agents never return to an older revision**, and at each `synced` frame (end of a consistent batch of
//!   changes) an agent has exactly the addresses of the frame's revision.
//! - **No address has two holders**, that is, objects that have the address at the same revision.
//!
//! The checker has no clock and does no I/O. All times in its input were recorded on one monotonic clock.

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

/// Observations of all clients of one test run. No object in it existed before the run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Revision before the first operation.
    pub start: u64,
    /// Operations of all clients, in any order.
    pub operations: Vec<Operation>,
    /// Change log of the store after `start`, oldest first.
    pub log: Vec<ChangeEvent>,
    /// Last revision in the change log of the store.
    pub head: u64,
    /// Observations of the watchers, one entry per watcher.
    pub watches: Vec<Watch>,
    /// Observations of the agent feeds (the streams of state to the agents), one entry per feed.
    pub feeds: Vec<Feed>,
}

/// Request that a client sent, with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Index of the client that sent the request.
    pub client: usize,
    /// Index of the server that received the request.
    pub server: usize,
    /// Send time of the request in nanoseconds on the monotonic clock of the run.
    pub begin: u64,
    /// Time of the response or of the timeout, in the same unit as [`Self::begin`].
    pub end: u64,
    /// Request as the client sent it.
    pub asked: ClientRequest,
    /// Outcome as seen by the client.
    pub answer: RequestOutcome,
}

/// Request of a client: a write, a read of one object, or a list of all objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRequest {
    /// Atomic write of one or more objects.
    Write {
        /// New state of each changed object; an object occurs at most once.
        changes: Vec<ObjectChange>,
        /// Precondition that the client sent with the write.
        demand: Demand,
    },
    /// Read of one object.
    Read {
        /// Name of the object to read.
        key: String,
        /// Required age of the returned state.
        freshness: Freshness,
    },
    /// List of all objects.
    List {
        /// Required age of the returned state.
        freshness: Freshness,
    },
}

/// Requirement of a read on the age of the returned state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Freshness {
    /// No requirement: the server may return its replica, which may be older than that of other servers.
    #[default]
    Any,
    /// Minimum revision of the returned state.
    AtLeast(u64),
    /// Every write that any server had accepted before the read began.
    Latest,
}

/// Change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectChange {
    /// Name of the changed object.
    pub key: String,
    /// Unique value to write, or `None` to delete the object.
    pub value: Option<String>,
    /// Address that the object requests; `None` requests none.
    pub address: Option<String>,
}

/// Precondition of a write. The server must reject the write if it does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// No precondition; the write is valid in any state.
    Nothing,
    /// Requirement that none of the objects exists.
    Absent,
    /// Requirement that every object exists.
    Present,
    /// Requirement that every object of the write has this revision.
    Revision(u64),
}

/// Outcome of a request as seen by its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Acceptance of the write. Contains the revision at which the write was committed.
    Accepted(u64),
    /// Rejection of the write. Contains the reason that the server gave.
    Refused(Refusal),
    /// No complete response, so the write may or may not be committed.
    Unknown,
    /// Response to a read. Contains the state of the object, or `None` if the object does not exist.
    Object(Option<ObjectState>),
    /// Response to a list of all objects, at one revision.
    Listing {
        /// Revision of the listing.
        at: u64,
        /// State of each object by name.
        objects: BTreeMap<String, ObjectState>,
    },
    /// Response that does not fit the request. Contains a description of the response.
    Unexpected(String),
}

/// Reason that a server gave for the rejection of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Precondition failure: the object does not exist.
    Absent,
    /// Precondition failure: the object exists already.
    Present,
    /// Precondition failure: the object has a revision other than the one in `If-Match`.
    Changed,
    /// Allocation failure: another object holds the requested address.
    Taken,
    /// Rejection unrelated to the objects, such as an overloaded server.
    Busy,
}

/// State of one object as returned by a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectState {
    /// Unique value written by the last write.
    pub value: String,
    /// Revision of the last write.
    pub revision: u64,
}

/// Change of one object as recorded in the change log or sent to a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Revision of the change.
    pub revision: u64,
    /// Name of the object.
    pub key: String,
    /// Type of the change.
    pub happened: ChangeEventKind,
    /// New value; for a deletion, the last one.
    pub value: String,
    /// Address of the object; for a deletion, the last one.
    pub address: Option<String>,
}

/// Type of a change event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeEventKind {
    /// Creation of the object.
    Added,
    /// Modification of the object.
    Modified,
    /// Deletion of the object.
    Deleted,
}

/// Observations of one watcher, in order, over all streams that it opened one after another.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Name of the watcher in violations.
    pub name: String,
    /// Revision before the first event.
    pub start: u64,
    /// Observations in order of arrival.
    pub steps: Vec<WatchStep>,
}

/// One observation of a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStep {
    /// Change event that the watcher received.
    Event(ChangeEvent),
    /// Progress: the watcher has received every change up to the contained revision.
    Reached(u64),
    /// List response from which the watcher continued after its resume token had expired.
    Listed {
        /// Revision of the listing.
        at: u64,
        /// State of each object by name.
        objects: BTreeMap<String, ObjectState>,
    },
}

/// Observations of one agent, in order, over all feed streams that it opened one after another.
#[derive(Debug, Clone, Default)]
pub struct Feed {
    /// Name of the feed in violations.
    pub name: String,
    /// States of the agent at each `synced` frame (end of a consistent batch of changes), in order.
    pub steps: Vec<FeedStep>,
}

/// State of an agent at a `synced` frame, the end of a consistent batch of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedStep {
    /// Revision of the `synced` frame.
    pub at: u64,
    /// Load balancer address by object name.
    pub addresses: BTreeMap<String, String>,
}

/// Guarantee of the control servers that the checker verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The change log is in the order of revisions, and each event fits the state before it.
    Log,
    /// Every accepted write is in the log, once and complete.
    Lost,
    /// Every log entry was requested exactly once, and the request was not rejected.
    Unasked,
    /// The precondition of a write held on the state before it.
    Precondition,
    /// A revision observed before a write began is lower than the revision of the write.
    RealTime,
    /// Every rejection is justified by a state that the store had during the request.
    Refusal,
    /// Reads return a state that the store had.
    Read,
    /// Reads from one server never return an older state than before, and reads of the latest state never an
    /// older state than any server.
    ReadOrder,
    /// Watches return every event once, in order.
    Watch,
    /// Agents never return to an older revision, and at each `synced` frame (end of a consistent batch of
    /// changes) have the state of the frame's revision.
    Feed,
    /// No two objects hold the same address at one revision.
    Address,
    /// Responses conform to the API description.
    Answer,
}

/// Violation of a guarantee, with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Guarantee that is violated.
    pub rule: Rule,
    /// Description of the observation that contradicts the guarantee.
    pub seen: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.seen)
    }
}

/// Checks the observations of a test run and returns all violations of the guarantees.
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

/// Collector to which each check adds the violations that it finds.
#[derive(Debug, Default)]
struct Violations {
    violations: Vec<Violation>,
}

impl Violations {
    fn add(&mut self, rule: Rule, seen: String) {
        self.violations.push(Violation { rule, seen });
    }
}
