//! Attachment: the server's record of the interface by which a node connects one workload to the network.
//!
//! Agents assign addresses of their blocks without the server, and report the Attachments afterwards. Admission records
//! them, and sets the addresses of the Workload in the same write.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::name::{Label, Name, Namespace, parse_namespaced};

/// Maximum length of interface names in bytes (`IFNAMSIZ` of Linux without the final zero).
pub const INTERFACE_LENGTH_MAX: usize = 15;
/// Maximum length of the id of a container in bytes.
pub const CONTAINER_ID_LENGTH_MAX: usize = 128;
/// Maximum number of addresses of an Attachment: one per IP family.
pub const ATTACHMENT_ADDRESSES_MAX: usize = 2;

/// Maximum length of the message of an [`InterfaceFault`] in bytes.
pub const FAULT_MESSAGE_LENGTH_MAX: usize = 1024;

/// Record of an Attachment of a workload to a node. Maintained by the server from the reports of the Node's agent;
/// clients cannot write it. The name of the record is the name of the Node, a dot, and an id of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentSpec {
    /// Name of the Node that has the interface.
    pub node: Name,
    /// Name of the WorkloadNetwork from which the addresses are. Absent for kind `Host` with addresses of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Name>,
    /// Workload with the addresses, as `namespace/name`.
    #[schema(value_type = String)]
    pub workload: WorkloadKey,
    /// Kind of the interface: `Veth` (pair of a container), `Tap` (of a virtual machine) or `Host` (another interface of
    /// the node).
    pub kind: AttachmentKind,
    /// Name of the interface that the workload sees, at most 15 bytes, such as `eth0`.
    #[schema(max_length = 15)]
    pub interface: String,
    /// Name of the interface on the node, at most 15 bytes.
    #[schema(max_length = 15)]
    pub host_interface: String,
    /// Link-layer address of the workload. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 17, example = "02:00:00:00:00:01")]
    pub mac: Option<String>,
    /// Addresses of the workload, at most one per IP family, such as `["10.64.0.3"]`.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 2)]
    pub addresses: Vec<IpAddr>,
    /// Id of the container, at most 128 bytes. Absent if the workload is no container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub container_id: Option<String>,
    /// Number of the Attachment among those of the same id on the Node. Later ones have higher numbers.
    #[serde(default)]
    pub generation: u64,
    /// True if the Workload was created together with the Attachment. The Workload is deleted with the Attachment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owns_workload: bool,
    /// True if the Workload declares the interface in `spec.interface`; false if a request to the agent made the
    /// Attachment. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// Reason why a declared interface is not configured. Absent if it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<InterfaceFault>,
}

/// Reason why the agent has not configured a declared interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceFault {
    /// Reason, as a stable identifier.
    pub reason: InterfaceFaultReason,
    /// Description of the cause with a remedy, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub message: String,
}

/// Reason why a declared interface is not configured: `Missing` (it does not exist, and is configured when it does),
/// `Refused` (the agent does not change it) or `Failed` (the kernel rejected a change).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum InterfaceFaultReason {
    /// The interface, or the network namespace of a `Veth`, does not exist.
    Missing,
    /// The agent does not change the interface, because the Node itself needs it or it is of another kind.
    Refused,
    /// The kernel rejected a change, which the agent repeats.
    Failed,
}

/// Kind of the interface of an Attachment: `Veth` (pair of a container), `Tap` (of a virtual machine) or `Host` (another
/// interface of the node).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum AttachmentKind {
    /// Pair of virtual Ethernet interfaces, one end of which is in the network namespace of the workload.
    Veth,
    /// TAP interface of a virtual machine.
    Tap,
    /// Interface of the node itself: with an address of the Node or, if it is declared, with the Workload behind it.
    Host,
}

/// Namespace and name of a Workload, which identify it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkloadKey {
    /// Namespace of the Workload.
    pub namespace: Namespace,
    /// Name of the Workload.
    pub name: Name,
}

impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl TryFrom<String> for WorkloadKey {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        parse_namespaced(&text).map(|(namespace, name)| Self { namespace, name })
    }
}

impl From<WorkloadKey> for String {
    fn from(key: WorkloadKey) -> Self {
        key.to_string()
    }
}

/// Returns the id of an Attachment of a Node from the name of its record, or `None` if the record is of another Node.
#[must_use]
pub fn attachment_id(node: &Name, record: &Name) -> Option<Label> {
    let id = record.as_str().strip_prefix(node.as_str())?.strip_prefix('.')?;
    Label::parse(id).ok()
}
