//! Convergence of recent revisions: time at which each node received, applied and verified a revision.
//!
//! The data covers only the newest revisions and is kept in memory. This server measures the times, from the
//! commit to the report of the node. The data is informational only.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use model::{
    observed::{
        lag::{ChangeProgress, ChangeView, LagBrief, Steps, brief},
        rollup::NodeView,
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision},
    },
    wire::report::Report,
};

/// Maximum number of revisions with convergence data: enough to examine a recent change in a busy cluster.
const REVISIONS_MAX: usize = 256;

/// Convergence data of the newest revisions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Convergence(Mutex<VecDeque<ConvergenceRecord>>);

#[derive(Debug)]
struct ConvergenceRecord {
    revision: Revision,
    committed: Instant,
    /// True if the revision changes data that nodes receive.
    concerns_nodes: bool,
    nodes: BTreeMap<Name, Steps>,
}

/// Positions that a node reports as received, applied and verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watermarks {
    received: Position,
    applied: Position,
    verified: Position,
}

impl From<&Report> for Watermarks {
    fn from(report: &Report) -> Self {
        let Report { received, applied, verified, .. } = report;
        Self { received: *received, applied: *applied, verified: *verified }
    }
}

impl Convergence {
    fn lock(&self) -> MutexGuard<'_, VecDeque<ConvergenceRecord>> {
        // Informational data; a panicking holder leaves at worst an incomplete record.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a convergence record for each new revision, committed at the given time.
    pub(crate) fn record_revisions(&self, revisions: &[Revision], committed: Instant) {
        let mut curves = self.lock();
        for revision in revisions {
            if curves.back().is_some_and(|newest| newest.revision >= *revision) {
                // The store was restored: positions of the previous epoch are meaningless.
                curves.clear();
            }
            let nodes = BTreeMap::new();
            curves.push_back(ConvergenceRecord {
                revision: *revision,
                committed,
                concerns_nodes: false,
                nodes,
            });
        }
        let surplus = curves.len().saturating_sub(REVISIONS_MAX);
        curves.drain(..surplus);
    }

    /// Marks a revision as one that changes data of nodes. Nodes do not receive unmarked revisions; an
    /// unmarked revision counts as verified together with a later, marked one.
    pub(crate) fn concerns_nodes(&self, revision: Revision) {
        if let Some(curve) = self.lock().iter_mut().rev().find(|curve| curve.revision == revision) {
            curve.concerns_nodes = true;
        }
    }

    /// Records the progress `at` that a node reports; `before` is that of its previous report. Positions of
    /// an epoch other than `epoch` count as no progress. Skips the revisions that the node has already
    /// verified, because a thousand nodes report several times a second.
    pub(crate) fn record_report(
        &self,
        node: &Name,
        epoch: Epoch,
        (before, at): (Option<Watermarks>, Watermarks),
        now: Instant,
    ) {
        // A node repeats the same report every few seconds.
        if before == Some(at) {
            return;
        }
        let mut curves = self.lock();
        let verified = before.map_or(0, |before| verified_records(&curves, node, epoch, before.verified));
        for curve in curves.iter_mut().skip(verified) {
            let has = |position: Position| position.epoch == epoch && position.revision >= curve.revision;
            if !has(at.received) {
                break;
            }
            let took = millis_between(curve.committed, now);
            let steps = curve
                .nodes
                .entry(node.clone())
                .or_insert_with(|| Steps { is_first_report: before.is_none(), ..Steps::default() });
            for (step, position) in [
                (&mut steps.received, at.received),
                (&mut steps.applied, at.applied),
                (&mut steps.verified, at.verified),
            ] {
                if has(position) {
                    step.get_or_insert(took);
                }
            }
        }
    }

    /// Returns the progress of each node in applying a revision, and the time since the revision's commit in
    /// milliseconds; `None` if the revision is too old.
    pub(crate) fn of(&self, revision: Revision, now: Instant) -> Option<(BTreeMap<Name, Steps>, u64)> {
        let curves = self.lock();
        let curve = curves.iter().find(|curve| curve.revision == revision)?;
        Some((curve.nodes.clone(), millis_between(curve.committed, now)))
    }

    /// Returns a summary of the convergence of recent revisions.
    pub(crate) fn brief(&self, views: &[NodeView<'_>], head: Position, now: Instant) -> LagBrief {
        let curves = self.lock();
        let concerning = curves.iter().filter(|curve| curve.concerns_nodes);
        let changes: Vec<_> = concerning
            .map(|curve| ChangeView {
                revision: curve.revision,
                age_ms: millis_between(curve.committed, now),
                nodes: &curve.nodes,
            })
            .collect();
        brief(&changes, views, head)
    }

    /// Returns the progress of the nodes in applying each revision that changes data of nodes, oldest first.
    pub(crate) fn changes(&self, now: Instant) -> Vec<ChangeProgress> {
        let change = |curve: &ConvergenceRecord| ChangeProgress {
            revision: curve.revision,
            age_ms: millis_between(curve.committed, now),
            nodes: curve.nodes.clone(),
        };
        self.lock().iter().filter(|curve| curve.concerns_nodes).map(change).collect()
    }
}

/// Returns the number of records at the front of `curves` that already contain the time at which the node verified
/// their revision. Returns 0 if a record up to `verified` may lack this time: the record of a commit of another
/// server can be created after the node has reported the revision of the commit.
fn verified_records(
    curves: &VecDeque<ConvergenceRecord>,
    node: &Name,
    epoch: Epoch,
    verified: Position,
) -> usize {
    if verified.epoch != epoch {
        return 0;
    }
    let count = curves.partition_point(|curve| curve.revision <= verified.revision);
    let newest = count.checked_sub(1).and_then(|last| curves.get(last)?.nodes.get(node));
    if newest.is_some_and(|steps| steps.verified.is_some()) { count } else { 0 }
}

fn millis_between(committed: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(committed).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ladder(received: u64, applied: u64, verified: u64) -> Watermarks {
        let at = |revision| Position { epoch: Epoch(1), revision: Revision(revision) };
        Watermarks { received: at(received), applied: at(applied), verified: at(verified) }
    }

    #[test]
    fn the_first_report_that_has_a_revision_counts_and_old_curves_go() {
        let (book, start) = (Convergence::default(), Instant::now());
        let node = Name::parse("n1").unwrap();
        let later = |ms| start + Duration::from_millis(ms);
        book.record_revisions(&[Revision(1), Revision(2)], start);
        book.concerns_nodes(Revision(2));
        let take = |before, at, ms| book.record_report(&node, Epoch(1), (before, at), later(ms));
        take(None, ladder(1, 1, 1), 5);
        take(Some(ladder(1, 1, 1)), ladder(2, 1, 1), 7);
        take(Some(ladder(2, 1, 1)), ladder(2, 2, 2), 9);
        let verified =
            |revision| book.of(Revision(revision), later(10)).map(|(nodes, _)| nodes[&node].verified);
        assert_eq!((verified(1), verified(2)), (Some(Some(5)), Some(Some(9))));
        let steps = Steps { received: Some(7), applied: Some(9), verified: Some(9), is_first_report: false };
        let change =
            ChangeProgress { revision: Revision(2), age_ms: 10, nodes: [(node.clone(), steps)].into() };
        assert_eq!(book.changes(later(10)), [change], "the first does not concern nodes");
        // A commit of another server, seen after the report that includes it.
        book.record_revisions(&[Revision(3)], later(10));
        take(Some(ladder(3, 3, 3)), ladder(4, 3, 3), 12);
        let of_third = book.of(Revision(3), later(12)).map(|(nodes, _)| nodes[&node].verified);
        assert_eq!(of_third, Some(Some(2)), "since it was learned");
        let many: Vec<_> = (4..4 + REVISIONS_MAX as u64).map(Revision).collect();
        book.record_revisions(&many, start);
        assert_eq!((book.of(Revision(3), start), book.of(Revision(4), start).is_some()), (None, true));
        book.record_revisions(&[Revision(7)], start);
        assert_eq!(book.of(Revision(5), start), None, "of another history");
    }
}
