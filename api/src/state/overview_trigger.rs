//! Signal by which reports wake the task that computes the overview.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counter of the reports that may change the overview. Each increase wakes the overview task.
#[derive(Debug, Default)]
pub(crate) struct OverviewTrigger {
    changes: AtomicU64,
    bell: Notify,
}

impl OverviewTrigger {
    /// Counts a report that may change the overview, and wakes the overview task.
    pub(crate) fn record(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Returns the number of reports counted so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Waits until a report is counted. Returns at once if one was counted since the previous call.
    pub(crate) async fn recorded(&self) {
        self.bell.notified().await;
    }
}
