//! Status of NetworkPolicies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::observed::status::Condition;

/// Status of a NetworkPolicy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyStatus {
    /// Conditions Accepted, Used and Enforced. Used is true if the policy selects Workloads, all with an address of their own;
    /// Enforced if the nodes of all selected Workloads enforce the policy.
    pub conditions: Vec<Condition>,
    /// Number of Workloads that the policy selects.
    pub selected: u64,
    /// Number of selected Workloads without a Node, or without an address that no Node has, for which no node enforces the
    /// policy.
    pub without_address: u64,
}
