//! Whether this server does what is to be done once for all control servers of a store.
//!
//! A hint that saves work: for a moment two may hold it, and what they write is compared with the head like any other write.

use store::Store;
use tokio::sync::watch;

/// Whether this server leads, and a way to hear of it.
#[derive(Debug, Clone)]
pub(crate) struct Leadership(watch::Receiver<bool>);

impl Leadership {
    /// As the store says.
    pub(crate) fn of(store: &dyn Store) -> Self {
        Self(store.leadership())
    }

    /// Whether this server leads at the moment.
    pub(crate) fn holds(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until this changes. Who was deposed and leads again meanwhile hears of it as well.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is there who could change it: it stays as it is.
            std::future::pending().await
        }
    }
}
