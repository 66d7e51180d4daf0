//! When each node had received, applied and verified a revision: the curve of a change.
//!
//! Held in memory for the newest revisions. Time is that of this server, from the commit to the report that says so;
//! nothing rests on it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use model::{
    name::Name,
    quantity::{Epoch, Position, Revision},
    report::Report,
};

/// Revisions whose curve is kept: enough to look at what was just done, also in a busy cluster.
const REVISIONS_MAX: usize = 256;

/// The curves, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Convergence(Mutex<VecDeque<Curve>>);

#[derive(Debug)]
struct Curve {
    revision: Revision,
    committed: Instant,
    nodes: BTreeMap<Name, Steps>,
}

/// Milliseconds from the commit until a node said how far it is; `None` while it has not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// It has the change.
    pub(crate) received: Option<u64>,
    /// It has written it into its kernel.
    pub(crate) applied: Option<u64>,
    /// It has read it back.
    pub(crate) verified: Option<u64>,
}

/// How far a node says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// What it has received.
    pub(crate) received: Position,
    /// What it has applied.
    pub(crate) applied: Position,
    /// What it has verified.
    pub(crate) verified: Position,
}

impl Marks {
    /// Those of a report.
    pub(crate) const fn of(report: &Report) -> Self {
        Self { received: report.received, applied: report.applied, verified: report.verified }
    }

    /// The life of the store of which something counts: a node may have verified nothing of it yet.
    pub(crate) const fn epoch(self) -> Epoch {
        self.received.epoch
    }

    /// Whether it has reached a revision of that life.
    fn steps(self, revision: Revision) -> [bool; 3] {
        let Self { received, applied, verified } = self;
        [received, applied, verified].map(|mark| mark.epoch == self.epoch() && mark.revision >= revision)
    }
}

impl Convergence {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Curve>> {
        // Figures for people; a panicking holder leaves some of them out.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the curves of new revisions.
    pub(crate) fn note(&self, revisions: &[Revision], committed: Instant) {
        let mut curves = self.lock();
        for revision in revisions {
            curves.push_back(Curve { revision: *revision, committed, nodes: BTreeMap::new() });
        }
        let surplus = curves.len().saturating_sub(REVISIONS_MAX);
        curves.drain(..surplus);
    }

    /// Takes how far a node is. What it said before holds.
    pub(crate) fn take(&self, node: &Name, before: Option<Marks>, marks: Marks, now: Instant) {
        // A node says the same every few seconds.
        if before == Some(marks) {
            return;
        }
        let mut curves = self.lock();
        for curve in curves.iter_mut().filter(|curve| curve.revision <= marks.received.revision) {
            let took = now.saturating_duration_since(curve.committed).as_millis();
            let took = u64::try_from(took).unwrap_or(u64::MAX);
            let Steps { received, applied, verified } = curve.nodes.entry(node.clone()).or_default();
            for (step, is_reached) in
                [received, applied, verified].into_iter().zip(marks.steps(curve.revision))
            {
                if is_reached {
                    step.get_or_insert(took);
                }
            }
        }
    }

    /// When each node had a revision, in milliseconds, and how long ago the revision was made; `None` when that is not
    /// kept.
    pub(crate) fn of(&self, revision: Revision, now: Instant) -> Option<(BTreeMap<Name, Steps>, u64)> {
        let curves = self.lock();
        let curve = curves.iter().find(|curve| curve.revision == revision)?;
        let age = now.saturating_duration_since(curve.committed).as_millis();
        Some((curve.nodes.clone(), u64::try_from(age).unwrap_or(u64::MAX)))
    }
}

/// The value that a share of sorted values does not exceed, by the nearest rank; `None` of nothing.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (Some(50), Some(99)));
        assert_eq!(
            (percentile(&[7], 50), percentile(&[7], 99), percentile(&[], 50)),
            (Some(7), Some(7), None)
        );
        assert_eq!(percentile(&[1, 2, 3], 99), Some(3));
    }

    #[test]
    fn the_first_report_that_has_a_revision_counts_and_old_curves_go() {
        let (book, start) = (Convergence::default(), Instant::now());
        let node = Name::parse("n1").unwrap();
        let at = |revision| Position { epoch: Epoch(1), revision: Revision(revision) };
        let later = |ms| start + Duration::from_millis(ms);
        let marks = |received, applied, verified| Marks {
            received: at(received),
            applied: at(applied),
            verified: at(verified),
        };
        book.note(&[Revision(1), Revision(2)], start);
        book.take(&node, None, marks(2, 1, 1), later(5));
        book.take(&node, Some(marks(2, 1, 1)), marks(2, 2, 1), later(7));
        book.take(&node, Some(marks(2, 2, 1)), marks(2, 2, 2), later(9));
        let of = |revision| book.of(Revision(revision), later(10)).unwrap().0[&node];
        let steps = |received, applied, verified| Steps {
            received: Some(received),
            applied: Some(applied),
            verified: Some(verified),
        };
        assert_eq!((of(1), of(2)), (steps(5, 5, 5), steps(5, 7, 9)));
        let many: Vec<_> = (3..3 + REVISIONS_MAX as u64).map(Revision).collect();
        book.note(&many, start);
        assert_eq!((book.of(Revision(2), start), book.of(Revision(3), start).is_some()), (None, true));
    }

    #[test]
    fn what_a_node_had_of_an_earlier_life_does_not_count() {
        let (book, start) = (Convergence::default(), Instant::now());
        let node = Name::parse("n1").unwrap();
        let at = |epoch| Position { epoch: Epoch(epoch), revision: Revision(1) };
        book.note(&[Revision(1)], start);
        book.take(&node, None, Marks { received: at(2), applied: at(1), verified: at(1) }, start);
        let expected = Steps { received: Some(0), ..Steps::default() };
        assert_eq!(book.of(Revision(1), start).unwrap().0[&node], expected);
    }
}
