//! Gateway: listeners at which `tidegate-gateway` accepts HTTP requests and TLS connections. Names and shapes are those of the Gateway API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    hostname_pattern::HostnamePattern,
    name::{Label, Name, Namespace},
    quantity::Port,
};

/// Maximum number of listeners of a Gateway, as in the Gateway API.
pub const LISTENERS_MAX: usize = 64;
/// Maximum number of Certificates that a listener names, as in the Gateway API.
pub const CERTIFICATE_REFS_MAX: usize = 64;

/// Desired state of a Gateway: the ports and host names at which gateways accept requests and connections, and the namespaces
/// whose HttpRoutes and TlsRoutes may attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewaySpec {
    /// Listeners, from 1 to 64, each with a different name, and each with a different pair of port and host name.
    #[schema(min_items = 1, max_items = 64)]
    pub listeners: Vec<GatewayListener>,
    /// Service whose load balancer addresses lead to the gateways, and with which `tidegate-dns` answers the host names of the
    /// listeners and their routes. Default: the Service with the namespace and name of the Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_by: Option<ServiceRef>,
}

/// Reference to a Service, which need not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceRef {
    /// Namespace of the Service. Default: the namespace of the object with the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Name of the Service.
    pub name: Name,
}

/// Port and host name at which a Gateway accepts requests or connections. A request, or a connection with TLS, belongs to the
/// listener of its port with the most specific host name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayListener {
    /// Name of the listener, unique within the Gateway, such as `http`.
    pub name: Label,
    /// TCP port at which the gateways listen, from 1 to 65,535.
    pub port: Port,
    /// Protocol of the listener: `HTTP`, or `HTTPS` or `TLS`, which require `tls`. Listeners of one port either all have the
    /// protocol `HTTP`, or none of them has it.
    pub protocol: ListenerProtocol,
    /// Host name of the requests, with TLS the server name of the connections, such as `www.example.org` or `*.example.org`.
    /// Default: every host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<HostnamePattern>,
    /// TLS settings of a listener with protocol `HTTPS` or `TLS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// Routes that may attach to the listener: TlsRoutes with protocol `TLS`, HttpRoutes otherwise. Default: those in the
    /// namespace of the Gateway.
    #[serde(default, skip_serializing_if = "AllowedRoutes::is_default")]
    pub allowed_routes: AllowedRoutes,
}

/// TLS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenerTls {
    /// Mode of TLS: `Terminate`, or with protocol `TLS` also `Passthrough`. Default: `Terminate`.
    #[serde(default)]
    pub mode: TlsMode,
    /// Certificates of the listener, from 1 to 64 with mode `Terminate`, and none with mode `Passthrough`. A connection gets the
    /// first one that is valid for its server name, or else the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub certificate_refs: Vec<CertificateRef>,
}

/// Mode of TLS of a listener: `Terminate` or `Passthrough`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
pub enum TlsMode {
    /// The gateway decrypts connections, with TLS 1.2 or 1.3.
    #[default]
    Terminate,
    /// The gateway reads the server name of a connection, and forwards the connection unchanged.
    Passthrough,
}

/// Reference to a Certificate in the namespace of the Gateway.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateRef {
    /// Name of the Certificate.
    pub name: Name,
}

/// Protocol of a listener: `HTTP`, `HTTPS` or `TLS`.
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
    /// Connections of any protocol over TLS, which TlsRoutes forward.
    #[serde(rename = "TLS")]
    #[strum(serialize = "TLS")]
    Tls,
}

impl ListenerProtocol {
    /// Returns true if connections begin with TLS.
    #[must_use]
    pub const fn has_tls(self) -> bool {
        match self {
            Self::Http => false,
            Self::Https | Self::Tls => true,
        }
    }
}

impl GatewayListener {
    /// Returns true if the gateway forwards the connections of the listener without decryption.
    #[must_use]
    pub fn is_passthrough(&self) -> bool {
        self.protocol == ListenerProtocol::Tls
            && self.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Passthrough)
    }
}

/// Routes that may attach to a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedRoutes {
    /// Namespaces of the routes. Default: the namespace of the Gateway.
    #[serde(default)]
    pub namespaces: RouteNamespaces,
}

impl AllowedRoutes {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Namespaces whose routes may attach to a listener.
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
