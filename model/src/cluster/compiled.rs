//! Compiled form of a Service: all data that agents need, the same for all nodes.
//!
//! The control server compiles this form and sends it to the agents. Each agent derives from it a packet
//! program (see [`program`](crate::program)) for its own node: the verdict for each new connection. The form
//! has no node-specific parts, so one serialized copy serves all agents.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{
        health_check::HealthCheck,
        maintenance::Maintenance,
        resource::ServiceKey,
        service::{
            ForwardingMethod, Protocol, ProxyProtocol, RemovalPolicy, Scheduler, SchedulerFlag,
            SourceRangesScope, TrafficDistribution, TrafficPolicy,
        },
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, PortRange, Revision, Weight},
    },
};

/// Service with resolved endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompiledService {
    /// Key of the Service.
    pub service: ServiceKey,
    /// Revision of the change that produced this form.
    pub revision: Revision,
    /// Cluster IPs; empty for headless Services.
    #[serde(
        default,
        rename = "clusterIPs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "exact"
    )]
    #[schema(value_type = Vec<String>)]
    pub cluster_ips: Vec<IpAddr>,
    /// IP families in which the node ports of the Service are served.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "exact")]
    pub ip_families: Vec<IpFamily>,
    /// External IPs of the Service.
    #[serde(default, rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub external_ips: Vec<IpAddr>,
    /// Load balancer addresses of the Service.
    #[serde(default, rename = "loadBalancerIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub load_balancer_ips: Vec<IpAddr>,
    /// Client networks that may connect from outside of the cluster. If empty, all networks may connect.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub source_ranges: BTreeSet<IpNet>,
    /// Entries that the source ranges restrict. Agents that do not know the field restrict all external entries.
    #[serde(default, skip_serializing_if = "SourceRangesScope::is_default")]
    pub source_ranges_scope: SourceRangesScope,
    /// Ports that clients connect to, with the endpoints of each.
    #[serde(deserialize_with = "exact")]
    pub ports: Vec<CompiledPort>,
    /// Time in seconds for which a client is sent to the same endpoint after its last new connection; `None`
    /// disables session affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_seconds: Option<u32>,
    /// Policy for traffic from outside of the cluster. With `Local`, only endpoints on the receiving node are
    /// used.
    #[serde(default)]
    pub external_traffic_policy: TrafficPolicy,
    /// Policy for traffic from inside of the cluster. With `Local`, only endpoints on the client's node are used.
    #[serde(default)]
    pub internal_traffic_policy: TrafficPolicy,
    /// Preference for endpoints in the same zone or on the same node; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<TrafficDistribution>,
    /// TCP port at which each node reports over HTTP whether it has endpoints of the Service (KEP-1669).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<Port>,
    /// IPVS scheduler that selects an endpoint. If absent, each proxy mode selects endpoints by their
    /// weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// IPVS flags that modify the scheduler.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scheduler_flags: BTreeSet<SchedulerFlag>,
    /// Method by which packets reach the endpoint.
    #[serde(default)]
    pub forwarding_method: ForwardingMethod,
    /// Version of the PROXY protocol header that carries the client's address to the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Treatment of established connections to removed endpoints.
    #[serde(default)]
    pub removal_policy: RemovalPolicy,
    /// Time in seconds for which established connections to a removed endpoint may continue if the removal
    /// policy is `drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_seconds: Option<u32>,
    /// Health check of the endpoints.
    // Boxed: most Services have none, and every node holds all Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<Box<HealthCheck>>,
    /// Health check by default, for endpoints that nobody else checks. Without effect if `healthCheck` is present.
    #[serde(default, skip_serializing_if = "DefaultCheck::is_off")]
    pub default_check: DefaultCheck,
    /// Nodes of the endpoints, if established connections must survive the loss of an announcing node.
    // Boxed: most Services have none, and every node holds all Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survival: Option<Box<Survival>>,
    /// Settings that no agent of this version implements. A Service with such settings is not programmed, because
    /// it would behave differently from its spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<UnsupportedField>,
}

impl CompiledService {
    /// Creates a Service without addresses or ports, with defaults for all other settings.
    #[must_use]
    pub fn new(service: ServiceKey) -> Self {
        Self {
            service,
            revision: Revision(0),
            cluster_ips: Vec::new(),
            ip_families: Vec::new(),
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: BTreeSet::new(),
            source_ranges_scope: SourceRangesScope::default(),
            ports: Vec::new(),
            affinity_seconds: None,
            external_traffic_policy: TrafficPolicy::default(),
            internal_traffic_policy: TrafficPolicy::default(),
            traffic_distribution: None,
            health_check_node_port: None,
            scheduler: None,
            scheduler_flags: BTreeSet::new(),
            forwarding_method: ForwardingMethod::default(),
            proxy_protocol: None,
            removal_policy: RemovalPolicy::default(),
            drain_seconds: None,
            health_check: None,
            default_check: DefaultCheck::Off,
            survival: None,
            unsupported: Vec::new(),
        }
    }

    /// Returns true if nodes must program the Service. Headless and disabled Services are not programmed.
    #[must_use]
    pub fn is_programmable(&self) -> bool {
        let has_node_port = self.ports.iter().any(|port| port.node_port.is_some());
        let addresses = [&self.cluster_ips, &self.external_ips, &self.load_balancer_ips];
        has_node_port || addresses.iter().any(|addresses| !addresses.is_empty())
    }

    /// Returns true if agents check an endpoint of a port by default: the Service has no health check, the port is a
    /// single TCP port, and the source of the endpoint does not check it.
    #[must_use]
    pub fn is_checked_by_default(&self, port: &CompiledPort, endpoint: &CompiledEndpoint) -> bool {
        self.default_check == DefaultCheck::On
            && self.health_check.is_none()
            && port.may_check_by_default(endpoint)
    }

    /// Returns true if two compiled forms of a Service are equal except for their revision, so that nodes
    /// need no update.
    #[must_use]
    pub fn is_same_for_nodes(&self, other: &Self) -> bool {
        Self { revision: other.revision, ..self.clone() } == *other
    }
}

/// Nodes of the endpoints of a Service whose connections survive the loss of an announcing node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Survival {
    /// Addresses of the Nodes on which endpoints run, by name of the Node, such as `192.0.2.7`.
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub node_addresses: BTreeMap<Name, BTreeSet<IpAddr>>,
}

/// Use of the health check by default for a Service without a health check of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum DefaultCheck {
    /// No endpoint is checked by default, because the setting of the control server is off or because no endpoint
    /// qualifies.
    #[default]
    Off,
    /// Agents connect by TCP to the endpoints of single TCP ports that their source does not check.
    On,
    /// The Service is exempt, whatever the setting of the control server.
    Exempt,
}

impl DefaultCheck {
    // Serde determines the signature.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// Port of a compiled Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompiledPort {
    /// Name of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// Port that clients connect to.
    pub port: Port,
    /// Last port of a range that begins with `port`; absent for a single port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<Port>,
    /// Port at the addresses of every node, if the Service has node ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<Port>,
    /// Endpoints, ordered by address and port, without duplicates.
    #[serde(default, deserialize_with = "exact")]
    pub endpoints: Vec<CompiledEndpoint>,
}

impl CompiledPort {
    /// Returns the range of ports to which clients connect.
    #[must_use]
    pub fn range(&self) -> PortRange {
        PortRange::new(self.port, self.end_port.unwrap_or(self.port))
    }

    /// Returns true if a TCP connection shows that the endpoints of the port serve. The endpoints of a port range need
    /// not listen at each of its ports.
    #[must_use]
    pub fn has_tcp_check(&self) -> bool {
        self.protocol == Protocol::Tcp && self.end_port.is_none()
    }

    /// Returns true if an endpoint of the port qualifies for the health check by default.
    #[must_use]
    pub fn may_check_by_default(&self, endpoint: &CompiledEndpoint) -> bool {
        self.has_tcp_check() && !endpoint.checked_by_source
    }
}

/// Deserializes a list without spare capacity, because agents keep these lists for a long time and never extend
/// them.
fn exact<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let mut list = Vec::deserialize(deserializer)?;
    list.shrink_to_fit();
    Ok(list)
}

/// Endpoint of a compiled port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompiledEndpoint {
    /// IP address of the endpoint, such as `10.1.13.2`.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port at which the endpoint listens.
    pub port: Port,
    /// Node of the endpoint, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Zone of the endpoint, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Share of new connections relative to the other endpoints; 0 while the endpoint drains.
    pub weight: Weight,
    /// True if the endpoint accepts new connections.
    pub ready: bool,
    /// True if the endpoint serves traffic, even while it terminates (KEP-1672).
    pub serving: bool,
    /// True if the endpoint is shutting down.
    pub terminating: bool,
    /// Drain or maintenance of the endpoint. In mode Drain its weight is 0; in mode Maintenance it is neither
    /// ready nor serving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<Maintenance>>,
    /// True if the endpoint is a Workload whose Node is lost: its agent sends no reports. Other nodes then check
    /// the endpoint, which stays in service unless it fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_lost: bool,
    /// True if the source of the endpoint checks it and sets its readiness, such as a kubelet or the engine of a
    /// container with a health check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked_by_source: bool,
}

/// Setting that is not implemented, with a message that names an alternative.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnsupportedField {
    /// Path of the field for users, such as `spec.sessionAffinity`.
    pub field: String,
    /// Description of the missing feature for users.
    pub message: String,
}
