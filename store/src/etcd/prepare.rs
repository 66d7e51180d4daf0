//! Opening of an etcd store: creates the store below a key prefix, or recognizes an existing one.

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use model::primitives::quantity::{Position, Revision, Timestamp};

use super::{
    keys::{Keys, end_of},
    link::{Failure, Link, PATIENCE, Retry},
    read,
    replace::IN_BETWEEN,
    wire::FORMAT,
};
use crate::{OpenError, StoreError, StoreState, open::epoch_after};

/// Returns the position (epoch and revision) of the store. Creates the store if it does not exist.
pub(super) async fn prepare(link: &Link, keys: &Keys, now: Timestamp) -> Result<Position, OpenError> {
    let mut retry = Retry::new(PATIENCE);
    loop {
        if let Some(position) = find(link, keys).await? {
            return Ok(position);
        }
        // Of several processes starting at once, one creates the store.
        match make(link, keys, now).await {
            Ok(()) => {}
            Err(Failure::Lost { .. }) if retry.again().await => {}
            Err(failure) => return Err(unavailable(failure)),
        }
    }
}

/// Returns the state of the store below the key prefix without writing. The store is in use if it has a
/// leader key.
pub(super) async fn inspect(link: &Link, keys: &Keys) -> Result<StoreState, OpenError> {
    if find(link, keys).await?.is_none() {
        return Ok(StoreState::Absent);
    }
    let leader = Txn::new().and_then([TxnOp::get(keys.leader(), None)]);
    let answer = link.repeat(&leader).await.map_err(unavailable)?;
    let is_led = read::values(&answer).into_iter().flatten().next().is_some();
    let holder = "at least one server (or one that stopped seconds ago)".to_owned();
    Ok(if is_led { StoreState::InUse { holder } } else { StoreState::Ready })
}

async fn find(link: &Link, keys: &Keys) -> Result<Option<Position>, OpenError> {
    let everything = GetOptions::new().with_range(end_of(keys.prefix())).with_count_only();
    let reads = vec![
        TxnOp::get(keys.format(), None),
        TxnOp::get(keys.head(), None),
        TxnOp::get(keys.prefix(), Some(everything)),
    ];
    let answer = link.repeat(&Txn::new().and_then(reads)).await.map_err(unavailable)?;
    let values = read::values(&answer);
    let value = |index: usize| values.get(index).and_then(|values| values.first());
    let format = value(0).map(|value| String::from_utf8_lossy(value.value()).into_owned());
    let known = FORMAT.to_string();
    let refuse = |reason: String| Err(OpenError::Etcd(format!("below {} {reason}", keys.prefix())));
    match (format, value(1)) {
        (Some(format), _) if format.parse::<u32>().is_ok_and(|format| format > FORMAT) => refuse(format!(
            "contains a store of format {format}, newer than {FORMAT}, the latest of this version; start \
             the newer version"
        )),
        (Some(format), Some(head)) if format == known => {
            let head = read::parse_head(Some(head), read::revision(&answer));
            let unreadable =
                |error: StoreError| OpenError::EtcdUnavailable { cause: std::sync::Arc::new(error) };
            Ok(Some(head.map_err(unreadable)?.position))
        }
        (Some(format), _) if format == IN_BETWEEN => refuse(
            "contains an interrupted restore; delete all keys there (etcdctl del --prefix), and restore \
             again"
                .to_owned(),
        ),
        (None, None) if read::count(&answer) == 0 => Ok(None),
        (None | Some(_), None | Some(_)) => {
            refuse("contains keys that are not a Tidegate store; use another --etcd-prefix".to_owned())
        }
    }
}

async fn make(link: &Link, keys: &Keys, now: Timestamp) -> Result<(), Failure> {
    let position = Position { epoch: epoch_after(None, now), revision: Revision(0) };
    let head = keys.head();
    let txn = Txn::new().when([Compare::create_revision(head.clone(), CompareOp::Equal, 0)]).and_then([
        TxnOp::put(keys.format(), FORMAT.to_string(), None),
        TxnOp::put(head, position.to_string(), None),
        TxnOp::put(keys.base(), "0", None),
    ]);
    link.txn(txn).await.map(|_| ())
}

fn unavailable(failure: Failure) -> OpenError {
    OpenError::EtcdUnavailable { cause: std::sync::Arc::new(failure) }
}
