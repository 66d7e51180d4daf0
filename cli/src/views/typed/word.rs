//! Words of the enums of the API.

use serde::{Deserialize, Serialize};

/// Word of an enum of the API; kept as text if this version does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Word<T> {
    /// Word that this version has.
    Known(T),
    /// Word of a newer server; empty if the field is missing.
    Unknown(String),
}

impl<T> Default for Word<T> {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}
