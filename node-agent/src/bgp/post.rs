//! A mailbox that holds one thing: what is put in before it is taken becomes part of it, so that it never grows beyond what
//! there is to say, and nobody who puts something in waits.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// A mailbox.
#[derive(Debug, Default)]
pub(super) struct Post<T> {
    waiting: Mutex<T>,
    bell: Notify,
}

impl<T: Default> Post<T> {
    /// Puts something in.
    pub(super) fn put(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.bell.notify_one();
    }

    /// Waits until something is in, and leaves it there. May be given up at any time.
    pub(super) async fn ring(&self) {
        self.bell.notified().await;
    }

    /// Takes what is in.
    pub(super) fn take(&self) -> T {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.waiting.lock().expect("no holder of the lock panics")
    }
}
