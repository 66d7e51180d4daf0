//! Block: the server's record of a part of a WorkloadNetwork whose addresses one node assigns to its workloads.
//!
//! The name of the record is derived from its network, so that each block has at most one record. Blocks do not overlap.
//! Admission creates and releases them together with the Nodes, networks and Attachments that they depend on.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::address::name_of,
    primitives::{name::Name, quantity::Timestamp},
};

/// Record of a block of a WorkloadNetwork. Maintained by the server; clients cannot write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockSpec {
    /// Name of the WorkloadNetwork to which the block belongs.
    pub network: Name,
    /// Addresses of the block, such as `10.64.0.0/26`.
    #[schema(value_type = String)]
    pub cidr: IpNet,
    /// Name of the Node that assigns the addresses of the block or, during `cooldownUntil`, that did so before.
    pub node: Name,
    /// Time at which the Node got the block (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// True if the Node assigns no further addresses of the block, because the network no longer selects the Node. The
    /// block is released when no Attachment uses it. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// End of the time in which no other Node gets the released block (RFC 3339, UTC). Absent while a Node has the
    /// block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cooldown_until: Option<Timestamp>,
}

impl BlockSpec {
    /// True if a Node has the block.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.cooldown_until.is_none()
    }
}

/// Returns the name of the record of a block: the name of its first address, and its prefix length, such as
/// `10.64.0.0-26`.
///
/// # Panics
/// Never panics: the text consists of digits, dots and dashes between digits.
#[must_use]
pub fn block_name(cidr: &IpNet) -> Name {
    let text = format!("{}-{}", name_of(cidr.network()), cidr.prefix_len());
    Name::parse(&text).expect("digits, dots and dashes between digits are a name")
}
