//! One-slot mailbox. Values put into the mailbox before the receiver takes them are merged, so that its size
//! is limited and `put` never blocks.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// One-slot mailbox that wakes its receiver; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Mailbox<T> {
    waiting: Mutex<T>,
    bell: Notify,
}

impl<T: Default> Mailbox<T> {
    /// Applies `change` to the content of the mailbox and wakes the receiver.
    pub(super) fn put(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.bell.notify_one();
    }

    /// Waits until the content has changed since the last [`Self::take`], without taking the content.
    /// Cancel-safe.
    pub(super) async fn ring(&self) {
        self.bell.notified().await;
    }

    /// Returns the content of the mailbox and replaces it with the default value.
    pub(super) fn take(&self) -> T {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.waiting.lock().expect("the lock is not poisoned")
    }
}
