//! Check of rejected writes: each rejection is justified by a state that the store can have had between
//! request and response.

use super::{
    ClientRequest, Demand, History, ObjectChange, Operation, Refusal, RequestOutcome, Rule, Timeline,
    Violations, kept::Bounds,
};

pub(super) fn check(history: &History, timeline: &Timeline, bounds: &Bounds, found: &mut Violations) {
    for operation in &history.operations {
        let RequestOutcome::Refused(refusal) = &operation.answer else { continue };
        let ClientRequest::Write { changes, demand } = &operation.asked else {
            found.add(Rule::Answer, format!("{operation:?}: only writes can be rejected"));
            continue;
        };
        let (low, high) = (bounds.floor(operation.begin), bounds.ceiling(operation.end));
        let mut states = timeline.states_between(low, high);
        if !states.any(|at| is_reason(*refusal, changes, *demand, timeline, at)) {
            found.add(Rule::Refusal, words(operation, timeline, low, high));
        }
    }
}

fn words(operation: &Operation, timeline: &Timeline, low: u64, high: u64) -> String {
    format!(
        "{operation:?}: no state from {low} ({:?}) to {high} justifies this rejection",
        timeline.state(low)
    )
}

/// Returns true if the state at revision `at` justifies rejecting the write of `changes` with the reason
/// `refusal`.
fn is_reason(
    refusal: Refusal,
    changes: &[ObjectChange],
    demand: Demand,
    timeline: &Timeline,
    at: u64,
) -> bool {
    changes.iter().any(|change| {
        let present = timeline.seen(&change.key, at);
        match refusal {
            Refusal::Absent => matches!(demand, Demand::Present | Demand::Revision(_)) && present.is_none(),
            Refusal::Present => demand == Demand::Absent && present.is_some(),
            Refusal::Changed => match demand {
                Demand::Revision(wanted) => present.is_some_and(|present| present.revision != wanted),
                Demand::Nothing | Demand::Absent | Demand::Present => false,
            },
            Refusal::Taken => {
                let address = change.address.as_deref();
                address.is_some_and(|address| timeline.holder(address, at, &change.key).is_some())
            }
            Refusal::Busy => true,
        }
    })
}
