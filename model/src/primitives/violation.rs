//! Violations: invalid fields of an input. A validation returns all violations instead of stopping at the
//! first.

use std::{cmp::Reverse, collections::BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::name::{Name, Namespace};

/// Violation of a rule by a field of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// JSON pointer (RFC 6901) from the root of the object to the field, such as `/spec/ports/0/port`.
    pub pointer: String,
    /// Stable identifier of the rule, such as `PortTaken`.
    pub code: ViolationCode,
    /// Description of the rule for users. The text may change between releases.
    pub message: String,
    /// Remedy. Absent if the message already contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Namespaces and names of the Services that the message names.
    #[serde(skip)]
    named: Vec<(Namespace, Name)>,
}

/// Stable identifier of the rule of a violation: `Invalid`, `UnknownField`, `Required`, `Duplicate`,
/// `TooLong`, `Conflict`, `Immutable`, `AddressTaken`, `PortTaken`, `AddressNotAllowed`, `PortOutOfRange`,
/// `Exhausted`, `Overlap`, `NotFound`, `InUse`, `OwnedByOther`, `QuotaExceeded` or `Forbidden`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ViolationCode {
    /// The value has the wrong JSON type or format.
    Invalid,
    /// The field does not exist at this position.
    UnknownField,
    /// A required field is absent.
    Required,
    /// Two entries that must differ are equal.
    Duplicate,
    /// The value exceeds the maximum length or number of entries.
    TooLong,
    /// The value conflicts with another field of the same object.
    Conflict,
    /// The field cannot be changed after creation.
    Immutable,
    /// Another object uses the address.
    AddressTaken,
    /// Another object uses the port.
    PortTaken,
    /// The address is not allowed in this field.
    AddressNotAllowed,
    /// The port is outside the configured range.
    PortOutOfRange,
    /// No value is left to allocate.
    Exhausted,
    /// The range overlaps a range that is used for another purpose.
    Overlap,
    /// The referenced object does not exist.
    NotFound,
    /// Other objects depend on the value or object that would be removed.
    InUse,
    /// A different apply set owns the object.
    OwnedByOther,
    /// The objects of the namespace would use more than its quota allows.
    QuotaExceeded,
    /// The caller has no permission for this change of the object.
    Forbidden,
}

impl Violation {
    /// Creates a violation without a hint.
    pub fn new(pointer: impl Into<String>, code: ViolationCode, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, message: message.into(), hint: None, named: Vec::new() }
    }

    /// Records that the message names a Service, as `Service namespace/name`.
    #[must_use]
    pub fn naming(mut self, namespace: &Namespace, name: &Name) -> Self {
        self.named.push((namespace.clone(), name.clone()));
        self
    }

    /// Replaces each Service that the message names, if `may_see` returns false for its namespace, so that the
    /// message does not reveal objects that a caller may not read.
    #[must_use]
    pub fn redacted(mut self, may_see: impl Fn(&Namespace) -> bool) -> Self {
        // Longest first, because a name can be the beginning of another one.
        self.named.sort_by_key(|(_, name)| Reverse(name.as_str().len()));
        for (namespace, name) in self.named.extract_if(.., |(namespace, _)| !may_see(namespace)) {
            self.message = without_name(&self.message, &namespace, &name);
        }
        self
    }

    /// Adds a hint, which is a remedy for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Returns a message without the name of a Service, which it contains as `Service namespace/name`.
#[must_use]
pub fn without_name(message: &str, namespace: &Namespace, name: &Name) -> String {
    message.replace(&format!("Service {namespace}/{name}"), "a Service of another namespace")
}

/// Reports a list with more than `max` entries. Returns true if the length is allowed.
pub(crate) fn check_length(at: &str, len: usize, max: usize, found: &mut Vec<Violation>) -> bool {
    if len > max {
        let message = format!("must have at most {max} entries, has {len}");
        found.push(Violation::new(at, ViolationCode::TooLong, message));
    }
    len <= max
}

/// Reports entries that occur more than once; `at` returns the JSON pointer of the entry with the given index.
pub(crate) fn check_unique<T: Ord>(
    entries: impl Iterator<Item = T>,
    at: impl Fn(usize) -> String,
    found: &mut Vec<Violation>,
) {
    let mut seen = BTreeSet::new();
    for (index, entry) in entries.enumerate() {
        if !seen.insert(entry) {
            found.push(Violation::new(
                at(index),
                ViolationCode::Duplicate,
                "must not repeat an earlier entry",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_namespaces_are_replaced_and_others_stay() {
        let message = "held by Service a/web, Service b/web, Service b/web-2, Service b/web-23";
        let mut violation = Violation::new("/spec", ViolationCode::AddressTaken, message);
        for (namespace, name) in [("a", "web"), ("b", "web"), ("b", "web-23"), ("b", "web-2")] {
            violation = violation.naming(&Namespace::parse(namespace).unwrap(), &Name::parse(name).unwrap());
        }
        let other = "a Service of another namespace";
        let expected = format!("held by Service a/web, {other}, {other}, {other}");
        assert_eq!(violation.redacted(|namespace| namespace.as_str() == "a").message, expected);
    }
}
