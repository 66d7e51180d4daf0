//! Status of NetworkPolicies, derived from their compiled form.

use super::{no, yes};
use crate::{
    kinds::condition_reason::ConditionReason,
    observed::{policy_status::NetworkPolicyStatus, status::ConditionType},
    policy::{index::PolicyIndex, set::PolicyKey},
};

/// Computes the status of a NetworkPolicy.
#[must_use]
pub fn network_policy_status(index: &PolicyIndex, key: &PolicyKey) -> NetworkPolicyStatus {
    let (mut selected, mut without_address) = (0_u64, 0_u64);
    for workload in index.selected_by(key) {
        selected += 1;
        without_address += u64::from(index.workload(workload).is_none_or(|form| form.node.is_none()));
    }
    let used = ConditionType::Used;
    let used = match (selected, without_address) {
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
    };
    let conditions = vec![yes(ConditionType::Accepted, ConditionReason::Valid), used];
    NetworkPolicyStatus { conditions, selected, without_address }
}
