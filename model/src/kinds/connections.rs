//! Behavior of the established connections of a Service if a node fails.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Behavior of the established connections of a Service if a node fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Connections {
    /// Survival of established connections to the load balancer addresses if the node that announces the address
    /// fails or hands it over: `Never` or `Always`. With `Always`, the announcing node forwards packets to the
    /// nodes of the endpoints, which answer the client directly, and endpoints see the client address. Nodes that
    /// cannot do so, such as nodes in another mode than nftables, serve the Service as with `Never` and report it
    /// (`SurvivalUnavailable`). Only allowed with type LoadBalancer, ports of TCP and UDP without ranges, and
    /// without `externalTrafficPolicy: Local`, session affinity, `trafficDistribution`, `proxyProtocol` and
    /// schedulers other than `mh`. Default: `Never`.
    #[serde(default)]
    pub survive: Survive,
}

impl Connections {
    /// True if the value is the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Survival of established connections if the node that announces the address fails: `Never` or `Always`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Survive {
    /// Connections end with the announcing node, which tracks and masquerades them.
    #[default]
    Never,
    /// Connections survive the loss of every node but the one of their endpoint.
    Always,
}
