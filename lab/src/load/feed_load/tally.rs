//! Progress of all followers (simulated clients) of one process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{FollowerProgress, now_ns};

/// Maximum number of observations that are stored until the next `take` command; a run of minutes with a
/// thousand followers produces fewer.
const SEEN_MAX: usize = 20_000_000;

/// Revisions that the followers of the process have reached. Clones share the data.
#[derive(Debug, Clone)]
pub(super) struct Tally(Arc<TallyCounters>);

#[derive(Debug)]
struct TallyCounters {
    state: Mutex<State>,
    bell: Notify,
    first: u16,
}

#[derive(Debug)]
struct State {
    seen: Vec<FollowerProgress>,
    /// Revision up to which each follower has received all changes, by index of the follower in this process.
    has: Vec<u64>,
}

impl Tally {
    pub(super) fn new(first: u16, count: u16) -> Self {
        let state = State { seen: Vec::new(), has: vec![0; usize::from(count)] };
        Self(Arc::new(TallyCounters { state: Mutex::new(state), bell: Notify::new(), first }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a follower (simulated client) has received everything up to a revision.
    pub(super) fn note(&self, follower: u16, revision: u64) {
        let at_ns = now_ns();
        let mut state = self.lock();
        if let Some(has) = state.has.get_mut(usize::from(follower - self.0.first)) {
            *has = (*has).max(revision);
        }
        if state.seen.len() < SEEN_MAX {
            state.seen.push(FollowerProgress { follower, revision, at_ns });
        }
        drop(state);
        self.0.bell.notify_one();
    }

    pub(super) fn take(&self) -> Vec<FollowerProgress> {
        std::mem::take(&mut self.lock().seen)
    }

    /// Waits until all followers (simulated clients) have received everything up to a revision.
    pub(super) async fn reach(&self, revision: u64) {
        while self.lock().has.iter().any(|has| *has < revision) {
            self.0.bell.notified().await;
        }
    }
}
