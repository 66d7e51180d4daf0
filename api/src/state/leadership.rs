//! Leadership: election of the control server that runs the tasks that are needed once per store.
//!
//! Leadership is an optimization. Two servers may hold it for a moment; their writes are still checked
//! against the head of the store like all others.

use store::Store;
use tokio::sync::watch;

/// Leadership state of this server, with change notification.
#[derive(Debug, Clone)]
pub(crate) struct Leadership(watch::Receiver<bool>);

impl Leadership {
    /// Returns the leadership state provided by the store.
    pub(crate) fn of(store: &dyn Store) -> Self {
        Self(store.leadership())
    }

    /// Returns true if this server is the leader.
    pub(crate) fn holds(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until leadership changes, including a loss that was followed by a new election of this server.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender is gone: the state never changes again.
            std::future::pending().await
        }
    }
}
