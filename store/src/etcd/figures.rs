//! Operation counters of an etcd store, exported as metrics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Counters of etcd store operations since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of commit groups (commits written in one etcd transaction) that succeeded.
    pub commits: u64,
    /// Total duration of commits, in microseconds.
    pub commit_micros: u64,
    /// Number of commit groups that were rejected because another process had written to the store first.
    pub conflicts: u64,
    /// Number of commit groups whose outcome was temporarily or permanently unknown.
    pub in_doubt: u64,
    /// Number of calls to etcd.
    pub calls: u64,
    /// Total duration of calls to etcd, in microseconds.
    pub call_micros: u64,
    /// Number of calls to etcd without a response, or with an error that causes a switch to another member.
    pub failed_calls: u64,
    /// Number of commits whose changes were moved from the change log to the stored objects.
    pub folded: u64,
}

/// Atomic counters from which [`Figures`] are read.
#[derive(Debug, Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    commit_micros: AtomicU64,
    conflicts: AtomicU64,
    in_doubt: AtomicU64,
    calls: AtomicU64,
    call_micros: AtomicU64,
    failed_calls: AtomicU64,
    folded: AtomicU64,
}

impl Counters {
    pub(super) fn committed(&self, elapsed: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.commit_micros.fetch_add(micros(elapsed), Ordering::Relaxed);
    }

    pub(super) fn conflicted(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn doubted(&self) {
        self.in_doubt.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn called(&self, elapsed: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.call_micros.fetch_add(micros(elapsed), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed_calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn folded(&self, commits: usize) {
        self.folded.fetch_add(commits as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Self { commits, commit_micros, conflicts, in_doubt, calls, call_micros, failed_calls, folded } =
            self;
        Figures {
            commits: read(commits),
            commit_micros: read(commit_micros),
            conflicts: read(conflicts),
            in_doubt: read(in_doubt),
            calls: read(calls),
            call_micros: read(call_micros),
            failed_calls: read(failed_calls),
            folded: read(folded),
        }
    }
}

fn micros(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
