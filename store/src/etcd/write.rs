//! Writes commit groups, each by one transaction that compares the etcd key `head` (the store's position:
//! epoch and revision). If etcd's response is lost, `attempt` determines the outcome.

use std::time::Instant;

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp, TxnResponse};
use model::primitives::quantity::{Position, Revision, Timestamp};
use uuid::Uuid;

use super::{
    Core,
    attempt::{Attempt, Outcome, Reply, Request, SeenEntry, SeenState},
    keys::{Space, end_of, piece},
    link::{Failure, PATIENCE, Retry},
    mirror::{LogGroup, Mirror},
    read::{self, Head},
    wire::{self, EncodedValue, GROUP_INLINE_BYTES_MAX, Row},
};
use crate::{CommitError, StoreError, group::Group, history::EncodedEntry, open::epoch_after};

/// Description of the request that determines the outcome of a commit, for errors.
const UNCERTAIN: &str = "determine the outcome of a commit in etcd";

/// Encoded values of a commit group, written in the same transaction as the key `head`.
#[derive(Debug)]
pub(super) struct EncodedGroup {
    id: String,
    values: Vec<(Space, EncodedValue)>,
}

/// Commits a group whose changes were decided on the state at position `at`. If the outcome is unknown, drops
/// the cached state (`mirror`), which may be outdated then.
pub(super) async fn commit(
    core: &Core,
    mirror: &mut Option<Mirror>,
    at: Position,
    group: &Group,
) -> Result<(), CommitError> {
    let started = Instant::now();
    let counters = &core.link.counters;
    let known = synced(core, mirror, at).await?;
    if known.position != at {
        counters.conflicted();
        return Err(CommitError::Stale { current: known.position });
    }
    known.check(group)?;
    let written = encode(group);
    let head_version = known.head_version;
    let staged = stage(core, group, &written).await;
    let outcome = match staged {
        Ok(()) => land(core, at, head_version, group, &written).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(Outcome::Landed(version)) => {
            if let Some(known) = mirror {
                known.committed(group, version);
            }
            counters.committed(started.elapsed());
            core.moved_to(Position { epoch: at.epoch, revision: group.head() });
            let (commits, head) = (group.commits.len(), group.head().0);
            tracing::debug!(commits, head, elapsed_us = started.elapsed().as_micros(), "group committed");
            Ok(())
        }
        Ok(Outcome::Lost(head)) => {
            unstage(core, group, &written).await;
            counters.conflicted();
            core.moved_to(head.position);
            Err(CommitError::Stale { current: head.position })
        }
        Ok(Outcome::Unknown) => {
            // The pieces stay, because they may belong to the history of a committed group.
            *mirror = None;
            let cause = std::io::Error::other("etcd's history of the commit was compacted");
            Err(StoreError::unavailable(UNCERTAIN, cause).into())
        }
        Err(error) => {
            *mirror = None;
            Err(error.into())
        }
    }
}

/// Returns the cached state (mirror). Updates it first if it is missing or older than position `at`.
async fn synced<'a>(
    core: &Core,
    mirror: &'a mut Option<Mirror>,
    at: Position,
) -> Result<&'a mut Mirror, StoreError> {
    match mirror {
        // If the mirror is ahead, the commit is stale, and the error contains the current position.
        Some(known) if known.position == at => {}
        Some(_) | None => drop(sync(core, mirror).await?),
    }
    mirror.as_mut().ok_or_else(|| {
        StoreError::unavailable("read from etcd", std::io::Error::from(std::io::ErrorKind::NotFound))
    })
}

/// Updates the cached state (mirror) from the change log. Returns the groups that other processes have
/// committed.
pub(super) async fn sync(core: &Core, mirror: &mut Option<Mirror>) -> Result<Vec<LogGroup>, StoreError> {
    if let Some(known) = mirror {
        let next = known.position.revision.next();
        let (head, groups) = read::log_from(&core.link, &core.keys, next).await?;
        if follow(known, head, &groups)? {
            core.moved_to(head.position);
            return Ok(groups);
        }
        // The log no longer reaches back to the mirror, or the store was replaced: reload.
        *mirror = None;
    }
    let (_, fresh) = read::load(&core.link, &core.keys).await?;
    core.moved_to(fresh.position);
    *mirror = Some(fresh);
    Ok(Vec::new())
}

/// Applies commit groups of other processes to the cached state (mirror). Returns false if the groups do not
/// cover all revisions between that state and `head`.
fn follow(known: &mut Mirror, head: Head, groups: &[LogGroup]) -> Result<bool, StoreError> {
    for group in groups {
        let first = group.commits()?.first().map(|commit| commit.revision);
        if first != Some(known.position.revision.next()) {
            return Ok(false);
        }
        known.follow(group)?;
    }
    if known.position.revision != head.position.revision {
        return Ok(false);
    }
    known.position = head.position;
    known.head_version = head.version;
    Ok(true)
}

/// Encodes the values of a group under a new unique id.
pub(super) fn encode(group: &Group) -> EncodedGroup {
    let id = Uuid::now_v7().to_string();
    let mut values = vec![(Space::Log, LogGroup::encode(group))];
    for is_by_server in [false, true] {
        let own = || group.history.iter().filter(move |entry| entry.is_by_server == is_by_server);
        if own().next().is_none() {
            continue;
        }
        let head = |entry: &'_ EncodedEntry| {
            Row(entry.revision.0, entry.at.unix_seconds(), entry.head.len(), entry.body.len())
        };
        let body =
            |entry: &'_ EncodedEntry| Row(entry.revision.0, entry.at.unix_seconds(), entry.body.len(), 0);
        let heads = wire::encode_rows(own().map(|entry| (head(entry), entry.head.as_str())));
        let bodies = wire::encode_rows(own().map(|entry| (body(entry), entry.body.as_str())));
        values.push((Space::Heads { is_by_server }, heads));
        values.push((Space::Bodies { is_by_server }, bodies));
    }
    let seal = |(space, payload)| (space, wire::seal(&id, payload, GROUP_INLINE_BYTES_MAX));
    let values = values.into_iter().map(seal).collect();
    EncodedGroup { id, values }
}

/// Writes the pieces of values that are too large for one key. They have no effect until the commit
/// references them.
async fn stage(core: &Core, group: &Group, written: &EncodedGroup) -> Result<(), StoreError> {
    for (space, sealed) in &written.values {
        let stage = core.keys.staged_group(*space, group.head(), &written.id);
        put_pieces(core, &stage, &sealed.pieces).await?;
    }
    Ok(())
}

/// Writes the pieces of one large value to separate etcd keys below the key prefix `stage`.
pub(super) async fn put_pieces(core: &Core, stage: &str, pieces: &[Vec<u8>]) -> Result<(), StoreError> {
    for (number, body) in pieces.iter().enumerate() {
        let put = Txn::new().and_then([TxnOp::put(piece(stage, number), body.clone(), None)]);
        core.link.repeat(&put).await.map_err(|failure| failure.during("write to etcd"))?;
    }
    Ok(())
}

/// Deletes the pieces of a failed commit. Pieces that remain because a deletion failed are deleted later by
/// `trim::sweep`.
async fn unstage(core: &Core, group: &Group, written: &EncodedGroup) {
    for (space, sealed) in &written.values {
        if sealed.pieces.is_empty() {
            continue;
        }
        let stage = core.keys.staged_group(*space, group.head(), &written.id);
        let range = DeleteOptions::new().with_range(end_of(&stage));
        let _ = core.link.txn(Txn::new().and_then([TxnOp::delete(stage, Some(range))])).await;
    }
}

/// Executes the transaction of a commit, and determines its outcome (see `attempt`) if the response is lost.
async fn land(
    core: &Core,
    at: Position,
    head_version: i64,
    group: &Group,
    written: &EncodedGroup,
) -> Result<Outcome, StoreError> {
    let mut retry = Retry::new(PATIENCE);
    let mut attempt = Attempt::new(at, group.head(), head_version);
    loop {
        let request = attempt.request();
        let is_commit = matches!(request, Request::Commit { .. });
        let action = if is_commit { "commit to etcd" } else { UNCERTAIN };
        let (reply, failure) = match send(core, at, request, group, written).await {
            Ok(reply) => (reply, None),
            Err(SendError::Store(error)) => return Err(error),
            Err(SendError::Failed(failure)) => match (failure, is_commit) {
                (failure @ (Failure::Refused { .. } | Failure::Compacted { .. }), true) => {
                    return Err(failure.during(action));
                }
                (Failure::Compacted { .. }, false) => (Reply::Compacted, None),
                (failure @ (Failure::Lost { .. } | Failure::Refused { .. }), _) => {
                    (Reply::Lost, Some(failure))
                }
            },
        };
        if failure.is_some() && is_commit {
            core.link.counters.doubted();
        }
        if let Some(outcome) = attempt.handle(reply) {
            return Ok(outcome);
        }
        // Fencing begins at once; a repeated request waits.
        let is_again = matches!(attempt.request(), Request::Commit { .. }) || failure.is_some() && !is_commit;
        if is_again && !retry.again().await {
            let gave_up = failure.unwrap_or_else(|| Failure::Lost {
                member: "etcd".to_owned(),
                reason: "the head was rewritten repeatedly".to_owned(),
            });
            return Err(gave_up.during(action));
        }
    }
}

/// Reason why a request of a commit has no reply.
#[derive(Debug)]
pub(super) enum SendError {
    /// The call to etcd failed.
    Failed(Failure),
    /// The store contains unreadable values.
    Store(StoreError),
}

/// Sends one request of a commit to etcd once, without retries.
pub(super) async fn send(
    core: &Core,
    at: Position,
    request: Request,
    group: &Group,
    written: &EncodedGroup,
) -> Result<Reply, SendError> {
    let (head, log) = (core.keys.head(), core.keys.group(Space::Log, group.head()));
    let expected = |version| [Compare::mod_revision(head.clone(), CompareOp::Equal, version)];
    let reads = |at: i64| {
        let past = GetOptions::new().with_revision(at);
        let (start, end) = (core.keys.group(Space::Log, Revision(0)), core.keys.group_end(Space::Log));
        let oldest = past.clone().with_range(end).with_limit(1).with_keys_only();
        [
            TxnOp::get(head.clone(), Some(past.clone())),
            TxnOp::get(log, Some(past)),
            TxnOp::get(start, Some(oldest)),
        ]
    };
    // Revision 0 is the present.
    let txn = match request {
        Request::Commit { head_version } => {
            Txn::new().when(expected(head_version)).and_then(puts(core, at, group, written)).or_else(reads(0))
        }
        Request::Fence { head_version } => {
            let rewrite = TxnOp::put(head.clone(), at.to_string(), None);
            Txn::new().when(expected(head_version)).and_then([rewrite]).or_else(reads(0))
        }
        Request::Read { at } => Txn::new().and_then(reads(at)),
    };
    let answer = core.link.txn(txn).await.map_err(SendError::Failed)?;
    match request {
        Request::Commit { .. } | Request::Fence { .. } if answer.succeeded() => {
            Ok(Reply::Written(read::revision(&answer)))
        }
        Request::Commit { .. } | Request::Fence { .. } | Request::Read { .. } => {
            seen(core, group, written, &answer).map(Reply::Seen).map_err(SendError::Store)
        }
    }
}

/// Parses the reads of a request of a commit.
fn seen(
    core: &Core,
    group: &Group,
    written: &EncodedGroup,
    answer: &TxnResponse,
) -> Result<SeenState, StoreError> {
    let revision = read::revision(answer);
    let values = read::values(answer);
    let value = |index: usize| values.get(index).and_then(|values| values.first());
    let entry = value(1).map(|value| {
        let name = format!("the group of commit {}", group.head());
        let opened = wire::open(value.value()).map_err(|reason| read::unreadable(&name, reason))?;
        Ok::<_, StoreError>(SeenEntry {
            is_own: opened.envelope.id == written.id,
            version: value.mod_revision(),
        })
    });
    Ok(SeenState {
        head: read::parse_head(value(0), revision)?,
        entry: entry.transpose()?,
        log_start: value(2).and_then(|value| core.keys.last_of(Space::Log, value.key())),
    })
}

fn puts(core: &Core, at: Position, group: &Group, written: &EncodedGroup) -> Vec<TxnOp> {
    let last = group.head();
    let mut puts = vec![TxnOp::put(core.keys.head(), Position { revision: last, ..at }.to_string(), None)];
    for (space, sealed) in &written.values {
        puts.push(TxnOp::put(core.keys.group(*space, last), sealed.value.clone(), None));
    }
    puts
}

/// Starts a new epoch at the current revision.
pub(super) async fn raise_epoch(core: &Core, now: Timestamp) -> Result<Position, StoreError> {
    let action = "raise the epoch";
    let mut retry = Retry::new(PATIENCE);
    let mut wanted: Option<Position> = None;
    loop {
        let head = read::head(&core.link, &core.keys).await?;
        if wanted == Some(head.position) {
            // The response to an earlier attempt was lost.
            return Ok(head.position);
        }
        let next = Position { epoch: epoch_after(Some(head.position.epoch), now), ..head.position };
        wanted = Some(next);
        let key = core.keys.head();
        let txn = Txn::new()
            .when([Compare::mod_revision(key.clone(), CompareOp::Equal, head.version)])
            .and_then([TxnOp::put(key, next.to_string(), None)]);
        match core.link.txn(txn).await {
            Ok(answer) if answer.succeeded() => return Ok(next),
            // Another process has committed meanwhile.
            Ok(_) if retry.again().await => {}
            Ok(_) => {
                let cause = std::io::Error::other("other processes write continuously; stop them first");
                return Err(StoreError::unavailable(action, cause));
            }
            Err(failure @ Failure::Lost { .. }) => {
                if !retry.again().await {
                    return Err(failure.during(action));
                }
            }
            Err(failure @ (Failure::Refused { .. } | Failure::Compacted { .. })) => {
                return Err(failure.during(action));
            }
        }
    }
}
