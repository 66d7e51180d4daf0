//! Signal from reports to the task that computes the overview.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counter of reports that change the overview. Each increase wakes the overview task.
#[derive(Debug, Default)]
pub(crate) struct OverviewTrigger {
    changes: AtomicU64,
    bell: Notify,
}

impl OverviewTrigger {
    /// Counts a report that changes the overview, and wakes the overview task.
    pub(crate) fn record(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Returns the number of reports counted so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Waits for a change after the previous wait.
    pub(crate) async fn recorded(&self) {
        self.bell.notified().await;
    }
}
