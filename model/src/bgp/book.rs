//! Storage of the BGP reports of all agents: sessions, state of each prefix, and recent events.
//!
//! A report contains only changed prefixes, so the last state of each node is stored here, up to
//! [`BYTES_KEPT_MAX`]. Events are stored too, because a session that is established again shows no trace of its
//! interruption.

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

pub use self::route::StoredRoute;

/// Maximum memory for stored routes, in bytes as estimated by [`weight`]: about 400,000 prefixes on nodes with two
/// routers each. Further routes are not stored.
pub const BYTES_KEPT_MAX: usize = 256 * 1024 * 1024;

/// BGP data of one report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BgpReportUpdate {
    /// Sessions of the node; `None` if the node has no peers.
    pub bgp: Option<BgpReport>,
    /// Routes by prefix that changed since the previous report.
    pub routes: BTreeMap<IpNet, BgpRoute>,
    /// Prefixes that the node no longer reports.
    pub gone: BTreeSet<IpNet>,
    /// True if `routes` contains all prefixes of the node, so that stored routes of other prefixes are
    /// removed.
    pub is_complete: bool,
    /// Recent events of the node, including ones that do not concern BGP. Each report contains the complete
    /// list.
    pub events: Vec<Event>,
}

/// Last reported BGP sessions and routes of all agents, and recent events.
#[derive(Debug)]
pub struct BgpBook {
    nodes: BTreeMap<Name, NodeBgpState>,
    /// Stored routes, by the address that they announce, then by node and prefix.
    addresses: BTreeMap<IpAddr, BTreeMap<(Name, IpNet), Arc<StoredRoute>>>,
    bytes: usize,
    bytes_max: usize,
    events: Events,
    /// Number of times that a reported route was not stored because of [`BYTES_KEPT_MAX`].
    pub refused: u64,
}

/// BGP state of one node, from its reports.
#[derive(Debug, Default)]
struct NodeBgpState {
    report: Option<BgpReport>,
    routes: BTreeMap<IpNet, Arc<StoredRoute>>,
    /// Prefixes that the node reported and that were not stored because of the memory limit.
    missing: BTreeSet<IpNet>,
}

/// Maximum number of prefixes per node that are listed as not stored.
const MISSING_MAX: usize = 1000;

impl Default for BgpBook {
    fn default() -> Self {
        Self::with_room(BYTES_KEPT_MAX)
    }
}

impl BgpBook {
    /// Creates an empty store that holds at most `bytes_max` bytes of routes.
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

    /// Applies a report of a node's agent, received at `now`.
    pub fn apply(&mut self, node: &Name, news: BgpReportUpdate, now: Timestamp) {
        let BgpReportUpdate { mut bgp, routes, mut gone, is_complete, events } = news;
        if let Some(report) = &mut bgp {
            report.sessions.sort_by(|a, b| (&a.peer, a.address).cmp(&(&b.peer, b.address)));
        }
        let before = self.nodes.get(node).and_then(|page| page.report.as_ref());
        self.events.apply(node, before, bgp.as_ref(), events, now);
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
        if self.nodes.get(node).is_some_and(NodeBgpState::is_empty) {
            self.nodes.remove(node);
        }
    }

    fn put(&mut self, node: &Name, prefix: IpNet, said: BgpRoute) {
        self.remove(node, prefix);
        let route = Arc::new(StoredRoute::from(said));
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

    fn forget_addresses(&mut self, node: &Name, prefix: IpNet, route: &StoredRoute) {
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

    /// Removes the reports and events of nodes for which `has_node` returns false.
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

    /// Returns the nodes that have BGP configured and their last reports, ordered by name.
    pub fn reports(&self) -> impl Iterator<Item = (&Name, &BgpReport)> {
        self.nodes.iter().filter_map(|(node, page)| Some((node, page.report.as_ref()?)))
    }

    /// Returns the sessions of a node, ordered by peer and address.
    pub fn sessions_of<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a BgpSession> + use<'a> {
        let report = self.nodes.get(node).and_then(|page| page.report.as_ref());
        report.into_iter().flat_map(|report| &report.sessions)
    }

    /// Returns the routes of a node, ordered by prefix and starting with the prefix `from`.
    pub(crate) fn routes_of<'a>(
        &'a self,
        node: &Name,
        from: Option<IpNet>,
    ) -> impl Iterator<Item = (IpNet, &'a StoredRoute)> + use<'a> {
        let routes = self.nodes.get(node).map(|page| match from {
            Some(from) => page.routes.range(from..),
            None => page.routes.range(..),
        });
        routes.into_iter().flatten().map(|(prefix, route)| (*prefix, &**route))
    }

    /// Returns the nodes with any stored state, ordered by name and starting with `from`.
    pub(crate) fn nodes_from(&self, from: Option<&Name>) -> impl Iterator<Item = &Name> {
        let nodes = match from {
            Some(from) => self.nodes.range::<Name, _>(from..),
            None => self.nodes.range::<Name, _>(..),
        };
        nodes.map(|(node, _)| node)
    }

    /// Returns the routes that announce an address, ordered by node and prefix.
    pub fn of_address(&self, address: IpAddr) -> impl Iterator<Item = (&Name, IpNet, &StoredRoute)> {
        let of_address = self.addresses.get(&address);
        of_address.into_iter().flatten().map(|((node, prefix), route)| (node, *prefix, &**route))
    }

    /// Returns true if routes are missing because the memory limit was reached.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.nodes.values().any(|page| !page.missing.is_empty())
    }

    /// Returns the events of all nodes, newest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &BgpEvent> {
        self.events.newest_first()
    }

    /// Returns the estimated size of the stored routes, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl NodeBgpState {
    fn is_empty(&self) -> bool {
        let Self { report, routes, missing } = self;
        report.is_none() && routes.is_empty() && missing.is_empty()
    }
}

impl BgpSession {
    /// Returns true if the session is in state Established, in which routes are exchanged.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.state == BgpSessionState::Established
    }
}
