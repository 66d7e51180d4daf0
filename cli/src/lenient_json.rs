//! Lenient access to responses: absent values and values of the wrong type are empty, so that no response of
//! a server can stop the command. `-o json` and `-o yaml` bypass this module and print the complete response.

use std::collections::BTreeSet;

use model::primitives::quantity::Timestamp;
use serde_json::Value;

pub use translate::json::{clean, entries, items, scalar, text};

use crate::terminal::style::Tone;

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

/// Formats the object at a JSON pointer as `key=value,key=value`.
#[must_use]
pub fn labels(value: &Value, pointer: &str) -> String {
    entries(value, pointer)
        .map(|(key, value)| format!("{key}={}", scalar(value)))
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns the time at a JSON pointer.
#[must_use]
pub fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    Timestamp::try_from(value.pointer(pointer)?.as_str()?.to_owned()).ok()
}

/// Returns the `status` of the condition of a type in `/status/conditions`: `True`, `False`, `Unknown`, or
/// empty.
#[must_use]
pub fn condition(value: &Value, condition_type: &str) -> String {
    let conditions = items(value, "/status/conditions");
    let found = conditions.iter().find(|condition| text(condition, "/type") == condition_type);
    found.map(|condition| text(condition, "/status")).unwrap_or_default()
}

/// Returns the tone of a condition's `status`.
#[must_use]
pub fn condition_tone(status: &str) -> Tone {
    match status {
        "True" => Tone::Good,
        "False" => Tone::Bad,
        _ => Tone::Waiting,
    }
}

/// Returns the port of a Service, or its range: `80`, `8000-8100`.
#[must_use]
pub fn port_range(port: &Value) -> String {
    let [first, last] = ["/port", "/endPort"].map(|at| text(port, at));
    if last.is_empty() || last == first { first } else { format!("{first}-{last}") }
}

/// Returns the endpoint counts of a compiled Service over all its ports: distinct addresses, and how many of
/// them are ready.
#[must_use]
pub fn endpoint_counts(compiled: &Value) -> (usize, usize) {
    let endpoints = items(compiled, "/ports").iter().flat_map(|port| items(port, "/endpoints"));
    let (mut all, mut ready) = (BTreeSet::new(), BTreeSet::new());
    for endpoint in endpoints {
        all.insert(text(endpoint, "/address"));
        if flag(endpoint, "/ready", false) {
            ready.insert(text(endpoint, "/address"));
        }
    }
    (all.len(), ready.len())
}
