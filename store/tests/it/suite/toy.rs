//! Minimal shared store: several handles on one in-memory store, as if each belonged to another process. The
//! toy follows the recipe for a store in ARCHITECTURE.md and runs the same scenarios as the other stores.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use model::{
    cluster::{change::Commit, history::RevisionEntry},
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use store::{
    AuditRecord, ChangesError, CommitError, Contents, Figures, HistoryPage, HistoryQuery, ReplaceError,
    StatusError, Store, StoreError, StoredState, VaultError, VaultRecord,
};
use tokio::sync::{OnceCell, watch};

/// In-memory store, and the state that its handles share.
#[derive(Default)]
pub(crate) struct ToyCluster {
    data: OnceCell<Arc<dyn Store>>,
    /// Channel that notifies the handles of writes.
    bell: watch::Sender<()>,
    /// Leadership flags of the handles that have not resigned, in the order of opening; the first handle
    /// leads.
    candidates: Mutex<Vec<Arc<watch::Sender<bool>>>>,
}

/// Handle on the shared store, as if a separate process had opened it.
pub(crate) struct ToyStore {
    cluster: Arc<ToyCluster>,
    data: Arc<dyn Store>,
    leads: Arc<watch::Sender<bool>>,
}

impl ToyCluster {
    fn candidates(&self) -> MutexGuard<'_, Vec<Arc<watch::Sender<bool>>>> {
        self.candidates.lock().unwrap()
    }

    fn remove_candidate(&self, candidate: &Arc<watch::Sender<bool>>) {
        let mut candidates = self.candidates();
        candidates.retain(|other| !Arc::ptr_eq(other, candidate));
        candidate.send_replace(false);
        if let Some(first) = candidates.first() {
            first.send_replace(true);
        }
    }
}

impl ToyStore {
    pub(crate) async fn open(cluster: &Arc<ToyCluster>, now: Timestamp) -> Self {
        let memory = async || store::open("memory:", now).await.unwrap();
        let data = Arc::clone(cluster.data.get_or_init(memory).await);
        let leads = {
            let mut candidates = cluster.candidates();
            let leads = Arc::new(watch::channel(candidates.is_empty()).0);
            candidates.push(Arc::clone(&leads));
            leads
        };
        Self { cluster: Arc::clone(cluster), data, leads }
    }
}

impl Drop for ToyStore {
    fn drop(&mut self) {
        self.cluster.remove_candidate(&self.leads);
    }
}

#[async_trait]
impl Store for ToyStore {
    async fn load(&self) -> Result<StoredState, StoreError> {
        self.data.load().await
    }

    async fn commit_with_records(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
        audit: &[AuditRecord],
    ) -> Result<(), CommitError> {
        self.data.commit_with_records(at, commits, history, audit).await?;
        self.cluster.bell.send_replace(());
        Ok(())
    }

    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError> {
        self.data.put_audit(records).await
    }

    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        self.data.drop_old_audit(now).await
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        self.data.audit(before, limit).await
    }

    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
        self.data.history(query).await
    }

    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError> {
        self.data.revisions(first, limit).await
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError> {
        self.data.changes(after, limit).await
    }

    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError> {
        self.data.put_status(key, body).await
    }

    async fn remove_status(&self, key: &str) -> Result<(), StoreError> {
        self.data.remove_status(key).await
    }

    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        self.data.statuses().await
    }

    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError> {
        let position = self.data.raise_epoch(now).await?;
        self.cluster.bell.send_replace(());
        Ok(position)
    }

    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
        self.data.vault().await
    }

    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError> {
        self.data.put_vault(key, at, body).await
    }

    async fn replace(
        &self,
        at: Position,
        contents: &Contents,
        above: Epoch,
        now: Timestamp,
    ) -> Result<Position, ReplaceError> {
        let position = self.data.replace(at, contents, above, now).await?;
        self.cluster.bell.send_replace(());
        Ok(position)
    }

    async fn head(&self) -> Result<Position, StoreError> {
        self.data.head().await
    }

    async fn moved(&self, at: Position) -> Result<(), StoreError> {
        let mut bell = self.cluster.bell.subscribe();
        while self.head().await? == at {
            // The sender lives as long as this handle.
            let _ = bell.changed().await;
        }
        Ok(())
    }

    fn leadership(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn resign(&self) {
        self.cluster.remove_candidate(&self.leads);
    }

    fn figures(&self) -> Option<Figures> {
        None
    }
}
