//! Commit groups: commits that a store writes together. Validates the consistency and size of a group and
//! encodes it, before any store is accessed.

use model::{
    cluster::{
        change::{ChangeKind, Commit},
        history::RevisionEntry,
    },
    primitives::quantity::{Position, Revision, Timestamp},
};
use serde_json::value::RawValue;

use crate::{
    GROUP_BYTES_MAX, GROUP_COMMITS_MAX,
    error::CommitError,
    history::{self, EncodedEntry},
    record,
    window::Entry,
};

/// Group of commits in encoded form, validated and with consecutive revisions.
#[derive(Debug)]
pub(crate) struct Group {
    /// Commits of the group, at least one, with consecutive revisions.
    pub(crate) commits: Vec<EncodedCommit>,
    /// History entries of some of the commits, in the order of the commits.
    pub(crate) history: Vec<EncodedEntry>,
}

/// Commit in encoded form.
#[derive(Debug)]
pub(crate) struct EncodedCommit {
    pub(crate) revision: Revision,
    pub(crate) at: Timestamp,
    /// Changes of the commit, at least one.
    pub(crate) changes: Vec<EncodedChange>,
    /// Text of the commit in the change log.
    pub(crate) body: String,
}

/// Change of one object in encoded form.
#[derive(Debug)]
pub(crate) struct EncodedChange {
    pub(crate) kind: ChangeKind,
    pub(crate) key: String,
    pub(crate) body: Box<RawValue>,
}

impl Group {
    /// Returns the revision of the group's last commit.
    pub(crate) fn head(&self) -> Revision {
        self.commits.last().expect("a group has at least one commit").revision
    }

    /// Returns the revision and size of each commit in the group, by which the change log is limited.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let entry = |commit: &EncodedCommit| Entry { revision: commit.revision, bytes: commit.body.len() };
        self.commits.iter().map(entry).collect()
    }

    /// Returns the revision and size of each history entry in the group, by which the history is limited:
    /// entries of writes by the server itself if `is_by_server`, otherwise entries of client writes.
    pub(crate) fn history_entries(&self, is_by_server: bool) -> Vec<Entry> {
        let own = self.history.iter().filter(|entry| entry.is_by_server == is_by_server);
        own.map(|entry| Entry { revision: entry.revision, bytes: entry.bytes() }).collect()
    }
}

/// Validates a group of commits that follows position `at`, and encodes the group with its history.
pub(crate) fn encode(
    at: Position,
    commits: &[Commit],
    history: &[RevisionEntry],
) -> Result<Group, CommitError> {
    if commits.is_empty() {
        return Err(CommitError::Malformed("the group has no commits".to_owned()));
    }
    check_size("commits", commits.len(), GROUP_COMMITS_MAX)?;
    let mut encoded = Vec::with_capacity(commits.len());
    let mut bytes = 0;
    let mut head = at.revision;
    for commit in commits {
        if head.0.checked_add(1) != Some(commit.revision.0) {
            return Err(CommitError::Malformed(format!(
                "revision {} does not follow {head}",
                commit.revision
            )));
        }
        head = commit.revision;
        encoded.push(encode_commit(commit, &mut bytes)?);
    }
    let history = encode_history(&encoded, history)?;
    Ok(Group { commits: encoded, history })
}

fn encode_history(
    commits: &[EncodedCommit],
    history: &[RevisionEntry],
) -> Result<Vec<EncodedEntry>, CommitError> {
    let mut rest = commits.iter();
    let encode_one = |entry: &RevisionEntry| {
        let commit = rest.find(|commit| commit.revision == entry.revision);
        let commit = commit.ok_or_else(|| {
            CommitError::Malformed(format!("the history of revision {} has no commit", entry.revision))
        })?;
        Ok(history::encode(entry, commit))
    };
    history.iter().map(encode_one).collect()
}

/// Returns the error for a change that does not match the stored state, such as the addition of an existing
/// object.
pub(crate) fn misfit(kind: ChangeKind, key: &str) -> CommitError {
    let why = match kind {
        ChangeKind::Added => "is added, but exists",
        ChangeKind::Modified => "is modified, but does not exist",
        ChangeKind::Deleted => "is deleted, but does not exist",
    };
    CommitError::Malformed(format!("{key} {why}"))
}

fn encode_commit(commit: &Commit, bytes: &mut usize) -> Result<EncodedCommit, CommitError> {
    let Commit { revision, at, changes } = commit;
    if changes.is_empty() {
        return Err(CommitError::Malformed(format!("commit {revision} changes nothing")));
    }
    let mut encoded = Vec::with_capacity(changes.len());
    for change in changes {
        let key = change.object.key().to_store_key();
        if change.object.metadata.revision() != *revision {
            let found = change.object.metadata.revision();
            return Err(CommitError::Malformed(format!("{key} has revision {found} in commit {revision}")));
        }
        let body = record::encode(&change.object);
        *bytes += key.len() + body.get().len();
        check_size("bytes", *bytes, GROUP_BYTES_MAX)?;
        encoded.push(EncodedChange { kind: change.kind, key, body });
    }
    let log = encoded.iter().map(|change| (change.kind, change.key.as_str(), &*change.body));
    let body = record::encode_changes(log);
    Ok(EncodedCommit { revision: *revision, at: *at, changes: encoded, body })
}

fn check_size(unit: &'static str, found: usize, limit: usize) -> Result<(), CommitError> {
    if found > limit { Err(CommitError::TooLarge { unit, found, limit }) } else { Ok(()) }
}
