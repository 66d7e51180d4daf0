//! Compact form of a [`BgpRoute`] for storage, because several hundred thousand routes may be stored.

use std::net::IpAddr;

use crate::{
    bgp::report::{BgpRoute, BgpTold},
    primitives::name::Name,
};

/// Stored state of one prefix on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRoute {
    addresses: Box<[IpAddr]>,
    peers: Box<[(Box<str>, BgpTold)]>,
    withheld: Option<Box<str>>,
}

impl From<BgpRoute> for StoredRoute {
    fn from(route: BgpRoute) -> Self {
        let BgpRoute { addresses, peers, withheld } = route;
        Self {
            addresses: addresses.into_iter().collect(),
            peers: peers.into_iter().map(|(peer, told)| (peer.into_boxed_str(), told)).collect(),
            withheld: withheld.map(String::into_boxed_str),
        }
    }
}

impl StoredRoute {
    /// Returns the load balancer addresses that the prefix announces, in ascending order.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns the announcement state of the prefix for each neighbor, by the neighbor's key in
    /// [`BgpRoute::peers`].
    pub fn peers(&self) -> impl Iterator<Item = (&str, &BgpTold)> {
        self.peers.iter().map(|(peer, told)| (&**peer, told))
    }

    /// Returns the keys of the neighbors that currently receive the prefix.
    pub fn announced_to(&self) -> impl Iterator<Item = &str> {
        self.peers().filter(|(_, told)| told.since.is_some()).map(|(peer, _)| peer)
    }

    /// Returns the reason why no neighbor receives the prefix, or `None` if the prefix is not withheld.
    #[must_use]
    pub fn withheld(&self) -> Option<&str> {
        self.withheld.as_deref()
    }
}

/// Estimates the memory of a stored route in bytes: its contents, its entries in the trees that store it, and
/// the overhead of the allocator.
pub(super) fn weight(node: &Name, route: &StoredRoute) -> usize {
    const ROUTE: usize = 160;
    const ADDRESS: usize = 120;
    const PEER: usize = 96;
    let StoredRoute { addresses, peers, withheld } = route;
    let told = |(peer, told): &(Box<str>, BgpTold)| PEER + peer.len() + told.text.len();
    ROUTE
        + addresses.len() * (ADDRESS + node.as_str().len())
        + peers.iter().map(told).sum::<usize>()
        + withheld.as_ref().map_or(0, |text| text.len())
}
