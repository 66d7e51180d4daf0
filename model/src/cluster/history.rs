//! What is kept of every accepted write for people: who asked for it, why, and each object before and after.
//!
//! The change log is for watches and short; history is for the question "what happened here, and can it be undone?".
//! Who asked is what the client says of itself, as long as nobody is asked to prove it.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    cluster::change::ChangeKind,
    kinds::{
        metadata::pointer,
        resource::{Object, ObjectKey},
    },
    primitives::quantity::{Revision, Timestamp},
};

/// Characters of an author: `user@host` with long names, and the longest name of a node with its prefix.
pub const AUTHOR_LENGTH_MAX: usize = 260;
/// Characters of a message; whoever has more to say says where it is written.
pub const MESSAGE_LENGTH_MAX: usize = 200;
/// Fields that the difference of one object lists; further ones are counted.
pub const FIELDS_MAX: usize = 1000;
/// What the author of an agent's own write begins with; the name of its node follows.
pub const AGENT_AUTHOR_PREFIX: &str = "agent/";
/// What is shown in place of a secret.
pub const HIDDEN: &str = "(hidden)";
/// The author of what the server writes by itself.
pub const SERVER_AUTHOR: &str = "tidegate";

/// Who asked for a write, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// What asked.
    pub maker: Maker,
    /// Who, as the client says; `unknown` when it says nothing.
    #[schema(max_length = 260)]
    pub author: String,
    /// Why, as the client says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub message: Option<String>,
    /// The id of the request, as in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub request_id: Option<String>,
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source: Option<IpAddr>,
}

/// What asked for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Maker {
    /// Somebody; the author is claimed, not proven.
    Client,
    /// The agent of a node, registering it.
    Agent,
    /// The server itself.
    Server,
}

/// A revision in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionHead {
    /// The revision.
    pub revision: Revision,
    /// When it was accepted.
    pub at: Timestamp,
    /// Who asked for it.
    pub origin: Origin,
    /// What it changed, and how.
    pub touched: Vec<(ChangeKind, ObjectKey)>,
}

/// A revision with all that it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionEntry {
    /// The revision.
    pub revision: Revision,
    /// When it was accepted.
    pub at: Timestamp,
    /// Who asked for it.
    pub origin: Origin,
    /// At least one object.
    pub objects: Vec<Revised>,
}

/// An object of a revision, before and after; it is at least one of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revised {
    /// Which.
    pub key: ObjectKey,
    /// As it was; `None` when it is new.
    pub before: Option<Arc<Object>>,
    /// As it is from then on; `None` when it is gone.
    pub after: Option<Arc<Object>>,
}

/// A field that differs between two states of an object.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FieldChange {
    /// Where, as a JSON pointer (RFC 6901) into the object.
    pub pointer: String,
    /// What it was; left out when it was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// What it is; left out when it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

impl Origin {
    /// The server itself.
    #[must_use]
    pub fn server() -> Self {
        let author = SERVER_AUTHOR.to_owned();
        Self { maker: Maker::Server, author, message: None, request_id: None, source: None }
    }
}

impl RevisionEntry {
    /// The form in listings.
    #[must_use]
    pub fn head(&self) -> RevisionHead {
        let Self { revision, at, origin, objects } = self;
        let touched = objects.iter().map(|object| (object.kind(), object.key.clone())).collect();
        RevisionHead { revision: *revision, at: *at, origin: origin.clone(), touched }
    }
}

impl Revised {
    /// How it changed.
    #[must_use]
    pub const fn kind(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Added,
            (Some(_), Some(_)) => ChangeKind::Modified,
            (Some(_), None) => ChangeKind::Deleted,
        }
    }
}

/// The fields that differ between two published forms, in the order of their pointers, and how many there are beyond
/// [`FIELDS_MAX`]. Bookkeeping of the server, which differs always, is left out. That a
/// password changed is said, and never what it is.
#[must_use]
pub fn differences(before: Option<&Object>, after: Option<&Object>) -> (Vec<FieldChange>, usize) {
    let (shown_before, shown_after) = (before.map(shown), after.map(shown));
    let mut found = Vec::new();
    compare("", shown_before.as_ref(), shown_after.as_ref(), &mut found);
    found.extend(password_change(before, after));
    let omitted = found.len().saturating_sub(FIELDS_MAX);
    found.truncate(FIELDS_MAX);
    (found, omitted)
}

/// A changed password, where the object is there before and after.
fn password_change(before: Option<&Object>, after: Option<&Object>) -> Option<FieldChange> {
    let [before, after] =
        [before?, after?].map(|object| object.as_bgp_peer().and_then(|spec| spec.password.as_ref()));
    let hidden = |password: Option<_>| password.map(|_| Value::from(HIDDEN));
    let pointer = "/spec/password".to_owned();
    (before != after).then(|| FieldChange { pointer, before: hidden(before), after: hidden(after) })
}

/// An object without what every write changes.
fn shown(object: &Object) -> Value {
    let mut json = object.to_json();
    if let Some(Value::Object(metadata)) = json.get_mut("metadata") {
        for field in ["resourceVersion", "generation", "creationTimestamp", "selfLink", "uid"] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = json.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    json
}

fn compare(at: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<FieldChange>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for name in names {
                compare(&pointer(at, name), old.get(name), new.get(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                compare(&format!("{at}/{index}"), old.get(index), new.get(index), found);
            }
        }
        _ => {
            found.push(FieldChange {
                pointer: at.to_owned(),
                before: before.cloned(),
                after: after.cloned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::decode::{Expect, decode};
    use serde_json::json;

    fn workload(spec: Value) -> Object {
        let value = json!({ "kind": "Workload", "metadata": { "name": "w" }, "spec": spec });
        decode(&value, &Expect::default()).unwrap()
    }

    #[test]
    fn differences_name_the_smallest_fields_that_differ() {
        let old = workload(json!({ "addresses": ["10.0.0.1", "fd00::1"], "ready": true, "zone": "a" }));
        let new = workload(json!({ "addresses": ["10.0.0.2", "fd00::1"], "ready": true }));
        let (found, omitted) = differences(Some(&old), Some(&new));
        assert_eq!(omitted, 0);
        let change = |pointer: &str, before: Value, after: Option<Value>| FieldChange {
            pointer: pointer.to_owned(),
            before: Some(before),
            after,
        };
        let expected = [
            change("/spec/addresses/0", json!("10.0.0.1"), Some(json!("10.0.0.2"))),
            change("/spec/zone", json!("a"), None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_new_or_gone_is_one_difference_and_what_is_equal_none() {
        let object = workload(json!({}));
        assert_eq!(differences(Some(&object), Some(&object)).0, []);
        let (added, _) = differences(None, Some(&object));
        assert_eq!((added.len(), added[0].pointer.as_str(), &added[0].before), (1, "", &None));
        let (removed, _) = differences(Some(&object), None);
        assert_eq!((removed.len(), &removed[0].after), (1, &None));
    }
}
