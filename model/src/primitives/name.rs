//! Names of objects and namespaces, validated when they are parsed.
//!
//! The rules are those of DNS (RFC 1123 §2.1, RFC 1035 §2.3.4). A valid name can therefore be used in DNS
//! responses, URL paths and comments of kernel rules without escaping.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

/// Maximum length of a DNS label in bytes (RFC 1035 §2.3.4).
pub const LABEL_LENGTH_MAX: usize = 63;
/// Maximum length of a DNS name in text form, in bytes, without the final dot.
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;

/// Reason why a text is not a valid object name or label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text is longer than a DNS name or label may be.
    #[error("must be at most {max} characters, has {len}")]
    TooLong {
        /// Maximum length of this type of name, in bytes.
        max: usize,
        /// Length of the text in bytes.
        len: usize,
    },
    /// The text contains a character that is not allowed at its position.
    #[error(
        "must consist of lower-case letters, digits and `-`, and start and end with a letter or digit; `{0}` does not"
    )]
    Characters(String),
}

/// Name of an object: a DNS subdomain of at most 253 characters with labels of at most 63, such as `web`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, min_length = 1, max_length = 253, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", example = "web")]
// Clones share the text, because an agent keeps each name in several tables.
pub struct Name(Arc<str>);

/// DNS label of at most 63 characters, such as `default`. Used for namespaces, ports and zones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", example = "default")]
pub struct Label(Arc<str>);

/// Name of a namespace. Namespaces are not objects of the API, so an object may use any namespace without
/// creating it first.
pub type Namespace = Label;

impl Name {
    /// Parses a DNS subdomain: labels separated by dots, at most 253 bytes.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check_subdomain(text, LABEL_LENGTH_MAX)?;
        Ok(Self(text.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the name is a single DNS label of at most 63 characters, as required for Services.
    #[must_use]
    pub fn is_label(&self) -> bool {
        self.0.len() <= LABEL_LENGTH_MAX && !self.0.contains('.')
    }
}

impl Label {
    /// Parses a DNS label: at most 63 bytes, without dots.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check_length(text, LABEL_LENGTH_MAX)?;
        check_label_characters(text, text)?;
        Ok(Self(text.into()))
    }

    /// Returns the label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks that `text` is a DNS subdomain of at most 253 bytes, whose labels have at most `label_max` bytes. Kubernetes
/// limits the labels of names, but not those of the prefix of a label key.
pub(crate) fn check_subdomain(text: &str, label_max: usize) -> Result<(), NameError> {
    check_length(text, SUBDOMAIN_LENGTH_MAX)?;
    for label in text.split('.') {
        check_length(label, label_max)?;
        check_label_characters(label, text)?;
    }
    Ok(())
}

fn check_length(text: &str, max: usize) -> Result<(), NameError> {
    match text.len() {
        0 => Err(NameError::Empty),
        len if len > max => Err(NameError::TooLong { max, len }),
        _ => Ok(()),
    }
}

fn check_label_characters(label: &str, whole: &str) -> Result<(), NameError> {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let edge_ok = !label.starts_with('-') && !label.ends_with('-');
    if edge_ok && label.bytes().all(allowed) { Ok(()) } else { Err(NameError::Characters(whole.to_owned())) }
}

macro_rules! text_newtype {
    ($($ty:ident),*) => {$(
        impl TryFrom<String> for $ty {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }
        impl FromStr for $ty {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }
        impl From<$ty> for String {
            fn from(name: $ty) -> Self {
                name.0.as_ref().to_owned()
            }
        }
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl AsRef<str> for $ty {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl Borrow<str> for $ty {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}
text_newtype!(Name, Label);

/// Parses the form `namespace/name` of an object in a namespace.
///
/// # Errors
/// Returns the expected form if the text does not have it, or if a part of it is no valid name.
pub fn parse_namespaced(text: &str) -> Result<(Namespace, Name), String> {
    let parts = text.split_once('/');
    let parsed =
        parts.and_then(|(namespace, name)| Namespace::parse(namespace).ok().zip(Name::parse(name).ok()));
    parsed.ok_or_else(|| format!("must be `namespace/name`, not `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_dns_and_say_what_is_wrong() {
        for good in ["a", "web-1", "node-1.rack2.example", "0a"] {
            assert_eq!(Name::parse(good).map(String::from), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "ü", "a b", &"x".repeat(64), &"x.".repeat(130)]
        {
            assert!(Name::parse(bad).is_err(), "{bad:?} must be refused");
        }
        assert!(Label::parse("a.b").is_err());
        assert!(Label::parse(&"x".repeat(63)).is_ok());
    }
}
