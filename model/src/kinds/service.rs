//! Service: a stable address in front of endpoints. Fields that Kubernetes has too keep their Kubernetes names.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{
        connections::Connections, health_check::HealthCheck, maintenance::Maintenance, metadata::Labels,
    },
    primitives::{
        app_protocol::AppProtocol,
        domain_name::DomainName,
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, PortRange},
    },
};

/// Maximum number of ports of a Service. The number is limited, because a node programs each port separately
/// for every address of the Service.
pub const PORTS_MAX: usize = 100;
/// Maximum number of entries in `externalIPs` and in `loadBalancerSourceRanges`.
pub const ADDRESSES_MAX: usize = 256;
/// Maximum number of host names of a Service.
pub const HOSTNAMES_MAX: usize = 64;
/// Default timeout of ClientIP affinity in seconds: 3 hours, as in Kubernetes.
pub const AFFINITY_TIMEOUT_SECONDS_DEFAULT: u32 = 10_800;
/// Maximum timeout of ClientIP affinity in seconds: 1 day, as in Kubernetes.
pub const AFFINITY_TIMEOUT_SECONDS_MAX: u32 = 86_400;
/// Default duration of a drain in seconds.
pub const DRAIN_SECONDS_DEFAULT: u32 = 300;
/// Maximum duration of a drain in seconds: one day.
pub const DRAIN_SECONDS_MAX: u32 = 86_400;

/// Maximum length of a scheduler name in bytes: `IP_VS_SCHEDNAME_MAXLEN` of the kernel without the final
/// zero.
pub const SCHEDULER_LENGTH_MAX: usize = 15;

/// Desired state of a Service: its addresses, ports, endpoint selection and traffic policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceSpec {
    /// Exposure of the Service: `ClusterIP` (virtual addresses inside the cluster), `NodePort` (also a port
    /// on every node), `LoadBalancer` (also announced addresses) or `ExternalName` (a DNS alias). A write
    /// that changes the type must also remove the fields that the new type does not allow. Default:
    /// `ClusterIP`.
    #[serde(default, rename = "type")]
    pub service_type: ServiceType,
    /// Primary virtual address: the first of `clusterIPs`. `None` makes the Service headless, without virtual
    /// address; only allowed with type ClusterIP. A requested address must be a free host address in `tidegate-api
    /// --service-cidr`. A different value in an update is rejected, except to or from type ExternalName, which has
    /// no address. Default: an allocated address; in an update, the present one.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<ClusterIp>,
    /// Virtual addresses, at most one per IP family, in the order of `ipFamilies`; each a free host address in
    /// `tidegate-api --service-cidr`. `["None"]` makes the Service headless. If `clusterIP` is also set, it must
    /// equal the first entry. Not allowed with type ExternalName. Default: the present addresses; missing ones are
    /// allocated.
    #[serde(default, rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 2)]
    pub cluster_ips: Vec<ClusterIp>,
    /// IP families of the Service, primary first, such as `["IPv4", "IPv6"]`; at most 2, each with a range in
    /// `tidegate-api --service-cidr`. A second family can be added later, and removed with `ipFamilyPolicy:
    /// SingleStack`. Default: derived from `clusterIPs`, `ipFamilyPolicy` and the configured ranges; in an update,
    /// the present families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 2)]
    pub ip_families: Vec<IpFamily>,
    /// Number of IP families: `SingleStack` (one), `PreferDualStack` (two if both are configured) or
    /// `RequireDualStack` (two; the write is rejected if only one is configured). A change to `SingleStack`
    /// releases the second address. Default: `SingleStack`, or `RequireDualStack` if the request contains two
    /// families; in an update without `ipFamilies`, the present policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// Ports at which clients connect, at most 100. Required unless the Service is headless or has type
    /// ExternalName.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub ports: Vec<ServicePort>,
    /// Labels of the Workloads in the same namespace that are endpoints of the Service, at most 100; a Workload
    /// must have all of them. If empty, endpoints come from EndpointSets only. Endpoints of EndpointSets are
    /// always included. Not allowed with type ExternalName.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub selector: Labels,
    /// Affinity of a client to an endpoint: `None` (each connection is balanced independently) or `ClientIP`
    /// (connections from one client address go to the same endpoint until the timeout, or until the endpoint
    /// leaves service). Each node remembers clients independently and, except in iptables mode, separately for
    /// each address and node port. Default: `None`.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// Settings of the session affinity. Only allowed with `sessionAffinity: ClientIP`. Default: timeout of 10,800
    /// seconds (3 hours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Additional addresses at which nodes accept traffic for the Service, at most 256. The network must route
    /// them to the nodes; Tidegate does not announce them. Each must be in a range of `tidegate-api
    /// --allow-external-ip` and outside all AddressPools; Services may share one if their ports or protocols
    /// differ. Not allowed on headless Services and with type ExternalName.
    #[serde(default, rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 256)]
    pub external_ips: Vec<IpAddr>,
    /// Client networks that may connect to load balancer addresses and, by default, to external IPs and node ports
    /// (see `sourceRangesScope`), at most 256, such as `192.0.2.0/24`. Connections from other sources are dropped
    /// without a response; the node itself may always connect. Only allowed on a Service that is reachable at such
    /// an address. Default: all networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 256)]
    pub load_balancer_source_ranges: Vec<IpNet>,
    /// Entries that `loadBalancerSourceRanges` restricts: `AllExternal` (load balancer addresses, external IPs and
    /// node ports; an IP family without ranges is closed to clients) or `LoadBalancerOnly` (only load balancer
    /// addresses of the IP families that have ranges, as in Kubernetes). `LoadBalancerOnly` requires type
    /// LoadBalancer. Default: `AllExternal`.
    #[serde(default, skip_serializing_if = "SourceRangesScope::is_default")]
    pub source_ranges_scope: SourceRangesScope,
    /// Endpoints for traffic that enters at a node port, an external IP or a load balancer address. `Cluster`: all
    /// endpoints, which see the address of the node instead of the client's. `Local`: for clients outside the
    /// cluster only endpoints on the receiving node, which see the client address (except in userspace mode);
    /// connections are dropped if only other nodes have endpoints. `Local` is rejected on a Service without such a
    /// port or address. Default: `Cluster`.
    #[serde(default)]
    pub external_traffic_policy: TrafficPolicy,
    /// Endpoints for traffic to the cluster IPs: `Cluster` (all endpoints) or `Local` (endpoints on the client's
    /// node only; connections are dropped if only other nodes have endpoints, and refused if no node has any).
    /// Default: `Cluster`.
    #[serde(default)]
    pub internal_traffic_policy: TrafficPolicy,
    /// TCP port at which every node responds over HTTP to health checks of external load balancers: status
    /// 200 if the node has programmed its Services and runs ready endpoints of this Service, otherwise 503;
    /// the body contains the number of these endpoints. Only allowed with type LoadBalancer and
    /// `externalTrafficPolicy: Local`; must be free within `tidegate-api --node-port-range`. Default: an
    /// allocated port; in an update, the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<Port>,
    /// True if endpoints receive connections regardless of their readiness, also before they are ready and while
    /// they terminate. Health checks, drains and maintenance still apply. Default: false.
    #[serde(default)]
    pub publish_not_ready_addresses: bool,
    /// Preference for nearby endpoints: `PreferSameZone` (same zone), `PreferSameNode` (same node, then same
    /// zone) or `PreferClose` (earlier name of `PreferSameZone`). Without a nearby endpoint, all endpoints
    /// are used. Default: no preference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<TrafficDistribution>,
    /// DNS name for which the Service is an alias, in lower case, at most 253 characters, such as
    /// `db.example.com`. Nodes program no rules for such a Service. Required with type ExternalName and not
    /// allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_name: Option<Name>,
    /// Pool, requested addresses, sharing key and DNS weight of the load balancer addresses. Only allowed with type
    /// LoadBalancer. Default: one unshared address from a matching AddressPool for each IP family, or only
    /// for the primary one with `SingleStack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<Box<LoadBalancer>>,
    /// Names outside of the cluster zone, at most 64, such as `www.example.org`, for which `tidegate-dns` answers with
    /// the load balancer addresses that are announced, while an endpoint of their IP family is usable. A DnsZone must
    /// contain the name and allow the namespace; of several Services, the oldest has the name. Only allowed with type
    /// LoadBalancer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub hostnames: Vec<DomainName>,
    /// True if node ports are allocated for a Service of type LoadBalancer. If false, only ports with an
    /// explicit `nodePort` are opened. Only allowed with type LoadBalancer. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// IPVS scheduler that selects an endpoint for a new connection, at most 15 characters, such as `rr`,
    /// `wrr` or `sh`. Nodes whose proxy mode does not support the scheduler report the Service as
    /// unsupported. Default: selection by weight, at random in nftables and iptables mode, and by weighted
    /// round robin in ipvs and userspace mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// Variants of the scheduler: `fallback` and `port` (only for schedulers `sh` and `mh`), and `onePacket`
    /// (only if all ports are UDP). Only allowed with `scheduler`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scheduler_flags: BTreeSet<SchedulerFlag>,
    /// Method by which packets reach the endpoint: `masquerade` (destination NAT), `direct` (direct routing) or
    /// `tunnel` (IP tunnel). No proxy mode supports `direct` and `tunnel` yet; a Service with one of them is not
    /// programmed. Default: `masquerade`.
    #[serde(default)]
    pub forwarding_method: ForwardingMethod,
    /// Version of the PROXY protocol header with which the endpoint receives the client address: `v1` (TCP
    /// only) or `v2` (TCP and UDP). Supported in userspace mode only; nodes in other modes report the Service
    /// as unsupported. Default: no header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Behavior of established connections if a node fails. Default: they end with the node that announces the
    /// address.
    #[serde(default, skip_serializing_if = "Connections::is_default")]
    pub connections: Connections,
    /// Active health check of the endpoints. Unhealthy endpoints receive no connections. Not allowed without
    /// `ports` and with type ExternalName. Default: no check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<Box<HealthCheck>>,
    /// Treatment of established connections of a removed endpoint: `keep` (they continue), `drain` (they
    /// continue for `drainSeconds`) or `reset` (they end at once). UDP flows move to another endpoint at once
    /// in all cases. Default: `keep`.
    #[serde(default)]
    pub removal_policy: RemovalPolicy,
    /// Time in seconds for which established connections to a removed endpoint continue before they are
    /// reset, from 1 to 86,400. Only allowed with `removalPolicy: drain`. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub drain_seconds: Option<u32>,
    /// Drain or maintenance of all endpoints of the Service. New connections are refused while it is set. Default:
    /// none, the endpoints are in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<Maintenance>>,
    /// True if nodes do not program the Service. The addresses and ports of the Service stay allocated. Default:
    /// false.
    #[serde(default)]
    pub disabled: bool,
}

/// Exposure of a Service: `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`. `NodePort` includes the
/// exposure of `ClusterIP`, and `LoadBalancer` that of `NodePort`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ServiceType {
    /// Virtual addresses inside the cluster.
    #[default]
    ClusterIP,
    /// Virtual addresses as with `ClusterIP`, and a port on every node.
    NodePort,
    /// Virtual addresses and node ports as with `NodePort`, and addresses that are announced to the network.
    LoadBalancer,
    /// Alias for a DNS name. The Service has no virtual address, and nodes do not proxy it.
    ExternalName,
}

/// Virtual address, or `None` for a headless Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ClusterIp {
    /// Headless Service without a virtual address (`None` in `clusterIP`).
    None,
    /// Virtual address of the Service.
    Address(IpAddr),
}

impl ClusterIp {
    /// Returns the address, or `None` if the Service is headless.
    #[must_use]
    pub const fn address(self) -> Option<IpAddr> {
        match self {
            Self::None => None,
            Self::Address(address) => Some(address),
        }
    }
}

impl TryFrom<String> for ClusterIp {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text == "None" {
            return Ok(Self::None);
        }
        text.parse().map(Self::Address).map_err(|_| format!("must be an IP address or `None`, not `{text}`"))
    }
}

impl From<ClusterIp> for String {
    fn from(cluster_ip: ClusterIp) -> Self {
        match cluster_ip {
            ClusterIp::None => "None".to_owned(),
            ClusterIp::Address(address) => address.to_string(),
        }
    }
}

/// Number of IP families of a Service: `SingleStack` (one), `PreferDualStack` (two if both are configured) or
/// `RequireDualStack` (two, or the write is rejected).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum IpFamilyPolicy {
    /// One IP family.
    SingleStack,
    /// Two IP families if the cluster has Service ranges of both, otherwise one.
    PreferDualStack,
    /// Two IP families; the write is rejected if the cluster has a Service range of only one.
    RequireDualStack,
}

/// Port, or range of ports, of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServicePort {
    /// Name of the port, unique within the Service, at most 63 characters, such as `http`. An EndpointSet
    /// with `ports` serves this port by its entry of the same name. Required if the Service has more than one
    /// port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// Transport protocol of the port: `TCP`, `UDP` or `SCTP`. Nodes in userspace mode reject connections
    /// to SCTP ports and report them as unsupported. Default: `TCP`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Port at which clients connect, from 1 to 65,535. The first port of the range if `endPort` is set.
    /// Protocol and port are unique within the Service.
    pub port: Port,
    /// Last port of a range that starts at `port`, not less than `port`; `port: 1` with `endPort: 65535`
    /// covers all ports. The destination port is preserved, so `targetPort` and `nodePort` are not allowed.
    /// Nodes in ipvs mode support ranges of at most 256 ports. Default: a single port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<Port>,
    /// Port of the endpoints: a number from 1 to 65,535, or the name of a port of the Workloads, such as `http`. A
    /// Workload without a port of this name and protocol is no endpoint of the port. EndpointSets use their own
    /// ports; without any, they serve the port only if `targetPort` is a number or absent. Default: `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<TargetPort>,
    /// Port on every node, within `tidegate-api --node-port-range` (30000 to 32767 by default) and free for the
    /// protocol in the whole cluster. Not allowed on ranges and on types other than NodePort and LoadBalancer.
    /// Default: an allocated port (none with `allocateLoadBalancerNodePorts: false`); in an update, the present
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<Port>,
    /// Protocol that the endpoints use over the connections. Gateways send HTTP/2 without TLS to ports with
    /// `kubernetes.io/h2c`, and no requests to ports with `https` or `kubernetes.io/wss`. Other values are
    /// informational. Default: unknown; gateways send HTTP/1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<AppProtocol>,
}

/// Transport protocol: `TCP`, `UDP` or `SCTP`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// Transmission Control Protocol.
    #[default]
    Tcp,
    /// User Datagram Protocol.
    Udp,
    /// Stream Control Transmission Protocol.
    Sctp,
}

impl Protocol {
    /// Returns the protocol as in Kubernetes: `TCP`, `UDP` or `SCTP`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Returns the protocol number of the IP header (IANA).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// Port of the endpoints: a number from 1 to 65,535, or the name of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "must be a port number between 1 and 65535 or the name of a port")]
pub enum TargetPort {
    /// The endpoints serve the contained port number.
    Number(Port),
    /// Each Workload or EndpointSet defines the port number under the contained name.
    Name(Label),
}

/// Affinity of a client to an endpoint: `None`, or `ClientIP` (by client address).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum SessionAffinity {
    /// The endpoint is selected independently for each connection.
    #[default]
    None,
    /// Connections from one client address go to the same endpoint.
    ClientIP,
}

/// Settings of the session affinity of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionAffinityConfig {
    /// Settings of `ClientIP` affinity. Default: timeout of 10,800 seconds (3 hours).
    #[serde(default, rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Timeout of `ClientIP` affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientIpConfig {
    /// Time in seconds after the last connection of a client for which new connections of the client go to
    /// the same endpoint, from 1 to 86,400. Default: 10,800 (3 hours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub timeout_seconds: Option<u32>,
}

/// Endpoints that receive traffic: `Cluster` (all endpoints) or `Local` (endpoints on the same node only).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum TrafficPolicy {
    /// All endpoints of the Service in the cluster.
    #[default]
    Cluster,
    /// Only endpoints on the node that handles the connection.
    Local,
}

/// Entries that the source ranges of a Service restrict: `AllExternal` or `LoadBalancerOnly`. Source ranges never
/// restrict cluster IPs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum SourceRangesScope {
    /// Load balancer addresses, external IPs and node ports. If the Service has no range of an IP family, no client
    /// of this family may connect.
    #[default]
    AllExternal,
    /// Load balancer addresses only. If the Service has no range of an IP family, all clients of this family may
    /// connect, as in Kubernetes.
    LoadBalancerOnly,
}

impl SourceRangesScope {
    /// True if the value is the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Preference for nearby endpoints (Kubernetes KEP-4444, KEP-3015): `PreferSameZone`, `PreferSameNode`, or
/// `PreferClose`, the earlier name of `PreferSameZone`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum TrafficDistribution {
    /// Earlier name of `PreferSameZone`.
    PreferClose,
    /// Endpoints in the zone of the client's node if there are any, otherwise all.
    PreferSameZone,
    /// Endpoints on the client's node if there are any, otherwise those in its zone, otherwise all.
    PreferSameNode,
}

/// Pool, requested addresses, sharing key and DNS weight for the load balancer addresses of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadBalancer {
    /// Name of the AddressPool to allocate from. Default: the pools with `autoAssign` that accept the Service.
    /// Pools with `namespaces` or `serviceSelectors` are tried before pools for all Services, in the order of
    /// `priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// Requested addresses, at most one per IP family, such as `["192.0.2.10"]`. Each must be free in a pool
    /// that accepts the Service, or lie in a range of `tidegate-api --allow-external-ip` outside all pools.
    /// The assigned addresses are in `status.loadBalancer.ingress`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 2)]
    pub addresses: Vec<IpAddr>,
    /// Key for sharing an address. Services with the same key, also in different namespaces, may share an
    /// address if their ports differ and their `externalTrafficPolicy` is equal; with `Local`, selector and
    /// namespace must be equal too. Default: addresses are not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing_key: Option<Name>,
    /// Share of the answers of `tidegate-dns` with the addresses of this Service, relative to other Services at the
    /// same host name (an HttpRoute at several Gateways), from 0 (only without others) to 65,535. Default: 1 if another
    /// one has a weight; otherwise answers have the addresses of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 65535)]
    pub dns_weight: Option<u16>,
}

/// Name of an IPVS scheduler, at most 15 characters, such as `wrr`. In ipvs mode, the name of any scheduler module
/// of the kernel is accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, min_length = 1, max_length = 15, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", example = "wrr")]
pub struct Scheduler(pub Label);

/// Variant of a scheduler: `fallback` (for `sh` and `mh`: another endpoint is selected if the first is
/// unavailable), `port` (for `sh` and `mh`: the hash includes the source port) or `onePacket` (for UDP: each
/// packet is scheduled independently). They correspond to the IPVS flags `IP_VS_SVC_F_SCHED1`,
/// `IP_VS_SVC_F_SCHED2` and `IP_VS_SVC_F_ONEPACKET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SchedulerFlag {
    /// Schedulers `sh` and `mh`: another endpoint is selected if the first is unavailable.
    Fallback,
    /// Schedulers `sh` and `mh`: the source port is part of the hash.
    Port,
    /// Each UDP packet is scheduled independently.
    OnePacket,
}

/// Method by which packets reach the endpoint: `masquerade` (destination NAT), `direct` (direct routing) or
/// `tunnel` (IP tunnel).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ForwardingMethod {
    /// Destination NAT; the node translates the replies back.
    #[default]
    Masquerade,
    /// Direct routing: only the link-layer destination of the packet changes. Not supported by any proxy mode yet.
    Direct,
    /// Encapsulation in an IP tunnel. Not supported by any proxy mode yet.
    Tunnel,
}

/// Version of the PROXY protocol header: `v1` (text) or `v2` (binary).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// Text header; TCP only.
    V1,
    /// Binary header; TCP and UDP.
    V2,
}

/// Treatment of established connections of a removed endpoint: `keep` (they continue), `drain` (they continue for
/// a limited time) or `reset` (they end at once).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RemovalPolicy {
    /// Connections continue until they end by themselves. UDP flows move to another endpoint at once under every
    /// policy.
    #[default]
    Keep,
    /// Connections continue for `drainSeconds`, then they are ended.
    Drain,
    /// Connections are reset at once.
    Reset,
}

impl ServicePort {
    /// Returns the ports to which clients connect: `port` alone, or the range from `port` to `endPort`.
    #[must_use]
    pub fn range(&self) -> PortRange {
        PortRange::new(self.port, self.end_port.unwrap_or(self.port))
    }
}

impl ServiceSpec {
    /// True if the Service is headless: `clusterIP` is `None`, so that it has no virtual address.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ip == Some(ClusterIp::None) || self.cluster_ips.first() == Some(&ClusterIp::None)
    }

    /// True if the type of the Service includes node ports.
    #[must_use]
    pub const fn has_node_ports(&self) -> bool {
        match self.service_type {
            ServiceType::NodePort | ServiceType::LoadBalancer => true,
            ServiceType::ClusterIP | ServiceType::ExternalName => false,
        }
    }

    /// True if every node opens a port for this Service port: the port is not a range, and its node port is given
    /// or will be allocated.
    #[must_use]
    pub fn has_node_port(&self, port: &ServicePort) -> bool {
        let is_given = self.allocate_load_balancer_node_ports != Some(false);
        self.has_node_ports() && port.end_port.is_none() && (is_given || port.node_port.is_some())
    }

    /// True if the Service is reachable at addresses or ports other than its cluster IPs: external IPs, load
    /// balancer addresses or node ports.
    #[must_use]
    pub fn is_reachable_from_outside(&self) -> bool {
        self.has_node_ports() || !self.external_ips.is_empty()
    }

    /// True if every node has a health check node port for the Service, at which it responds to external load
    /// balancers.
    #[must_use]
    pub fn has_health_check_node_port(&self) -> bool {
        self.service_type == ServiceType::LoadBalancer && self.external_traffic_policy == TrafficPolicy::Local
    }

    /// True if the Service is only a DNS alias.
    #[must_use]
    pub const fn is_external_name(&self) -> bool {
        matches!(self.service_type, ServiceType::ExternalName)
    }

    /// Returns the timeout of the session affinity in seconds, or `None` without affinity.
    #[must_use]
    pub fn affinity_seconds(&self) -> Option<u32> {
        let config = self.session_affinity_config.as_ref();
        let timeout = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
        match self.session_affinity {
            SessionAffinity::None => None,
            SessionAffinity::ClientIP => Some(timeout.unwrap_or(AFFINITY_TIMEOUT_SECONDS_DEFAULT)),
        }
    }

    /// Returns the allocated cluster IPs; none for a headless Service.
    pub fn cluster_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.cluster_ips.iter().filter_map(|cluster_ip| cluster_ip.address())
    }
}
