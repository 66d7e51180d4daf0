//! Sessions with other nodes that fail repeatedly, usually because the network between the nodes loses packets. Pure:
//! time is an argument.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use model::primitives::name::Name;

use crate::ownership::owners::Pair;

/// Time for which a failure of a session counts.
const COUNTED_TIME: Duration = Duration::from_secs(300);
/// Number of failures within [`COUNTED_TIME`] from which a session is reported.
const REPORTED_MIN: usize = 3;
/// Maximum number of failures that are stored for each session.
const KEPT_MAX: usize = 100;
/// Maximum number of sessions that the warning names.
const NAMED_MAX: usize = 3;

/// Recent failures of the session with each monitored node.
#[derive(Debug, Default)]
pub(super) struct SessionFailures(BTreeMap<Pair, (Name, VecDeque<Instant>)>);

impl SessionFailures {
    /// Records a failure of the session with a node.
    pub(super) fn record(&mut self, pair: Pair, node: &Name, now: Instant) {
        let (_, failures) = self.0.entry(pair).or_insert_with(|| (node.clone(), VecDeque::new()));
        failures.push_back(now);
        if failures.len() > KEPT_MAX {
            failures.pop_front();
        }
    }

    /// Removes the sessions for which `is_watched` returns false.
    pub(super) fn retain(&mut self, is_watched: impl Fn(&Pair) -> bool) {
        self.0.retain(|pair, _| is_watched(pair));
    }

    /// Returns a warning that names the sessions with repeated failures, or `None` if there are none.
    pub(super) fn warning(&mut self, now: Instant) -> Option<String> {
        for (_, failures) in self.0.values_mut() {
            while failures.front().is_some_and(|at| now.saturating_duration_since(*at) > COUNTED_TIME) {
                failures.pop_front();
            }
        }
        self.0.retain(|_, (_, failures)| !failures.is_empty());
        let lossy: Vec<_> =
            self.0.iter().filter(|(_, (_, failures))| failures.len() >= REPORTED_MIN).collect();
        if lossy.is_empty() {
            return None;
        }
        let name = |(pair, (node, failures)): &(&Pair, &(Name, VecDeque<Instant>))| {
            format!("{node} ({}) {} times", pair.peer, failures.len())
        };
        let named: Vec<_> = lossy.iter().take(NAMED_MAX).map(name).collect();
        let more = lossy.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let minutes = COUNTED_TIME.as_secs() / 60;
        Some(format!(
            "BFD sessions failed repeatedly in the last {minutes} minutes: {}{more}; takeovers from these nodes are \
             delayed: check the network for packet loss",
            named.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn pair(last: u8) -> Pair {
        Pair { local: IpAddr::from([192, 0, 2, 1]), peer: IpAddr::from([192, 0, 2, last]) }
    }

    #[test]
    fn a_session_that_fails_three_times_in_five_minutes_is_named_until_it_is_steady() {
        let (start, node) = (Instant::now(), Name::parse("n2").unwrap());
        let at = |secs| start + Duration::from_secs(secs);
        let mut failures = SessionFailures::default();
        for secs in [0, 100] {
            failures.record(pair(2), &node, at(secs));
            failures.record(pair(3), &node, at(secs));
        }
        assert_eq!(failures.warning(at(200)), None);
        failures.record(pair(2), &node, at(250));
        let warning = failures.warning(at(260)).unwrap();
        assert!(warning.contains("in the last 5 minutes: n2 (192.0.2.2) 3 times; takeovers"), "{warning}");
        assert_eq!(failures.warning(at(301)), None, "the first failure is over");
        for secs in 400..600 {
            failures.record(pair(2), &node, at(secs));
        }
        assert!(failures.warning(at(600)).unwrap().contains("100 times"), "the number is bounded");
        failures.retain(|known| *known == pair(3));
        assert_eq!(failures.warning(at(600)), None);
    }
}
