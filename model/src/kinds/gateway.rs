//! Gateway: listeners at which `tidegate-gateway` accepts HTTP requests. Names and shapes are those of the Gateway API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    hostname_pattern::HostnamePattern,
    name::{Label, Name},
    quantity::Port,
};

/// Maximum number of listeners of a Gateway, as in the Gateway API.
pub const LISTENERS_MAX: usize = 64;
/// Maximum number of Certificates that a listener names, as in the Gateway API.
pub const CERTIFICATE_REFS_MAX: usize = 64;

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
    /// Protocol of the listener: `HTTP`, or `HTTPS`, which requires `tls`. All listeners of a port have the same protocol.
    pub protocol: ListenerProtocol,
    /// Host name of the requests, such as `www.example.org` or `*.example.org`. Default: every host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<HostnamePattern>,
    /// TLS settings of a listener with protocol `HTTPS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// HttpRoutes that may attach to the listener. Default: those in the namespace of the Gateway.
    #[serde(default, skip_serializing_if = "AllowedRoutes::is_default")]
    pub allowed_routes: AllowedRoutes,
}

/// TLS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenerTls {
    /// Mode of TLS. Default: `Terminate`, the only one that is supported.
    #[serde(default)]
    pub mode: TlsMode,
    /// Certificates of the listener, from 1 to 64. A connection gets the first one that is valid for its server name, or
    /// else the first one.
    #[schema(min_items = 1, max_items = 64)]
    pub certificate_refs: Vec<CertificateRef>,
}

/// Mode of TLS of a listener: `Terminate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
pub enum TlsMode {
    /// The gateway decrypts connections, with TLS 1.2 or 1.3.
    #[default]
    Terminate,
}

/// Reference to a Certificate in the namespace of the Gateway.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateRef {
    /// Name of the Certificate.
    pub name: Name,
}

/// Protocol of a listener: `HTTP` or `HTTPS`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, strum::Display,
)]
pub enum ListenerProtocol {
    /// HTTP/1.1 or HTTP/2 without encryption.
    #[serde(rename = "HTTP")]
    #[strum(serialize = "HTTP")]
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS.
    #[serde(rename = "HTTPS")]
    #[strum(serialize = "HTTPS")]
    Https,
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
