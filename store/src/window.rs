//! Which commits a log keeps: the newest, up to a count and a size.
//!
//! Pure book-keeping beside the log, so that trimming costs what was added and never a look at the whole log.

use std::collections::VecDeque;

use model::primitives::quantity::Revision;

use crate::{
    CHANGES_BYTES_KEPT, CHANGES_KEPT, HISTORY_BYTES_KEPT, HISTORY_KEPT, SERVER_HISTORY_BYTES_KEPT,
    SERVER_HISTORY_KEPT,
};

/// How much a log keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    count: usize,
    bytes: usize,
}

impl Bounds {
    /// Of the change log.
    pub(crate) const CHANGES: Self = Self { count: CHANGES_KEPT, bytes: CHANGES_BYTES_KEPT };
    /// Of the history of what others asked for.
    pub(crate) const HISTORY: Self = Self { count: HISTORY_KEPT, bytes: HISTORY_BYTES_KEPT };
    /// Of the history of what the server wrote by itself.
    pub(crate) const SERVER: Self = Self { count: SERVER_HISTORY_KEPT, bytes: SERVER_HISTORY_BYTES_KEPT };
}

/// One commit in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) bytes: usize,
}

/// What the log holds, oldest first.
#[derive(Debug)]
pub(crate) struct Window {
    bounds: Bounds,
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Window {
    /// What the log holds, oldest first.
    pub(crate) fn new(bounds: Bounds, entries: impl IntoIterator<Item = Entry>) -> Self {
        let entries: VecDeque<_> = entries.into_iter().collect();
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        Self { bounds, entries, bytes }
    }

    /// The newest commit that has to leave the log so that it can take `added`; `None` when all may stay.
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

    /// Follows the log: `added` went in, everything up to `dropped` went out.
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

    /// Bytes of the commits after a revision.
    pub(crate) fn bytes_after(&self, revision: Revision) -> usize {
        let first = self.entries.partition_point(|entry| entry.revision <= revision);
        self.entries.range(first..).map(|entry| entry.bytes).sum()
    }

    /// The oldest commit kept.
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
