//! Deserialization errors in the terms of the API. They are built from the arguments of serde's error
//! callbacks, because the messages of serde use Rust terms.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};
use serde_json::Value;

use super::{PathStep, nearest::nearest};
use crate::primitives::violation::{Violation, ViolationCode};

/// Maximum length of a value that a message quotes, in characters.
const QUOTED_MAX: usize = 80;

/// Reason why a JSON value cannot be decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The named field is required and missing.
    Missing(&'static str),
    /// The object has a field that its type does not define.
    Unknown {
        /// Name of the unknown field.
        field: String,
        /// Names of the fields that the type defines.
        expected: &'static [&'static str],
    },
    /// The value has the wrong type, or is not allowed for another reason.
    Wrong {
        /// Requirement that the value does not meet.
        message: String,
        /// Instruction that resolves the error, if one is known.
        hint: Option<String>,
    },
}

impl std::error::Error for DecodeError {}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(field) => write!(f, "the field `{field}` is missing"),
            Self::Unknown { field, .. } => write!(f, "there is no field `{field}`"),
            Self::Wrong { message, .. } => f.write_str(message),
        }
    }
}

impl Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Wrong { message: message.to_string(), hint: None }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let wanted = ExpectedType::of(&expected.to_string());
        let hint = match (&wanted, &found) {
            (ExpectedType::Whole(_), Unexpected::Str(text)) if text.parse::<u64>().is_ok() => {
                Some("write the number without quotes".to_owned())
            }
            (ExpectedType::Bool, Unexpected::Str(_)) => Some("write true or false without quotes".to_owned()),
            (
                ExpectedType::Text,
                Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) | Unexpected::Bool(_),
            ) => Some("put it in quotes".to_owned()),
            (_, Unexpected::Unit) => Some("leave the field out, or give it a value".to_owned()),
            _ => None,
        };
        Self::Wrong { message: format!("must be {wanted}, not {}", shown(found)), hint }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let wanted = ExpectedType::of(&expected.to_string());
        let range = match wanted {
            ExpectedType::Whole(Some(max)) => format!(" between 0 and {max}"),
            ExpectedType::Whole(None) => " that is not negative".to_owned(),
            ExpectedType::Bool
            | ExpectedType::Text
            | ExpectedType::List
            | ExpectedType::Object
            | ExpectedType::Other(_) => String::new(),
        };
        Self::Wrong { message: format!("must be {wanted}{range}, not {}", shown(found)), hint: None }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let near = nearest(variant, expected.iter().copied());
        let message = one_of(Unexpected::Str(variant), expected);
        Self::Wrong { message, hint: near.map(|word| format!("did you mean `{word}`?")) }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::Unknown { field: field.to_owned(), expected }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

impl DecodeError {
    /// Returns the text by which a serde visitor describes the value that it expects.
    pub(super) fn expecting(expected: &dyn Expected) -> String {
        expected.to_string()
    }

    /// Creates the error for a value that is not one of the allowed `words`.
    pub(super) fn not_one_of(found: Unexpected<'_>, words: &[&str]) -> Self {
        Self::custom(one_of(found, words))
    }

    /// Replaces the parse error of an IP address or network with an error that gives an example of the
    /// expected notation. Other errors are returned unchanged.
    pub(super) fn of_text(self, value: &Value, expected: &str) -> Self {
        let example = match expected {
            "IP address" => "an IP address, such as 192.0.2.1 or 2001:db8::1",
            "IPv4 or IPv6 network address" => "a network, such as 192.0.2.0/24 or 2001:db8::/64",
            _ => return self,
        };
        match value {
            Value::String(text) => Self::custom(format!("must be {example}, not `{}`", quoted(text))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => self,
        }
    }

    /// Returns the path of the faulty value. serde stops at `path`; for a missing or unknown field this may
    /// be the object that contains the field, so the name of the field is appended.
    pub(super) fn locate(&self, path: &[PathStep]) -> Vec<PathStep> {
        let mut steps = path.to_vec();
        match self {
            Self::Missing(field) => steps.push(PathStep::Field((*field).to_owned())),
            Self::Unknown { field, .. } => {
                if steps.last() != Some(&PathStep::Field(field.clone())) {
                    steps.push(PathStep::Field(field.clone()));
                }
            }
            Self::Wrong { .. } => {}
        }
        steps
    }

    /// True if a required field is missing. The decoder then removes the object that lacks the field before it
    /// continues.
    pub(super) const fn is_missing(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            Self::Unknown { .. } | Self::Wrong { .. } => false,
        }
    }

    /// Converts the error to a violation at a JSON pointer.
    pub(super) fn violation(&self, pointer: &str) -> Violation {
        match self {
            Self::Missing(_) => Violation::new(pointer, ViolationCode::Required, "must be present"),
            Self::Unknown { field, expected } => {
                let hint = match nearest(field, expected.iter().copied()) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("known: {}", expected.join(", ")),
                };
                Violation::new(pointer, ViolationCode::UnknownField, "is not a field here").hint(hint)
            }
            Self::Wrong { message, hint } => {
                let violation = Violation::new(pointer, ViolationCode::Invalid, message.clone());
                match hint {
                    Some(hint) => violation.hint(hint.clone()),
                    None => violation,
                }
            }
        }
    }
}

/// JSON type that a serde visitor expects, as named in error messages.
enum ExpectedType {
    /// Unsigned integer. Contains the maximum value; `None` if that is `u64::MAX`.
    Whole(Option<u64>),
    Bool,
    Text,
    List,
    Object,
    Other(String),
}

impl ExpectedType {
    fn of(expected: &str) -> Self {
        match expected {
            "u8" => Self::Whole(Some(u8::MAX.into())),
            "u16" => Self::Whole(Some(u16::MAX.into())),
            "u32" => Self::Whole(Some(u32::MAX.into())),
            "u64" => Self::Whole(None),
            "a boolean" => Self::Bool,
            "a string" => Self::Text,
            "a sequence" => Self::List,
            "a map" => Self::Object,
            "IP address" => Self::Other("an IP address".to_owned()),
            "IPv4 or IPv6 network address" => Self::Other("a network".to_owned()),
            text if text.starts_with("struct ") => Self::Object,
            text => Self::Other(text.strip_prefix("must be ").unwrap_or(text).to_owned()),
        }
    }
}

impl fmt::Display for ExpectedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "a whole number",
            Self::Bool => "true or false",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Object => "an object",
            Self::Other(text) => text,
        })
    }
}

fn one_of(found: Unexpected<'_>, words: &[&str]) -> String {
    let found = if let Unexpected::Str(text) = found { format!("`{}`", quoted(text)) } else { shown(found) };
    match words {
        [word] => format!("must be `{word}`, not {found}"),
        words => format!("must be one of {}, not {found}", words.join(", ")),
    }
}

fn shown(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Str(text) => format!("the text `{}`", quoted(text)),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        Unexpected::Char(_)
        | Unexpected::Bytes(_)
        | Unexpected::NewtypeStruct
        | Unexpected::Enum
        | Unexpected::UnitVariant
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant
        | Unexpected::Other(_) => found.to_string(),
    }
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
