//! Inbox of the health check thread. Pending changes are merged, so that the inbox never grows beyond the
//! size of the state.

use std::sync::{Mutex, PoisonError};

use base::Refusals;
use tokio::sync::Notify;

use super::plan::Changes;

/// Whole content of the inbox, as the health check thread takes it out: state changes and refused
/// connections.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// State changes from the control server, merged since the last time the inbox was read.
    pub(super) changes: Changes,
    /// Endpoints that refused client connections, with the number of refusals, as last read from the proxy
    /// backend; `None` if nothing was read since the inbox was last emptied.
    pub(super) refusals: Option<Vec<Refusals>>,
}

/// Inbox of the health check thread: a single slot into which later content is merged.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Changes,
    /// Numbers of refused client connections as last read from the proxy backend. New numbers replace older
    /// ones that the thread has not taken yet.
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

    /// Waits for new content and takes it out; `None` once the inbox is closed. Cancel-safe.
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
            // A notification that arrived in the meantime is not lost.
            self.wake.notified().await;
        }
    }
}
