//! Names of cluster objects in Tidegate. With one cluster names are unchanged. With several clusters,
//! cluster-scoped objects are named `CLUSTER--NAME` and namespaces `CLUSTER--NAMESPACE`, so that names never
//! collide.

use std::{fmt, str::FromStr};

use model::primitives::name::{LABEL_LENGTH_MAX, Label};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Settings;
use crate::json::text;

/// Namespace and name of a Kubernetes object; the namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object in the cluster.
    pub name: String,
}

impl Id {
    /// Returns the namespace and name of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self { namespace: text(object, "/metadata/namespace"), name: text(object, "/metadata/name") }
    }
}

/// Label with the cluster name.
pub const CLUSTER_LABEL: &str = "tidegate.io/cluster";
/// Separator between cluster name and object name. Cluster names do not contain it, so the first occurrence
/// is unambiguous.
const SEPARATOR: &str = "--";
/// Maximum length of a cluster name in bytes, which leaves room for object names.
const CLUSTER_LENGTH_MAX: usize = 20;
/// Number of hash digits of a shortened name: 48 bits, so that collisions are unlikely.
const HASH_DIGITS: usize = 12;

/// Name of a cluster, used as a prefix of its objects' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterName(Label);

impl ClusterName {
    /// Returns the name of the cluster as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ClusterName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let label = Label::parse(text).map_err(|error| error.to_string())?;
        if text.len() > CLUSTER_LENGTH_MAX {
            return Err(format!("must be at most {CLUSTER_LENGTH_MAX} characters, has {}", text.len()));
        }
        if text.contains(SEPARATOR) {
            return Err(format!("must not contain `{SEPARATOR}`, the separator after the cluster name"));
        }
        Ok(Self(label))
    }
}

impl Settings {
    /// Returns the name in Tidegate of the namespace or cluster-scoped object `theirs`.
    #[must_use]
    pub fn name(&self, theirs: &str) -> String {
        let Some(cluster) = &self.cluster else { return theirs.to_owned() };
        // Only the first label gets the prefix.
        let (first, rest) =
            theirs.split_once('.').map_or((theirs, None), |(first, rest)| (first, Some(rest)));
        let first = shortened(&format!("{cluster}{SEPARATOR}{first}"));
        rest.map_or_else(|| first.clone(), |rest| format!("{first}.{rest}"))
    }
}

/// Shortens a label that is too long, replacing its end by a hash.
fn shortened(label: &str) -> String {
    if label.len() <= LABEL_LENGTH_MAX {
        return label.to_owned();
    }
    let keep: String = label.chars().take(LABEL_LENGTH_MAX - HASH_DIGITS - 1).collect();
    format!("{}-{}", keep.trim_end_matches('-'), digest(label))
}

/// Returns the name of an object, with shorter labels in place of those that are too long for a DNS name.
#[must_use]
pub(super) fn with_short_labels(name: &str) -> String {
    let labels: Vec<_> = name.split('.').map(shortened).collect();
    labels.join(".")
}

/// Returns a hash of the text that is valid in object names.
#[must_use]
pub(super) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.chars().take(HASH_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::Mode;

    fn settings(cluster: &str) -> Settings {
        Settings { cluster: Some(cluster.parse().unwrap()), mode: Mode::Proxy, class: None }
    }

    #[test]
    fn names_of_two_clusters_never_meet() {
        assert_eq!(settings("a").name("b-c"), "a--b-c");
        assert_ne!(settings("a").name("b-c"), settings("a-b").name("c"));
        assert_eq!(settings("a").name("node-1.rack2"), "a--node-1.rack2");
        for bad in ["a--b", "A", "", "-a", &"x".repeat(21)] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_grow_too_long_are_shortened_and_stay_different() {
        let (one, two) = ("x".repeat(62), format!("{}y", "x".repeat(61)));
        let [one, two] = [one, two].map(|name| settings("east").name(&name));
        assert_ne!(one, two);
        for name in [one, two] {
            assert!(Label::parse(&name).is_ok(), "{name}");
        }
    }
}
