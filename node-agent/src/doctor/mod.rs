//! Machine diagnostics (`tidegate-agent doctor`): checks the requirements of the proxy mode (as `preflight`
//! does) and looks for other obstacles to traffic. Each result of a check is a finding.
//!
//! ```text
//! look (I/O) ──MachineFacts──▶ judge (pure) ──▶ findings
//! ```
//! The findings are requested by `tidegate-agent doctor` or by the control server (module `ask`). Some
//! findings have a fix. `fixes` applies it on request: `doctor --fix`, or a query of the control server if
//! the operator allows such fixes. Invariants: only `fixes` changes anything, and the amount of data read is
//! limited. Output of `nft` is never parsed; iptables tables are read with their own tools, because only
//! these know their extensions.

mod captures;
mod chains;
pub mod checks;
mod expressions;
pub mod fixes;
mod holders;
mod iptables;
mod judge;
mod kernel;
mod look;
mod parse;
mod resolver;
mod seen;
mod served;
pub mod show;

use std::{collections::BTreeSet, path::Path};

use base::limit_message;
use dataplane::BackendOptions;
use model::{
    kinds::node::ProxyMode,
    primitives::name::Name,
    wire::{
        ask::FINDINGS_MAX,
        doctor::{Finding, FindingState, FixResult, SafeFix},
        hold::HeldState,
    },
};
use network::refusals::RecordRefusals;

use crate::preflight::{self, RequirementState};

/// Maximum length of a check name (`model::doctor::Finding`).
const CHECK_LENGTH_MAX: usize = 64;
/// Requirement of preflight that [`SafeFix::IpForward`] satisfies.
const IP_FORWARD_NEED: &str = "net.ipv4.ip_forward=1";

/// Proxy configuration of the node, which determines the checks that apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Proxy mode whose requirements are checked.
    pub mode: ProxyMode,
    /// Packet marks and chain naming of the node.
    pub options: BackendOptions,
}

/// Runs all checks and returns their results. Loads no module and changes nothing.
#[must_use]
pub fn examine(subject: &Subject) -> Vec<Finding> {
    let needs = preflight::run(subject.mode, false).findings.into_iter().map(need);
    let surroundings = judge::judge(subject, &look::look());
    needs.chain(surroundings).map(limited).take(FINDINGS_MAX).collect()
}

/// Applies `fixes` on this machine and returns the result of each.
#[must_use]
pub fn make(fixes: &BTreeSet<SafeFix>, mode: ProxyMode) -> Vec<FixResult> {
    fixes.iter().map(|fix| fixes::make(*fix, mode, Path::new(fixes::SYSCTLS))).collect()
}

/// Returns the fixes that would resolve the problems in `findings`, the results of the checks.
#[must_use]
pub fn helpful(findings: &[Finding]) -> BTreeSet<SafeFix> {
    findings.iter().filter_map(|finding| finding.safe_fix).collect()
}

/// Returns the finding that the agent keeps a received state unapplied until an operator confirms it, because
/// too much would be removed. The finding contains the remedy.
#[must_use]
pub fn held(held: &HeldState, node: &Name) -> Finding {
    limited(Finding {
        check: "state-guard".to_owned(),
        state: FindingState::Broken,
        message: held.message(),
        why: Some("changes from the control server are not applied on this node".to_owned()),
        fix: Some(held.hint(node.as_str())),
        safe_fix: None,
    })
}

/// Returns the finding that the control server does not record attachments, with their number and the first reason.
#[must_use]
pub fn unrecorded(refusals: &RecordRefusals) -> Option<Finding> {
    let finding = Finding {
        check: "attachments".to_owned(),
        state: FindingState::Broken,
        message: refusals.summary()?,
        why: Some("their Workloads do not have the addresses, so that Services do not reach them".to_owned()),
        fix: Some(
            "correct the cause, or run `tidegate-agent detach NAME` and attach again on the machine"
                .to_owned(),
        ),
        safe_fix: None,
    };
    Some(limited(finding))
}

/// Returns the finding that the routes or the tunnel of workload networks are not as they should be, for the reason `failure`.
#[must_use]
pub fn unprogrammed(failure: String) -> Finding {
    limited(Finding {
        check: "workload-network".to_owned(),
        state: FindingState::Broken,
        message: failure,
        why: Some("packets between workloads of different nodes are lost".to_owned()),
        fix: Some("correct the cause; the agent tries again every 5 seconds".to_owned()),
        safe_fix: None,
    })
}

fn limited(found: Finding) -> Finding {
    let Finding { check, state, message, why, fix, safe_fix } = found;
    Finding {
        check: check.chars().take(CHECK_LENGTH_MAX).collect(),
        state,
        message: limit_message(message),
        why: why.map(limit_message),
        fix: fix.map(limit_message),
        safe_fix,
    }
}

fn need(found: preflight::Finding) -> Finding {
    let is_to_load = found.is_to_load();
    let preflight::Finding { need, kind: _, state, required, purpose, detail, remedy } = found;
    let how = match (state, required) {
        (RequirementState::Present | RequirementState::BuiltIn | RequirementState::Unknown, _)
        | (RequirementState::Loadable, false) => FindingState::Fine,
        (RequirementState::Loadable, true) | (RequirementState::Missing, false) => FindingState::Warning,
        (RequirementState::Missing, true) => FindingState::Broken,
    };
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    let safe_fix = match (need == IP_FORWARD_NEED && state == RequirementState::Missing, is_to_load) {
        (true, _) => Some(SafeFix::IpForward),
        (false, true) => Some(SafeFix::LoadModules),
        (false, false) => None,
    };
    let fix = if is_to_load { Some(format!("modprobe {need}")) } else { remedy };
    let message = format!("{}{detail}", state.as_str());
    Finding { check: need, state: how, message, why: Some(format!("needed for {purpose}")), fix, safe_fix }
}
