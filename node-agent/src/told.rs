//! What the service manager is told: when what should be is in force, that the loop goes round, and that it ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{notify::Notifier, status::Status};

/// Time between two turns where there is no watchdog: nothing is done in them.
const IDLE: Duration = Duration::from_secs(3600);

/// Counts the turns of the loop, for whoever watches over it.
#[derive(Debug, Clone, Default)]
pub struct Beats(Arc<AtomicU64>);

impl Beats {
    /// One more turn is over.
    pub(crate) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Tells the service manager until the agent stops. It is ready when a state is in force, from the journal or from
/// control; the watchdog is fed by turns of the loop, and by nothing else.
pub(crate) async fn tell(
    notifier: Notifier,
    beats: Beats,
    mut status: watch::Receiver<Status>,
    stop: CancellationToken,
) {
    let interval = notifier.watchdog_interval();
    let mut turn = tokio::time::interval(interval.unwrap_or(IDLE));
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = 0;
    let mut is_ready = false;
    notifier.say("STATUS=waiting for the first state");
    loop {
        let verified = status.borrow_and_update().verified;
        if let Some(position) = verified.filter(|_| !is_ready) {
            is_ready = true;
            notifier.say(&format!("READY=1\nSTATUS=in force since the start: {position}"));
        }
        tokio::select! {
            () = stop.cancelled() => break,
            changed = status.changed(), if !is_ready => {
                if changed.is_err() {
                    break;
                }
            }
            _ = turn.tick(), if interval.is_some() => {
                let count = beats.count();
                if count != seen {
                    seen = count;
                    notifier.say("WATCHDOG=1");
                }
            }
        }
    }
    notifier.say("STOPPING=1\nSTATUS=stopping; the kernel stays as it is");
}
