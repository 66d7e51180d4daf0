//! Messages to the service manager: ready once the state is programmed, watchdog heartbeats while the loop
//! runs, and stopping at the end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base::service_manager::Notifier;
use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::status::Status;

/// Interval between wake-ups if the service manager has no watchdog; long because these wake-ups have no
/// effect.
const IDLE: Duration = Duration::from_secs(3600);

/// Counter of completed loop iterations, for the watchdog.
#[derive(Debug, Clone, Default)]
pub struct LoopCounter(Arc<AtomicU64>);

impl LoopCounter {
    /// Counts one completed iteration of the control loop.
    pub(crate) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Notifies the service manager until the agent stops. `READY=1` is sent once a state from the journal or
/// from the control server is programmed. A watchdog heartbeat is sent only if the loop has completed an
/// iteration since the previous heartbeat.
pub(crate) async fn tell(
    notifier: Notifier,
    beats: LoopCounter,
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
