//! The key with which nodes authenticate to each other: made once, kept with the statuses, told to agents only.

use base64::{Engine, prelude::BASE64_STANDARD};
use model::secret::Secret;
use std::collections::BTreeMap;
use store::Store;

use crate::{entropy::Source, writer::Chain};

/// Where it is stored.
const STATUS_KEY: &str = "peer-key";
/// Bytes of the key, before they are written as base64.
const KEY_BYTES: usize = 32;

/// The key of this cluster: the stored one, or a new one that is stored now.
pub(crate) async fn obtain(
    store: &dyn Store,
    statuses: &BTreeMap<String, Vec<u8>>,
    source: &dyn Source,
) -> Secret {
    if let Some(stored) = statuses.get(STATUS_KEY).and_then(|body| read(body)) {
        return stored;
    }
    let key = BASE64_STANDARD.encode(source.secret());
    if let Err(error) = store.put_status(STATUS_KEY, key.as_bytes()).await {
        // Agents get another key after a restart, and watch each other with that.
        tracing::warn!(error = %Chain(&error), "the key of the nodes was not stored");
    }
    Secret::new(key)
}

fn read(body: &[u8]) -> Option<Secret> {
    let text = std::str::from_utf8(body).ok()?;
    let is_key = BASE64_STANDARD.decode(text).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
    is_key.then(|| Secret::new(text.to_owned()))
}
