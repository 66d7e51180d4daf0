//! Rates per second: the difference of two readings divided by the time between them. Does no I/O.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use model::wire::traffic_counts::{Counts, Rates};

/// Minimum time between two readings of a rate. Over a shorter time, a single connection would look like a
/// high rate.
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// Computes rates per second for many keys from readings of cumulative counters.
#[derive(Debug)]
pub(super) struct Meter<K> {
    last: Option<(Instant, BTreeMap<K, Counts>)>,
    rates: BTreeMap<K, Rates>,
}

impl<K> Default for Meter<K> {
    fn default() -> Self {
        Self { last: None, rates: BTreeMap::new() }
    }
}

impl<K: Ord> Meter<K> {
    /// Records a reading of all counters. Keys missing from the previous reading count from zero; the first
    /// reading yields no rates.
    pub(super) fn read(&mut self, now: Instant, counts: BTreeMap<K, Counts>)
    where
        K: Clone,
    {
        if let Some((at, before)) = &self.last {
            let window = now.saturating_duration_since(*at);
            if window < WINDOW_MIN {
                return;
            }
            let millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
            let rates = |(key, later): (&K, &Counts)| {
                let earlier = before.get(key).copied().unwrap_or_default();
                (key.clone(), Rates::between(&earlier, later, millis))
            };
            self.rates = counts.iter().map(rates).collect();
        }
        self.last = Some((now, counts));
    }

    /// Returns the rates of a key between the last two readings, or `None` before the second one.
    pub(super) fn rates(&self, key: &K) -> Option<Rates> {
        self.rates.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use model::wire::traffic_counts::Rate;

    use super::*;

    /// The first reading yields no rate, and a reading less than a second after the previous one leaves the
    /// rate unchanged.
    #[test]
    fn rates_begin_with_the_second_reading_and_need_a_second() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        for (millis, connections, rate) in [
            (0, 1000, None),
            (500, 1500, None),
            (10_000, 2000, Some((1000, 10_000))),
            (10_900, 9000, Some((1000, 10_000))),
            (20_000, 2000, Some((0, 1))),
        ] {
            let counts = Counts { connections, ..Counts::default() };
            meter.read(start + Duration::from_millis(millis), BTreeMap::from([("a", counts)]));
            let found = meter.rates(&"a").map(|rates| rates.connections);
            assert_eq!(found, rate.map(|(count, millis)| Rate::of(count, millis)), "at {millis} ms");
        }
        let counts = Counts { connections: 5, ..Counts::default() };
        meter.read(start + Duration::from_secs(25), BTreeMap::from([("new", counts)]));
        assert_eq!(meter.rates(&"new").map(|rates| rates.connections), Some(Rate::of(5, 5000)));
        assert_eq!(meter.rates(&"a"), None);
    }
}
