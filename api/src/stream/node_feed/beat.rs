//! When feeds and watches are told of a new state: at once when it was quiet, and at a pace that their number allows while it is not.
//!
//! ```text
//! commits ─▶ bell ─▶ beat: the state of this moment ─▶ every feed: what it lacks of it ─▶ agent ─▶ report
//!                     ▲                            │
//!                     └── not before its pause ends ┘
//! ```
//! What is told to an agent costs a delivery and a report, whatever is in it. Without a pause a hundred changes a second would be
//! a hundred thousand deliveries to a thousand agents; with it they are told of the same changes together, from the same state to
//! the same state, so that all are sent the same bytes.

use std::{sync::Arc, time::Duration};

use model::primitives::quantity::Position;
use tokio::sync::{Semaphore, watch};

use crate::state::published::{Hub, Published};

/// Time between two beats, for each stream: a delivery to an agent and the report that answers it take about this much of a
/// processor. A lone agent is never waited for; a thousand are told six times a second, in time for what a change may take to all
/// of them.
const PAUSE_PER_STREAM: Duration = Duration::from_micros(150);

/// What all streams of a sort follow.
#[derive(Debug)]
pub(crate) struct Beat(watch::Sender<Arc<Published>>);

impl Beat {
    /// A beat that begins with a state.
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self(watch::channel(published).0)
    }

    /// The states of the beats from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Published>> {
        self.0.subscribe()
    }

    /// Beats as long as commits are published. `bell` is one that has rung for no change yet that a stream may wait for; of
    /// `permits`, each stream holds one.
    pub(crate) async fn run(
        &self,
        hub: &Hub,
        mut bell: watch::Receiver<Position>,
        (permits, permits_max): (&Semaphore, usize),
    ) {
        while bell.changed().await.is_ok() {
            self.0.send_replace(hub.load());
            let streams = permits_max.saturating_sub(permits.available_permits());
            tokio::time::sleep(pause(streams)).await;
        }
    }
}

/// The pause after a beat to so many streams.
fn pause(streams: usize) -> Duration {
    PAUSE_PER_STREAM * u32::try_from(streams).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::server_state::FEEDS_MAX;

    #[test]
    fn a_few_agents_are_not_waited_for_and_the_most_are_told_several_times_a_second() {
        assert!(pause(3) < Duration::from_millis(1));
        assert!(pause(FEEDS_MAX) < Duration::from_millis(333));
    }
}
