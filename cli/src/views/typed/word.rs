//! Values of API enums, including values that only newer servers have.

use serde::{Deserialize, Serialize};

/// Value of an API enum; kept as text if this version does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Word<T> {
    /// Value that this version has.
    Known(T),
    /// Text of a value that only newer servers have; empty if the field is missing.
    Unknown(String),
}

impl<T> Default for Word<T> {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}
