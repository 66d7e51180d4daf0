//! Third-party routers as processes in a namespace, with their view of sessions and received routes.
//!
//! Assertions use the router's view: nothing here depends on our speaker. The directory is self-contained, so
//! that tests of other packages can include it by path; namespaces are passed by name for the same reason.

#![allow(unused_imports, reason = "each test file uses its part")]

pub mod bird;
pub mod daemon;
pub mod exabgp;
pub mod frr;
pub mod gobgp;

use std::collections::{BTreeMap, BTreeSet};

pub use bird::Bird;
pub use exabgp::ExaBgp;
pub use frr::Frr;
pub use gobgp::GoBgp;

/// A third-party BGP router.
pub trait Router {
    /// Returns its session with a peer, named by address, or by interface if unnumbered.
    fn session(&self, peer: &str) -> Session;

    /// Returns the prefixes received from its peers, and which of them are kept after the end of the session.
    fn prefixes(&self) -> BTreeMap<String, Kept>;

    /// Returns the received routes with their attributes; the best one for each prefix.
    fn table(&self) -> BTreeMap<String, Route>;

    /// Sends a route refresh request to a peer.
    fn ask_again(&self, peer: &str);

    /// Returns its log so far.
    fn log(&self) -> String;

    /// Freezes it: it sends nothing and closes nothing.
    fn freeze(&self);

    /// Resumes it.
    fn thaw(&self);
}

/// A session as seen by the router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// State as printed by the router, in lower case.
    pub state: String,
    /// Distinguishes consecutive sessions with the same peer, in a router-specific format.
    pub incarnation: String,
    /// Number of received UPDATE messages, or, if the router does not count them, of received prefixes
    /// including withdrawals.
    pub updates: u64,
    /// Complete output about the session.
    pub whole: String,
}

impl Session {
    pub fn is_established(&self) -> bool {
        self.state == "established"
    }
}

/// Reason why a router has a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The peer announces it.
    Announced,
    /// The peer is gone, and restarts gracefully.
    Stale,
}

/// A route in the router's table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    pub origin: String,
    pub as_path: Vec<u32>,
    /// Next hops, the global address first.
    pub next_hops: Vec<String>,
    pub med: Option<u32>,
    /// For routes of another AS, the router's own default.
    pub local_pref: Option<u32>,
    /// Communities in the notation of `model::community`.
    pub communities: BTreeSet<String>,
    pub is_atomic_aggregate: bool,
}

/// Configuration of a router.
#[derive(Debug, Clone)]
pub struct Settings {
    pub asn: u32,
    pub router_id: String,
    pub peerings: Vec<Peering>,
}

/// Configuration of a session.
#[derive(Debug, Clone)]
pub struct Peering {
    pub peer: Peer,
    pub peer_asn: u32,
    /// Address of the router towards the peer.
    pub local: String,
    pub password: Option<String>,
    /// Maximum number of hops to the peer.
    pub hops: Option<u8>,
    /// True if packets of the peer must have TTL 255 (RFC 5082).
    pub has_gtsm: bool,
    pub is_passive: bool,
    /// True if the peer's routes are kept during its restart (RFC 4724), also after a NOTIFICATION (RFC
    /// 8538).
    pub keeps_routes: bool,
    /// BFD interval in milliseconds, with multiplier three.
    pub bfd: Option<u32>,
    /// True if IPv4 routes may have IPv6 next hops (RFC 8950).
    pub has_extended_next_hop: bool,
    /// Hold time in seconds.
    pub hold_time: u16,
}

/// Location of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    Address(String),
    /// Any host that connects from this network.
    Network(String),
    /// The other end of this interface.
    Interface(String),
}

impl Peering {
    /// Builds a default session over one link.
    pub fn new(local: &str, peer: &str, peer_asn: u32) -> Self {
        Self {
            peer: Peer::Address(peer.to_owned()),
            peer_asn,
            local: local.to_owned(),
            password: None,
            hops: None,
            has_gtsm: false,
            is_passive: false,
            keeps_routes: false,
            bfd: None,
            has_extended_next_hop: false,
            hold_time: 90,
        }
    }

    fn address(&self) -> &str {
        match &self.peer {
            Peer::Address(address) => address,
            Peer::Network(_) | Peer::Interface(_) => {
                panic!("this router knows its peers by address: {self:?}")
            }
        }
    }
}

/// Joins the present parts as lines.
fn lines(parts: &[Option<String>]) -> String {
    parts.iter().flatten().fold(String::new(), |text, line| text + line + "\n")
}

/// Normalizes a community to the notation of `model::community`.
fn community(text: &str) -> String {
    let parsed: Result<model::primitives::community::Community, _> = text.parse();
    parsed.map_or_else(|_| text.to_owned(), |community| community.to_string())
}
