//! The EndpointHealth: the record of what health checks have taken out of one Service, kept by the server.
//!
//! It has the name of its Service and lists only what is not fully in service, so that a cluster in which everything works
//! has none. What nodes see lives in memory ([`crate::health::HealthBook`]); what was decided is here, because it must hold
//! while nobody says anything.

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

/// What is recorded of the health of a Service's endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointHealthSpec {
    /// The endpoints that are not fully in service, by address and port of the check, such as `10.1.13.2:8080`.
    #[schema(value_type = BTreeMap<String, EndpointVerdict>)]
    pub endpoints: BTreeMap<CheckKey, EndpointVerdict>,
}

/// What was decided about an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointVerdict {
    /// How much of its weight counts, in percent, 0–99: 0 while it is out of service, more while its share grows again.
    #[schema(maximum = 99)]
    pub share: u8,
    /// Since when it is out of service, or back.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The result that led there, in words.
    #[schema(max_length = 512)]
    pub message: String,
    /// The Nodes that say so.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub checkers: BTreeSet<Name>,
}

impl EndpointVerdict {
    /// Whether the endpoint takes no new connections.
    #[must_use]
    pub const fn is_out(&self) -> bool {
        self.share == 0
    }
}

/// The key of a Service's record.
#[must_use]
pub fn record_key(service: &ServiceKey) -> ObjectKey {
    ObjectKey {
        kind: Kind::EndpointHealth,
        namespace: Some(service.namespace.clone()),
        name: service.name.clone(),
    }
}

/// What is checked: an address and a port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckKey {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The port of the check.
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
