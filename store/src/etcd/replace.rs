//! Replacement of the contents of an etcd store, such as by those of a backup. The key `head` contains the
//! store's position (epoch and revision); without this key no server can commit or start. The key `base`
//! contains the revision up to which the change log has been merged into the objects.
//!
//! ```text
//! 1. if head is unchanged: delete head, objects, log, history and vault; mark the key format
//! 2. write the new objects, history and vault, in as many transactions as necessary
//! 3. write format, base and head: the new epoch begins
//! ```
//! If the replacement is interrupted, the store has no `head`, so that partial contents are never used. The
//! replacement must then be repeated below an empty key prefix.

use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp};
use model::{
    cluster::history::{Maker, RevisionEntry},
    primitives::quantity::Position,
};
use uuid::Uuid;

use super::{
    Core,
    keys::{Space, end_of},
    read,
    wire::{self, FORMAT, GROUP_INLINE_BYTES_MAX, OBJECT_INLINE_BYTES_MAX, Row},
    write::put_pieces,
};
use crate::{
    Contents, ReplaceError, StoreError,
    history::{EncodedEntry, encode_alone},
    record,
};

/// Value of the format key while contents are replaced. No version accepts it, so that no server starts with
/// incomplete contents.
pub(super) const IN_BETWEEN: &str = "being-replaced";
/// Maximum number of operations per transaction; etcd's default limit is 128.
const OPERATIONS_MAX: usize = 120;
/// Maximum size of the keys and values of a transaction in bytes; below etcd's default request limit of 1.5
/// MiB.
const BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of history entries in one etcd value.
const ENTRIES_AT_ONCE: usize = 32;

/// Writer that combines etcd put operations into transactions of limited size.
struct Batch<'a> {
    core: &'a Core,
    operations: Vec<TxnOp>,
    bytes: usize,
}

/// Replaces the contents of the store, provided that it is still at position `at`.
pub(super) async fn run(
    core: &Core,
    at: Position,
    contents: &Contents,
    new: Position,
) -> Result<(), ReplaceError> {
    let head = read::head(&core.link, &core.keys).await?;
    if head.position != at {
        return Err(ReplaceError::Stale { current: head.position });
    }
    clear(core, head.version, at).await?;
    let mut batch = Batch { core, operations: Vec::new(), bytes: 0 };
    let Contents { revision, objects, history, history_floor, vault } = contents;
    for object in objects {
        let (key, revision) = (object.key().to_store_key(), object.metadata.revision());
        let body = record::encode(object).get().to_owned().into_bytes();
        let sealed = wire::seal(&revision.0.to_string(), body, OBJECT_INLINE_BYTES_MAX);
        put_pieces(core, &core.keys.staged_object(&key, revision), &sealed.pieces).await?;
        batch.put(format!("{}{key}", core.keys.objects()), sealed.value).await?;
    }
    for entries in history.chunks(ENTRIES_AT_ONCE) {
        put_history(&mut batch, entries).await?;
    }
    for (key, body) in vault {
        batch.put(format!("{}{key}", core.keys.vault()), body.clone()).await?;
    }
    batch.put(core.keys.history_floor(), history_floor.to_string().into_bytes()).await?;
    batch.flush().await?;
    let key = core.keys.head();
    let puts = [
        TxnOp::put(core.keys.format(), FORMAT.to_string(), None),
        TxnOp::put(core.keys.base(), revision.to_string(), None),
        TxnOp::put(key.clone(), new.to_string(), None),
    ];
    // Idempotent after a lost response, because no other process writes without a head.
    let begin = Txn::new().when([Compare::create_revision(key, CompareOp::Equal, 0)]).and_then(puts);
    core.link.repeat(&begin).await.map_err(|failure| failure.during("begin the new epoch"))?;
    let attempts = read::head(&core.link, &core.keys).await?.position;
    if attempts == new { Ok(()) } else { Err(ReplaceError::Stale { current: attempts }) }
}

/// Deletes all contents, provided that the head key still has the given version.
async fn clear(core: &Core, version: i64, at: Position) -> Result<(), ReplaceError> {
    let key = core.keys.head();
    let all = DeleteOptions::new().with_range(end_of(core.keys.prefix()));
    // Separate transactions, because a transaction must not modify a key twice.
    let mark = Txn::new()
        .when([Compare::mod_revision(key.clone(), CompareOp::Equal, version)])
        .and_then([TxnOp::put(core.keys.format(), IN_BETWEEN, None), TxnOp::delete(key, None)]);
    let answer = core.link.txn(mark).await.map_err(|failure| failure.during("delete the head"))?;
    if !answer.succeeded() {
        let current = read::head(&core.link, &core.keys).await?.position;
        return Err(ReplaceError::Stale { current: current.max(at) });
    }
    let sweep = Txn::new().and_then([TxnOp::delete(core.keys.prefix(), Some(all))]);
    core.link.repeat(&sweep).await.map_err(|failure| failure.during("delete the old contents"))?;
    let mark = Txn::new().and_then([TxnOp::put(core.keys.format(), IN_BETWEEN, None)]);
    core.link.repeat(&mark).await.map_err(|failure| failure.during("mark the prefix"))?;
    Ok(())
}

/// Writes history entries, with separate etcd values for client writes and for server writes. The key of each
/// value contains the revision of the last entry in `entries`.
async fn put_history(batch: &mut Batch<'_>, entries: &[RevisionEntry]) -> Result<(), StoreError> {
    let Some(last) = entries.last().map(|entry| entry.revision) else { return Ok(()) };
    let id = Uuid::now_v7().to_string();
    for is_by_server in [false, true] {
        let own = entries.iter().filter(|entry| (entry.origin.maker == Maker::Server) == is_by_server);
        let own: Vec<EncodedEntry> = own.map(encode_alone).collect();
        if own.is_empty() {
            continue;
        }
        let (heads, bodies) = wire_rows(&own);
        for (space, payload) in
            [(Space::Heads { is_by_server }, heads), (Space::Bodies { is_by_server }, bodies)]
        {
            let sealed = wire::seal(&id, payload, GROUP_INLINE_BYTES_MAX);
            put_pieces(batch.core, &batch.core.keys.staged_group(space, last, &id), &sealed.pieces).await?;
            batch.put(batch.core.keys.group(space, last), sealed.value).await?;
        }
    }
    Ok(())
}

fn wire_rows(entries: &[EncodedEntry]) -> (Vec<u8>, Vec<u8>) {
    let at = |entry: &EncodedEntry| (entry.revision.0, entry.at.unix_seconds());
    let heads = entries.iter().map(|entry| {
        let (revision, at) = at(entry);
        (Row(revision, at, entry.head.len(), entry.body.len()), entry.head.as_str())
    });
    let bodies = entries.iter().map(|entry| {
        let (revision, at) = at(entry);
        (Row(revision, at, entry.body.len(), 0), entry.body.as_str())
    });
    (wire::encode_rows(heads), wire::encode_rows(bodies))
}

impl Batch<'_> {
    async fn put(&mut self, key: String, value: Vec<u8>) -> Result<(), StoreError> {
        let bytes = key.len() + value.len();
        if self.operations.len() >= OPERATIONS_MAX || self.bytes + bytes > BYTES_MAX {
            self.flush().await?;
        }
        self.bytes += bytes;
        self.operations.push(TxnOp::put(key, value, None));
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        let operations = std::mem::take(&mut self.operations);
        if operations.is_empty() {
            return Ok(());
        }
        let txn = Txn::new().and_then(operations);
        self.core.link.repeat(&txn).await.map_err(|failure| failure.during("write the contents"))?;
        Ok(())
    }
}
