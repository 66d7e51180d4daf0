//! The EndpointHealth: the record of what health checks have taken out of one Service, kept by the server.
//!
//! It has the name of its Service and lists only what is not fully in service, so that a cluster in which everything works
//! has none. What nodes see lives in memory ([`crate::health::HealthBook`]); what was decided is here, because it must hold
//! while nobody says anything.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    health::CheckKey,
    name::Name,
    quantity::Timestamp,
    resource::{Kind, ObjectKey, ServiceKey},
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
