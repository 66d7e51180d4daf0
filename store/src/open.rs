//! Opening of a store by its address, and the rules that all backends share.

use std::sync::Arc;

use model::primitives::quantity::{Epoch, Timestamp};
use tokio::sync::watch;

use crate::{
    EtcdOptions, STATUS_BYTES_MAX, STATUS_KEY_BYTES_MAX, Store,
    error::{OpenError, StatusError},
    etcd::Etcd,
    memory::Memory,
    sqlite::Sqlite,
};

/// Options for opening a store, in addition to its address.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Options of an etcd store.
    pub etcd: EtcdOptions,
    /// Address of the local store of this process, which holds agent reports and the audit log beside a
    /// shared store. Default: `memory:`.
    pub local: Option<String>,
}

/// Opens a store without additional settings. See [`open_with`].
///
/// # Errors
/// Same as [`open_with`].
pub async fn open(url: &str, now: Timestamp) -> Result<Arc<dyn Store>, OpenError> {
    open_with(url, &Options::default(), now).await
}

/// Opens `memory:`, `sqlite:PATH` or `etcd:http://HOST:2379,…`, and creates the store if it does not exist. A
/// new store's epoch is `now`.
///
/// # Errors
/// Returns an error naming the store and the remedy if it is not a store, has a newer version, is in use by
/// another process, or cannot be read.
pub async fn open_with(url: &str, options: &Options, now: Timestamp) -> Result<Arc<dyn Store>, OpenError> {
    if let Some(members) = url.strip_prefix("etcd:") {
        let local = options.local.as_deref().unwrap_or("memory:");
        if local.starts_with("etcd:") {
            return Err(OpenError::Local(local.to_owned()));
        }
        let local = open_one(local, now).await?;
        return Ok(Arc::new(Etcd::open(members, &options.etcd, local, now).await?));
    }
    open_one(url, now).await
}

/// Opens a store that is exclusive to this process.
async fn open_one(url: &str, now: Timestamp) -> Result<Arc<dyn Store>, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(Memory::new(now))),
        Some(("sqlite", path)) if is_path(path) => Ok(Arc::new(Sqlite::open(path.as_ref(), now).await?)),
        Some(_) | None => Err(OpenError::Address(url.to_owned())),
    }
}

/// State of the store at an address, found without changing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreState {
    /// The store does not exist; opening it would create it.
    Absent,
    /// The store exists and this version can open it.
    Ready,
    /// Another process is using the store.
    InUse {
        /// Description of the other process, as far as known.
        holder: String,
    },
}

/// Inspects a store without additional settings. See [`inspect_with`].
///
/// # Errors
/// Same as [`inspect_with`].
pub async fn inspect(url: &str) -> Result<StoreState, OpenError> {
    inspect_with(url, &Options::default()).await
}

/// Inspects a store without creating or changing anything.
///
/// # Errors
/// Same as [`open_with`], except that a store in use is not an error.
pub async fn inspect_with(url: &str, options: &Options) -> Result<StoreState, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(StoreState::Absent),
        Some(("sqlite", path)) if is_path(path) => Sqlite::inspect(path.as_ref()).await,
        Some(("etcd", members)) => Etcd::inspect(members, &options.etcd).await,
        Some(_) | None => Err(OpenError::Address(url.to_owned())),
    }
}

/// Returns true if `path` is an ordinary file path. Rejects names with a special meaning, such as SQLite's
/// `:memory:`, and the host or query part of a URL.
fn is_path(path: &str) -> bool {
    let names_host = path.starts_with("//") && !path.starts_with("///");
    !path.is_empty() && !path.starts_with(':') && !names_host && !path.contains(['?', '\0'])
}

/// Returns the epoch of a store that is created at `now`: the Unix time in seconds, or `before` plus 1 if
/// that is higher.
pub(crate) fn epoch_after(before: Option<Epoch>, now: Timestamp) -> Epoch {
    let now = u64::try_from(now.unix_seconds()).unwrap_or(0);
    Epoch(before.map_or(now, |Epoch(before)| now.max(before.saturating_add(1))))
}

/// Returns a leadership channel that is always true: the only process that has a store open is its leader.
pub(crate) fn sole_leadership() -> watch::Receiver<bool> {
    // The value stays readable when its sender is dropped.
    watch::channel(true).1
}

/// Returns an error if the key or the body of a status exceeds its size limit.
pub(crate) fn check_status(key: &str, body: &[u8]) -> Result<(), StatusError> {
    let limits =
        [("bytes in its key", key.len(), STATUS_KEY_BYTES_MAX), ("bytes", body.len(), STATUS_BYTES_MAX)];
    match limits.into_iter().find(|(_, found, limit)| found > limit) {
        Some((unit, found, limit)) => Err(StatusError::TooLarge { unit, found, limit }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn inspection_creates_nothing_and_names_the_holder() {
        let directory = tempfile::tempdir().unwrap();
        let now = Timestamp::from_unix_seconds(0);
        let path = directory.path().join("s.db");
        let url = format!("sqlite:{}", path.display());
        assert_eq!(inspect(&url).await.unwrap(), StoreState::Absent);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let store = open(&url, now).await.unwrap();
        let holder = format!("process {}", std::process::id());
        assert_eq!(inspect(&url).await.unwrap(), StoreState::InUse { holder });
        drop(store);
        assert_eq!(inspect(&url).await.unwrap(), StoreState::Ready);
        std::fs::write(&path, "something else").unwrap();
        assert!(matches!(inspect(&url).await, Err(OpenError::NotOurs { .. })));
        let nowhere = format!("sqlite:{}/none/s.db", directory.path().display());
        assert!(matches!(inspect(&nowhere).await, Err(OpenError::Directory { .. })));
    }

    async fn refusal(url: &str) -> String {
        let now = Timestamp::from_unix_seconds(0);
        open(url, now).await.err().expect("refused").to_string()
    }

    #[tokio::test]
    async fn addresses_that_mean_something_else_are_refused_with_the_remedy() {
        for url in [
            "",
            "sqlite",
            "sqlite:",
            "sqlite::memory:",
            "sqlite://x.db",
            "sqlite:x?mode=ro",
            "memory:x",
            "/x.db",
            "pg://h",
        ] {
            let refusal = refusal(url).await;
            assert!(refusal.contains(&format!("`{url}`")) && refusal.contains("sqlite:PATH"), "{refusal}");
        }
        assert!(refusal("etcd:h:2379").await.contains("write etcd:http://"));
    }

    #[tokio::test]
    async fn the_store_beside_a_shared_one_is_not_shared() {
        let options = Options { local: Some("etcd:http://h".to_owned()), ..Options::default() };
        let refused = open_with("etcd:http://h:2379", &options, Timestamp::from_unix_seconds(0)).await;
        assert!(refused.err().expect("refused").to_string().contains("--local-store"));
    }

    #[test]
    fn epochs_follow_the_clock_but_never_stand_or_go_back() {
        let at = Timestamp::from_unix_seconds;
        assert_eq!(epoch_after(None, at(100)), Epoch(100));
        assert_eq!(epoch_after(None, at(-5)), Epoch(0));
        assert_eq!(epoch_after(Some(Epoch(100)), at(200)), Epoch(200));
        assert_eq!(epoch_after(Some(Epoch(100)), at(100)), Epoch(101));
        assert_eq!(epoch_after(Some(Epoch(100)), at(3)), Epoch(101));
    }
}
