//! Feeds the watchdog of the service manager as long as the one task that writes answers.

use std::{sync::Arc, time::Duration};

use model::admission::admit::Request;
use tokio::time::MissedTickBehavior;

use crate::{context::server_state::ServerState, server::notify::Notifier, write::writer::WriteError};

/// Pause before the writer is asked again when its queue is full.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Tells the service manager that this server works, for as long as it does. Ends at once where nobody wants to know.
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

/// Waits until the writer has answered a request that asks for nothing. A refusal is an answer, and so is that the store
/// fails: another start would not mend it.
async fn wait_for_writer(app: &ServerState) {
    loop {
        match app.writer.write(Request::default(), app.source.draw(), 0).await {
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
