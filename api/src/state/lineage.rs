//! Detection of an older copy of the store: an agent holds a position of the present epoch that this server has not reached.
//!
//! Revisions count up again from the copy, so a client's position says nothing about its content any longer as soon as
//! the copy has overtaken it. Changes after such a position would be added to a state of another history. Clients then get
//! the full state.

use std::sync::atomic::{AtomicBool, Ordering};

use model::primitives::quantity::{Position, Revision};

/// Detector for a store that no other server writes to, so that no client can be ahead of it otherwise.
#[derive(Debug)]
pub(crate) struct Lineage {
    /// Revision of the store when this server started. Earlier changes are not in memory, so that nothing resumes from them.
    start: Revision,
    /// True once an agent held a position that this server had not reached.
    is_doubtful: AtomicBool,
}

impl Lineage {
    /// Creates the detector for a server that starts at a position.
    pub(crate) const fn new(start: Position) -> Self {
        Self { start: start.revision, is_doubtful: AtomicBool::new(false) }
    }

    /// Records the position of an agent, and returns true if it is the first one that proves an older copy. `present` is
    /// the position of this server.
    pub(crate) fn observe(&self, held: Position, present: Position) -> bool {
        let is_ahead = held.epoch == present.epoch && held.revision > present.revision;
        is_ahead && !self.is_doubtful.swap(true, Ordering::Relaxed)
    }

    /// Returns true if changes after the position of a client may be sent to it.
    pub(crate) fn may_resume(&self, held: Position) -> bool {
        held.revision <= self.start || !self.is_doubtful.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use model::primitives::quantity::Epoch;

    use super::*;

    fn at(epoch: u64, revision: u64) -> Position {
        Position { epoch: Epoch(epoch), revision: Revision(revision) }
    }

    #[test]
    fn a_client_that_is_ahead_ends_resumption_of_what_this_server_may_not_have_sent() {
        let lineage = Lineage::new(at(1, 5));
        assert!(!lineage.observe(at(1, 7), at(1, 7)) && !lineage.observe(at(2, 90), at(1, 7)));
        assert!(lineage.may_resume(at(1, 7)));
        assert!(lineage.observe(at(1, 9), at(1, 7)), "the first one");
        assert!(!lineage.observe(at(1, 9), at(1, 7)));
        assert!(lineage.may_resume(at(1, 5)), "before the changes in memory");
        assert!(!lineage.may_resume(at(1, 6)) && !lineage.may_resume(at(1, 9)));
    }
}
