//! Overview: one document with the state of all Services and Nodes, and the problems of the cluster, ordered
//! by impact on users. Each problem names the last write before it, which may be its cause. A finding is a
//! deviation of an object from the desired state, from which a problem may follow.
//!
//! ```text
//! statuses, reports ─▶ rows of Services and Nodes, findings ─▶ problems ─▶ document ─▶ changes for watchers
//!                                                  ▲              ▲
//!                          first-seen times (memory)              last writes before them (preceding)
//! ```
//! Results depend only on the arguments of functions. Unknown values are omitted, never guessed.

pub mod affects;
pub mod diff;
pub mod http;
pub mod memory;
pub mod nodes;
pub mod notices;
pub mod others;
pub mod preceding;
pub mod problems;
mod restrict;
pub mod services;
mod subject;

use std::{net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::subject::{ReportingProgram, Subject, SubjectKind};

use crate::{
    kinds::{
        node::ProxyMode,
        resource::{Kind, ObjectKey},
        service::ServiceType,
    },
    observed::lag::LagReason,
    primitives::{
        name::{Name, Namespace},
        quantity::{Position, Revision, Timestamp},
    },
};

/// Maximum number of listed problems. More problems usually have one common cause.
pub const PROBLEMS_MAX: usize = 100;
/// Maximum number of affected objects listed for one problem.
pub const AFFECTS_MAX: usize = 10;

/// State of the cluster in one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Position (epoch and revision) of the state that the overview describes.
    pub position: Position,
    /// Time at which the overview was computed.
    pub at: Timestamp,
    /// Version of this control server.
    pub version: String,
    /// Role of this control server among the servers that use the same store.
    pub replica: Replica,
    /// True if authentication is disabled, so that every client may perform every operation.
    pub insecure: bool,
    /// True if this server rejects writes; always false at present.
    pub read_only: bool,
    /// True if the overview covers the whole cluster. False for a caller with access to some namespaces only;
    /// the overview then contains only Services in these namespaces.
    pub is_whole: bool,
    /// Numbers of objects by state.
    pub totals: Totals,
    /// Propagation times of changes to the nodes (convergence).
    pub convergence: ConvergenceBrief,
    /// Services, ordered by namespace and name.
    // Unchanged rows are shared with the previous document.
    #[schema(value_type = Vec<ServiceRow>)]
    pub services: Vec<Arc<ServiceRow>>,
    /// Nodes, ordered by name.
    pub nodes: Vec<NodeRow>,
    /// Problems, ordered by impact, then by age: oldest first, unknown ages last. At most 100.
    #[schema(max_items = 100)]
    pub problems: Vec<Problem>,
    /// Number of all problems, including those not listed in `problems`.
    pub problems_total: usize,
}

/// Role of this control server among the servers that use the same store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Name of this control server.
    pub name: String,
    /// True if this server runs the tasks that only one server may run at a time: decisions about owners of
    /// addresses, lost Nodes and the health of endpoints.
    pub is_leader: bool,
    /// True if other servers can use the same store.
    pub is_shared: bool,
}

/// Numbers of objects by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewTotals)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Numbers of Services by state.
    pub services: ServiceStateTotals,
    /// Numbers of Nodes by state; absent without access to the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeTotals>,
    /// Numbers of endpoints by state. An endpoint of several Services counts for each of them.
    pub endpoints: EndpointTotals,
    /// Numbers of load balancer addresses of Services by state; absent without access to the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<AddressTotals>,
    /// Numbers of BGP sessions by state; absent without access to the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp_sessions: Option<BgpSessionTotals>,
    /// Numbers of BFD sessions between nodes by state; absent without access to the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_sessions: Option<BfdSessionTotals>,
    /// Numbers of address pools by state; absent without access to the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<PoolTotals>,
}

/// Numbers of Services by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewServices)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStateTotals {
    /// Total number of Services.
    pub total: usize,
    /// Number of Services without a problem for users.
    pub ok: usize,
    /// Number of Services that work, but that one more failure would degrade.
    pub at_risk: usize,
    /// Number of Services that refuse some connections or lack some capacity.
    pub degraded: usize,
    /// Number of Services that accept no connections.
    pub unreachable: usize,
    /// Number of disabled Services.
    pub disabled: usize,
    /// Number of Services with endpoints that receive new connections although nobody checks them. These Services
    /// are also counted by their state.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_checked: usize,
}

// Serde determines the signatures.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn has_none(number: &u32) -> bool {
    *number == 0
}

/// Numbers of Nodes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewNodes)]
#[serde(rename_all = "camelCase")]
pub struct NodeTotals {
    /// Total number of Nodes.
    pub total: usize,
    /// Number of Nodes that have verified all changes, except changes of the last 2 seconds.
    pub converged: usize,
    /// Number of Nodes that have not verified a change that is older than 2 seconds.
    pub lagging: usize,
    /// Number of Nodes on which Services failed, or which reject a state from the control server.
    pub failing: usize,
    /// Number of Nodes on which another program changed the kernel state within the last 10 minutes. The agents
    /// have repaired the changes.
    pub drifted: usize,
    /// Number of Nodes whose agent does not report.
    pub disconnected: usize,
}

/// Numbers of endpoints of all Services by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewEndpoints)]
#[serde(rename_all = "camelCase")]
pub struct EndpointTotals {
    /// Total number of endpoints.
    pub total: u64,
    /// Number of endpoints that accept new connections.
    pub ready: u64,
    /// Number of endpoints that are unhealthy by their health checks, including those in use because of the
    /// panic threshold.
    pub unhealthy: u64,
    /// Number of endpoints in drain or maintenance.
    pub draining: u64,
}

/// Numbers of load balancer addresses of Services by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewAddresses)]
#[serde(rename_all = "camelCase")]
pub struct AddressTotals {
    /// Total number of load balancer addresses of Services.
    pub total: usize,
    /// Number of addresses that are announced, or that another system routes to the nodes.
    pub announced: usize,
    /// Number of addresses that are not announced, although a node should announce them.
    pub waiting: usize,
    /// Number of addresses that another device also announces.
    pub conflicting: usize,
}

/// Numbers of BGP sessions by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewBgpSessions)]
#[serde(rename_all = "camelCase")]
pub struct BgpSessionTotals {
    /// Total number of BGP sessions that the nodes report, in any state.
    pub total: usize,
    /// Number of established sessions, on nodes whose agents report.
    pub established: usize,
}

/// Numbers of BFD sessions between nodes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewBfdSessions)]
#[serde(rename_all = "camelCase")]
pub struct BfdSessionTotals {
    /// Total number of BFD sessions between nodes; sessions with routers are not included.
    pub total: usize,
    /// Number of sessions in state Up.
    pub up: usize,
}

/// Numbers of address pools by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewPools)]
#[serde(rename_all = "camelCase")]
pub struct PoolTotals {
    /// Total number of pools.
    pub total: usize,
    /// Number of pools in which at most 10 % of the addresses of an IP family are free.
    pub nearly_full: usize,
}

/// Propagation times of recent changes from the commit to the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConvergenceBrief {
    /// Median time from a commit until a node has verified the change, in milliseconds. Absent before the
    /// first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_millis: Option<u64>,
    /// 99th percentile of the time from a commit until a node has verified the change, in milliseconds.
    /// Absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_millis: Option<u64>,
    /// Node that has lacked a change for longest or, if no node lacks one, the node with the longest measured
    /// propagation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<SlowestNode>,
}

/// Node with the longest delay until it receives, programs and verifies changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlowestNode {
    /// Name of the node.
    pub node: Name,
    /// Age of the oldest change that the node has not verified or, if there is none, the longest propagation
    /// time of a change to the node; in milliseconds, rounded to two significant digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_millis: Option<u64>,
    /// Reason of the delay: the step (such as programming) that the oldest unverified change still lacks or,
    /// if all changes are verified, the slowest step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LagReason>,
}

/// Entry (row) of the overview that summarizes a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    /// Namespace of the Service.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Name of the Service.
    pub name: Name,
    /// Type of the Service.
    #[serde(rename = "type")]
    pub service_type: ServiceType,
    /// State of the Service from the view of its users.
    pub state: ServiceState,
    /// Reason of the state in CamelCase; absent if there is no problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Description of the reason; absent if there is no problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time since which the Service has this state, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Addresses of the Service: load balancer addresses, external IPs, then cluster IPs.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// Ports of the Service, such as `80/TCP`.
    pub ports: Vec<String>,
    /// Number of endpoints that accept new connections.
    pub endpoints_ready: u32,
    /// Number of all endpoints.
    pub endpoints_total: u32,
    /// Number of endpoints that receive new connections although nobody checks them.
    #[serde(default, skip_serializing_if = "has_none")]
    pub endpoints_not_checked: u32,
    /// Number of nodes that have verified the Service by reading their kernel.
    pub nodes_verified: u32,
    /// Number of nodes that should have the Service; 0 if nodes do not program the Service.
    pub nodes_total: u32,
    /// Revision of the last change to the compiled form of the Service, which nodes receive. If nodes do not
    /// program the Service: revision of the object.
    pub revision: Revision,
}

/// State of a Service from the view of its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ServiceState {
    /// Users of the Service have no problem, although a finding without impact may exist.
    Ok,
    /// The Service works, but one more failure would degrade it.
    AtRisk,
    /// Some connections are refused, or some capacity is missing.
    Degraded,
    /// The Service accepts no connections.
    Unreachable,
    /// The Service is disabled.
    Disabled,
}

/// Entry (row) of the overview that summarizes a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewNode)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Name of the Node.
    pub name: Name,
    /// Zone of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub zone: Option<String>,
    /// Active proxy mode of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// Progress of the Node with recent changes.
    pub state: NodeConvergence,
    /// Reason of the state in CamelCase; absent if the Node is converged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Description of the reason; absent if the Node is converged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time since which the Node has this state, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Age of the oldest change that the Node has not verified, in milliseconds, rounded to two significant
    /// digits; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_millis: Option<u64>,
    /// Position (epoch and revision) up to which the Node has programmed all changes; absent if the Node is
    /// converged or drifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Position>,
    /// Position (epoch and revision) up to which the Node has verified all changes; absent if the Node is
    /// converged or drifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Position>,
    /// Number of load balancer addresses that the Node announces by ARP or NDP.
    pub addresses: usize,
    /// Numbers of BGP sessions of the Node by state; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<BgpSessionTotals>,
}

/// Progress of a Node with recent changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewNodeState)]
#[serde(rename_all = "camelCase")]
pub enum NodeConvergence {
    /// The Node has verified all changes, except changes of the last 2 seconds.
    Converged,
    /// The Node has not verified a change that is older than 2 seconds.
    Lagging,
    /// Services failed on the Node, or the Node rejects a state from the control server.
    Failing,
    /// Another program changed the kernel state within the last 10 minutes; the agent has repaired the change.
    Drifted,
    /// The agent of the Node does not report.
    Disconnected,
}

/// Impact of a problem on users. The worst impact comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Impact {
    /// Users cannot connect.
    Unreachable,
    /// Some users cannot connect, or some capacity is missing.
    Degraded,
    /// The Service works, but one more failure would degrade it.
    Risk,
    /// The state differs from the desired state, but users are not affected.
    Notice,
}

/// Problem of an object, with its impact and likely cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewProblem)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Identifier of the problem, which does not change while the problem lasts.
    #[schema(example = "Service/default/web/EndpointsAvailable")]
    pub id: String,
    /// Kind of the object that has the problem, such as `Service`, or `DnsServer` for a DNS server that reports.
    #[schema(value_type = String, example = "Service")]
    pub kind: SubjectKind,
    /// Namespace of the object; absent for kinds without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Name of the object or DNS server that has the problem.
    pub name: Name,
    /// Impact of the problem on users.
    pub impact: Impact,
    /// Reason as a stable identifier in CamelCase.
    pub reason: String,
    /// Description of the reason.
    pub message: String,
    /// Remedy; absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Start of the problem; absent if unknown, for example after a start of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Other objects that the problem affects; at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub affects: Vec<AffectedObject>,
    /// Number of affected objects not listed in `affects`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub affects_more: usize,
    /// Last write before the problem that changed an object on which the problem may depend. The write is the
    /// likely, but not the certain cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<PrecedingChange>,
}

// The signature is the one that serde calls.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Object that is affected by the problem of another object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Affected)]
pub struct AffectedObject {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace of the object; absent for kinds without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Name of the object.
    pub name: Name,
}

/// Last write before a problem, which is the likely cause of the problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrecedingChange {
    /// Revision of the write.
    pub revision: Revision,
    /// Time at which the write was accepted.
    pub at: Timestamp,
    /// Author of the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Message that the author gave with the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl From<ObjectKey> for AffectedObject {
    fn from(key: ObjectKey) -> Self {
        let ObjectKey { kind, namespace, name } = key;
        Self { kind, namespace, name }
    }
}

impl ServiceStateTotals {
    /// Counts a Service.
    pub fn add(&mut self, row: &ServiceRow) {
        self.total += 1;
        self.not_checked += usize::from(row.endpoints_not_checked > 0);
        *match row.state {
            ServiceState::Ok => &mut self.ok,
            ServiceState::AtRisk => &mut self.at_risk,
            ServiceState::Degraded => &mut self.degraded,
            ServiceState::Unreachable => &mut self.unreachable,
            ServiceState::Disabled => &mut self.disabled,
        } += 1;
    }
}

impl NodeTotals {
    /// Increases the count of a Node state.
    pub fn add(&mut self, state: NodeConvergence) {
        self.total += 1;
        *match state {
            NodeConvergence::Converged => &mut self.converged,
            NodeConvergence::Lagging => &mut self.lagging,
            NodeConvergence::Failing => &mut self.failing,
            NodeConvergence::Drifted => &mut self.drifted,
            NodeConvergence::Disconnected => &mut self.disconnected,
        } += 1;
    }
}
