//! Names of the DNS, validated when they are parsed.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::name::{LABEL_LENGTH_MAX, SUBDOMAIN_LENGTH_MAX};

/// Name of the DNS in lower case, without the final dot, such as `www.example.org`. Labels consist of letters, digits,
/// `-` and `_`, have at most 63 characters, and neither start nor end with `-`; the name has at most 253 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, min_length = 1, max_length = 253, pattern = "^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$", example = "www.example.org")]
pub struct DomainName(Arc<str>);

/// Reason for which a text is not a valid name of the DNS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainNameError {
    /// The name or one of its labels is empty or too long.
    #[error(
        "must consist of labels of 1 to {LABEL_LENGTH_MAX} characters, separated by single dots, and have at most \
         {SUBDOMAIN_LENGTH_MAX} characters without a final dot"
    )]
    Length,
    /// The name contains a `*`.
    #[error("must not contain `*`: wildcard names are not supported; list each name")]
    Wildcard,
    /// The name contains a character that is not allowed at its position.
    #[error(
        "must consist of lower-case letters, digits, `-` and `_` in labels that neither start nor end with `-`; `{0}` does not"
    )]
    Characters(String),
}

impl DomainName {
    /// Parses a name.
    ///
    /// # Errors
    /// Returns an error if the name is empty, too long, a wildcard, or contains other characters.
    pub fn parse(text: &str) -> Result<Self, DomainNameError> {
        if text.contains('*') {
            return Err(DomainNameError::Wildcard);
        }
        let has_length = |label: &str| (1..=LABEL_LENGTH_MAX).contains(&label.len());
        if text.len() > SUBDOMAIN_LENGTH_MAX || !text.split('.').all(has_length) {
            return Err(DomainNameError::Length);
        }
        let is_allowed =
            |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_' || c == b'.';
        let is_edged = |label: &str| label.starts_with('-') || label.ends_with('-');
        if !text.bytes().all(is_allowed) || text.split('.').any(is_edged) {
            return Err(DomainNameError::Characters(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the name is `zone` or below it.
    #[must_use]
    pub fn is_within(&self, zone: &Self) -> bool {
        let below = self.0.strip_suffix(zone.as_str());
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    }

    /// Returns the labels from right to left, joined by dots, such as `org.example.www`. In the order of these texts,
    /// the names below a name are adjacent.
    #[must_use]
    pub fn reversed(&self) -> String {
        reversed(&self.0)
    }
}

/// Returns the labels of a name from right to left, joined by dots.
#[must_use]
pub fn reversed(name: &str) -> String {
    name.rsplit('.').collect::<Vec<_>>().join(".")
}

impl TryFrom<String> for DomainName {
    type Error = DomainNameError;
    fn try_from(text: String) -> Result<Self, DomainNameError> {
        Self::parse(&text)
    }
}

impl FromStr for DomainName {
    type Err = DomainNameError;
    fn from_str(text: &str) -> Result<Self, DomainNameError> {
        Self::parse(text)
    }
}

impl Serialize for DomainName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for DomainName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_dns_and_errors_give_the_rule() {
        for good in ["a", "www.example.org", "_sip._tcp.example.org", "xn--bcher-kva.example", "0.1"] {
            assert_eq!(DomainName::parse(good).unwrap().as_str(), good);
        }
        let long = format!("{}.org", "a".repeat(64));
        let many = format!("{}a", "a.".repeat(127));
        for bad in ["", ".", "a.", ".a", "a..b", long.as_str(), many.as_str()] {
            assert_eq!(DomainName::parse(bad), Err(DomainNameError::Length), "{bad}");
        }
        for bad in ["*.example.org", "*"] {
            assert_eq!(DomainName::parse(bad), Err(DomainNameError::Wildcard), "{bad}");
        }
        for bad in ["A.org", "ü.org", "a b.org", "-a.org", "a-.org", "a\\.org"] {
            assert!(matches!(DomainName::parse(bad), Err(DomainNameError::Characters(_))), "{bad}");
        }
    }

    #[test]
    fn a_zone_contains_itself_and_the_names_below_it() {
        let name = |text: &str| DomainName::parse(text).unwrap();
        let zone = name("example.org");
        assert!(name("example.org").is_within(&zone) && name("a.b.example.org").is_within(&zone));
        assert!(!name("badexample.org").is_within(&zone) && !name("org").is_within(&zone));
        assert_eq!(name("www.example.org").reversed(), "org.example.www");
    }
}
