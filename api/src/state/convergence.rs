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

/// Convergence data of the newest revisions.
#[derive(Debug, Default)]
pub(crate) struct Convergence {
    /// Records of the newest revisions, oldest first.
    curves: Mutex<VecDeque<ConvergenceRecord>>,
    /// Time at which each node reported again after it had been disconnected, if that was after the oldest record.
    reconnected: Mutex<BTreeMap<Name, Instant>>,
}

/// Connection of a node at the time of its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportedAfter {
    /// The previous report was within the lease, or there is none.
    Lease,
    /// The node was disconnected before the report.
    Silence,
}

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
        self.curves.lock().unwrap_or_else(PoisonError::into_inner)
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
        after: ReportedAfter,
        now: Instant,
    ) {
        // A node that joins catches up with changes from before its first report.
        let after = if before.is_none() { ReportedAfter::Silence } else { after };
        let silent_until = self.silent_until(node, after, now);
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
            let is_after_silence = silent_until.is_some_and(|until| curve.committed < until);
            let steps = curve.nodes.entry(node.clone()).or_default();
            if steps.verified.is_none() {
                steps.is_after_silence |= is_after_silence;
            }
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

    /// Returns the time until which the node was disconnected, if it was after the oldest record. Revisions that
    /// were committed before say nothing about the time that changes take.
    fn silent_until(&self, node: &Name, after: ReportedAfter, now: Instant) -> Option<Instant> {
        let oldest = self.lock().front().map(|curve| curve.committed);
        let mut reconnected = self.reconnected.lock().unwrap_or_else(PoisonError::into_inner);
        if after == ReportedAfter::Silence {
            reconnected.retain(|_, until| oldest.is_some_and(|oldest| *until >= oldest));
            reconnected.insert(node.clone(), now);
        }
        reconnected.get(node).copied()
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
        book.record_revisions(&[Revision(1)], start);
        let take = |before, at, ms| {
            book.record_report(&node, Epoch(1), (before, at), ReportedAfter::Lease, later(ms))
        };
        take(None, ladder(1, 1, 1), 5);
        book.record_revisions(&[Revision(2)], later(5));
        book.concerns_nodes(Revision(2));
        take(Some(ladder(1, 1, 1)), ladder(2, 1, 1), 7);
        take(Some(ladder(2, 1, 1)), ladder(2, 2, 2), 9);
        let verified =
            |revision| book.of(Revision(revision), later(10)).map(|(nodes, _)| nodes[&node].verified);
        assert_eq!((verified(1), verified(2)), (Some(Some(5)), Some(Some(4))));
        let steps = Steps { received: Some(2), applied: Some(4), verified: Some(4), is_after_silence: false };
        let change =
            ChangeProgress { revision: Revision(2), age_ms: 5, nodes: [(node.clone(), steps)].into() };
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
    #[test]
    fn changes_during_the_silence_of_a_node_are_not_measured() {
        let (book, start) = (Convergence::default(), Instant::now());
        let node = Name::parse("n1").unwrap();
        let later = |ms| start + Duration::from_millis(ms);
        let take = |before, at, after, ms| {
            book.record_report(&node, Epoch(1), (Some(before), at), after, later(ms));
        };
        book.record_revisions(&[Revision(2), Revision(3)], start);
        // It had received one change before, reports the old state first, and then catches up.
        take(ladder(1, 1, 1), ladder(2, 1, 1), ReportedAfter::Lease, 5);
        take(ladder(2, 1, 1), ladder(2, 1, 1), ReportedAfter::Silence, 79_000);
        take(ladder(2, 1, 1), ladder(3, 3, 3), ReportedAfter::Lease, 79_010);
        book.record_revisions(&[Revision(4)], later(79_020));
        take(ladder(3, 3, 3), ladder(4, 4, 4), ReportedAfter::Lease, 79_030);
        let is_after_silence = |revision| {
            let (nodes, _) = book.of(Revision(revision), later(80_000)).unwrap();
            nodes[&node].is_after_silence
        };
        assert_eq!([2, 3, 4].map(is_after_silence), [true, true, false]);
    }

    /// A node that joins five minutes after the last change has no lag.
    #[test]
    fn changes_before_the_first_report_of_a_node_are_not_measured() {
        let (book, start) = (Convergence::default(), Instant::now());
        let node = Name::parse("n1").unwrap();
        let later = |ms| start + Duration::from_millis(ms);
        book.record_revisions(&[Revision(1), Revision(2)], start);
        let take = |before, at, ms| {
            book.record_report(&node, Epoch(1), (before, at), ReportedAfter::Lease, later(ms))
        };
        take(None, ladder(0, 0, 0), 294_000);
        take(Some(ladder(0, 0, 0)), ladder(2, 2, 2), 294_010);
        book.record_revisions(&[Revision(3)], later(294_020));
        take(Some(ladder(2, 2, 2)), ladder(3, 3, 3), 294_030);
        let is_after_silence = |revision| {
            let (nodes, _) = book.of(Revision(revision), later(300_000)).unwrap();
            nodes[&node].is_after_silence
        };
        assert_eq!([1, 2, 3].map(is_after_silence), [true, true, false]);
    }
}
