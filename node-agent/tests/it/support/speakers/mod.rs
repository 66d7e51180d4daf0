//! Third-party routers as processes in a namespace, with access to the sessions and received routes that they
//! report.
//!
//! Assertions use only these reports: nothing here depends on Tidegate's speaker. The directory is
//! self-contained, so that tests of other packages can include it by path. For the same reason, namespaces
//! are passed by name.

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

/// Third-party BGP router that runs in a namespace.
pub trait Router {
    /// Returns the session with a peer as the router reports it. `peer` is the address of the peer or, for an
    /// unnumbered session, the interface.
    fn session(&self, peer: &str) -> Session;

    /// Returns the prefixes that the router has received, each with the reason why the router has it: the
    /// peer announces it, or it is kept after the end of the session.
    fn prefixes(&self) -> BTreeMap<String, Kept>;

    /// Returns the best received route for each prefix, with its attributes.
    fn table(&self) -> BTreeMap<String, Route>;

    /// Sends a route refresh request from the router to a peer.
    fn ask_again(&self, peer: &str);

    /// Returns the log of the router so far.
    fn log(&self) -> String;

    /// Suspends the router process: it sends nothing and keeps its connections open.
    fn freeze(&self);

    /// Resumes the router process after [`Self::freeze`].
    fn thaw(&self);
}

/// BGP session as reported by the router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// State as printed by the router, in lower case.
    pub state: String,
    /// Text in a router-specific format that differs between consecutive sessions with the same peer.
    pub incarnation: String,
    /// Number of received UPDATE messages. For a router that does not count them: number of received
    /// prefixes, including withdrawals.
    pub updates: u64,
    /// Complete output of the router about the session.
    pub whole: String,
}

impl Session {
    pub fn is_established(&self) -> bool {
        self.state == "established"
    }
}

/// Reason why a router has a route: its peer announces it, or the router keeps it after the session has
/// ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The peer announces the route.
    Announced,
    /// The session with the peer has ended, and the route is kept for the Graceful Restart of the peer.
    Stale,
}

/// Route in the table of a router, with its attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    pub origin: String,
    pub as_path: Vec<u32>,
    /// Next hops, the global address first.
    pub next_hops: Vec<String>,
    pub med: Option<u32>,
    /// Local preference. For routes from an external peer, it is the router's own default.
    pub local_pref: Option<u32>,
    /// Communities in the notation of `model::community`.
    pub communities: BTreeSet<String>,
    pub is_atomic_aggregate: bool,
}

/// Configuration of a router and its sessions.
#[derive(Debug, Clone)]
pub struct Settings {
    pub asn: u32,
    pub router_id: String,
    pub peerings: Vec<Peering>,
}

/// Configuration of a BGP session of the router.
#[derive(Debug, Clone)]
pub struct Peering {
    pub peer: Peer,
    pub peer_asn: u32,
    /// Address of the router towards the peer.
    pub local: String,
    pub password: Option<String>,
    /// Maximum number of hops to the peer; `None` if the peer is on the same link.
    pub hops: Option<u8>,
    /// True if packets from the peer must have TTL 255 (GTSM, RFC 5082).
    pub has_gtsm: bool,
    pub is_passive: bool,
    /// True if the router keeps the peer's routes while the peer restarts (Graceful Restart, RFC 4724), even
    /// after a NOTIFICATION (RFC 8538).
    pub keeps_routes: bool,
    /// BFD interval in milliseconds, with Detect Mult three; `None` for no BFD.
    pub bfd: Option<u32>,
    /// True if IPv4 routes may have IPv6 next hops (RFC 8950).
    pub has_extended_next_hop: bool,
    /// Hold time in seconds.
    pub hold_time: u16,
}

/// Location of a BGP peer: an address, a network or an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    Address(String),
    /// Any host that connects from this network.
    Network(String),
    /// Neighbor at the other end of this interface.
    Interface(String),
}

impl Peering {
    /// Builds the default configuration of a session over one link.
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

/// Concatenates the parts that are `Some`, each followed by a line feed.
fn lines(parts: &[Option<String>]) -> String {
    parts.iter().flatten().fold(String::new(), |text, line| text + line + "\n")
}

/// Converts a community in the notation of a router to that of `model::community`.
fn community(text: &str) -> String {
    let parsed: Result<model::primitives::community::Community, _> = text.parse();
    parsed.map_or_else(|_| text.to_owned(), |community| community.to_string())
}
