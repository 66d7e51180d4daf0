//! NetworkPolicy: connections that selected workloads accept and make. Semantics are those of NetworkPolicy v1 of
//! Kubernetes.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{
        selector::Selector,
        service::{Protocol, TargetPort},
    },
    primitives::quantity::Port,
};

/// Maximum number of rules in each of `ingress` and `egress`.
pub const POLICY_RULES_MAX: usize = 100;
/// Maximum number of peers of one rule.
pub const POLICY_PEERS_MAX: usize = 100;
/// Maximum number of ports of one rule.
pub const POLICY_PORTS_MAX: usize = 100;
/// Maximum number of exceptions of one network.
pub const POLICY_EXCEPT_MAX: usize = 64;
/// Maximum number of pairs of a peer and a port in the rules of one policy, because each becomes a rule on the nodes.
pub const POLICY_PAIRS_MAX: usize = 2_000;
/// Key of the only label of a namespace: its value is the name of the namespace.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Desired state of a NetworkPolicy: the workloads that it selects, and the connections that they accept and make. A workload
/// that a policy selects for a direction is isolated: of the connections in this direction, only those are accepted that a rule
/// of any such policy accepts. Replies are always accepted, and so are connections of a node to its own workloads and of a
/// workload to itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPolicySpec {
    /// Selector of Workloads in the namespace of the policy. The empty selector, `{}`, selects all of them. Workloads in
    /// phase `Succeeded` or `Failed` are not selected.
    pub selector: Selector,
    /// Directions for which the policy selects the workloads: `Ingress` (connections to them), `Egress` (connections of
    /// them) or both. Default: `Ingress`, and also `Egress` if there are rules in `egress`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 2)]
    pub policy_types: BTreeSet<PolicyType>,
    /// Rules for connections to the workloads, at most 100. A connection is accepted if any rule matches. Without rules,
    /// the policy accepts no connections. Not allowed if `policyTypes` is without `Ingress`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub ingress: Vec<IngressRule>,
    /// Rules for connections of the workloads, at most 100. A connection is accepted if any rule matches. Without rules, a
    /// policy of type `Egress` accepts no connections. Not allowed if `policyTypes` is set without `Egress`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub egress: Vec<EgressRule>,
}

/// Direction of connections, as seen from the selected workloads: `Ingress` or `Egress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum PolicyType {
    /// Connections to the workloads.
    Ingress,
    /// Connections of the workloads.
    Egress,
}

/// Rule for connections to the selected workloads. A connection matches if its source and its port do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IngressRule {
    /// Sources of the connections, at most 100. Default: all sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub from: Vec<PolicyPeer>,
    /// Ports of the selected workloads, at most 100. Default: all ports and protocols.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub ports: Vec<PolicyPort>,
}

/// Rule for connections of the selected workloads. A connection matches if its destination and its port do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EgressRule {
    /// Destinations of the connections, at most 100. Connections to a Service have the address of an endpoint. Default: all
    /// destinations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub to: Vec<PolicyPeer>,
    /// Ports of the destinations, at most 100. Connections to a Service have the port of an endpoint. Default: all ports and
    /// protocols.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub ports: Vec<PolicyPort>,
}

/// Other ends of connections: workloads, or the addresses of a network. With both selectors, workloads must match both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyPeer {
    /// Selector of Workloads. Without `namespaceSelector`, only those in the namespace of the policy match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_selector: Option<Selector>,
    /// Selector of namespaces. Namespaces have one label, `kubernetes.io/metadata.name` with their name; other keys are
    /// rejected. The empty selector, `{}`, matches all namespaces. Without `workloadSelector`, all their Workloads match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// Network of addresses, also outside of the cluster. Cannot be combined with selectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
}

/// Network of addresses with exceptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpBlock {
    /// Network of the addresses, such as `10.0.0.0/8`.
    #[schema(value_type = String, example = "10.0.0.0/8")]
    pub cidr: IpNet,
    /// Smaller networks within `cidr` whose addresses do not match, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub except: Vec<IpNet>,
}

/// Ports of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyPort {
    /// Transport protocol of the connections: `TCP`, `UDP` or `SCTP`. Default: `TCP`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Destination port, as a number or as a name in `spec.ports` of the destination's Workload with the same protocol. A
    /// name that the Workload does not have matches nothing. Not a name in rules to an `ipBlock`. Default: all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<TargetPort>,
    /// Last port of a range that begins with `port`, which must be a number. Default: the range has one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<Port>,
}

impl NetworkPolicySpec {
    /// Returns true if the policy selects its workloads for a direction.
    #[must_use]
    pub fn applies_to(&self, direction: PolicyType) -> bool {
        if !self.policy_types.is_empty() {
            return self.policy_types.contains(&direction);
        }
        match direction {
            PolicyType::Ingress => true,
            PolicyType::Egress => !self.egress.is_empty(),
        }
    }
}
