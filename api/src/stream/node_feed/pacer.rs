//! Fan-out pacer of feeds and watches: forwards a new state at once after a quiet period, and at a rate
//! limited by the number of streams otherwise.
//!
//! ```text
//! commits ─▶ notifier ─▶ pacer: newest state ─▶ every feed: its delta ─▶ agent ─▶ report
//!                         ▲                   │
//!                         └─── pause ends ────┘
//! ```
//! Each delivery to an agent costs CPU time for the delivery and for a report in reply, whatever its size.
//! Without a pause, a hundred changes a second would cause a hundred thousand deliveries to a thousand
//! agents. The pause merges these changes into a few deliveries; all agents then start from the same state,
//! so that they receive the same bytes.

use std::{sync::Arc, time::Duration};

use model::primitives::quantity::Position;
use tokio::sync::{Semaphore, watch};

use crate::state::published::{Hub, Published};

/// Pause between two deliveries to all streams, per stream: about the CPU time of one delivery and its report. A
/// single agent is not delayed; a thousand agents get six updates a second, within the target for propagation to
/// all of them.
const PAUSE_PER_STREAM: Duration = Duration::from_micros(150);

/// Sender of published states to streams of one type, feeds or watches, at intervals that grow with the
/// number of streams.
#[derive(Debug)]
pub(crate) struct FanoutPacer(watch::Sender<Arc<Published>>);

impl FanoutPacer {
    /// Creates a pacer that starts with a published state.
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self(watch::channel(published).0)
    }

    /// Subscribes to the states that the pacer forwards.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Published>> {
        self.0.subscribe()
    }

    /// Forwards published states until publication ends. `bell` notifies of published states; it must have been
    /// subscribed before the first state was loaded. Each open stream holds one of the `permits`; the number of
    /// held permits determines the pause after each state.
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

/// Returns the pause after a delivery, proportional to the number of open streams.
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
