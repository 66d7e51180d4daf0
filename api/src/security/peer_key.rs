//! Peer key: secret that authenticates BFD between nodes, created once, stored in the vault, and sent to agents
//! only.

use base64::{Engine, prelude::BASE64_STANDARD};
use model::primitives::secret::Secret;
use store::{Store, StoreError, VaultError};

use crate::base::clock_and_random::Source;

/// Key of the vault record that holds the peer key.
const VAULT_KEY: &str = "peer-key";
/// Key under which earlier versions, without a vault, stored the peer key; [`obtain`] moves it to the vault.
const STATUS_KEY: &str = "peer-key";
/// Length of the key in bytes, before base64 encoding.
const KEY_BYTES: usize = 32;

/// Returns the peer key of the cluster. At the first start, the server creates and stores it; of several servers
/// that start at once, the first one's key is used by all.
pub(crate) async fn obtain(store: &dyn Store, source: &dyn Source) -> Result<Secret, StoreError> {
    loop {
        let stored = store.vault().await?.remove(VAULT_KEY);
        if let Some(key) = stored.as_ref().and_then(|record| read(&record.body)) {
            return Ok(key);
        }
        let earlier = store.statuses().await?.remove(STATUS_KEY).and_then(|body| read(&body));
        let key = earlier.unwrap_or_else(|| Secret::new(BASE64_STANDARD.encode(source.secret())));
        let at = stored.map_or(0, |record| record.version);
        match store.put_vault(VAULT_KEY, at, Some(key.reveal().as_bytes())).await {
            Ok(_) => {
                store.remove_status(STATUS_KEY).await?;
                return Ok(key);
            }
            Err(VaultError::Stale { .. }) => {}
            Err(VaultError::Unavailable(error)) => return Err(error),
            Err(VaultError::TooLarge { .. }) => {
                // The vault is full: agents get another key after a restart.
                tracing::warn!("cannot store the peer key of the nodes: the vault is full");
                return Ok(key);
            }
        }
    }
}

fn read(body: &[u8]) -> Option<Secret> {
    let text = std::str::from_utf8(body).ok()?;
    let is_key = BASE64_STANDARD.decode(text).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
    is_key.then(|| Secret::new(text.to_owned()))
}
