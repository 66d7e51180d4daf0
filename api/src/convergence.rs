//! When each node had a revision verified: the curve of a change.
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
    quantity::{Position, Revision},
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
    /// Milliseconds from the commit until a node said that it has the revision verified.
    verified: BTreeMap<Name, u64>,
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
            curves.push_back(Curve { revision: *revision, committed, verified: BTreeMap::new() });
        }
        let surplus = curves.len().saturating_sub(REVISIONS_MAX);
        curves.drain(..surplus);
    }

    /// Takes what a node has verified. What it said before holds.
    pub(crate) fn take(&self, node: &Name, before: Option<Position>, verified: Position, now: Instant) {
        // A node says the same every few seconds.
        if before == Some(verified) {
            return;
        }
        let mut curves = self.lock();
        for curve in curves.iter_mut().filter(|curve| curve.revision <= verified.revision) {
            let took = now.saturating_duration_since(curve.committed).as_millis();
            let took = u64::try_from(took).unwrap_or(u64::MAX);
            curve.verified.entry(node.clone()).or_insert(took);
        }
    }

    /// When each node had a revision, in milliseconds, and how long ago the revision was made; `None` when that is not
    /// kept.
    pub(crate) fn of(&self, revision: Revision, now: Instant) -> Option<(BTreeMap<Name, u64>, u64)> {
        let curves = self.lock();
        let curve = curves.iter().find(|curve| curve.revision == revision)?;
        let age = now.saturating_duration_since(curve.committed).as_millis();
        Some((curve.verified.clone(), u64::try_from(age).unwrap_or(u64::MAX)))
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
        let at = |revision| Position { epoch: model::quantity::Epoch(1), revision: Revision(revision) };
        let later = |ms| start + Duration::from_millis(ms);
        book.note(&[Revision(1), Revision(2)], start);
        book.take(&node, None, at(1), later(5));
        book.take(&node, Some(at(1)), at(2), later(9));
        assert_eq!(book.of(Revision(1), later(10)), Some(([(node.clone(), 5)].into(), 10)));
        assert_eq!(book.of(Revision(2), later(10)), Some(([(node, 9)].into(), 10)));
        let many: Vec<_> = (3..3 + REVISIONS_MAX as u64).map(Revision).collect();
        book.note(&many, start);
        assert_eq!((book.of(Revision(2), start), book.of(Revision(3), start).is_some()), (None, true));
    }
}
