//! Other people's routers as processes in a namespace, and what each says of its sessions and of the routes that it got.
//!
//! What is asserted with them is the other side's view: nothing here knows our own speaker. The directory stands alone, so
//! that tests of other packages can take it in by its path; namespaces are named by text for the same reason.

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

/// A router of somebody else that speaks BGP.
pub trait Router {
    /// How it sees its session with a peer, which is named by its address, or by the interface that it is found on.
    fn session(&self, peer: &str) -> Session;

    /// The prefixes that it has from its peers, and which of them it keeps although the session that brought them is gone.
    fn prefixes(&self) -> BTreeMap<String, Kept>;

    /// The routes that it has from its peers with their attributes; of a prefix that several announce, the best one.
    fn table(&self) -> BTreeMap<String, Route>;

    /// Asks a peer for all of its routes again, without ending the session.
    fn ask_again(&self, peer: &str);

    /// What it has written so far.
    fn log(&self) -> String;

    /// Stops it in its tracks: it sends nothing and closes nothing.
    fn freeze(&self);

    /// Lets it go on.
    fn thaw(&self);
}

/// A session as the router sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// In the router's own words, in lower case.
    pub state: String,
    /// Tells one session from the next with the same peer; of which form, is the router's business.
    pub incarnation: String,
    /// UPDATE messages that it got from the peer; where it counts no messages, prefixes that were told, withdrawals too.
    pub updates: u64,
    /// Everything that it says of the session.
    pub whole: String,
}

impl Session {
    pub fn is_established(&self) -> bool {
        self.state == "established"
    }
}

/// Why a router has a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Its peer announces it.
    Announced,
    /// Its peer is gone, and restarts gracefully.
    Stale,
}

/// A route as the router has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    pub origin: String,
    pub as_path: Vec<u32>,
    /// The global address first.
    pub next_hops: Vec<String>,
    pub med: Option<u32>,
    /// What it shows for routes of other AS as well is its own default.
    pub local_pref: Option<u32>,
    /// In the forms of `model::community`.
    pub communities: BTreeSet<String>,
    pub is_atomic_aggregate: bool,
}

/// What a router is told of itself.
#[derive(Debug, Clone)]
pub struct Settings {
    pub asn: u32,
    pub router_id: String,
    pub peerings: Vec<Peering>,
}

/// What a router is told of a session.
#[derive(Debug, Clone)]
pub struct Peering {
    pub peer: Peer,
    pub peer_asn: u32,
    /// The router's address towards the peer.
    pub local: String,
    pub password: Option<String>,
    /// The peer is at most this many hops away.
    pub hops: Option<u8>,
    /// Packets of the peer must come with the highest hop limit (RFC 5082).
    pub has_gtsm: bool,
    pub is_passive: bool,
    /// Keep the peer's routes while it restarts (RFC 4724), also after a NOTIFICATION (RFC 8538).
    pub keeps_routes: bool,
    /// BFD with this interval in milliseconds, three times.
    pub bfd: Option<u32>,
    /// IPv4 routes may have IPv6 next hops (RFC 8950).
    pub has_extended_next_hop: bool,
    /// In seconds.
    pub hold_time: u16,
}

/// Where a peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    Address(String),
    /// Whoever connects from there.
    Network(String),
    /// At the other end of this interface.
    Interface(String),
}

impl Peering {
    /// A session over one link, with nothing special about it.
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

/// Lines of text from those that apply.
fn lines(parts: &[Option<String>]) -> String {
    parts.iter().flatten().fold(String::new(), |text, line| text + line + "\n")
}

/// A community in the form of `model::community`, from a text that is nearly in it.
fn community(text: &str) -> String {
    let parsed: Result<model::primitives::community::Community, _> = text.parse();
    parsed.map_or_else(|_| text.to_owned(), |community| community.to_string())
}
