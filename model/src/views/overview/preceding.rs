//! Likely cause of a problem: the last write before the problem that changed an object on which the problem
//! may depend.

use std::collections::{BTreeSet, VecDeque};

use super::{PrecedingChange, memory::Concerns};
use crate::{
    cluster::history::Maker,
    kinds::resource::{Kind, ObjectKey},
    primitives::quantity::{Revision, Timestamp},
};

/// Maximum time in seconds between a write and a problem for which the write is shown as the likely cause.
/// The time is longer than health checks and leases need to show the effect of a write, but short enough that a
/// server that fails later does not show the creation of its Service.
pub const WINDOW_SECS: i64 = 60;
/// Maximum number of stored writes; the oldest are discarded first.
pub const WRITES_KEPT_MAX: usize = 1000;
/// Maximum number of objects that are stored for all remembered writes together. If there are more, the
/// oldest writes are discarded.
pub const TOUCHES_KEPT_MAX: usize = 50_000;

/// Write, with the objects that it changed and the Services that it affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Revision that the write created.
    pub revision: Revision,
    /// Time at which the write was accepted.
    pub at: Timestamp,
    /// Type of the author: client, agent or server.
    pub maker: Maker,
    /// Author of the write.
    pub author: String,
    /// Reason that the author gave.
    pub message: Option<String>,
    /// Written objects, and the Services to which written endpoints belong.
    pub touches: BTreeSet<ObjectKey>,
}

/// Recent writes by clients, oldest first.
#[derive(Debug, Default)]
pub struct Writes {
    writes: VecDeque<Write>,
    touches: usize,
}

impl Writes {
    /// Adds a new write. Writes that servers or agents made by themselves are ignored, because they are
    /// consequences rather than causes.
    pub fn push(&mut self, write: Write) {
        match write.maker {
            Maker::Client => {}
            Maker::Agent | Maker::Server => return,
        }
        self.touches += write.touches.len();
        self.writes.push_back(write);
        while self.writes.len() > WRITES_KEPT_MAX
            || (self.touches > TOUCHES_KEPT_MAX && self.writes.len() > 1)
        {
            self.touches -= self.writes.pop_front().map_or(0, |write| write.touches.len());
        }
    }

    /// Returns the last write within a minute before `since` that changed one of the objects in
    /// `concerns`.
    #[must_use]
    pub fn preceding(&self, concerns: &Concerns, since: Timestamp) -> Option<PrecedingChange> {
        let touches = |write: &&Write| {
            concerns.keys.iter().any(|key| write.touches.contains(key))
                || concerns.kinds.iter().any(|kind| has_kind(&write.touches, *kind))
        };
        let age = |write: &Write| since.unix_seconds() - write.at.unix_seconds();
        // Times have a resolution of one second: a write in the same second may be the cause.
        let before = self.writes.iter().rev().skip_while(|write| age(write) < 0);
        let found = before.take_while(|write| age(write) <= WINDOW_SECS).find(touches)?;
        let Write { revision, at, maker: _, author, message, touches: _ } = found;
        let (author, message) = (Some(author.clone()), message.clone());
        Some(PrecedingChange { revision: *revision, at: *at, author, message })
    }
}

fn has_kind(touches: &BTreeSet<ObjectKey>, kind: Kind) -> bool {
    touches.iter().any(|key| key.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::name::Name;

    fn key(kind: Kind, name: &str) -> ObjectKey {
        ObjectKey { kind, namespace: None, name: Name::parse(name).unwrap() }
    }

    fn writes(all: &[(u64, i64, Maker, Kind, &str)]) -> Writes {
        let mut writes = Writes::default();
        for (revision, at, maker, kind, name) in all {
            writes.push(Write {
                revision: Revision(*revision),
                at: Timestamp::from_unix_seconds(*at),
                maker: *maker,
                author: "ada".to_owned(),
                message: None,
                touches: BTreeSet::from([key(*kind, name)]),
            });
        }
        writes
    }

    fn found(writes: &Writes, concerns: &Concerns, since: i64) -> Option<u64> {
        writes.preceding(concerns, Timestamp::from_unix_seconds(since)).map(|change| change.revision.0)
    }

    #[test]
    fn the_last_write_before_it_that_touches_it_is_named_and_no_other() {
        let writes = writes(&[
            (1, 1000, Maker::Client, Kind::Node, "a"),
            (2, 1010, Maker::Client, Kind::Node, "b"),
            (3, 1020, Maker::Client, Kind::Node, "a"),
            (4, 1030, Maker::Server, Kind::Node, "a"),
            (5, 1040, Maker::Client, Kind::Node, "a"),
        ]);
        let of_a = Concerns { keys: vec![key(Kind::Node, "a")], kinds: &[] };
        assert_eq!(found(&writes, &of_a, 1035), Some(3), "what the server writes is a consequence");
        assert_eq!(found(&writes, &of_a, 1040), Some(5), "within the same second");
        assert_eq!(found(&writes, &of_a, 1019), Some(1));
        assert_eq!(found(&writes, &of_a, 999), None, "it was there before");
        assert_eq!(found(&writes, &of_a, 1041 + WINDOW_SECS), None, "too long ago");
        let any_node = Concerns { keys: Vec::new(), kinds: &[Kind::Node] };
        assert_eq!(found(&writes, &any_node, 1015), Some(2));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut writes = Writes::default();
        let many: BTreeSet<_> = (0..TOUCHES_KEPT_MAX).map(|n| key(Kind::Node, &format!("n{n}"))).collect();
        let write = |revision, touches| Write {
            revision: Revision(revision),
            at: Timestamp::from_unix_seconds(0),
            maker: Maker::Client,
            author: String::new(),
            message: None,
            touches,
        };
        writes.push(write(1, many));
        writes.push(write(2, BTreeSet::from([key(Kind::Node, "a")])));
        assert_eq!((writes.writes.len(), writes.touches), (1, 1));
        for revision in 0..2 * WRITES_KEPT_MAX {
            writes.push(write(revision as u64, BTreeSet::from([key(Kind::Node, "a")])));
        }
        assert_eq!((writes.writes.len(), writes.touches), (WRITES_KEPT_MAX, WRITES_KEPT_MAX));
    }
}
