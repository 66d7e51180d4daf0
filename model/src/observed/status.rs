//! Status of objects: the observed state, derived from stored objects and the reports of agents. Status is
//! computed for each response and never stored with the desired state.

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
    kinds::{condition_reason::ConditionReason, event::Event, node::ProxyMode},
    primitives::{
        name::{Label, Name},
        quantity::{Position, Timestamp},
    },
    wire::{
        hold::HeldState,
        report::{AddressReport, Counters, Facts, FailureReason},
    },
};

/// Condition of an object, computed at each read from the newest revision and the last reports of the Nodes.
/// Unlike in Kubernetes, a condition therefore has no `lastTransitionTime` and no `observedGeneration`. In
/// the list of a Service, a condition may depend on earlier ones: Accepted, AddressAssigned,
/// EndpointsAvailable, Programmed, Announced, Ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, unique in the list, in CamelCase, such as `Programmed`.
    #[serde(rename = "type")]
    pub condition_type: ConditionType,
    /// State of the condition: `True` (met), `False` (not met) or `Unknown` (cannot be determined, for example
    /// while no Node exists).
    pub status: ConditionStatus,
    /// Machine-readable reason of the status in CamelCase, never empty, such as `EndpointsReady`. The reference of
    /// condition reasons lists all of them with their remedies.
    #[schema(value_type = String)]
    pub reason: ConditionReason,
    /// Description of the state for users, with names and counts. Absent if there is nothing to add to
    /// `reason`. Programs should evaluate `reason` instead, because the text may change between releases.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Remedy for users. Absent if no action is necessary or known. May also be present with status `True`,
    /// for example while the health guard keeps unhealthy endpoints in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Type of a condition: `Accepted` (the object is valid, and all its settings are implemented),
/// `AddressAssigned` (the Service has the addresses that it requests), `EndpointsAvailable` (the Service has
/// an endpoint that accepts connections), `Programmed` (every Node has programmed the Service and verified it
/// by reading its kernel, or the Node has configured the interface of the Workload), `Announced` (the addresses are announced to the network), `Ready` (all other
/// conditions are true), `Connected` (the agent of the Node reports), `Converged` (the Node has programmed
/// everything and verified it by reading its kernel), `Used` (the object is in use by another object), `Enforced` (the nodes of the selected Workloads enforce the NetworkPolicy),
/// `HasRoom` (the AddressPool or WorkloadNetwork has a free address or block in each of its IP families), `Resolvable` (`tidegate-dns` answers the
/// host names of the Service or route), `ResolvedRefs` (all backends of the
/// route, or all Certificates of the Gateway, can be used) or `Issued` (the ACME server has issued the certificate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ConditionType {
    /// The object is valid, and all its settings are implemented.
    Accepted,
    /// The Service has the addresses that it requests.
    AddressAssigned,
    /// The Service has an endpoint that accepts connections.
    EndpointsAvailable,
    /// Every Node has programmed the Service and verified it by reading its kernel, gateways serve the listener, or the Node
    /// has configured the interface that the Workload declares.
    Programmed,
    /// The addresses are announced to the network.
    Announced,
    /// All other conditions are true.
    Ready,
    /// The agent of the Node reports.
    Connected,
    /// The Node has programmed everything and verified it by reading its kernel.
    Converged,
    /// The object is in use: an EndpointSet or Workload by a Service, a BgpPeer by a Node, a BfdProfile by a BgpPeer, a
    /// Block by a Node, an Attachment by a Workload, a NetworkPolicy for Workloads.
    Used,
    /// The nodes of all Workloads that the NetworkPolicy selects enforce it.
    Enforced,
    /// The AddressPool has a free address, or the WorkloadNetwork a free block, in each of its IP families.
    HasRoom,
    /// The DNS server answers the host names of the Service with an address.
    Resolvable,
    /// All backends of the route, or all Certificates of the Gateway, are such as gateways can use.
    ResolvedRefs,
    /// The ACME server has issued the certificate for the DNS names of the Certificate.
    Issued,
}

/// State of a condition: `True` (met), `False` (not met) or `Unknown` (cannot be determined).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ConditionStatus {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// The state cannot be determined.
    Unknown,
}

/// Status of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Conditions of the Service. A condition may depend on the ones before it.
    pub conditions: Vec<Condition>,
    /// Load balancer addresses of the Service.
    pub load_balancer: LoadBalancerStatus,
    /// Numbers of endpoints by state.
    pub endpoints: EndpointCounts,
    /// Numbers of Nodes that have received, programmed and verified the Service.
    pub nodes: NodeCounts,
    /// Settings of the spec that Tidegate does not implement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<UnsupportedField>,
}

/// Load balancer addresses of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// Load balancer addresses, one in each entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<Ingress>,
}

/// Load balancer address of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ingress {
    /// IP address, such as `192.0.2.10`.
    #[schema(value_type = String)]
    pub ip: IpAddr,
}

/// Numbers of the endpoint addresses of a Service by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointCounts {
    /// Number of distinct endpoint addresses.
    pub total: u32,
    /// Number of addresses that accept new connections.
    pub ready: u32,
    /// Number of addresses that are draining: no new connections, established ones finish.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub draining: u32,
    /// Number of addresses in maintenance, which receive no connections.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub maintenance: u32,
    /// Number of unhealthy addresses: removed from service by health checks, or kept in service by the health
    /// guard or as the last ones of a port.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unhealthy: u32,
    /// Number of addresses whose health is unknown, because the nodes that check them do not report or no node can
    /// check them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u32,
    /// Number of addresses that receive new connections although nobody checks them: no health check, and no source
    /// that determines their readiness.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_checked: u32,
}

impl std::iter::Sum for EndpointCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| {
            let Self { total, ready, draining, maintenance, unhealthy, unknown, not_checked } = one;
            Self {
                total: sum.total.saturating_add(total),
                ready: sum.ready.saturating_add(ready),
                draining: sum.draining.saturating_add(draining),
                maintenance: sum.maintenance.saturating_add(maintenance),
                unhealthy: sum.unhealthy.saturating_add(unhealthy),
                unknown: sum.unknown.saturating_add(unknown),
                not_checked: sum.not_checked.saturating_add(not_checked),
            }
        })
    }
}

// serde requires this signature.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Numbers of Nodes by their progress with one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Number of Nodes for which an agent has ever reported. Others program nothing.
    pub total: u32,
    /// Number of Nodes that have received the current version of the Service.
    pub received: u32,
    /// Number of Nodes that have programmed the current version of the Service.
    pub applied: u32,
    /// Number of Nodes that have verified the current version of the Service by reading their kernel.
    pub verified: u32,
    /// Nodes that have not verified the current version of the Service, with the reason; at most ten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_verified: BTreeMap<Name, NodeProblem>,
}

/// Reason why a Node has not verified a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeProblem {
    /// Last step that the Node has completed, or `Failed`.
    pub phase: Phase,
    /// Type of the failure; absent unless the Node failed to program the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Description of the cause for users.
    pub message: String,
}

/// Last step that a Node has completed for a change, or a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Phase {
    /// The node has not confirmed that it received the change.
    Pending,
    /// The node has received the change.
    Received,
    /// The node has programmed the change in its kernel.
    Applied,
    /// The node has read the change back from its kernel, and it is correct.
    Verified,
    /// The node failed to program the change.
    Failed,
}

/// Status of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Conditions Accepted, Connected, Converged and Ready of the Node.
    pub conditions: Vec<Condition>,
    /// Version of the agent on the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Proxy mode in use; `spec.mode` is the requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// Time of the last report of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report: Option<Timestamp>,
    /// Position (epoch and revision) up to which the agent has received all changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Position>,
    /// Position up to which the agent has programmed all changes, except failed Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Position>,
    /// Position up to which the agent has verified all changes by reading its kernel, except failed Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Position>,
    /// State from the control server that the node rejects, because this state would remove too much or is
    /// older than the present one; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldState>,
    /// Number of Services that the Node failed to program.
    pub failures: u64,
    /// Properties of the machine, as detected by the agent.
    #[serde(default)]
    pub facts: Facts,
    /// Counters since the start of the agent.
    #[serde(default)]
    pub counters: Counters,
    /// Problems of the Node, such as an unavailable proxy mode, in spite of which its agent counts as
    /// healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// AS number and BGP Identifier of the Node; present if a BgpPeer selects the Node or its spec has BGP
    /// settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<NodeBgpStatus>,
    /// Recent events on the Node, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// Status of a Workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Conditions Accepted and Used; Used is true if the Workload is an endpoint of the Services that select it. If the
    /// Workload declares an interface, also Programmed, which is true if the Node has configured the interface.
    pub conditions: Vec<Condition>,
}

/// Status of an EndpointSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSetStatus {
    /// Conditions Accepted and Used; Used is true if the Service exists and uses the endpoints.
    pub conditions: Vec<Condition>,
}

/// Status of an AddressPool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// Conditions Accepted, HasRoom and Announced; Announced is true if the addresses of the pool can be announced.
    pub conditions: Vec<Condition>,
    /// Usage of the IPv4 addresses.
    #[serde(rename = "ipv4")]
    pub v4: PoolUsage,
    /// Usage of the IPv6 addresses.
    #[serde(rename = "ipv6")]
    pub v6: PoolUsage,
}

/// Usage of the addresses of one IP family of a pool. Numbers above 2⁶⁴ − 1, which are possible for IPv6,
/// appear as 2⁶⁴ − 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolUsage {
    /// Number of assignable addresses, including assigned ones.
    pub total: u64,
    /// Number of addresses that are assigned to Services.
    pub assigned: u64,
    /// Number of released addresses in quarantine.
    pub quarantined: u64,
    /// Number of free addresses.
    pub available: u64,
}

/// Status of an Advertisement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvertisementStatus {
    /// Conditions Accepted and Announced; Announced is true if at least one Node could announce addresses
    /// because of the Advertisement.
    pub conditions: Vec<Condition>,
}

/// Status of a BgpPeer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerStatus {
    /// Conditions Accepted, Used and Ready; Ready is true if all expected sessions are established.
    pub conditions: Vec<Condition>,
    /// True if the peer has a password. The password is never returned.
    pub has_password: bool,
    /// Nodes that the BgpPeer selects, with their AS number and BGP Identifier; at most 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<Name, BgpPeerNode>,
    /// Number of all Nodes that the BgpPeer selects, including those not listed in `nodes`.
    #[serde(default)]
    pub nodes_total: u32,
    /// Sessions of the Nodes with the peer, as their agents report them.
    #[serde(default)]
    pub sessions: BgpPeerSessions,
}

/// AS number and BGP Identifier that one Node uses towards a BgpPeer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerNode {
    /// AS number that the Node uses towards the peer.
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    /// BGP Identifier of the Node.
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// Reason why the Node has no session with the peer although the BgpPeer selects it; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Status of a BfdProfile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BfdProfileStatus {
    /// Conditions Accepted and Used; Used is true if a BgpPeer names the profile.
    pub conditions: Vec<Condition>,
    /// BgpPeers that name the profile; at most 100.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub used_by: BTreeSet<Name>,
}

/// Status of a DnsZone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsZoneStatus {
    /// Conditions Accepted and Used; Used is true if the zone has a static record or the host name of an
    /// object.
    pub conditions: Vec<Condition>,
    /// Services, Gateways and routes that have host names in the zone, by host name; at most 100. A Service is given by
    /// its namespace and name, such as `shop/web`, and another object with its kind, such as `HttpRoute shop/www`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hostnames: BTreeMap<String, String>,
    /// Host names in the zone that Services, Gateways and routes claim but do not have, by host name, each with the first
    /// such object; at most 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
}

/// Status of a Gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// Conditions Accepted, ResolvedRefs, Programmed and Used. ResolvedRefs is true if all Certificates of the listeners are
    /// usable, Programmed if gateways serve all listeners, and Used if a route is attached to one of them.
    pub conditions: Vec<Condition>,
    /// Conditions of each listener by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, ListenerStatus>)]
    pub listeners: BTreeMap<Label, ListenerStatus>,
    /// Number of attached routes by the name of the listener.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, u32>)]
    pub attached_routes: BTreeMap<Label, u32>,
}

/// Status of a listener of a Gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Conditions ResolvedRefs and Programmed; Programmed is true if gateways serve the listener.
    pub conditions: Vec<Condition>,
}

/// Status of a Certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Conditions Accepted, Ready and Used, and with an ACME server Issued; Ready is true while the certificate is valid,
    /// Used if a listener of a Gateway names it, and Issued if the last order did not fail.
    pub conditions: Vec<Condition>,
    /// DNS names for which the certificate is valid, some with `*` as the first label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
    /// Distinguished name of the issuer of the certificate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// Begin of the validity (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_before: Option<Timestamp>,
    /// End of the validity (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_after: Option<Timestamp>,
    /// Time from which the control servers renew the certificate (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub renew_at: Option<Timestamp>,
}

/// Status of an HttpRoute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteStatus {
    /// Conditions Accepted and ResolvedRefs; Accepted is true if each parent accepts the route.
    pub conditions: Vec<Condition>,
}

/// Status of a TlsRoute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsRouteStatus {
    /// Conditions Accepted and ResolvedRefs; Accepted is true if each parent accepts the route.
    pub conditions: Vec<Condition>,
}

/// Status of an Address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// Condition Announced of the address.
    pub conditions: Vec<Condition>,
    /// Node that announces the address by ARP or NDP, according to its own report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// Time since which the owner announces the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// State of the address on each node that reports one, which is usually a candidate for the address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<Name, AddressReport>,
    /// Nodes that are no candidates for the address, with the reason; at most ten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_candidates: BTreeMap<Name, String>,
    /// Announcement of the address by BGP; absent if no BGP Advertisement covers the address and no node reports a
    /// route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_bgp: Option<AddressByBgp>,
}

/// Announcement of an address by BGP, as the nodes report it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressByBgp {
    /// Number of nodes that announce the address by BGP.
    pub nodes: u32,
    /// Number of routers to which the nodes announce the address.
    pub routers: u32,
    /// Names of the nodes that announce the address, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced_by: Vec<Name>,
    /// Routers to which the address is announced, at most ten: name of the `BgpPeer`, followed by `@` and the
    /// address for dynamic neighbors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced_to: Vec<String>,
    /// Announced prefixes that contain the address, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub prefixes: Vec<IpNet>,
    /// Nodes that have a BGP route for the address but do not announce it, with the reason; at most ten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_by: BTreeMap<Name, String>,
}

/// Sessions of Nodes with a `BgpPeer`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerSessions {
    /// Number of sessions. A peer with dynamic neighbors may have several on one Node.
    pub total: u32,
    /// Number of established sessions.
    pub established: u32,
    /// Sessions by Node, at most 50; `/v1/bgp/sessions` lists all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_node: BTreeMap<Name, Vec<NodeBgpSession>>,
}

/// Session of a Node with a `BgpPeer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeBgpSession {
    /// Address of the neighbor; absent while the address of an unnumbered peer is not yet known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// State of the session.
    pub state: BgpSessionState,
    /// True if the agent of the Node currently reports. If false, the session is shown as in the agent's last
    /// report.
    pub is_reporting: bool,
    /// Time of the last change of `state`.
    pub since: Timestamp,
    /// Reason for the state of the session.
    pub reason: String,
    /// Number of prefixes that the Node announces to the neighbor.
    pub prefixes_sent: u64,
    /// Last NOTIFICATION that the Node sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<BgpError>,
    /// Last NOTIFICATION that the Node received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_received: Option<BgpError>,
    /// Reason why the session is not established, with its remedy; absent if it is established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<BgpTrouble>,
}
