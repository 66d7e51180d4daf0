//! The EndpointSet: endpoints given by hand or by an adapter, for a Service that has no selector or besides it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{maintenance::Maintenance, service::Protocol},
    primitives::{
        name::{Label, Name},
        quantity::{Port, Weight},
    },
};

/// Endpoints in one set. Several sets may serve one Service.
pub const ENDPOINTS_MAX: usize = 1000;

/// Endpoints of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointSetSpec {
    /// The Service of the same namespace that these endpoints serve. It need not exist yet.
    pub service: Name,
    /// Where the endpoints listen. A port belongs to the Service port of the same name and protocol; when empty, each
    /// Service port is served at its numeric `targetPort`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub ports: Vec<EndpointPort>,
    /// The endpoints.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub endpoints: Vec<Endpoint>,
}

/// Where the endpoints of a set listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointPort {
    /// The name of the Service port; left out for a Service whose only port has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// The transport protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// The port at the endpoint.
    pub port: Port,
}

/// One endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    /// Unicast address; never loopback, link-local, multicast, or inside the Service ranges.
    #[schema(value_type = String, example = "10.1.13.2")]
    pub address: IpAddr,
    /// The Node it runs on, if it runs on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Its failure zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Its share of new connections.
    #[serde(default)]
    pub weight: Weight,
    /// What is known about it.
    #[serde(default)]
    pub conditions: EndpointConditions,
    /// Take no new connections; established ones go on. Short for `maintenance` with mode Drain and nothing else.
    #[serde(default)]
    pub drain: bool,
    /// Takes it out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
}

/// What is known about an endpoint (the EndpointSlice conditions). A condition left out counts as good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointConditions {
    /// Takes new connections.
    #[serde(default = "yes")]
    pub ready: bool,
    /// Answers, also while it terminates.
    #[serde(default = "yes")]
    pub serving: bool,
    /// Is on its way out.
    #[serde(default)]
    pub terminating: bool,
}

impl Default for EndpointConditions {
    fn default() -> Self {
        Self { ready: true, serving: true, terminating: false }
    }
}

impl Endpoint {
    /// What it itself says of being taken out of service.
    #[must_use]
    pub fn own_maintenance(&self) -> Option<&Maintenance> {
        const DRAIN: &Maintenance = &Maintenance::DRAIN;
        self.maintenance.as_ref().or(self.drain.then_some(DRAIN))
    }
}

pub(crate) const fn yes() -> bool {
    true
}
