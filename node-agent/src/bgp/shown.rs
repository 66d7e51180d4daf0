//! What a speaker shows of itself.

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

/// All neighbours; a copy costs nothing.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Each neighbour.
    pub neighbours: OrdMap<NeighbourKey, ShownNeighbour>,
    /// Speakers that connected and belong to no peer.
    pub strangers: u64,
    /// Why connections are not accepted where they should be, in words.
    pub faults: Vec<String>,
}

/// Which neighbour: the name of the peer; of a dynamic one, its address as well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourKey {
    /// The peer.
    pub peer: Name,
    /// The address of one of those that a dynamic peer stands for.
    pub address: Option<IpAddr>,
}

/// One neighbour.
#[derive(Debug, Clone)]
pub struct ShownNeighbour {
    /// The session as it is reported.
    pub session: BgpSession,
    /// The prefixes that were given to the kernel for the neighbour in this session.
    pub told: OrdMap<IpNet, Told>,
}

/// What a neighbour was told of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Since when it is so.
    pub since: Timestamp,
    /// The attributes.
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

/// The time of the day.
pub(super) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_seconds(i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX))
}
