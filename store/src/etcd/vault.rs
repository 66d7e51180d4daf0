//! Vault in etcd: one key per record, versioned by etcd.

use std::collections::BTreeMap;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};

use super::{
    Core,
    keys::end_of,
    link::{Failure, PATIENCE, Retry},
    read::{self, ReadAttempts},
};
use crate::{StoreError, VAULT_RECORDS_MAX, VaultError, VaultRecord, vault};

/// Number of vault records read at once: at most 8 MiB, with 64 KiB per record.
const RECORDS_AT_ONCE: i64 = 128;

/// Reads all vault records by key.
pub(super) async fn list(core: &Core) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
    let start = core.keys.vault();
    let mut attempts = ReadAttempts::default();
    let values = loop {
        let head = read::head(&core.link, &core.keys).await?;
        match read::range(&core.link, start.clone(), &end_of(&start), RECORDS_AT_ONCE, head.at).await {
            Err(broken) if attempts.again(&broken) => {}
            values => break values?,
        }
    };
    let record = |value: etcd_client::KeyValue| {
        let version = value.mod_revision().unsigned_abs();
        let (key, body) = value.into_key_value();
        let key = String::from_utf8_lossy(key.strip_prefix(start.as_bytes()).unwrap_or(&key)).into_owned();
        (key, VaultRecord { version, body })
    };
    Ok(values.into_iter().map(record).collect())
}

/// Writes a vault record, or deletes it if `body` is `None`, provided that its version is still `at`.
pub(super) async fn put(core: &Core, key: &str, at: u64, body: Option<&[u8]>) -> Result<u64, VaultError> {
    let name = format!("{}{key}", core.keys.vault());
    if at == 0 && body.is_some() {
        check_room(core).await?;
    }
    let version = i64::try_from(at).unwrap_or(i64::MAX);
    let op = match body {
        Some(body) => TxnOp::put(name.clone(), body, None),
        None if at == 0 => TxnOp::get(name.clone(), None),
        None => TxnOp::delete(name.clone(), None),
    };
    let txn = Txn::new()
        .when([Compare::mod_revision(name.clone(), CompareOp::Equal, version)])
        .and_then([op])
        .or_else([TxnOp::get(name.clone(), None)]);
    let mut retry = Retry::new(PATIENCE);
    let mut is_in_doubt = false;
    loop {
        match core.link.txn(txn.clone()).await {
            Ok(answer) if answer.succeeded() => return Ok(read::revision(&answer).unsigned_abs()),
            Ok(answer) => {
                let found = read::values(&answer).into_iter().flatten().next();
                let found_version = found.as_ref().map_or(0, |found| found.mod_revision().unsigned_abs());
                // The response to an earlier attempt was lost, and the current value is the one it wrote.
                let is_ours = is_in_doubt
                    && match (&found, body) {
                        (Some(found), Some(body)) => found.value() == body && found_version > at,
                        (None, None) => true,
                        (Some(_), None) | (None, Some(_)) => false,
                    };
                let now =
                    if found_version > 0 { found_version } else { read::revision(&answer).unsigned_abs() };
                return if is_ours { Ok(now) } else { Err(VaultError::Stale { found: found_version }) };
            }
            Err(failure @ Failure::Lost { .. }) => {
                is_in_doubt = true;
                if !retry.again().await {
                    return Err(failure.during("write to the vault").into());
                }
            }
            Err(failure @ (Failure::Refused { .. } | Failure::Compacted { .. })) => {
                return Err(failure.during("write to the vault").into());
            }
        }
    }
}

/// Returns an error if the vault is full. Two concurrent writes may both pass the check; exceeding the limit
/// by one is harmless, because it only limits memory.
async fn check_room(core: &Core) -> Result<(), VaultError> {
    let start = core.keys.vault();
    let options = GetOptions::new().with_range(end_of(&start)).with_count_only();
    let answer = core.link.get(&start, &options).await.map_err(read::reading)?;
    if usize::try_from(answer.count()).is_ok_and(|count| count < VAULT_RECORDS_MAX) {
        Ok(())
    } else {
        Err(vault::full())
    }
}
