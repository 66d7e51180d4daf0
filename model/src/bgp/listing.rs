//! Pure functions that list BGP sessions, routes and events, with filters and pages.
//!
//! A page shows the last reports at the time of its request. The next page continues after the last key, so it
//! neither skips nor repeats rows if others appear or disappear in between.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::{
        book::{BgpBook, StoredRoute},
        report::{BgpSession, BgpSessionState, BgpTold},
        trouble::{BgpTrouble, trouble},
    },
    kinds::{bgp_peer::BgpPeerSpec, event::EventReason},
    primitives::{name::Name, quantity::Timestamp},
};

/// Maximum number of addresses listed for one route; an aggregate may have thousands.
pub const ADDRESSES_LISTED_MAX: usize = 100;

/// Row of the session listing: a BGP session of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpSessionItem {
    /// Name of the node.
    pub node: Name,
    /// True if the agent of the node currently reports. If false, the item is from its last report.
    pub is_reporting: bool,
    /// AS number of the node.
    pub asn: u32,
    /// BGP Identifier of the node.
    #[schema(value_type = String)]
    pub router_id: std::net::Ipv4Addr,
    /// Session as the agent reported it.
    pub session: BgpSession,
    /// Reason why the session is not established, with its remedy; absent if it is established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<BgpTrouble>,
}

/// Row of the route listing: the announcement of one prefix by one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpRouteItem {
    /// Name of the node.
    pub node: Name,
    /// True if the agent of the node currently reports. If false, the item is from its last report.
    pub is_reporting: bool,
    /// Announced prefix, such as `192.0.2.0/24`.
    #[schema(value_type = String, example = "192.0.2.7/32")]
    pub prefix: IpNet,
    /// Load balancer addresses that the prefix announces; at most 100.
    #[schema(value_type = Vec<String>, max_items = 100)]
    pub addresses: Vec<IpAddr>,
    /// Number of addresses that the prefix announces beyond those in `addresses`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub addresses_omitted: usize,
    /// Announcement of the prefix to each router. The key is the name of the BgpPeer, followed by `@` and the
    /// address for dynamic neighbors.
    pub peers: BTreeMap<String, BgpTold>,
    /// Reason why no router receives the prefix; absent unless the node withholds the prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// Event of a BGP session, such as its loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpEvent {
    /// Number of the event. Newer events have higher numbers. The numbers restart when the server restarts.
    pub id: u64,
    /// Time of the event. For a repeated event, time of the last occurrence.
    pub time: Timestamp,
    /// Name of the node.
    pub node: Name,
    /// Name of the `BgpPeer`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer: Option<Name>,
    /// Address of the neighbor, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Type of the event: `BgpSessionUp` or `BgpSessionDown`.
    pub reason: EventReason,
    /// Description of the event with its cause.
    pub message: String,
    /// Number of consecutive occurrences of this event.
    pub count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Filter of BGP sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Node of the session; `None` matches all nodes.
    pub node: Option<Name>,
    /// BgpPeer of the session; `None` matches all BgpPeers.
    pub peer: Option<Name>,
    /// State of the session; `None` matches all states.
    pub state: Option<BgpSessionState>,
}

/// Filter of reported routes.
#[derive(Debug, Clone, Default)]
pub struct RouteFilter {
    /// Node that reports the route; `None` matches all nodes.
    pub node: Option<Name>,
    /// Name of a `BgpPeer`. Selects the routes that are announced to it, and omits their announcements to other
    /// peers.
    pub peer: Option<Name>,
    /// Network that selects the route with this prefix and those with more specific prefixes.
    pub prefix: Option<IpNet>,
    /// Address that the route announces; `None` matches all addresses.
    pub address: Option<IpAddr>,
}

/// Filter of BGP events.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Node of the event; `None` matches all nodes.
    pub node: Option<Name>,
    /// BgpPeer of the event; `None` matches all BgpPeers.
    pub peer: Option<Name>,
}

/// Sort key of a session in the listing: node, peer and address.
pub type SessionKey = (Name, Name, Option<IpAddr>);
/// Sort key of a route in the listing: node and prefix.
pub type RouteKey = (Name, IpNet);

/// Page of a listing, with the key after which the next page starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T, K> {
    /// Rows on the page, in the order of the listing.
    pub items: Vec<T>,
    /// Key of the last row, from which the next page continues; `None` if no rows follow.
    pub more_after: Option<K>,
}

/// Returns at most `limit` sessions that follow the key `after`, ordered by node, peer and address. `spec_of`
/// returns the spec of a BgpPeer.
pub fn sessions<'a>(
    book: &BgpBook,
    wanted: &SessionFilter,
    is_reporting: impl Fn(&Name) -> bool,
    spec_of: impl Fn(&Name) -> Option<&'a BgpPeerSpec>,
    after: Option<&SessionKey>,
    limit: usize,
) -> ListPage<BgpSessionItem, SessionKey> {
    let of_node = |node: &Name| wanted.node.as_ref().is_none_or(|wanted| wanted == node);
    let is_wanted = |session: &BgpSession| {
        wanted.peer.as_ref().is_none_or(|peer| *peer == session.peer)
            && wanted.state.is_none_or(|state| state == session.state)
    };
    let all = book.reports().filter(|(node, _)| of_node(node)).flat_map(|(node, report)| {
        report
            .sessions
            .iter()
            .filter(|session| is_wanted(session))
            .map(move |session| (node, report, session))
    });
    let key = |node: &Name, session: &BgpSession| (node.clone(), session.peer.clone(), session.address);
    let rest = all.filter(|(node, _, session)| {
        after.is_none_or(|(of, peer, address)| (*node, &session.peer, session.address) > (of, peer, *address))
    });
    let item = |(node, report, session): (&Name, &crate::bgp::report::BgpReport, &BgpSession)| {
        let item = BgpSessionItem {
            node: node.clone(),
            is_reporting: is_reporting(node),
            asn: report.asn,
            router_id: report.router_id,
            session: session.clone(),
            trouble: trouble(session, spec_of(&session.peer)),
        };
        (key(node, session), item)
    };
    page(rest.map(item), limit)
}

/// Returns at most `limit` routes that follow the key `after`, ordered by node and prefix.
pub fn routes(
    book: &BgpBook,
    wanted: &RouteFilter,
    is_reporting: impl Fn(&Name) -> bool,
    after: Option<&RouteKey>,
    limit: usize,
) -> ListPage<BgpRouteItem, RouteKey> {
    let RouteFilter { node: of_node, peer, prefix: within, address } = wanted;
    let is_behind = |node: &Name, prefix: IpNet| after.is_none_or(|(of, last)| (node, prefix) > (of, *last));
    let candidates: Box<dyn Iterator<Item = (&Name, IpNet, &StoredRoute)> + '_> = match address {
        Some(address) => Box::new(book.of_address(*address)),
        None => {
            let nodes = book.nodes_from(after.map(|(node, _)| node));
            let nodes = nodes.filter(|node| of_node.as_ref().is_none_or(|wanted| wanted == *node));
            Box::new(nodes.flat_map(|node| {
                let last = after.filter(|(of, _)| of == node).map(|(_, last)| *last);
                // Prefixes inside another one sort directly after it.
                let from = last.max(within.map(|within| within.trunc()));
                let of_node = book.routes_of(node, from);
                of_node
                    .take_while(|(prefix, _)| within.is_none_or(|within| within.contains(&prefix.addr())))
                    .map(move |(prefix, route)| (node, prefix, route))
            }))
        }
    };
    let found = candidates.filter(|(node, prefix, route)| {
        is_behind(node, *prefix)
            && of_node.as_ref().is_none_or(|wanted| wanted == *node)
            && within.is_none_or(|within| within.contains(prefix))
            && peer.as_ref().is_none_or(|peer| route.peers().any(|(key, _)| is_of(key, peer)))
    });
    let item = |(node, prefix, route): (&Name, IpNet, &StoredRoute)| {
        let told = route.peers().filter(|(key, _)| peer.as_ref().is_none_or(|peer| is_of(key, peer)));
        let item = BgpRouteItem {
            node: node.clone(),
            is_reporting: is_reporting(node),
            prefix,
            addresses: route.addresses().iter().take(ADDRESSES_LISTED_MAX).copied().collect(),
            addresses_omitted: route.addresses().len().saturating_sub(ADDRESSES_LISTED_MAX),
            peers: told.map(|(key, told)| (key.to_owned(), told.clone())).collect(),
            withheld: route.withheld().map(str::to_owned),
        };
        ((node.clone(), prefix), item)
    };
    page(found.map(item), limit)
}

/// Returns at most `limit` events, newest first; if `after` is given, only events older than the one with
/// this number.
pub fn events(
    book: &BgpBook,
    wanted: &EventFilter,
    after: Option<u64>,
    limit: usize,
) -> ListPage<BgpEvent, u64> {
    let found = book.events().filter(|event| {
        after.is_none_or(|after| event.id < after)
            && wanted.node.as_ref().is_none_or(|node| *node == event.node)
            && wanted.peer.as_ref().is_none_or(|peer| event.peer.as_ref() == Some(peer))
    });
    page(found.map(|event| (event.id, event.clone())), limit)
}

/// Returns true if a key of [`BgpRouteItem::peers`] belongs to a `BgpPeer`.
fn is_of(key: &str, peer: &Name) -> bool {
    router(key).0 == peer.as_str()
}

/// Splits a key of [`BgpRouteItem::peers`] at `@` into the name of the BgpPeer and, for a dynamic neighbor,
/// its address.
#[must_use]
pub fn router(key: &str) -> (&str, Option<&str>) {
    key.split_once('@').map_or((key, None), |(peer, address)| (peer, Some(address)))
}

fn page<T, K>(mut rows: impl Iterator<Item = (K, T)>, limit: usize) -> ListPage<T, K> {
    let mut items = Vec::new();
    let mut last = None;
    for (key, item) in rows.by_ref().take(limit) {
        items.push(item);
        last = Some(key);
    }
    let has_more = rows.next().is_some();
    ListPage { items, more_after: last.filter(|_| has_more) }
}
