//! Reads of the etcd store at a fixed etcd revision, so that several responses are consistent with each
//! other.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use etcd_client::{GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse};
use model::{
    cluster::change::{ChangeKind, Commit},
    primitives::quantity::{Position, Revision},
};

use super::{
    keys::{Keys, REVISION_MAX, Space, end_of},
    link::{Failure, Link},
    mirror::{LogGroup, Mirror},
    wire::{self, PIECE_BYTES},
};
use crate::{StoreError, StoredState, record, window::Entry};

/// Number of groups per page; their values have at most 8 MiB, unless stored in pieces.
const GROUPS_AT_ONCE: i64 = 32;
/// Number of objects per page; their values have at most 16 MiB, unless stored in pieces.
const OBJECTS_AT_ONCE: i64 = 256;
/// Number of pieces of a large value that are read at once.
const PIECES_AT_ONCE: i64 = 8;
/// Maximum number of attempts of a read whose etcd revision is compacted meanwhile. The leader keeps minutes
/// of etcd's history; other programs may compact all of it.
const READS_MAX: usize = 10;

/// Reason why a read that takes several requests at one etcd revision failed.
pub(super) enum ReadError {
    /// The etcd revision was compacted during the read, which must start again.
    Compacted,
    /// The store failed, with this error; the read is not attempted again.
    Store(StoreError),
}

impl From<ReadError> for StoreError {
    fn from(broken: ReadError) -> Self {
        match broken {
            ReadError::Store(error) => error,
            ReadError::Compacted => {
                let cause = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Self::unavailable("read the state before etcd was compacted", cause)
            }
        }
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Position (epoch and revision) of the store, with the etcd revision at which it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Head {
    pub(super) position: Position,
    /// Modification revision of the head key in etcd.
    pub(super) version: i64,
    /// etcd revision at which the store's position was read.
    pub(super) at: i64,
}

/// Complete state of the store in stored form.
#[derive(Debug)]
struct Everything {
    head: Head,
    base: Revision,
    /// Objects as store key and body.
    objects: Vec<(String, Vec<u8>)>,
    log: Vec<LogGroup>,
}

/// Reads the complete state of the store. Returns the state for a starting control server, and the cached
/// state (mirror) for later commits.
pub(super) async fn load(link: &Link, keys: &Keys) -> Result<(StoredState, Mirror), StoreError> {
    let mut attempts = ReadAttempts::default();
    let everything = loop {
        match read_everything(link, keys).await {
            Err(broken) if attempts.again(&broken) => {}
            read => break read?,
        }
    };
    // Decoding a large state would block the other tasks of this thread.
    let decoded = tokio::task::spawn_blocking(move || decode(everything));
    decoded.await.unwrap_or_else(|error| Err(StoreError::unavailable("decode the state", error)))
}

/// Reads the store's position, and the commit groups of the log from revision `first` on, at the same etcd
/// revision.
pub(super) async fn log_from(
    link: &Link,
    keys: &Keys,
    first: Revision,
) -> Result<(Head, Vec<LogGroup>), StoreError> {
    let mut attempts = ReadAttempts::default();
    loop {
        let head = head(link, keys).await?;
        match groups(link, keys, first, head.at).await {
            Err(broken) if attempts.again(&broken) => {}
            groups => return Ok((head, groups?)),
        }
    }
}

/// Reads the position (epoch and revision) of the store from the etcd key `head`.
pub(super) async fn head(link: &Link, keys: &Keys) -> Result<Head, StoreError> {
    let answer = link.get(&keys.head(), &GetOptions::new()).await.map_err(reading)?;
    let at = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
    parse_head(answer.kvs().first(), at)
}

/// Parses the store's position from the etcd key `head`. `at` is the etcd revision of the response.
pub(super) fn parse_head(value: Option<&KeyValue>, at: i64) -> Result<Head, StoreError> {
    let value = value.ok_or_else(|| unreadable("head", "the key is missing".to_owned()))?;
    let text = value.value_str().map_err(|error| unreadable("head", error.to_string()))?;
    let position: Position = text.parse().map_err(|error| unreadable("head", error))?;
    check_revision("head", position.revision)?;
    Ok(Head { position, version: value.mod_revision(), at })
}

/// Counter of the attempts of a read, which starts again if etcd was compacted meanwhile.
#[derive(Debug, Default)]
pub(super) struct ReadAttempts(usize);

impl ReadAttempts {
    /// Counts a failed attempt. Returns true if the read may start again: etcd was compacted, and the
    /// attempts are not used up.
    pub(super) fn again(&mut self, broken: &ReadError) -> bool {
        self.0 += 1;
        match broken {
            ReadError::Compacted => self.0 < READS_MAX,
            ReadError::Store(_) => false,
        }
    }
}

/// Reads the commit groups of the log from revision `first` on, in their state at the etcd revision `at`.
pub(super) async fn groups(
    link: &Link,
    keys: &Keys,
    first: Revision,
    at: i64,
) -> Result<Vec<LogGroup>, ReadError> {
    let (start, end) = (keys.group(Space::Log, first), keys.group_end(Space::Log));
    let mut groups = Vec::new();
    for value in range(link, start, &end, GROUPS_AT_ONCE, at).await? {
        let (key, value) = value.into_key_value();
        let name = String::from_utf8_lossy(&key).into_owned();
        let last = keys.last_of(Space::Log, &key);
        let last = last.ok_or_else(|| unreadable(&name, "the key contains no revision".to_owned()))?;
        let opened = wire::open(&value).map_err(|reason| unreadable(&name, reason))?;
        let stage = keys.staged_group(Space::Log, last, &opened.envelope.id);
        groups.push(LogGroup::new(last, payload(link, &name, opened, &stage, at).await?));
    }
    Ok(groups)
}

/// Returns the payload of a value. If the value contains only an envelope, because the payload is too large
/// for one key, reads and assembles the pieces.
pub(super) async fn payload(
    link: &Link,
    name: &str,
    opened: wire::DecodedValue,
    stage: &str,
    at: i64,
) -> Result<Vec<u8>, ReadError> {
    if opened.envelope.pieces == 0 {
        return Ok(opened.payload);
    }
    let pieces = range(link, stage.to_owned(), &end_of(stage), PIECES_AT_ONCE, at).await?;
    let pieces: Vec<_> = pieces.into_iter().map(|piece| piece.into_key_value().1).collect();
    debug_assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES), "pieces have the written size");
    wire::join(&opened.envelope, &pieces).map_err(|reason| unreadable(name, reason).into())
}

/// Reads a range of keys in pages, all as of one etcd revision.
pub(super) async fn range(
    link: &Link,
    start: String,
    end: &str,
    page: i64,
    at: i64,
) -> Result<Vec<KeyValue>, ReadError> {
    let options = GetOptions::new().with_range(end).with_limit(page).with_revision(at);
    let (mut all, mut start) = (Vec::new(), start);
    loop {
        let mut answer = match link.get(&start, &options).await {
            Ok(answer) => answer,
            Err(Failure::Compacted { .. }) => return Err(ReadError::Compacted),
            Err(failure @ (Failure::Lost { .. } | Failure::Refused { .. })) => {
                return Err(reading(failure).into());
            }
        };
        all.extend(answer.take_kvs());
        let Some(last) = all.last().filter(|_| answer.more()) else { return Ok(all) };
        // The first possible key after it.
        let key = last.key_str().map_err(|error| unreadable("a key", error.to_string()))?;
        start = format!("{key}\0");
    }
}

/// Executes several reads in one transaction. Returns its etcd revision, and the values of each read.
pub(super) async fn together(
    link: &Link,
    reads: Vec<TxnOp>,
) -> Result<(i64, Vec<Vec<KeyValue>>), StoreError> {
    let answer = link.repeat(&Txn::new().and_then(reads)).await.map_err(reading)?;
    Ok((revision(&answer), values(&answer)))
}

/// Returns the etcd revision at which a transaction was executed.
pub(super) fn revision(answer: &TxnResponse) -> i64 {
    answer.header().map_or(0, etcd_client::ResponseHeader::revision)
}

/// Returns the values of each read in the response to a transaction.
pub(super) fn values(answer: &TxnResponse) -> Vec<Vec<KeyValue>> {
    let read = |answer| match answer {
        TxnOpResponse::Get(mut read) => Some(read.take_kvs()),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    };
    answer.op_responses().into_iter().filter_map(read).collect()
}

/// Returns the sum of the counts of all count-only reads in the response to a transaction.
pub(super) fn count(answer: &TxnResponse) -> i64 {
    let count = |answer| match answer {
        TxnOpResponse::Get(read) if read.kvs().is_empty() => read.count(),
        TxnOpResponse::Get(_) | TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => 0,
    };
    answer.op_responses().into_iter().map(count).sum()
}

/// Converts the failure of a read from etcd to a store error.
pub(super) fn reading(failure: Failure) -> StoreError {
    failure.during("read from etcd")
}

/// Returns the error for a malformed value of a key.
pub(super) fn unreadable(key: &str, reason: String) -> StoreError {
    StoreError::Unreadable { key: key.to_owned(), reason }
}

/// Parses a decimal store revision from the value of a key. Returns revision 0 if the key does not exist.
pub(super) fn parse_revision(key: &str, value: Option<&KeyValue>) -> Result<Revision, StoreError> {
    let Some(value) = value else { return Ok(Revision(0)) };
    let text = value.value_str().map_err(|error| unreadable(key, error.to_string()))?;
    let revision = text.parse().map(Revision);
    let revision = revision.map_err(|_| unreadable(key, "the value is not a revision".to_owned()))?;
    check_revision(key, revision)?;
    Ok(revision)
}

/// Returns an error if a revision exceeds [`REVISION_MAX`], so that every accepted revision has a successor.
fn check_revision(key: &str, revision: Revision) -> Result<(), StoreError> {
    if revision <= REVISION_MAX {
        Ok(())
    } else {
        Err(unreadable(
            key,
            format!(
                "{revision} is not a valid \
                                                                               revision"
            ),
        ))
    }
}

async fn read_everything(link: &Link, keys: &Keys) -> Result<Everything, ReadError> {
    let reads = [keys.head(), keys.base()].map(|key| TxnOp::get(key, None)).to_vec();
    let (at, values) = together(link, reads).await?;
    let value = |index: usize| values.get(index).and_then(|values| values.first());
    let head = parse_head(value(0), at)?;
    let base = parse_revision("base", value(1))?;
    let (start, end) = (keys.objects(), end_of(&keys.objects()));
    let mut objects = Vec::new();
    for value in range(link, start.clone(), &end, OBJECTS_AT_ONCE, at).await? {
        let (key, value) = value.into_key_value();
        let name = String::from_utf8_lossy(&key).into_owned();
        let opened = wire::open(&value).map_err(|reason| unreadable(&name, reason))?;
        let key = name.strip_prefix(&start).unwrap_or(&name).to_owned();
        // The envelope id of an object is the revision of its last change.
        let revision = opened.envelope.id.parse().map(Revision);
        let revision =
            revision.map_err(|_| unreadable(&name, "the value contains no revision".to_owned()))?;
        let stage = keys.staged_object(&key, revision);
        let body = payload(link, &name, opened, &stage, at).await?;
        objects.push((key, body));
    }
    let log = groups(link, keys, Revision(0), at).await?;
    Ok(Everything { head, base, objects, log })
}

fn decode(everything: Everything) -> Result<(StoredState, Mirror), StoreError> {
    let Everything { head, base, objects, log } = everything;
    let mut bodies: BTreeMap<String, Vec<u8>> = objects.into_iter().collect();
    let mut entries: Vec<Entry> = Vec::new();
    for group in &log {
        for commit in group.commits()? {
            let before = entries.last().map(|entry| entry.revision);
            // All commits before the first one in the log are folded into the objects.
            let may_follow =
                before.map_or(commit.revision <= base.next(), |before| commit.revision == before.next());
            if !may_follow {
                let reason = format!("the commit does not follow {}", before.unwrap_or(base));
                return Err(unreadable(&format!("commit {}", commit.revision), reason));
            }
            entries.push(commit.entry());
            if commit.revision <= base {
                continue;
            }
            for (kind, key, body) in commit.changes()? {
                match kind {
                    ChangeKind::Added | ChangeKind::Modified => {
                        drop(bodies.insert(key, body.as_bytes().to_vec()));
                    }
                    ChangeKind::Deleted => drop(bodies.remove(&key)),
                }
            }
        }
    }
    let position = head.position;
    let newest = entries.last().map_or(base, |entry| entry.revision);
    if newest.max(base) != position.revision {
        let reason = format!("the head is {position}, but the log ends at {newest}");
        return Err(unreadable("head", reason));
    }
    let known: HashSet<_> = bodies.keys().cloned().collect();
    let mirror = Mirror::new(position, head.version, known, entries);
    let mut recent = Vec::new();
    for group in &log {
        let kept = group.commits()?.into_iter().filter(|commit| Some(commit.revision) >= mirror.oldest());
        recent.extend(kept.map(super::mirror::LogCommit::decode).collect::<Result<Vec<Commit>, _>>()?);
    }
    let objects = bodies.iter().map(|(key, body)| record::decode(key, body).map(Arc::new));
    let objects = objects.collect::<Result<_, _>>()?;
    Ok((StoredState { position, objects, recent }, mirror))
}
