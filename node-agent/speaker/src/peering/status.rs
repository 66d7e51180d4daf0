//! Status of the BGP speaker.

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

/// Status of all neighbors; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct NeighborsStatus {
    /// Status of each neighbor.
    pub neighbours: OrdMap<NeighbourKey, NeighborStatus>,
    /// Number of connections from addresses that are no peer.
    pub strangers: u64,
    /// Reasons for which listening sockets are not open.
    pub faults: Vec<String>,
}

/// Identifies a neighbor: the name of the peer and, for a dynamic peer, the address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourKey {
    /// Name of the peer.
    pub peer: Name,
    /// Address of a neighbor of a dynamic peer.
    pub address: Option<IpAddr>,
}

/// Status of one neighbor.
#[derive(Debug, Clone)]
pub struct NeighborStatus {
    /// Session in report format.
    pub session: BgpSession,
    /// Adj-RIB-Out: prefixes passed to the kernel in this session.
    pub told: OrdMap<IpNet, AdvertisedRoute>,
}

/// Advertised route of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertisedRoute {
    /// Time of the last change.
    pub since: Timestamp,
    /// Path attributes.
    pub attributes: Arc<Attributes>,
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
