//! Status of NetworkPolicies, derived from their compiled form and the reports of agents.

use std::collections::BTreeSet;

use super::{NOT_VERIFIED_LISTED_MAX, NodeView, NodeViews, follows, no, yes};
use crate::{
    kinds::condition_reason::ConditionReason,
    observed::{
        policy_status::NetworkPolicyStatus,
        status::{Condition, ConditionType},
    },
    policy::{index::PolicyIndex, set::PolicyKey},
    primitives::{name::Name, quantity::Position},
    wire::report::PolicyEnforcement,
};

/// Computes the status of a NetworkPolicy. `wanted` is the position of its last change.
#[must_use]
pub fn network_policy_status(
    index: &PolicyIndex,
    key: &PolicyKey,
    wanted: Position,
    nodes: &NodeViews<'_>,
) -> NetworkPolicyStatus {
    let (mut selected, mut without_address) = (0_u64, 0_u64);
    let mut enforcing = BTreeSet::new();
    for workload in index.selected_by(key) {
        selected += 1;
        match index.workload(workload).and_then(|form| form.node.as_ref()) {
            Some(node) => {
                enforcing.insert(node);
            }
            None => without_address += 1,
        }
    }
    let conditions = vec![
        yes(ConditionType::Accepted, ConditionReason::Valid),
        used(selected, without_address),
        enforced(&enforcing, wanted, nodes),
    ];
    NetworkPolicyStatus { conditions, selected, without_address }
}

fn used(selected: u64, without_address: u64) -> Condition {
    let used = ConditionType::Used;
    match (selected, without_address) {
        (0, _) => {
            no(used, ConditionReason::NoWorkloadsSelected, "spec.selector matches no Workload".to_owned())
                .hint("label Workloads of the namespace, or change spec.selector")
        }
        (_, 0) => yes(used, ConditionReason::WorkloadsSelected),
        (selected, without) => {
            let message = format!(
                "{without} of {selected} selected Workloads have no Node, or no address that no Node has"
            );
            no(used, ConditionReason::WorkloadsWithoutAddress, message).hint(
                "wait for their addresses and set spec.node; Workloads with the address of a Node cannot be isolated",
            )
        }
    }
}

/// Returns the condition that is true if all nodes of `enforcing` enforce the policy as of the position `wanted`. A node whose
/// agent is silent continues to enforce the policies of its last report.
fn enforced(enforcing: &BTreeSet<&Name>, wanted: Position, nodes: &NodeViews<'_>) -> Condition {
    let at = ConditionType::Enforced;
    let (mut lacking, mut behind) = (Vec::new(), Vec::new());
    for name in enforcing {
        match of_node(nodes.get(name), wanted) {
            Enforcement::InForce => {}
            Enforcement::Behind(text) => behind.push(format!("{name}: {text}")),
            Enforcement::Lacking(text) => lacking.push(format!("{name}: {text}")),
        }
    }
    let message = |texts: &[String]| {
        let listed = texts.iter().take(NOT_VERIFIED_LISTED_MAX).cloned().collect::<Vec<_>>().join("; ");
        format!("enforced on {} of {} nodes; {listed}", enforcing.len() - texts.len(), enforcing.len())
    };
    if !lacking.is_empty() {
        lacking.append(&mut behind);
        no(at, ConditionReason::NotEnforcedOnNodes, message(&lacking))
            .hint("connections that the policy forbids pass on these nodes")
    } else if !behind.is_empty() {
        no(at, ConditionReason::CatchingUp, message(&behind))
    } else {
        yes(at, ConditionReason::EnforcedOnAllNodes)
    }
}

/// Enforcement of one policy on one node.
enum Enforcement {
    InForce,
    /// The node has not confirmed the last change yet.
    Behind(&'static str),
    /// The node does not enforce the policy, or not for all connections.
    Lacking(String),
}

fn of_node(view: Option<&NodeView<'_>>, wanted: Position) -> Enforcement {
    let Some(view) = view.filter(|view| view.has_agent()) else {
        return Enforcement::Lacking("no agent has ever reported for it".to_owned());
    };
    let Some(report) = view.report else {
        return Enforcement::Behind("it has not reported to this control server yet");
    };
    match &report.policy {
        None => {
            let version = &report.agent_version;
            Enforcement::Lacking(format!("its agent of version {version} does not enforce network policy"))
        }
        Some(policy) => match policy.enforcement {
            PolicyEnforcement::Failed | PolicyEnforcement::WithoutServices => {
                Enforcement::Lacking(policy.reason.clone())
            }
            PolicyEnforcement::Full if !follows(report) || report.verified < wanted => {
                Enforcement::Behind("it has not caught up yet")
            }
            PolicyEnforcement::Full => Enforcement::InForce,
        },
    }
}
