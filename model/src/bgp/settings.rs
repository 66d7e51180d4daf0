//! BGP configuration of one node: its identity, its peers, and its Advertisements.
//!
//! The control server decides the peers and Advertisements of each node. The agent derives the announced
//! prefixes from the Services whose rules it has verified in the kernel of its node. An address is announced
//! to a peer if one of the Advertisements that cover the address (listed in
//! [`Announcement::advertisements`](crate::kinds::address::Announcement::advertisements)) includes the peer
//! in [`BgpAdvertisement::peers`].

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
    /// True if the node is being drained and must announce no address of a load balancer (`Node.spec.unschedulable`,
    /// `Node.spec.maintenance`). Its blocks are announced nevertheless.
    #[serde(default)]
    pub is_draining: bool,
    /// Peers of the node, by the name of the BgpPeer.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BgpNeighbour>)]
    pub peers: BTreeMap<Name, BgpNeighbour>,
    /// Advertisements that select the node, by name.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BgpAdvertisement>)]
    pub advertisements: BTreeMap<Name, BgpAdvertisement>,
    /// Blocks of workload networks that the node announces, each with the names of the Advertisements that select
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub blocks: BTreeMap<IpNet, BTreeSet<Name>>,
}

/// Session settings for a neighbor: a `BgpPeer` with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpNeighbour {
    /// Location of the neighbor: an address, an interface or a network.
    pub remote: BgpRemote,
    /// Expected AS number of the neighbor.
    pub peer_asn: PeerAsn,
    /// AS number that the node uses towards this neighbor.
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    /// TCP port of the neighbor to which the node connects. The node itself accepts connections at port 179.
    pub port: u16,
    /// Local address of connections to the neighbor; selected by the kernel if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source_address: Option<IpAddr>,
    /// Interface to which the socket is bound (`SO_BINDTODEVICE`), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub device: Option<InterfaceName>,
    /// Proposed hold time, in seconds: 0 or 3–65535.
    pub hold_time: u16,
    /// Time between KEEPALIVE messages, in seconds; a third of the negotiated hold time by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_time: Option<u16>,
    /// Pause after a failed connection, in seconds, 1–65535. The pause doubles with each further failure, up to 60
    /// seconds or this value if it is larger.
    pub connect_time: u16,
    /// Key of TCP MD5 signatures (RFC 2385), 1–80 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub password: Option<Secret>,
    /// Hop limit of sent packets, 1–255; 1 for external peers that are directly connected.
    pub ttl: u8,
    /// Maximum number of hops that received packets may have passed, 1–254 (GTSM, RFC 5082). If set, sent
    /// packets have the hop limit 255.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_security: Option<u8>,
    /// True if the node accepts connections from the neighbor but does not open any.
    #[serde(default)]
    pub passive: bool,
    /// Address families of the exchanged routes.
    pub families: BTreeSet<BgpFamily>,
    /// Graceful restart (RFC 4724): the neighbor keeps the routes of the node while the agent restarts. Disabled
    /// if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<GracefulRestart>,
    /// BGP role of the node towards the neighbor (RFC 9234).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<BgpRole>,
    /// Parameters of the BFD session that monitors the path to the neighbor; no BFD if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<BfdProfileSpec>,
    /// Maximum number of prefixes received from the neighbor; the session is closed if the neighbor announces
    /// more.
    pub max_prefixes: u32,
    /// True if the neighbor is a client of the node, which is its route reflector (RFC 4456).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub route_reflector_client: bool,
}

/// Location of a BGP neighbor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum BgpRemote {
    /// IP address of the neighbor. For a link-local address, `device` selects the link.
    #[schema(value_type = String)]
    Address(IpAddr),
    /// Router at the other end of this interface (unnumbered).
    #[schema(value_type = String)]
    Interface(InterfaceName),
    /// Routers that connect from this network, up to a limit (dynamic neighbors).
    #[serde(rename_all = "camelCase")]
    Network {
        /// Network from which routers may connect.
        #[schema(value_type = String)]
        network: IpNet,
        /// Maximum number of concurrent sessions with routers of the network.
        limit: u16,
    },
}

/// Advertisement of type BGP as sent to a node: the route attributes and the peers that receive the routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpAdvertisement {
    /// Peers that receive the routes. If empty, all peers of the node receive them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub peers: BTreeSet<Name>,
    /// Length of the announced IPv4 prefixes, 1–32.
    pub aggregation_length: u8,
    /// Length of the announced IPv6 prefixes, 1–128.
    pub aggregation_length_v6: u8,
    /// Value of the attribute `LOCAL_PREF` (RFC 4271), sent to internal peers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// Value of the attribute `MULTI_EXIT_DISC` (RFC 4271); the attribute is not sent if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// Number of additional repetitions of the local AS number in the path, 0–16; sent to external peers only.
    #[serde(default)]
    pub prepend: u8,
    /// Standard, extended and large communities of the announced routes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub communities: BTreeSet<Community>,
}
