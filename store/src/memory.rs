//! Store in memory, whose contents are lost when the process ends: for tests and trials, and as the simplest
//! implementation of the trait `Store`.
//!
//! Objects are encoded as in the other stores, so that limits and rejections are the same.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use imbl::OrdMap;
use model::{
    cluster::{
        change::{ChangeKind, Commit},
        history::{Maker, RevisionEntry},
    },
    kinds::resource::Object,
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use tokio::sync::watch;

use crate::{
    AUDIT_AGE_MAX_SECS, AuditRecord, CHANGES_KEPT, ChangesError, CommitError, Contents, Figures, HistoryPage,
    HistoryQuery, ReplaceError, STATUSES_MAX, StatusError, Store, StoreError, StoredState, VAULT_RECORDS_MAX,
    VaultError, VaultRecord,
    audit::{self, AuditPool},
    group::{self, Group},
    history,
    open::{check_status, epoch_after, sole_leadership},
    vault,
    window::{Bounds, Entry, Window},
};

/// Store in memory, for tests and trials.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<State>);

#[derive(Debug)]
struct State {
    position: Position,
    objects: OrdMap<String, Arc<Object>>,
    log: VecDeque<Commit>,
    window: Window,
    history: History,
    audit: Audit,
    statuses: BTreeMap<String, Vec<u8>>,
    vault: BTreeMap<String, VaultRecord>,
    vault_version: u64,
}

/// Audit records by number, for each [`AuditPool`].
#[derive(Debug, Default)]
struct Audit([BTreeMap<u64, AuditRecord>; AuditPool::ALL.len()]);

impl Audit {
    /// Adds audit records and drops the oldest ones of the same pool above its limit.
    fn keep(&mut self, records: &[AuditRecord]) {
        for record in records {
            if self.0.iter().all(|own| !own.contains_key(&record.number)) {
                self.0[usize::from(record.pool.number())].insert(record.number, record.clone());
            }
        }
        for (own, pool) in self.0.iter_mut().zip(AuditPool::ALL) {
            while own.len() > pool.kept() {
                own.pop_first();
            }
        }
    }

    fn drop_old(&mut self, now: Timestamp) {
        let oldest = now.unix_seconds().saturating_sub(AUDIT_AGE_MAX_SECS);
        for own in &mut self.0 {
            own.retain(|_, record| record.at.unix_seconds() >= oldest);
        }
    }

    /// Returns at most `limit` audit records with a number below `before`, newest first.
    fn before(&self, before: u64, limit: usize) -> Vec<AuditRecord> {
        let newest = |own| BTreeMap::range(own, ..before).rev().take(limit);
        let both: BTreeMap<_, _> = self.0.iter().flat_map(newest).collect();
        both.into_values().rev().take(limit).cloned().collect()
    }
}

/// Retained history entries, with separate windows for client and server writes.
#[derive(Debug)]
struct History {
    entries: BTreeMap<Revision, RevisionEntry>,
    of_others: Window,
    of_server: Window,
    floor: Revision,
}

impl History {
    fn new() -> Self {
        let (of_others, of_server) = (Window::new(Bounds::HISTORY, []), Window::new(Bounds::SERVER, []));
        Self { entries: BTreeMap::new(), of_others, of_server, floor: Revision(0) }
    }

    /// Creates a history with the given entries. `floor` is the revision up to which client writes may be
    /// missing.
    fn of(entries: &[RevisionEntry], floor: Revision) -> Self {
        let window = |bounds, is_by_server| {
            let encoded = entries.iter().map(history::encode_alone);
            let own = encoded.filter(|entry| entry.is_by_server == is_by_server);
            Window::new(bounds, own.map(|entry| Entry { revision: entry.revision, bytes: entry.bytes() }))
        };
        Self {
            of_others: window(Bounds::HISTORY, false),
            of_server: window(Bounds::SERVER, true),
            entries: entries.iter().map(|entry| (entry.revision, entry.clone())).collect(),
            floor,
        }
    }

    fn add(&mut self, group: &Group, history: &[RevisionEntry]) {
        self.entries.extend(history.iter().map(|entry| (entry.revision, entry.clone())));
        for is_by_server in [false, true] {
            let window = if is_by_server { &mut self.of_server } else { &mut self.of_others };
            let added = group.history_entries(is_by_server);
            let dropped = window.drop_through(&added);
            window.advance(&added, dropped);
            let Some(dropped) = dropped else { continue };
            let is_own = |entry: &RevisionEntry| (entry.origin.maker == Maker::Server) == is_by_server;
            let old = self.entries.range(..=dropped).filter(|(_, entry)| is_own(entry));
            for revision in old.map(|(revision, _)| *revision).collect::<Vec<_>>() {
                self.entries.remove(&revision);
            }
            if !is_by_server {
                self.floor = dropped;
            }
        }
    }
}

impl Memory {
    /// Creates an empty store whose epoch is `now` in Unix seconds.
    pub(crate) fn new(now: Timestamp) -> Self {
        let position = Position { epoch: epoch_after(None, now), revision: Revision(0) };
        Self(Mutex::new(State {
            position,
            objects: OrdMap::new(),
            log: VecDeque::new(),
            window: Window::new(Bounds::CHANGES, []),
            history: History::new(),
            audit: Audit::default(),
            statuses: BTreeMap::new(),
            vault: BTreeMap::new(),
            vault_version: 0,
        }))
    }

    /// Locks the state, even if a panic in another thread poisoned the lock: every operation changes the
    /// state only after all steps that can fail, so the state is consistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn load(&self) -> Result<StoredState, StoreError> {
        let state = self.state();
        let recent = state.log.iter().cloned().collect();
        Ok(StoredState {
            position: state.position,
            objects: state.objects.values().cloned().collect(),
            recent,
        })
    }

    async fn commit_with_records(
        &self,
        at: Position,
        commits: &[Commit],
        history: &[RevisionEntry],
        audit: &[AuditRecord],
    ) -> Result<(), CommitError> {
        audit::check(audit)?;
        let group = group::encode(at, commits, history)?;
        let mut state = self.state();
        if state.position != at {
            return Err(CommitError::Stale { current: state.position });
        }
        let objects = apply(state.objects.clone(), commits, &group)?;
        state.objects = objects;
        state.position.revision = group.head();
        let entries = group.entries();
        let dropped = state.window.drop_through(&entries);
        state.window.advance(&entries, dropped);
        state.log.extend(commits.iter().cloned());
        while state.log.front().is_some_and(|commit| Some(commit.revision) < state.window.oldest()) {
            state.log.pop_front();
        }
        state.history.add(&group, history);
        state.audit.keep(audit);
        Ok(())
    }

    async fn put_audit(&self, records: &[AuditRecord]) -> Result<(), StoreError> {
        audit::check(records)?;
        self.state().audit.keep(records);
        Ok(())
    }

    async fn drop_old_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        self.state().audit.drop_old(now);
        Ok(())
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        Ok(self.state().audit.before(before.unwrap_or(u64::MAX), limit))
    }

    async fn history(&self, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
        let state = self.state();
        let before = query.before.unwrap_or(Revision(u64::MAX));
        let heads = state.history.entries.range(..before).rev().map(|(_, entry)| entry.head());
        let heads = heads.filter(|head| query.filter.matches(head)).take(query.limit).collect();
        Ok(HistoryPage { heads, floor: state.history.floor })
    }

    async fn revisions(&self, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, StoreError> {
        let state = self.state();
        let from_there = state.history.entries.range(first..).take(limit);
        Ok(from_there.map(|(_, entry)| entry.clone()).collect())
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Commit>, ChangesError> {
        let state = self.state();
        let Some(oldest) = state.window.oldest() else { return Ok(Vec::new()) };
        if after.0.saturating_add(1) < oldest.0 {
            return Err(ChangesError::Compacted { oldest });
        }
        let first = state.log.partition_point(|commit| commit.revision <= after);
        Ok(state.log.iter().skip(first).take(limit.min(CHANGES_KEPT)).cloned().collect())
    }

    async fn head(&self) -> Result<Position, StoreError> {
        Ok(self.state().position)
    }

    async fn put_status(&self, key: &str, body: &[u8]) -> Result<(), StatusError> {
        check_status(key, body)?;
        let mut state = self.state();
        let count = state.statuses.len();
        if count >= STATUSES_MAX && !state.statuses.contains_key(key) {
            return Err(StatusError::TooLarge {
                unit: "other statuses",
                found: count,
                limit: STATUSES_MAX - 1,
            });
        }
        state.statuses.insert(key.to_owned(), body.to_vec());
        Ok(())
    }

    async fn remove_status(&self, key: &str) -> Result<(), StoreError> {
        self.state().statuses.remove(key);
        Ok(())
    }

    async fn statuses(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        Ok(self.state().statuses.clone())
    }

    async fn raise_epoch(&self, now: Timestamp) -> Result<Position, StoreError> {
        let mut state = self.state();
        state.position.epoch = epoch_after(Some(state.position.epoch), now);
        Ok(state.position)
    }

    async fn replace(
        &self,
        at: Position,
        contents: &Contents,
        above: Epoch,
        now: Timestamp,
    ) -> Result<Position, ReplaceError> {
        contents.check()?;
        let Contents { revision, objects, history, history_floor, vault } = contents;
        let mut state = self.state();
        if state.position != at {
            return Err(ReplaceError::Stale { current: state.position });
        }
        let epoch = epoch_after(Some(at.epoch.max(above)), now);
        state.position = Position { epoch, revision: *revision };
        state.objects =
            objects.iter().map(|object| (object.key().to_store_key(), Arc::clone(object))).collect();
        state.log.clear();
        state.window = Window::new(Bounds::CHANGES, []);
        state.history = History::of(history, *history_floor);
        state.statuses.clear();
        state.vault.clear();
        for (key, body) in vault {
            state.vault_version += 1;
            let record = VaultRecord { version: state.vault_version, body: body.clone() };
            state.vault.insert(key.clone(), record);
        }
        Ok(state.position)
    }

    async fn vault(&self) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
        Ok(self.state().vault.clone())
    }

    async fn put_vault(&self, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError> {
        vault::check(key, body)?;
        let mut state = self.state();
        let found = state.vault.get(key).map_or(0, |record| record.version);
        if found != at {
            return Err(VaultError::Stale { found });
        }
        if found == 0 && body.is_some() && state.vault.len() >= VAULT_RECORDS_MAX {
            return Err(vault::full());
        }
        state.vault_version += 1;
        let version = state.vault_version;
        match body {
            Some(body) => {
                state.vault.insert(key.to_owned(), VaultRecord { version, body: body.to_vec() });
            }
            None => {
                state.vault.remove(key);
            }
        }
        Ok(version)
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

fn apply(
    mut objects: OrdMap<String, Arc<Object>>,
    commits: &[Commit],
    group: &Group,
) -> Result<OrdMap<String, Arc<Object>>, CommitError> {
    let changes = commits.iter().flat_map(|commit| &commit.changes);
    let encoded = group.commits.iter().flat_map(|commit| &commit.changes);
    for (change, encoded) in changes.zip(encoded) {
        let key = &encoded.key;
        let (existed, expected) = match change.kind {
            ChangeKind::Added => (objects.insert(key.clone(), Arc::clone(&change.object)).is_some(), false),
            ChangeKind::Modified => (objects.insert(key.clone(), Arc::clone(&change.object)).is_some(), true),
            ChangeKind::Deleted => (objects.remove(key).is_some(), true),
        };
        if existed != expected {
            return Err(group::misfit(change.kind, key));
        }
    }
    Ok(objects)
}
