//! Folds the log into the objects.
//!
//! The states of many commits are put together, and each object is written once. Transactions may cut that anywhere: whoever
//! loads applies the whole log behind `base` again, over objects of which some are newer, and gets the same. Each
//! transaction moves the version of `base`, so that a leader that was asleep can never write an old object over a new one.

use std::collections::BTreeMap;

use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp};
use model::{cluster::change::ChangeKind, primitives::quantity::Revision};

use super::{
    Core,
    keys::end_of,
    mirror::LogGroup,
    read::{self, Head},
    wire::{self, OBJECT_INLINE_BYTES_MAX},
    write::put_pieces,
};
use crate::StoreError;

/// Operations in one transaction; etcd takes 128 by default, and one moves `base`.
const OPERATIONS_MAX: usize = 118;
/// Bytes in one transaction, after which another begins: with one more object still below 1.5 MiB.
const BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the log that are folded at once: bounds memory.
const FOLD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Up to where the log has been folded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    pub(super) revision: Revision,
    /// etcd's revision of the key.
    pub(super) version: i64,
    /// Where the store was then.
    pub(super) head: Head,
}

/// What an object is after the last of some commits, and which commit has left it so.
type States = BTreeMap<String, (Revision, Option<Vec<u8>>)>;

/// Reads how far it has come.
pub(super) async fn base(core: &Core) -> Result<Base, StoreError> {
    let reads = [core.keys.head(), core.keys.base()].map(|key| TxnOp::get(key, None)).to_vec();
    let (at, values) = read::together(&core.link, reads).await?;
    let value = |index: usize| values.get(index).and_then(|values| values.first());
    let revision = read::parse_revision("base", value(1))?;
    let version = value(1).map_or(0, etcd_client::KeyValue::mod_revision);
    Ok(Base { revision, version, head: read::parse_head(value(0), at)? })
}

/// Folds what is behind the base, or a good part of it; answers the new base.
pub(super) async fn fold(core: &Core, base: Base) -> Result<Base, StoreError> {
    let (_, groups) = read::log_from(&core.link, &core.keys, base.revision.next()).await?;
    let (through, states, commits) = squash(&groups)?;
    let Some(through) = through else { return Ok(base) };
    let mut base = base;
    let (mut operations, mut bytes) = (Vec::new(), 0);
    for (key, (revision, body)) in states {
        if operations.len() + 2 > OPERATIONS_MAX || bytes > BYTES_MAX - OBJECT_INLINE_BYTES_MAX {
            base = step(core, base, base.revision, std::mem::take(&mut operations)).await?;
            bytes = 0;
        }
        let object = format!("{}{key}", core.keys.objects());
        let pieces = core.keys.staged_objects(&key);
        match body {
            Some(body) => {
                let sealed = wire::seal(&revision.0.to_string(), body, OBJECT_INLINE_BYTES_MAX);
                let own = core.keys.staged_object(&key, revision);
                put_pieces(core, &own, &sealed.pieces).await?;
                bytes += sealed.value.len() + 3 * object.len();
                operations.push(TxnOp::put(object, sealed.value, None));
                // Of the states before it.
                operations.push(TxnOp::delete(pieces, Some(DeleteOptions::new().with_range(own))));
            }
            None => {
                bytes += 3 * object.len();
                let end = end_of(&pieces);
                operations.push(TxnOp::delete(object, None));
                operations.push(TxnOp::delete(pieces, Some(DeleteOptions::new().with_range(end))));
            }
        }
    }
    base = step(core, base, through, operations).await?;
    core.link.counters.folded(commits);
    tracing::debug!(commits, base = through.0, "log folded");
    Ok(base)
}

/// Puts the states of groups together, as many as fit: up to which revision, the states, how many commits.
fn squash(groups: &[LogGroup]) -> Result<(Option<Revision>, States, usize), StoreError> {
    let (mut through, mut states, mut bytes, mut count) = (None, States::new(), 0, 0);
    for group in groups {
        if bytes > FOLD_BYTES_MAX {
            break;
        }
        for commit in group.commits()? {
            bytes += commit.entry().bytes;
            count += 1;
            for (kind, key, body) in commit.changes()? {
                let body = match kind {
                    ChangeKind::Added | ChangeKind::Modified => Some(body.as_bytes().to_vec()),
                    ChangeKind::Deleted => None,
                };
                states.insert(key, (commit.revision, body));
            }
        }
        through = Some(group.last);
    }
    Ok((through, states, count))
}

/// Carries out operations if nobody else has folded, and moves the base to a revision.
async fn step(
    core: &Core,
    base: Base,
    through: Revision,
    operations: Vec<TxnOp>,
) -> Result<Base, StoreError> {
    let key = core.keys.base();
    let mut operations = operations;
    operations.push(TxnOp::put(key.clone(), through.to_string(), None));
    let txn =
        Txn::new().when([Compare::mod_revision(key, CompareOp::Equal, base.version)]).and_then(operations);
    let answer = core.link.txn(txn).await.map_err(|failure| failure.during("fold the log"))?;
    if answer.succeeded() {
        Ok(Base { revision: through, version: read::revision(&answer), ..base })
    } else {
        let cause = std::io::Error::other("another server leads by now");
        Err(StoreError::unavailable("fold the log", cause))
    }
}
