//! TlsRoute: backend Services for TLS connections by their server name. Names and shapes are those of the Gateway API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::http_route::ParentRef;
use crate::primitives::{
    hostname_pattern::HostnamePattern,
    name::{Label, Name},
    quantity::Port,
};

/// Maximum number of rules of a TlsRoute, as in the Gateway API: a rule has no conditions, so that only the first one would
/// ever apply.
pub const TLS_ROUTE_RULES_MAX: usize = 1;

/// Desired state of a TlsRoute: the Gateways to which it attaches, the server names of its connections, and the Services that
/// receive them. It attaches to listeners with protocol `TLS`: with mode `Passthrough`, endpoints receive the connection
/// unchanged and terminate TLS themselves; with mode `Terminate`, they receive the decrypted bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsRouteSpec {
    /// Gateways or listeners to which the route attaches, from 1 to 32.
    #[schema(min_items = 1, max_items = 32)]
    pub parent_refs: Vec<ParentRef>,
    /// Server names of the connections (SNI, RFC 6066 §3), at most 16. A listener with a host name serves the names that both
    /// have. Default: the host names of the listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub hostnames: Vec<HostnamePattern>,
    /// Rules, exactly 1: all connections of the route have the same backends.
    #[schema(min_items = 1, max_items = 1)]
    pub rules: Vec<TlsRouteRule>,
}

/// Rule of a TlsRoute: the Services that receive its connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsRouteRule {
    /// Name of the rule, for explanations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Label>,
    /// Services that receive the connections in proportion to their weights, from 1 to 16. The share of a Service that does not
    /// exist or has no endpoint in service is closed.
    #[schema(min_items = 1, max_items = 16)]
    pub backend_refs: Vec<TlsBackendRef>,
}

/// Service in the namespace of the route that receives TLS connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsBackendRef {
    /// Name of the Service.
    pub name: Name,
    /// Port of the Service, with protocol TCP.
    pub port: Port,
    /// Share of the connections relative to the other backends, from 0 to 1,000,000. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schema(minimum = 0, maximum = 1_000_000, default = 1)]
    pub weight: u32,
}

const fn one() -> u32 {
    1
}

// Serde determines the signature.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_one(weight: &u32) -> bool {
    *weight == 1
}
