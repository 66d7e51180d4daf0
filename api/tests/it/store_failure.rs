//! Tests of store failures: no failed write is reported as successful, and committed data is found again.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use api::context::server_state::ServerState;
use model::{
    cluster::{change::Commit, history::RevisionEntry},
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use serde_json::json;
use store::{
    AuditRecord, ChangesError, CommitError, Contents, Figures, HistoryPage, HistoryQuery, ReplaceError,
    StatusError, Store, StoreError, StoredState, VaultError, VaultRecord,
};
use tokio::sync::watch;

use crate::support;

const WORKS: u8 = 0;
/// Mode in which commits fail without effect and reads fail.
const DOWN: u8 = 1;
/// Mode in which commits take effect but return an error.
const LIES: u8 = 2;

/// Store that fails as the current mode specifies. The test sets the mode.
struct Flaky {
    inner: Arc<dyn Store>,
    mode: AtomicU8,
}

impl Flaky {
    fn failure(&self) -> StoreError {
        StoreError::Unavailable { action: "write", cause: Arc::new(io::Error::other("no space")) }
    }
}

#[async_trait::async_trait]
impl Store for Flaky {
    async fn load(&self) -> Result<StoredState, StoreError> {
        if self.mode.load(Ordering::SeqCst) == DOWN { Err(self.failure()) } else { self.inner.load().await }
    }
    async fn commit_with_records(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
        audit: &[AuditRecord],
    ) -> Result<(), CommitError> {
        match self.mode.load(Ordering::SeqCst) {
            WORKS => self.inner.commit_with_records(at, commits, history, audit).await,
            DOWN => Err(self.failure().into()),
            _ => {
                self.inner.commit_with_records(at, commits, history, audit).await?;
                Err(self.failure().into())
            }
        }
    }
    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError> {
        self.inner.put_audit(records).await
    }
    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        self.inner.drop_old_audit(now).await
    }
    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        self.inner.audit(before, limit).await
    }
    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
        self.inner.history(query).await
    }
    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError> {
        self.inner.revisions(first, limit).await
    }
    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError> {
        if self.mode.load(Ordering::SeqCst) == DOWN {
            return Err(self.failure().into());
        }
        self.inner.changes(after, limit).await
    }
    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError> {
        self.inner.put_status(key, body).await
    }
    async fn remove_status(&self, key: &str) -> Result<(), StoreError> {
        self.inner.remove_status(key).await
    }
    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        self.inner.statuses().await
    }
    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError> {
        self.inner.raise_epoch(now).await
    }
    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
        self.inner.vault().await
    }
    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError> {
        self.inner.put_vault(key, at, body).await
    }
    async fn replace(
        &self,
        at: Position,
        contents: &Contents,
        above: Epoch,
        now: Timestamp,
    ) -> Result<Position, ReplaceError> {
        self.inner.replace(at, contents, above, now).await
    }
    async fn head(&self) -> Result<Position, StoreError> {
        if self.mode.load(Ordering::SeqCst) == DOWN { Err(self.failure()) } else { self.inner.head().await }
    }
    async fn moved(&self, at: Position) -> Result<(), StoreError> {
        self.inner.moved(at).await
    }
    fn leadership(&self) -> watch::Receiver<bool> {
        self.inner.leadership()
    }
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
    async fn resign(&self) {
        self.inner.resign().await;
    }
    fn figures(&self) -> Option<Figures> {
        self.inner.figures()
    }
}

async fn start() -> (support::Server, Arc<Flaky>) {
    let plain = support::start().await;
    let inner = store::open("memory:", Timestamp::from_unix_seconds(support::START)).await.unwrap();
    let flaky = Arc::new(Flaky { inner, mode: AtomicU8::new(WORKS) });
    let store: Arc<dyn Store> = flaky.clone();
    let running =
        ServerState::start(support::settings(30000..=32767), store, plain.source.clone()).await.unwrap();
    let router = api::service(Arc::clone(&running.app));
    (support::Server { router, running, source: plain.source }, flaky)
}

fn service(name: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name }, "spec": { "clusterIP": "None" } })
}

const PATH: &str = "/v1/namespaces/default/services";

#[tokio::test]
async fn a_write_that_the_store_refuses_is_unavailable_and_changes_nothing() {
    let (server, flaky) = start().await;
    assert_eq!(server.call("POST", PATH, Some(service("a"))).await.0, 201);
    flaky.mode.store(DOWN, Ordering::SeqCst);
    let (status, problem) = server.call("POST", PATH, Some(service("b"))).await;
    assert_eq!((status, problem["code"].as_str()), (503, Some("Unavailable")));
    assert_eq!(server.call("GET", "/readyz", None).await.0, 503);
    assert_eq!(server.call("GET", "/healthz", None).await.0, 200);
    assert_eq!(server.call("GET", &format!("{PATH}/a"), None).await.0, 200, "reads go on");
    assert_eq!(server.call("GET", &format!("{PATH}/b"), None).await.0, 404);
    flaky.mode.store(WORKS, Ordering::SeqCst);
    for attempt in 0.. {
        let (status, body) = server.call("POST", PATH, Some(service("b"))).await;
        if status == 201 {
            assert_eq!(body["metadata"]["resourceVersion"], "2", "no revision was lost");
            return;
        }
        assert!(status == 503 && attempt < 50, "{status}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_write_that_happened_although_the_store_failed_is_found_again() {
    let (server, flaky) = start().await;
    flaky.mode.store(LIES, Ordering::SeqCst);
    assert_eq!(server.call("POST", PATH, Some(service("a"))).await.0, 503);
    flaky.mode.store(WORKS, Ordering::SeqCst);
    let (status, problem) = server.call("POST", PATH, Some(service("a"))).await;
    assert_eq!((status, problem["code"].as_str()), (409, Some("AlreadyExists")));
    assert_eq!(server.call("POST", PATH, Some(service("b"))).await.0, 201);
}
