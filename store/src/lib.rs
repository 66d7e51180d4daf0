//! A transactional, watchable map: it knows keys and revisions, not meaning.
//!
//! One writer per store decides what may be written (`model::admit`) and hands over the outcome; a store refuses a
//! commit that was decided on another state than the one it holds, and that is its only judgement. What it has
//! acknowledged it never loses, and what it has not acknowledged is there whole or not at all.
//!
//! ```text
//! writer task ── commit(at, group) ──▶ objects + change log, one transaction ──▶ durable ──▶ Ok
//!                                        │            │
//!            load(): one consistent read ┘            └ changes(after): what a watch missed
//! ```
//! Absent on purpose: queries by anything but the whole, validation of objects, notification (the writer knows what it
//! wrote), and retries (only the caller knows whether its decision still holds).

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

pub use audit::AuditRecord;
pub use contents::Contents;
pub use error::{
    Cause, ChangesError, CommitError, OpenError, ReplaceError, StatusError, StoreError, VaultError,
};
pub use etcd::{ETCD_FOLD_AFTER_DEFAULT, ETCD_PREFIX_DEFAULT, EtcdOptions, Figures};
pub use history::{HistoryPage, HistoryQuery, ObjectFilter};
pub use open::{Looked, Options, look, look_with, open, open_with};
pub use vault::VaultRecord;

/// Commits that the change log keeps: minutes of a busy cluster, days of a quiet one. A watch that was away for longer
/// starts over.
pub const CHANGES_KEPT: usize = 10_000;
/// Bytes of encoded changes that the log keeps, so that big commits cannot fill the disk or a replica's memory. The
/// newest commit is kept whatever its size.
pub const CHANGES_BYTES_KEPT: usize = 64 * 1024 * 1024;
/// Writes of others that the history keeps: months of a cluster that people look after, and each can be undone.
pub const HISTORY_KEPT: usize = 10_000;
/// Bytes of encoded history that are kept of the writes of others, so that big writes cannot fill the disk. The newest is
/// kept whatever its size.
pub const HISTORY_BYTES_KEPT: usize = 128 * 1024 * 1024;
/// Writes of the server itself that the history keeps: who took which address when, of late. Nothing is undone by them.
pub const SERVER_HISTORY_KEPT: usize = 500;
/// Bytes of encoded history that are kept of the server's own writes.
pub const SERVER_HISTORY_BYTES_KEPT: usize = 8 * 1024 * 1024;
/// Requests that changed something, in the audit log: as many as the history keeps. A tenth more may be there for a while.
pub const AUDIT_KEPT: usize = 10_000;
/// Requests that changed nothing, in the audit log: enough to see what is tried of late; nobody can undo anything by them.
/// A tenth more may be there for a while.
pub const AUDIT_PASSING_KEPT: usize = 2_000;
/// Age at which an entry leaves the audit log: longer than a year, so that what is done yearly can be compared.
pub const AUDIT_AGE_MAX_SECS: i64 = 400 * 86_400;
/// Bytes of one entry of the audit log: who, why, and the first objects by name.
pub const AUDIT_BODY_BYTES_MAX: usize = 16 * 1024;
/// Commits in one group; beyond this the share of the one fsync that each pays is already negligible.
pub const GROUP_COMMITS_MAX: usize = 1024;
/// Bytes of encoded changes in one group: bounds memory and the time a transaction holds the store.
pub const GROUP_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of one status: the largest node report fits several times over.
pub const STATUS_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a status key: the longest object key is about 340 bytes.
pub const STATUS_KEY_BYTES_MAX: usize = 512;
/// Statuses in a store: several per node of the largest cluster we aim at.
pub const STATUSES_MAX: usize = 16_384;
/// Bytes of one record of the vault: a chain of certificates with its key fits several times over.
pub const VAULT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the key of a record of the vault.
pub const VAULT_KEY_BYTES_MAX: usize = 256;
/// Records in the vault: a token for each agent of the largest cluster we aim at, and as many for people and automation.
pub const VAULT_RECORDS_MAX: usize = 16_384;

/// Everything a control replica starts from, as of one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The life of the store and the revision of its last commit.
    pub position: Position,
    /// Every object, in the order of their store keys.
    pub objects: Vec<Arc<Object>>,
    /// The tail of the change log up to `position`, oldest first, without gaps.
    pub recent: Vec<Commit>,
}

/// A store of objects with one history.
///
/// Methods may be cancelled at any await: a write then happens whole or not at all.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads everything, as of one instant.
    async fn load(&self) -> Result<Loaded, StoreError>;

    /// Makes a group of commits durable, all or none, if the store is still at `at`.
    ///
    /// The revisions must follow `at` one by one, and each object must carry the revision of its commit. After `Ok` the
    /// group survives the death of process and machine.
    ///
    /// # Errors
    /// After [`CommitError::Unavailable`] it is unknown whether the group is there: [`Store::load`] before the next
    /// write. After any other error nothing has changed.
    async fn commit(&self, at: Position, commits: &[Commit]) -> Result<(), CommitError> {
        self.commit_with_history(at, commits, &[]).await
    }

    /// [`Self::commit`], and in the same transaction keeps the history of some of the commits, in their order.
    ///
    /// # Errors
    /// As of [`Self::commit`]; an entry of no commit of the group is malformed.
    async fn commit_with_history(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
    ) -> Result<(), CommitError> {
        self.commit_with_records(at, commits, history, &[]).await
    }

    /// [`Self::commit_with_history`], and in the same transaction the entries of the audit log that tell of it.
    ///
    /// # Errors
    /// As of [`Self::commit_with_history`].
    async fn commit_with_records(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
        audit: &[AuditRecord],
    ) -> Result<(), CommitError>;

    /// Keeps entries of the audit log that tell of no commit. They survive the death of the process; what was put last may be
    /// lost with the machine. A number that is there already stays as it is.
    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError>;

    /// Drops entries of the audit log that are older than [`AUDIT_AGE_MAX_SECS`].
    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Lists the audit log, the newest first: at most `limit` entries, before a number if one is given.
    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError>;

    /// Lists the history, the newest first.
    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError>;

    /// Reads the history from a revision on, the oldest first, at most `limit` entries.
    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError>;

    /// Reads the commits after a revision in order, at most `limit`; none when there is nothing newer.
    ///
    /// # Errors
    /// [`ChangesError::Compacted`] when the log no longer reaches back to `after`.
    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError>;

    /// Keeps what was observed under a key, in place of what was there. Moves no revision. It survives the death of the
    /// process; what was put last may be lost with the machine.
    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError>;

    /// Forgets what was observed under a key, if anything. Moves no revision.
    async fn remove_status(&self, key: &str) -> Result<(), StoreError>;

    /// Reads everything that was observed.
    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError>;

    /// Begins a new life at the same revision, so that every token of the old one is refused. The new epoch is `now` in
    /// Unix seconds, or the next number if that is not higher.
    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError>;

    /// Reads the vault: small records beside the objects that hold keys, tokens and roles. They are in no watch and no
    /// history, and move no revision; every replica sees the same.
    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError>;

    /// Puts a record into the vault, or takes it out (`None`), if what is there has still the version `at`; 0 stands for
    /// nothing. Answers the version that it has now, higher than any before. Durable like a commit.
    ///
    /// # Errors
    /// [`VaultError::Stale`] when somebody else was faster. After [`VaultError::Unavailable`] it is unknown whether it
    /// happened. After any other error nothing has changed.
    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError>;

    /// Replaces what the store keeps of its cluster by `contents`, in one step, if it is still at `at`. A new life begins at
    /// the revision of the contents, with an epoch higher than before and than `above`; so every token of the old one is
    /// refused, and what was observed is forgotten. The audit log stays. Nobody else may use the store meanwhile. In etcd it takes
    /// several requests, during which the store has no head, so that nobody can write to it or begin.
    ///
    /// # Errors
    /// After [`ReplaceError::Unavailable`] it is unknown whether it happened. After any other error nothing has changed.
    async fn replace(
        &self,
        _at: Position,
        _contents: &Contents,
        _above: Epoch,
        _now: Timestamp,
    ) -> Result<Position, ReplaceError> {
        Err(ReplaceError::Unsupported)
    }

    /// Reads where the store is: not earlier than when this was called. Stores that are shared answer without reading
    /// everything.
    async fn head(&self) -> Result<Position, StoreError> {
        Ok(self.load().await?.position)
    }

    /// Waits until another process may have moved the store on from `at`. Never ends where this process is the only
    /// one that writes. It may end for nothing: ask [`Store::changes`] for what is new.
    async fn moved(&self, _at: Position) -> Result<(), StoreError> {
        std::future::pending().await
    }

    /// Whether this process is the one of all that use the store which does what is to be done once. A hint that saves
    /// work: two may hold it for a moment, and the head decides which of them writes.
    fn leadership(&self) -> watch::Receiver<bool> {
        // The value stays readable when its sender is gone.
        watch::channel(true).1
    }

    /// Whether other processes may write to the store while this one has it open.
    fn is_shared(&self) -> bool {
        false
    }

    /// Gives leadership back, before the process ends: another may have it at once. Waits for that, but not long.
    async fn resign(&self) {}

    /// What the store has done since it was opened, where it counts that.
    fn figures(&self) -> Option<Figures> {
        None
    }
}
