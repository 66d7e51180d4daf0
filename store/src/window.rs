//! Retention window of a log: the newest entries, limited in number and total size.
//!
//! The window contains only the revision and size of each entry, so that the cost of trimming is proportional
//! to the number of added entries, and the log is never scanned.

use std::collections::VecDeque;

use model::primitives::quantity::Revision;

use crate::{
    CHANGES_BYTES_KEPT, CHANGES_KEPT, HISTORY_BYTES_KEPT, HISTORY_KEPT, SERVER_HISTORY_BYTES_KEPT,
    SERVER_HISTORY_KEPT,
};

/// Maximum number and total size of the entries of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    count: usize,
    bytes: usize,
}

impl Bounds {
    /// Maximum number and total size of the commits in the change log.
    pub(crate) const CHANGES: Self = Self { count: CHANGES_KEPT, bytes: CHANGES_BYTES_KEPT };
    /// Maximum number and total size of the client writes in the history.
    pub(crate) const HISTORY: Self = Self { count: HISTORY_KEPT, bytes: HISTORY_BYTES_KEPT };
    /// Maximum number and total size of the server writes in the history.
    pub(crate) const SERVER: Self = Self { count: SERVER_HISTORY_KEPT, bytes: SERVER_HISTORY_BYTES_KEPT };
}

/// Revision and size of a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) bytes: usize,
}

/// Revisions and sizes of the newest entries of a log, oldest first, up to a number and a total size.
#[derive(Debug)]
pub(crate) struct Window {
    bounds: Bounds,
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Window {
    /// Creates a window that contains the given entries, oldest first.
    pub(crate) fn new(bounds: Bounds, entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries: VecDeque<_> = entries.into_iter().collect();
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        Self { bounds, entries, bytes }
    }

    /// Returns the revision of the newest entry that must be dropped to make room for the `added` entries, or
    /// `None` if all may stay.
    pub(crate) fn drop_through(&self, added: &[Entry]) -> Option<Revision> {
        let mut count = self.entries.len() + added.len();
        let mut bytes = self.bytes + added.iter().map(|entry| entry.bytes).sum::<usize>();
        let mut last = None;
        for entry in self.entries.iter().chain(added) {
            let fits = count <= self.bounds.count && bytes <= self.bounds.bytes;
            if fits || count == 1 {
                break;
            }
            count -= 1;
            bytes -= entry.bytes;
            last = Some(entry.revision);
        }
        last
    }

    /// Updates the window: `added` was appended, and everything up to `dropped` removed.
    pub(crate) fn advance(&mut self, added: &[Entry], dropped: Option<Revision>) {
        for entry in added {
            self.bytes += entry.bytes;
            self.entries.push_back(*entry);
        }
        while let Some(entry) = self.entries.front().filter(|entry| dropped >= Some(entry.revision)) {
            self.bytes -= entry.bytes;
            self.entries.pop_front();
        }
    }

    /// Returns the size in bytes of the entries after `revision`.
    pub(crate) fn bytes_after(&self, revision: Revision) -> usize {
        let first = self.entries.partition_point(|entry| entry.revision <= revision);
        self.entries.range(first..).map(|entry| entry.bytes).sum()
    }

    /// Returns the revision of the oldest entry in the window.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        self.entries.front().map(|entry| entry.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(revisions: std::ops::Range<u64>, bytes: usize) -> Vec<Entry> {
        revisions.map(|revision| Entry { revision: Revision(revision), bytes }).collect()
    }

    fn add(window: &mut Window, added: &[Entry]) -> Option<Revision> {
        let dropped = window.drop_through(added);
        window.advance(added, dropped);
        dropped
    }

    #[test]
    fn as_many_commits_leave_as_come_once_the_count_is_reached() {
        let kept = CHANGES_KEPT as u64;
        let mut window = Window::new(Bounds::CHANGES, entries(1..kept, 10));
        assert_eq!(add(&mut window, &entries(kept..kept + 1, 10)), None);
        assert_eq!(add(&mut window, &entries(kept + 1..kept + 4, 10)), Some(Revision(3)));
        assert_eq!(window.oldest(), Some(Revision(4)));
        assert_eq!(window.bytes, CHANGES_KEPT * 10);
    }

    #[test]
    fn big_commits_push_out_more_but_never_themselves() {
        let mut window = Window::new(Bounds::CHANGES, entries(1..5, CHANGES_BYTES_KEPT / 4));
        assert_eq!(add(&mut window, &entries(5..6, CHANGES_BYTES_KEPT / 2)), Some(Revision(2)));
        assert_eq!(add(&mut window, &entries(6..7, CHANGES_BYTES_KEPT + 1)), Some(Revision(5)));
        assert_eq!(window.oldest(), Some(Revision(6)));
        assert_eq!(add(&mut window, &entries(7..8, 1)), Some(Revision(6)));
        assert_eq!(window.bytes, 1);
    }

    #[test]
    fn an_empty_log_has_no_oldest_commit() {
        let empty = Window::new(Bounds::HISTORY, []);
        assert_eq!((empty.oldest(), empty.drop_through(&[])), (None, None));
    }
}
