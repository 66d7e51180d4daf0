//! Check of reads: each server returns only states that the store had, and never an older state after a newer
//! one. A read of the latest state includes everything that any server returned or accepted before it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ClientRequest, Freshness, History, Operation, RequestOutcome, Rule, Timeline, Violations, kept::Bounds,
};

pub(super) fn check(history: &History, timeline: &Timeline, bounds: &Bounds, found: &mut Violations) {
    let servers: BTreeSet<usize> = history.operations.iter().map(|operation| operation.server).collect();
    for server in servers {
        let mut of_server: Vec<_> =
            history.operations.iter().filter(|operation| operation.server == server).collect();
        of_server.sort_by_key(|operation| operation.begin);
        let mut reached = HighestRevision { start: history.start, ..HighestRevision::default() };
        for operation in of_server {
            let least = reached.before(operation.begin).max(demanded(operation, bounds));
            if let Some(at) = place(operation, least, history, timeline, found) {
                let ceiling = bounds.ceiling(operation.end);
                if at > ceiling {
                    let seen = format!("{operation:?} returns {at}, but at most {ceiling} can have existed");
                    found.add(Rule::RealTime, seen);
                }
                reached.note(operation.end, at);
            }
        }
    }
}

/// Highest revision that one server had returned or accepted by a given time.
#[derive(Default)]
struct HighestRevision {
    start: u64,
    by_end: BTreeMap<u64, u64>,
}

impl HighestRevision {
    fn before(&self, time: u64) -> u64 {
        self.by_end.range(..time).next_back().map_or(self.start, |(_, &at)| at)
    }

    fn note(&mut self, end: u64, at: u64) {
        let at = at.max(self.by_end.range(..=end).next_back().map_or(self.start, |(_, &at)| at));
        self.by_end.insert(end, at);
        for (_, later) in self.by_end.range_mut(end..) {
            *later = (*later).max(at);
        }
    }
}

/// Returns the lowest revision that the request permits the server to return; 0 if it permits any.
fn demanded(operation: &Operation, bounds: &Bounds) -> u64 {
    let freshness = match &operation.asked {
        ClientRequest::Write { .. } => Freshness::Any,
        ClientRequest::Read { freshness, .. } | ClientRequest::List { freshness } => *freshness,
    };
    match freshness {
        Freshness::Any => 0,
        Freshness::AtLeast(revision) => revision,
        Freshness::Latest => bounds.floor(operation.begin),
    }
}

/// Returns the lowest revision, from `least` on, at which the store had the state in a response; for a write
/// or a listing, the revision in the response. Returns `None` if the response contains no state, or if no
/// revision fits; in the latter case, adds a violation to `found`.
fn place(
    operation: &Operation,
    least: u64,
    history: &History,
    timeline: &Timeline,
    found: &mut Violations,
) -> Option<u64> {
    match (&operation.asked, &operation.answer) {
        (ClientRequest::Write { .. }, RequestOutcome::Accepted(revision)) => Some(*revision),
        (ClientRequest::Read { key, .. }, RequestOutcome::Object(seen)) => {
            let at = match seen {
                None => timeline.first_absence(key, least),
                Some(seen) => {
                    if timeline.seen(key, seen.revision).as_ref() != Some(seen) {
                        found.add(Rule::Read, format!("{operation:?} returns a state that never existed"));
                        return None;
                    }
                    let last = timeline.lasted(key, seen.revision, history.head);
                    (last >= least).then_some(least.max(seen.revision))
                }
            };
            if at.is_none() {
                found.add(
                    Rule::ReadOrder,
                    format!("{operation:?}: {least} had been returned before, or was required"),
                );
            }
            at
        }
        (ClientRequest::List { .. }, RequestOutcome::Listing { at, objects }) => {
            if *at < least {
                found.add(
                    Rule::ReadOrder,
                    format!("{operation:?}: {least} had been returned before, or was required"),
                );
            }
            // Revisions after the end of the log cannot be checked here.
            if *at <= history.head && *objects != timeline.state(*at) {
                let state = timeline.state(*at);
                found.add(
                    Rule::Read,
                    format!("{operation:?} returns a state that never existed; the state was {state:?}"),
                );
            }
            Some((*at).min(history.head))
        }
        (_, RequestOutcome::Unknown | RequestOutcome::Refused(_)) => None,
        // Reported by the check of writes.
        (ClientRequest::Write { .. }, _) => None,
        (ClientRequest::Read { .. } | ClientRequest::List { .. }, answer) => {
            found.add(Rule::Answer, format!("{:?} was answered {answer:?}", operation.asked));
            None
        }
    }
}
