//! Silence after which a Node counts as lost (`--node-lost-after`).

use std::str::FromStr;

use model::observed::lease::ENDPOINT_LEASE_SECS;

/// Minimum silence in seconds: two intervals of reports. A Node whose next report is late must not count as lost.
const SECS_MIN: i64 = 10;
/// Maximum silence in seconds: a day. A longer time is hardly intended.
const SECS_MAX: i64 = 86_400;

/// Silence after which a Node counts as lost and other nodes check its Workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeLostAfter {
    /// Silence in seconds, from 10 to 86,400
    Secs(i64),
    /// No Node ever counts as lost
    Never,
}

impl NodeLostAfter {
    /// Returns the duration of the lease in seconds, or `None` if the lease never expires.
    #[must_use]
    pub const fn lease_secs(self) -> Option<i64> {
        match self {
            Self::Secs(secs) => Some(secs),
            Self::Never => None,
        }
    }
}

impl Default for NodeLostAfter {
    fn default() -> Self {
        Self::Secs(ENDPOINT_LEASE_SECS)
    }
}

impl FromStr for NodeLostAfter {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let secs = text.parse().ok().filter(|secs| (SECS_MIN..=SECS_MAX).contains(secs));
        secs.map(Self::Secs)
            .ok_or_else(|| format!("expected `never` or seconds from {SECS_MIN} to {SECS_MAX}"))
    }
}
