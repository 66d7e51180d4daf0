//! What the loop has said and the thread has not read yet: squashed, so that it never holds more than the state does.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::plan::Changes;

/// Changes that wait.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Changes,
    is_closed: bool,
}

impl Inbox {
    pub(super) fn put(&self, changes: Changes) {
        if changes.is_empty() {
            return;
        }
        self.change(|waiting| waiting.changes.then(changes));
    }

    pub(super) fn close(&self) {
        self.change(|waiting| waiting.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_one();
    }

    /// The next changes; nothing when there will be none. May be dropped and asked again.
    pub(super) async fn next(&self) -> Option<Changes> {
        loop {
            {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if waiting.is_closed {
                    return None;
                }
                if !waiting.changes.is_empty() {
                    return Some(std::mem::take(&mut waiting.changes));
                }
            }
            // A notification that came meanwhile is kept.
            self.wake.notified().await;
        }
    }
}
