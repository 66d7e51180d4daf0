//! State machine of one commit of a group: decides the next request to etcd from the reply to the previous one,
//! until the outcome is known. Pure; `write` sends the requests.
//!
//! A reply may be lost although etcd executes the request, at once or later. Rewriting the key `head` without a
//! change increases its version, so that an earlier request of the commit can no longer succeed (fencing).
//!
//! ```text
//!   Commit ──written────────────────────────────────────────────▶ Landed
//!    │  ▲
//!    │  └── written, or head was only rewritten ──┐
//!    ├──lost──────────────────────────────▶ Fence ┤
//!    └──head has another version──▶ judge ◀───────┘ head has another version
//!                                     ├── log entry of this commit ──▶ Landed
//!                                     ├── log reaches the revision ──▶ Lost
//!                                     └── log was trimmed ──▶ Search ──▶ Landed, Lost; compacted: Unknown
//! ```
//! The leader trims the log, so a missing entry proves nothing if the oldest entry of the log is newer. Then the
//! etcd revision at which `head` left the position of the decision is searched by bisection in etcd's own history.
//! The log at that revision contains the commit that was made there.
//!
//! The model checker explores this machine with delays, lost replies, crashes and trimming, and `replay` compares
//! the model with etcd.

use model::primitives::quantity::{Position, Revision};

use super::read::Head;

#[cfg(test)]
mod model_check;
#[cfg(test)]
mod replay;

/// Commit of a group whose outcome is not known yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    /// Position of the store on which the changes were decided.
    at: Position,
    /// Revision of the group's last commit, which is also in the key of the group's log entry.
    last: Revision,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Commit { head_version: i64 },
    Fence { head_version: i64 },
    Search(Search),
}

/// Bisection of etcd's history for the revision at which `head` left the position of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Search {
    /// Head of the store before the search.
    now: Head,
    /// Newest etcd revision at which `head` is known to have been at the position of the decision.
    low: i64,
    /// Oldest etcd revision at which `head` is known to have been at a later position.
    high: i64,
    /// True if the log at `high` was read, without an entry of this commit.
    is_high_read: bool,
}

/// Request to etcd; each is one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// Writes the group if `head` has this version; otherwise reads as [`Self::Read`], at the present.
    Commit {
        /// Expected modification revision of the key `head`.
        head_version: i64,
    },
    /// Rewrites `head` with the same position if it has this version; otherwise reads as [`Self::Read`], at the
    /// present.
    Fence {
        /// Expected modification revision of the key `head`.
        head_version: i64,
    },
    /// Reads `head` and the log as of a past etcd revision.
    Read {
        /// The etcd revision.
        at: i64,
    },
}

/// Reply to a [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// `head` had the expected version; etcd executed the write at this etcd revision.
    Written(i64),
    /// State of the store, as read instead of a write or by [`Request::Read`].
    Seen(SeenState),
    /// The requested etcd revision has been compacted.
    Compacted,
    /// No reply arrived. The request may have been executed, or be executed later.
    Lost,
}

/// State of the store as far as it concerns a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SeenState {
    pub(super) head: Head,
    /// Log entry under the key of the group; `None` if the key does not exist.
    pub(super) entry: Option<SeenEntry>,
    /// Revision in the key of the oldest log entry; `None` if the log is empty.
    pub(super) log_start: Option<Revision>,
}

/// Log entry under the key of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SeenEntry {
    /// True if the entry was written by this commit, false if by a commit of another process.
    pub(super) is_own: bool,
    /// Modification revision of the entry in etcd.
    pub(super) version: i64,
}

/// Outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// The group was committed at this etcd revision.
    Landed(i64),
    /// The group was not committed and can no longer be; contains the current head.
    Lost(Head),
    /// The outcome cannot be determined, because both the log entry and etcd's history of that time were deleted.
    Unknown,
}

impl Attempt {
    /// Begins the commit of a group decided at position `at`, whose last commit has revision `last`.
    /// `head_version` is the modification revision of the key `head` at that position.
    pub(super) const fn new(at: Position, last: Revision, head_version: i64) -> Self {
        Self { at, last, step: Step::Commit { head_version } }
    }

    /// Returns the next request to etcd.
    pub(super) const fn request(&self) -> Request {
        match self.step {
            Step::Commit { head_version } => Request::Commit { head_version },
            Step::Fence { head_version } => Request::Fence { head_version },
            Step::Search(Search { low, high, .. }) => {
                Request::Read { at: if high - low > 1 { low + (high - low) / 2 } else { high } }
            }
        }
    }

    /// Processes the reply to [`Self::request`]. Returns the outcome if it is known; otherwise the next request
    /// must be sent.
    pub(super) fn handle(&mut self, reply: Reply) -> Option<Outcome> {
        match (self.step, reply) {
            (Step::Commit { .. }, Reply::Written(version)) => return Some(Outcome::Landed(version)),
            (Step::Fence { .. }, Reply::Written(head_version)) => self.step = Step::Commit { head_version },
            (Step::Commit { head_version } | Step::Fence { head_version }, Reply::Seen(seen)) => {
                return self.judge(head_version, &seen);
            }
            (Step::Commit { head_version }, Reply::Lost | Reply::Compacted) => {
                self.step = Step::Fence { head_version };
            }
            (Step::Search(search), Reply::Seen(seen)) => return self.narrow(search, &seen),
            (Step::Search(_), Reply::Compacted) => return Some(Outcome::Unknown),
            (Step::Fence { .. }, Reply::Lost | Reply::Compacted)
            | (Step::Search(_), Reply::Lost | Reply::Written(_)) => {}
        }
        None
    }

    /// Determines the outcome from the state of the store after `head` was found with a version other than
    /// `head_version`, at which it was at the position of the decision.
    fn judge(&mut self, head_version: i64, seen: &SeenState) -> Option<Outcome> {
        let SeenState { head, entry, log_start } = *seen;
        if let Some(SeenEntry { is_own: true, version }) = entry {
            return Some(Outcome::Landed(version));
        }
        if head.position == self.at {
            // Rewritten by an earlier fence, or by one of another process.
            self.step = Step::Commit { head_version: head.version };
            return None;
        }
        // The log is trimmed from its start. If it reaches back to this revision, the entry would still exist.
        // Without a later revision, no commit followed the decision; only the epoch was raised.
        let is_certain = entry.is_some() || log_start.is_some_and(|start| start <= self.last);
        if is_certain || head.position.revision == self.at.revision {
            return Some(Outcome::Lost(head));
        }
        let (low, high) = (head_version, head.version);
        self.step = Step::Search(Search { now: head, low, high, is_high_read: false });
        None
    }

    /// Continues the bisection with the state as of the etcd revision of [`Self::request`].
    fn narrow(&mut self, search: Search, seen: &SeenState) -> Option<Outcome> {
        if let Some(SeenEntry { is_own: true, version }) = seen.entry {
            return Some(Outcome::Landed(version));
        }
        let Search { now, low, high, is_high_read } = search;
        let middle = low + (high - low) / 2;
        let next = match (high - low > 1, seen.head.position.revision > self.at.revision) {
            (true, true) => Search { now, low, high: middle, is_high_read: true },
            (true, false) => Search { now, low: middle, high, is_high_read },
            (false, _) => return Some(Outcome::Lost(now)),
        };
        if next.high - next.low <= 1 && next.is_high_read {
            return Some(Outcome::Lost(now));
        }
        self.step = Step::Search(next);
        None
    }
}
