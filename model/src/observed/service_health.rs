//! The health of a Service's endpoints as it is shown: what the nodes say, and what was made of it.

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

/// The health of a Service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceHealth {
    /// Which Service.
    #[schema(value_type = String, example = "default/web")]
    pub service: ServiceKey,
    /// Ports of which all endpoints are used because fewer than `panicThreshold` percent of them are healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panic_ports: Vec<String>,
    /// What is checked, in the order of addresses and ports; empty when the Service has no health check.
    pub endpoints: Vec<CheckedEndpoint>,
}

/// An address and a port that is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckedEndpoint {
    /// The endpoint's address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The port of the check.
    pub port: Port,
    /// The endpoint's Node, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// What most of the nodes that check it hold of it.
    pub state: HealthState,
    /// Since when, if somebody says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The last result in words, or why there is none; never empty.
    pub message: String,
    /// How much of its weight counts by its health, in percent: 0 while it is out of service, less than 100 while its share
    /// grows again.
    pub share: u8,
    /// Whether it is used although it is unhealthy, because too many became so at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// The nodes that check it, and what each of them says.
    pub checkers: BTreeMap<Name, Checker>,
}

/// What is held of the health of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum HealthState {
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Not decided yet: too few answers, or the nodes that check it do not agree.
    Pending,
    /// No node that checks it reports; what was decided last holds.
    Unknown,
}

/// What one node says of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checker {
    /// Whether its agent reports; the word of one that does not counts no longer.
    pub is_reporting: bool,
    /// What it holds of the endpoint; nothing before it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CheckState>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The result that led there, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl CheckedEndpoint {
    /// Whether health checks keep it from taking connections, or would if the guard let them.
    #[must_use]
    pub const fn is_out(&self) -> bool {
        self.share == 0 || self.held
    }
}

/// The word for a port of a Service in [`ServiceHealth::panic_ports`].
pub(crate) fn port_word(range: PortRange, protocol: crate::kinds::service::Protocol) -> String {
    format!("{range}/{}", protocol.as_str())
}
