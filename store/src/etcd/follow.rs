//! Watches the etcd key `head`, which contains the store's position, to notify waiting tasks of commits by
//! other processes.
//!
//! The watch is only a hint: the key is read again after each event, and an ended watch is restarted. A poll
//! every few seconds covers missed events.

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

/// Maximum time without a watch event before the key `head` is read.
const POLL: Duration = Duration::from_secs(5);
/// Delay after a failure; a restarting member needs a moment, and another member may be available.
const PAUSE: Duration = Duration::from_millis(250);

/// Follows the commits of other processes and publishes the store's position, until the store is dropped.
pub(super) async fn run(core: Arc<Core>, mut alive: watch::Receiver<()>) {
    loop {
        tokio::select! {
            () = follow(&core) => {}
            // The channel carries no values; a change means that it was closed.
            _ = alive.changed() => return,
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = alive.changed() => return,
        }
    }
}

/// Publishes the store's position after each change of the etcd key `head`, until the watch of the key ends.
async fn follow(core: &Core) {
    let Ok(mut events) = core.link.watch(&core.keys.head(), WatchOptions::new()).await else { return };
    // The watch is opened before the read, so that it covers all later writes.
    loop {
        match read::head(&core.link, &core.keys).await {
            Ok(head) => core.moved_to(head.position),
            Err(error) => {
                tracing::debug!(error = %crate::error::Chain(&error), "cannot read the head");
                return;
            }
        }
        if !listen(core, &mut events).await {
            return;
        }
    }
}

/// Processes watch events until none has arrived for [`POLL`]. Returns false if the watch ended.
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
        // A deleted head has no value; the next commit reports the error.
        if let Ok(head) = parse_head(Some(value), value.mod_revision()) {
            core.moved_to(head.position);
        }
    }
}
