//! Diagnosis of the machines of nodes: findings of agents, fixes that agents may apply, and comparison of clocks.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::snapshot::Snapshot,
    kinds::resource::Kind,
    primitives::{name::Name, quantity::Timestamp},
};

/// Maximum permitted difference between the clocks of a node and of the control server, in seconds. The limit
/// tolerates that both clocks are read in whole seconds; NTP keeps them within 0.1 seconds.
pub const CLOCK_SKEW_SECS_MAX: u64 = 5;
/// Identifier of the diagnosis check that compares clocks.
pub const CLOCK: &str = "clock";
/// Identifier of the diagnosis check of the keys of BFD between nodes.
pub const PEER_KEYS: &str = "peer-keys";

/// Maximum number of nodes whose names a finding lists. Three names of the maximum length fit into a message.
const NODES_NAMED_MAX: usize = 3;

/// Findings about the machine of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// Name of the Node.
    pub node: Name,
    /// Results of the checks, at most 258.
    #[schema(max_items = 258)]
    pub findings: Vec<Finding>,
}

/// Finding: result of one check of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// Stable identifier of the check, such as `forward-drop`, at most 64 bytes.
    #[schema(max_length = 64)]
    pub check: String,
    /// Severity of the result: `Fine`, `Warning` or `Broken`.
    pub state: FindingState,
    /// Description of the result for users, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub message: String,
    /// Consequences of the problem, at most 1024 bytes. Absent if the result has no known consequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub why: Option<String>,
    /// Remedy, as a command if possible, at most 1024 bytes. Absent if the result is `Fine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub fix: Option<String>,
    /// Fix by which the agent can apply the remedy. Absent if there is no such fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub safe_fix: Option<SafeFix>,
}

/// Severity of a result: `Fine` (as expected), `Warning` (possibly harmful) or `Broken` (harmful).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum FindingState {
    /// The machine is as expected.
    Fine,
    /// The machine may work incorrectly in some situations.
    Warning,
    /// The machine does not work correctly.
    Broken,
}

/// Fix that an agent may apply to its machine if requested: `IpForward`, `ConntrackMax` or `LoadModules`. Fixes
/// never change rules or settings of other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum SafeFix {
    /// Sets `net.ipv4.ip_forward` to 1.
    IpForward,
    /// Doubles `net.netfilter.nf_conntrack_max`.
    ConntrackMax,
    /// Loads kernel modules that the proxy mode needs and that are not loaded yet.
    LoadModules,
}

impl SafeFix {
    /// All fixes that an agent can apply.
    pub const ALL: [Self; 3] = [Self::IpForward, Self::ConntrackMax, Self::LoadModules];

    /// Returns the identifier of the fix as used in requests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IpForward => "IpForward",
            Self::ConntrackMax => "ConntrackMax",
            Self::LoadModules => "LoadModules",
        }
    }
}

/// Request to apply fixes on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = FixesAsked)]
pub struct FixRequest {
    /// Fixes to apply, from 1 to 8 entries.
    #[schema(min_items = 1, max_items = 8)]
    pub fixes: BTreeSet<SafeFix>,
}

/// Results of the fixes on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FixesDone)]
pub struct FixReport {
    /// Name of the Node.
    pub node: Name,
    /// Results, one for each requested fix, at most 8.
    #[schema(max_items = 8)]
    pub fixes: Vec<FixResult>,
}

/// Result of one fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = FixDone)]
pub struct FixResult {
    /// Identifier of the fix: `IpForward`, `ConntrackMax` or `LoadModules`.
    pub fix: SafeFix,
    /// Outcome of the fix: `Done`, `NotNeeded` or `Failed`.
    pub outcome: FixOutcome,
    /// Description of the change, or the reason why nothing was changed, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub message: String,
}

/// Outcome of a fix: `Done` (applied), `NotNeeded` (already in effect) or `Failed` (the machine rejected it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum FixOutcome {
    /// The fix was applied.
    Done,
    /// The fix was already in effect.
    NotNeeded,
    /// The machine rejected the change.
    Failed,
}

/// Returns the result of comparing the clock of a node with that of the control server. `node` is the time of
/// the node's clock; `asked` and `answered` are times of the server's clock before and after it was read.
#[must_use]
pub fn judge_clock(asked: Timestamp, node: Timestamp, answered: Timestamp) -> Finding {
    let [asked, node, answered] = [asked, node, answered].map(Timestamp::unix_seconds);
    let behind = u64::try_from(asked.saturating_sub(node)).unwrap_or(0);
    let ahead = u64::try_from(node.saturating_sub(answered)).unwrap_or(0);
    let finding = |state, message, fix: Option<&str>| Finding {
        check: CLOCK.to_owned(),
        state,
        message,
        why: Some("deadlines of drains and times in reports use the clock of the node".to_owned()),
        fix: fix.map(str::to_owned),
        safe_fix: None,
    };
    if behind.max(ahead) <= CLOCK_SKEW_SECS_MAX {
        let message = format!(
            "the clocks of the node and of the control server differ by at most {CLOCK_SKEW_SECS_MAX} s"
        );
        return finding(FindingState::Fine, message, None);
    }
    let message = if behind > ahead {
        format!("the clock of the node is at least {behind} s behind that of the control server")
    } else {
        format!("the clock of the node is at least {ahead} s ahead of that of the control server")
    };
    finding(
        FindingState::Warning,
        message,
        Some("timedatectl set-ntp true, on this node and on the control server"),
    )
}

/// Returns a finding if BFD between a node and other candidates of its addresses is authenticated by the key of all
/// nodes, because one of the two agents has reported no public key; otherwise `None`.
#[must_use]
pub fn judge_peer_keys(snapshot: &Snapshot, node: &Name) -> Option<Finding> {
    let records = snapshot.list(Kind::Address, None, None).filter_map(|object| object.as_address());
    let mut without_key = BTreeSet::new();
    for record in records.filter(|record| !record.services.is_empty()) {
        let candidates = &record.announcement.candidates;
        let is_monitoring = candidates.len() > 1 && candidates.iter().any(|one| one.node == *node);
        let missing = candidates.iter().filter(|one| is_monitoring && one.peer_public_key.is_none());
        without_key.extend(missing.map(|one| one.node.as_str()));
    }
    let names = match without_key.len() {
        0 => return None,
        1..=NODES_NAMED_MAX => Vec::from_iter(without_key).join(", "),
        count => format!("{count} nodes"),
    };
    let why = "any node could send packets as another one with the key of all nodes, and so keep the addresses of a \
               failed node on it";
    Some(Finding {
        check: PEER_KEYS.to_owned(),
        state: FindingState::Warning,
        message: format!(
            "BFD with other nodes uses the key of all nodes: no public key was reported by {names}"
        ),
        why: Some(why.to_owned()),
        fix: Some(format!("upgrade the agent of {names}; its log names the cause if it cannot store a key")),
        safe_fix: None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        kinds::{
            address::{AddressSpec, Candidate, name_of},
            metadata::Metadata,
            resource::{Object, Spec},
        },
        primitives::{public_key::PublicKey, quantity::Revision},
    };

    #[test]
    fn a_clock_is_judged_by_what_control_saw_before_and_after() {
        let judged = |node| {
            let [asked, node, answered] = [100, node, 120].map(Timestamp::from_unix_seconds);
            let found = judge_clock(asked, node, answered);
            assert_eq!(found.fix.is_some(), found.state != FindingState::Fine);
            (found.state, found.message)
        };
        for node in [95, 100, 110, 120, 125] {
            assert_eq!(judged(node).0, FindingState::Fine, "{node}");
        }
        assert_eq!(
            judged(94),
            (
                FindingState::Warning,
                "the clock of the node is at least 6 s behind that of the control server".to_owned()
            )
        );
        assert_eq!(
            judged(126),
            (
                FindingState::Warning,
                "the clock of the node is at least 6 s ahead of that of the control server".to_owned()
            )
        );
        assert_eq!(judged(i64::MIN).0, FindingState::Warning);
    }

    /// A record with the candidates a (with a key), b (without) and c (without), and one with a alone.
    #[test]
    fn a_node_without_a_key_is_found_for_each_node_that_monitors_it() {
        let candidate = |node: &str, key: Option<u8>| Candidate {
            node: Name::parse(node).unwrap(),
            address: [192, 0, 2, 1].into(),
            interfaces: BTreeSet::new(),
            peer_public_key: key.map(|byte| PublicKey::new([byte; 32])),
        };
        let object = |last: u8, candidates: &[Candidate]| {
            let mut record = AddressSpec::new([192, 0, 2, last].into(), None);
            record.services.insert("default/web".to_owned().try_into().unwrap());
            record.announcement.candidates = candidates.to_vec();
            let metadata = Metadata::named(name_of(record.address), None);
            Arc::new(Object { metadata, spec: Spec::Address(Box::new(record)) })
        };
        let (a, b, c) = (candidate("a", Some(1)), candidate("b", None), candidate("c", None));
        let judge = |objects: Vec<Arc<Object>>, node: &str| {
            let snapshot = Snapshot::from_objects(Revision(1), objects);
            judge_peer_keys(&snapshot, &Name::parse(node).unwrap()).map(|finding| finding.message)
        };
        let alone = object(7, std::slice::from_ref(&a));
        let message = |names| {
            Some(format!(
                "BFD with other nodes uses the key of all nodes: no public key was reported by {names}"
            ))
        };
        let all = || vec![object(8, &[a.clone(), b.clone(), c.clone()]), Arc::clone(&alone)];
        assert_eq!(judge(all(), "a"), message("b, c"));
        assert_eq!(judge(all(), "b"), message("b, c"));
        assert_eq!(judge(all(), "d"), None, "no candidate");
        assert_eq!(judge(vec![alone.clone()], "a"), None, "no other candidate");
        let keyed = candidate("b", Some(2));
        assert_eq!(judge(vec![object(8, &[a.clone(), keyed])], "a"), None);
    }

    #[test]
    fn the_words_of_fixes_are_those_on_the_wire() {
        for fix in SafeFix::ALL {
            assert_eq!(serde_json::to_value(fix).unwrap(), fix.as_str());
        }
    }
}
