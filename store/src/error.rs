//! What can go wrong with a store, by what the caller can do about it.

use std::{error::Error, fmt, path::PathBuf, sync::Arc};

use model::primitives::quantity::{Position, Revision};

/// The cause of a failure. Shared, because one failed group is answered to many callers.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// The store itself failed: nothing that the caller asked for was wrong.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A stored body is not what this version writes or knows how to upgrade. Only a person can help.
    #[error("the stored object {key} cannot be read: {reason}")]
    Unreadable {
        /// The store key, or the revision of a commit and the key within it.
        key: String,
        /// What is wrong with the body.
        reason: String,
    },
    /// The disk, the file or the peer did not do its part. May pass.
    #[error("the store could not {action}")]
    Unavailable {
        /// What was attempted, in words that follow "could not".
        action: &'static str,
        /// Why it failed.
        #[source]
        cause: Cause,
    },
}

impl StoreError {
    pub(crate) fn unavailable(action: &'static str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Unavailable { action, cause: Arc::new(cause) }
    }
}

/// An error with its causes, in one line.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut error = self.0;
        while let Some(cause) = error.source() {
            write!(f, ": {cause}")?;
            error = cause;
        }
        Ok(())
    }
}

/// Why a group was not committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The decision was made on another state than the store's. Load, decide again.
    #[error("the store is at {current}, not where the commit was decided")]
    Stale {
        /// Where the store is.
        current: Position,
    },
    /// The group contradicts itself or the state it was decided on: a fault of the caller.
    #[error("the group is malformed: {0}")]
    Malformed(String),
    /// The group is beyond a limit. Commit less at once.
    #[error("the group has {found} {unit}, at most {limit} are allowed")]
    TooLarge {
        /// What is counted.
        unit: &'static str,
        /// How many there are; counting stops soon after the limit.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The store failed, and whether the group is there is unknown. Load before the next write.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Why changes cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ChangesError {
    /// The log begins later. Start over from the whole state.
    #[error("the change log begins at revision {oldest}")]
    Compacted {
        /// The oldest commit that is kept.
        oldest: Revision,
    },
    /// The store failed.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Why a status was not kept.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StatusError {
    /// The key, the body or the number of statuses is beyond a limit.
    #[error("the status has {found} {unit}, at most {limit} are allowed")]
    TooLarge {
        /// What is counted.
        unit: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Why a record was not put into the vault.
#[derive(Debug, Clone, thiserror::Error)]
pub enum VaultError {
    /// Somebody else was faster. Read it, decide again.
    #[error("the record was changed by somebody else; its version is {found} now")]
    Stale {
        /// The version that is there; 0 for nothing.
        found: u64,
    },
    /// The key, the body or the number of records is beyond a limit.
    #[error("the vault has {found} {unit}, at most {limit} are allowed")]
    TooLarge {
        /// What is counted.
        unit: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The store failed, and whether the record is there is unknown.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Why the contents of a store were not replaced.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplaceError {
    /// Somebody uses the store.
    #[error("the store has moved to {current} meanwhile; stop every server that uses it")]
    Stale {
        /// Where the store is.
        current: Position,
    },
    /// No store has written this.
    #[error("the contents are malformed: {0}")]
    Malformed(String),
    /// This kind of store cannot do it.
    #[error("contents cannot be put into a store of this kind; use `sqlite:PATH`")]
    Unsupported,
    /// The store failed, and whether it has the contents is unknown.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Why a store cannot be opened. Every message names the store and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The text after `--store` is not the address of a store.
    #[error(
        "`{0}` is not a store: write `sqlite:PATH`, `etcd:http://HOST:2379,…`, or `memory:` for one that is forgotten \
         at exit"
    )]
    Address(String),
    /// The members, the options, or what is there below the prefix.
    #[error("--store etcd: {0}")]
    Etcd(String),
    /// No member does its part, or what is there cannot be read.
    #[error("--store etcd: the store could not be opened; is etcd running, and may this user use it?")]
    EtcdUnavailable {
        /// Why.
        #[source]
        cause: Cause,
    },
    /// What is kept beside a shared store would be shared as well.
    #[error("--local-store must be sqlite:PATH or memory:, not `{0}`")]
    Local(String),
    /// The directory of the file is missing or cannot be entered.
    #[error("the directory of {path} cannot be used; create it, and let this user write to it")]
    Directory {
        /// The file that was asked for.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// Another process has the store open.
    #[error("{path} is in use by {holder}; stop that one, or name another file")]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who, as far as is known.
        holder: String,
    },
    /// The file holds something else.
    #[error("{path} is not a Tidegate store; name another file")]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// A newer version has written the file.
    #[error("{path} has schema {found}, this version knows up to {known}; start the newer version")]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The newest migration of the file.
        found: i64,
        /// The newest migration of this version.
        known: i64,
    },
    /// The file cannot be read or written.
    #[error("{path} could not be opened: the store could not {action}")]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// What was attempted, in words that follow "could not".
        action: &'static str,
        /// Why it failed.
        #[source]
        cause: Cause,
    },
}
