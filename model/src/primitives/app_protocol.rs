//! Application protocols of Service ports, with the names of Kubernetes.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

/// Maximum length of the name of an application protocol in bytes: a domain, a slash, and a name of 63 characters.
const LENGTH_MAX: usize = 317;

/// Application protocol of a Service port, such as `http` or `kubernetes.io/h2c`: letters, digits, `-`, `_`, `.` and `/`, at
/// most 317 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, min_length = 1, max_length = 317, pattern = "^[A-Za-z0-9._/-]+$", example = "kubernetes.io/h2c")]
pub struct AppProtocol(Arc<str>);

impl AppProtocol {
    /// Parses the name of an application protocol.
    ///
    /// # Errors
    /// Returns the expected form if the text does not have it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if (1..=LENGTH_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
            return Ok(Self(text.into()));
        }
        Err(format!("must have 1 to {LENGTH_MAX} letters, digits, `-`, `_`, `.` and `/`"))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AppProtocol {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl Serialize for AppProtocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for AppProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kubernetes_are_accepted() {
        for good in ["http", "kubernetes.io/h2c", "mysql", "example.com/My_protocol-1.0"] {
            assert_eq!(AppProtocol::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "ä", "a\n", &"x".repeat(318)] {
            assert!(AppProtocol::parse(bad).is_err(), "{bad:?}");
        }
    }
}
