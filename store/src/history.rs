//! Stored history of writes, and its queries.
//!
//! An entry consists of two documents: the head (author and keys), read by listings, and the body (objects
//! before and after), read for a single revision or a rollback.

use std::sync::Arc;

use model::{
    cluster::{
        change::ChangeKind,
        history::{Maker, Origin, RevisedObject, RevisionEntry, RevisionHead},
    },
    kinds::resource::{Kind, Object, ObjectKey},
    primitives::{
        name::{Name, Namespace},
        quantity::{Revision, Timestamp},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{error::StoreError, group::EncodedCommit, record};

/// Selection of history entries, with the maximum number to return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Exclusive upper limit of the revisions to return; `None` starts with the newest.
    pub before: Option<Revision>,
    /// Filter of changed objects; an entry matches if one of its objects does.
    pub filter: ObjectFilter,
    /// Maximum number of returned entries, newest first.
    pub limit: usize,
}

/// Filter of objects, in which a field that is `None` matches any value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectFilter {
    /// Kind of the object.
    pub kind: Option<Kind>,
    /// Namespace of the object.
    pub namespace: Option<Namespace>,
    /// Name of the object.
    pub name: Option<Name>,
}

/// Page of history entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPage {
    /// Heads of the entries (author and keys), newest first.
    pub heads: Vec<RevisionHead>,
    /// Revision up to which client writes may be missing. Server writes may be missing beyond it, because
    /// fewer of them are retained.
    pub floor: Revision,
}

/// History entry in encoded form.
#[derive(Debug)]
pub(crate) struct EncodedEntry {
    pub(crate) revision: Revision,
    pub(crate) at: Timestamp,
    pub(crate) is_by_server: bool,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Row of a history entry: revision, time in Unix seconds, and encoded head (author and keys).
pub(crate) type HeadRow = (i64, i64, Vec<u8>);

#[derive(Serialize, Deserialize)]
struct EntryHeader {
    origin: Origin,
    touched: Vec<(ChangeKind, String)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateIn<'a> {
    key: String,
    #[serde(borrow, default)]
    before: Option<&'a RawValue>,
    #[serde(borrow, default)]
    after: Option<&'a RawValue>,
}

impl ObjectFilter {
    /// True if the filter matches every object.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        let Self { kind, namespace, name } = self;
        kind.is_none() && namespace.is_none() && name.is_none()
    }

    /// Returns true if an entry changed a matching object.
    #[must_use]
    pub fn matches(&self, head: &RevisionHead) -> bool {
        let Self { kind, namespace, name } = self;
        let is_meant = |key: &ObjectKey| {
            kind.is_none_or(|kind| kind == key.kind)
                && namespace.as_ref().is_none_or(|namespace| key.namespace.as_ref() == Some(namespace))
                && name.as_ref().is_none_or(|name| *name == key.name)
        };
        self.is_empty() || head.touched.iter().any(|(_, key)| is_meant(key))
    }
}

impl EncodedEntry {
    /// Returns the encoded size of the entry in bytes: head and body.
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

/// Encodes the history entry of a commit. Objects that the encoded commit already contains are not encoded
/// again.
pub(crate) fn encode(entry: &RevisionEntry, commit: &EncodedCommit) -> EncodedEntry {
    let RevisionEntry { revision, at, origin, objects } = entry;
    let keys: Vec<_> = objects.iter().map(|object| object.key.to_store_key()).collect();
    // The bodies are JSON already and are only concatenated.
    let mut body = String::from("[");
    for (index, (object, key)) in objects.iter().zip(&keys).enumerate() {
        let written = commit.changes.get(index).filter(|change| change.key == *key);
        body.push_str(if index == 0 { "{\"key\":" } else { ",{\"key\":" });
        body.push_str(&serde_json::to_string(key).expect("a text serialises"));
        if let Some(before) = &object.before {
            body.push_str(",\"before\":");
            body.push_str(record::encode(before).get());
        }
        if let Some(after) = &object.after {
            body.push_str(",\"after\":");
            match written {
                Some(change) => body.push_str(change.body.get()),
                None => body.push_str(record::encode(after).get()),
            }
        }
        body.push('}');
    }
    body.push(']');
    let touched = objects.iter().zip(&keys).map(|(object, key)| (object.kind(), key.clone())).collect();
    let head = EntryHeader { origin: origin.clone(), touched };
    EncodedEntry {
        revision: *revision,
        at: *at,
        is_by_server: origin.maker == Maker::Server,
        head: serde_json::to_string(&head).expect(
            "origins have string keys only and serialize without \
                                                   failing",
        ),
        body,
    }
}

/// Encodes a history entry that is written without its commit, because the contents of the store are
/// replaced.
pub(crate) fn encode_alone(entry: &RevisionEntry) -> EncodedEntry {
    let commit =
        EncodedCommit { revision: entry.revision, at: entry.at, changes: Vec::new(), body: String::new() };
    encode(entry, &commit)
}

/// Decodes the head of an entry (author and keys) from its row.
pub(crate) fn decode_head((revision, at, head): HeadRow) -> Result<RevisionHead, StoreError> {
    let revision = Revision(revision.unsigned_abs());
    let EntryHeader { origin, touched } =
        serde_json::from_slice(&head).map_err(|error| unreadable(revision, &error.to_string()))?;
    let key = |(kind, key): (ChangeKind, String)| {
        let parsed = ObjectKey::parse_store_key(&key);
        Ok((kind, parsed.ok_or_else(|| unreadable(revision, &format!("{key} has an unknown kind")))?))
    };
    let touched = touched.into_iter().map(key).collect::<Result<_, StoreError>>()?;
    Ok(RevisionHead { revision, at: Timestamp::from_unix_seconds(at), origin, touched })
}

/// Decodes a history entry from its row (with the head) and its body.
pub(crate) fn decode(row: HeadRow, body: &[u8]) -> Result<RevisionEntry, StoreError> {
    let RevisionHead { revision, at, origin, touched: _ } = decode_head(row)?;
    let states: Vec<StateIn<'_>> =
        serde_json::from_slice(body).map_err(|error| unreadable(revision, &error.to_string()))?;
    let object = |key: &str, body: Option<&RawValue>| -> Result<Option<Arc<Object>>, StoreError> {
        let decoded = body.map(|body| record::decode(key, body.get().as_bytes())).transpose();
        decoded.map(|object| object.map(Arc::new)).map_err(|error| unreadable(revision, &error.to_string()))
    };
    let revised = |StateIn { key, before, after }: StateIn<'_>| {
        let (before, after) = (object(&key, before)?, object(&key, after)?);
        let known = ObjectKey::parse_store_key(&key);
        let key = known.ok_or_else(|| unreadable(revision, &format!("{key} has an unknown kind")))?;
        Ok(RevisedObject { key, before, after })
    };
    let objects = states.into_iter().map(revised).collect::<Result<_, StoreError>>()?;
    Ok(RevisionEntry { revision, at, origin, objects })
}

fn unreadable(revision: Revision, reason: &str) -> StoreError {
    StoreError::Unreadable { key: format!("history of revision {revision}"), reason: reason.to_owned() }
}
