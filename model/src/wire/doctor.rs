//! What is odd on the machines of nodes: findings of agents, the few things that agents may put right, and the one finding that
//! takes two clocks.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{name::Name, quantity::Timestamp};

/// Seconds that the clock of a node may be away from control's before it is told: those of NTP are within a tenth of one, and
/// both clocks are read in whole seconds.
pub const CLOCK_SKEW_SECS_MAX: u64 = 5;
/// The check that compares the clocks.
pub const CLOCK: &str = "clock";

/// What the agent of a node found on its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// The node.
    pub node: Name,
    /// What was looked at.
    #[schema(max_items = 257)]
    pub findings: Vec<Finding>,
}

/// Something that was looked at on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// What was looked at, as a stable word such as `forward-drop`.
    #[schema(max_length = 64)]
    pub check: String,
    /// How it is.
    pub state: FindingState,
    /// What was found, in words.
    #[schema(max_length = 1024)]
    pub message: String,
    /// Why it matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub why: Option<String>,
    /// What to do about it, when it is not well; a command where one does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub fix: Option<String>,
    /// Which fix of the agent does it, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub safe_fix: Option<SafeFix>,
}

/// How something is that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum FindingState {
    /// As it should be.
    Fine,
    /// It may do harm.
    Warning,
    /// It does harm.
    Broken,
}

/// What an agent may change of its machine when it is asked to: a closed list, of what takes nothing from anybody. Rules and
/// settings of others are never among it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum SafeFix {
    /// Sets `net.ipv4.ip_forward` to 1.
    IpForward,
    /// Doubles `net.netfilter.nf_conntrack_max`.
    ConntrackMax,
    /// Loads the kernel modules that the proxy mode needs and that are not loaded.
    LoadModules,
}

impl SafeFix {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::IpForward, Self::ConntrackMax, Self::LoadModules];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IpForward => "IpForward",
            Self::ConntrackMax => "ConntrackMax",
            Self::LoadModules => "LoadModules",
        }
    }
}

/// Which fixes a node is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FixesAsked {
    /// The fixes.
    #[schema(min_items = 1, max_items = 8)]
    pub fixes: BTreeSet<SafeFix>,
}

/// What a node did of the fixes that it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FixesDone {
    /// The node.
    pub node: Name,
    /// What came of each fix.
    #[schema(max_items = 8)]
    pub fixes: Vec<FixDone>,
}

/// What came of one fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FixDone {
    /// Which.
    pub fix: SafeFix,
    /// What came of it.
    pub outcome: FixOutcome,
    /// What was changed, or why nothing was, in words.
    #[schema(max_length = 1024)]
    pub message: String,
}

/// What came of a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum FixOutcome {
    /// It was made.
    Done,
    /// There was nothing to do.
    NotNeeded,
    /// The machine refused it.
    Failed,
}

/// Compares the clock of a node with that of control, which showed `asked` before and `answered` after the node's was read.
#[must_use]
pub fn judge_clock(asked: Timestamp, node: Timestamp, answered: Timestamp) -> Finding {
    let [asked, node, answered] = [asked, node, answered].map(Timestamp::unix_seconds);
    let behind = u64::try_from(asked.saturating_sub(node)).unwrap_or(0);
    let ahead = u64::try_from(node.saturating_sub(answered)).unwrap_or(0);
    let finding = |state, message, fix: Option<&str>| Finding {
        check: CLOCK.to_owned(),
        state,
        message,
        why: Some(
            "deadlines of drains end by the clock of the node, and times in reports are of that clock"
                .to_owned(),
        ),
        fix: fix.map(str::to_owned),
        safe_fix: None,
    };
    if behind.max(ahead) <= CLOCK_SKEW_SECS_MAX {
        let message = format!("within {CLOCK_SKEW_SECS_MAX} s of the control server's");
        return finding(FindingState::Fine, message, None);
    }
    let message = if behind > ahead {
        format!("at least {behind} s behind the control server's")
    } else {
        format!("at least {ahead} s ahead of the control server's")
    };
    finding(
        FindingState::Warning,
        message,
        Some("timedatectl set-ntp true, on this node and on the control server"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (FindingState::Warning, "at least 6 s behind the control server's".to_owned())
        );
        assert_eq!(
            judged(126),
            (FindingState::Warning, "at least 6 s ahead of the control server's".to_owned())
        );
        assert_eq!(judged(i64::MIN).0, FindingState::Warning);
    }

    #[test]
    fn the_words_of_fixes_are_those_on_the_wire() {
        for fix in SafeFix::ALL {
            assert_eq!(serde_json::to_value(fix).unwrap(), fix.as_str());
        }
    }
}
