//! What the loop has said and the thread has not read yet: squashed, so that it never holds more than the state does.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::plan::Changes;
use crate::dataplane::Refusals;

/// What has come.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// What is different of the state.
    pub(super) changes: Changes,
    /// Who refuses connections of clients, if that was read.
    pub(super) refusals: Option<Vec<Refusals>>,
}

/// Changes that wait.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Changes,
    /// The last reading; an older one that was not looked at says nothing more.
    refusals: Option<Vec<Refusals>>,
    is_closed: bool,
}

impl Inbox {
    pub(super) fn put(&self, changes: Changes) {
        if changes.is_empty() {
            return;
        }
        self.change(|waiting| waiting.changes.then(changes));
    }

    pub(super) fn put_refusals(&self, refusals: Vec<Refusals>) {
        self.change(|waiting| waiting.refusals = Some(refusals));
    }

    pub(super) fn close(&self) {
        self.change(|waiting| waiting.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_one();
    }

    /// What comes next; nothing when nothing more will come. May be dropped and asked again.
    pub(super) async fn next(&self) -> Option<Mail> {
        loop {
            {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if waiting.is_closed {
                    return None;
                }
                if !waiting.changes.is_empty() || waiting.refusals.is_some() {
                    let Waiting { changes, refusals, is_closed: _ } = &mut *waiting;
                    return Some(Mail { changes: std::mem::take(changes), refusals: refusals.take() });
                }
            }
            // A notification that came meanwhile is kept.
            self.wake.notified().await;
        }
    }
}
