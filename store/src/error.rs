//! Errors of store operations, with variants that differ in how the caller must react.

use std::{error::Error, fmt, path::PathBuf, sync::Arc};

use model::primitives::quantity::{Position, Revision};

/// Cause of a failure. Shared, because the failure of a commit group (commits written in one transaction) is
/// reported to the author of each commit.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Failure of the store itself; the request was valid.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The encoded form of a stored object or commit is neither the current format nor one that can be
    /// upgraded. Requires manual intervention.
    #[error("cannot decode the stored object {key}: {reason}")]
    Unreadable {
        /// Store key of the object; for a commit in the change log, a description with its revision.
        key: String,
        /// Decoding error of the body.
        reason: String,
    },
    /// The disk, the file or the etcd server failed. May be temporary.
    #[error("the store could not {action}")]
    Unavailable {
        /// Attempted action, as a phrase after "could not".
        action: &'static str,
        /// Error that the backend returned.
        #[source]
        cause: Cause,
    },
}

impl StoreError {
    pub(crate) fn unavailable(action: &'static str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Unavailable { action, cause: Arc::new(cause) }
    }
}

/// Error displayed with all its causes on one line.
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

/// Reason why a commit failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The commit group was computed from an outdated state of the store. The caller must load the store and
    /// compute the group again.
    #[error("the store is at {current}, not at the position of the decision")]
    Stale {
        /// Current position (epoch and revision) of the store.
        current: Position,
    },
    /// The changes of the commit group contradict each other, or the state from which they were computed.
    /// This is a bug of the caller.
    #[error("the group is malformed: {0}")]
    Malformed(String),
    /// The group exceeds a limit. The caller must commit fewer changes at once.
    #[error("the group has {found} {unit}, at most {limit} are allowed")]
    TooLarge {
        /// Name of the counted unit, such as `changes`.
        unit: &'static str,
        /// Actual count or size. Counting stops soon after the limit.
        found: usize,
        /// Maximum permitted count or size.
        limit: usize,
    },
    /// The store failed, and the outcome is unknown. The caller must load the store before the next write.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Reason why changes cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ChangesError {
    /// The change log begins after the requested revision. The caller must start over from the complete
    /// state.
    #[error("the change log begins at revision {oldest}")]
    Compacted {
        /// Revision of the oldest commit in the log.
        oldest: Revision,
    },
    /// The disk, the file or the etcd server failed.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Reason why a status cannot be written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StatusError {
    /// The key, the body or the number of statuses exceeds a limit.
    #[error("the status has {found} {unit}, at most {limit} are allowed")]
    TooLarge {
        /// Name of the counted unit.
        unit: &'static str,
        /// Number or size that was found, in the unit `unit`.
        found: usize,
        /// Maximum permitted count or size.
        limit: usize,
    },
    /// The disk, the file or the etcd server failed.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Reason why a vault record cannot be written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum VaultError {
    /// The record was changed concurrently. The caller must read the record and decide again.
    #[error("the record was changed concurrently; its version is now {found}")]
    Stale {
        /// Current version of the record; 0 if it does not exist.
        found: u64,
    },
    /// The key, the body or the number of records exceeds a limit.
    #[error("the vault has {found} {unit}, at most {limit} are allowed")]
    TooLarge {
        /// Name of the counted unit.
        unit: &'static str,
        /// Number or size that was found, in the unit `unit`.
        found: usize,
        /// Maximum permitted count or size.
        limit: usize,
    },
    /// The store failed, and the outcome is unknown.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Reason why the contents of a store cannot be replaced.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplaceError {
    /// The store has changed since the expected position.
    #[error("the store has meanwhile moved to {current}; stop all servers that use it")]
    Stale {
        /// Current position (epoch and revision) of the store.
        current: Position,
    },
    /// The new contents contradict themselves, so that they cannot come from a store.
    #[error("the contents are malformed: {0}")]
    Malformed(String),
    /// The store failed, and the outcome is unknown.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// Reason why a store cannot be opened. Every message contains the store and the remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The value of `--store` is not a store address.
    #[error(
        "`{0}` is not a store address: use `sqlite:PATH`, `etcd:http://HOST:2379,…`, or `memory:` for a \
         store that is lost at exit"
    )]
    Address(String),
    /// The members or options of an etcd store are invalid, or the data below its key prefix is not a store.
    #[error("--store etcd: {0}")]
    Etcd(String),
    /// No etcd member responds, or the data cannot be read.
    #[error("--store etcd: cannot open the store; check that etcd is running and that this user has access")]
    EtcdUnavailable {
        /// Error that the backend returned.
        #[source]
        cause: Cause,
    },
    /// `--local-store` names a shared store, but must name a store of this process alone.
    #[error("--local-store must be sqlite:PATH or memory:, not `{0}`")]
    Local(String),
    /// The directory of the database file is missing or not accessible.
    #[error("cannot use the directory of {path}; create it, and make it writable for this user")]
    Directory {
        /// Path of the requested file.
        path: PathBuf,
        /// I/O error of the operation.
        #[source]
        cause: Cause,
    },
    /// Another process has opened the store.
    #[error("{path} is in use by {holder}; stop that process, or use another file")]
    InUse {
        /// Path of the file.
        path: PathBuf,
        /// Description of the other process, as far as known.
        holder: String,
    },
    /// The file is not a Tidegate store.
    #[error("{path} is not a Tidegate store; use another file")]
    NotOurs {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file was written by a newer version of Tidegate.
    #[error(
        "{path} has schema {found}, newer than {known}, the latest of this version; start the newer \
             version"
    )]
    NewerSchema {
        /// Path of the file.
        path: PathBuf,
        /// Number of the newest migration applied to the file.
        found: i64,
        /// Number of the newest migration that this version of Tidegate contains.
        known: i64,
    },
    /// The file cannot be opened, read or written.
    #[error("cannot open {path}: the store could not {action}")]
    Unavailable {
        /// Path of the file.
        path: PathBuf,
        /// Attempted action, as a phrase after "could not".
        action: &'static str,
        /// Error of the file system or of SQLite.
        #[source]
        cause: Cause,
    },
}
