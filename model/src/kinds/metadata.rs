//! Metadata of all objects: identity, version, labels and annotations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    name::{LABEL_LENGTH_MAX, Name, Namespace, SUBDOMAIN_LENGTH_MAX, check_subdomain},
    quantity::{Revision, Timestamp},
    violation::{Violation, ViolationCode},
};

/// Maximum number of labels on one object.
pub const LABELS_MAX: usize = 100;
/// Annotation of an EndpointSet or Workload whose source checks the endpoints and sets their readiness. The value names
/// the source, such as `kubernetes`. Such endpoints count as checked.
pub const CHECKED_BY: &str = "tidegate.io/checked-by";
/// Annotation of a Service that exempts it from the health check by default. The value is [`NO_DEFAULT_CHECK`].
pub const DEFAULT_HEALTH_CHECK: &str = "tidegate.io/default-health-check";
/// Value of [`DEFAULT_HEALTH_CHECK`] that exempts a Service.
pub const NO_DEFAULT_CHECK: &str = "none";
/// Maximum size of all annotations of an object in bytes, keys included: the limit of Kubernetes.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Maximum length of a label or annotation key in bytes: DNS prefix, slash and name, as in Kubernetes.
const KEY_LENGTH_MAX: usize = 253 + 1 + LABEL_LENGTH_MAX;

/// Labels by key. Keys and values follow the rules of Kubernetes.
pub type Labels = BTreeMap<String, String>;

/// Label that an agent gives to the Node that it registers, with the name of the Node, as in Kubernetes. Selectors of
/// MetalLB usually name nodes by it.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Identity, version, labels and annotations of an object. The server sets all fields except `name`,
/// `namespace`, `labels` and `annotations`. A write that contains `uid` or `resourceVersion` is rejected if
/// the stored object has a different value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Name of the object, unique within its kind and namespace, at most 253 characters, such as `web`.
    /// Immutable.
    pub name: Name,
    /// Namespace of the object, such as `default`. Absent for cluster-scoped kinds. Default on input:
    /// `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// UUID of the object. An object that is deleted and created again under the same name has a different UUID.
    /// If a write contains a UUID that is not current, the write is rejected with 409.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub uid: Option<uuid::Uuid>,
    /// Revision of the last change of the object, as a decimal string. If a write contains a version that is
    /// not current, the write is rejected with 409.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9]+$")]
    pub resource_version: Option<String>,
    /// Counter that is 1 for a new object and increases by one with every change of `spec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Time of the creation (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// Path of the object in this API, such as `/v1/namespaces/default/services/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_link: Option<String>,
    /// Name of the apply set (group of objects that are applied and pruned together) that owns the object.
    /// Absent unless the object was created by `POST /v1/apply?applySet=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_set: Option<Name>,
    /// True if a caller whose permissions are limited to namespaces added the object to the apply set. A prune by
    /// a caller without such a limit ignores the object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apply_set_limited: bool,
    /// Labels that selectors match, at most 100. Keys have at most 63 characters after an optional DNS
    /// prefix, values at most 63.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub labels: Labels,
    /// Free-form text for tools and users, not used for selection. At most 262,144 bytes in total.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// Creates metadata that contains only a name and a namespace.
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
            apply_set_limited: false,
            labels: Labels::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// Returns the revision of the last change of the object, or zero for an object that is not stored yet.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision(self.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Adds a violation for each invalid label or annotation.
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

/// Adds a violation for each invalid key or value of labels, or of a selector that is written as a map. `at`
/// is the JSON pointer to the map.
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

/// Appends `token` (a field name or list index) to the JSON pointer `at`, escaped according to RFC 6901 §3.
#[must_use]
pub fn pointer(at: &str, token: &str) -> String {
    format!("{at}/{}", token.replace('~', "~0").replace('/', "~1"))
}

/// Checks a label key, which must consist of an optional DNS prefix of at most 253 characters with a slash, and a
/// name of at most 63 characters. Returns an error message if the key is invalid.
pub fn check_key(key: &str) -> Result<(), String> {
    if key.len() > KEY_LENGTH_MAX {
        return Err(format!("key must be at most {KEY_LENGTH_MAX} characters"));
    }
    let name = match key.rsplit_once('/') {
        None => key,
        Some((prefix, name)) => {
            check_subdomain(prefix, SUBDOMAIN_LENGTH_MAX)
                .map_err(|error| format!("key prefix `{prefix}` {error}"))?;
            name
        }
    };
    if name.is_empty() {
        return Err(format!("key `{key}` must have a name part"));
    }
    check_value(name).map_err(|error| format!("key {error}"))
}

/// Checks a label value, which must be empty, or consist of at most 63 letters, digits, `-`, `_` and `.` with
/// a letter or digit at both ends. Returns an error message if the value is invalid.
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
            "`{value}` must consist of letters, digits, `-`, `_` or `.`, with a letter or digit at both ends"
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
        // Only the whole prefix is limited, to 253 characters; its labels may be longer than those of DNS.
        for (length, is_good) in [(64, true), (253, true), (254, false)] {
            let key = format!("{}/name", "x".repeat(length));
            assert_eq!(check_key(&key).is_ok(), is_good, "{length}");
        }
        for bad in [
            "a..b/x",
            "-a/x",
            "a-/x",
            "a.-b/x",
            "",
            "/x",
            "a/",
            "a/b/c",
            "-x",
            "x-",
            "ä",
            "UPPER/x",
            &"x".repeat(64),
        ] {
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
