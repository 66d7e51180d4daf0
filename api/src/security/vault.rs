//! Vault: the part of the store that holds secrets (tokens, roles, keys). Requests read a copy in memory; writes
//! go to the store.
//!
//! If other processes share the store, the copy is refreshed every second, so that a revocation by one of them
//! takes effect at all of them within about a second. While the store cannot be read, the previous copy remains in
//! use.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use serde::{Serialize, de::DeserializeOwned};
use store::{Store, StoreError, VaultError, VaultRecord};
use tokio::sync::{Mutex, watch};

/// Interval at which the copy in memory is refreshed from a store that other processes share.
const REFRESH: Duration = Duration::from_secs(1);

/// Vault records by key.
pub(crate) type Records = BTreeMap<String, VaultRecord>;

/// Vault of the store, with a copy in memory.
pub(crate) struct Vault {
    store: Arc<dyn Store>,
    records: ArcSwap<Records>,
    /// Lock held during a refresh or write, so that the result of an older read of the store never replaces a
    /// newer copy.
    order: Mutex<()>,
    changed: watch::Sender<()>,
}

impl Vault {
    /// Loads the copy of the vault from the store.
    ///
    /// # Errors
    /// Returns an error if the vault cannot be read.
    pub(crate) async fn open(store: Arc<dyn Store>) -> Result<Arc<Self>, StoreError> {
        let records = ArcSwap::from_pointee(store.vault().await?);
        Ok(Arc::new(Self { store, records, order: Mutex::default(), changed: watch::channel(()).0 }))
    }

    /// Returns a consistent snapshot of all records.
    pub(crate) fn records(&self) -> Arc<Records> {
        self.records.load_full()
    }

    /// Returns a record with its version, or `None` if the record is absent or cannot be decoded.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<(u64, T)> {
        let records = self.records.load();
        let record = records.get(key)?;
        Some((record.version, read(key, record)?))
    }

    /// Returns the version of a record, or 0 if it is absent.
    pub(crate) fn version(&self, key: &str) -> u64 {
        self.records.load().get(key).map_or(0, |record| record.version)
    }

    /// Returns the records whose keys start with `prefix`: for each, the rest of the key, the version and the
    /// decoded record. Records that cannot be decoded are omitted.
    pub(crate) fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<(String, u64, T)> {
        let records = self.records.load();
        let own = records.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        own.filter_map(|(key, record)| {
            Some((key[prefix.len()..].to_owned(), record.version, read(key, record)?))
        })
        .collect()
    }

    /// Writes a record if its current version is `at` (0: absent). Returns the new version. Updates the copy
    /// before returning, also after [`VaultError::Stale`]: the copy then contains the conflicting record if
    /// the store can be read.
    ///
    /// # Errors
    /// Returns the errors of [`Store::put_vault`].
    pub(crate) async fn put<T: Serialize>(&self, key: &str, at: u64, record: &T) -> Result<u64, VaultError> {
        let body = serde_json::to_vec(record).expect("records of the vault have string keys only");
        self.write(key, at, Some(body)).await
    }

    /// Deletes a record if its current version is `at`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::put`].
    pub(crate) async fn remove(&self, key: &str, at: u64) -> Result<(), VaultError> {
        self.write(key, at, None).await.map(drop)
    }

    async fn write(&self, key: &str, at: u64, body: Option<Vec<u8>>) -> Result<u64, VaultError> {
        let _order = self.order.lock().await;
        let written = self.store.put_vault(key, at, body.as_deref()).await;
        match &written {
            Ok(version) => {
                let mut records = Records::clone(&self.records.load());
                match body {
                    Some(body) => {
                        drop(records.insert(key.to_owned(), VaultRecord { version: *version, body }))
                    }
                    None => drop(records.remove(key)),
                }
                self.publish(records);
            }
            Err(VaultError::TooLarge { .. }) => {}
            Err(VaultError::Stale { .. } | VaultError::Unavailable(_)) => {
                if let Ok(records) = self.store.vault().await {
                    self.publish(records);
                }
            }
        }
        written
    }

    /// Reloads the copy of the whole vault from the store.
    ///
    /// # Errors
    /// Returns an error if the vault cannot be read; the copy is unchanged then.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _order = self.order.lock().await;
        let records = self.store.vault().await?;
        if **self.records.load() != records {
            self.publish(records);
        }
        Ok(())
    }

    /// Returns a receiver that is notified after each change of the records.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn publish(&self, records: Records) {
        self.records.store(Arc::new(records));
        self.changed.send_replace(());
    }
}

/// Refreshes the copy from a shared store at intervals. Ends when the vault is dropped, or at once if the store is
/// not shared.
pub(crate) async fn follow(vault: Weak<Vault>) {
    let mut is_failing = false;
    let mut turn = tokio::time::interval(REFRESH);
    loop {
        turn.tick().await;
        let Some(vault) = vault.upgrade().filter(|vault| vault.store.is_shared()) else { return };
        match vault.refresh().await {
            Ok(()) => is_failing = false,
            Err(error) if !is_failing => {
                is_failing = true;
                tracing::warn!(%error, "cannot read the vault; the last known tokens and certificates \
                                        stay in use");
            }
            Err(_) => {}
        }
    }
}

/// Decodes a vault record. An error is logged with the key only, because the contents are secret.
fn read<T: DeserializeOwned>(key: &str, record: &VaultRecord) -> Option<T> {
    let read = serde_json::from_slice(&record.body);
    if read.is_err() {
        tracing::warn!(key, "cannot read a record of the vault; it counts as absent");
    }
    read.ok()
}

#[cfg(test)]
mod tests {
    use model::primitives::quantity::Timestamp;

    use super::*;

    async fn memory() -> Arc<dyn Store> {
        store::open("memory:", Timestamp::from_unix_seconds(1)).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_written_is_known_at_once_and_what_others_write_after_a_refresh() {
        let store = memory().await;
        let (own, other) =
            (Vault::open(Arc::clone(&store)).await.unwrap(), Vault::open(store).await.unwrap());
        let mut changes = own.changes();
        let first = own.put("tokens/a", 0, &"one").await.unwrap();
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(own.get::<String>("tokens/a"), Some((first, "one".to_owned())));
        assert_eq!(other.get::<String>("tokens/a"), None);
        other.refresh().await.unwrap();
        assert_eq!(other.list::<String>("tokens/"), [("a".to_owned(), first, "one".to_owned())]);
        assert_eq!(other.list::<String>("tokens/b"), []);
        // A stale write loads the conflicting record.
        other.put("tokens/a", first, &"two").await.unwrap();
        let late = own.put("tokens/a", first, &"three").await;
        assert!(matches!(late, Err(VaultError::Stale { .. })), "{late:?}");
        assert_eq!(own.get::<String>("tokens/a").unwrap().1, "two");
        own.remove("tokens/a", own.version("tokens/a")).await.unwrap();
        assert_eq!(own.version("tokens/a"), 0);
        assert!(own.records().is_empty());
        changes.mark_unchanged();
        own.refresh().await.unwrap();
        assert!(!changes.has_changed().unwrap(), "a refresh that finds nothing new tells nobody");
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_counts_as_absent() {
        let vault = Vault::open(memory().await).await.unwrap();
        vault.put("tokens/a", 0, &"text").await.unwrap();
        assert_eq!(vault.get::<u64>("tokens/a"), None);
        assert_eq!(vault.list::<u64>("tokens/"), []);
        assert!(vault.version("tokens/a") > 0);
    }
}
