//! Recent events of the node for operators, in a ring buffer of fixed size.

use std::{collections::VecDeque, sync::Arc};

use model::{
    kinds::event::{Event, EventReason},
    wire::report::EVENTS_MAX,
};

use crate::{clock::wall_clock, limit_message};

/// Ring buffer of the most recent events of a node, oldest first.
#[derive(Debug, Default)]
pub struct Events {
    ring: VecDeque<Event>,
    /// Cached snapshot of the events for [`Events::all`]; `None` until the first call after a new event.
    shown: Option<Arc<Vec<Event>>>,
}

impl Events {
    /// Records an event. If the last event has the same reason and message, only updates the time and the
    /// count of the last event.
    pub fn record(&mut self, reason: EventReason, message: String) {
        let time = wall_clock();
        let message = limit_message(message);
        self.shown = None;
        if let Some(last) =
            self.ring.back_mut().filter(|last| last.reason == reason && last.message == message)
        {
            (last.time, last.count) = (time, last.count + 1);
            return;
        }
        if self.ring.len() == EVENTS_MAX {
            self.ring.pop_front();
        }
        self.ring.push_back(Event { time, reason, message, count: 1 });
    }

    /// Returns all recorded events, oldest first. Calls without a new event in between return the same shared
    /// snapshot.
    pub fn all(&mut self) -> Arc<Vec<Event>> {
        let shown = self.shown.get_or_insert_with(|| Arc::new(self.ring.iter().cloned().collect()));
        Arc::clone(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_in_a_row_counts_and_the_oldest_makes_room() {
        let mut events = Events::default();
        for number in 0..40 {
            events.record(EventReason::DriftRepaired, format!("{number}"));
            events.record(EventReason::DriftRepaired, format!("{number}"));
        }
        let all = events.all();
        assert_eq!(all.len(), EVENTS_MAX);
        assert_eq!((all[0].message.as_str(), all[0].count), ("8", 2));
        assert_eq!(all[EVENTS_MAX - 1].message, "39");
    }
}
