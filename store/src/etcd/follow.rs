//! Follows the head, so that whoever waits for writes of other processes hears of them.
//!
//! A watch is only a hint here: what it says is read again, and when it ends, for whatever reason, another is begun. A poll
//! every few seconds covers what no watch tells.

use std::{sync::Arc, time::Duration};

use etcd_client::{WatchOptions, WatchResponse, WatchStream};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    Core,
    read::{self, parse_head},
};

/// How long a watch may be silent before the head is read.
const POLL: Duration = Duration::from_secs(5);
/// The pause after a failure: the next member may do better, and a member that restarts needs a moment.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs until the store is dropped.
pub(super) async fn run(core: Arc<Core>, mut alive: watch::Receiver<()>) {
    loop {
        tokio::select! {
            () = follow(&core) => {}
            // Only its end can be told.
            _ = alive.changed() => return,
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = alive.changed() => return,
        }
    }
}

/// Follows one watch to its end.
async fn follow(core: &Core) {
    let Ok(mut events) = core.link.watch(&core.keys.head(), WatchOptions::new()).await else { return };
    // Begun before it is read: what is written in between is told by the watch.
    loop {
        match read::head(&core.link, &core.keys).await {
            Ok(head) => core.moved_to(head.position),
            Err(error) => {
                tracing::debug!(error = %crate::error::Chain(&error), "the head cannot be read");
                return;
            }
        }
        if !listen(core, &mut events).await {
            return;
        }
    }
}

/// Listens until the watch is silent for a while; false when it has ended.
async fn listen(core: &Core, events: &mut WatchStream) -> bool {
    loop {
        match timeout(POLL, events.message()).await {
            Err(_) => return true,
            Ok(Ok(Some(message))) if !message.canceled() => note(core, &message),
            Ok(Ok(Some(_) | None) | Err(_)) => return false,
        }
    }
}

fn note(core: &Core, message: &WatchResponse) {
    for value in message.events().iter().filter_map(|event| event.kv()) {
        // A deletion has no value; the next commit says what is wrong.
        if let Ok(head) = parse_head(Some(value), value.mod_revision()) {
            core.moved_to(head.position);
        }
    }
}
