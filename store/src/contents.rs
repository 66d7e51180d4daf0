//! Cluster data of a store in a form that does not depend on the backend, for backups and for migrations
//! between stores.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use model::{
    cluster::history::RevisionEntry,
    kinds::resource::Object,
    primitives::quantity::{Position, Revision},
};

use crate::{
    HistoryQuery, ObjectFilter, Store, StoredState, VAULT_RECORDS_MAX,
    error::{ReplaceError, StoreError},
    vault,
};

/// Number of history entries read at a time.
const ENTRIES_AT_ONCE: usize = 500;

/// Cluster data of a store at one revision. Does not include observed state, which agents report again, and
/// the audit log, which belongs to one store.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents {
    /// Revision of the last commit.
    pub revision: Revision,
    /// All objects in the order of store keys.
    pub objects: Vec<Arc<Object>>,
    /// Retained entries of the history, oldest first.
    pub history: Vec<RevisionEntry>,
    /// Revision up to which writes may be missing from the history.
    pub history_floor: Revision,
    /// Records of the vault (keys, tokens, roles) by key; all of them are secret.
    pub vault: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { revision, objects, history, history_floor: _, vault } = self;
        let (objects, history, vault) = (objects.len(), history.len(), vault.len());
        write!(
            f,
            "Contents {{ revision: {revision}, {objects} objects, {history} writes, {vault} vault records }}"
        )
    }
}

impl Contents {
    /// Reads the data of a store, even during writes: objects and history are those of one revision. The
    /// vault, which has no revisions, is read right afterwards.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub async fn of(store: &dyn Store, with_history: bool) -> Result<(Position, Self), StoreError> {
        let StoredState { position, objects, recent: _ } = store.load().await?;
        let revision = position.revision;
        let (history, history_floor) =
            if with_history { history_of(store, revision).await? } else { (Vec::new(), revision) };
        let vault = store.vault().await?;
        let vault = vault.into_iter().map(|(key, record)| (key, record.body)).collect();
        Ok((position, Self { revision, objects, history, history_floor, vault }))
    }

    /// Returns true if the contents equal those of a new store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { revision, objects, history, history_floor: _, vault } = self;
        revision.0 == 0 && objects.is_empty() && history.is_empty() && vault.is_empty()
    }

    /// Returns an error if the contents cannot come from a store, for example because an object occurs twice
    /// or was changed after the last commit.
    pub(crate) fn check(&self) -> Result<(), ReplaceError> {
        let Self { revision: head, objects, history, history_floor, vault } = self;
        let refuse = |why: String| Err(ReplaceError::Malformed(why));
        if i64::try_from(head.0).is_err() {
            return refuse(format!("revision {head} is beyond 2^63"));
        }
        let mut keys = BTreeSet::new();
        for object in objects {
            let (key, revision) = (object.key().to_store_key(), object.metadata.revision());
            if revision > *head {
                return refuse(format!("{key} has revision {revision}, the last is {head}"));
            }
            if !keys.insert(key.clone()) {
                return refuse(format!("{key} occurs twice"));
            }
        }
        let is_ordered = history.is_sorted_by(|a, b| a.revision < b.revision);
        if !is_ordered || history.last().is_some_and(|last| last.revision > *head) || history_floor > head {
            return refuse("the history is not in order".to_owned());
        }
        if vault.len() > VAULT_RECORDS_MAX {
            return refuse(format!(
                "the vault has {} records, at most {VAULT_RECORDS_MAX} are allowed",
                vault.len()
            ));
        }
        for (key, body) in vault {
            vault::check(key, Some(body)).map_err(|error| ReplaceError::Malformed(error.to_string()))?;
        }
        Ok(())
    }
}

async fn history_of(store: &dyn Store, head: Revision) -> Result<(Vec<RevisionEntry>, Revision), StoreError> {
    let mut history: Vec<RevisionEntry> = Vec::new();
    loop {
        let first = history.last().map_or(Revision(1), |last| last.revision.next());
        let entries = store.revisions(first, ENTRIES_AT_ONCE).await?;
        let is_all = entries.len() < ENTRIES_AT_ONCE;
        history.extend(entries.into_iter().take_while(|entry| entry.revision <= head));
        // Concurrent writes may be faster than this loop: entries newer than the objects end it too.
        if is_all || history.last().is_none_or(|last| last.revision >= head) {
            break;
        }
    }
    // Read last: entries dropped while this was reading are missing at most.
    let query = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: 0 };
    Ok((history, store.history(&query).await?.floor.min(head)))
}
