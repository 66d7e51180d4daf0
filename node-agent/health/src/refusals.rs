//! Passive detection: an endpoint that refuses a number of consecutive client connections within one check
//! interval becomes unhealthy before the next check. Does no I/O.
//!
//! Input is the number of refused connections per endpoint since the last successful one, read about once a
//! second. Refusals before the first reading do not count, because their time is unknown.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// Number of refusals within a time window at which an endpoint becomes unhealthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// Number of consecutive refused connections, equal to `fall` of the health check.
    pub(super) fall: u8,
    /// Length of the time window, equal to the interval of the health check.
    pub(super) interval: Duration,
}

/// Recent readings of the number of consecutive refused connections, by endpoint.
#[derive(Debug)]
pub(super) struct Streaks<K> {
    /// Times at which each number of refused connections was first read, oldest first. The first entry is the
    /// number before the time window. There are at most `fall` entries, because the numbers only increase.
    seen: BTreeMap<K, VecDeque<(Instant, u64)>>,
    last_at: Option<Instant>,
}

impl<K> Default for Streaks<K> {
    fn default() -> Self {
        Self { seen: BTreeMap::new(), last_at: None }
    }
}

impl<K: Ord + Clone> Streaks<K> {
    /// Applies the current numbers of consecutive refused connections. Returns the endpoints that have
    /// reached their limit, each with its number of refused connections. An endpoint is returned again only
    /// after as many further refusals as its limit.
    pub(super) fn read(&mut self, now: Instant, rows: &BTreeMap<K, (u64, Limit)>) -> Vec<(K, u64)> {
        let before = self.last_at.replace(now);
        self.seen.retain(|key, _| rows.contains_key(key));
        let mut fallen = Vec::new();
        for (key, (in_a_row, limit)) in rows {
            let seen = self.seen.entry(key.clone()).or_default();
            if seen.back().is_none_or(|(_, last)| in_a_row < last) {
                seen.clear();
                // Refusals of an endpoint missing from the last reading began after it.
                seen.push_back(before.map_or((now, *in_a_row), |at| (at, 0)));
            }
            if seen.back().is_some_and(|(_, last)| in_a_row > last) {
                seen.push_back((now, *in_a_row));
            }
            while seen.get(1).is_some_and(|(at, _)| *at + limit.interval <= now) {
                seen.pop_front();
            }
            let known = seen.front().map_or(0, |(_, known)| *known);
            if in_a_row - known >= u64::from(limit.fall) {
                *seen = VecDeque::from([(now, *in_a_row)]);
                fallen.push((key.clone(), *in_a_row));
            }
        }
        fallen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { fall: 3, interval: Duration::from_secs(5) };

    /// An endpoint becomes unhealthy when `fall` consecutive refusals are read within the interval; refusals
    /// before the first reading do not count, and a successful connection resets the number.
    #[test]
    fn so_many_in_a_row_within_the_interval_decide() {
        for readings in [
            // Refusals before the first reading may be old.
            vec![
                (0, Some(7), false),
                (1, Some(9), false),
                (2, Some(10), true),
                (3, Some(12), false),
                (4, Some(13), true),
            ],
            // Too slow: the first refusal leaves the window before the third comes.
            vec![
                (0, None, false),
                (1, Some(1), false),
                (4, Some(2), false),
                (8, Some(3), false),
                (9, Some(4), false),
                (10, Some(5), true),
            ],
            // A successful connection in between resets the number.
            vec![
                (0, None, false),
                (1, Some(2), false),
                (2, None, false),
                (3, Some(2), false),
                (4, Some(1), false),
            ],
            vec![(0, None, false), (1, Some(2), false), (2, Some(1), false), (3, Some(3), true)],
            // All at once.
            vec![(0, None, false), (1, Some(500), true), (2, Some(500), false)],
        ] {
            let (mut streaks, start) = (Streaks::default(), Instant::now());
            for (second, in_a_row, falls) in &readings {
                let rows = in_a_row.iter().map(|in_a_row| ("a", (*in_a_row, LIMIT))).collect();
                let fallen = streaks.read(start + Duration::from_secs(*second), &rows);
                assert_eq!(!fallen.is_empty(), *falls, "after {second} s in {readings:?}");
            }
        }
    }
}
