//! Health of endpoints in responses of the API: check results of the nodes, the resulting decisions, and the
//! state of the health guard.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::resource::ServiceKey,
    primitives::{
        name::Name,
        quantity::{Port, PortRange, Timestamp},
    },
    wire::report::CheckState,
};

/// Health of a Service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceHealth {
    /// Key of the Service.
    #[schema(value_type = String, example = "default/web")]
    pub service: ServiceKey,
    /// Ports of which all endpoints receive connections, even unhealthy ones, because fewer than `panicThreshold`
    /// percent are healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panic_ports: Vec<String>,
    /// Endpoints in the order of addresses and ports: those that nodes check, and those in use that nobody checks.
    /// Without a health check, nodes check the endpoints on lost Nodes only.
    pub endpoints: Vec<CheckedEndpoint>,
}

/// Endpoint address and port with its health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckedEndpoint {
    /// Address of the endpoint.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port to which the check connects.
    pub port: Port,
    /// Node of the endpoint, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Health according to the majority of the nodes that check the endpoint.
    pub state: HealthState,
    /// Time since which the endpoint has this state; absent if no node has reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Last check result, or the reason why there is none; never empty.
    pub message: String,
    /// Percentage of its weight with which the endpoint is used: 0 while it is out of service, less than 100
    /// during slow start.
    pub share: u8,
    /// True if the endpoint is in service although it is unhealthy, because too many endpoints became unhealthy at
    /// once (health guard).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// True if the Node of the endpoint is lost: its agent is silent, and other nodes check the endpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_lost: bool,
    /// True if the endpoint is in service although it is unhealthy, because no endpoint of the port is healthy: its Node
    /// is lost, or the endpoint is checked by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// True if nodes connect to the endpoint by TCP without a health check of the Service: by default, or because the
    /// Node of the endpoint is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_default: bool,
    /// Nodes that check the endpoint, with their results.
    pub checkers: BTreeMap<Name, Checker>,
}

/// Health of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum HealthState {
    /// Most of the checking nodes report the endpoint as healthy.
    Healthy,
    /// Most of the checking nodes report the endpoint as unhealthy.
    Unhealthy,
    /// The state is undecided, because no majority of the checking nodes reports the endpoint as healthy or
    /// unhealthy.
    Pending,
    /// No node can check the endpoint, or none of the nodes that check it reports. The last decision remains in
    /// force.
    Unknown,
    /// The endpoint is not checked, and it is in use: the Service has no health check, and the source of the endpoint
    /// does not determine its readiness.
    NotChecked,
}

/// Result of one node that checks an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checker {
    /// True if the agent of the node currently reports. Results of silent agents are ignored.
    pub is_reporting: bool,
    /// Last result of the node; absent before the first result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CheckState>,
    /// Time since which the node observes this result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Description of the check that led to the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl CheckedEndpoint {
    /// Returns true if the endpoint is unhealthy: removed from service, or kept in service only by the health
    /// guard or as the last one of a port.
    #[must_use]
    pub const fn is_out(&self) -> bool {
        self.share == 0 || self.held
    }
}

/// Formats a Service port for [`ServiceHealth::panic_ports`], such as `80/TCP`.
pub(crate) fn port_word(range: PortRange, protocol: crate::kinds::service::Protocol) -> String {
    format!("{range}/{}", protocol.as_str())
}

/// State of the health guard, which limits how many endpoints health checks remove from service within a
/// short time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthGuard {
    /// Maximum percentage of the checked endpoints that health checks may remove from service within
    /// `windowSeconds`. 100 disables the guard.
    pub percent: u8,
    /// Time in seconds within which removals of endpoints from service are counted together.
    pub window_seconds: i64,
    /// Number of endpoints with health checks. An endpoint of several Services counts for each of them.
    pub checked: usize,
    /// Number of endpoints that health checks removed from service within the last `windowSeconds`.
    pub left: usize,
    /// Number of unhealthy endpoints that the guard keeps in service.
    pub held_total: usize,
    /// Unhealthy endpoints that the guard keeps in service; at most 1000.
    #[schema(max_items = 1000)]
    pub held: Vec<GuardedEndpoint>,
}

/// Unhealthy endpoint that the health guard keeps in service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HeldEndpoint)]
pub struct GuardedEndpoint {
    /// Service of the endpoint, as `namespace/name`.
    #[schema(value_type = String, example = "default/web")]
    pub service: ServiceKey,
    /// IP address of the endpoint.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port of the health check.
    pub port: Port,
    /// Time since which the guard keeps the endpoint in service.
    pub since: Timestamp,
    /// Result of the failed health check, as text.
    pub message: String,
}
