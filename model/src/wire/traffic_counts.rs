//! Traffic counters of endpoints, and their sums and rates.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::ToSchema;

/// Traffic counters of an endpoint, or sums over several endpoints or nodes. A counter is `null` if no node
/// maintains it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Number of connections to the endpoint, including UDP flows.
    pub connections: u64,
    /// Number of packets in both directions. `null` if not counted.
    pub packets: Option<u64>,
    /// Number of bytes in both directions. `null` if not counted.
    pub bytes: Option<u64>,
    /// Number of currently established connections. `null` if not counted.
    pub active: Option<u64>,
    /// Number of tracked connections that are not established. `null` if not counted.
    pub inactive: Option<u64>,
    /// Rates per second, as averages between the last two readings of the counters on each node, at least 10
    /// seconds apart. `null` if no node reports rates.
    pub per_second: Option<Rates>,
    /// Failed connections by cause, as observed by the relay of userspace mode. `null` if not counted.
    pub failed: Option<TargetFailures>,
}

impl Counts {
    /// Adds the counters of a different endpoint or node to these counters.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { connections, packets, bytes, active, inactive, per_second, failed } = other;
        self.connections = self.connections.saturating_add(*connections);
        self.packets = sum(self.packets, *packets, u64::saturating_add);
        self.bytes = sum(self.bytes, *bytes, u64::saturating_add);
        self.active = sum(self.active, *active, u64::saturating_add);
        self.inactive = sum(self.inactive, *inactive, u64::saturating_add);
        self.per_second = sum(self.per_second, *per_second, Rates::plus);
        self.failed = sum(self.failed, *failed, TargetFailures::plus);
    }

    /// Returns the increase of each counter since an earlier reading. If a counter is lower than before, it
    /// was reset, and its present value is the increase. Gauges and rates are absent from the result.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let grown_if = |new: Option<u64>, old: Option<u64>| new.map(|new| grown(new, old.unwrap_or(0)));
        Self {
            connections: grown(self.connections, earlier.connections),
            packets: grown_if(self.packets, earlier.packets),
            bytes: grown_if(self.bytes, earlier.bytes),
            failed: self.failed.map(|failed| failed.since(&earlier.failed.unwrap_or_default())),
            active: None,
            inactive: None,
            per_second: None,
        }
    }

    /// Returns a copy with only the gauges (such as open connections) and rates; its counters are zero or
    /// absent.
    pub(crate) const fn momentary(&self) -> Self {
        Self { connections: 0, packets: None, bytes: None, failed: None, ..*self }
    }

    /// True if there was at least one connection, successful or failed.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.connections > 0 || self.failed.is_some_and(|failed| failed != TargetFailures::default())
    }

    /// Returns the sum of several sets of counters.
    #[must_use]
    pub fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.add(one);
            sum
        })
    }
}

/// Rates of traffic per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rates {
    /// New connections per second.
    pub connections: Rate,
    /// Packets per second in both directions. `null` if not counted.
    #[serde(default)]
    pub packets: Option<Rate>,
    /// Bytes per second in both directions. `null` if not counted.
    #[serde(default)]
    pub bytes: Option<Rate>,
}

impl Rates {
    /// Returns the rates between two readings of the same counters, `millis` milliseconds apart.
    #[must_use]
    pub fn between(earlier: &Counts, later: &Counts, millis: u64) -> Self {
        let Counts { connections, packets, bytes, .. } = later.since(earlier);
        let rate = |count| Rate::of(count, millis);
        Self { connections: rate(connections), packets: packets.map(rate), bytes: bytes.map(rate) }
    }

    fn plus(self, other: Self) -> Self {
        let Self { connections, packets, bytes } = other;
        Self {
            connections: self.connections.plus(connections),
            packets: sum(self.packets, packets, Rate::plus),
            bytes: sum(self.bytes, bytes, Rate::plus),
        }
    }
}

/// Rate of events per second, not negative, with a precision of a thousandth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = f64)]
pub struct Rate(u64);

impl Rate {
    /// Returns the rate of `count` events within `millis` milliseconds; 0 if `millis` is 0.
    #[must_use]
    pub fn of(count: u64, millis: u64) -> Self {
        let thousandths = (u128::from(count) * 1_000_000).checked_div(u128::from(millis)).unwrap_or(0);
        Self(u64::try_from(thousandths).unwrap_or(u64::MAX))
    }

    pub(crate) const fn thousandths(self) -> u64 {
        self.0
    }

    /// Returns the rate per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people; exact up to 2^53 thousandths")]
    pub const fn per_second(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.per_second())
    }
}

impl<'de> Deserialize<'de> for Rate {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked above the cast, which saturates"
    )]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if !number.is_finite() || number < 0.0 {
            return Err(D::Error::custom("must be a number that is not negative"));
        }
        Ok(Self((number * 1000.0).round() as u64))
    }
}

/// Numbers of failed connections to an endpoint, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetFailures {
    /// Number of connections that the endpoint refused.
    pub refused: u64,
    /// Number of connection attempts that failed because there was no route to the endpoint.
    pub unreachable: u64,
    /// Number of connection attempts without a response within the timeout.
    pub silent: u64,
    /// Number of established connections that the endpoint reset.
    pub reset: u64,
}

impl TargetFailures {
    fn plus(self, other: Self) -> Self {
        self.with(&other, u64::saturating_add)
    }

    fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, grown)
    }

    fn with(&self, other: &Self, merge: impl Fn(u64, u64) -> u64) -> Self {
        let Self { refused, unreachable, silent, reset } = other;
        Self {
            refused: merge(self.refused, *refused),
            unreachable: merge(self.unreachable, *unreachable),
            silent: merge(self.silent, *silent),
            reset: merge(self.reset, *reset),
        }
    }
}

/// Returns the increase of a counter from `old` to `new`. If `new` is lower, the counter was reset to 0 in
/// between, and the increase is `new`.
fn grown(new: u64, old: u64) -> u64 {
    new.checked_sub(old).unwrap_or(new)
}

fn sum<T>(a: Option<T>, b: Option<T>, plus: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(plus(a, b)),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(connections: u64, bytes: Option<u64>) -> Counts {
        Counts { connections, bytes, ..Counts::default() }
    }

    /// The rate of each counter is its increase between two readings, divided by the time between them.
    #[test]
    fn a_rate_is_what_was_counted_between_two_readings() {
        for (earlier, later, millis, published) in [
            ((10, Some(0)), (13, Some(2_500)), 10_000, r#"{"connections":0.3,"packets":null,"bytes":250.0}"#),
            ((10, None), (10, None), 10_000, r#"{"connections":0.0,"packets":null,"bytes":null}"#),
            // The counter of the kernel was reset.
            ((1000, None), (5, None), 1_000, r#"{"connections":5.0,"packets":null,"bytes":null}"#),
            ((0, None), (5, None), 0, r#"{"connections":0.0,"packets":null,"bytes":null}"#),
        ] {
            let (earlier, later) = (counts(earlier.0, earlier.1), counts(later.0, later.1));
            let rates = Rates::between(&earlier, &later, millis);
            assert_eq!(serde_json::to_string(&rates).unwrap(), published);
            assert_eq!(serde_json::from_str::<Rates>(published).unwrap(), rates);
        }
        for bad in ["-1", "1e999", "\"1\""] {
            assert!(serde_json::from_str::<Rate>(bad).is_err(), "{bad}");
        }
    }
}
