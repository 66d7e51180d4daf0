//! How objects of a cluster are named here. One cluster: as they are there. Several clusters: `CLUSTER--NAME` for what has
//! no namespace, and namespace `CLUSTER--NAMESPACE`, so that the same names of two clusters never meet.

use std::{fmt, str::FromStr};

use model::primitives::name::{LABEL_LENGTH_MAX, Label};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Settings;
use crate::json::text;

/// Namespace and name of an object in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Empty for what has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Id {
    /// The id of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self { namespace: text(object, "/metadata/namespace"), name: text(object, "/metadata/name") }
    }
}

/// The label that tells clusters apart.
pub const CLUSTER_LABEL: &str = "tidegate.io/cluster";
/// Between the name of a cluster and a name of its own. Names of clusters do not contain it, so that the first one counts.
const SEPARATOR: &str = "--";
/// The longest name of a cluster, so that there is room for other names behind it, in bytes.
const CLUSTER_LENGTH_MAX: usize = 20;
/// Digits of the hash that ends a shortened name: 48 bits, so that no two of a cluster's names meet by chance.
const HASH_DIGITS: usize = 12;

/// The name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterName(Label);

impl ClusterName {
    /// The name as text.
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
            return Err(format!("must not contain `{SEPARATOR}`, which ends it in names"));
        }
        Ok(Self(label))
    }
}

impl Settings {
    /// The name here of something of the cluster: a namespace, or an object without one.
    #[must_use]
    pub fn name(&self, theirs: &str) -> String {
        let Some(cluster) = &self.cluster else { return theirs.to_owned() };
        // Only the first label grows.
        let (first, rest) =
            theirs.split_once('.').map_or((theirs, None), |(first, rest)| (first, Some(rest)));
        let first = shortened(&format!("{cluster}{SEPARATOR}{first}"));
        rest.map_or_else(|| first.clone(), |rest| format!("{first}.{rest}"))
    }
}

/// A label that is too long with a hash of it in place of its end.
fn shortened(label: &str) -> String {
    if label.len() <= LABEL_LENGTH_MAX {
        return label.to_owned();
    }
    let keep: String = label.chars().take(LABEL_LENGTH_MAX - HASH_DIGITS - 1).collect();
    format!("{}-{}", keep.trim_end_matches('-'), digest(label))
}

/// A name for a text that cannot be one.
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
