//! Programs that report about themselves to control servers, such as DNS servers and gateways: the identity that reports, the
//! age of the reports, and the revision that all of them should have.

use std::collections::{BTreeMap, btree_map};

use crate::primitives::{
    name::Name,
    quantity::{Revision, Timestamp},
};

/// Maximum number of programs of one kind. One for each node of a large cluster.
pub(super) const REPORTERS_MAX: usize = 5_000;
/// Number of intervals without a report after which a program counts as silent.
const SILENT_INTERVALS: i64 = 3;
/// Time without a report after which a program is forgotten, in seconds.
pub(super) const FORGOTTEN_AFTER_SECS: i64 = 3_600;
/// Time for which another program must have a later revision before a program counts as behind, in seconds.
const BEHIND_AFTER_SECS: i64 = 10;

/// Report of a program about itself.
pub(super) trait OwnReport {
    /// Interval of the reports in seconds.
    const INTERVAL_SECS: u64;

    /// Returns the revision of the state that the program uses; `None` before the first one.
    fn revision(&self) -> Option<Revision>;
}

/// Reports of all programs of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReporterBook<R>(BTreeMap<Name, Reporter<R>>);

/// Program with its last report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reporter<R> {
    /// Identity that sends the reports. Another one cannot report for the program until it is silent.
    pub(super) author: String,
    pub(super) reported_at: Timestamp,
    /// Time of the first report with the revision.
    revision_since: Timestamp,
    pub(super) report: R,
}

/// Error: the book has [`REPORTERS_MAX`] programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyReporters;

impl<R> Default for ReporterBook<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: OwnReport> Reporter<R> {
    /// Time without a report after which a program counts as silent, in seconds.
    pub(super) const SILENT_AFTER_SECS: i64 = SILENT_INTERVALS * R::INTERVAL_SECS.cast_signed();

    /// Returns the time since the last report in seconds.
    pub(super) fn age(&self, now: Timestamp) -> i64 {
        now.unix_seconds().saturating_sub(self.reported_at.unix_seconds())
    }

    pub(super) fn is_silent(&self, now: Timestamp) -> bool {
        self.age(now) >= Self::SILENT_AFTER_SECS
    }

    /// Returns true if another identity than `author` sends the reports.
    pub(super) fn is_foreign(&self, author: &str, now: Timestamp) -> bool {
        self.author != author && !self.is_silent(now)
    }
}

impl<R: OwnReport> ReporterBook<R> {
    /// Removes the programs that have been silent for an hour.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, known| known.age(now) < FORGOTTEN_AFTER_SECS);
    }

    pub(super) fn get_mut(&mut self, name: &Name) -> Option<&mut Reporter<R>> {
        self.0.get_mut(name)
    }

    /// Removes a program. Returns true if the book had it.
    pub(super) fn remove(&mut self, name: &Name) -> bool {
        self.0.remove(name).is_some()
    }

    /// Stores a report.
    ///
    /// # Errors
    /// Returns an error if the program is new, and the book has no room for it.
    pub(super) fn insert(
        &mut self,
        name: Name,
        author: &str,
        report: R,
        now: Timestamp,
    ) -> Result<(), TooManyReporters> {
        let is_full = self.0.len() >= REPORTERS_MAX;
        let known = match self.0.entry(name) {
            btree_map::Entry::Vacant(_) if is_full => return Err(TooManyReporters),
            btree_map::Entry::Vacant(entry) => {
                let author = author.to_owned();
                entry.insert(Reporter { author, reported_at: now, revision_since: now, report });
                return Ok(());
            }
            btree_map::Entry::Occupied(entry) => entry.into_mut(),
        };
        if known.report.revision() != report.revision() {
            known.revision_since = now;
        }
        author.clone_into(&mut known.author);
        (known.reported_at, known.report) = (now, report);
        Ok(())
    }

    /// Returns the programs that are not forgotten, in the order of their names.
    pub(super) fn known(&self, now: Timestamp) -> impl Iterator<Item = (&Name, &Reporter<R>)> {
        self.0.iter().filter(move |(_, known)| known.age(now) < FORGOTTEN_AFTER_SECS)
    }

    /// Returns the latest revision that a program has had for so long that the others should have it too. The revision of the
    /// cluster does not serve, because programs receive changes of some kinds only. Silent ones do not count: after a restore
    /// from a backup, their revision may be later than any that follows.
    pub(super) fn settled_revision(&self, now: Timestamp) -> Option<Revision> {
        let reporting = self.0.values().filter(|known| !known.is_silent(now));
        let settled = reporting.filter(|known| {
            now.unix_seconds().saturating_sub(known.revision_since.unix_seconds()) >= BEHIND_AFTER_SECS
        });
        settled.filter_map(|known| known.report.revision()).max()
    }
}
