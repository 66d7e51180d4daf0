//! Leases of Nodes: whose agent has been silent for too long, and how many may count as gone at once.
//!
//! When many Nodes fall silent at the same time, it is far more likely that control is cut off than that the machines
//! died; taking all of them out would then do what no failure did. So only a part may be gone at once.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::primitives::{name::Name, quantity::Timestamp};

/// How long an agent may be silent before its Node's Workloads are no endpoints any longer, in seconds: as long as
/// Kubernetes waits before it calls a node gone, because a restart of the agent or of control must not empty Services
/// whose endpoints work.
pub const ENDPOINT_LEASE_SECS: i64 = 40;
/// How long an agent may be silent before its Node is no candidate for addresses, in seconds: three missed reports of
/// 5 s. Candidates watch each other and need no control to fail over, so nothing is gained by less.
pub const ANNOUNCEMENT_LEASE_SECS: i64 = 15;
/// One part of so many of all Nodes may be gone at once.
const GONE_PART: usize = 3;

/// What is known of one Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The Node.
    pub node: Name,
    /// When its agent last reported; a Node whose agent never did has no lease that could end.
    pub last_report: Option<Timestamp>,
    /// Whether it counts as gone already.
    pub is_gone: bool,
}

/// Which Nodes count as gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone {
    /// These.
    pub nodes: BTreeSet<Name>,
    /// These are silent for as long, and are kept because so many are.
    pub held: BTreeSet<Name>,
}

/// Says which Nodes count as gone. `listening_since` is when control began to hear reports: before, it could not.
#[must_use]
pub fn expired(heard: &[Heard], lease_secs: i64, listening_since: Timestamp, now: Timestamp) -> Gone {
    let is_silent = |one: &&Heard| match (one.last_report, one.is_gone) {
        // A Node that was gone before control started stays so until it speaks.
        (since, true) => since.is_none_or(|since| is_over(since, lease_secs, now)),
        (Some(since), false) => is_over(since.max(listening_since), lease_secs, now),
        (None, false) => false,
    };
    let mut silent: Vec<_> = heard.iter().filter(is_silent).collect();
    // Who is gone stays gone, so that the choice does not wander; then those silent for longest.
    silent.sort_by_key(|one| (Reverse(one.is_gone), one.last_report, &one.node));
    let already = silent.iter().filter(|one| one.is_gone).count();
    let allowed = (heard.len() / GONE_PART).max(1).max(already);
    let names = |part: &[&Heard]| part.iter().map(|one| one.node.clone()).collect();
    let (gone, held) = silent.split_at(allowed.min(silent.len()));
    Gone { nodes: names(gone), held: names(held) }
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

    fn heard(node: &str, last_report: Option<i64>, is_gone: bool) -> Heard {
        Heard { node: Name::parse(node).unwrap(), last_report: last_report.map(at), is_gone }
    }

    fn names(nodes: &BTreeSet<Name>) -> Vec<&str> {
        nodes.iter().map(Name::as_str).collect()
    }

    #[test]
    fn f168_a_lease_ends_after_silence_that_control_could_hear() {
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
        nodes.iter_mut().for_each(|one| one.is_gone = gone.nodes.contains(&one.node));
        assert_eq!(expired(&nodes, 40, at(-100), at(200)), gone);
        nodes.iter_mut().for_each(|one| one.is_gone = true);
        assert_eq!(
            expired(&nodes, 40, at(-100), at(200)).held,
            BTreeSet::new(),
            "who is gone does not come back by it"
        );
        nodes[0].is_gone = false;
        assert_eq!(names(&expired(&nodes[..1], 40, at(-100), at(100)).nodes), ["a"], "at least one");
    }
}
