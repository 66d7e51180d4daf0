//! Deletion of log and history entries beyond their retention limits, and of the pieces of large values
//! (parts stored under separate keys) that failed commits left behind.

use std::collections::BTreeSet;

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp};
use model::primitives::quantity::Revision;

use super::{
    Core,
    fold::Base,
    history,
    keys::{Space, end_of},
    read, wire,
};
use crate::StoreError;

/// Number of key names read at once.
const NAMES_AT_ONCE: i64 = 5_000;

/// Deletes the groups of the change log and of the history that exceed the retention limits. Log groups after
/// the revision of `base` stay, because their changes have not been merged into the stored objects yet.
pub(super) async fn trim(core: &Core, base: &Base) -> Result<(), StoreError> {
    // If the cached state (mirror) lags, its limit is older, so that less is deleted.
    let oldest = core.mirror.lock().await.as_ref().and_then(super::mirror::Mirror::oldest);
    trim_before(core, base, oldest).await
}

/// Deletes the groups of the change log that end before revision `oldest`, except those that have not been
/// folded, and the groups of the history that exceed the retention limits.
pub(super) async fn trim_before(
    core: &Core,
    base: &Base,
    oldest: Option<Revision>,
) -> Result<(), StoreError> {
    let ([clients, server], floor) = history::outdated(core).await?;
    let mut operations = Vec::new();
    if let Some(oldest) = oldest {
        // Unfolded groups are always kept.
        drop_before(core, Space::Log, oldest.min(base.revision.next()), &mut operations);
    }
    for (outdated, is_by_server) in [(clients, false), (server, true)] {
        let Some(outdated) = outdated else { continue };
        drop_before(core, Space::Heads { is_by_server }, outdated.next(), &mut operations);
        drop_before(core, Space::Bodies { is_by_server }, outdated.next(), &mut operations);
    }
    if floor > Revision(0) {
        operations.push(TxnOp::put(core.keys.history_floor(), floor.to_string(), None));
    }
    let same_leader = Compare::mod_revision(core.keys.base(), CompareOp::Equal, base.version);
    let txn = Txn::new().when([same_leader]).and_then(operations);
    core.link.txn(txn).await.map_err(|failure| failure.during("trim the log"))?;
    Ok(())
}

/// Adds deletions to `operations`: of all commit groups of a key space that end before `revision`, and of the
/// pieces (separately stored parts) of their values.
fn drop_before(core: &Core, space: Space, revision: Revision, operations: &mut Vec<TxnOp>) {
    let values = (core.keys.group(space, Revision(0)), core.keys.group(space, revision));
    let pieces = (core.keys.staged_groups(space), core.keys.staged_at(space, revision));
    for (start, end) in [values, pieces] {
        if start < end {
            operations.push(TxnOp::delete(start, Some(DeleteOptions::new().with_range(end))));
        }
    }
}

/// Deletes the pieces of large values that failed commits left behind. Considers only commits up to revision
/// `head` of the store; these can no longer succeed, because each revision is committed only once.
pub(super) async fn sweep(core: &Core, head: Revision) -> Result<(), StoreError> {
    for space in Space::ALL {
        let start = core.keys.staged_groups(space);
        let options = GetOptions::new().with_range(end_of(&start)).with_keys_only().with_limit(NAMES_AT_ONCE);
        let names = core.link.get(&start, &options).await.map_err(read::reading)?;
        let staged: BTreeSet<_> =
            names.kvs().iter().filter_map(|name| core.keys.staged_by(space, name.key())).collect();
        for (last, id) in staged.into_iter().filter(|(last, _)| *last <= head) {
            let key = core.keys.group(space, last);
            let value = core.link.get(&key, &GetOptions::new()).await.map_err(read::reading)?;
            let opened = value.kvs().first().map(|value| wire::open(value.value())).transpose();
            let opened = opened.map_err(|reason| read::unreadable(&key, reason))?;
            if opened.is_some_and(|opened| opened.envelope.id == id) {
                continue;
            }
            let stage = core.keys.staged_group(space, last, &id);
            let range = DeleteOptions::new().with_range(end_of(&stage));
            let delete = Txn::new().and_then([TxnOp::delete(stage, Some(range))]);
            core.link.txn(delete).await.map_err(|failure| failure.during("delete orphaned pieces"))?;
            tracing::debug!(last = last.0, "orphaned pieces of a commit deleted");
        }
    }
    Ok(())
}
