//! Workload: an addressable instance with labels and readiness, matched by the selectors of Services.

use std::{collections::BTreeMap, net::IpAddr, num::NonZeroU32};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{
        attachment::AttachmentKind, endpoint_set::yes, maintenance::Maintenance, service::Protocol,
        workload_network::DeclarableInterfaces,
    },
    primitives::{
        name::{Label, Name},
        quantity::{Port, Weight},
    },
};

/// Maximum number of addresses of a Workload: one per IP family.
pub const WORKLOAD_ADDRESSES_MAX: usize = 2;
/// Maximum number of named ports of a Workload.
pub const WORKLOAD_PORTS_MAX: usize = 100;
/// Maximum length of the name of a network namespace in bytes.
pub const NETWORK_NAMESPACE_LENGTH_MAX: usize = 64;
/// Maximum number of Workloads of one Node that declare an interface. The agent receives all of them in one frame.
pub const INTERFACES_OF_NODE_MAX: usize = 256;

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
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86400)]
    pub lease_seconds: Option<NonZeroU32>,
    /// Drain or maintenance of the Workload. Absent while the Workload is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Box<Maintenance>>,
    /// Interface of `node` that its agent configures for the Workload, such as the TAP interface of a virtual machine.
    /// The agent adds the routes to `addresses`, or assigns addresses if there are none. Default: no interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Box<WorkloadInterface>>,
}

/// Interface of a Node that the agent configures for a Workload. The WorkloadNetwork must permit it in `interfaces`, and
/// the namespace of the Workload in `namespaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadInterface {
    /// Name of the WorkloadNetwork of the addresses of the Workload.
    pub network: Name,
    /// Kind of the interface: `Tap` (TAP interface of a virtual machine, which exists on the Node), `Host` (another
    /// interface of the Node, behind which the Workload is) or `Veth` (pair that the agent creates for a container).
    pub kind: AttachmentKind,
    /// Name of the interface, from 1 to 15 letters, digits, `_`, `.` and `-`: on the Node or, for `Veth`, in the
    /// network namespace. Names that begin with `tg` are reserved for the agent.
    #[schema(min_length = 1, max_length = 15, example = "tap0")]
    pub name: String,
    /// Name of the network namespace of a `Veth` below `/run/netns`, from 1 to 64 characters. Absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub network_namespace: Option<String>,
    /// Link-layer address of the Workload. Default: `Veth` gets one, and those of other kinds are found by ARP and NDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 17, max_length = 17, example = "02:00:00:00:00:01")]
    pub mac: Option<String>,
}

impl WorkloadInterface {
    /// True if a WorkloadNetwork permits Workloads to declare the interface.
    #[must_use]
    pub fn is_permitted(&self, permitted: &DeclarableInterfaces) -> bool {
        match (self.kind, &self.network_namespace) {
            (AttachmentKind::Veth, Some(namespace)) => permitted.permits_namespace(namespace),
            (AttachmentKind::Veth, None) => false,
            (AttachmentKind::Tap | AttachmentKind::Host, _) => permitted.permits_name(&self.name),
        }
    }
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
