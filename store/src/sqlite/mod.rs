//! Store in a single SQLite file.
//!
//! ```text
//! commit, put_status, raise_epoch ──▶ Writer (one write at a time) ──▶ file
//! load, changes, history … ◀── pool of read-only connections ◀─────────┘
//! ```
//! A write locks the writer and then runs in a separate task, so that the transaction completes even if the
//! caller is canceled.

use std::{collections::BTreeMap, future::Future, path::Path, sync::Arc};

use async_trait::async_trait;
use model::{
    cluster::{change::Commit, history::RevisionEntry},
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use sqlx::SqlitePool;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use crate::{
    AuditRecord, ChangesError, CommitError, Contents, Figures, HistoryPage, HistoryQuery, ReplaceError,
    StatusError, Store, StoreError, StoredState, VaultError, VaultRecord, audit as records,
    error::OpenError,
    group,
    open::{StoreState, check_status, epoch_after, sole_leadership},
    sqlite::{file::StoreFile, write::Writer},
};

mod audit;
mod batch;
mod connect;
mod file;
mod history;
mod read;
mod replace;
mod vault;
mod write;

/// Store in one SQLite file, opened by one process.
#[derive(Debug)]
pub(crate) struct Sqlite {
    writer: Arc<Mutex<Writer>>,
    readers: SqlitePool,
}

impl Sqlite {
    /// Opens the store in a file, which is created if it does not exist.
    pub(crate) async fn open(path: &Path, now: Timestamp) -> Result<Self, OpenError> {
        let file = StoreFile::open(path)?;
        connect::prepare(&file, now).await?;
        let readers = connect::readers(file.path());
        tracing::info!(path = %file.path().display(), "store opened");
        Ok(Self { writer: Arc::new(Mutex::new(Writer::new(file))), readers })
    }

    /// Inspects a file without creating or changing anything.
    pub(crate) async fn inspect(path: &Path) -> Result<StoreState, OpenError> {
        match file::inspect(path)? {
            file::FileState::Nothing => Ok(StoreState::Absent),
            file::FileState::Locked { holder } => Ok(StoreState::InUse { holder }),
            file::FileState::File(path) => connect::check(&path).await.map(|()| StoreState::Ready),
        }
    }

    /// Runs a write to completion, even if the caller is canceled.
    async fn write<T, E, F>(
        &self,
        write: impl FnOnce(OwnedMutexGuard<Writer>) -> F + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let writer = Arc::clone(&self.writer).lock_owned().await;
        let task = tokio::spawn(write(writer));
        task.await.unwrap_or_else(|error| Err(StoreError::unavailable("finish the write", error).into()))
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn load(&self) -> Result<StoredState, StoreError> {
        read::load(&self.readers).await
    }

    async fn commit_with_records(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
        audit: &[AuditRecord],
    ) -> Result<(), CommitError> {
        records::check(audit)?;
        let group = group::encode(at, commits, history)?;
        let audit = audit.to_vec();
        self.write(async move |mut writer| writer.commit(at, &group, &audit).await).await
    }

    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError> {
        records::check(records)?;
        let records = records.to_vec();
        self.write(async move |mut writer| writer.put_audit(&records).await).await
    }

    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        self.write(async move |mut writer| writer.drop_old_audit(now).await).await
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        audit::list(&self.readers, before, limit).await
    }

    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
        history::list(&self.readers, query).await
    }

    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError> {
        history::read(&self.readers, first, limit).await
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError> {
        read::changes(&self.readers, after, limit).await
    }

    async fn head(&self) -> Result<Position, StoreError> {
        read::head(&self.readers).await
    }

    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError> {
        check_status(key, body)?;
        let (key, body) = (key.to_owned(), body.to_vec());
        self.write(async move |mut writer| writer.put_status(key, body).await).await
    }

    async fn remove_status(&self, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.write(async move |mut writer| writer.remove_status(key).await).await
    }

    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        read::statuses(&self.readers).await
    }

    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError> {
        self.write(async move |mut writer| writer.raise_epoch(now).await).await
    }

    async fn replace(
        &self,
        at: Position,
        contents: &Contents,
        above: Epoch,
        now: Timestamp,
    ) -> Result<Position, ReplaceError> {
        contents.check()?;
        let epoch = epoch_after(Some(at.epoch.max(above)), now);
        let new = Position { epoch, revision: contents.revision };
        let replacement = replace::Replacement::of(contents);
        self.write(async move |mut writer| writer.replace(at, &replacement, new).await).await
    }

    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
        vault::list(&self.readers).await
    }

    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError> {
        crate::vault::check(key, body)?;
        let (key, body) = (key.to_owned(), body.map(<[u8]>::to_vec));
        self.write(async move |mut writer| writer.put_vault(&key, at, body.as_deref()).await).await
    }

    async fn moved(&self, _: Position) -> Result<(), StoreError> {
        std::future::pending().await
    }

    fn leadership(&self) -> watch::Receiver<bool> {
        sole_leadership()
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn resign(&self) {}

    fn figures(&self) -> Option<Figures> {
        None
    }
}
