//! Check of the states that agents receive: an agent never returns to an older revision, and at each `synced`
//! frame (end of a consistent batch of changes) its addresses are exactly those of the frame's revision.

use super::{History, Rule, Timeline, Violations};

pub(super) fn check(history: &History, timeline: &Timeline, found: &mut Violations) {
    for feed in &history.feeds {
        let mut before = history.start;
        for step in &feed.steps {
            if step.at < before {
                let seen = format!("{}: the state of {} follows that of {before}", feed.name, step.at);
                found.add(Rule::Feed, seen);
            }
            before = before.max(step.at);
            if step.at > history.head {
                continue;
            }
            let expected = timeline.addresses(step.at);
            if step.addresses != expected {
                let (name, at, addresses) = (&feed.name, step.at, &step.addresses);
                let seen = format!("{name}: at {at} the agent has {addresses:?}, expected {expected:?}");
                found.add(Rule::Feed, seen);
            }
        }
        if before < history.head {
            found.add(Rule::Feed, format!("{}: it ends at {before}, before {}", feed.name, history.head));
        }
    }
}
