//! Store in etcd, shared by several processes.
//!
//! Log-structured: each commit appends its changes to a log in one transaction, which succeeds only if the
//! key `head` (the current position: epoch and revision) is unchanged. The leading process later folds the
//! log: it moves the changes to one key per object, and deletes old log entries. The key `base` contains the
//! revision up to which the log has been folded. A reader loads the objects and the log entries after `base`,
//! all at one etcd revision.
//!
//! ```text
//! commit ──▶ head unchanged? ──▶ head, log, history     one transaction
//! leader ──▶ log ──fold──▶ objects, base                see the module `keep`
//! reader ◀── objects + log after base                   key layout: see the module `keys`
//! ```
//! A commit needs only a few etcd puts, however many objects it changes. Commits of any size are atomic:
//! values too large for a request are written beforehand in pieces, which have no effect until the commit
//! references them.
//!
//! Statuses and the audit log are not stored in etcd. They change often and belong to one process, so each
//! process keeps them in a local store.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use model::{
    cluster::{change::Commit, history::RevisionEntry},
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use tokio::sync::{Mutex, watch};

use crate::{
    AuditRecord, CHANGES_KEPT, ChangesError, CommitError, Contents, HistoryPage, HistoryQuery, ReplaceError,
    StatusError, Store, StoreError, StoreState, StoredState, VaultError, VaultRecord, audit as records,
    error::OpenError, group, open::epoch_after,
};

mod attempt;
mod figures;
mod fold;
mod follow;
mod history;
mod keep;
mod keys;
mod lead;
mod link;
mod mirror;
mod options;
mod past;
mod prepare;
mod read;
mod replace;
mod trim;
mod vault;
mod wire;
mod write;

pub use figures::Figures;
pub use options::{ETCD_FOLD_AFTER_DEFAULT, ETCD_PREFIX_DEFAULT, EtcdOptions};

use keys::Keys;
use link::Link;
use mirror::{LogGroup, Mirror};

/// Store in an etcd cluster, shared by several processes.
pub(crate) struct Etcd {
    core: Arc<Core>,
    /// Local store of statuses and the audit log.
    local: Arc<dyn Store>,
    leads: watch::Receiver<bool>,
    /// Sender whose drop stops the background tasks.
    _alive: watch::Sender<()>,
    /// Sender whose drop ends the election task, and with it leadership and maintenance.
    candidate: std::sync::Mutex<Option<watch::Sender<()>>>,
}

/// Maximum time for releasing leadership when a server stops.
const RESIGN_PATIENCE: Duration = Duration::from_secs(2);

/// State shared by the tasks of a store.
pub(crate) struct Core {
    link: Link,
    keys: Keys,
    /// Cached state of the etcd store; `None` if it may be incorrect and must be read again. Each commit
    /// holds the lock, which serializes commits.
    mirror: Arc<Mutex<Option<Mirror>>>,
    history: history::Index,
    /// Newest known position (epoch and revision) of the store.
    head: watch::Sender<Position>,
}

impl Core {
    /// Publishes a position (epoch and revision) of the store to the waiting tasks, unless a later one has
    /// already been published.
    fn moved_to(&self, position: Position) {
        self.head.send_if_modified(|known| {
            let is_new = position > *known;
            if is_new {
                *known = position;
            }
            is_new
        });
    }
}

impl Etcd {
    /// Inspects the store at the given etcd members without creating anything.
    pub(crate) async fn inspect(members: &str, options: &EtcdOptions) -> Result<StoreState, OpenError> {
        let reach = options::check(members, options)?;
        prepare::inspect(&Link::new(reach), &Keys::new(&options.prefix)).await
    }

    /// Opens the store at the given etcd members, and creates it if it does not exist.
    pub(crate) async fn open(
        members: &str,
        options: &EtcdOptions,
        local: Arc<dyn Store>,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let reach = options::check(members, options)?;
        let (link, keys) = (Link::new(reach), Keys::new(&options.prefix));
        let position = prepare::prepare(&link, &keys, now).await?;
        let core = Arc::new(Core {
            link,
            keys,
            mirror: Arc::default(),
            history: history::Index::default(),
            head: watch::Sender::new(position),
        });
        let (alive, _) = watch::channel(());
        let (candidate, _) = watch::channel(());
        let (leader, leads) = watch::channel(false);
        tokio::spawn(follow::run(Arc::clone(&core), alive.subscribe()));
        tokio::spawn(lead::run(Arc::clone(&core), leader, candidate.subscribe()));
        tokio::spawn(keep::run(Arc::clone(&core), options.clone(), leads.clone(), alive.subscribe()));
        tracing::info!(prefix = core.keys.prefix(), %position, "store opened in etcd");
        Ok(Self { core, local, leads, _alive: alive, candidate: std::sync::Mutex::new(Some(candidate)) })
    }
}

#[async_trait]
impl Store for Etcd {
    async fn load(&self) -> Result<StoredState, StoreError> {
        // Waits for a commit of this process in flight before reading.
        drop(self.core.mirror.lock().await);
        let (loaded, fresh) = read::load(&self.core.link, &self.core.keys).await?;
        let mut mirror = self.core.mirror.lock().await;
        if mirror.as_ref().is_none_or(|known| known.position < fresh.position) {
            *mirror = Some(fresh);
        }
        self.core.moved_to(loaded.position);
        Ok(loaded)
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
        let mut mirror = Arc::clone(&self.core.mirror).lock_owned().await;
        let (core, local, audit) = (Arc::clone(&self.core), Arc::clone(&self.local), audit.to_vec());
        // A separate task completes the commit even if the caller is cancelled, so that the next commit knows
        // its outcome.
        let task = tokio::spawn(async move {
            write::commit(&core, &mut mirror, at, &group).await?;
            if !audit.is_empty()
                && let Err(error) = local.put_audit(&audit).await
            {
                tracing::warn!(error = %crate::error::Chain(&error), "a commit is missing from the audit \
                                                                      log");
            }
            Ok(())
        });
        task.await.unwrap_or_else(|error| Err(StoreError::unavailable("finish the write", error).into()))
    }

    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError> {
        self.local.put_audit(records).await
    }

    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        self.local.drop_old_audit(now).await
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        self.local.audit(before, limit).await
    }

    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
        history::list(&self.core, query).await
    }

    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError> {
        history::revisions(&self.core, first, limit).await
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError> {
        let mut mirror = self.core.mirror.lock().await;
        let behind = mirror.as_ref().map(|known| known.position.revision);
        let fresh = write::sync(&self.core, &mut mirror).await?;
        let known = mirror.as_ref().map(|known| (known.position.revision, known.oldest()));
        drop(mirror);
        let Some((head, Some(oldest))) = known else { return Ok(Vec::new()) };
        if after.0.saturating_add(1) < oldest.0 {
            return Err(ChangesError::Compacted { oldest });
        }
        let groups = match behind {
            _ if after >= head => return Ok(Vec::new()),
            // Usually the caller is at the same position as this process was.
            Some(behind) if after >= behind && !fresh.is_empty() => fresh,
            Some(_) | None => read::log_from(&self.core.link, &self.core.keys, after.next()).await?.1,
        };
        // The head may have moved since, and the requested commits may have left the log.
        let first = groups.first().map(LogGroup::commits).transpose()?;
        let first = first.and_then(|commits| commits.first().map(|commit| commit.revision));
        if let Some(first) = first.filter(|first| *first > after.next()) {
            return Err(ChangesError::Compacted { oldest: first });
        }
        let limit = limit.min(CHANGES_KEPT);
        let decoded = tokio::task::spawn_blocking(move || decode(&groups, after, limit));
        let decoded = decoded.await;
        Ok(decoded.unwrap_or_else(|error| Err(StoreError::unavailable("decode the change log", error)))?)
    }

    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError> {
        self.local.put_status(key, body).await
    }

    async fn remove_status(&self, key: &str) -> Result<(), StoreError> {
        self.local.remove_status(key).await
    }

    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        self.local.statuses().await
    }

    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError> {
        let mirror = self.core.mirror.lock().await;
        let position = write::raise_epoch(&self.core, now).await?;
        self.core.moved_to(position);
        drop(mirror);
        Ok(position)
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
        let mut mirror = Arc::clone(&self.core.mirror).lock_owned().await;
        let (core, contents) = (Arc::clone(&self.core), contents.clone());
        let task = tokio::spawn(async move {
            *mirror = None;
            let outcome = replace::run(&core, at, &contents, new).await;
            core.history.forget().await;
            outcome
        });
        let failed = |error| StoreError::unavailable("finish the replacement", error);
        task.await.map_err(failed)??;
        self.core.moved_to(new);
        for key in self.local.statuses().await?.keys() {
            self.local.remove_status(key).await?;
        }
        Ok(new)
    }

    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
        vault::list(&self.core).await
    }

    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError> {
        crate::vault::check(key, body)?;
        vault::put(&self.core, key, at, body).await
    }

    async fn head(&self) -> Result<Position, StoreError> {
        let position = read::head(&self.core.link, &self.core.keys).await?.position;
        self.core.moved_to(position);
        Ok(position)
    }

    async fn moved(&self, at: Position) -> Result<(), StoreError> {
        let mut head = self.core.head.subscribe();
        // The sender lives as long as the store.
        let _ = head.wait_for(|known| *known > at).await;
        Ok(())
    }

    fn leadership(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn resign(&self) {
        drop(self.candidate.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut leads = self.leads.clone();
        // The task ends after releasing leadership.
        let ended = async { while leads.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(RESIGN_PATIENCE, ended).await;
    }

    fn figures(&self) -> Option<Figures> {
        Some(self.core.link.counters.read())
    }
}

fn decode(groups: &[LogGroup], after: Revision, limit: usize) -> Result<Vec<Commit>, StoreError> {
    let mut commits = Vec::new();
    for group in groups {
        for commit in group.commits()? {
            if commit.revision > after && commits.len() < limit {
                commits.push(commit.decode()?);
            }
        }
    }
    Ok(commits)
}
