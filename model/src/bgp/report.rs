//! What an agent tells of its BGP sessions and routes: part of [`crate::report::Report`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{name::Name, quantity::Timestamp};

/// Sessions of one node that are told.
pub const SESSIONS_MAX: usize = 512;
/// Prefixes in one report; what is left over comes with the next.
pub const ROUTES_MAX: usize = 5000;
/// Longest text about a session or a route, in bytes.
pub const BGP_TEXT_BYTES_MAX: usize = 1024;

/// The BGP of a node as it is; always whole, but for the routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpReport {
    /// The AS of the node.
    pub asn: u32,
    /// Its BGP Identifier.
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// The sessions, in the order of peers and addresses.
    #[serde(default)]
    #[schema(max_items = 512)]
    pub sessions: Vec<BgpSession>,
    /// Speakers that connected and belong to no peer, since the agent's start.
    #[serde(default)]
    pub strangers: u64,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpSession {
    /// The `BgpPeer`.
    pub peer: Name,
    /// The neighbour's address; nothing while that of an unnumbered peer is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Where the session stands.
    pub state: BgpSessionState,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Why, in words; never empty.
    #[schema(max_length = 1024)]
    pub reason: String,
    /// How often it was established since the agent's start.
    #[serde(default)]
    pub established: u64,
    /// The neighbour's AS, once heard.
    #[serde(default, rename = "remoteASN", skip_serializing_if = "Option::is_none")]
    pub remote_asn: Option<u32>,
    /// Our AS towards it.
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    /// The neighbour's BGP Identifier, once heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote_router_id: Option<Ipv4Addr>,
    /// The neighbour's name, where it tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub host_name: Option<String>,
    /// What both agreed on; while the session is established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negotiated: Option<BgpNegotiated>,
    /// The last NOTIFICATION that we sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<BgpError>,
    /// The last NOTIFICATION that we received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_received: Option<BgpError>,
    /// What BFD says of the path; nothing where it does not watch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub bfd: Option<String>,
    /// What was counted.
    #[serde(default)]
    pub counters: BgpCounters,
}

/// Where a session stands (RFC 4271 §8.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum BgpSessionState {
    /// Nothing is tried.
    Idle,
    /// A connection is being made.
    Connect,
    /// A connection is waited for.
    Active,
    /// OPEN was sent.
    OpenSent,
    /// OPEN was received and accepted.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// What both sides of a session agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpNegotiated {
    /// In seconds; 0: none.
    pub hold_time: u16,
    /// In seconds; 0: none.
    pub keepalive_time: u16,
    /// What both can do, in words, such as `ipv4-unicast`, `4-octet AS`, `route refresh`.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub capabilities: Vec<String>,
    /// What the neighbour announced that it can do and we cannot, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub other_capabilities: Vec<String>,
}

/// A NOTIFICATION.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpError {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The error code.
    pub code: u8,
    /// The error subcode.
    pub subcode: u8,
    /// What it says, in words, with the text that came with it (RFC 9003).
    #[schema(max_length = 1024)]
    pub message: String,
}

/// What was counted of a session since the agent's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BgpCounters {
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// UPDATE messages sent.
    pub updates_sent: u64,
    /// UPDATE messages received.
    pub updates_received: u64,
    /// Prefixes that the neighbour has from us.
    pub prefixes_sent: u64,
    /// Prefixes that the neighbour announced and has not withdrawn in this session; none is used.
    pub prefixes_received: u64,
    /// Malformed attributes that were met as RFC 7606 says, without ending the session.
    pub attribute_errors: u64,
    /// Connections that failed.
    pub connection_failures: u64,
    /// Segments with a wrong or missing MD5 signature while this neighbour was awaited (of the whole node).
    pub md5_failures: u64,
}

/// What became of one prefix on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpRoute {
    /// The load balancer addresses that it is announced for.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub addresses: BTreeSet<IpAddr>,
    /// What each neighbour was told: the key is the peer's name, followed by `@` and the address for dynamic neighbours.
    #[serde(default)]
    pub peers: BTreeMap<String, BgpTold>,
    /// Why it is announced to nobody; nothing where it is announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub withheld: Option<String>,
}

/// What one neighbour was told of a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpTold {
    /// Since when it is announced as it is; nothing while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// With which attributes, or why not, in words; never empty.
    #[schema(max_length = 1024)]
    pub text: String,
}
