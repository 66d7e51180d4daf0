//! BgpPeer: a router and the nodes that have BGP sessions with it.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use ipnet::IpNet;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Unexpected, Visitor},
};
use utoipa::ToSchema;

use crate::{
    kinds::{advertisement::InterfaceName, selector::Selector},
    primitives::{name::Name, net::IpFamily, secret::Secret},
};

/// Maximum number of node selectors of a peer.
pub const PEER_SELECTORS_MAX: usize = 64;
/// Default hold time in seconds (RFC 4271 §10).
pub const HOLD_TIME_DEFAULT: u16 = 90;
/// Minimum hold time in seconds other than 0 (RFC 4271 §4.2).
pub const HOLD_TIME_MIN: u16 = 3;
/// Default pause after the first failed connection, in seconds.
pub const CONNECT_TIME_DEFAULT: u16 = 5;
/// Maximum length of the key of TCP MD5 signatures in bytes (`TCP_MD5SIG_MAXKEYLEN`).
pub const PASSWORD_BYTES_MAX: usize = 80;
/// Maximum restart time in seconds: the largest 12-bit number (RFC 4724 §3).
pub const RESTART_TIME_MAX: u16 = 4095;
/// TCP port of BGP (RFC 4271).
pub const BGP_PORT: u16 = 179;
/// Default limit of prefixes received from a peer.
pub const MAX_PREFIXES_DEFAULT: u32 = 1_000_000;
/// Default maximum number of sessions with dynamic neighbors of a `peerNetwork` on one node.
pub const DYNAMIC_NEIGHBOURS_DEFAULT: u16 = 16;
/// Maximum value of [`BgpPeerSpec::dynamic_limit`].
pub const DYNAMIC_NEIGHBOURS_MAX: u16 = 256;

/// Desired state of a BgpPeer: a router, the nodes that have sessions with it, and the options of the
/// sessions.
///
/// Exactly one of `peerAddress`, `interface` and `peerNetwork` is required; a link-local `peerAddress` also
/// needs `interface`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpPeerSpec {
    /// IP address of the router, such as `10.0.0.1`. A link-local address also needs `interface`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10.0.0.1")]
    pub peer_address: Option<IpAddr>,
    /// Name of the interface that leads to the router, such as `eth0`. Without `peerAddress`, the address of
    /// the router is discovered by its router advertisements on this interface (unnumbered session). Required
    /// with a link-local `peerAddress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub interface: Option<InterfaceName>,
    /// Network from which sessions with the required AS number are accepted (dynamic neighbors), such as
    /// `10.0.0.0/24`. A prefix length of 0 is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer_network: Option<IpNet>,
    /// Maximum number of sessions with routers in `peerNetwork` on one node, from 1 to 256. Further
    /// connections are rejected. Only allowed with `peerNetwork`. Default: 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 256)]
    pub dynamic_limit: Option<u16>,
    /// AS number that the router must have: a number from 1 to 4,294,967,295 without reserved ones,
    /// `internal` (the AS number of the node) or `external` (any other AS number).
    #[serde(rename = "peerASN")]
    pub peer_asn: PeerAsn,
    /// AS number that the node uses towards this router, from 1 to 4,294,967,295 without reserved numbers.
    /// Default: `bgp.asn` of the Node, or `tidegate-api --asn`.
    #[serde(default, rename = "localASN", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub local_asn: Option<u32>,
    /// TCP port of the router, from 1 to 65,535. Not allowed with `peerNetwork`. Default: 179.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, default = 179)]
    pub peer_port: Option<u16>,
    /// Local address of the session, of the same IP family as the address of the router. Default: address
    /// selected by the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source_address: Option<IpAddr>,
    /// Hold time in seconds: 0 (no keepalives and no expiry) or from 3 to 65,535 (RFC 4271). The session is
    /// closed if the router sends no message for this time. If both sides configure different values, the
    /// smaller one applies. Default: 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 65535, default = 90)]
    pub hold_time: Option<u16>,
    /// Time between keepalive messages in seconds, at least 1 and less than `holdTime`. Default: a third of
    /// the hold time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub keepalive_time: Option<u16>,
    /// Pause in seconds after a failed connection, from 1 to 65,535. The pause doubles with each further
    /// failure up to 60 seconds; it is constant if this value is larger. Not allowed with `peerNetwork`.
    /// Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, default = 5)]
    pub connect_time: Option<u16>,
    /// Key of TCP MD5 signatures (RFC 2385), at most 80 bytes. Write-only: responses do not contain it, and
    /// `status.hasPassword` shows its presence. A write without this field keeps the key; an empty string
    /// removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, max_length = 80)]
    pub password: Option<Secret>,
    /// True if an external router may be more than one hop away. Not allowed for internal peers, together
    /// with `interface` or `ttlSecurity`, or with a link-local address. Default: false.
    #[serde(default)]
    pub ebgp_multi_hop: bool,
    /// Maximum number of hops to the router for GTSM (RFC 5082), from 1 to 254. Packets from farther away are
    /// dropped. Default: no check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 254)]
    pub ttl_security: Option<u8>,
    /// Name of the BfdProfile that monitors the path to the router by BFD (RFC 5880). Default: no BFD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_profile: Option<Name>,
    /// Graceful restart (RFC 4724): the router keeps the routes while the agent restarts. Default: no
    /// graceful restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<GracefulRestart>,
    /// True if the agent accepts connections of the router and opens none. Default: false.
    #[serde(default)]
    pub passive: bool,
    /// Address families of the session: `IPv4` and `IPv6` unicast. Default: both.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub families: BTreeSet<BgpFamily>,
    /// Role of the node in the session (RFC 9234). The session is only established if the router has the
    /// matching role, such as `Customer` for `Provider`. Not allowed for internal peers. Default: no role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<BgpRole>,
    /// Maximum number of prefixes received from the router, at least 1. The session is closed if the router
    /// announces more. The node does not use received prefixes as routes. Default: 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_prefixes: Option<u32>,
    /// True if the node is a route reflector of the router (RFC 4456): the router is a client, to which the node sends
    /// the routes of all other internal peers, and whose routes it sends to all of them. The next hops stay unchanged,
    /// and the cluster ID is the BGP Identifier of the node. Internal peers of the node without this field are
    /// non-clients. Only allowed with `peerASN: internal` and without `localASN`. A change resets sessions: those with
    /// the router, and those with all internal peers of a node that gets its first client or loses its last one.
    /// Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub route_reflector_client: bool,
    /// Selectors of Nodes, at most 64. A Node has a session with the router if its labels match at least one
    /// selector. Default: all Nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub node_selectors: Vec<Selector>,
    /// True if no node may have a session with the router. Default: false.
    #[serde(default)]
    pub disabled: bool,
}

impl BgpPeerSpec {
    /// Returns the spec without the password, for responses.
    #[must_use]
    pub fn without_password(&self) -> Self {
        Self { password: None, ..self.clone() }
    }

    /// True if the node only accepts connections from the router and never opens one: the session is passive,
    /// or the neighbors are dynamic.
    #[must_use]
    pub const fn waits_for_connections(&self) -> bool {
        self.passive || self.peer_network.is_some()
    }

    /// Returns the address families of the session: `families`, or both if the field is empty.
    #[must_use]
    pub fn effective_families(&self) -> BTreeSet<BgpFamily> {
        if self.families.is_empty() {
            BTreeSet::from([BgpFamily::IPv4, BgpFamily::IPv6])
        } else {
            self.families.clone()
        }
    }
}

/// Returns the reason why an AS number is not allowed for a peer, or `None` if the number is allowed.
#[must_use]
pub const fn forbidden_asn(asn: u32) -> Option<&'static str> {
    match asn {
        0 => Some("reserved (RFC 7607)"),
        23_456 => Some("AS_TRANS, which stands for a number of four octets towards old routers (RFC 6793)"),
        65_535 | u32::MAX => Some("reserved (RFC 7300)"),
        _ => None,
    }
}

/// BGP settings of one Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeBgp {
    /// AS number of the Node, from 1 to 4,294,967,295 without reserved numbers. Default:
    /// `tidegate-api --asn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub asn: Option<u32>,
    /// BGP Identifier of the Node (RFC 6286), in the form of an IPv4 address other than 0.0.0.0. Default:
    /// first IPv4 address of the Node, or a value derived from its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub router_id: Option<Ipv4Addr>,
}

/// Graceful restart (RFC 4724): the router keeps the routes while the agent restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GracefulRestart {
    /// Time in seconds for which the router should keep the routes, from 1 to 4095. Default: 120.
    #[serde(default = "restart_time")]
    #[schema(minimum = 1, maximum = 4095, default = 120)]
    pub restart_time: u16,
}

const fn restart_time() -> u16 {
    120
}

/// Address family of routes: `IPv4` or `IPv6` unicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum BgpFamily {
    /// IPv4 unicast routes (AFI 1, SAFI 1).
    IPv4,
    /// IPv6 unicast routes (AFI 2, SAFI 1).
    IPv6,
}

impl BgpFamily {
    /// Returns the IP family of the routes in the address family.
    #[must_use]
    pub const fn ip(self) -> IpFamily {
        match self {
            Self::IPv4 => IpFamily::V4,
            Self::IPv6 => IpFamily::V6,
        }
    }
}

/// Role of the node in a BGP session (RFC 9234): `Provider`, `RouteServer`, `RouteServerClient`, `Customer` or
/// `Peer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum BgpRole {
    /// The node is a transit provider of the router.
    Provider,
    /// The node is a route server, and the router its client.
    RouteServer,
    /// The node is a client of the router, which is a route server.
    RouteServerClient,
    /// The node is a transit customer of the router.
    Customer,
    /// The node and the router are peers: each sends only its own routes and those of its customers.
    Peer,
}

/// AS number that a peer must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "AsnForm")]
pub enum PeerAsn {
    /// The peer has this AS number.
    Number(u32),
    /// The peer has the AS number of the node (IBGP).
    Internal,
    /// The peer has any AS number except the one of the node (EBGP).
    External,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AsnForm {
    Number(u32),
    Word(&'static str),
}

impl<'de> Deserialize<'de> for PeerAsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AsnVisitor)
    }
}

struct AsnVisitor;

impl Visitor<'_> for AsnVisitor {
    type Value = PeerAsn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AS number, `internal` or `external`")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<PeerAsn, E> {
        let asn = u32::try_from(number).map_err(|_| E::invalid_type(Unexpected::Unsigned(number), &self))?;
        Ok(PeerAsn::Number(asn))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<PeerAsn, E> {
        match word {
            "internal" => Ok(PeerAsn::Internal),
            "external" => Ok(PeerAsn::External),
            _ => Err(E::invalid_type(Unexpected::Str(word), &self)),
        }
    }
}

impl From<PeerAsn> for AsnForm {
    fn from(asn: PeerAsn) -> Self {
        match asn {
            PeerAsn::Number(asn) => Self::Number(asn),
            PeerAsn::Internal => Self::Word("internal"),
            PeerAsn::External => Self::Word("external"),
        }
    }
}

impl PeerAsn {
    /// True if the peer may have the AS number `asn`. `local` is the AS number of the node.
    #[must_use]
    pub const fn accepts(self, asn: u32, local: u32) -> bool {
        match self {
            Self::Number(wanted) => wanted == asn,
            Self::Internal => asn == local,
            Self::External => asn != local,
        }
    }
}

impl fmt::Display for PeerAsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(asn) => asn.fmt(f),
            Self::Internal => f.write_str("internal"),
            Self::External => f.write_str("external"),
        }
    }
}
