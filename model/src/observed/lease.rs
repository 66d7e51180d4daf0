//! Leases of Nodes: detection of silent agents, with a limit for the share of Nodes that may count as lost at
//! once.
//!
//! If many Nodes fall silent at the same time, a network failure at the control server is far more likely than a
//! failure of the machines. Removing all of them from service would cause an outage, so only a third of the Nodes
//! may be lost at once.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::primitives::{name::Name, quantity::Timestamp};

/// Default time without reports after which a Node counts as lost, in seconds: other nodes then check its
/// Workloads, and those that fail are no longer endpoints. The time is longer than a restart of the agent or of the
/// control server, and equals the default of the Kubernetes node monitor.
pub const ENDPOINT_LEASE_SECS: i64 = 40;
/// Time without reports after which a Node is no candidate for announcing addresses, in seconds: three missed
/// reports at intervals of 5 s. Candidates monitor each other and fail over without the control server, so a
/// shorter lease has no benefit.
pub const ANNOUNCEMENT_LEASE_SECS: i64 = 15;
/// Divisor of the number of all Nodes, which gives the maximum number of lost Nodes: a third, but at least
/// one. Nodes that are already lost remain lost even above this limit.
const LOST_DIVISOR: usize = 3;

/// Lease of a Node: the time of its last report, with the information whether the Node counts as lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLease {
    /// Name of the Node.
    pub node: Name,
    /// Time of the last report. The lease of a Node that has never reported does not expire.
    pub last_report: Option<Timestamp>,
    /// True if the Node already counts as lost because of an earlier check of this lease.
    pub is_lost: bool,
}

/// Nodes whose lease has expired, divided into lost and retained ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpiredLeases {
    /// Nodes that become lost or remain lost.
    pub nodes: BTreeSet<Name>,
    /// Nodes with an expired lease that do not count as lost, because too many Nodes are silent at once.
    pub held: BTreeSet<Name>,
}

/// Returns the Nodes whose lease has expired, divided into Nodes that count as lost and Nodes that do not,
/// because too many are silent at once. `listening_since` is the time since which the control server can
/// receive reports; no lease of `lease_secs` starts earlier.
#[must_use]
pub fn expired(
    heard: &[NodeLease],
    lease_secs: i64,
    listening_since: Timestamp,
    now: Timestamp,
) -> ExpiredLeases {
    let is_silent = |one: &&NodeLease| match (one.last_report, one.is_lost) {
        // A Node that was lost before the start of the control server remains so until it reports.
        (since, true) => since.is_none_or(|since| is_over(since, lease_secs, now)),
        (Some(since), false) => is_over(since.max(listening_since), lease_secs, now),
        (None, false) => false,
    };
    let mut silent: Vec<_> = heard.iter().filter(is_silent).collect();
    // Lost Nodes remain lost, so that the selection is stable; then follow those that have been silent for longest.
    silent.sort_by_key(|one| (Reverse(one.is_lost), one.last_report, &one.node));
    let already = silent.iter().filter(|one| one.is_lost).count();
    let allowed = (heard.len() / LOST_DIVISOR).max(1).max(already);
    let names = |part: &[&NodeLease]| part.iter().map(|one| one.node.clone()).collect();
    let (gone, held) = silent.split_at(allowed.min(silent.len()));
    ExpiredLeases { nodes: names(gone), held: names(held) }
}

fn is_over(since: Timestamp, lease_secs: i64, now: Timestamp) -> bool {
    now.unix_seconds().saturating_sub(since.unix_seconds()) > lease_secs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_unix_seconds(1_771_000_000 + secs)
    }

    fn heard(node: &str, last_report: Option<i64>, is_lost: bool) -> NodeLease {
        NodeLease { node: Name::parse(node).unwrap(), last_report: last_report.map(at), is_lost }
    }

    fn names(nodes: &BTreeSet<Name>) -> Vec<&str> {
        nodes.iter().map(Name::as_str).collect()
    }

    #[test]
    fn f168_a_lease_expires_after_silence_while_control_listens() {
        let nodes = [heard("a", Some(0), false), heard("b", Some(30), false), heard("c", None, false)];
        let gone = |listening, now| expired(&nodes, 40, at(listening), at(now));
        assert_eq!(names(&gone(-100, 40).nodes), Vec::<&str>::new(), "not before its end");
        assert_eq!(names(&gone(-100, 41).nodes), ["a"]);
        assert_eq!(names(&gone(20, 60).nodes), Vec::<&str>::new(), "control listens for 40 s only");
        assert_eq!(names(&gone(20, 61).nodes), ["a"]);
    }

    #[test]
    fn f168_never_more_than_a_third_is_gone_at_once_and_the_choice_stays() {
        let mut nodes: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"]
            .iter()
            .map(|name| heard(name, Some(if *name == "d" { -1 } else { 0 }), *name == "e"))
            .collect();
        let gone = expired(&nodes, 40, at(-100), at(100));
        assert_eq!(names(&gone.nodes), ["d", "e"], "the one that is gone, and the one silent for longest");
        assert_eq!(names(&gone.held), ["a", "b", "c", "f", "g"]);
        nodes.iter_mut().for_each(|one| one.is_lost = gone.nodes.contains(&one.node));
        assert_eq!(expired(&nodes, 40, at(-100), at(200)), gone);
        nodes.iter_mut().for_each(|one| one.is_lost = true);
        assert_eq!(
            expired(&nodes, 40, at(-100), at(200)).held,
            BTreeSet::new(),
            "lost nodes do not return by it"
        );
        nodes[0].is_lost = false;
        assert_eq!(names(&expired(&nodes[..1], 40, at(-100), at(100)).nodes), ["a"], "at least one");
    }
}
