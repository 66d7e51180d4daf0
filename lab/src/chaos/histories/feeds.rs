//! Whether what agents are told goes forward, and is the state of its position each time.

use super::{Found, History, Rule, Timeline};

pub(super) fn check(history: &History, timeline: &Timeline, found: &mut Found) {
    for feed in &history.feeds {
        let mut before = history.start;
        for step in &feed.steps {
            if step.at < before {
                let seen = format!("{}: the state of {} came after that of {before}", feed.name, step.at);
                found.add(Rule::Feed, seen);
            }
            before = before.max(step.at);
            if step.at > history.head {
                continue;
            }
            let expected = timeline.addresses(step.at);
            if step.addresses != expected {
                let (name, at, addresses) = (&feed.name, step.at, &step.addresses);
                let seen = format!("{name}: at {at} it has {addresses:?}, and there was {expected:?}");
                found.add(Rule::Feed, seen);
            }
        }
        if before < history.head {
            found.add(Rule::Feed, format!("{}: it ends at {before}, before {}", feed.name, history.head));
        }
    }
}
