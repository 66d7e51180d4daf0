//! Leadership: election of the control server that runs the background tasks needed only once per store.
//!
//! Leadership is only an optimization. Two servers may be leaders for a moment; their writes are still checked
//! against the newest state of the store, like all others.

use store::Store;
use tokio::sync::watch;

/// Receiver of the leadership state of this server.
#[derive(Debug, Clone)]
pub(crate) struct Leadership(watch::Receiver<bool>);

impl Leadership {
    /// Subscribes to the leadership state that the store provides.
    pub(crate) fn of(store: &dyn Store) -> Self {
        Self(store.leadership())
    }

    /// Returns true if this server is the leader.
    pub(crate) fn holds(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until leadership changes, including a loss followed by a re-election of this server.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender is gone: the state never changes again.
            std::future::pending().await
        }
    }
}
