//! BGP identity of a node as its status shows it: AS number, router id and the origin of both.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who a Node is in BGP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeBgpStatus {
    /// Its AS.
    pub asn: u32,
    /// Where the AS is from.
    pub asn_from: AsnSource,
    /// Its BGP Identifier.
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// Where the BGP Identifier is from.
    pub router_id_from: RouterIdSource,
}

/// Where the AS of a Node is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum AsnSource {
    /// `spec.bgp.asn` of the Node.
    Node,
    /// `--asn` of the control server.
    Default,
}

/// Where the BGP Identifier of a Node is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum RouterIdSource {
    /// `spec.bgp.routerId` of the Node.
    Node,
    /// Its first IPv4 address.
    Address,
    /// Its name: a number that is the same each time.
    Name,
}
