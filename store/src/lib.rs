//! Transactional, watchable object store: a map of keys with revisions, without knowledge of the objects'
//! meaning.
//!
//! A writer checks each write with `model::admit` against the state at a position (epoch and revision), and
//! commits the resulting changes in groups. The store rejects the group if its position has changed since.
//! Acknowledged commits are never lost; unacknowledged ones are applied completely or not at all.
//!
//! ```text
//! commit(position, group)  appends to the change log and updates the objects, in one durable transaction
//! load()                   reads position, objects and recent commits as of one instant
//! changes(after)           reads the commits after a revision, such as the ones that a watch missed
//! ```
//! Out of scope by design: partial queries, validation of objects, notification (the writer knows its own
//! writes), and retries (only the caller can check that its decision is still valid).

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use model::{
    cluster::{change::Commit, history::RevisionEntry},
    kinds::resource::Object,
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use tokio::sync::watch;

mod audit;
pub mod backup;
mod contents;
mod error;
mod etcd;
mod group;
mod history;
mod memory;
mod open;
mod record;
mod sqlite;
mod vault;
mod window;

pub use audit::{AuditPool, AuditRecord};
pub use contents::Contents;
pub use error::{
    Cause, ChangesError, CommitError, OpenError, ReplaceError, StatusError, StoreError, VaultError,
};
pub use etcd::{ETCD_FOLD_AFTER_DEFAULT, ETCD_PREFIX_DEFAULT, EtcdOptions, Figures};
pub use history::{HistoryPage, HistoryQuery, ObjectFilter};
pub use open::{Options, StoreState, inspect, inspect_with, open, open_with};
pub use vault::VaultRecord;

/// Maximum number of commits in the change log: minutes of a busy cluster, days of a quiet one. A watch that
/// was disconnected for longer starts over.
pub const CHANGES_KEPT: usize = 10_000;
/// Maximum size of encoded changes in the change log in bytes, so that big commits fill neither the disk nor
/// a replica's memory. The newest commit is always kept.
pub const CHANGES_BYTES_KEPT: usize = 64 * 1024 * 1024;
/// Maximum number of client writes in the history, each of which can be undone: months of a manually operated
/// cluster.
pub const HISTORY_KEPT: usize = 10_000;
/// Maximum size of the encoded history of client writes in bytes, so that big writes cannot fill the disk.
/// The newest write is always kept.
pub const HISTORY_BYTES_KEPT: usize = 128 * 1024 * 1024;
/// Maximum number of server writes in the history, such as recent address assignments. They are not needed
/// for undo.
pub const SERVER_HISTORY_KEPT: usize = 500;
/// Maximum size of the encoded history of server writes in bytes.
pub const SERVER_HISTORY_BYTES_KEPT: usize = 8 * 1024 * 1024;
/// Maximum number of audit records about requests that changed objects; the same as for client writes in the
/// history. May be exceeded temporarily by a tenth.
pub const AUDIT_KEPT: usize = 10_000;
/// Maximum number of audit records about requests with credentials that changed nothing, such as rejected ones
/// and dry runs. May be exceeded temporarily by a tenth.
pub const AUDIT_PASSING_KEPT: usize = 2_000;
/// Maximum number of audit records about requests without valid credentials. Anybody can send those, so they must
/// not displace the records of known callers. May be exceeded temporarily by a tenth.
pub const AUDIT_ANONYMOUS_KEPT: usize = 1_000;
/// Maximum age of audit records in seconds; longer than a year, so that yearly operations can be compared.
pub const AUDIT_AGE_MAX_SECS: i64 = 400 * 86_400;
/// Maximum size of an audit record in bytes: author, reason, and the names of the first objects.
pub const AUDIT_BODY_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of commits per group; beyond this the share of the fsync per commit is negligible.
pub const GROUP_COMMITS_MAX: usize = 1024;
/// Maximum size of encoded changes per group in bytes; limits memory and transaction time.
pub const GROUP_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of a status in bytes; several times the largest node report.
pub const STATUS_BYTES_MAX: usize = 1024 * 1024;
/// Maximum length of a status key in bytes. The longest object key has about 340 bytes.
pub const STATUS_KEY_BYTES_MAX: usize = 512;
/// Maximum number of statuses in a store: several per node of the largest supported cluster.
pub const STATUSES_MAX: usize = 16_384;
/// Maximum size of a vault record in bytes, several times the size of a certificate chain with its key.
pub const VAULT_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a vault key in bytes.
pub const VAULT_KEY_BYTES_MAX: usize = 256;
/// Maximum number of vault records: a token per agent of the largest supported cluster, and as many for users
/// and automation.
pub const VAULT_RECORDS_MAX: usize = 16_384;

/// Position, objects and recent commits of a store at one instant, from which a control server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredState {
    /// Epoch, and revision of the last commit.
    pub position: Position,
    /// All objects in the order of store keys.
    pub objects: Vec<Arc<Object>>,
    /// Tail of the change log up to `position`, oldest first, without gaps.
    pub recent: Vec<Commit>,
}

/// Store of objects, whose commits form a single sequence of revisions.
///
/// Methods are cancel safe: a canceled write is applied completely or not at all.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads epoch, revision, objects and recent commits as of one instant.
    async fn load(&self) -> Result<StoredState, StoreError>;

    /// Commits a group durably and atomically, if the store is still at position `at`. The same transaction
    /// stores the given audit records and history entries; the entries are in the order of the commits, some
    /// of which may have none.
    ///
    /// The revisions must follow `at` consecutively, and each object must carry the revision of its commit.
    /// After `Ok` the group survives a crash of the process and the machine.
    ///
    /// # Errors
    /// A history entry without a commit in the group is malformed. After [`CommitError::Unavailable`] the
    /// outcome is unknown: call [`Store::load`] before the next write. After any other error nothing has
    /// changed.
    async fn commit_with_records(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
        audit: &[AuditRecord],
    ) -> Result<(), CommitError>;

    /// Stores audit records of requests without a commit. The records survive a crash of the process; the
    /// latest may be lost if the machine crashes. Records with an existing number are ignored.
    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError>;

    /// Deletes audit records older than [`AUDIT_AGE_MAX_SECS`].
    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Lists at most `limit` audit records, newest first; only those with a number below `before`, if given.
    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError>;

    /// Returns a page of history entries, newest first.
    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError>;

    /// Reads at most `limit` history entries from revision `first` on, oldest first.
    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError>;

    /// Reads at most `limit` commits after a revision, oldest first; empty if there are none.
    ///
    /// # Errors
    /// Returns [`ChangesError::Compacted`] if the log no longer reaches back to `after`.
    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError>;

    /// Stores observed state under a key, replacing the previous one, without a new revision. The state
    /// survives a crash of the process; the latest may be lost if the machine crashes.
    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError>;

    /// Removes the observed state under a key, if any, without a new revision.
    async fn remove_status(&self, key: &str) -> Result<(), StoreError>;

    /// Reads all statuses by key.
    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError>;

    /// Starts a new epoch at the same revision, so that all positions of the old epoch are rejected. The new
    /// epoch is `now` in Unix seconds, or the previous one plus 1 if that is higher.
    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError>;

    /// Reads the vault: small records with keys, tokens and roles, separate from the objects. Vault records
    /// appear in no watch and no history, and create no revision; all control servers of a store share them.
    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError>;

    /// Writes the vault record `key`, or deletes it if `body` is `None`, provided that its current version is
    /// `at`; version 0 means that the record does not exist. Returns the new version, which is higher than
    /// all earlier ones. The write is as durable as a commit.
    ///
    /// # Errors
    /// Returns [`VaultError::Stale`] if the record was changed concurrently. After
    /// [`VaultError::Unavailable`] the outcome is unknown. After any other error nothing has changed.
    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError>;

    /// Replaces the cluster data of the store with `contents` atomically, if it is still at `at`. A new
    /// epoch, higher than the previous one and than `above`, begins at the revision of the contents.
    /// Positions of earlier epochs are rejected, and observed state is dropped. The audit log stays. No other
    /// process may use the store meanwhile. etcd needs several requests, during which the store has no head,
    /// so that no process can write to it or open it.
    ///
    /// # Errors
    /// After [`ReplaceError::Unavailable`] the outcome is unknown. After any other error nothing has changed.
    async fn replace(
        &self,
        at: Position,
        contents: &Contents,
        above: Epoch,
        now: Timestamp,
    ) -> Result<Position, ReplaceError>;

    /// Reads the current position (epoch and revision) of the store, which includes every commit completed
    /// before the call. A store shared by several processes reads only the position for this, not the
    /// objects.
    async fn head(&self) -> Result<Position, StoreError>;

    /// Waits until another process may have committed after `at`. Never returns for exclusive stores.
    /// Spurious returns are possible: call [`Store::changes`] for new commits.
    async fn moved(&self, at: Position) -> Result<(), StoreError>;

    /// Returns a channel whose value is true while this process is the leader, which runs the tasks that only
    /// one process per shared store should run. Two processes may lead for a moment; this is harmless,
    /// because only writes at the current position succeed. The process that has an exclusive store open
    /// always leads.
    fn leadership(&self) -> watch::Receiver<bool>;

    /// True if other processes may write to the store while this process has it open.
    fn is_shared(&self) -> bool;

    /// Resigns leadership before the process ends, so that another process obtains it at once. Waits for a
    /// limited time. Has no effect on exclusive stores.
    async fn resign(&self);

    /// Returns operation counters, or `None` if the store has none.
    fn figures(&self) -> Option<Figures>;
}

// Abbreviations are outside of the trait, so that it has no default methods: a store that lacks one of its
// methods does not compile.
impl dyn Store {
    /// Same as [`Store::commit_with_records`], without history and audit records.
    ///
    /// # Errors
    /// Same as [`Store::commit_with_records`].
    pub async fn commit(&self, at: Position, commits: &[Commit]) -> Result<(), CommitError> {
        self.commit_with_records(at, commits, &[], &[]).await
    }

    /// Same as [`Store::commit_with_records`], without audit records.
    ///
    /// # Errors
    /// Same as [`Store::commit_with_records`].
    pub async fn commit_with_history(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
    ) -> Result<(), CommitError> {
        self.commit_with_records(at, commits, history, &[]).await
    }
}
