//! Cached state of the etcd store: position (epoch and revision), object keys, and revisions and sizes of the
//! log entries. Commits are checked against the cache, which is first updated from the change log.

use std::collections::{BTreeMap, HashSet};

use model::{
    cluster::change::{ChangeKind, Commit},
    primitives::quantity::{Position, Revision, Timestamp},
};

use super::wire::{self, Row};
use crate::{
    CommitError, StoreError,
    group::{self, Group},
    record,
    window::{Bounds, Entry, Window},
};

/// Cached state of the store, against which the next commit is checked.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) position: Position,
    /// Modification revision of the etcd key `head`; a commit succeeds only if the key still has this
    /// revision.
    pub(super) head_version: i64,
    keys: HashSet<String>,
    window: Window,
}

/// Commit group (commits written in one etcd transaction) as stored in the change log.
#[derive(Debug)]
pub(super) struct LogGroup {
    /// Revision of the group's last commit.
    pub(super) last: Revision,
    payload: Vec<u8>,
}

/// Commit in a stored group, with changes that are not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogCommit<'a> {
    pub(super) revision: Revision,
    at: Timestamp,
    body: &'a [u8],
}

impl LogGroup {
    /// Creates a group from a value read from etcd.
    pub(super) fn new(last: Revision, payload: Vec<u8>) -> Self {
        Self { last, payload }
    }

    /// Encodes the value of a group in the change log.
    pub(super) fn encode(group: &Group) -> Vec<u8> {
        let rows = group.commits.iter().map(|commit| {
            let row = Row(commit.revision.0, commit.at.unix_seconds(), commit.body.len(), 0);
            (row, commit.body.as_str())
        });
        wire::encode_rows(rows)
    }

    /// Returns the commits of the group, oldest first.
    pub(super) fn commits(&self) -> Result<Vec<LogCommit<'_>>, StoreError> {
        let rows = wire::decode_rows(&self.payload, self.last.0).map_err(|reason| self.unreadable(reason))?;
        let commit = |(Row(revision, at, _, _), body)| LogCommit {
            revision: Revision(revision),
            at: Timestamp::from_unix_seconds(at),
            body,
        };
        let commits: Vec<_> = rows.into_iter().map(commit).collect();
        if commits.last().is_some_and(|commit| commit.revision == self.last) {
            Ok(commits)
        } else {
            Err(self.unreadable("the last commit is missing".to_owned()))
        }
    }

    fn unreadable(&self, reason: String) -> StoreError {
        StoreError::Unreadable { key: format!("the group of commit {}", self.last), reason }
    }
}

impl LogCommit<'_> {
    /// Decodes the commit, including the objects in its changes.
    pub(super) fn decode(self) -> Result<Commit, StoreError> {
        record::decode_commit(self.revision, self.at, self.body)
    }

    /// Decodes the kind and key of each change, and returns them with the still encoded object.
    pub(super) fn changes(&self) -> Result<Vec<(ChangeKind, String, &str)>, StoreError> {
        record::split_changes(self.revision, self.body)
    }

    /// Returns the revision and the size of the commit, as needed for the retention window of the log.
    pub(super) fn entry(&self) -> Entry {
        Entry { revision: self.revision, bytes: self.body.len() }
    }
}

impl Mirror {
    /// Creates the cache from a complete read of the store.
    pub(super) fn new(
        position: Position,
        head_version: i64,
        keys: HashSet<String>,
        log: impl IntoIterator<Item = Entry>,
    ) -> Self {
        let mut window = Window::new(Bounds::CHANGES, log);
        let dropped = window.drop_through(&[]);
        window.advance(&[], dropped);
        Self { position, head_version, keys, window }
    }

    /// Returns the revision of the oldest commit in the log.
    pub(super) fn oldest(&self) -> Option<Revision> {
        self.window.oldest()
    }

    /// Returns the size in bytes of the commits in the log after `revision`.
    pub(super) fn bytes_after(&self, revision: Revision) -> usize {
        self.window.bytes_after(revision)
    }

    /// Updates the cached state with a commit group of another process.
    pub(super) fn follow(&mut self, group: &LogGroup) -> Result<(), StoreError> {
        let commits = group.commits()?;
        for commit in &commits {
            for (kind, key, _) in commit.changes()? {
                self.note(kind, key);
            }
        }
        let entries: Vec<_> = commits.iter().map(LogCommit::entry).collect();
        self.advance(&entries, group.last);
        Ok(())
    }

    /// Updates the cached state with a commit group of this process; `head_version` is the new version of the
    /// key `head`.
    pub(super) fn committed(&mut self, group: &Group, head_version: i64) {
        for change in group.commits.iter().flat_map(|commit| &commit.changes) {
            self.note(change.kind, change.key.clone());
        }
        self.advance(&group.entries(), group.head());
        self.head_version = head_version;
    }

    /// Returns an error unless every change of the group matches the cached state: added objects are absent,
    /// and changed or deleted ones exist.
    pub(super) fn check(&self, group: &Group) -> Result<(), CommitError> {
        let mut changed = BTreeMap::new();
        for change in group.commits.iter().flat_map(|commit| &commit.changes) {
            let key = change.key.as_str();
            let exists = changed.get(key).copied().unwrap_or_else(|| self.keys.contains(key));
            if exists != (change.kind != ChangeKind::Added) {
                return Err(group::misfit(change.kind, key));
            }
            changed.insert(key, change.kind != ChangeKind::Deleted);
        }
        Ok(())
    }

    fn note(&mut self, kind: ChangeKind, key: String) {
        match kind {
            ChangeKind::Added | ChangeKind::Modified => drop(self.keys.insert(key)),
            ChangeKind::Deleted => drop(self.keys.remove(&key)),
        }
    }

    fn advance(&mut self, entries: &[Entry], last: Revision) {
        let dropped = self.window.drop_through(entries);
        self.window.advance(entries, dropped);
        self.position.revision = last;
    }
}
