//! BGP configuration of one node: its identity, its peers, and its Advertisements.
//!
//! Control decides the peers and Advertisements of each node. The agent decides the announced prefixes from the
//! Services that it has verified. An address is announced to a peer if an Advertisement includes both: the address by
//! [`Announcement::advertisements`](crate::kinds::address::Announcement::advertisements), the peer by
//! [`BgpAdvertisement::peers`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{
        advertisement::InterfaceName,
        bfd_profile::BfdProfileSpec,
        bgp_peer::{BgpFamily, BgpRole, GracefulRestart, PeerAsn},
    },
    primitives::{community::Community, name::Name, secret::Secret},
};

/// Complete BGP configuration of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpState {
    /// AS number of the node.
    pub asn: u32,
    /// BGP Identifier of the node; never zero.
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// True if the node is being drained and must announce nothing (`Node.spec.unschedulable`,
    /// `Node.spec.maintenance`).
    #[serde(default)]
    pub is_draining: bool,
    /// Peers of the node, by the names of their objects.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BgpNeighbour>)]
    pub peers: BTreeMap<Name, BgpNeighbour>,
    /// Advertisements that select the node.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BgpAdvertisement>)]
    pub advertisements: BTreeMap<Name, BgpAdvertisement>,
}

/// Neighbor to have a session with: a `BgpPeer` with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpNeighbour {
    /// Location of the neighbor.
    pub remote: BgpRemote,
    /// Expected AS number of the neighbor.
    pub peer_asn: PeerAsn,
    /// AS number of the node towards this neighbor.
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    /// TCP port of the neighbor. Its own connections arrive at port 179.
    pub port: u16,
    /// Source address of the node's connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source_address: Option<IpAddr>,
    /// Interface to which the socket is bound (`SO_BINDTODEVICE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub device: Option<InterfaceName>,
    /// Proposed hold time, in seconds: 0 or 3–65535.
    pub hold_time: u16,
    /// Time between KEEPALIVE messages, in seconds; a third of the negotiated hold time by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_time: Option<u16>,
    /// Pause after a failed connection, in seconds, 1–65535; it grows with further failures.
    pub connect_time: u16,
    /// Key of TCP MD5 signatures (RFC 2385), 1–80 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub password: Option<Secret>,
    /// Hop limit of sent packets, 1–255; 1 for external peers that are directly connected.
    pub ttl: u8,
    /// Maximum number of hops of received packets, 1–254 (GTSM, RFC 5082); sent packets have the hop limit 255.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_security: Option<u8>,
    /// True if the node waits for connections of the neighbor and opens none.
    #[serde(default)]
    pub passive: bool,
    /// Address families of the exchanged routes.
    pub families: BTreeSet<BgpFamily>,
    /// Graceful restart (RFC 4724): routes are retained while a session restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<GracefulRestart>,
    /// BGP role of the node towards the neighbor (RFC 9234).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<BgpRole>,
    /// BFD session that monitors the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<BfdProfileSpec>,
    /// Maximum number of prefixes from the neighbor; the session ends if it announces more.
    pub max_prefixes: u32,
}

/// Location of a neighbor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum BgpRemote {
    /// IP address; for a link-local one, `device` selects the link.
    #[schema(value_type = String)]
    Address(IpAddr),
    /// Router at the other end of this interface (unnumbered).
    #[schema(value_type = String)]
    Interface(InterfaceName),
    /// Any router that connects from this network, up to a limit (dynamic).
    #[serde(rename_all = "camelCase")]
    Network {
        /// Network of the routers.
        #[schema(value_type = String)]
        network: IpNet,
        /// Maximum number of concurrent sessions.
        limit: u16,
    },
}

/// Advertisement of type BGP as one node applies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpAdvertisement {
    /// Peers that receive the routes; all peers of the node if empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub peers: BTreeSet<Name>,
    /// Length of the announced IPv4 prefixes, 1–32.
    pub aggregation_length: u8,
    /// Length of the announced IPv6 prefixes, 1–128.
    pub aggregation_length_v6: u8,
    /// Attribute `LOCAL_PREF`, sent to internal peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// Value of the attribute `MULTI_EXIT_DISC` (RFC 4271).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// Number of additional copies of the own AS in the path, 0–16; sent to external peers.
    #[serde(default)]
    pub prepend: u8,
    /// Standard, extended and large communities.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub communities: BTreeSet<Community>,
}
