//! The Service: a stable address in front of endpoints. Field names are those of Kubernetes where it has them.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{health_check::HealthCheck, maintenance::Maintenance, metadata::Labels},
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, PortRange},
    },
};

/// Ports of one Service; each becomes kernel entries for every address of the Service.
pub const PORTS_MAX: usize = 100;
/// Addresses in `externalIPs` and entries in `loadBalancerSourceRanges`.
pub const ADDRESSES_MAX: usize = 256;
/// Default and bound of the ClientIP affinity timeout, in seconds (the Kubernetes figures: 3 hours, 1 day).
pub const AFFINITY_TIMEOUT_SECONDS_DEFAULT: u32 = 10_800;
/// Longest ClientIP affinity timeout, in seconds.
pub const AFFINITY_TIMEOUT_SECONDS_MAX: u32 = 86_400;
/// Default and bound of `drainSeconds`: five minutes, one day.
pub const DRAIN_SECONDS_DEFAULT: u32 = 300;
/// Longest drain, in seconds.
pub const DRAIN_SECONDS_MAX: u32 = 86_400;

/// Longest name of a scheduler, in bytes: `IP_VS_SCHEDNAME_MAXLEN` of the kernel without its final zero.
pub const SCHEDULER_LENGTH_MAX: usize = 15;

/// What a Service should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceSpec {
    /// How the Service is exposed.
    #[serde(default, rename = "type")]
    pub service_type: ServiceType,
    /// The first of `clusterIPs`; `None` (the word) makes the Service headless. Allocated when left out.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<ClusterIp>,
    /// The virtual addresses, at most one per family, in the order of `ipFamilies`.
    #[serde(default, rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 2)]
    pub cluster_ips: Vec<ClusterIp>,
    /// The families of the Service, primary first. Chosen by policy and configured ranges when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 2)]
    pub ip_families: Vec<IpFamily>,
    /// How many families: one, two if configured, or two or fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// What clients connect to. May be empty only for headless and ExternalName Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub ports: Vec<ServicePort>,
    /// Labels of the Workloads that are the endpoints. Without it, endpoints come from EndpointSets.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub selector: Labels,
    /// Whether one client stays on one endpoint.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// Settings of the affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Further addresses, routed to the nodes by someone else, at which the Service answers. Only addresses inside the
    /// control server's `--allow-external-ip` ranges are accepted.
    #[serde(default, rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 256)]
    pub external_ips: Vec<IpAddr>,
    /// Sources outside the nodes that may use the load balancer addresses, external IPs and node ports; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 256)]
    pub load_balancer_source_ranges: Vec<IpNet>,
    /// Whether traffic from outside may leave the node it arrived at.
    #[serde(default)]
    pub external_traffic_policy: TrafficPolicy,
    /// Whether traffic from inside may leave the node it started on.
    #[serde(default)]
    pub internal_traffic_policy: TrafficPolicy,
    /// Port at which nodes tell outside balancers whether they have endpoints; only with type LoadBalancer and
    /// `externalTrafficPolicy: Local`, and then allocated from the node ports when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<Port>,
    /// Serve endpoints that are not ready as if they were.
    #[serde(default)]
    pub publish_not_ready_addresses: bool,
    /// Preference for near endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<TrafficDistribution>,
    /// The DNS name an ExternalName Service stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_name: Option<Name>,
    /// Where the load balancer address comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancer>,
    /// Whether a LoadBalancer Service gets node ports; it does when left out. `false` leaves the node ports to others where
    /// traffic comes by load balancer addresses only; ports that are named are opened all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// How an endpoint is chosen for a new connection: at random in proportion to the weights when left out. A node
    /// whose proxy mode has no such scheduler reports the Service as unsupported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// Variants of the scheduler; need `scheduler`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scheduler_flags: BTreeSet<SchedulerFlag>,
    /// How packets reach the endpoint.
    #[serde(default)]
    pub forwarding_method: ForwardingMethod,
    /// Tell the endpoint the client's address by a PROXY protocol header. Only nodes in userspace mode can; the others
    /// report the Service as unsupported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How the agents find out whether an endpoint works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// What happens to established connections of an endpoint that is removed.
    #[serde(default)]
    pub removal_policy: RemovalPolicy,
    /// With `removalPolicy: drain`, how long they may go on, in seconds, 1–86,400; 300 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub drain_seconds: Option<u32>,
    /// Takes all endpoints of the Service out of service; connections are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
    /// Take the Service out of the dataplane but keep its addresses and ports.
    #[serde(default)]
    pub disabled: bool,
}

/// How a Service is exposed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum ServiceType {
    /// A virtual address inside the cluster.
    #[default]
    ClusterIP,
    /// ClusterIP, and a port on every node.
    NodePort,
    /// NodePort, and an address from a pool, announced to the network.
    LoadBalancer,
    /// Only a DNS name for another name; no address, no traffic.
    ExternalName,
}

/// A virtual address, or the word `None` of a headless Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ClusterIp {
    /// Headless: no virtual address.
    None,
    /// A virtual address.
    Address(IpAddr),
}

impl ClusterIp {
    /// The address, unless headless.
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
        text.parse()
            .map(Self::Address)
            .map_err(|_| format!("must be an IP address or the word `None`, not `{text}`"))
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

/// How many IP families a Service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum IpFamilyPolicy {
    /// Exactly one.
    SingleStack,
    /// Two where both are configured, else one.
    PreferDualStack,
    /// Two, or the write is refused.
    RequireDualStack,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServicePort {
    /// Needed, and unique, when there is more than one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// The transport protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// What clients connect to.
    pub port: Port,
    /// The last of a range of ports that begins with `port`; 1 to 65535 are all ports. Clients reach the same port at
    /// the endpoint, so `targetPort` and `nodePort` are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<Port>,
    /// Where endpoints listen: a number, or the name of a Workload's port. Equal to `port` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<TargetPort>,
    /// The port on every node; allocated when left out on NodePort and LoadBalancer Services, unless the port is a
    /// range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<Port>,
}

/// A transport protocol.
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
    /// `TCP`, `UDP` or `SCTP`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// The protocol number of the IP header (IANA).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// Where an endpoint listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "must be a port number between 1 and 65535 or the name of a port")]
pub enum TargetPort {
    /// The same port everywhere.
    Number(Port),
    /// A port that each Workload or EndpointSet gives this name.
    Name(Label),
}

/// Whether one client stays on one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum SessionAffinity {
    /// Each connection is placed anew.
    #[default]
    None,
    /// By the client's address.
    ClientIP,
}

/// Settings of session affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionAffinityConfig {
    /// Settings of ClientIP affinity.
    #[serde(default, rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Settings of ClientIP affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientIpConfig {
    /// How long after its last connection a client stays, in seconds, 1–86,400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub timeout_seconds: Option<u32>,
}

/// Whether traffic may be served by another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum TrafficPolicy {
    /// Any endpoint of the cluster.
    #[default]
    Cluster,
    /// Only endpoints of the same node.
    Local,
}

/// Preference for near endpoints (Kubernetes KEP-4444, KEP-3015).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum TrafficDistribution {
    /// The older name of PreferSameZone.
    PreferClose,
    /// Endpoints of the client's zone while there are any.
    PreferSameZone,
    /// Endpoints of the client's node, then of its zone, while there are any.
    PreferSameNode,
}

/// Where the load balancer address comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadBalancer {
    /// The AddressPool to take it from. When left out, pools whose selectors match the Service are tried first, by
    /// priority, then pools for all Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// These addresses, at most one per family: free addresses of a pool that takes the Service, or of a range of the
    /// control server's `--allow-external-ip` that no pool covers. They stay as written; `status.loadBalancer.ingress`
    /// shows what the Service has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 2)]
    pub addresses: Vec<IpAddr>,
    /// Services with the same key, of any namespace, may share an address: on different ports, with the same
    /// `externalTrafficPolicy`, and when that is Local with the same selector in the same namespace. Without a key an
    /// address belongs to one Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing_key: Option<Name>,
}

/// How an endpoint is chosen; the names are those of IPVS. Any module of the kernel may be named in ipvs mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, min_length = 1, max_length = 15, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", example = "wrr")]
pub struct Scheduler(pub Label);

/// A variant of a scheduler (IPVS: `IP_VS_SVC_F_SCHED1`, `IP_VS_SVC_F_SCHED2`, `IP_VS_SVC_F_ONEPACKET`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SchedulerFlag {
    /// `sh` and `mh`: when the chosen endpoint takes none, another one.
    Fallback,
    /// `sh` and `mh`: the source port counts too.
    Port,
    /// UDP: every packet is scheduled by itself.
    OnePacket,
}

/// How packets reach the endpoint.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ForwardingMethod {
    /// The destination is translated, and the reply translated back.
    #[default]
    Masquerade,
    /// Direct routing: only the link-layer destination changes. No proxy mode of this version does it.
    Direct,
    /// In an IP tunnel. No proxy mode of this version does it.
    Tunnel,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// The text header; TCP only.
    V1,
    /// The binary header.
    V2,
}

/// What happens to established connections of an endpoint that is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RemovalPolicy {
    /// They go on until they end by themselves. UDP flows move at once in every policy.
    #[default]
    Keep,
    /// They go on until the drain deadline.
    Drain,
    /// They are reset.
    Reset,
}

impl ServicePort {
    /// What clients connect to.
    #[must_use]
    pub fn range(&self) -> PortRange {
        PortRange::new(self.port, self.end_port.unwrap_or(self.port))
    }
}

impl ServiceSpec {
    /// Whether the Service has no virtual address by choice.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ip == Some(ClusterIp::None) || self.cluster_ips.first() == Some(&ClusterIp::None)
    }

    /// Whether every node opens a port for the Service.
    #[must_use]
    pub const fn has_node_ports(&self) -> bool {
        match self.service_type {
            ServiceType::NodePort | ServiceType::LoadBalancer => true,
            ServiceType::ClusterIP | ServiceType::ExternalName => false,
        }
    }

    /// Whether a port is opened on every node: a single port of a Service that has node ports, named or to be given.
    #[must_use]
    pub fn has_node_port(&self, port: &ServicePort) -> bool {
        let is_given = self.allocate_load_balancer_node_ports != Some(false);
        self.has_node_ports() && port.end_port.is_none() && (is_given || port.node_port.is_some())
    }

    /// Whether anything but its cluster IPs leads to the Service.
    #[must_use]
    pub fn is_reachable_from_outside(&self) -> bool {
        self.has_node_ports() || !self.external_ips.is_empty()
    }

    /// Whether every node tells outside balancers whether it has endpoints of the Service.
    #[must_use]
    pub fn has_health_check_node_port(&self) -> bool {
        self.service_type == ServiceType::LoadBalancer && self.external_traffic_policy == TrafficPolicy::Local
    }

    /// Whether the Service is only a DNS alias.
    #[must_use]
    pub const fn is_external_name(&self) -> bool {
        matches!(self.service_type, ServiceType::ExternalName)
    }

    /// How long one client stays on one endpoint after its last connection, in seconds; `None` without affinity.
    #[must_use]
    pub fn affinity_seconds(&self) -> Option<u32> {
        let config = self.session_affinity_config.as_ref();
        let timeout = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
        match self.session_affinity {
            SessionAffinity::None => None,
            SessionAffinity::ClientIP => Some(timeout.unwrap_or(AFFINITY_TIMEOUT_SECONDS_DEFAULT)),
        }
    }

    /// The allocated virtual addresses.
    pub fn cluster_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.cluster_ips.iter().filter_map(|cluster_ip| cluster_ip.address())
    }
}
