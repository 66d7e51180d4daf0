//! The `BgpPeer`: a router, and which nodes have a session with it.

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

/// Node selectors of one peer.
pub const PEER_SELECTORS_MAX: usize = 64;
/// The hold time when none is given, in seconds (RFC 4271 §10).
pub const HOLD_TIME_DEFAULT: u16 = 90;
/// The shortest hold time but for none at all, in seconds (RFC 4271 §4.2).
pub const HOLD_TIME_MIN: u16 = 3;
/// The wait after a failed connection when none is given, in seconds.
pub const CONNECT_TIME_DEFAULT: u16 = 5;
/// The longest key of TCP MD5 signatures, in bytes (`TCP_MD5SIG_MAXKEYLEN`).
pub const PASSWORD_BYTES_MAX: usize = 80;
/// Longest restart time, in seconds: 12 bits (RFC 4724 §3).
pub const RESTART_TIME_MAX: u16 = 4095;
/// The port of BGP.
pub const BGP_PORT: u16 = 179;
/// Prefixes that a peer may announce when nothing is said.
pub const MAX_PREFIXES_DEFAULT: u32 = 1_000_000;
/// Neighbours of one `peerNetwork` when nothing is said.
pub const DYNAMIC_NEIGHBOURS_DEFAULT: u16 = 16;
/// See [`BgpPeerSpec::dynamic_limit`].
pub const DYNAMIC_NEIGHBOURS_MAX: u16 = 256;

/// What a `BgpPeer` should be. Exactly one of `peerAddress`, `interface` and `peerNetwork` is given, but that a link-local
/// `peerAddress` comes with the `interface` that it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BgpPeerSpec {
    /// The peer's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10.0.0.1")]
    pub peer_address: Option<IpAddr>,
    /// The interface at whose other end the peer is found by its router advertisements (unnumbered); with a link-local
    /// `peerAddress`, the link that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub interface: Option<InterfaceName>,
    /// Accept sessions from anybody in this network who has the right AS (dynamic neighbours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer_network: Option<IpNet>,
    /// At most this many neighbours of `peerNetwork` on one node, 1–256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 256)]
    pub dynamic_limit: Option<u16>,
    /// The peer's AS: a number, `internal` (ours) or `external` (any but ours).
    #[serde(rename = "peerASN")]
    pub peer_asn: PeerAsn,
    /// Our AS towards this peer; that of the Node, or of `tidegate-api --asn`, when left out.
    #[serde(default, rename = "localASN", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub local_asn: Option<u32>,
    /// The peer's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, default = 179)]
    pub peer_port: Option<u16>,
    /// Our address towards the peer; the kernel's choice when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source_address: Option<IpAddr>,
    /// Longest silence before the session counts as lost, in seconds: 0 (never) or 3–65535; 90 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 65535, default = 90)]
    pub hold_time: Option<u16>,
    /// Time between keepalives, in seconds; a third of the hold time when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub keepalive_time: Option<u16>,
    /// Wait after a failed connection, in seconds; 5 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, default = 5)]
    pub connect_time: Option<u16>,
    /// The key of TCP MD5 signatures (RFC 2385), 1–80 bytes. It is written and never shown; `status.hasPassword` says
    /// whether there is one. A write that leaves it out keeps the one that is there; the empty text takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, max_length = 80)]
    pub password: Option<Secret>,
    /// The external peer is several hops away.
    #[serde(default)]
    pub ebgp_multi_hop: bool,
    /// GTSM (RFC 5082): accept the peer's packets only when they came over at most this many hops, 1–254.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 254)]
    pub ttl_security: Option<u8>,
    /// Watch the path by BFD with the intervals of this `BfdProfile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_profile: Option<Name>,
    /// Ask the peer to keep our routes while the agent restarts (RFC 4724).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<GracefulRestart>,
    /// Wait for the peer's connection and make none.
    #[serde(default)]
    pub passive: bool,
    /// Whose routes are exchanged; both when left out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub families: BTreeSet<BgpFamily>,
    /// What we are to the peer (RFC 9234): our role must fit the peer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<BgpRole>,
    /// The session ends when the peer announces more prefixes than this; 1,000,000 when left out. None of them is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_prefixes: Option<u32>,
    /// Only Nodes whose labels match one of these have a session with the peer; all when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub node_selectors: Vec<Selector>,
    /// Have no session with it for the time being.
    #[serde(default)]
    pub disabled: bool,
}

impl BgpPeerSpec {
    /// What may be shown: everything but the password.
    #[must_use]
    pub fn without_password(&self) -> Self {
        Self { password: None, ..self.clone() }
    }

    /// Whether we make no connections to the peer: as asked, and where it is not known before it connects.
    #[must_use]
    pub const fn waits_for_connections(&self) -> bool {
        self.passive || self.peer_network.is_some()
    }

    /// Whose routes are exchanged.
    #[must_use]
    pub fn effective_families(&self) -> BTreeSet<BgpFamily> {
        if self.families.is_empty() {
            BTreeSet::from([BgpFamily::IPv4, BgpFamily::IPv6])
        } else {
            self.families.clone()
        }
    }
}

/// Why a number can be nobody's AS; `None` for one that can.
#[must_use]
pub const fn forbidden_asn(asn: u32) -> Option<&'static str> {
    match asn {
        0 => Some("reserved (RFC 7607)"),
        23_456 => Some("AS_TRANS, which stands for a number of four octets towards old routers (RFC 6793)"),
        65_535 | u32::MAX => Some("reserved (RFC 7300)"),
        _ => None,
    }
}

/// The BGP of one Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeBgp {
    /// The Node's AS; that of `tidegate-api --asn` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub asn: Option<u32>,
    /// Its BGP Identifier; derived from its first IPv4 address, else from its name, when left out. Not 0.0.0.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub router_id: Option<Ipv4Addr>,
}

/// Keeping routes while the agent restarts (RFC 4724).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GracefulRestart {
    /// How long the peer is asked to keep them, in seconds, 1–4095; 120 when left out.
    #[serde(default = "restart_time")]
    #[schema(minimum = 1, maximum = 4095, default = 120)]
    pub restart_time: u16,
}

const fn restart_time() -> u16 {
    120
}

/// A kind of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum BgpFamily {
    /// IPv4 unicast.
    IPv4,
    /// IPv6 unicast.
    IPv6,
}

impl BgpFamily {
    /// The version of IP.
    #[must_use]
    pub const fn ip(self) -> IpFamily {
        match self {
            Self::IPv4 => IpFamily::V4,
            Self::IPv6 => IpFamily::V6,
        }
    }
}

/// What we are to a peer (RFC 9234).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum BgpRole {
    /// We sell transit to it.
    Provider,
    /// We are a route server.
    RouteServer,
    /// We are a client of a route server.
    RouteServerClient,
    /// We buy transit from it.
    Customer,
    /// Both exchange own routes only.
    Peer,
}

/// The AS of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "AsnForm")]
pub enum PeerAsn {
    /// This one.
    Number(u32),
    /// Ours.
    Internal,
    /// Any but ours.
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
    /// Whether a peer of this AS is the one meant, where `local` is ours.
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
