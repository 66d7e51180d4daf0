//! Status: what was observed of an object, rolled up from what the agents report. Never intent, never stored with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::{
        identity::NodeBgpStatus,
        report::{BgpError, BgpSessionState},
        trouble::BgpTrouble,
    },
    cluster::compiled::UnsupportedField,
    kinds::{event::Event, node::ProxyMode},
    primitives::{
        name::Name,
        quantity::{Position, Timestamp},
    },
    wire::{
        hold::HeldState,
        report::{AddressReport, Counters, Facts, FailureReason},
    },
};

/// One rung of the ladder Accepted → AddressAssigned → EndpointsAvailable → Programmed → Announced → Ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which rung.
    #[serde(rename = "type")]
    pub condition_type: ConditionType,
    /// Whether it is reached.
    pub status: ConditionStatus,
    /// Machine word; never empty.
    pub reason: String,
    /// The same in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What to do about it, when it is not true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The rungs, and what nodes say of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ConditionType {
    /// The object is valid and every setting of it is carried out.
    Accepted,
    /// It has the addresses it asks for.
    AddressAssigned,
    /// It has an endpoint that takes connections.
    EndpointsAvailable,
    /// Every node has it in its kernel, read back.
    Programmed,
    /// Its addresses are announced to the network.
    Announced,
    /// All of these.
    Ready,
    /// The node's agent reports.
    Connected,
    /// The node has everything, read back.
    Converged,
    /// The EndpointSet or Workload is an endpoint of a Service; a Node has the BgpPeer; a BgpPeer names the BfdProfile.
    Used,
    /// The AddressPool has a free address of every IP family that it holds.
    HasRoom,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

/// What was observed of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The ladder.
    pub conditions: Vec<Condition>,
    /// The load balancer addresses.
    pub load_balancer: LoadBalancerStatus,
    /// The endpoints behind the Service.
    pub endpoints: EndpointCounts,
    /// How many nodes have it, and which have not.
    pub nodes: NodeCounts,
    /// Settings of the spec that are not carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<UnsupportedField>,
}

/// The load balancer addresses of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// One entry per address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<Ingress>,
}

/// One load balancer address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ingress {
    /// The address.
    #[schema(value_type = String)]
    pub ip: IpAddr,
}

/// How many endpoints are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointCounts {
    /// Distinct addresses.
    pub total: u32,
    /// Of these, taking new connections.
    pub ready: u32,
    /// Of these, taking no new connections while established ones finish, because that was asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub draining: u32,
    /// Of these, taken out of service, because that was asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub maintenance: u32,
    /// Of all, those that health checks have taken out of service, or would if so many had not failed at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unhealthy: u32,
    /// Of all, those that are checked by nodes of which none reports.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u32,
}

impl std::iter::Sum for EndpointCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| {
            let Self { total, ready, draining, maintenance, unhealthy, unknown } = one;
            Self {
                total: sum.total.saturating_add(total),
                ready: sum.ready.saturating_add(ready),
                draining: sum.draining.saturating_add(draining),
                maintenance: sum.maintenance.saturating_add(maintenance),
                unhealthy: sum.unhealthy.saturating_add(unhealthy),
                unknown: sum.unknown.saturating_add(unknown),
            }
        })
    }
}

// The signature is the one that serde calls.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How far the nodes are with one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that should have it.
    pub total: u32,
    /// Of these, how many have received it.
    pub received: u32,
    /// How many have programmed it.
    pub applied: u32,
    /// How many have read it back.
    pub verified: u32,
    /// Those that have not, with the reason; at most ten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_verified: BTreeMap<Name, NodeProblem>,
}

/// Why a node has not verified a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeProblem {
    /// How far it got.
    pub phase: Phase,
    /// The failure, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// The cause in words.
    pub message: String,
}

/// How far a node is with something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Phase {
    /// It has not arrived, as far as is known.
    Pending,
    /// It has arrived.
    Received,
    /// It is in the kernel.
    Applied,
    /// It was read back from the kernel and found right.
    Verified,
    /// It could not be done.
    Failed,
}

/// What was observed of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Connected, Converged, Ready.
    pub conditions: Vec<Condition>,
    /// The agent's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The proxy mode that carries the traffic; the one asked for is `spec.mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// When the agent last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report: Option<Timestamp>,
    /// Everything up to here has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Position>,
    /// Everything up to here has been programmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Position>,
    /// Everything up to here has been read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Position>,
    /// The state that the node holds back, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldState>,
    /// Services that failed here.
    pub failures: u64,
    /// What the agent found on its machine.
    #[serde(default)]
    pub facts: Facts,
    /// What the agent has counted since its start.
    #[serde(default)]
    pub counters: Counters,
    /// What is odd on the node without making its agent unhealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Who it is in BGP; only where a BgpPeer selects it, or its spec says something about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<NodeBgpStatus>,
    /// What happened on the node of late, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// What was observed of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Whether the Workload is an endpoint of the Services that select it, and why not.
    pub conditions: Vec<Condition>,
}

/// What was observed of an EndpointSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSetStatus {
    /// Whether the Service exists and takes the endpoints, and why not.
    pub conditions: Vec<Condition>,
}

/// What was observed of an AddressPool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// Whether the pool has room, lies in the networks of nodes, and is announced; and why not.
    pub conditions: Vec<Condition>,
    /// How its IPv4 addresses are used.
    #[serde(rename = "ipv4")]
    pub v4: PoolUsage,
    /// How its IPv6 addresses are used.
    #[serde(rename = "ipv6")]
    pub v6: PoolUsage,
}

/// How the addresses of one family of a pool are used; numbers beyond 2⁶⁴ − 1 are shown as that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolUsage {
    /// Addresses that may be given out, used or not.
    pub total: u64,
    /// Of these, held by Services.
    pub assigned: u64,
    /// Of these, freed lately and held back.
    pub quarantined: u64,
    /// Of these, free.
    pub available: u64,
}

/// What was observed of an Advertisement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvertisementStatus {
    /// Whether it announces anything, and why not.
    pub conditions: Vec<Condition>,
}

/// What was observed of a BgpPeer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerStatus {
    /// Whether nodes are to have a session with it, and whether they have; and why not.
    pub conditions: Vec<Condition>,
    /// Whether it has a password, which is never shown.
    pub has_password: bool,
    /// The nodes that have, or try to have, a session with it: their AS and BGP Identifier; at most 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<Name, BgpPeerNode>,
    /// How many these are, also beyond the listed ones.
    #[serde(default)]
    pub nodes_total: u32,
    /// The sessions that nodes have with it, as their agents say.
    #[serde(default)]
    pub sessions: BgpPeerSessions,
}

/// One node's side of a BgpPeer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerNode {
    /// Its AS towards the peer.
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    /// Its BGP Identifier.
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// Why it has no session with the peer although it is selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What was observed of a BfdProfile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BfdProfileStatus {
    /// Whether a BgpPeer uses it.
    pub conditions: Vec<Condition>,
    /// The BgpPeers that name it; at most 100.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub used_by: BTreeSet<Name>,
}

/// What was observed of an Address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// Whether it is announced, and why not.
    pub conditions: Vec<Condition>,
    /// The node that announces it, as that node says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// Since when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What each candidate says of its part, and every other node that has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<Name, AddressReport>,
    /// Why nodes are no candidates; at most ten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_candidates: BTreeMap<Name, String>,
    /// Who announces it by BGP; nothing where BGP has no part in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_bgp: Option<AddressByBgp>,
}

/// Who announces an address by BGP, as the nodes say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressByBgp {
    /// Nodes that announce it.
    pub nodes: u32,
    /// Routers that have it from them.
    pub routers: u32,
    /// The first ten of these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced_by: Vec<Name>,
    /// The first ten of these routers: the name of the `BgpPeer`, followed by `@` and the address for dynamic neighbours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced_to: Vec<String>,
    /// As what it is announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub prefixes: Vec<IpNet>,
    /// Nodes that could announce it and do not, with the reason; at most ten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_by: BTreeMap<Name, String>,
}

/// The sessions of nodes with a `BgpPeer`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerSessions {
    /// How many there are; a dynamic peer has several on one node.
    pub total: u32,
    /// Of these, established.
    pub established: u32,
    /// The sessions by node, at most 50; `/v1/bgp/sessions` lists all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_node: BTreeMap<Name, Vec<NodeBgpSession>>,
}

/// The session of a node with a `BgpPeer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeBgpSession {
    /// The neighbour's address; nothing while that of an unnumbered peer is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Where the session stands.
    pub state: BgpSessionState,
    /// Whether the node's agent reports; if not, this is what it said last.
    pub is_reporting: bool,
    /// Since when it stands there.
    pub since: Timestamp,
    /// Why, in words.
    pub reason: String,
    /// Prefixes that the neighbour has from the node.
    pub prefixes_sent: u64,
    /// The last NOTIFICATION that the node sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<BgpError>,
    /// The last NOTIFICATION that it received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_received: Option<BgpError>,
    /// What is wrong, as far as it can be told, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<BgpTrouble>,
}
