//! Durations in the form of the Gateway API (GEP-2257).

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

/// Maximum number of parts of a duration.
const PARTS_MAX: usize = 4;
/// Maximum number of digits of a part.
const DIGITS_MAX: usize = 5;
/// Units with their lengths in milliseconds, the longest one first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
/// Longest duration: 99,999 hours.
const MILLISECONDS_MAX: u64 = 99_999 * 3_600_000;

/// Duration such as `10s`, `500ms` or `1m30s`: at most four numbers of at most five digits, each with its unit `h`, `m`, `s`
/// or `ms`. At most 99,999 hours. The value is in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, pattern = "^([0-9]{1,5}(h|m|s|ms)){1,4}$", example = "10s")]
pub struct GatewayDuration(u64);

impl GatewayDuration {
    /// Parses a duration.
    ///
    /// # Errors
    /// Returns the expected form if the text does not have it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = || "must be a duration such as `10s`, `500ms` or `1m30s`".to_owned();
        let (mut rest, mut milliseconds, mut parts) = (text, 0_u64, 0);
        while !rest.is_empty() {
            let (digits, after) =
                rest.split_at(rest.find(|one: char| !one.is_ascii_digit()).ok_or_else(form)?);
            let (unit, next) =
                after.split_at(after.find(|one: char| one.is_ascii_digit()).unwrap_or(after.len()));
            let length = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, length)| *length);
            if digits.len() > DIGITS_MAX || parts == PARTS_MAX {
                return Err(form());
            }
            milliseconds += digits.parse::<u64>().map_err(|_| form())? * length.ok_or_else(form)?;
            (rest, parts) = (next, parts + 1);
        }
        if parts == 0 {
            return Err(form());
        }
        if milliseconds > MILLISECONDS_MAX {
            return Err("must be at most 99999h".to_owned());
        }
        Ok(Self(milliseconds))
    }

    /// Returns the duration; `None` for 0, which stands for no limit.
    #[must_use]
    pub const fn limit(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            milliseconds => Some(Duration::from_millis(milliseconds)),
        }
    }
}

impl TryFrom<String> for GatewayDuration {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl Serialize for GatewayDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for GatewayDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, length) in UNITS {
            if rest >= length {
                write!(f, "{}{unit}", rest / length)?;
                rest %= length;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed_in_their_shortest_form() {
        for (text, expected) in [
            ("10s", "10s"),
            ("90s", "1m30s"),
            ("1500ms", "1s500ms"),
            ("0s", "0s"),
            ("0h", "0s"),
            ("1h2m3s4ms", "1h2m3s4ms"),
            ("1s1s", "2s"),
            ("99999h", "99999h"),
        ] {
            let parsed = GatewayDuration::parse(text).unwrap();
            assert_eq!(parsed.to_string(), expected, "{text}");
            assert_eq!(GatewayDuration::parse(expected), Ok(parsed));
        }
        for bad in
            ["", "1", "s", "-1s", "1.5s", "100000s", "1d", "1s ", "1s1s1s1s1s", "99999h1h", "1µs", "١s"]
        {
            assert!(GatewayDuration::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(GatewayDuration::parse("0ms").unwrap().limit(), None);
        assert_eq!(GatewayDuration::parse("2s").unwrap().limit(), Some(Duration::from_secs(2)));
    }
}
