//! What the agents say of their BGP: sessions, what became of every prefix, and what happened of late.
//!
//! A report names only the prefixes that differ, so the last word of each node is kept here, up to [`BYTES_KEPT_MAX`].
//! Beside it runs a ring of events, because a session that is established again looks as if nothing had been.

mod events;
mod route;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

pub use self::events::{EVENTS_KEPT_MAX, EVENTS_OF_NODE_MAX};
use self::{events::Events, route::weight};
use crate::{
    bgp::{
        listing::BgpEvent,
        report::{BgpReport, BgpRoute, BgpSession, BgpSessionState},
    },
    kinds::event::Event,
    primitives::{name::Name, quantity::Timestamp},
};

pub use self::route::Route;

/// Memory for routes, in bytes as [`weight`] estimates them: some 400,000 prefixes on nodes with two routers each. Of
/// more, nothing is kept.
pub const BYTES_KEPT_MAX: usize = 256 * 1024 * 1024;

/// What a report says of its node's BGP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// The sessions; nothing where the node has no peers.
    pub bgp: Option<BgpReport>,
    /// Prefixes that differ from before.
    pub routes: BTreeMap<IpNet, BgpRoute>,
    /// Prefixes about which the node has nothing to say any longer.
    pub gone: BTreeSet<IpNet>,
    /// Whether what `routes` does not name is gone as well.
    pub is_complete: bool,
    /// What happened on the node of late, also other than BGP; whole in every report.
    pub events: Vec<Event>,
}

/// What all agents have said.
#[derive(Debug)]
pub struct BgpBook {
    nodes: BTreeMap<Name, Page>,
    /// The routes by the addresses that they are announced for.
    addresses: BTreeMap<IpAddr, BTreeMap<(Name, IpNet), Arc<Route>>>,
    bytes: usize,
    bytes_max: usize,
    events: Events,
    /// How often a node's word was not kept because [`BYTES_KEPT_MAX`] is reached.
    pub refused: u64,
}

/// What one node says.
#[derive(Debug, Default)]
struct Page {
    report: Option<BgpReport>,
    routes: BTreeMap<IpNet, Arc<Route>>,
    /// Prefixes that were not kept.
    missing: BTreeSet<IpNet>,
}

/// Prefixes of one node that are remembered as not kept; beyond, that there are such is all that is known.
const MISSING_MAX: usize = 1000;

impl Default for BgpBook {
    fn default() -> Self {
        Self::with_room(BYTES_KEPT_MAX)
    }
}

impl BgpBook {
    /// An empty book that keeps at most so many bytes of routes.
    #[must_use]
    pub fn with_room(bytes_max: usize) -> Self {
        Self {
            nodes: BTreeMap::new(),
            addresses: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            events: Events::default(),
            refused: 0,
        }
    }

    /// Takes what a node's agent reports at the moment `now`.
    pub fn take(&mut self, node: &Name, news: News, now: Timestamp) {
        let News { mut bgp, routes, mut gone, is_complete, events } = news;
        if let Some(report) = &mut bgp {
            report.sessions.sort_by(|a, b| (&a.peer, a.address).cmp(&(&b.peer, b.address)));
        }
        let before = self.nodes.get(node).and_then(|page| page.report.as_ref());
        self.events.take(node, before, bgp.as_ref(), events, now);
        if is_complete && let Some(page) = self.nodes.get_mut(node) {
            page.missing.clear();
            gone.extend(page.routes.keys().filter(|prefix| !routes.contains_key(prefix)));
        }
        for prefix in gone {
            self.remove(node, prefix);
        }
        let page = self.nodes.entry(node.clone()).or_default();
        page.report = bgp;
        for (prefix, route) in routes {
            self.put(node, prefix, route);
        }
        if self.nodes.get(node).is_some_and(Page::is_empty) {
            self.nodes.remove(node);
        }
    }

    fn put(&mut self, node: &Name, prefix: IpNet, said: BgpRoute) {
        self.remove(node, prefix);
        let route = Arc::new(Route::from(said));
        let bytes = weight(node, &route);
        let page = self.nodes.entry(node.clone()).or_default();
        if self.bytes.saturating_add(bytes) > self.bytes_max {
            self.refused += 1;
            if page.missing.len() < MISSING_MAX {
                page.missing.insert(prefix);
            }
            return;
        }
        self.bytes += bytes;
        for address in route.addresses() {
            let of_address = self.addresses.entry(*address).or_default();
            of_address.insert((node.clone(), prefix), Arc::clone(&route));
        }
        page.routes.insert(prefix, route);
    }

    fn remove(&mut self, node: &Name, prefix: IpNet) {
        let Some(page) = self.nodes.get_mut(node) else { return };
        page.missing.remove(&prefix);
        let Some(route) = page.routes.remove(&prefix) else { return };
        self.bytes -= weight(node, &route);
        self.forget_addresses(node, prefix, &route);
    }

    fn forget_addresses(&mut self, node: &Name, prefix: IpNet, route: &Route) {
        let key = (node.clone(), prefix);
        for address in route.addresses() {
            if let Some(of_address) = self.addresses.get_mut(address) {
                of_address.remove(&key);
                if of_address.is_empty() {
                    self.addresses.remove(address);
                }
            }
        }
    }

    /// Forgets nodes that no longer exist, with what happened on them.
    pub fn forget(&mut self, has_node: impl Fn(&Name) -> bool) {
        let deleted: Vec<_> = self.nodes.keys().filter(|node| !has_node(node)).cloned().collect();
        for node in deleted {
            let Some(page) = self.nodes.remove(&node) else { continue };
            for (prefix, route) in page.routes {
                self.bytes -= weight(&node, &route);
                self.forget_addresses(&node, prefix, &route);
            }
        }
        self.events.forget(has_node);
    }

    /// The nodes that have BGP, in the order of the names.
    pub fn reports(&self) -> impl Iterator<Item = (&Name, &BgpReport)> {
        self.nodes.iter().filter_map(|(node, page)| Some((node, page.report.as_ref()?)))
    }

    /// The sessions of a node, in the order of peers and addresses.
    pub fn sessions_of<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a BgpSession> + use<'a> {
        let report = self.nodes.get(node).and_then(|page| page.report.as_ref());
        report.into_iter().flat_map(|report| &report.sessions)
    }

    /// The routes of a node with prefixes from `from` on, in the order of the prefixes.
    pub(crate) fn routes_of<'a>(
        &'a self,
        node: &Name,
        from: Option<IpNet>,
    ) -> impl Iterator<Item = (IpNet, &'a Route)> + use<'a> {
        let routes = self.nodes.get(node).map(|page| match from {
            Some(from) => page.routes.range(from..),
            None => page.routes.range(..),
        });
        routes.into_iter().flatten().map(|(prefix, route)| (*prefix, &**route))
    }

    /// The nodes that say anything, from `from` on, in the order of the names.
    pub(crate) fn nodes_from(&self, from: Option<&Name>) -> impl Iterator<Item = &Name> {
        let nodes = match from {
            Some(from) => self.nodes.range::<Name, _>(from..),
            None => self.nodes.range::<Name, _>(..),
        };
        nodes.map(|(node, _)| node)
    }

    /// What the nodes say of the prefixes that are for an address, in the order of nodes and prefixes.
    pub fn of_address(&self, address: IpAddr) -> impl Iterator<Item = (&Name, IpNet, &Route)> {
        let of_address = self.addresses.get(&address);
        of_address.into_iter().flatten().map(|((node, prefix), route)| (node, *prefix, &**route))
    }

    /// Whether something was said of prefixes that is not kept, for want of room.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.nodes.values().any(|page| !page.missing.is_empty())
    }

    /// What happened, the newest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &BgpEvent> {
        self.events.newest_first()
    }

    /// Bytes of routes that are kept, as estimated.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Page {
    fn is_empty(&self) -> bool {
        let Self { report, routes, missing } = self;
        report.is_none() && routes.is_empty() && missing.is_empty()
    }
}

impl BgpSession {
    /// Whether routes are exchanged.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.state == BgpSessionState::Established
    }
}
