//! Report of an agent to a control server: `PUT /v1/nodes/{node}/report`.
//!
//! Progress is reported as three positions, up to which the agent has received, programmed and verified all
//! changes, and as a list of failed Services. The size of this part therefore depends on the number of
//! failures, not on the size of the cluster. A lost report needs no repetition, because the next one contains
//! its data.

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
        public_key::PublicKey,
        quantity::{Port, Position, Revision, Timestamp},
    },
    wire::{
        hold::HeldState,
        traffic_counts::{Rates, TargetFailures},
    },
};

/// Maximum number of failed Services in a report. `failuresTotal` contains the total.
pub const FAILURES_MAX: usize = 1000;
/// Maximum number of events that an agent retains; the oldest are discarded first.
pub const EVENTS_MAX: usize = 32;
/// Maximum length of an event message in bytes.
pub const EVENT_MESSAGE_BYTES_MAX: usize = 1024;
/// Maximum number of endpoints with traffic counters in a report; further ones follow in the next report.
pub const TRAFFIC_TARGETS_MAX: usize = 2000;
/// Maximum number of load balancer addresses in a report; further ones follow in the next report.
pub const ANNOUNCEMENTS_MAX: usize = 5000;
/// Maximum number of changes of announcing nodes that an agent keeps and reports; the oldest are discarded first.
pub const ANNOUNCEMENT_CHANGES_MAX: usize = 500;
/// Maximum number of other nodes that a node monitors by BFD.
pub const PEERS_MAX: usize = 256;

/// Report of an agent: progress, failures, properties of the machine, states of addresses and sessions, and
/// counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// Random id of the running agent process, at most 64 bytes. Each start of the agent uses a new id.
    #[schema(max_length = 64)]
    pub boot_id: String,
    /// Version of the agent, at most 64 bytes.
    #[schema(max_length = 64)]
    pub agent_version: String,
    /// Proxy mode in use: `nftables`, `iptables`, `ipvs` or `userspace`.
    pub mode: ProxyMode,
    /// Position (epoch and revision) up to which the agent has received all changes.
    pub received: Position,
    /// Position up to which the agent has programmed all changes, except the Services in `failures`.
    pub applied: Position,
    /// Position up to which the agent has verified all changes by reading its kernel, except the Services in
    /// `failures`.
    pub verified: Position,
    /// State from the control server that the node rejects, because this state would remove too much or is
    /// older than the present one. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldState>,
    /// Services that the node failed to program (`namespace/name`), each with its failure; at most 1000.
    #[serde(default)]
    pub failures: BTreeMap<ServiceKey, Failure>,
    /// Number of all failed Services, including those not listed in `failures`.
    #[serde(default)]
    pub failures_total: u64,
    /// Properties of the machine, such as its addresses, as detected by the agent.
    #[serde(default)]
    pub facts: Facts,
    /// Counters since the start of the agent.
    #[serde(default)]
    pub counters: Counters,
    /// Problems of the node, such as an unavailable proxy mode, in spite of which the agent counts as
    /// healthy, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub warnings: Vec<String>,
    /// Reason why the routes or the tunnel of the workload networks on the node are not as they should be, with the remedy
    /// if it is known; at most 1024 bytes. Absent if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub network_failure: Option<String>,
    /// Recent events on the node, oldest first, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub events: Vec<Event>,
    /// Traffic by Service (`namespace/name`), for Services with changes since the previous report. The list
    /// of a Service contains all of its endpoints; an empty list means that the node no longer counts its
    /// traffic. Absent Services are unchanged. At most 2000 endpoints in total.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traffic: BTreeMap<ServiceKey, Vec<TargetTraffic>>,
    /// State on this node of the load balancer addresses for which it has changed since the previous report.
    /// Absent addresses are unchanged. At most 5000 entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, AddressReport>)]
    pub announcements: BTreeMap<IpAddr, AddressReport>,
    /// Load balancer addresses for which this node no longer has a role (`Owner`, `Standby` or `Held`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub announcements_gone: BTreeSet<IpAddr>,
    /// True if `announcements` replaces all states that this node reported before, false if it contains only
    /// changes. Entries beyond the limit follow as changes in the next reports. True in the first report
    /// after a start of the agent, and whenever the control server may lack earlier reports.
    #[serde(default)]
    pub announcements_complete: bool,
    /// Times at which this node began or ceased to announce an address, oldest first, at most 500. Entries are
    /// repeated until a report that contains them is accepted, so the control server receives those of a time in
    /// which it was unreachable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 500)]
    pub announcement_changes: Vec<AnnouncementChange>,
    /// Nodes that this node monitors by BFD, at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub peers: Vec<PeerReport>,
    /// BGP sessions of the node. Absent if the node has no BGP peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<BgpReport>,
    /// BGP routes by prefix, for prefixes with changes since the previous report. Absent prefixes are
    /// unchanged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, BgpRoute>)]
    pub bgp_routes: BTreeMap<IpNet, BgpRoute>,
    /// Prefixes that this node no longer announces or withholds.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub bgp_routes_gone: BTreeSet<IpNet>,
    /// True if `bgpRoutes` replaces all routes that this node reported before, false if it contains only
    /// changes. Entries beyond the limit follow as changes in the next reports. True in the first report
    /// after a start of the agent, and whenever the control server may lack earlier reports.
    #[serde(default)]
    pub bgp_routes_complete: bool,
    /// Health check results by Service (`namespace/name`), for Services with changes since the previous
    /// report. The list of a Service contains all of its endpoints that this node checks; an empty list means
    /// that the node no longer checks the Service. Absent Services are unchanged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub health: BTreeMap<ServiceKey, Vec<CheckReport>>,
    /// True if `health` replaces all results that this node reported before, false if it contains only
    /// changes. Entries beyond the limit follow as changes in the next reports. True in the first report
    /// after a start of the agent, and whenever the control server may lack earlier reports.
    #[serde(default)]
    pub health_complete: bool,
    /// Position up to which the agent had programmed all changes when it last read the traffic counters.
    /// Absent while counters of that reading remain to be reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_at: Option<Position>,
    /// Enforcement of network policy on the node. Absent in reports of agents without network policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReport>,
}

/// Enforcement of network policy on a node, as of the position `verified` of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyReport {
    /// Connections to which the policies of the Workloads on the node apply.
    pub enforcement: PolicyEnforcement,
    /// Reason for an enforcement other than `Full`, at most 1024 bytes; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 1024)]
    pub reason: String,
}

/// Connections to which the network policies of the Workloads on a node apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum PolicyEnforcement {
    /// All connections, or no policy selects a Workload on the node.
    Full,
    /// All except connections through Services, because the proxy mode hides the client or the endpoint.
    WithoutServices,
    /// The kernel does not have the policies.
    Failed,
}

/// State of one load balancer address on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Announced)]
pub struct AddressReport {
    /// Role of the node: `Owner`, `Standby` or `Held`.
    pub role: AnnouncementRole,
    /// Epoch (version) of the candidate order that the node follows.
    pub epoch: u64,
    /// Time of the last change of the role (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Reason why the node has this role, for users; not empty, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub reason: String,
    /// Interfaces on which the node announces the address, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub interfaces: Vec<String>,
    /// Time of the last gratuitous ARP or unsolicited neighbor advertisement (RFC 3339, UTC). Absent if none
    /// was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_gratuitous: Option<Timestamp>,
    /// Number of ARP requests and neighbor solicitations for the address that the node has answered since the
    /// start of the agent.
    #[serde(default)]
    pub replies: u64,
    /// Number of gratuitous ARP packets and unsolicited neighbor advertisements that the node has sent since
    /// the start of the agent.
    #[serde(default)]
    pub gratuitous: u64,
    /// Last observed announcement of the same address by another machine. Absent if none was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<AddressConflict>,
}

/// Begin or end of the announcement of an address by a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnnouncementChange {
    /// Number of the change since the start of the agent, from 1. Later changes have higher numbers.
    pub number: u64,
    /// Time of the change by the clock of the node (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// Load balancer address whose announcement by the node began or ended.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// True if the node began to announce the address, false if it ceased.
    pub announces: bool,
    /// Cause of the change, for users; not empty, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub reason: String,
}

/// Reason of the role `Held` while the node probes an address before it announces it, for at most two seconds.
pub const PROBING: &str = "it asks whether somebody answers for the address, before it does";

/// Role of a node for an address: `Owner` (the node announces the address), `Standby` (it announces the address if
/// all candidates of higher rank fail) or `Held` (it is the first candidate but does not announce the address;
/// `reason` explains this).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum AnnouncementRole {
    /// The node announces the address.
    Owner,
    /// The node announces the address if all candidates of a higher rank fail.
    Standby,
    /// The node is the first candidate but does not announce the address; `reason` explains this.
    Held,
}

/// Announcement of an address of this node by another machine (address conflict).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressConflict {
    /// Link-layer address of the other machine, at most 64 bytes.
    #[schema(max_length = 64, example = "02:00:00:00:00:01")]
    pub mac: String,
    /// Interface on which the announcement was received, at most 64 bytes.
    #[schema(max_length = 64)]
    pub interface: String,
    /// Time of the last announcement (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Node with this link-layer address. Absent if the machine is no known node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
}

/// BFD state of another node that this node monitors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PeerReport {
    /// Name of the monitored node.
    pub node: Name,
    /// Address of the monitored node to which BFD packets are sent.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// State of the node: `Up`, `Down` or `AdminDown`.
    pub state: PeerState,
    /// Time of the last change of the state (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// BFD state of a monitored node: `Up` (the node responds), `Down` (it does not respond) or `AdminDown` (it has
/// announced its shutdown).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum PeerState {
    /// The node responds.
    Up,
    /// The node does not respond.
    Down,
    /// The node has announced its shutdown.
    AdminDown,
}

/// Traffic of one endpoint of a Service through the node, since the node programmed the endpoint. A counter
/// is `null` if the proxy mode does not maintain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetTraffic {
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// Address of the endpoint.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port of the endpoint. `null` if the Service port is a range, so that the destination port of a
    /// connection is not changed.
    #[serde(default)]
    pub port: Option<Port>,
    /// Number of connections to the endpoint, including UDP flows.
    pub connections: u64,
    /// Number of packets in both directions. `null` if not counted.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Number of bytes in both directions. `null` if not counted.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Number of currently established connections. `null` if not counted.
    #[serde(default)]
    pub active: Option<u64>,
    /// Number of tracked connections that are not established. `null` if not counted.
    #[serde(default)]
    pub inactive: Option<u64>,
    /// Average rates per second between the last two readings of the counters. Absent before the second
    /// reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<Rates>,
    /// Failed connections by cause. Absent if the proxy mode does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<TargetFailures>,
}

/// Failure to program a Service on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// Revision of the compiled Service that the node failed to program.
    pub revision: Revision,
    /// Reason of the failure, as a stable identifier.
    pub reason: FailureReason,
    /// Cause for users, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub message: String,
}

/// Reason of a failure: `Unsupported` (the agent does not support a setting), `KernelRefused` (the kernel rejected
/// the change), `VerificationFailed` (the kernel state that was read back differs), `PortUnavailable` (another
/// program uses a port that the agent serves), `PartlyUnsupported` (the agent does not support a setting of some
/// ports, and serves the other ports) or `SurvivalUnavailable` (the agent serves the Service, but connections end with
/// the node that announces the address).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum FailureReason {
    /// The agent does not support a setting of the Service.
    Unsupported,
    /// The kernel rejected the change.
    KernelRefused,
    /// The kernel state that was read back differs from the programmed state.
    VerificationFailed,
    /// Another program uses a port that the agent serves on the node.
    PortUnavailable,
    /// The agent does not support a setting of some ports of the Service: connections to them are rejected, and
    /// the other ports are served.
    PartlyUnsupported,
    /// Connections should survive the loss of an announcing node, which is not possible on this node: the agent
    /// serves the Service, and masquerades the connections.
    SurvivalUnavailable,
}

impl FailureReason {
    /// Returns true if the agent does not support a setting of the Service or of some of its ports.
    #[must_use]
    pub const fn is_unsupported(self) -> bool {
        match self {
            Self::Unsupported | Self::PartlyUnsupported | Self::SurvivalUnavailable => true,
            Self::KernelRefused | Self::VerificationFailed | Self::PortUnavailable => false,
        }
    }

    /// Returns true if the node serves the Service at its addresses nevertheless.
    #[must_use]
    pub const fn is_served(self) -> bool {
        match self {
            Self::PartlyUnsupported | Self::SurvivalUnavailable => true,
            Self::Unsupported | Self::KernelRefused | Self::VerificationFailed | Self::PortUnavailable => {
                false
            }
        }
    }
}

/// Properties of the machine of an agent, as detected by the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Facts {
    /// Addresses of the machine, except loopback and link-local ones, at most 1024.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 1024)]
    pub addresses: Vec<IpAddr>,
    /// Networks of the machine's interfaces, by interface name.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub subnets: BTreeMap<String, Vec<IpNet>>,
    /// Link-layer addresses of the interfaces in `subnets`, by interface name. The control server recognizes by
    /// them the announcements of nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link_layer_addresses: BTreeMap<String, String>,
    /// Public key of the agent (X25519, RFC 7748), as base64 of 32 bytes. Nodes that monitor each other derive
    /// from it the keys of BFD between them. Absent if the agent has no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 44, max_length = 44)]
    pub peer_public_key: Option<PublicKey>,
    /// Release of the kernel, such as `6.8.0`, at most 256 bytes.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub kernel: String,
    /// Proxy modes that work on the machine.
    #[serde(default)]
    pub capabilities: Vec<ProxyMode>,
}

/// Counters of an agent since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Counters {
    /// Number of changed and removed Services that the agent has received from the control server.
    #[serde(default)]
    pub objects_received: u64,
    /// Number of bytes that the agent has received from the control server, after decompression.
    #[serde(default)]
    pub feed_bytes: u64,
    /// Number of times that the agent compared the desired state of at least one Service with the kernel
    /// (pass).
    #[serde(default)]
    pub passes: u64,
    /// Number of transactions by which the agent changed the kernel.
    #[serde(default)]
    pub kernel_transactions: u64,
    /// Number of netlink messages sent in kernel transactions.
    #[serde(default)]
    pub kernel_messages: u64,
    /// Number of bytes of the netlink messages sent in kernel transactions.
    #[serde(default)]
    pub kernel_bytes: u64,
    /// Number of repairs of kernel objects that another program had changed.
    #[serde(default)]
    pub drift_repairs: u64,
    /// Number of connection tracking entries that the agent deleted, because their endpoint was removed.
    #[serde(default)]
    pub conntrack_deletions: u64,
}

/// Maximum number of endpoints with health check results in a report; further ones follow in the next report.
pub const CHECKS_REPORTED_MAX: usize = 5000;

/// Maximum length of the message of a health check result in bytes.
pub const CHECK_MESSAGE_BYTES_MAX: usize = 512;

/// Message of a check whose connection the endpoint refused: its machine has answered.
pub const CONNECTION_REFUSED: &str = "connection refused";

/// Health of an endpoint according to one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckReport {
    /// Address of the endpoint.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port to which the check connects.
    pub port: Port,
    /// State of the endpoint: `Pending`, `Healthy` or `Unhealthy`.
    pub state: CheckState,
    /// Time of the last change of the state (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Description of the check result that led to the state, not empty, at most 512 bytes, such as
    /// `answered 500 Internal Server Error`.
    #[schema(max_length = 512)]
    pub message: String,
}

/// Health of an endpoint according to one node: `Pending` (too few results to decide), `Healthy` (after `rise`
/// consecutive successes) or `Unhealthy` (after `fall` consecutive failures).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum CheckState {
    /// The node has too few results to decide.
    Pending,
    /// The last `rise` checks or more have succeeded.
    Healthy,
    /// The last `fall` checks or more have failed.
    Unhealthy,
}
