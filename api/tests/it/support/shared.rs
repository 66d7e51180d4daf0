//! Store that several servers in the process of the test share. For each server, a test can suppress
//! notifications, cut the connection, or set the leadership.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use model::{
    cluster::{change::Commit, history::RevisionEntry},
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use store::{
    AuditRecord, ChangesError, CommitError, Contents, Figures, HistoryPage, HistoryQuery, ReplaceError,
    StatusError, Store, StoreError, StoredState, VaultError, VaultRecord,
};
use tokio::sync::watch;

/// Memory store that several test servers share, with the notifier of its writes.
pub(crate) struct Shared {
    inner: Arc<dyn Store>,
    bell: Arc<watch::Sender<()>>,
}

/// Connection of one test server to the shared store, whose faults the test sets.
pub(crate) struct View {
    inner: Arc<dyn Store>,
    /// Store for the data that is local to the server: statuses and audit log.
    own: Arc<dyn Store>,
    bell: Arc<watch::Sender<()>>,
    is_deaf: watch::Sender<bool>,
    leads: watch::Sender<bool>,
    is_cut: AtomicBool,
    forgets: AtomicBool,
}

async fn memory() -> Arc<dyn Store> {
    store::open("memory:", Timestamp::from_unix_seconds(crate::support::START)).await.unwrap()
}

impl Shared {
    pub(crate) async fn new() -> Self {
        Self { inner: memory().await, bell: Arc::new(watch::channel(()).0) }
    }

    pub(crate) async fn view(&self, leads: bool) -> Arc<View> {
        Arc::new(View {
            inner: Arc::clone(&self.inner),
            own: memory().await,
            bell: Arc::clone(&self.bell),
            is_deaf: watch::channel(false).0,
            leads: watch::channel(leads).0,
            is_cut: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
        })
    }
}

impl View {
    /// Suppresses change notifications of the store while `is_deaf` is true; reads and writes still work.
    pub(crate) fn deafen(&self, is_deaf: bool) {
        self.is_deaf.send_replace(is_deaf);
    }

    /// Fails all calls to the store while `is_cut` is true.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
        // Wakes servers that wait for notifications.
        self.bell.send_replace(());
    }

    pub(crate) fn lead(&self, leads: bool) {
        self.leads.send_replace(leads);
    }

    /// Reports the change log as truncated while `forgets` is true, so that the server must reload the whole
    /// state.
    pub(crate) fn forget(&self, forgets: bool) {
        self.forgets.store(forgets, Ordering::SeqCst);
    }

    fn reached(&self) -> Result<&dyn Store, StoreError> {
        if self.is_cut.load(Ordering::SeqCst) {
            let cause = Arc::new(io::Error::other("no route to host"));
            return Err(StoreError::Unavailable { action: "be reached", cause });
        }
        Ok(&*self.inner)
    }
}

#[async_trait::async_trait]
impl Store for View {
    async fn load(&self) -> Result<StoredState, StoreError> {
        self.reached()?.load().await
    }
    async fn commit_with_records(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
        audit: &[AuditRecord],
    ) -> Result<(), CommitError> {
        self.reached()?.commit_with_records(at, commits, history, &[]).await?;
        self.bell.send_replace(());
        Ok(self.own.put_audit(audit).await?)
    }
    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError> {
        self.own.put_audit(records).await
    }
    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        self.own.drop_old_audit(now).await
    }
    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        self.own.audit(before, limit).await
    }
    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
        self.reached()?.history(query).await
    }
    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError> {
        self.reached()?.revisions(first, limit).await
    }
    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError> {
        if self.forgets.load(Ordering::SeqCst) {
            return Err(ChangesError::Compacted { oldest: after.next().next() });
        }
        // In small pieces, as with a long log.
        self.reached()?.changes(after, limit.min(3)).await
    }
    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError> {
        self.own.put_status(key, body).await
    }
    async fn remove_status(&self, key: &str) -> Result<(), StoreError> {
        self.own.remove_status(key).await
    }
    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        self.own.statuses().await
    }
    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError> {
        let position = self.reached()?.raise_epoch(now).await?;
        self.bell.send_replace(());
        Ok(position)
    }
    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
        self.reached()?.vault().await
    }
    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError> {
        self.reached()?.put_vault(key, at, body).await
    }
    async fn head(&self) -> Result<Position, StoreError> {
        self.reached()?.head().await
    }
    async fn moved(&self, at: Position) -> Result<(), StoreError> {
        let (mut bell, mut is_deaf) = (self.bell.subscribe(), self.is_deaf.subscribe());
        loop {
            let hears = !*is_deaf.borrow_and_update();
            if hears && self.head().await? != at {
                return Ok(());
            }
            tokio::select! {
                _ = bell.changed() => {}
                _ = is_deaf.changed() => {}
            }
        }
    }
    fn leadership(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }
    fn is_shared(&self) -> bool {
        true
    }
    async fn replace(
        &self,
        at: Position,
        contents: &Contents,
        above: Epoch,
        now: Timestamp,
    ) -> Result<Position, ReplaceError> {
        self.reached()?.replace(at, contents, above, now).await
    }
    async fn resign(&self) {
        self.leads.send_replace(false);
    }
    fn figures(&self) -> Option<Figures> {
        None
    }
}
