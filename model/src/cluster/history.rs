//! History of accepted writes for users: author, message, and each object before and after.
//!
//! Unlike the change log, which keeps only recent changes for watches, the history keeps past writes for
//! listings and rollbacks. The author is the client's own claim unless authentication is enabled.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    cluster::change::ChangeKind,
    kinds::{
        dns_key::DnsKey,
        metadata::pointer,
        resource::{Object, ObjectKey},
    },
    primitives::{
        quantity::{Revision, Timestamp},
        secret::Secret,
    },
};

/// Maximum number of characters of an author: enough for `user@host` with long names, and for the longest
/// node name with its prefix.
pub const AUTHOR_LENGTH_MAX: usize = 260;
/// Maximum number of characters of a write's message; put longer explanations into a linked document.
pub const MESSAGE_LENGTH_MAX: usize = 200;
/// Maximum number of listed fields that differ between two states of an object; further ones are only counted.
pub const FIELDS_MAX: usize = 1000;
/// Prefix of the author of writes by an agent, followed by the name of its node.
pub const AGENT_AUTHOR_PREFIX: &str = "agent/";
/// Text that replaces a secret in output.
pub const HIDDEN: &str = "(hidden)";
/// Author of writes that the server makes by itself.
pub const SERVER_AUTHOR: &str = "tidegate";

/// Author of a write, with its reason and the request that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Type of the author: client, agent or server.
    pub maker: Maker,
    /// Name of the author, as authenticated or as claimed by the client; `unknown` without either.
    #[schema(max_length = 260)]
    pub author: String,
    /// Reason for the write, as given by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub message: Option<String>,
    /// Id of the request, which also appears in the server log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub request_id: Option<String>,
    /// IP address from which the request was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source: Option<IpAddr>,
}

/// Type of author of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Maker {
    /// Client of the API. The author's name is a claim unless authentication is enabled.
    Client,
    /// Agent of a node, which registers its Node object.
    Agent,
    /// The control server itself.
    Server,
}

/// Entry of the history without the states of its objects, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionHead {
    /// Revision that the write created.
    pub revision: Revision,
    /// Time at which the write was accepted.
    pub at: Timestamp,
    /// Author and reason of the write.
    pub origin: Origin,
    /// Keys of the changed objects, with the type of each change.
    pub touched: Vec<(ChangeKind, ObjectKey)>,
}

/// Entry of the history with the states of all changed objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionEntry {
    /// Revision that the write created.
    pub revision: Revision,
    /// Time at which the write was accepted.
    pub at: Timestamp,
    /// Author and reason of the write.
    pub origin: Origin,
    /// Changed objects with their states before and after; at least one.
    pub objects: Vec<RevisedObject>,
}

/// Object before and after a write. At least one of the two states exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisedObject {
    /// Key of the changed object.
    pub key: ObjectKey,
    /// Previous state; `None` if the object is new.
    pub before: Option<Arc<Object>>,
    /// New state; `None` if the object was deleted.
    pub after: Option<Arc<Object>>,
}

/// Field that differs between two states of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// JSON pointer (RFC 6901) to the field, from the root of the object.
    pub pointer: String,
    /// Previous value, of any JSON type; absent if the field did not exist.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    pub before: Option<Value>,
    /// New value, of any JSON type; absent if the field no longer exists.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    pub after: Option<Value>,
}

/// Deserializes a field that is present as `Some`, even if its value is `null`, which serde would otherwise
/// convert to `None`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Origin {
    /// Returns the origin of writes by the server itself.
    #[must_use]
    pub fn server() -> Self {
        let author = SERVER_AUTHOR.to_owned();
        Self { maker: Maker::Server, author, message: None, request_id: None, source: None }
    }
}

impl RevisionEntry {
    /// Returns the entry without the states of its objects.
    #[must_use]
    pub fn head(&self) -> RevisionHead {
        let Self { revision, at, origin, objects } = self;
        let touched = objects.iter().map(|object| (object.kind(), object.key.clone())).collect();
        RevisionHead { revision: *revision, at: *at, origin: origin.clone(), touched }
    }
}

impl RevisedObject {
    /// Returns the type of the change: added, modified or deleted.
    #[must_use]
    pub const fn kind(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Added,
            (Some(_), Some(_)) => ChangeKind::Modified,
            (Some(_), None) => ChangeKind::Deleted,
        }
    }
}

/// Compares two states of an object in the JSON form of the API. Returns the fields that differ, at most
/// [`FIELDS_MAX`], and the number of further ones. The metadata that the server sets, such as
/// `resourceVersion`, is not compared. A changed password appears as a change without its value.
#[must_use]
pub fn differences(before: Option<&Object>, after: Option<&Object>) -> (Vec<FieldChange>, usize) {
    let (published_before, published_after) = (before.map(published), after.map(published));
    let mut found = Vec::new();
    compare("", published_before.as_ref(), published_after.as_ref(), &mut found);
    found.extend(password_change(before, after));
    found.extend(private_key_changes(before, after));
    found.extend(secret_changes(before, after));
    let omitted = found.len().saturating_sub(FIELDS_MAX);
    found.truncate(FIELDS_MAX);
    (found, omitted)
}

/// Returns the change of a BgpPeer's password, with hidden values; `None` if the password is unchanged or one
/// of the two states does not exist.
fn password_change(before: Option<&Object>, after: Option<&Object>) -> Option<FieldChange> {
    let [before, after] =
        [before?, after?].map(|object| object.as_bgp_peer().and_then(|spec| spec.password.as_ref()));
    let hidden = |password: Option<_>| password.map(|_| Value::from(HIDDEN));
    let pointer = "/spec/password".to_owned();
    (before != after).then(|| FieldChange { pointer, before: hidden(before), after: hidden(after) })
}

/// Returns the changes of the private key of a Certificate and of its key for the ACME server, with hidden values.
fn private_key_changes(before: Option<&Object>, after: Option<&Object>) -> Vec<FieldChange> {
    let spec = |object: Option<&Object>| object.and_then(Object::as_certificate).cloned();
    let (Some(before), Some(after)) = (spec(before), spec(after)) else { return Vec::new() };
    let hidden = |key: Option<&Secret>| key.map(|_| Value::from(HIDDEN));
    let keys = [
        ("/spec/privateKey", before.private_key.as_ref(), after.private_key.as_ref()),
        ("/spec/acme/externalAccount/key", before.external_key(), after.external_key()),
    ];
    let changed = keys.into_iter().filter(|(_, before, after)| before != after);
    let change = |(pointer, before, after): (&str, _, _)| FieldChange {
        pointer: pointer.to_owned(),
        before: hidden(before),
        after: hidden(after),
    };
    changed.map(change).collect()
}

/// Returns the changes of the secrets of a DnsZone's keys, with hidden values.
fn secret_changes(before: Option<&Object>, after: Option<&Object>) -> Vec<FieldChange> {
    let zone = |object: Option<&Object>| object.and_then(Object::as_dns_zone).cloned();
    let (Some(before), Some(after)) = (zone(before), zone(after)) else { return Vec::new() };
    let is_changed = |key: &DnsKey| {
        let old = before.keys.iter().find(|old| old.name == key.name);
        old.is_some_and(|old| old.secret != key.secret)
    };
    let changed = after.keys.iter().enumerate().filter(|(_, key)| is_changed(key));
    let hidden = || Some(Value::from(HIDDEN));
    let change = |(index, _)| FieldChange {
        pointer: format!("/spec/keys/{index}/secret"),
        before: hidden(),
        after: hidden(),
    };
    changed.map(change).collect()
}

/// Renders an object as JSON without the metadata that the server sets, and without `apiVersion` and `kind`.
fn published(object: &Object) -> Value {
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
