//! How it is going, in one document: what users notice first, with the change that went before it.
//!
//! ```text
//! statuses, reports ─▶ services, nodes ─▶ rows + findings ─▶ memory (since) ─▶ problems ─▶ document ─▶ diff
//!                                                      writes ─▶ preceding ───┘
//! ```
//! Everything here is decided from arguments. What is not known is left out, never made up.

pub mod affects;
pub mod diff;
pub mod memory;
pub mod nodes;
pub mod others;
pub mod preceding;
pub mod problems;
mod restrict;
pub mod services;

use std::{net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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

/// Problems that are listed; whoever has more has one cause behind most of them, and lists to look it up in.
pub const PROBLEMS_MAX: usize = 100;
/// Objects that a problem names as affected; further ones are counted.
pub const AFFECTS_MAX: usize = 10;

/// How it is going.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Where the published state is in history.
    pub position: Position,
    /// When this was worked out.
    pub at: Timestamp,
    /// The version of this server.
    pub version: String,
    /// This control server among those of its store.
    pub replica: Replica,
    /// Whether anybody who reaches this server may do anything.
    pub insecure: bool,
    /// Whether this server takes no writes; never, so far.
    pub read_only: bool,
    /// Whether this is all there is; `false` where whoever asks may see some namespaces only: what is outside of namespaces
    /// is left out then.
    pub is_whole: bool,
    /// How many of what.
    pub totals: Totals,
    /// How long changes take until the nodes have them.
    pub convergence: ConvergenceBrief,
    /// The Services, in the order of namespaces and names.
    // A row that is as it was is shared with the document before.
    #[schema(value_type = Vec<ServiceRow>)]
    pub services: Vec<Arc<ServiceRow>>,
    /// The Nodes, in the order of names.
    pub nodes: Vec<NodeRow>,
    /// What is wrong: by impact, then the oldest first, then those of which nobody knows since when; at most 100.
    #[schema(max_items = 100)]
    pub problems: Vec<Problem>,
    /// How many problems there are, also beyond the listed ones.
    pub problems_total: usize,
}

/// A control server among those of its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// What it is called.
    pub name: String,
    /// Whether it does what is to be done once: it decides who announces addresses, which Nodes are lost, and which
    /// endpoints are healthy.
    pub is_leader: bool,
    /// Whether there can be others: the store takes the writes of several.
    pub is_shared: bool,
}

/// How many of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewTotals)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Services by state.
    pub services: ServiceTotals,
    /// Nodes by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeTotals>,
    /// Endpoints of all Services; one that serves several counts for each.
    pub endpoints: EndpointTotals,
    /// Load balancer addresses that Services have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<AddressTotals>,
    /// Sessions with routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp_sessions: Option<BgpSessionTotals>,
    /// Nodes watched by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_sessions: Option<BfdSessionTotals>,
    /// Pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<PoolTotals>,
}

/// Services by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewServices)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTotals {
    /// How many there are.
    pub total: usize,
    /// Nothing is wrong with them, as far as users notice.
    pub ok: usize,
    /// They work, and one more failure hurts.
    pub at_risk: usize,
    /// Some users cannot connect, or some capacity is gone.
    pub degraded: usize,
    /// Users cannot connect.
    pub unreachable: usize,
    /// They are disabled.
    pub disabled: usize,
}

/// Nodes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewNodes)]
#[serde(rename_all = "camelCase")]
pub struct NodeTotals {
    /// How many there are.
    pub total: usize,
    /// They have everything, read back, or get it at this moment.
    pub converged: usize,
    /// They are behind for longer than changes take.
    pub lagging: usize,
    /// Services failed there, or the node holds a state back.
    pub failing: usize,
    /// Somebody else changed what they had programmed a short time ago; it was repaired.
    pub drifted: usize,
    /// Their agent does not report.
    pub disconnected: usize,
}

/// Endpoints of all Services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewEndpoints)]
#[serde(rename_all = "camelCase")]
pub struct EndpointTotals {
    /// How many there are.
    pub total: u64,
    /// They take new connections.
    pub ready: u64,
    /// Health checks have taken them out of service, or would if so many had not failed at once.
    pub unhealthy: u64,
    /// They are taken out of service because that was asked for: they drain, or are in maintenance.
    pub draining: u64,
}

/// Load balancer addresses that Services have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewAddresses)]
#[serde(rename_all = "camelCase")]
pub struct AddressTotals {
    /// How many there are.
    pub total: usize,
    /// They are announced.
    pub announced: usize,
    /// They are not.
    pub waiting: usize,
    /// Somebody else was heard to announce them.
    pub conflicting: usize,
}

/// Sessions with routers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewBgpSessions)]
#[serde(rename_all = "camelCase")]
pub struct BgpSessionTotals {
    /// How many nodes have, or try to have.
    pub total: usize,
    /// Routes are exchanged, and the node reports.
    pub established: usize,
}

/// Nodes watched by others with BFD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewBfdSessions)]
#[serde(rename_all = "camelCase")]
pub struct BfdSessionTotals {
    /// How many watches there are between nodes; sessions with routers are not among them.
    pub total: usize,
    /// The other side answers.
    pub up: usize,
}

/// Pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewPools)]
#[serde(rename_all = "camelCase")]
pub struct PoolTotals {
    /// How many there are.
    pub total: usize,
    /// A tenth of their addresses or less is free, in a family that they have.
    pub nearly_full: usize,
}

/// How long changes take until the nodes have them: of the last changes that the server remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConvergenceBrief {
    /// The time within which half of all was verified, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_millis: Option<u64>,
    /// The time within which 99 of 100 were verified, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_millis: Option<u64>,
    /// The node that waits longest or, when none waits, took longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<SlowestNode>,
}

/// The node that the others would wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlowestNode {
    /// Which.
    pub node: Name,
    /// How long the oldest change waits that it lacks or, when it lacks none, how long its slowest took, in milliseconds, to
    /// two digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_millis: Option<u64>,
    /// What it waits for, or where most of the time went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LagReason>,
}

/// A Service in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its name.
    pub name: Name,
    /// What kind of Service it is.
    #[serde(rename = "type")]
    pub service_type: ServiceType,
    /// How it goes for its users.
    pub state: ServiceState,
    /// Why, as a machine word; nothing when all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Where it answers: load balancer addresses, external ones, then cluster addresses.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// At which ports, such as `80/TCP`.
    pub ports: Vec<String>,
    /// Endpoints that take new connections.
    pub endpoints_ready: u32,
    /// Endpoints that there are.
    pub endpoints_total: u32,
    /// Nodes that have it in their kernel as it is to be, read back.
    pub nodes_verified: u32,
    /// Nodes that should; 0 when there is nothing to program.
    pub nodes_total: u32,
    /// The revision that last changed what nodes are told of it or, where they are told nothing, the object.
    pub revision: Revision,
}

/// How a Service goes for its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ServiceState {
    /// Nothing is wrong, as far as users notice.
    Ok,
    /// It works, and one more failure hurts.
    AtRisk,
    /// Some users cannot connect, or some capacity is gone.
    Degraded,
    /// Users cannot connect.
    Unreachable,
    /// It is disabled.
    Disabled,
}

/// A Node in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewNode)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its name.
    pub name: Name,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub zone: Option<String>,
    /// The proxy mode that carries the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// How far it is.
    pub state: NodeState,
    /// Why, as a machine word; nothing when it has everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How long the oldest change waits that it lacks, in milliseconds, to two digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_millis: Option<u64>,
    /// Everything up to here has been programmed; left out when it has everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Position>,
    /// Everything up to here has been read back; left out when it has everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Position>,
    /// Load balancer addresses that it announces by ARP or NDP.
    pub addresses: usize,
    /// Its sessions with routers, where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<BgpSessionTotals>,
}

/// How far a Node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewNodeState)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// It has everything, read back, or gets it at this moment.
    Converged,
    /// It is behind for longer than changes take.
    Lagging,
    /// Services failed there, or it holds a state back.
    Failing,
    /// Somebody else changed what it had programmed a short time ago; it was repaired.
    Drifted,
    /// Its agent does not report.
    Disconnected,
}

/// What a problem means for users; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Impact {
    /// Users cannot connect.
    Unreachable,
    /// Some cannot, or some capacity is gone.
    Degraded,
    /// It works, and one more failure hurts.
    Risk,
    /// It is not as it was asked for, and users do not notice.
    Notice,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewProblem)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What names it as long as it lasts.
    #[schema(example = "Service/default/web/EndpointsAvailable")]
    pub id: String,
    /// The kind of the object that has it.
    pub kind: Kind,
    /// The namespace of the object, if its kind has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// The name of the object.
    pub name: Name,
    /// What it means for users.
    pub impact: Impact,
    /// The machine word.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Since when; left out where nobody knows, such as after a start of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What else suffers from it; at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub affects: Vec<Affected>,
    /// How many more suffer from it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub affects_more: usize,
    /// The last write that went before it and touches what it is about. That one led to the other is likely, not certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<PrecedingChange>,
}

// The signature is the one that serde calls.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// An object that suffers from a problem of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Affected {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, if its kind has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Its name.
    pub name: Name,
}

/// The last write before a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrecedingChange {
    /// The revision that it made.
    pub revision: Revision,
    /// When it was accepted.
    pub at: Timestamp,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Why, as they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl From<ObjectKey> for Affected {
    fn from(key: ObjectKey) -> Self {
        let ObjectKey { kind, namespace, name } = key;
        Self { kind, namespace, name }
    }
}

impl ServiceTotals {
    /// Counts one more.
    pub fn add(&mut self, state: ServiceState) {
        self.total += 1;
        *match state {
            ServiceState::Ok => &mut self.ok,
            ServiceState::AtRisk => &mut self.at_risk,
            ServiceState::Degraded => &mut self.degraded,
            ServiceState::Unreachable => &mut self.unreachable,
            ServiceState::Disabled => &mut self.disabled,
        } += 1;
    }
}

impl NodeTotals {
    /// Counts one more.
    pub fn add(&mut self, state: NodeState) {
        self.total += 1;
        *match state {
            NodeState::Converged => &mut self.converged,
            NodeState::Lagging => &mut self.lagging,
            NodeState::Failing => &mut self.failing,
            NodeState::Drifted => &mut self.drifted,
            NodeState::Disconnected => &mut self.disconnected,
        } += 1;
    }
}
