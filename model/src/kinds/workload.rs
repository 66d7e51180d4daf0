//! The Workload: anything with an address, labels and a ready state; what a Service's selector picks.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{endpoint_set::yes, maintenance::Maintenance, service::Protocol},
    primitives::{
        name::{Label, Name},
        quantity::{Port, Weight},
    },
};

/// Addresses of one Workload: one per family.
pub const WORKLOAD_ADDRESSES_MAX: usize = 2;
/// Named ports of one Workload.
pub const WORKLOAD_PORTS_MAX: usize = 100;

/// What runs where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadSpec {
    /// At most one address per family; without any, the Workload is no endpoint yet.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 2, example = json!(["10.1.13.3"]))]
    pub addresses: Vec<IpAddr>,
    /// The Node it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Its failure zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Where it listens, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<Label, WorkloadPort>,
    /// Where it is in its life.
    #[serde(default)]
    pub phase: WorkloadPhase,
    /// Takes new connections.
    #[serde(default = "yes")]
    pub ready: bool,
    /// Its share of new connections.
    #[serde(default)]
    pub weight: Weight,
    /// Time without a renewal after which the Workload counts as gone, in seconds; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub lease_seconds: Option<u32>,
    /// Takes it out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
}

/// Where a Workload listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadPort {
    /// The transport protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// The port number.
    pub port: Port,
}

/// Where a Workload is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum WorkloadPhase {
    /// Known, not started.
    Pending,
    /// Started.
    #[default]
    Running,
    /// On its way out; established connections go on.
    Terminating,
    /// Ended with success.
    Succeeded,
    /// Ended without.
    Failed,
}

impl WorkloadPhase {
    /// Whether the Workload can be an endpoint at all.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        match self {
            Self::Running | Self::Terminating => true,
            Self::Pending | Self::Succeeded | Self::Failed => false,
        }
    }
}
