//! Check of writes against the change log: an accepted write is in the log once, a rejected one never, and
//! one without a response at most once. The state before a logged write must satisfy the precondition of the
//! write.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ChangeEvent, ChangeEventKind, ClientRequest, Demand, History, ObjectChange, Operation, RequestOutcome,
    Rule, Timeline, Violations,
};

/// Committed writes: index in [`History::operations`] by revision.
pub(super) type CommittedWrites = BTreeMap<u64, usize>;

/// Write operation with its index, changes and precondition.
#[derive(Clone, Copy)]
struct Write<'a> {
    index: usize,
    operation: &'a Operation,
    changes: &'a [ObjectChange],
    demand: Demand,
}

pub(super) fn check(history: &History, timeline: &Timeline, found: &mut Violations) -> CommittedWrites {
    let mut groups: BTreeMap<u64, Vec<&ChangeEvent>> = BTreeMap::new();
    for event in &history.log {
        groups.entry(event.revision).or_default().push(event);
    }
    let writes: Vec<Write<'_>> = history.operations.iter().enumerate().filter_map(write_of).collect();
    let mut made = CommittedWrites::new();
    for write in &writes {
        let operation = write.operation;
        match &operation.answer {
            RequestOutcome::Accepted(revision) => match groups.get(revision) {
                _ if *revision > history.head => {
                    found
                        .add(Rule::Lost, format!("{operation:?}: the log ends earlier, at {}", history.head));
                }
                Some(events) if is_whole(write.changes, events) => claim(&mut made, *revision, write, found),
                events => found.add(
                    Rule::Lost,
                    format!(
                        "{operation:?}: the log has {events:?} at that \
                                                         revision"
                    ),
                ),
            },
            RequestOutcome::Unexpected(text) => {
                found.add(Rule::Answer, format!("{:?} was answered {text}", operation.asked));
            }
            RequestOutcome::Object(_) | RequestOutcome::Listing { .. } => {
                found.add(Rule::Answer, format!("{operation:?}: not a valid response to a write"));
            }
            RequestOutcome::Refused(_) | RequestOutcome::Unknown => {}
        }
    }
    claim_unknown(history, &groups, &writes, timeline, &mut made);
    check_unasked(&groups, &writes, &made, found);
    for (&revision, &index) in &made {
        check_demand(&history.operations[index], revision, timeline, found);
    }
    made
}

fn write_of((index, operation): (usize, &Operation)) -> Option<Write<'_>> {
    match &operation.asked {
        ClientRequest::Write { changes, demand } => {
            Some(Write { index, operation, changes, demand: *demand })
        }
        ClientRequest::Read { .. } | ClientRequest::List { .. } => None,
    }
}

fn claim(made: &mut CommittedWrites, revision: u64, write: &Write<'_>, found: &mut Violations) {
    if let Some(other) = made.insert(revision, write.index) {
        let seen = format!("{:?}: operation {other} received the same revision", write.operation);
        found.add(Rule::Lost, seen);
    }
}

/// Returns true if the change events of one revision are exactly the changes of one write.
fn is_whole(changes: &[ObjectChange], events: &[&ChangeEvent]) -> bool {
    let fits = |change: &ObjectChange| events.iter().any(|event| is_change(change, event));
    changes.len() == events.len() && changes.iter().all(fits)
}

fn is_change(change: &ObjectChange, event: &ChangeEvent) -> bool {
    let fits = match (&change.value, event.happened) {
        (Some(value), ChangeEventKind::Added | ChangeEventKind::Modified) => *value == event.value,
        (None, ChangeEventKind::Deleted) => true,
        (Some(_), ChangeEventKind::Deleted) | (None, ChangeEventKind::Added | ChangeEventKind::Modified) => {
            false
        }
    };
    let has_address = change.address.is_none() || change.address == event.address;
    fits && has_address && change.key == event.key
}

/// Finds the revisions at which writes without a response were committed, and adds them to `made`. The unique
/// value identifies each write except deletions. Deletions that name a revision are matched first, because
/// each fits only one revision of the log. Any other deletion fits every revision that was not yet observed
/// when it began, because a write without a response may be committed at any later time.
fn claim_unknown(
    history: &History,
    groups: &BTreeMap<u64, Vec<&ChangeEvent>>,
    writes: &[Write<'_>],
    timeline: &Timeline,
    made: &mut CommittedWrites,
) {
    let mut unknown: Vec<&Write<'_>> =
        writes.iter().filter(|write| write.operation.answer == RequestOutcome::Unknown).collect();
    unknown.sort_by_key(|write| (!matches!(write.demand, Demand::Revision(_)), write.operation.begin));
    let floors = super::kept::floors(history);
    for (&revision, events) in groups {
        if made.contains_key(&revision) {
            continue;
        }
        let position = unknown.iter().position(|write| {
            is_whole(write.changes, events)
                && floors.before(write.operation.begin) < revision
                && holds(write.demand, write.changes, revision, timeline)
        });
        if let Some(position) = position {
            made.insert(revision, unknown.remove(position).index);
        }
    }
}

fn check_unasked(
    groups: &BTreeMap<u64, Vec<&ChangeEvent>>,
    writes: &[Write<'_>],
    made: &CommittedWrites,
    found: &mut Violations,
) {
    let mut values = BTreeSet::new();
    for (revision, events) in groups {
        for event in events {
            if event.happened != ChangeEventKind::Deleted && !values.insert(&event.value) {
                found.add(Rule::Unasked, format!("{event:?} repeats an earlier write"));
            }
        }
        if !made.contains_key(revision) {
            let asked = writes.iter().find(|write| {
                let wanted = write.changes.iter().filter_map(|change| change.value.as_ref());
                wanted.into_iter().any(|value| events.iter().any(|event| event.value == *value))
            });
            let asked = asked.map(|write| write.operation);
            found.add(Rule::Unasked, format!("{events:?} were logged; requested by {asked:?}"));
        }
    }
}

fn check_demand(operation: &Operation, revision: u64, timeline: &Timeline, found: &mut Violations) {
    let ClientRequest::Write { changes, demand } = &operation.asked else { return };
    if !holds(*demand, changes, revision, timeline) {
        let before: Vec<_> =
            changes.iter().map(|change| timeline.seen(&change.key, revision.saturating_sub(1))).collect();
        found.add(Rule::Precondition, format!("{operation:?} was committed at {revision} on {before:?}"));
    }
}

/// Returns true if the precondition `demand` of a write holds in the state just before `revision`.
fn holds(demand: Demand, changes: &[ObjectChange], revision: u64, timeline: &Timeline) -> bool {
    changes.iter().all(|change| {
        let before = timeline.seen(&change.key, revision.saturating_sub(1));
        match demand {
            Demand::Nothing => true,
            Demand::Absent => before.is_none(),
            Demand::Present => before.is_some(),
            Demand::Revision(wanted) => before.is_some_and(|before| before.revision == wanted),
        }
    })
}
