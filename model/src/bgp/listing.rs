//! What the listings of BGP show: sessions, routes and events, with filters and pages. Pure.
//!
//! A page shows what the agents last said at the moment of its request; the next one goes on behind the last key, so that
//! what comes and goes meanwhile shifts nothing.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::{
        book::{BgpBook, Route},
        report::{BgpSession, BgpSessionState, BgpTold},
        trouble::{BgpTrouble, trouble},
    },
    kinds::{bgp_peer::BgpPeerSpec, event::EventReason},
    primitives::{name::Name, quantity::Timestamp},
};

/// Addresses listed of one route; an aggregate may have very many.
pub const ADDRESSES_LISTED_MAX: usize = 100;

/// One session of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpSessionItem {
    /// The node.
    pub node: Name,
    /// Whether its agent reports; if not, this is what it said last.
    pub is_reporting: bool,
    /// The AS of the node.
    pub asn: u32,
    /// The BGP Identifier of the node.
    #[schema(value_type = String)]
    pub router_id: std::net::Ipv4Addr,
    /// What the agent says.
    pub session: BgpSession,
    /// What is wrong with it, as far as it can be told, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<BgpTrouble>,
}

/// What became of one prefix on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpRouteItem {
    /// The node.
    pub node: Name,
    /// Whether its agent reports; if not, this is what it said last.
    pub is_reporting: bool,
    /// The prefix.
    #[schema(value_type = String, example = "192.0.2.7/32")]
    pub prefix: IpNet,
    /// The load balancer addresses that it is announced for; at most 100.
    #[schema(value_type = Vec<String>, max_items = 100)]
    pub addresses: Vec<IpAddr>,
    /// Addresses that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub addresses_omitted: usize,
    /// What each router was told: the key is the peer's name, followed by `@` and the address for dynamic neighbours.
    pub peers: BTreeMap<String, BgpTold>,
    /// Why it is announced to nobody; nothing where it is announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// Something that happened to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpEvent {
    /// Rises with every event that this server hears of; begins anew when the server does.
    pub id: u64,
    /// When it happened, or happened last.
    pub time: Timestamp,
    /// On which node.
    pub node: Name,
    /// The `BgpPeer`, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer: Option<Name>,
    /// The neighbour's address, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// `BgpSessionUp` or `BgpSessionDown`.
    pub reason: EventReason,
    /// Why, in words.
    pub message: String,
    /// How often it happened in a row.
    pub count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Which sessions are wanted.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only of this node.
    pub node: Option<Name>,
    /// Only with this `BgpPeer`.
    pub peer: Option<Name>,
    /// Only in this state.
    pub state: Option<BgpSessionState>,
}

/// Which routes are wanted.
#[derive(Debug, Clone, Default)]
pub struct RouteFilter {
    /// Only of this node.
    pub node: Option<Name>,
    /// Only those of which this `BgpPeer` was told something, and only what it was told.
    pub peer: Option<Name>,
    /// Only this prefix and those inside it.
    pub prefix: Option<IpNet>,
    /// Only those that are announced for this address.
    pub address: Option<IpAddr>,
}

/// Which events are wanted.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Only of this node.
    pub node: Option<Name>,
    /// Only with this `BgpPeer`.
    pub peer: Option<Name>,
}

/// Where a session stands in the listing: node, peer, address.
pub type SessionKey = (Name, Name, Option<IpAddr>);
/// Where a route stands in the listing: node, prefix.
pub type RouteKey = (Name, IpNet);

/// Part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<T, K> {
    /// The rows.
    pub items: Vec<T>,
    /// The last key shown, if there is more.
    pub more_after: Option<K>,
}

/// Sessions in the order of nodes, peers and addresses, behind `after`, at most `limit`. `spec_of` gives what a `BgpPeer`
/// is to be.
pub fn sessions<'a>(
    book: &BgpBook,
    wanted: &SessionFilter,
    is_reporting: impl Fn(&Name) -> bool,
    spec_of: impl Fn(&Name) -> Option<&'a BgpPeerSpec>,
    after: Option<&SessionKey>,
    limit: usize,
) -> Part<BgpSessionItem, SessionKey> {
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
    part(rest.map(item), limit)
}

/// Routes in the order of nodes and prefixes, behind `after`, at most `limit`.
pub fn routes(
    book: &BgpBook,
    wanted: &RouteFilter,
    is_reporting: impl Fn(&Name) -> bool,
    after: Option<&RouteKey>,
    limit: usize,
) -> Part<BgpRouteItem, RouteKey> {
    let RouteFilter { node: of_node, peer, prefix: within, address } = wanted;
    let is_behind = |node: &Name, prefix: IpNet| after.is_none_or(|(of, last)| (node, prefix) > (of, *last));
    let candidates: Box<dyn Iterator<Item = (&Name, IpNet, &Route)> + '_> = match address {
        Some(address) => Box::new(book.of_address(*address)),
        None => {
            let nodes = book.nodes_from(after.map(|(node, _)| node));
            let nodes = nodes.filter(|node| of_node.as_ref().is_none_or(|wanted| wanted == *node));
            Box::new(nodes.flat_map(|node| {
                let last = after.filter(|(of, _)| of == node).map(|(_, last)| *last);
                // What is inside a prefix comes behind it, and before whatever else comes behind it.
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
    let item = |(node, prefix, route): (&Name, IpNet, &Route)| {
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
    part(found.map(item), limit)
}

/// Events, the newest first, older than the one numbered `after`, at most `limit`.
pub fn events(book: &BgpBook, wanted: &EventFilter, after: Option<u64>, limit: usize) -> Part<BgpEvent, u64> {
    let found = book.events().filter(|event| {
        after.is_none_or(|after| event.id < after)
            && wanted.node.as_ref().is_none_or(|node| *node == event.node)
            && wanted.peer.as_ref().is_none_or(|peer| event.peer.as_ref() == Some(peer))
    });
    part(found.map(|event| (event.id, event.clone())), limit)
}

/// Whether a key of [`BgpRouteItem::peers`] is of a `BgpPeer`.
fn is_of(key: &str, peer: &Name) -> bool {
    router(key).0 == peer.as_str()
}

/// The peer's name of a key of [`BgpRouteItem::peers`], and the address of a dynamic neighbour.
#[must_use]
pub fn router(key: &str) -> (&str, Option<&str>) {
    key.split_once('@').map_or((key, None), |(peer, address)| (peer, Some(address)))
}

fn part<T, K>(mut rows: impl Iterator<Item = (K, T)>, limit: usize) -> Part<T, K> {
    let mut items = Vec::new();
    let mut last = None;
    for (key, item) in rows.by_ref().take(limit) {
        items.push(item);
        last = Some(key);
    }
    let has_more = rows.next().is_some();
    Part { items, more_after: last.filter(|_| has_more) }
}
