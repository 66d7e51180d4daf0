//! A compiled Service: everything any node needs to know about one Service, the same for all nodes.
//!
//! Control compiles it, the feed carries it, the agent turns it into a packet program (`program`) for its own node. It
//! holds no node's view, so that one serialised copy serves every agent.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    name::{Label, Name},
    net::IpFamily,
    quantity::{Port, Revision, Weight},
    resource::ServiceKey,
    service::{Protocol, RemovalPolicy, SessionAffinity, TrafficPolicy},
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
    #[serde(default, rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub cluster_ips: Vec<IpAddr>,
    /// The families of the node ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_families: Vec<IpFamily>,
    /// Further addresses at which the Service answers.
    #[serde(default, rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub external_ips: Vec<IpAddr>,
    /// What clients connect to, with the endpoints of each port.
    pub ports: Vec<CompiledPort>,
    /// Whether one client stays on one endpoint.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// Whether traffic from outside may leave the node.
    #[serde(default)]
    pub external_traffic_policy: TrafficPolicy,
    /// Whether traffic from inside may leave the node.
    #[serde(default)]
    pub internal_traffic_policy: TrafficPolicy,
    /// What happens to established connections of removed endpoints.
    #[serde(default)]
    pub removal_policy: RemovalPolicy,
    /// Settings that no agent of this version carries out; with any of these the Service is not programmed at all,
    /// because leaving them out would do something else than what was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<UnsupportedField>,
}

impl CompiledService {
    /// Whether any node has something to program for it; headless and disabled Services need nothing.
    #[must_use]
    pub fn is_programmable(&self) -> bool {
        let has_node_port = self.ports.iter().any(|port| port.node_port.is_some());
        has_node_port || !self.cluster_ips.is_empty() || !self.external_ips.is_empty()
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
    /// The port on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<Port>,
    /// The endpoints, ordered by address and port, without duplicates.
    #[serde(default)]
    pub endpoints: Vec<CompiledEndpoint>,
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
