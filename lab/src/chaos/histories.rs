//! What several clients saw of a store at the same time, and whether one honest store can have shown it to them.
//!
//! ```text
//! clients   ── operations, each with begin and end ──┐
//! watchers  ── events as they arrived ───────────────┼──▶ check ──▶ violations
//! agents    ── states at their `synced` frames ──────┤
//! the log   ── what the store says happened ─────────┘
//! ```
//! Every write carries a value that no other write has, and every answer names revisions, so nothing has to be searched for:
//! the order of revisions is the one order in which the writes can have happened, and it either fits what was seen or it
//! does not.
//!
//! What is promised, and checked:
//! - **Writes are linearizable.** An accepted write is in the log once, whole, at its revision; on the state before it its
//!   precondition held; a revision that somebody had seen when a write began is lower than that of the write. A write of
//!   which nobody knows is there once or not at all, a refused one never, and its refusal rests on a state that the store
//!   had while it was asked.
//! - **Reads never go back** on one server: they show a state that the store had, no older than what the same server had
//!   shown or accepted before, nor than the position that the reader names. Between servers they may.
//! - **Watches miss nothing**: every event after their beginning, in order, once, whichever servers they went to.
//! - **Agents never go back**, and at each `synced` have exactly the state of that position.
//! - **No address is held twice.**
//!
//! Nothing here has a clock or does I/O; times are those that the recorder noted, of one monotonic clock.

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

/// Everything that was seen of the objects of one run, from a state in which none of them existed.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The revision after which it begins.
    pub start: u64,
    /// What clients asked and were told, in any order.
    pub operations: Vec<Operation>,
    /// What the store says happened after `start`, oldest first.
    pub log: Vec<Event>,
    /// The revision up to which the log reaches.
    pub head: u64,
    /// What watchers saw.
    pub watches: Vec<Watch>,
    /// What agents would have been told.
    pub feeds: Vec<Feed>,
}

/// One request and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Who asked.
    pub client: usize,
    /// Which server was asked.
    pub server: usize,
    /// When the request was sent, in nanoseconds.
    pub begin: u64,
    /// When the answer was there, or nobody waited for it any longer.
    pub end: u64,
    /// What was asked.
    pub asked: Asked,
    /// What was answered.
    pub answer: Answer,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// To change objects, all or none.
    Write {
        /// What each becomes; no object twice.
        changes: Vec<Change>,
        /// On which state.
        demand: Demand,
    },
    /// One object, from a state no older than a revision if one is named.
    Read {
        /// Its name.
        key: String,
        /// The least revision.
        at_least: Option<u64>,
    },
    /// All objects.
    List {
        /// The least revision.
        at_least: Option<u64>,
    },
}

/// What an object is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub key: String,
    /// A value that nothing else has; none to delete it.
    pub value: Option<String>,
    /// The address it asks for.
    pub address: Option<String>,
}

/// On which state of its objects a write is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Any.
    Nothing,
    /// They must not exist.
    Absent,
    /// They must exist.
    Present,
    /// They must be as a revision left them.
    Revision(u64),
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The write happened, at this revision.
    Accepted(u64),
    /// The write did not happen.
    Refused(Refusal),
    /// Nobody knows.
    Unknown,
    /// The object as it is.
    Object(Option<Seen>),
    /// All objects at a revision.
    Listing {
        /// The revision.
        at: u64,
        /// The objects.
        objects: BTreeMap<String, Seen>,
    },
    /// Something that the request cannot be answered with.
    Unexpected(String),
}

/// Why a write did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present,
    /// The object is not as the named revision left it.
    Changed,
    /// Another object has the address.
    Taken,
    /// For a reason that does not lie in the state.
    Busy,
}

/// The state of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The value of its last write.
    pub value: String,
    /// The revision of its last write.
    pub revision: u64,
}

/// What happened to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision at which it happened.
    pub revision: u64,
    /// The object.
    pub key: String,
    /// What happened.
    pub happened: Happened,
    /// The value; of a deletion, the last one.
    pub value: String,
    /// The address that the object has, or had.
    pub address: Option<String>,
}

/// What can happen to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// It came to be.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// What one watcher saw, over all the streams that it followed one after the other.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// What messages call it.
    pub name: String,
    /// The revision after which it began.
    pub start: u64,
    /// What it was told, in order.
    pub steps: Vec<WatchStep>,
}

/// One thing that a watcher was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStep {
    /// Something happened.
    Event(Event),
    /// It has everything up to this revision.
    Reached(u64),
    /// It was sent away and listed everything anew, at this revision.
    Listed {
        /// The revision.
        at: u64,
        /// The objects.
        objects: BTreeMap<String, Seen>,
    },
}

/// What one agent would have been told, over all the streams that it followed one after the other.
#[derive(Debug, Clone, Default)]
pub struct Feed {
    /// What messages call it.
    pub name: String,
    /// Its state at each `synced`, in order.
    pub steps: Vec<FeedStep>,
}

/// The state of an agent at a `synced` frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedStep {
    /// The revision that the frame names.
    pub at: u64,
    /// The address of each object that has one.
    pub addresses: BTreeMap<String, String>,
}

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The log tells a possible story, in order.
    Log,
    /// What was accepted is in the log, once and whole.
    Lost,
    /// What is in the log was asked for, once, and not refused.
    Unasked,
    /// On the state before it the precondition of a write held.
    Precondition,
    /// The order of revisions is that of real time.
    RealTime,
    /// A refusal rests on a state that there was meanwhile.
    Refusal,
    /// Reads show a state that there was.
    Read,
    /// Reads do not go back.
    ReadOrder,
    /// Watches see everything once, in order.
    Watch,
    /// Agents do not go back and have the state of their position.
    Feed,
    /// No address is held twice.
    Address,
    /// Answers are such as the API describes.
    Answer,
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub rule: Rule,
    /// What was seen, in words.
    pub seen: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.seen)
    }
}

/// Everything in a history that cannot be.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Found::default();
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

/// The violations found so far.
#[derive(Debug, Default)]
struct Found {
    violations: Vec<Violation>,
}

impl Found {
    fn add(&mut self, rule: Rule, seen: String) {
        self.violations.push(Violation { rule, seen });
    }
}
