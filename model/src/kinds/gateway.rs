//! Gateway: listeners at which `tidegate-gateway` accepts HTTP requests. Names and shapes are those of the Gateway API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{hostname_pattern::HostnamePattern, name::Label, quantity::Port};

/// Maximum number of listeners of a Gateway, as in the Gateway API.
pub const LISTENERS_MAX: usize = 64;

/// Desired state of a Gateway: the ports and host names at which gateways accept requests, and the namespaces whose
/// HttpRoutes may attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewaySpec {
    /// Listeners, from 1 to 64, each with a different name, and each with a different pair of port and host name.
    #[schema(min_items = 1, max_items = 64)]
    pub listeners: Vec<GatewayListener>,
}

/// Port and host name at which a Gateway accepts requests. A request belongs to the listener of its port with the most
/// specific host name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayListener {
    /// Name of the listener, unique within the Gateway, such as `http`.
    pub name: Label,
    /// TCP port at which the gateways listen, from 1 to 65,535.
    pub port: Port,
    /// Protocol of the listener. Only `HTTP` is supported.
    pub protocol: ListenerProtocol,
    /// Host name of the requests, such as `www.example.org` or `*.example.org`. Default: every host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<HostnamePattern>,
    /// HttpRoutes that may attach to the listener. Default: those in the namespace of the Gateway.
    #[serde(default, skip_serializing_if = "AllowedRoutes::is_default")]
    pub allowed_routes: AllowedRoutes,
}

/// Protocol of a listener: `HTTP`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, strum::Display,
)]
pub enum ListenerProtocol {
    /// HTTP/1.1 without encryption.
    #[serde(rename = "HTTP")]
    #[strum(serialize = "HTTP")]
    Http,
}

/// HttpRoutes that may attach to a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedRoutes {
    /// Namespaces of the HttpRoutes. Default: the namespace of the Gateway.
    #[serde(default)]
    pub namespaces: RouteNamespaces,
}

impl AllowedRoutes {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Namespaces whose HttpRoutes may attach to a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteNamespaces {
    /// Selection of the namespaces: `Same` or `All`. Default: `Same`.
    #[serde(default)]
    pub from: NamespacesFrom,
}

/// Selection of namespaces: `Same` or `All`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
pub enum NamespacesFrom {
    /// The namespace of the Gateway.
    #[default]
    Same,
    /// Every namespace.
    All,
}
