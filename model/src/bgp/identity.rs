//! BGP identity of a node as shown in its status: AS number and BGP Identifier, each with its source.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// BGP identity of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeBgpStatus {
    /// AS number of the node.
    pub asn: u32,
    /// Source of the AS number.
    pub asn_from: AsnSource,
    /// BGP Identifier (RFC 4271 §1.1).
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// Source of the BGP Identifier.
    pub router_id_from: RouterIdSource,
}

/// Source of the AS number of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum AsnSource {
    /// Field `spec.bgp.asn` of the Node.
    Node,
    /// Option `--asn` of the control server.
    Default,
}

/// Source of the BGP Identifier of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum RouterIdSource {
    /// Field `spec.bgp.routerId` of the Node.
    Node,
    /// First IPv4 address of the Node.
    Address,
    /// Hash of the Node's name, which is the same on every server.
    Name,
}
