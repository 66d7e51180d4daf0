//! What an agent tells control: `PUT /v1/nodes/{node}/report`, always whole, so that a lost report is repaired by the next.
//!
//! Progress is said by three watermarks over all Services and a list of the exceptions, so that a report's size follows
//! what is wrong, not the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::report::{BgpReport, BgpRoute},
    kinds::{event::Event, node::ProxyMode, resource::ServiceKey, service::Protocol},
    primitives::{
        name::Name,
        quantity::{Port, Position, Revision, Timestamp},
    },
    wire::{
        hold::Held,
        traffic_counts::{Rates, TargetFailures},
    },
};

/// Exceptions in one report; an agent that has more says so in `failuresTotal`.
pub const FAILURES_MAX: usize = 1000;
/// Events that an agent keeps; an older one makes room.
pub const EVENTS_MAX: usize = 32;
/// Longest message of an event, in bytes.
pub const EVENT_MESSAGE_BYTES_MAX: usize = 1024;
/// Targets with their traffic in one report; what is left over comes with the next.
pub const TRAFFIC_TARGETS_MAX: usize = 2000;
/// Addresses in one report; what is left over comes with the next.
pub const ANNOUNCEMENTS_MAX: usize = 5000;
/// Nodes that one node watches.
pub const PEERS_MAX: usize = 256;

/// What one agent has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// Differs with every start of the agent.
    #[schema(max_length = 64)]
    pub boot_id: String,
    /// The agent's version.
    #[schema(max_length = 64)]
    pub agent_version: String,
    /// How it programs the kernel.
    pub mode: ProxyMode,
    /// Everything up to here has arrived.
    pub received: Position,
    /// Everything up to here, but for `failures`, has been programmed.
    pub applied: Position,
    /// Everything up to here, but for `failures`, has been read back from the kernel and found right.
    pub verified: Position,
    /// The state that the node holds back, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Services that are not as they should be.
    #[serde(default)]
    pub failures: BTreeMap<ServiceKey, Failure>,
    /// How many there are, also beyond the listed ones.
    #[serde(default)]
    pub failures_total: u64,
    /// What the agent found on its machine.
    #[serde(default)]
    pub facts: Facts,
    /// What the agent has counted since its start.
    #[serde(default)]
    pub counters: Counters,
    /// What is odd on the node without making the agent unhealthy, such as a proxy mode that it cannot change to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub warnings: Vec<String>,
    /// What happened on the node of late, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub events: Vec<Event>,
    /// The traffic of Services for which it differs from what was reported before, each whole; an empty list: of this
    /// Service nothing is counted any longer. What a report does not name is as it was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traffic: BTreeMap<ServiceKey, Vec<TargetTraffic>>,
    /// The addresses for which this node's part differs from what was reported before. What a report does not name is as
    /// it was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Announced>)]
    pub announcements: BTreeMap<IpAddr, Announced>,
    /// The addresses in which this node has no part any longer.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub announcements_gone: BTreeSet<IpAddr>,
    /// Whether `announcements` is complete, so that what it does not name has no part of this node: in the first report
    /// after a start of the agent or of the feed.
    #[serde(default)]
    pub announcements_complete: bool,
    /// The nodes that this one watches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub peers: Vec<PeerReport>,
    /// The sessions with routers; nothing where the node has no peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<BgpReport>,
    /// The prefixes of which something differs from what was reported before. What a report does not name is as it was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, BgpRoute>)]
    pub bgp_routes: BTreeMap<IpNet, BgpRoute>,
    /// The prefixes that this node has nothing to say about any longer.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub bgp_routes_gone: BTreeSet<IpNet>,
    /// Whether `bgpRoutes` is complete, in the first report after a start of the agent or of the feed.
    #[serde(default)]
    pub bgp_routes_complete: bool,
    /// What the node holds of the endpoints that it checks, for Services of which something differs from what was reported
    /// before, each whole; an empty list: it checks none of this Service any longer. What a report does not name is as it was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub health: BTreeMap<ServiceKey, Vec<CheckReport>>,
    /// Whether `health` is complete, in the first report after a start of the agent or of the feed.
    #[serde(default)]
    pub health_complete: bool,
    /// How far the node was when it last counted traffic, if control has been told all that was counted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_at: Option<Position>,
}

/// A node's part in one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announced {
    /// What the node does.
    pub role: Role,
    /// The epoch of the order that it follows.
    pub epoch: u64,
    /// Since when it does so.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Why, in words; never empty.
    #[schema(max_length = 1024)]
    pub reason: String,
    /// The interfaces on which it announces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub interfaces: Vec<String>,
    /// When it last sent gratuitous ARP or an unsolicited neighbour advertisement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_gratuitous: Option<Timestamp>,
    /// Questions answered since the agent's start.
    #[serde(default)]
    pub replies: u64,
    /// Gratuitous ARP and unsolicited neighbour advertisements sent since the agent's start.
    #[serde(default)]
    pub gratuitous: u64,
    /// Somebody else was heard to announce it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<AddressConflict>,
}

/// What a node does about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Role {
    /// It announces the address.
    Owner,
    /// It would announce it, if those before it did not live.
    Standby,
    /// It is the first in rank and does not announce; the reason says why.
    Held,
}

/// Somebody else announces an address of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressConflict {
    /// The link-layer address that was heard.
    #[schema(max_length = 64, example = "02:00:00:00:00:01")]
    pub mac: String,
    /// Where it was heard.
    #[schema(max_length = 64)]
    pub interface: String,
    /// When it was last heard.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// How a node sees another one that it watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PeerReport {
    /// The node that is watched.
    pub node: Name,
    /// Where it is watched.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// How it is seen.
    pub state: PeerState,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// How a node that is watched is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum PeerState {
    /// It answers.
    Up,
    /// It does not answer.
    Down,
    /// It has said that it stops.
    AdminDown,
}

/// What went to one target of a Service since it was programmed; `null` where the proxy mode does not count it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetTraffic {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The endpoint's address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The endpoint's port; `null` where the client's port is kept.
    #[serde(default)]
    pub port: Option<Port>,
    /// Connections given to it.
    pub connections: u64,
    /// Packets in both directions.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Bytes in both directions.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Established connections.
    #[serde(default)]
    pub active: Option<u64>,
    /// Connections that are known but not established.
    #[serde(default)]
    pub inactive: Option<u64>,
    /// What went through in a second, on average between the last two readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<Rates>,
    /// Connections that the target did not take or broke off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<TargetFailures>,
}

/// Why a Service is not as it should be on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// The revision of the compiled Service that failed.
    pub revision: Revision,
    /// The machine word.
    pub reason: FailureReason,
    /// The cause in words.
    #[schema(max_length = 1024)]
    pub message: String,
}

/// The machine word of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum FailureReason {
    /// A setting that this agent does not carry out.
    Unsupported,
    /// The kernel refused it.
    KernelRefused,
    /// It was programmed, but reading back showed something else.
    VerificationFailed,
    /// A port of the node that the agent serves itself is taken by another program.
    PortUnavailable,
}

/// What an agent found on its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Facts {
    /// Its addresses, without loopback and link-local ones.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 1024)]
    pub addresses: Vec<IpAddr>,
    /// The networks on its interfaces, by interface.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub subnets: BTreeMap<String, Vec<IpNet>>,
    /// The kernel's release.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub kernel: String,
    /// Which proxy modes work here.
    #[serde(default)]
    pub capabilities: Vec<ProxyMode>,
}

/// What an agent has counted since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Counters {
    /// Services and removals received by the feed.
    #[serde(default)]
    pub objects_received: u64,
    /// Bytes received by the feed, after decompression.
    #[serde(default)]
    pub feed_bytes: u64,
    /// Passes of the loop that had something to look at.
    #[serde(default)]
    pub passes: u64,
    /// Transactions committed to the kernel.
    #[serde(default)]
    pub kernel_transactions: u64,
    /// Netlink messages in them.
    #[serde(default)]
    pub kernel_messages: u64,
    /// Bytes of these messages.
    #[serde(default)]
    pub kernel_bytes: u64,
    /// Times that the kernel was found different from what this agent had left, and was repaired.
    #[serde(default)]
    pub drift_repairs: u64,
    /// Conntrack entries deleted because their endpoint was gone.
    #[serde(default)]
    pub conntrack_deletions: u64,
}

/// Endpoints with their health in one report; what is left over comes with the next.
pub const CHECKS_REPORTED_MAX: usize = 5000;

/// Longest result of a check in words, in bytes.
pub const CHECK_MESSAGE_BYTES_MAX: usize = 512;

/// What a node says of an endpoint that it checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckReport {
    /// The endpoint's address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The port of the check.
    pub port: Port,
    /// What the node holds of it.
    pub state: CheckState,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The result that led there, in words, such as `answered 500 Internal Server Error`; never empty.
    #[schema(max_length = 512)]
    pub message: String,
}

/// What a node holds of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum CheckState {
    /// Not decided yet: too few answers.
    Pending,
    /// `rise` good answers in a row.
    Healthy,
    /// `fall` bad answers in a row.
    Unhealthy,
}
