//! Keep-alive messages to the watchdog of the service manager (systemd), sent only while the writer task,
//! which commits all writes, responds.

use std::{sync::Arc, time::Duration};

use model::admission::admit::Request;
use tokio::time::MissedTickBehavior;

use crate::{context::server_state::ServerState, security::Caller, write::writer::WriteError};
use ::base::service_manager::Notifier;

/// Pause before the next attempt to submit a request to the writer while its queue is full.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Sends keep-alive messages to the service manager while the writer task responds. Returns at once if no watchdog
/// is configured.
pub async fn feed(app: Arc<ServerState>, notifier: Arc<Notifier>) {
    let Some(interval) = notifier.watchdog_interval() else { return };
    let mut turn = tokio::time::interval(interval);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        wait_for_writer(&app).await;
        notifier.say("WATCHDOG=1");
    }
}

/// Waits until the writer task has processed an empty request. A rejection or a store failure counts as
/// processed: the writer runs, and a restart of the server would not fix the store.
async fn wait_for_writer(app: &ServerState) {
    loop {
        match app.writer.write(&Caller::server(), Request::default(), app.source.draw(), 0).await {
            Ok(_)
            | Err(
                WriteError::Refused(_)
                | WriteError::Forbidden(_)
                | WriteError::TooLarge(_)
                | WriteError::Contended
                | WriteError::Unavailable,
            ) => return,
            Err(WriteError::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
        }
    }
}
