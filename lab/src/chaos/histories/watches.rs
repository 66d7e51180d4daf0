//! Check of watches: a watcher receives every change event once and in order, even if it switches between
//! servers.

use super::{ChangeEvent, History, Rule, Timeline, Violations, Watch, WatchStep};

pub(super) fn check(history: &History, timeline: &Timeline, found: &mut Violations) {
    for watch in &history.watches {
        check_one(watch, history, timeline, found);
    }
}

/// Checks the events of one watcher against the log. Reports only the first violation, because all later
/// events would differ as well.
fn check_one(watch: &Watch, history: &History, timeline: &Timeline, found: &mut Violations) {
    let mut add = |seen: String| found.add(Rule::Watch, format!("{}: {seen}", watch.name));
    let mut rest = after(&history.log, watch.start);
    let mut at = watch.start;
    for step in &watch.steps {
        match step {
            WatchStep::Event(event) if event.revision > history.head => return,
            WatchStep::Event(event) => match rest.split_first() {
                Some((expected, others)) if expected == event => {
                    (rest, at) = (others, event.revision);
                }
                expected => {
                    let expected = expected.map(|(expected, _)| expected);
                    return add(format!("after {at} comes {event:?}, but the log has {expected:?}"));
                }
            },
            WatchStep::Reached(reached) => {
                if *reached < at {
                    return add(format!("progress to {reached} is reported after {at}"));
                }
                at = *reached;
                if let Some(missed) = rest.first().filter(|next| next.revision <= at) {
                    return add(format!("progress to {at} is reported, but {missed:?} was missed"));
                }
            }
            WatchStep::Listed { at: listed, objects } => {
                if *listed < at {
                    return add(format!("the state of {listed} is listed after {at}"));
                }
                if *listed <= history.head && *objects != timeline.state(*listed) {
                    let state = timeline.state(*listed);
                    return add(format!(
                        "the listing at {listed} is {objects:?}, but the state was {state:?}"
                    ));
                }
                (rest, at) = (after(&history.log, *listed), *listed);
            }
        }
    }
    if let Some(missed) = rest.first() {
        add(format!("the watch ends after {at} and missed {missed:?}"));
    }
}

fn after(log: &[ChangeEvent], revision: u64) -> &[ChangeEvent] {
    &log[log.partition_point(|event| event.revision <= revision)..]
}
