//! Folding of the change log in the etcd store. Commits are appended to a log; folding writes the newest
//! state of each changed object under the object's own key.
//!
//! The etcd key `base` contains the revision up to which the log has been folded. The changes of many commits
//! are merged, so that each object is written once. Folding may be interrupted after any transaction: a
//! reader applies all log entries after `base` to the objects, which has the same result if some objects are
//! newer than `base`. Each transaction changes the version of `base`, so that a suspended former leader can
//! never overwrite a newer object.

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

/// Maximum number of operations per transaction; etcd's default limit is 128, and one operation updates
/// `base`.
const OPERATIONS_MAX: usize = 118;
/// Size of a transaction in bytes after which another one starts. With one more object, a transaction stays
/// below etcd's request limit of 1.5 MiB.
const BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of bytes of the log that one run folds; limits memory.
const FOLD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Revision up to which the log has been folded into the objects, as stored in the etcd key `base`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    pub(super) revision: Revision,
    /// Modification revision of the etcd key that contains the base.
    pub(super) version: i64,
    /// Position (epoch and revision) of the store when the base was read.
    pub(super) head: Head,
}

/// Final state of each object after several commits, by store key: the revision of the last change, and the
/// encoded object, or `None` if it was deleted.
type States = BTreeMap<String, (Revision, Option<Vec<u8>>)>;

/// Reads the base: the revision up to which the log has been folded into the objects.
pub(super) async fn base(core: &Core) -> Result<Base, StoreError> {
    let reads = [core.keys.head(), core.keys.base()].map(|key| TxnOp::get(key, None)).to_vec();
    let (at, values) = read::together(&core.link, reads).await?;
    let value = |index: usize| values.get(index).and_then(|values| values.first());
    let revision = read::parse_revision("base", value(1))?;
    let version = value(1).map_or(0, etcd_client::KeyValue::mod_revision);
    Ok(Base { revision, version, head: read::parse_head(value(0), at)? })
}

/// Folds commits after the base into the objects: writes their changes under the objects' keys and moves the
/// base. Stops after the commit group (commits written in one etcd transaction) that exceeds
/// [`FOLD_BYTES_MAX`]. Returns the new base.
pub(super) async fn fold(core: &Core, base: Base) -> Result<Base, StoreError> {
    let groups = unfolded(core, &base).await?;
    write(core, base, &groups).await
}

/// Reads the commit groups after the base.
pub(super) async fn unfolded(core: &Core, base: &Base) -> Result<Vec<LogGroup>, StoreError> {
    Ok(read::log_from(&core.link, &core.keys, base.revision.next()).await?.1)
}

/// Writes the changes of the commit groups after the base under the objects' keys and moves the base, as [`fold`]
/// does.
pub(super) async fn write(core: &Core, base: Base, groups: &[LogGroup]) -> Result<Base, StoreError> {
    let (through, states, commits) = squash(groups)?;
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
                // Pieces of previous states.
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

/// Merges the changes of commit groups of the log, in order, until their size exceeds [`FOLD_BYTES_MAX`].
/// Returns the last merged revision, the final state of each changed object, and the number of merged
/// commits.
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

/// Executes etcd operations and moves the base to revision `through` in one transaction. Returns an error if
/// another process has moved the base meanwhile.
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
        let cause = std::io::Error::other("another server has become leader");
        Err(StoreError::unavailable("fold the log", cause))
    }
}
