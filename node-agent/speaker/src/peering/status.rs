//! Status of the BGP speaker, for reports and the status server.

use std::{
    fmt,
    net::IpAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ::bgp::Attributes;
use imbl::OrdMap;
use ipnet::IpNet;
use model::{
    bgp::report::BgpSession,
    primitives::{name::Name, quantity::Timestamp},
};

/// Snapshot of the status of all neighbors; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct NeighborsStatus {
    /// Status of each neighbor.
    pub neighbours: OrdMap<NeighbourKey, NeighborStatus>,
    /// Number of connections closed at once because their source address belongs to no peer.
    pub strangers: u64,
    /// Reasons why listening sockets are not open, as text.
    pub faults: Vec<String>,
}

/// Key of a neighbor: the name of the peer and, for a dynamic peer, the address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourKey {
    /// Name of the BgpPeer object.
    pub peer: Name,
    /// Address of a neighbor that connected to a dynamic peer; `None` for a static peer.
    pub address: Option<IpAddr>,
}

/// Status of one neighbor: its session and the routes advertised to it.
#[derive(Debug, Clone)]
pub struct NeighborStatus {
    /// State, counters and negotiated properties of the session, in report format.
    pub session: BgpSession,
    /// Adj-RIB-Out: routes of this session that the kernel has accepted for sending, by prefix.
    pub told: OrdMap<IpNet, AdvertisedRoute>,
}

/// Route that has been advertised to a neighbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertisedRoute {
    /// Time at which the kernel accepted the route with its current attributes. Repeated sending of equal
    /// attributes does not change this time.
    pub since: Timestamp,
    /// Path attributes sent with the route.
    pub attributes: Arc<Attributes>,
}

impl AdvertisedRoute {
    /// Returns true for a route of another speaker that this node reflects, and false for a route of this node.
    #[must_use]
    pub fn is_reflected(&self) -> bool {
        self.attributes.originator_id.is_some()
    }
}

impl fmt::Display for NeighbourKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, address } = self;
        match address {
            None => peer.fmt(f),
            Some(address) => write!(f, "{peer}@{address}"),
        }
    }
}

/// Returns the current wall-clock time.
pub(super) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_seconds(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
}
