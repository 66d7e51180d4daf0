//! Reads, each of one revision of etcd: what is in two answers belongs together.

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
use crate::{Loaded, StoreError, record, window::Entry};

/// Values of groups in one answer: with the largest that is written whole, 8 MiB.
const GROUPS_AT_ONCE: i64 = 32;
/// Objects in one answer: with the largest that is written whole, 16 MiB.
const OBJECTS_AT_ONCE: i64 = 256;
/// Pieces in one answer.
const PIECES_AT_ONCE: i64 = 8;
/// How often a read is begun because etcd has dropped its revision meanwhile. The leader keeps minutes of them; others may
/// keep none.
const READS_MAX: usize = 10;

/// Why a read ends early.
pub(super) enum Broken {
    /// etcd no longer has the revision: begin again.
    Compacted,
    /// It does not get better by beginning again.
    Store(StoreError),
}

impl From<Broken> for StoreError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Store(error) => error,
            Broken::Compacted => {
                let cause = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Self::unavailable("read the state before etcd was compacted", cause)
            }
        }
    }
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Where the store is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) position: Position,
    /// etcd's revision of the key.
    pub(super) version: i64,
    /// etcd's revision of the answer.
    pub(super) at: i64,
}

/// Everything, as it is stored.
#[derive(Debug)]
struct Everything {
    head: Head,
    base: Revision,
    /// Key, revision in etcd's value and body.
    objects: Vec<(String, Vec<u8>)>,
    log: Vec<LogGroup>,
}

/// Reads everything: for who starts, and for the mirror.
pub(super) async fn load(link: &Link, keys: &Keys) -> Result<(Loaded, Mirror), StoreError> {
    let mut begun = Begun::default();
    let everything = loop {
        match read_everything(link, keys).await {
            Err(broken) if begun.again(&broken) => {}
            read => break read?,
        }
    };
    // Decoding a large state takes long enough to starve the other tasks of this thread.
    let decoded = tokio::task::spawn_blocking(move || decode(everything));
    decoded.await.unwrap_or_else(|error| Err(StoreError::unavailable("decode the state", error)))
}

/// Reads where the store is, and as of then the groups of the log from that of a revision on.
pub(super) async fn log_from(
    link: &Link,
    keys: &Keys,
    first: Revision,
) -> Result<(Head, Vec<LogGroup>), StoreError> {
    let mut begun = Begun::default();
    loop {
        let head = head(link, keys).await?;
        match groups(link, keys, first, head.at).await {
            Err(broken) if begun.again(&broken) => {}
            groups => return Ok((head, groups?)),
        }
    }
}

/// Reads where the store is.
pub(super) async fn head(link: &Link, keys: &Keys) -> Result<Head, StoreError> {
    let answer = link.get(&keys.head(), &GetOptions::new()).await.map_err(reading)?;
    let at = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
    parse_head(answer.kvs().first(), at)
}

/// Reads the head out of an answer.
pub(super) fn parse_head(value: Option<&KeyValue>, at: i64) -> Result<Head, StoreError> {
    let value = value.ok_or_else(|| unreadable("head", "it is gone".to_owned()))?;
    let text = value.value_str().map_err(|error| unreadable("head", error.to_string()))?;
    let position: Position = text.parse().map_err(|error| unreadable("head", error))?;
    check_revision("head", position.revision)?;
    Ok(Head { position, version: value.mod_revision(), at })
}

/// Counts how often a read begins again.
#[derive(Debug, Default)]
pub(super) struct Begun(usize);

impl Begun {
    /// Whether a read that was broken so may begin again.
    pub(super) fn again(&mut self, broken: &Broken) -> bool {
        self.0 += 1;
        match broken {
            Broken::Compacted => self.0 < READS_MAX,
            Broken::Store(_) => false,
        }
    }
}

/// Reads the groups of the log from that of a revision on, as of a revision of etcd.
pub(super) async fn groups(
    link: &Link,
    keys: &Keys,
    first: Revision,
    at: i64,
) -> Result<Vec<LogGroup>, Broken> {
    let (start, end) = (keys.group(Space::Log, first), keys.group_end(Space::Log));
    let mut groups = Vec::new();
    for value in range(link, start, &end, GROUPS_AT_ONCE, at).await? {
        let (key, value) = value.into_key_value();
        let name = String::from_utf8_lossy(&key).into_owned();
        let last = keys.last_of(Space::Log, &key);
        let last = last.ok_or_else(|| unreadable(&name, "the key names no revision".to_owned()))?;
        let opened = wire::open(&value).map_err(|reason| unreadable(&name, reason))?;
        let stage = keys.staged_group(Space::Log, last, &opened.envelope.id);
        groups.push(LogGroup::new(last, payload(link, &name, opened, &stage, at).await?));
    }
    Ok(groups)
}

/// The payload of a value, gathered from its pieces if need be.
pub(super) async fn payload(
    link: &Link,
    name: &str,
    opened: wire::Opened,
    stage: &str,
    at: i64,
) -> Result<Vec<u8>, Broken> {
    if opened.envelope.pieces == 0 {
        return Ok(opened.payload);
    }
    let pieces = range(link, stage.to_owned(), &end_of(stage), PIECES_AT_ONCE, at).await?;
    let pieces: Vec<_> = pieces.into_iter().map(|piece| piece.into_key_value().1).collect();
    debug_assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES), "as they are written");
    wire::join(&opened.envelope, &pieces).map_err(|reason| unreadable(name, reason).into())
}

/// Reads a range in pages, as of a revision of etcd.
pub(super) async fn range(
    link: &Link,
    start: String,
    end: &str,
    page: i64,
    at: i64,
) -> Result<Vec<KeyValue>, Broken> {
    let options = GetOptions::new().with_range(end).with_limit(page).with_revision(at);
    let (mut all, mut start) = (Vec::new(), start);
    loop {
        let mut answer = match link.get(&start, &options).await {
            Ok(answer) => answer,
            Err(Failure::Compacted { .. }) => return Err(Broken::Compacted),
            Err(failure @ (Failure::Lost { .. } | Failure::Refused { .. })) => {
                return Err(reading(failure).into());
            }
        };
        all.extend(answer.take_kvs());
        let Some(last) = all.last().filter(|_| answer.more()) else { return Ok(all) };
        // The first key behind it.
        let key = last.key_str().map_err(|error| unreadable("a key", error.to_string()))?;
        start = format!("{key}\0");
    }
}

/// Carries out several reads as of one revision of etcd; answers the values of each.
pub(super) async fn together(
    link: &Link,
    reads: Vec<TxnOp>,
) -> Result<(i64, Vec<Vec<KeyValue>>), StoreError> {
    let answer = link.repeat(&Txn::new().and_then(reads)).await.map_err(reading)?;
    Ok((revision(&answer), values(&answer)))
}

/// etcd's revision of an answer.
pub(super) fn revision(answer: &TxnResponse) -> i64 {
    answer.header().map_or(0, etcd_client::ResponseHeader::revision)
}

/// The values of the reads in an answer.
pub(super) fn values(answer: &TxnResponse) -> Vec<Vec<KeyValue>> {
    let read = |answer| match answer {
        TxnOpResponse::Get(mut read) => Some(read.take_kvs()),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    };
    answer.op_responses().into_iter().filter_map(read).collect()
}

/// How many keys the reads of an answer have counted that ask for a count only.
pub(super) fn count(answer: &TxnResponse) -> i64 {
    let count = |answer| match answer {
        TxnOpResponse::Get(read) if read.kvs().is_empty() => read.count(),
        TxnOpResponse::Get(_) | TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => 0,
    };
    answer.op_responses().into_iter().map(count).sum()
}

/// The error of a read.
pub(super) fn reading(failure: Failure) -> StoreError {
    failure.during("read from etcd")
}

/// The error of a value that is not what this program writes.
pub(super) fn unreadable(key: &str, reason: String) -> StoreError {
    StoreError::Unreadable { key: key.to_owned(), reason }
}

/// A revision in decimals.
pub(super) fn parse_revision(key: &str, value: Option<&KeyValue>) -> Result<Revision, StoreError> {
    let Some(value) = value else { return Ok(Revision(0)) };
    let text = value.value_str().map_err(|error| unreadable(key, error.to_string()))?;
    let revision = text.parse().map(Revision);
    let revision = revision.map_err(|_| unreadable(key, "it is no revision".to_owned()))?;
    check_revision(key, revision)?;
    Ok(revision)
}

/// Refuses what no store reaches, so that there is always a next one.
fn check_revision(key: &str, revision: Revision) -> Result<(), StoreError> {
    if revision <= REVISION_MAX { Ok(()) } else { Err(unreadable(key, format!("{revision} is no revision"))) }
}

async fn read_everything(link: &Link, keys: &Keys) -> Result<Everything, Broken> {
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
        // The writer of an object is the revision it had.
        let revision = opened.envelope.id.parse().map(Revision);
        let revision = revision.map_err(|_| unreadable(&name, "it names no revision".to_owned()))?;
        let stage = keys.staged_object(&key, revision);
        let body = payload(link, &name, opened, &stage, at).await?;
        objects.push((key, body));
    }
    let log = groups(link, keys, Revision(0), at).await?;
    Ok(Everything { head, base, objects, log })
}

fn decode(everything: Everything) -> Result<(Loaded, Mirror), StoreError> {
    let Everything { head, base, objects, log } = everything;
    let mut bodies: BTreeMap<String, Vec<u8>> = objects.into_iter().collect();
    let mut entries: Vec<Entry> = Vec::new();
    for group in &log {
        for commit in group.commits()? {
            let before = entries.last().map(|entry| entry.revision);
            // Before the first, everything is in the objects.
            let may_follow =
                before.map_or(commit.revision <= base.next(), |before| commit.revision == before.next());
            if !may_follow {
                let reason = format!("it does not follow {}", before.unwrap_or(base));
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
        let reason = format!("it says {position}, the log ends at {newest}");
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
    Ok((Loaded { position, objects, recent }, mirror))
}
