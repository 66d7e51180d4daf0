//! Fields that the objects of all kinds have.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use translate::json::scalar;

use super::decode;

/// Kind and name of an object of any kind, including kinds that this version does not have or cannot decode.
/// Missing fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ObjectHeader {
    /// Kind of the object, such as `Service`.
    #[serde(deserialize_with = "scalar_text")]
    pub(crate) kind: String,
    /// Name and version of the object.
    pub(crate) metadata: HeaderMetadata,
}

/// Name and version of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HeaderMetadata {
    /// Name of the object.
    #[serde(deserialize_with = "scalar_text")]
    pub(crate) name: String,
    /// Namespace of the object; empty for cluster-scoped kinds.
    #[serde(deserialize_with = "scalar_text")]
    pub(crate) namespace: String,
    /// Unique id of the object. An object that is deleted and created again gets a different one.
    pub(crate) uid: String,
    /// Revision of the last change of the object.
    pub(crate) resource_version: String,
}

impl ObjectHeader {
    /// Reads the header of an object.
    pub(crate) fn of(object: &Value) -> Self {
        decode(object).unwrap_or_default()
    }
}

/// Reads a scalar as text, because manifests may contain names that YAML parses as numbers.
fn scalar_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Value::deserialize(deserializer).map(|value| scalar(&value))
}
