//! A compiled Service: everything any node needs to know about one Service, the same for all nodes.
//!
//! Control compiles it, the feed carries it, the agent turns it into a packet program (`program`) for its own node. It
//! holds no node's view, so that one serialised copy serves every agent.

use std::{collections::BTreeSet, net::IpAddr};

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
            TrafficDistribution, TrafficPolicy,
        },
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, PortRange, Revision, Weight},
    },
};

/// One Service with its endpoints resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompiledService {
    /// Which Service.
    pub service: ServiceKey,
    /// The revision whose change made this compiled form.
    pub revision: Revision,
    /// The virtual addresses; empty for headless Services.
    #[serde(
        default,
        rename = "clusterIPs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "exact"
    )]
    #[schema(value_type = Vec<String>)]
    pub cluster_ips: Vec<IpAddr>,
    /// The families of the node ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "exact")]
    pub ip_families: Vec<IpFamily>,
    /// Further addresses at which the Service answers.
    #[serde(default, rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub external_ips: Vec<IpAddr>,
    /// The load balancer addresses.
    #[serde(default, rename = "loadBalancerIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub load_balancer_ips: Vec<IpAddr>,
    /// Sources that may connect from outside; empty means all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub source_ranges: BTreeSet<IpNet>,
    /// What clients connect to, with the endpoints of each port.
    #[serde(deserialize_with = "exact")]
    pub ports: Vec<CompiledPort>,
    /// How long one client stays on one endpoint after its last connection, in seconds; `None`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_seconds: Option<u32>,
    /// Whether traffic from outside may leave the node.
    #[serde(default)]
    pub external_traffic_policy: TrafficPolicy,
    /// Whether traffic from inside may leave the node.
    #[serde(default)]
    pub internal_traffic_policy: TrafficPolicy,
    /// Preference for near endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<TrafficDistribution>,
    /// Where each node says whether it has endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<Port>,
    /// How an endpoint is chosen; at random by weight when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// Variants of the scheduler.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scheduler_flags: BTreeSet<SchedulerFlag>,
    /// How packets reach the endpoint.
    #[serde(default)]
    pub forwarding_method: ForwardingMethod,
    /// How the endpoint is told the client's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// What happens to established connections of removed endpoints.
    #[serde(default)]
    pub removal_policy: RemovalPolicy,
    /// How long they may go on with the policy `drain`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_seconds: Option<u32>,
    /// How the endpoints are checked.
    // Most Services say nothing of it, and every node holds all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<Box<HealthCheck>>,
    /// Settings that no agent of this version carries out; with any of these the Service is not programmed at all,
    /// because leaving them out would do something else than what was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<UnsupportedField>,
}

impl CompiledService {
    /// A Service without addresses, ports and settings.
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
            unsupported: Vec::new(),
        }
    }

    /// Whether any node has something to program for it; headless and disabled Services need nothing.
    #[must_use]
    pub fn is_programmable(&self) -> bool {
        let has_node_port = self.ports.iter().any(|port| port.node_port.is_some());
        let addresses = [&self.cluster_ips, &self.external_ips, &self.load_balancer_ips];
        has_node_port || addresses.iter().any(|addresses| !addresses.is_empty())
    }

    /// Whether two compiled forms tell a node the same, whatever made them.
    #[must_use]
    pub fn is_same_for_nodes(&self, other: &Self) -> bool {
        Self { revision: other.revision, ..self.clone() } == *other
    }
}

/// One port of a compiled Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompiledPort {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// The transport protocol.
    pub protocol: Protocol,
    /// What clients connect to.
    pub port: Port,
    /// The last of a range of ports that begins with `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<Port>,
    /// The port on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<Port>,
    /// The endpoints, ordered by address and port, without duplicates.
    #[serde(default, deserialize_with = "exact")]
    pub endpoints: Vec<CompiledEndpoint>,
}

impl CompiledPort {
    /// What clients connect to.
    #[must_use]
    pub fn range(&self) -> PortRange {
        PortRange::new(self.port, self.end_port.unwrap_or(self.port))
    }
}

/// Reads a list without room for more: agents keep these lists for long and never add to them.
fn exact<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let mut list = Vec::deserialize(deserializer)?;
    list.shrink_to_fit();
    Ok(list)
}

/// One endpoint of a compiled port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompiledEndpoint {
    /// Its address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Where it listens.
    pub port: Port,
    /// Its Node, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Its zone, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Its share of new connections; 0 while it drains.
    pub weight: Weight,
    /// Takes new connections.
    pub ready: bool,
    /// Answers.
    pub serving: bool,
    /// Is on its way out.
    pub terminating: bool,
    /// Is taken out of service: with mode Drain its weight is 0, with mode Maintenance it neither takes connections nor
    /// answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<Maintenance>>,
}

/// A setting that is not carried out, and what it would have to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnsupportedField {
    /// The field, as a path a person reads, such as `spec.sessionAffinity`.
    pub field: String,
    /// What is not there, in words.
    pub message: String,
}
