//! The vault as this process knows it: a copy in memory that every request may ask, and the way to write.
//!
//! Where other processes use the store too, the copy is read again every second, so what one of them takes back (a token,
//! a certificate) counts everywhere within about a second. While the store cannot be read, the copy stays as it was.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use serde::{Serialize, de::DeserializeOwned};
use store::{Store, StoreError, VaultError, VaultRecord};
use tokio::sync::{Mutex, watch};

/// Time between two looks at a store that others write to.
const REFRESH: Duration = Duration::from_secs(1);

/// Every record, by its key.
pub(crate) type Records = BTreeMap<String, VaultRecord>;

/// The vault of the store, with a copy of it in memory.
pub(crate) struct Vault {
    store: Arc<dyn Store>,
    records: ArcSwap<Records>,
    /// Held while the copy is brought in line with the store, so that an older reading never replaces a newer one.
    order: Mutex<()>,
    changed: watch::Sender<()>,
}

impl Vault {
    /// Reads the vault.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) async fn open(store: Arc<dyn Store>) -> Result<Arc<Self>, StoreError> {
        let records = ArcSwap::from_pointee(store.vault().await?);
        Ok(Arc::new(Self { store, records, order: Mutex::default(), changed: watch::channel(()).0 }))
    }

    /// Every record, as of one instant.
    pub(crate) fn records(&self) -> Arc<Records> {
        self.records.load_full()
    }

    /// A record with its version. `None` when there is none, or none that can be read.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<(u64, T)> {
        let records = self.records.load();
        let record = records.get(key)?;
        Some((record.version, read(key, record)?))
    }

    /// The version of a record; 0 when there is none.
    pub(crate) fn version(&self, key: &str) -> u64 {
        self.records.load().get(key).map_or(0, |record| record.version)
    }

    /// The records whose keys begin so, by the rest of their keys, with their versions; without those that cannot be read.
    pub(crate) fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<(String, u64, T)> {
        let records = self.records.load();
        let own = records.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        own.filter_map(|(key, record)| {
            Some((key[prefix.len()..].to_owned(), record.version, read(key, record)?))
        })
        .collect()
    }

    /// Writes a record in place of the version `at` (0: of nothing). The copy has it when this returns; after
    /// [`VaultError::Stale`] the copy has what stood in the way. Answers the version.
    ///
    /// # Errors
    /// As [`Store::put_vault`].
    pub(crate) async fn put<T: Serialize>(&self, key: &str, at: u64, record: &T) -> Result<u64, VaultError> {
        let body = serde_json::to_vec(record).expect("records of the vault have string keys only");
        self.write(key, at, Some(body)).await
    }

    /// Removes a record of the version `at`.
    ///
    /// # Errors
    /// As [`Self::put`].
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

    /// Reads the whole vault again.
    ///
    /// # Errors
    /// It cannot be read; the copy stays as it was.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _order = self.order.lock().await;
        let records = self.store.vault().await?;
        if **self.records.load() != records {
            self.publish(records);
        }
        Ok(())
    }

    /// Tells when records have changed, from then on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn publish(&self, records: Records) {
        self.records.store(Arc::new(records));
        self.changed.send_replace(());
    }
}

/// Follows what other processes write; ends with the vault, and at once where there are none.
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
                tracing::warn!(%error, "the vault cannot be read; tokens and certificates count as they did before");
            }
            Err(_) => {}
        }
    }
}

/// Says of a record that cannot be read only where it is: what it holds is secret.
fn read<T: DeserializeOwned>(key: &str, record: &VaultRecord) -> Option<T> {
    let read = serde_json::from_slice(&record.body);
    if read.is_err() {
        tracing::warn!(key, "a record of the vault cannot be read, and counts as absent");
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
        // Who is too late learns what stood in the way.
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
