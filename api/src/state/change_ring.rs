//! Ring of recent commits in memory, from which watches (change streams to clients) resume or catch up.

use std::{collections::BTreeMap, sync::Arc};

use imbl::Vector;
use model::{
    cluster::change::{ChangeKind, Commit},
    kinds::resource::{Object, ObjectKey},
    primitives::quantity::Revision,
};

/// Maximum number of changes in the ring. At the highest supported write rate (5,000 a second) a watcher may be
/// six seconds behind.
const CHANGES_MAX: usize = 32_768;

/// Recent commit with its changes.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Revision of the commit.
    pub(crate) revision: Revision,
    /// Changes of the commit.
    pub(crate) changes: Vec<RecentChange>,
}

/// Change of one object in a recent commit.
#[derive(Debug)]
pub(crate) struct RecentChange {
    /// Type of the change.
    pub(crate) kind: ChangeKind,
    /// Object after the change; for a deletion, its last state.
    pub(crate) object: Arc<Object>,
    /// Object before the change.
    pub(crate) before: Before,
}

/// State of an object before a change, if known.
#[derive(Debug, Clone)]
pub(crate) enum Before {
    /// The object did not exist.
    Nothing,
    /// The object existed with this state.
    Object(Arc<Object>),
    /// The object existed, but its previous state is not known, because it is older than the store's change log.
    Unknown,
}

/// Ring of the most recent commits, with consecutive revisions up to the newest one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ring {
    commits: Vector<Arc<Recent>>,
    changes: usize,
    floor: Revision,
}

impl Ring {
    /// Creates a ring with the end of a store's change log, up to revision `head`.
    pub(crate) fn of(head: Revision, recent: &[Commit]) -> Self {
        let floor = recent.first().map_or(head, |first| Revision(first.revision.0.saturating_sub(1)));
        let mut ring = Self { floor, ..Self::default() };
        let mut known: BTreeMap<ObjectKey, Arc<Object>> = BTreeMap::new();
        for commit in recent {
            ring.push(commit, |change_kind, key, object| {
                let before = known.insert(key.clone(), Arc::clone(object));
                match (change_kind, before) {
                    (ChangeKind::Added, _) => Before::Nothing,
                    (ChangeKind::Modified | ChangeKind::Deleted, Some(object)) => Before::Object(object),
                    (ChangeKind::Modified | ChangeKind::Deleted, None) => Before::Unknown,
                }
            });
        }
        ring
    }

    /// Adds the newest commit, and drops the oldest ones if the ring has more than [`CHANGES_MAX`] changes.
    /// `before` returns the previous state of a changed object.
    pub(crate) fn push(
        &mut self,
        commit: &Commit,
        mut before: impl FnMut(ChangeKind, &ObjectKey, &Arc<Object>) -> Before,
    ) {
        let changes: Vec<_> = commit
            .changes
            .iter()
            .map(|change| RecentChange {
                kind: change.kind,
                object: Arc::clone(&change.object),
                before: before(change.kind, &change.object.key(), &change.object),
            })
            .collect();
        self.changes += changes.len();
        self.commits.push_back(Arc::new(Recent { revision: commit.revision, changes }));
        while self.changes > CHANGES_MAX && self.commits.len() > 1 {
            let Some(oldest) = self.commits.pop_front() else { return };
            self.changes -= oldest.changes.len();
            self.floor = oldest.revision;
        }
    }

    /// Returns the commits after a revision, or `None` if the ring no longer contains all of them.
    pub(crate) fn since(&self, revision: Revision) -> Option<impl Iterator<Item = &Arc<Recent>>> {
        if revision < self.floor {
            return None;
        }
        // Revisions in the ring have no gaps, so the offset is a subtraction.
        let skip = usize::try_from(revision.0 - self.floor.0).unwrap_or(usize::MAX);
        let at = skip.min(self.commits.len());
        Some((at..self.commits.len()).filter_map(|at| self.commits.get(at)))
    }
}

#[cfg(test)]
mod tests {
    use model::{
        cluster::change::Change,
        kinds::{metadata::Metadata, resource::Spec},
        primitives::{name::Name, quantity::Timestamp},
    };

    use super::*;

    fn commit(revision: u64, kind: ChangeKind, changes: usize) -> Commit {
        let name = Name::parse("n1").unwrap();
        let object =
            Arc::new(Object { metadata: Metadata::named(name, None), spec: Spec::Node(Box::default()) });
        let changes = (0..changes).map(|_| Change { kind, object: Arc::clone(&object) }).collect();
        Commit { revision: Revision(revision), at: Timestamp::from_unix_seconds(0), changes }
    }

    fn revisions(ring: &Ring, after: u64) -> Option<Vec<u64>> {
        ring.since(Revision(after)).map(|commits| commits.map(|commit| commit.revision.0).collect())
    }

    #[test]
    fn a_ring_reaches_back_to_the_commit_before_its_oldest() {
        let log = [commit(5, ChangeKind::Added, 1), commit(6, ChangeKind::Modified, 1)];
        let ring = Ring::of(Revision(6), &log);
        assert_eq!(revisions(&ring, 6), Some(vec![]));
        assert_eq!(revisions(&ring, 5), Some(vec![6]));
        assert_eq!(revisions(&ring, 4), Some(vec![5, 6]));
        assert_eq!(revisions(&ring, 3), None);
        assert_eq!(revisions(&Ring::of(Revision(6), &[]), 6), Some(vec![]));
        assert_eq!(revisions(&Ring::of(Revision(6), &[]), 5), None);
    }

    #[test]
    fn a_full_ring_forgets_the_oldest_and_keeps_the_newest_whatever_its_size() {
        let mut ring = Ring::of(Revision(0), &[]);
        for revision in 1..=3 {
            ring.push(&commit(revision, ChangeKind::Added, CHANGES_MAX / 2), |_, _, _| Before::Nothing);
        }
        assert_eq!(revisions(&ring, 1), Some(vec![2, 3]));
        assert_eq!(revisions(&ring, 0), None);
        ring.push(&commit(4, ChangeKind::Added, 2 * CHANGES_MAX), |_, _, _| Before::Nothing);
        assert_eq!(revisions(&ring, 3), Some(vec![4]));
    }

    #[test]
    fn what_the_log_does_not_know_of_the_state_before_is_said_to_be_unknown() {
        let log = [commit(5, ChangeKind::Modified, 1), commit(6, ChangeKind::Deleted, 1)];
        let ring = Ring::of(Revision(6), &log);
        let before: Vec<_> =
            ring.since(Revision(4)).unwrap().map(|commit| commit.changes[0].before.clone()).collect();
        assert!(matches!(before[..], [Before::Unknown, Before::Object(_)]), "{before:?}");
    }
}
