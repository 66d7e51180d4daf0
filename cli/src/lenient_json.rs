//! Lenient access to responses: absent values and values of the wrong type are empty, so that no response of
//! a server can stop the command. `-o json` and `-o yaml` bypass this module and print the complete response.

use model::primitives::quantity::Timestamp;
use serde_json::Value;

pub use translate::json::{clean, entries, items, scalar, text};

/// Returns the number at a JSON pointer, or 0.
#[must_use]
pub fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the boolean at a JSON pointer, or `default` if it is absent.
#[must_use]
pub fn flag(value: &Value, pointer: &str, default: bool) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or(default)
}

/// Returns the scalars of the array at a JSON pointer, separated by commas.
#[must_use]
pub fn joined(value: &Value, pointer: &str) -> String {
    items(value, pointer).iter().map(scalar).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(",")
}

/// Returns the time at a JSON pointer.
#[must_use]
pub fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    Timestamp::try_from(value.pointer(pointer)?.as_str()?.to_owned()).ok()
}
