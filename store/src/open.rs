//! From the address of a store to the store, and the few rules that all stores share.

use std::sync::Arc;

use model::quantity::{Epoch, Timestamp};

use crate::{
    EtcdOptions, STATUS_BYTES_MAX, STATUS_KEY_BYTES_MAX, Store,
    error::{OpenError, StatusError},
    etcd::Etcd,
    memory::Memory,
    sqlite::Sqlite,
};

/// What a store may need beside its address.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How etcd is used.
    pub etcd: EtcdOptions,
    /// Address of the store of this process beside one that is shared: for what agents report, and for the audit log.
    /// `memory:` when left out.
    pub local: Option<String>,
}

/// Opens a store that needs nothing beside its address. See [`open_with`].
///
/// # Errors
/// As of [`open_with`].
pub async fn open(url: &str, now: Timestamp) -> Result<Arc<dyn Store>, OpenError> {
    open_with(url, &Options::default(), now).await
}

/// Opens `memory:`, `sqlite:PATH` or `etcd:http://HOST:2379,…`, and makes the store if it does not exist. A fresh store's
/// epoch is `now`.
///
/// # Errors
/// Says which store, and what to do: not a store, of a newer version, in use by another process, not readable.
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

/// Opens a store that one process has for itself.
async fn open_one(url: &str, now: Timestamp) -> Result<Arc<dyn Store>, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(Memory::new(now))),
        Some(("sqlite", path)) if is_path(path) => Ok(Arc::new(Sqlite::open(path.as_ref(), now).await?)),
        Some(_) | None => Err(OpenError::Address(url.to_owned())),
    }
}

/// Refuses what other programs understand as something else than a path: SQLite's `:memory:`, hosts and options of URLs.
fn is_path(path: &str) -> bool {
    let names_host = path.starts_with("//") && !path.starts_with("///");
    !path.is_empty() && !path.starts_with(':') && !names_host && !path.contains(['?', '\0'])
}

/// The epoch of a life that begins at `now`, after one with the epoch `before` if there was one.
pub(crate) fn epoch_after(before: Option<Epoch>, now: Timestamp) -> Epoch {
    let now = u64::try_from(now.unix_seconds()).unwrap_or(0);
    Epoch(before.map_or(now, |Epoch(before)| now.max(before.saturating_add(1))))
}

/// Checks the size of a status.
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
