//! What every object carries besides its intent: who it is, and when it changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    name::{LABEL_LENGTH_MAX, Name, Namespace},
    quantity::{Revision, Timestamp},
    violation::{Violation, ViolationCode},
};

/// Labels per object; enough for every known convention, small enough to index.
pub const LABELS_MAX: usize = 100;
/// Bytes of all annotations of an object together; the figure Kubernetes users know.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a label or annotation key: DNS prefix, slash, name (the Kubernetes rule).
const KEY_LENGTH_MAX: usize = 253 + 1 + LABEL_LENGTH_MAX;

/// Labels by key; keys and values follow the Kubernetes rules.
pub type Labels = BTreeMap<String, String>;

/// Identity and bookkeeping of an object. All but `name`, `namespace`, `labels` and `annotations` is set by the server;
/// `uid` and `resourceVersion` may be sent back and are then checked, the rest of what the server set is read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Unique among the objects of its kind and namespace; never changes.
    pub name: Name,
    /// Present on namespaced kinds; `default` when left out on input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Differs between an object and its re-creation under the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub uid: Option<uuid::Uuid>,
    /// The revision of the last change to this object. When sent and not current, the write is refused with 409.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9]+$")]
    pub resource_version: Option<String>,
    /// Rises by one with every change of `spec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// When the object was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// The path at which this API serves the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_link: Option<String>,
    /// The apply set that owns the object, if it came by `POST /v1/apply?applySet=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_set: Option<Name>,
    /// What selectors match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Free text for tools and people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// Metadata with a name and nothing else.
    #[must_use]
    pub fn named(name: Name, namespace: Option<Namespace>) -> Self {
        Self {
            name,
            namespace,
            uid: None,
            resource_version: None,
            generation: None,
            creation_timestamp: None,
            self_link: None,
            apply_set: None,
            labels: Labels::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// The revision of the last change; zero before the first.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision(self.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Checks labels and annotations.
    pub fn validate(&self, violations: &mut Vec<Violation>) {
        check_labels("/metadata/labels", &self.labels, violations);
        for key in self.annotations.keys() {
            if let Err(message) = check_key(key) {
                violations.push(Violation::new(
                    pointer("/metadata/annotations", key),
                    ViolationCode::Invalid,
                    message,
                ));
            }
        }
        let bytes: usize = self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > ANNOTATIONS_BYTES_MAX {
            violations.push(Violation::new(
                "/metadata/annotations",
                ViolationCode::TooLong,
                format!("must be at most {ANNOTATIONS_BYTES_MAX} bytes together, has {bytes}"),
            ));
        }
    }
}

/// Checks a map of labels (or a selector in map form) found at `at`.
pub fn check_labels(at: &str, labels: &Labels, violations: &mut Vec<Violation>) {
    if labels.len() > LABELS_MAX {
        let message = format!("must have at most {LABELS_MAX} entries, has {}", labels.len());
        violations.push(Violation::new(at, ViolationCode::TooLong, message));
    }
    for (key, value) in labels {
        for problem in [check_key(key), check_value(value)].into_iter().filter_map(Result::err) {
            violations.push(Violation::new(pointer(at, key), ViolationCode::Invalid, problem));
        }
    }
}

/// Joins a JSON pointer and one more reference token, escaped as RFC 6901 §3 demands.
#[must_use]
pub fn pointer(at: &str, token: &str) -> String {
    format!("{at}/{}", token.replace('~', "~0").replace('/', "~1"))
}

/// Checks a label key: an optional DNS prefix and a slash, then a name of at most 63 characters.
pub fn check_key(key: &str) -> Result<(), String> {
    if key.len() > KEY_LENGTH_MAX {
        return Err(format!("key must be at most {KEY_LENGTH_MAX} characters"));
    }
    let name = match key.rsplit_once('/') {
        None => key,
        Some((prefix, name)) => {
            Name::parse(prefix).map_err(|error| format!("key prefix `{prefix}` {error}"))?;
            name
        }
    };
    if name.is_empty() {
        return Err(format!("key `{key}` must have a name part"));
    }
    check_value(name).map_err(|error| format!("key {error}"))
}

/// Checks a label value: empty, or at most 63 of letters, digits, `-`, `_`, `.`, with a letter or digit at both ends.
pub fn check_value(value: &str) -> Result<(), String> {
    if value.len() > LABEL_LENGTH_MAX {
        return Err(format!("`{value}` must be at most {LABEL_LENGTH_MAX} characters"));
    }
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let edge = |c: Option<&u8>| c.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    if bytes.iter().copied().all(inner) && edge(bytes.first()) && edge(bytes.last()) {
        Ok(())
    } else {
        Err(format!(
            "`{value}` must be letters, digits, `-`, `_` or `.`, with a letter or digit at both ends"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_and_values_follow_the_kubernetes_rules() {
        for good in ["app", "app.kubernetes.io/name", "A_b.c-d", "x"] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in ["", "/x", "a/", "a/b/c", "-x", "x-", "ä", "UPPER/x", &"x".repeat(64)] {
            assert!(check_key(bad).is_err(), "{bad:?} must be refused");
        }
        assert_eq!(check_value(""), Ok(()));
        assert!(check_value("a b").is_err());
    }

    #[test]
    fn pointers_escape_slash_and_tilde() {
        assert_eq!(pointer("/metadata/labels", "a/b~c"), "/metadata/labels/a~1b~0c");
    }
}
