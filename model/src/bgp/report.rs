//! BGP part of a [`Report`](crate::wire::report::Report): the sessions and routes of one node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{name::Name, quantity::Timestamp};

/// Maximum number of sessions in a report of one node.
pub const SESSIONS_MAX: usize = 512;
/// Maximum number of prefixes in one report; further ones follow in the next report.
pub const ROUTES_MAX: usize = 5000;
/// Maximum length of a text that describes a session or a route, in bytes.
pub const BGP_TEXT_BYTES_MAX: usize = 1024;

/// BGP state of a node: its identity and all of its sessions. Routes are reported separately, only if they
/// change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpReport {
    /// AS number of the node.
    pub asn: u32,
    /// BGP Identifier of the node.
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// Sessions, in the order of peers and addresses.
    #[serde(default)]
    #[schema(max_items = 512)]
    pub sessions: Vec<BgpSession>,
    /// Number of connections from routers that match no BgpPeer, since the start of the agent.
    #[serde(default)]
    pub strangers: u64,
}

/// BGP session of the node with one neighbor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpSession {
    /// Name of the `BgpPeer`.
    pub peer: Name,
    /// Address of the neighbor; absent while the address of an unnumbered peer is not yet known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// State of the session.
    pub state: BgpSessionState,
    /// Time of the last change of state.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Reason for the state of the session; never empty.
    #[schema(max_length = 1024)]
    pub reason: String,
    /// Number of times that the session became established since the start of the agent.
    #[serde(default)]
    pub established: u64,
    /// AS number of the neighbor, from its last OPEN message.
    #[serde(default, rename = "remoteASN", skip_serializing_if = "Option::is_none")]
    pub remote_asn: Option<u32>,
    /// AS number that the node uses towards the neighbor.
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    /// BGP Identifier of the neighbor, from its last OPEN message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote_router_id: Option<Ipv4Addr>,
    /// Host name of the neighbor, if the neighbor sends it (FQDN capability).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub host_name: Option<String>,
    /// Negotiated parameters of the session; absent unless the session is established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negotiated: Option<BgpNegotiated>,
    /// Last NOTIFICATION that the node sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent: Option<BgpError>,
    /// Last NOTIFICATION that the node received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_received: Option<BgpError>,
    /// State of the BFD session that monitors the path; absent without BFD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub bfd: Option<String>,
    /// Counters of the session.
    #[serde(default)]
    pub counters: BgpCounters,
}

/// State of a BGP session (RFC 4271 §8.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum BgpSessionState {
    /// The node neither opens nor accepts a connection.
    Idle,
    /// The node is establishing a TCP connection.
    Connect,
    /// The node waits for a connection from the neighbor, or for its own next attempt.
    Active,
    /// The node has sent its OPEN message and waits for the OPEN message of the neighbor.
    OpenSent,
    /// The node has accepted the neighbor's OPEN message and waits for a KEEPALIVE message.
    OpenConfirm,
    /// The session exchanges routes.
    Established,
}

/// Negotiated parameters of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpNegotiated {
    /// Negotiated hold time in seconds; 0 means that the session never expires.
    pub hold_time: u16,
    /// Time between KEEPALIVE messages in seconds; 0 if none are sent.
    pub keepalive_time: u16,
    /// Capabilities that both sides support, such as `ipv4-unicast`, `4-octet AS`, `route refresh`.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub capabilities: Vec<String>,
    /// Capabilities that the neighbor announced and that the node does not support.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub other_capabilities: Vec<String>,
}

/// NOTIFICATION message (RFC 4271 §4.5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpError {
    /// Time of the message.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Error code of the NOTIFICATION (RFC 4271 §4.5).
    pub code: u8,
    /// Error subcode of the NOTIFICATION (RFC 4271 §4.5).
    pub subcode: u8,
    /// Meaning of the codes, followed by the text that the sender added (RFC 9003).
    #[schema(max_length = 1024)]
    pub message: String,
}

/// Counters of a BGP session since the start of the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BgpCounters {
    /// Number of messages sent.
    pub messages_sent: u64,
    /// Number of messages received.
    pub messages_received: u64,
    /// Number of UPDATE messages sent.
    pub updates_sent: u64,
    /// Number of UPDATE messages received.
    pub updates_received: u64,
    /// Number of prefixes that the node currently announces to the neighbor.
    pub prefixes_sent: u64,
    /// Number of prefixes that the neighbor currently announces to the node; the node itself does not use these
    /// routes.
    pub prefixes_received: u64,
    /// Number of prefixes of the neighbor in the table of the route reflector (RFC 4456). These routes are passed on to
    /// other internal peers; 0 unless the node is a route reflector.
    #[serde(skip_serializing_if = "is_zero")]
    pub prefixes_reflected: u64,
    /// Number of malformed attributes handled without ending the session (RFC 7606).
    pub attribute_errors: u64,
    /// Number of failed connection attempts.
    pub connection_failures: u64,
    /// Number of TCP segments with a wrong or missing MD5 signature that the node received while this session was
    /// not established. Segments from all neighbors of the node count.
    pub md5_failures: u64,
}

/// Returns true for a counter that is left out of reports, so that earlier control servers accept the report of a node
/// that reflects no routes.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Announcement state of one prefix on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpRoute {
    /// Load balancer addresses that the prefix contains and announces.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub addresses: BTreeSet<IpAddr>,
    /// Announcement of the prefix to each neighbor. The key is the name of the BgpPeer, followed by `@` and the
    /// address for dynamic neighbors.
    #[serde(default)]
    pub peers: BTreeMap<String, BgpTold>,
    /// Reason why no neighbor receives the prefix; absent unless the node withholds the prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub withheld: Option<String>,
}

/// Announcement of a prefix to one neighbor, or the reason for its absence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpTold {
    /// Time since which the prefix is announced with these attributes; absent if it is not announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Route attributes of the announcement, or the reason why the prefix is not announced; never empty.
    #[schema(max_length = 1024)]
    pub text: String,
}
