//! EndpointSet: endpoints given by users or adapters, for Services with or without selector.

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

/// Maximum number of endpoints of a set. A Service may have several sets.
pub const ENDPOINTS_MAX: usize = 1000;

/// Desired state of an EndpointSet: endpoints of one Service and their ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointSetSpec {
    /// Name of the Service in the same namespace that the endpoints belong to, at most 63 characters. The
    /// Service may be created later.
    pub service: Name,
    /// Ports of the endpoints, at most 100. Each serves the Service port with the same name and protocol. If
    /// empty, the endpoints serve each Service port at its numeric `targetPort`, or at the same port number
    /// if the Service port has no `targetPort`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub ports: Vec<EndpointPort>,
    /// Endpoints with distinct addresses, at most 1000. Larger Services have several sets.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub endpoints: Vec<Endpoint>,
}

/// Port of the endpoints of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointPort {
    /// Name of the Service port, such as `http`. Required if the set has more than one port; absent for a
    /// Service with one unnamed port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// Transport protocol of the port: `TCP`, `UDP` or `SCTP`. Default: `TCP`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Port at which the endpoints accept connections, from 1 to 65,535.
    pub port: Port,
}

/// Endpoint of a Service: an address with location, weight and conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    /// Unicast address of the endpoint, IPv4 or IPv6, such as `10.1.13.2`. The endpoint serves virtual addresses
    /// of the same IP family. Loopback, link-local, multicast and cloud metadata addresses and addresses in the
    /// ranges of cluster IPs are rejected.
    #[schema(value_type = String, example = "10.1.13.2")]
    pub address: IpAddr,
    /// Name of the Node on which the endpoint runs; the Node need not exist. The endpoint is local to this
    /// Node for policy `Local` and `PreferSameNode`, and the Node checks its health. Default: no Node; up to
    /// three Nodes check its health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Failure zone of the endpoint, at most 63 characters, such as `zone-a`. A Node prefers endpoints in its
    /// own zone if the Service has a `trafficDistribution`. Not derived from `node`. Default: no zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Host name of the endpoint below the name of a headless Service, at most 63 characters, such as `db-0` for
    /// `db-0.db.shop.svc.cluster.local`. Precedes the name of a Workload with this address. Default: no host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Box<Label>>,
    /// Share of new connections relative to the other endpoints of the Service, from 0 to 65,535. With 0, the
    /// endpoint receives no new connections. Default: 1.
    #[serde(default)]
    pub weight: Weight,
    /// Readiness of the endpoint, as in an EndpointSlice of Kubernetes. Default: ready and serving.
    #[serde(default)]
    pub conditions: EndpointConditions,
    /// True if the endpoint receives no new connections while established ones continue. Same as
    /// `maintenance` with mode `Drain` and no other fields. Default: false.
    #[serde(default)]
    pub drain: bool,
    /// Drain or maintenance of the endpoint. Takes precedence over `drain`. Absent while the endpoint is in
    /// service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<Maintenance>>,
}

/// Readiness of an endpoint, with the conditions of an EndpointSlice of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointConditions {
    /// True if the endpoint accepts new connections. An endpoint that is not ready receives none, unless
    /// `publishNotReadyAddresses` of the Service is true. Not affected by `terminating`: false is expected for an
    /// endpoint that shuts down. Default: true.
    #[serde(default = "yes")]
    pub ready: bool,
    /// True if the endpoint responds while it terminates. Without effect unless `terminating` is true: endpoints
    /// that are serving and terminating are used if no ready endpoint exists (KEP-1669). Default: true.
    #[serde(default = "yes")]
    pub serving: bool,
    /// True if the endpoint is shutting down. Health checks exclude the endpoint; with `serving`, connections
    /// still reach the endpoint if no ready one exists. Default: false.
    #[serde(default)]
    pub terminating: bool,
}

impl Default for EndpointConditions {
    fn default() -> Self {
        Self { ready: true, serving: true, terminating: false }
    }
}

impl Endpoint {
    /// Returns the maintenance that is set on the endpoint itself; if `drain` is true instead, a drain without
    /// deadline.
    #[must_use]
    pub fn own_maintenance(&self) -> Option<&Maintenance> {
        const DRAIN: &Maintenance = &Maintenance::DRAIN;
        self.maintenance.as_deref().or(self.drain.then_some(DRAIN))
    }
}

pub(crate) const fn yes() -> bool {
    true
}
