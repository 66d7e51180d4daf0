//! A route as it is kept: the same as [`BgpRoute`], in less memory, because there may be very many.

use std::net::IpAddr;

use crate::{
    bgp::report::{BgpRoute, BgpTold},
    primitives::name::Name,
};

/// What became of one prefix on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    addresses: Box<[IpAddr]>,
    peers: Box<[(Box<str>, BgpTold)]>,
    withheld: Option<Box<str>>,
}

impl From<BgpRoute> for Route {
    fn from(route: BgpRoute) -> Self {
        let BgpRoute { addresses, peers, withheld } = route;
        Self {
            addresses: addresses.into_iter().collect(),
            peers: peers.into_iter().map(|(peer, told)| (peer.into_boxed_str(), told)).collect(),
            withheld: withheld.map(String::into_boxed_str),
        }
    }
}

impl Route {
    /// The load balancer addresses that it is announced for, in their order.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// What each neighbour was told, by its key in [`BgpRoute::peers`].
    pub fn peers(&self) -> impl Iterator<Item = (&str, &BgpTold)> {
        self.peers.iter().map(|(peer, told)| (&**peer, told))
    }

    /// The neighbours that have it.
    pub fn announced_to(&self) -> impl Iterator<Item = &str> {
        self.peers().filter(|(_, told)| told.since.is_some()).map(|(peer, _)| peer)
    }

    /// Why it is announced to nobody.
    #[must_use]
    pub fn withheld(&self) -> Option<&str> {
        self.withheld.as_deref()
    }
}

/// Bytes that a route of a node takes, roughly: what it holds, the places in trees that lead to it, and what an allocator
/// adds.
pub(super) fn weight(node: &Name, route: &Route) -> usize {
    const ROUTE: usize = 160;
    const ADDRESS: usize = 120;
    const PEER: usize = 96;
    let Route { addresses, peers, withheld } = route;
    let told = |(peer, told): &(Box<str>, BgpTold)| PEER + peer.len() + told.text.len();
    ROUTE
        + addresses.len() * (ADDRESS + node.as_str().len())
        + peers.iter().map(told).sum::<usize>()
        + withheld.as_ref().map_or(0, |text| text.len())
}
