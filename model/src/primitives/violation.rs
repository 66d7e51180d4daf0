//! What is wrong with an input: data, collected, all at once; never an early return.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One thing that must change before an input is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// JSON pointer (RFC 6901) to the field, from the object's root, such as `/spec/ports/0/port`.
    pub pointer: String,
    /// Stable machine word, such as `PortTaken`.
    pub code: ViolationCode,
    /// What must hold, in words; may change between releases.
    pub message: String,
    /// What to do about it, when there is something better to say than the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The stable machine word of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ViolationCode {
    /// The value has the wrong JSON type, or its text has the wrong form.
    Invalid,
    /// The field is not known at this place.
    UnknownField,
    /// A field that is needed is absent.
    Required,
    /// Two entries that must differ are equal.
    Duplicate,
    /// More or longer than the limit.
    TooLong,
    /// The value contradicts another field of the same object.
    Conflict,
    /// The field cannot be changed after creation.
    Immutable,
    /// Another object holds the address.
    AddressTaken,
    /// Another object holds the port.
    PortTaken,
    /// The address is not allowed at this place.
    AddressNotAllowed,
    /// The port is outside the configured range.
    PortOutOfRange,
    /// Nothing is left to give out.
    Exhausted,
    /// The value would overlap a range used for something else.
    Overlap,
    /// What is named does not exist.
    NotFound,
    /// Others depend on what would go.
    InUse,
    /// A different apply set owns the object.
    OwnedByOther,
    /// Who asks may not do that to the object.
    Forbidden,
}

impl Violation {
    /// Makes a violation without a hint.
    pub fn new(pointer: impl Into<String>, code: ViolationCode, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
