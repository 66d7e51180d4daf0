//! What a node needs to know to announce by BGP: who it is, its peers, and which Advertisements it carries out.
//!
//! Control decides what concerns which node; the agent decides, from what it has verified, what is announced. An address is
//! announced to a peer when an Advertisement names both: the address by [`crate::address::Announcement::advertisements`],
//! the peer by [`BgpAdvertisement::peers`].

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

/// The BGP of one node; what it does not name does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpState {
    /// The AS of the node.
    pub asn: u32,
    /// Its BGP Identifier; never zero.
    #[schema(value_type = String)]
    pub router_id: Ipv4Addr,
    /// Whether nothing may be announced, because the node is being drained (`Node.spec.unschedulable`, `Node.spec.maintenance`).
    #[serde(default)]
    pub is_draining: bool,
    /// The peers of this node, by the name of their object.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BgpNeighbour>)]
    pub peers: BTreeMap<Name, BgpNeighbour>,
    /// The Advertisements that this node carries out.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BgpAdvertisement>)]
    pub advertisements: BTreeMap<Name, BgpAdvertisement>,
}

/// With whom to have a session, and how: a `BgpPeer` with everything filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpNeighbour {
    /// Where it is.
    pub remote: BgpRemote,
    /// Its AS.
    pub peer_asn: PeerAsn,
    /// Our AS towards it.
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    /// Its port, and 179 for connections that it makes.
    pub port: u16,
    /// Our address towards it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source_address: Option<IpAddr>,
    /// The interface that packets to it must leave by (`SO_BINDTODEVICE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub device: Option<InterfaceName>,
    /// Longest silence that we propose, in seconds: 0 or 3–65535.
    pub hold_time: u16,
    /// Time between keepalives in seconds; a third of what was agreed on when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_time: Option<u16>,
    /// Wait after a failed connection in seconds, 1–65535; grows with failures.
    pub connect_time: u16,
    /// The key of TCP MD5 signatures (RFC 2385), 1–80 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub password: Option<Secret>,
    /// The hop limit of our packets, 1–255; 1 for external peers that are directly connected.
    pub ttl: u8,
    /// GTSM (RFC 5082): packets of the peer must have come over at most this many hops, 1–254; ours are sent with 255.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_security: Option<u8>,
    /// Wait for its connections and make none.
    #[serde(default)]
    pub passive: bool,
    /// Whose routes are exchanged.
    pub families: BTreeSet<BgpFamily>,
    /// Keep routes while sessions restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<GracefulRestart>,
    /// What we are to the peer (RFC 9234).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<BgpRole>,
    /// Watch the path by BFD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<BfdProfileSpec>,
    /// The session ends when the peer announces more prefixes than this.
    pub max_prefixes: u32,
}

/// Where a peer is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum BgpRemote {
    /// At this address; of a link-local one, `device` says on which link.
    #[schema(value_type = String)]
    Address(IpAddr),
    /// Whatever router is found at the other end of this interface (unnumbered).
    #[schema(value_type = String)]
    Interface(InterfaceName),
    /// Whoever connects from this network, up to a number of neighbours (dynamic).
    #[serde(rename_all = "camelCase")]
    Network {
        /// The network.
        #[schema(value_type = String)]
        network: IpNet,
        /// At most this many at once.
        limit: u16,
    },
}

/// An Advertisement of type BGP as a node carries it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpAdvertisement {
    /// The peers that are told; all of the node when empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub peers: BTreeSet<Name>,
    /// The length of the announced IPv4 prefixes, 1–32.
    pub aggregation_length: u8,
    /// The length of the announced IPv6 prefixes, 1–128.
    pub aggregation_length_v6: u8,
    /// `LOCAL_PREF`, to peers of the own AS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// `MULTI_EXIT_DISC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// How often our AS is in the path beyond what is due, 0–16; to peers of other AS.
    #[serde(default)]
    pub prepend: u8,
    /// Communities of any kind.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub communities: BTreeSet<Community>,
}
