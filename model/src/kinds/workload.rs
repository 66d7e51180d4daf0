//! Workload: an addressable instance with labels and readiness, matched by the selectors of Services.

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

/// Maximum number of addresses of a Workload: one per IP family.
pub const WORKLOAD_ADDRESSES_MAX: usize = 2;
/// Maximum number of named ports of a Workload.
pub const WORKLOAD_PORTS_MAX: usize = 100;

/// Desired state of a Workload: an addressable instance, such as a container, VM or process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Addresses of the Workload, at most one per IP family, such as `["10.1.13.3"]`. Loopback, link-local
    /// and multicast addresses are rejected. Without addresses, the Workload is not an endpoint.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 2, example = json!(["10.1.13.3"]))]
    pub addresses: Vec<IpAddr>,
    /// Name of the Node on which the Workload runs. Without it, the Workload counts as local to no Node for
    /// traffic policy `Local`, and stays an endpoint if its machine fails. Default: no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Failure zone of the Workload, such as `zone-a`. Used by `trafficDistribution`. Default: no zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Ports of the Workload by name, at most 100. A Service refers to them by `targetPort`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<Label, WorkloadPort>,
    /// Lifecycle phase: `Pending`, `Running`, `Terminating`, `Succeeded` or `Failed`. Only `Running` and
    /// `Terminating` Workloads are endpoints. Default: `Running`.
    #[serde(default)]
    pub phase: WorkloadPhase,
    /// True if the Workload accepts new connections. Default: true.
    #[serde(default = "yes")]
    pub ready: bool,
    /// Share of new connections relative to the other endpoints of a Service, from 0 to 65,535. With 0, the
    /// Workload receives no new connections. Default: 1.
    #[serde(default)]
    pub weight: Weight,
    /// Lease in seconds, which has no effect: writes with this field are rejected. It exists for objects that an
    /// earlier version accepted; their condition `Accepted` is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub lease_seconds: Option<u32>,
    /// Drain or maintenance of the Workload. Absent while the Workload is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<Maintenance>>,
}

/// Named port of a Workload, to which Services refer by `targetPort`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadPort {
    /// Transport protocol of the port: `TCP`, `UDP` or `SCTP`. Default: `TCP`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Port number, from 1 to 65,535.
    pub port: Port,
}

/// Lifecycle phase of a Workload: `Pending` (not started), `Running`, `Terminating` (established connections
/// continue, no new ones), `Succeeded` or `Failed`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum WorkloadPhase {
    /// The Workload has not started yet.
    Pending,
    /// The Workload is running.
    #[default]
    Running,
    /// The Workload is shutting down; established connections continue, and it receives no new ones.
    Terminating,
    /// The Workload has ended successfully.
    Succeeded,
    /// The Workload has ended with an error.
    Failed,
}

impl WorkloadPhase {
    /// True if a Workload in this phase may be used as an endpoint.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        match self {
            Self::Running | Self::Terminating => true,
            Self::Pending | Self::Succeeded | Self::Failed => false,
        }
    }
}
