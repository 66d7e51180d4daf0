//! Status of WorkloadNetworks, blocks and Attachments.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{observed::status::Condition, primitives::name::Name};

/// Maximum number of Nodes that the status of a WorkloadNetwork lists.
pub const NODES_LISTED_MAX: usize = 10;

/// Status of a WorkloadNetwork.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadNetworkStatus {
    /// Conditions Accepted, HasRoom and Ready; Ready is true if all selected Nodes have a block of each IP family.
    pub conditions: Vec<Condition>,
    /// Number of Nodes that the WorkloadNetwork selects.
    pub nodes: u64,
    /// Selected Nodes without a block of one of the IP families, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_without_block: Vec<Name>,
    /// Usage of the IPv4 blocks.
    #[serde(rename = "ipv4")]
    pub v4: BlockUsage,
    /// Usage of the IPv6 blocks.
    #[serde(rename = "ipv6")]
    pub v6: BlockUsage,
}

/// Usage of the blocks of one IP family of a WorkloadNetwork. Numbers above 2⁶⁴ − 1, which are possible for IPv6, appear
/// as 2⁶⁴ − 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockUsage {
    /// Number of blocks of the present size into which the networks can be divided.
    pub total: u64,
    /// Number of blocks that Nodes have.
    pub given: u64,
    /// Number of released blocks in their cooldown.
    pub cooling: u64,
    /// Number of addresses in the blocks that Nodes have.
    pub addresses: u64,
    /// Number of addresses that Attachments have.
    pub attached: u64,
}

/// Status of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockStatus {
    /// Condition Used: true while a Node assigns the addresses of the block.
    pub conditions: Vec<Condition>,
    /// Number of addresses of the block.
    pub addresses: u64,
    /// Number of addresses of the block that Attachments have.
    pub attached: u64,
}

/// Status of an Attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentStatus {
    /// Condition Used: true if the Workload exists and has the addresses. For declared interfaces, also Programmed: true if
    /// the Node has configured the interface.
    pub conditions: Vec<Condition>,
}
