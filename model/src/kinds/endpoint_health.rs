//! EndpointHealth: object in which the server stores the unhealthy endpoints of one Service.
//!
//! The object has the name of the Service and contains only endpoints that are unhealthy or in slow start.
//! Check results of nodes are only kept in memory ([`crate::observed::health::HealthBook`]). The decisions
//! that follow from them are stored here, because they must remain in force if nodes stop reporting.

use std::net::SocketAddr;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::resource::{Kind, ObjectKey, ServiceKey},
    primitives::{
        name::Name,
        quantity::{Port, Timestamp},
    },
};

/// Health of the endpoints of one Service, as decided by the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointHealthSpec {
    /// Endpoints that are unhealthy or in slow start, by address and port of the check, such as `10.1.13.2:8080`.
    #[schema(value_type = BTreeMap<String, EndpointVerdict>)]
    pub endpoints: BTreeMap<CheckKey, EndpointVerdict>,
}

/// Decision of the server that an endpoint is unhealthy, or in slow start after its recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointVerdict {
    /// Percentage of its weight with which the endpoint is used, from 0 to 99: 0 while it is unhealthy, more
    /// in slow start.
    #[schema(maximum = 99)]
    pub share: u8,
    /// Time of the decision (RFC 3339, UTC): since then the endpoint is unhealthy, or healthy again.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Health check result that led to the decision, at most 512 bytes, such as `connection refused`.
    #[schema(max_length = 512)]
    pub message: String,
    /// Names of the Nodes that reported the result.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub checkers: BTreeSet<Name>,
}

impl EndpointVerdict {
    /// True if the endpoint receives no new connections.
    #[must_use]
    pub const fn is_out(&self) -> bool {
        self.share == 0
    }
}

/// Returns the object key of the EndpointHealth object of a Service.
#[must_use]
pub fn record_key(service: &ServiceKey) -> ObjectKey {
    ObjectKey {
        kind: Kind::EndpointHealth,
        namespace: Some(service.namespace.clone()),
        name: service.name.clone(),
    }
}

/// Address and port to which a health check connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckKey {
    /// IP address of the endpoint.
    pub address: IpAddr,
    /// Port to which the check connects.
    pub port: Port,
}

impl fmt::Display for CheckKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port.get()).fmt(f)
    }
}

impl TryFrom<String> for CheckKey {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.parse::<SocketAddr>().ok();
        let key = parsed.and_then(|at| Some(Self { address: at.ip(), port: Port::new(at.port())? }));
        key.ok_or_else(|| format!("must be an address and a port, such as 10.1.13.2:8080, not `{text}`"))
    }
}

impl From<CheckKey> for String {
    fn from(key: CheckKey) -> Self {
        key.to_string()
    }
}
