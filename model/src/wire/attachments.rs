//! Attachments that an agent reports: `PUT /v1/nodes/{node}/attachments`.
//!
//! Agents assign addresses of their blocks without the control server. They report the Attachments afterwards, in batches,
//! and may repeat a report. Each entry is accepted or refused for itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{
        attachment::{AttachmentKind, AttachmentSpec, InterfaceFault, WorkloadKey},
        metadata::Labels,
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::Position,
    },
};

/// Maximum number of Attachments of a Node, and of entries in each list of a report.
pub const ATTACHMENTS_MAX: usize = 2000;
/// Maximum number of block requests in a report: one for each IP family of each WorkloadNetwork.
pub const WANTED_MAX: usize = 64;

/// Changes of the Attachments of a Node, as reported by its agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentChanges {
    /// True if `attachments` contains all Attachments of the Node, so that those that are absent are removed. Default:
    /// false.
    #[serde(default)]
    pub complete: bool,
    /// New and changed Attachments by their ids, at most 2000. An agent chooses the id, and keeps it for the life of the
    /// Attachment.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, AttachmentRequest>)]
    pub attachments: BTreeMap<Label, AttachmentRequest>,
    /// Ids of Attachments that have ended, at most 2000. Unknown ids have no effect.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub removed: BTreeSet<Label>,
    /// Networks of which the Node needs a further block, because few addresses of its blocks are free; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub wanted: Vec<WantedBlock>,
}

/// Attachment as reported by an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentRequest {
    /// Workload with the addresses, as `namespace/name`. If it does not exist, it is created, as far as the WorkloadNetwork
    /// permits its namespace and labels.
    #[schema(value_type = String)]
    pub workload: WorkloadKey,
    /// Labels of the Workload, if it is created, at most 100.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub labels: Labels,
    /// Name of the WorkloadNetwork from which the addresses are. Absent for kind `Host` with addresses of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Name>,
    /// Kind of the interface: `Veth`, `Tap` or `Host`.
    pub kind: AttachmentKind,
    /// Name of the interface that the workload sees, at most 15 bytes, such as `eth0`.
    #[schema(min_length = 1, max_length = 15)]
    pub interface: String,
    /// Name of the interface on the node, at most 15 bytes.
    #[schema(min_length = 1, max_length = 15)]
    pub host_interface: String,
    /// Link-layer address of the workload, at most 17 bytes. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 17, example = "02:00:00:00:00:01")]
    pub mac: Option<String>,
    /// Addresses of the workload, one or two, at most one per IP family: of blocks of the Node or, for kind `Host` without a
    /// network, of the Node itself.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 2)]
    pub addresses: Vec<IpAddr>,
    /// Id of the container, at most 128 bytes. Absent if the workload is no container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub container_id: Option<String>,
    /// Number of the Attachment among those of the same id. An entry with a lower number than the recorded one has no
    /// effect.
    #[serde(default)]
    pub generation: u64,
    /// True if the Workload declares the interface in `spec.interface`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// Reason why a declared interface is not configured. Absent if it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<InterfaceFault>,
}

/// Request of a further block for a Node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedBlock {
    /// Name of the WorkloadNetwork.
    pub network: Name,
    /// IP family of the block.
    pub family: IpFamily,
}

/// Result of a report of Attachments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentResult {
    /// Position (epoch and revision) of the state that includes the accepted entries.
    pub position: Position,
    /// Entries that were refused, by their ids. An agent repeats them later.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, AttachmentRefusal>)]
    pub refused: BTreeMap<Label, AttachmentRefusal>,
}

/// Refusal of one Attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentRefusal {
    /// Reason of the refusal, as a stable identifier.
    pub reason: RefusedAttachment,
    /// Description of the cause for users.
    pub message: String,
}

/// Reason for which an Attachment is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum RefusedAttachment {
    /// A field has an invalid value.
    Invalid,
    /// An address lies in no block that the Node has, or is none of the Node.
    OutsideOfBlocks,
    /// Another Attachment has one of the addresses.
    AddressTaken,
    /// The Workload exists, and its Node is not this one.
    WorkloadElsewhere,
    /// The Workload has an address of its own, which the Attachment would replace.
    WorkloadHasAddress,
    /// The Workload does not exist, and the agent may not create it in its namespace.
    NamespaceNotAllowed,
    /// The Workload does not exist, and the agent may not give it one of the labels.
    LabelNotAllowed,
    /// The Workload does not declare the interface, although the Attachment is reported as declared.
    NotDeclared,
    /// The Node has too many Attachments, or the namespace has reached its quota.
    LimitReached,
    /// Another reason, which a later version of the control server has.
    #[serde(other)]
    Other,
}

/// Attachments of a Node that are recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentRecords {
    /// Attachments by their ids.
    #[schema(value_type = BTreeMap<String, AttachmentSpec>)]
    pub attachments: BTreeMap<Label, AttachmentSpec>,
}
