//! One-slot mailbox. Values put before the receiver takes them are merged, so it is bounded and `put` never
//! blocks.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// A one-slot mailbox.
#[derive(Debug, Default)]
pub(super) struct Mailbox<T> {
    waiting: Mutex<T>,
    bell: Notify,
}

impl<T: Default> Mailbox<T> {
    /// Merges a change into the content and wakes the receiver.
    pub(super) fn put(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.bell.notify_one();
    }

    /// Waits until there is new content, without taking it. Cancel-safe.
    pub(super) async fn ring(&self) {
        self.bell.notified().await;
    }

    /// Takes the content.
    pub(super) fn take(&self) -> T {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.waiting.lock().expect("the lock is not poisoned")
    }
}
