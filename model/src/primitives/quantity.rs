//! Numbers and times of the API with limited ranges: ports, weights, revisions, positions and timestamps.

use std::{fmt, num::NonZeroU16, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Transport port, from 1 to 65,535. Port 0 is reserved (RFC 6335 §6) and rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "u64", into = "u16")]
#[schema(value_type = u16, minimum = 1, maximum = 65535, example = 80)]
pub struct Port(NonZeroU16);

impl Port {
    /// Lowest port number, 1.
    pub const MIN: Self = Self(NonZeroU16::MIN);

    /// Creates a port, or returns `None` for 0.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(port) => Some(Self(port)),
            None => None,
        }
    }

    /// Returns the port number, from 1 to 65,535.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl TryFrom<u64> for Port {
    type Error = String;
    fn try_from(number: u64) -> Result<Self, String> {
        let port = u16::try_from(number).ok().and_then(Self::new);
        port.ok_or_else(|| format!("must be a port between 1 and 65535, not {number}"))
    }
}

impl From<Port> for u16 {
    fn from(port: Port) -> Self {
        port.get()
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Range of ports, including its first and last one. A single port is a range of length 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(Port, Port)", into = "(Port, Port)")]
pub struct PortRange {
    first: Port,
    last: Port,
}

impl PortRange {
    /// Creates the range between two ports, given in any order.
    #[must_use]
    pub fn new(a: Port, b: Port) -> Self {
        Self { first: a.min(b), last: a.max(b) }
    }

    /// Returns the lowest port of the range.
    #[must_use]
    pub const fn first(self) -> Port {
        self.first
    }

    /// Returns the highest port of the range.
    #[must_use]
    pub const fn last(self) -> Port {
        self.last
    }

    /// Returns the port if the range contains exactly one port, otherwise `None`.
    #[must_use]
    pub fn single(self) -> Option<Port> {
        (self.first == self.last).then_some(self.first)
    }

    /// True if the port is in the range.
    #[must_use]
    pub fn contains(self, port: Port) -> bool {
        self.first <= port && port <= self.last
    }

    /// True if two ranges have a port in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns the number of ports, from 1 to 65,535.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.last.get() - self.first.get() + 1
    }
}

impl From<Port> for PortRange {
    fn from(port: Port) -> Self {
        Self { first: port, last: port }
    }
}

impl From<(Port, Port)> for PortRange {
    fn from((a, b): (Port, Port)) -> Self {
        Self::new(a, b)
    }
}

impl From<PortRange> for (Port, Port) {
    fn from(range: PortRange) -> Self {
        (range.first, range.last)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(port) => port.fmt(f),
            None => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Share of new connections that an endpoint receives relative to the other endpoints, from 0 to 65,535. With
/// 0, the endpoint receives none. Default: 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[schema(value_type = u16, minimum = 0, maximum = 65535, default = 1)]
pub struct Weight(pub u16);

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

/// Revision of the store, increased by one by every committed write.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[schema(value_type = u64, minimum = 0)]
pub struct Revision(pub u64);

impl Revision {
    /// Returns the revision that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Epoch: identity of a store. The epoch of a new store is its creation time in Unix seconds, and restoring a
/// backup increases the epoch, so the store that was created or restored later has the higher epoch.
/// Revisions of different epochs cannot be compared.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[schema(value_type = u64, minimum = 0)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Position in the history of a store: epoch and revision, written `epoch-revision`, such as `1771000000-42`.
/// Clients that watch changes send it to resume after an interruption. Ordered by epoch, then by revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Position {
    /// Epoch of the store.
    pub epoch: Epoch,
    /// Revision within the epoch.
    pub revision: Revision,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch.0, self.revision.0)
    }
}

impl FromStr for Position {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse =
            |part: &str| part.parse::<u64>().ok().filter(|_| part.bytes().all(|c| c.is_ascii_digit()));
        let parts = text.split_once('-').and_then(|(e, r)| Some((parse(e)?, parse(r)?)));
        let (epoch, revision) = parts
            .ok_or_else(|| "must be a position that this API returned, such as 1771000000-42".to_owned())?;
        Ok(Self { epoch: Epoch(epoch), revision: Revision(revision) })
    }
}

impl TryFrom<String> for Position {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Position> for String {
    fn from(position: Position) -> Self {
        position.to_string()
    }
}

/// Point in time, RFC 3339 in UTC with a precision of one second, such as `2026-11-21T09:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, format = DateTime, example = "2026-11-21T09:00:00Z")]
pub struct Timestamp(i64);

impl Timestamp {
    /// Earliest time that can be written in RFC 3339, in Unix seconds: start of year 0.
    const UNIX_SECONDS_MIN: i64 = -62_167_219_200;
    /// Latest time that can be written, in Unix seconds: end of year 9998.
    const UNIX_SECONDS_MAX: i64 = 253_370_764_799;

    /// Creates a time from Unix seconds, limited to the years 0 to 9998.
    #[must_use]
    pub fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds.clamp(Self::UNIX_SECONDS_MIN, Self::UNIX_SECONDS_MAX))
    }

    /// Returns the time in seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn unix_seconds(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The constructor limits the value to the range of jiff, so the default is never used.
        jiff::Timestamp::from_second(self.0).unwrap_or_default().fmt(f)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let parsed: jiff::Timestamp =
            text.parse().map_err(|_| format!("must be an RFC 3339 time, not `{text}`"))?;
        Ok(Self::from_unix_seconds(parsed.as_second()))
    }
}

impl From<Timestamp> for String {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_order_by_epoch_first_and_round_trip() {
        let older: Position = "7-900".parse().unwrap();
        let newer: Position = "8-1".parse().unwrap();
        assert!(older < newer);
        assert_eq!(older.to_string(), "7-900");
        for bad in ["", "7", "7-", "-7", "a-b", "7-8-9", "+7-1", "99999999999999999999-1"] {
            assert!(bad.parse::<Position>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn timestamps_are_rfc_3339_and_clamped() {
        assert_eq!(Timestamp::from_unix_seconds(1_466_177_000).to_string(), "2016-06-17T15:23:20Z");
        let _never_panics = Timestamp::from_unix_seconds(i64::MAX).to_string();
        let _never_panics = Timestamp::from_unix_seconds(i64::MIN).to_string();
        assert!(Timestamp::try_from("yesterday".to_owned()).is_err());
    }
}
