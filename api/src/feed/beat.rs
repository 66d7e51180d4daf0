//! When feeds are told of a new state: at once when it was quiet, and at a pace that the number of agents allows while it is not.
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

use model::quantity::Position;
use tokio::sync::watch;

use super::batch::Batches;
use crate::{
    app::{App, FEEDS_MAX},
    hub::Published,
};

/// Time between two beats, for each feed: a delivery and the report that answers it take about this much of a processor. A lone
/// agent is never waited for; a thousand are told six times a second, in time for what a change may take to all of them.
const PAUSE_PER_FEED: Duration = Duration::from_micros(150);

/// What all feeds follow.
#[derive(Debug)]
pub(crate) struct Beat {
    state: watch::Sender<Arc<Published>>,
    /// What they are sent.
    pub(crate) batches: Batches,
}

impl Beat {
    /// A beat that begins with a state.
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self { state: watch::channel(published).0, batches: Batches::default() }
    }

    /// The states of the beats from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Published>> {
        self.state.subscribe()
    }
}

/// Beats until the server ends. `bell` is one that has rung for no change yet that a feed may wait for.
pub(crate) async fn run(app: Arc<App>, mut bell: watch::Receiver<Position>) {
    while bell.changed().await.is_ok() {
        app.beat.state.send_replace(app.hub.load());
        let feeds = FEEDS_MAX - app.feeds.available_permits();
        tokio::time::sleep(pause(feeds)).await;
    }
}

/// The pause after a beat to so many feeds.
fn pause(feeds: usize) -> Duration {
    PAUSE_PER_FEED * u32::try_from(feeds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_agents_are_not_waited_for_and_the_most_are_told_several_times_a_second() {
        assert!(pause(3) < Duration::from_millis(1));
        assert!(pause(FEEDS_MAX) < Duration::from_millis(333));
    }
}
