//! Makes a store below a prefix, or finds the one that is there.

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use model::primitives::quantity::{Position, Revision, Timestamp};

use super::{
    keys::{Keys, end_of},
    link::{Failure, Link, PATIENCE, Retry},
    read,
    replace::IN_BETWEEN,
    wire::FORMAT,
};
use crate::{Looked, OpenError, StoreError, open::epoch_after};

/// Where the store is.
pub(super) async fn prepare(link: &Link, keys: &Keys, now: Timestamp) -> Result<Position, OpenError> {
    let mut retry = Retry::new(PATIENCE);
    loop {
        if let Some(position) = find(link, keys).await? {
            return Ok(position);
        }
        // Of several that start at once, one makes it.
        match make(link, keys, now).await {
            Ok(()) => {}
            Err(Failure::Lost { .. }) if retry.again().await => {}
            Err(failure) => return Err(unavailable(failure)),
        }
    }
}

/// Says what there is, and makes nothing. A server that runs keeps one of its kind leading.
pub(super) async fn look(link: &Link, keys: &Keys) -> Result<Looked, OpenError> {
    if find(link, keys).await?.is_none() {
        return Ok(Looked::Absent);
    }
    let leader = Txn::new().and_then([TxnOp::get(keys.leader(), None)]);
    let answer = link.repeat(&leader).await.map_err(unavailable)?;
    let is_led = read::values(&answer).into_iter().flatten().next().is_some();
    let holder = "at least one server (or one was, seconds ago)".to_owned();
    Ok(if is_led { Looked::InUse { holder } } else { Looked::Ready })
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
            "is a store of format {format}, this version knows up to {FORMAT}; start the newer version"
        )),
        (Some(format), Some(head)) if format == known => {
            let head = read::parse_head(Some(head), read::revision(&answer));
            let unreadable =
                |error: StoreError| OpenError::EtcdUnavailable { cause: std::sync::Arc::new(error) };
            Ok(Some(head.map_err(unreadable)?.position))
        }
        (Some(format), _) if format == IN_BETWEEN => refuse(
            "a restore was cut off; remove everything there (etcdctl del --prefix), and restore again"
                .to_owned(),
        ),
        (None, None) if read::count(&answer) == 0 => Ok(None),
        (None | Some(_), None | Some(_)) => {
            refuse("are keys that are no Tidegate store; give another --etcd-prefix".to_owned())
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
