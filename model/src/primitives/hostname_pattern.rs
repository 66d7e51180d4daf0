//! Host names with an optional wildcard label, as Gateways and HttpRoutes use them.

use std::{fmt, net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::name::Name;

/// Host name in lower case, such as `www.example.org`, or a wildcard name such as `*.example.org`, which matches every
/// name with at least one more label, but not `example.org`. IP addresses are rejected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, min_length = 1, max_length = 253, pattern = "^(\\*\\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", example = "www.example.org")]
pub struct HostnamePattern(Arc<str>);

impl HostnamePattern {
    /// Parses a host name with or without a wildcard label.
    ///
    /// # Errors
    /// Returns the expected form if the text does not have it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.parse::<IpAddr>().is_ok() {
            return Err("must be a host name, not an IP address".to_owned());
        }
        let name = text.strip_prefix("*.").unwrap_or(text);
        if name.contains('*') {
            return Err("must have `*` only as the whole first label, such as `*.example.org`".to_owned());
        }
        Name::parse(name).map_err(|error| error.to_string())?;
        Ok(Self(text.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name below which a wildcard name matches, such as `example.org`; `None` for a name without wildcard.
    #[must_use]
    pub fn wildcard_base(&self) -> Option<&str> {
        self.0.strip_prefix("*.")
    }

    /// Returns true if the pattern matches a host name in lower case.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match self.wildcard_base() {
            None => &*self.0 == host,
            Some(base) => is_below(host, base),
        }
    }

    /// Returns the names that both patterns match: the more specific pattern, or `None` if no name matches both.
    #[must_use]
    pub fn intersection<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        match (self.wildcard_base(), other.wildcard_base()) {
            (None, _) => other.matches(&self.0).then_some(self),
            (Some(_), None) => self.matches(&other.0).then_some(other),
            (Some(own), Some(others)) if own == others || is_below(own, others) => Some(self),
            (Some(own), Some(others)) => is_below(others, own).then_some(other),
        }
    }
}

/// Returns true if `name` has at least one label more than `base` and ends with it.
fn is_below(name: &str, base: &str) -> bool {
    let labels = name.strip_suffix(base).and_then(|labels| labels.strip_suffix('.'));
    labels.is_some_and(|labels| !labels.is_empty())
}

impl TryFrom<String> for HostnamePattern {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl Serialize for HostnamePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for HostnamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostnamePattern {
        HostnamePattern::parse(text).unwrap()
    }

    #[test]
    fn wildcards_match_one_label_or_more() {
        assert!(pattern("*.example.org").matches("a.example.org"));
        assert!(pattern("*.example.org").matches("a.b.example.org"));
        for host in ["example.org", "xexample.org", ".example.org", "a.example.net"] {
            assert!(!pattern("*.example.org").matches(host), "{host}");
        }
        for bad in ["", "*", "a.*.org", "192.0.2.1", "::1", "*.192.*", "Www.example.org", "a..b"] {
            assert!(HostnamePattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_intersection_is_the_more_specific_pattern() {
        for (one, other, expected) in [
            ("a.example.org", "a.example.org", Some("a.example.org")),
            ("*.example.org", "a.example.org", Some("a.example.org")),
            ("*.example.org", "*.b.example.org", Some("*.b.example.org")),
            ("*.example.org", "example.org", None),
            ("*.example.org", "*.example.net", None),
            ("a.example.org", "b.example.org", None),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let (one, other) = (pattern(one), pattern(other));
                assert_eq!(one.intersection(&other).map(HostnamePattern::as_str), expected);
            }
        }
    }
}
