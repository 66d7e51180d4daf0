//! BGP metrics of the cluster. Their labels are object names, so this module limits the number of series.

use std::collections::BTreeMap;

use model::{
    bgp::{
        book::BgpBook,
        report::{BgpSession, BgpSessionState},
    },
    primitives::name::Name,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Maximum number of BgpPeers with series of their own, in order of name. Each has at most ten series.
pub(crate) const PEERS_EXPOSED_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionStateLabels {
    peer: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabels {
    peer: String,
}

/// Number of sessions by state, and of prefixes, of one BgpPeer on all nodes.
#[derive(Debug, Default)]
struct Sums {
    states: BTreeMap<&'static str, i64>,
    prefixes_sent: u64,
    prefixes_received: u64,
}

/// Registers the BGP metrics with their current values. Sessions of nodes that do not report count as state
/// `Unknown`.
pub(crate) fn register(registry: &mut Registry, book: &BgpBook, is_reporting: impl Fn(&Name) -> bool) {
    let (sums, hidden) = sum(book, is_reporting);
    let sessions = Family::<SessionStateLabels, Gauge>::default();
    let sent = Family::<PeerLabels, Gauge>::default();
    let received = Family::<PeerLabels, Gauge>::default();
    for (peer, Sums { states, prefixes_sent, prefixes_received }) in sums {
        let peer = peer.to_string();
        for (state, count) in states {
            sessions.get_or_create(&SessionStateLabels { peer: peer.clone(), state }).set(count);
        }
        sent.get_or_create(&PeerLabels { peer: peer.clone() }).set(as_gauge(prefixes_sent));
        received.get_or_create(&PeerLabels { peer }).set(as_gauge(prefixes_received));
    }
    registry.register("bgp_sessions", "Sessions of nodes with a BgpPeer, by state", sessions);
    registry.register("bgp_prefixes_sent", "Prefixes that a BgpPeer has, summed over nodes", sent);
    registry.register(
        "bgp_prefixes_received",
        "Prefixes that a BgpPeer announces, summed over nodes; none is used",
        received,
    );
    let gauge = |value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(as_gauge(value));
        gauge
    };
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    registry.register("bgp_hidden_peers", "BgpPeers with sessions and no series", gauge(count(hidden)));
    registry.register("bgp_routes_bytes", "Memory for routes, estimated", gauge(count(book.bytes())));
    let refused = Counter::<u64>::default();
    refused.inc_by(book.refused);
    registry.register("bgp_routes_refused", "Times that a route was not kept, for want of room", refused);
}

fn sum(book: &BgpBook, is_reporting: impl Fn(&Name) -> bool) -> (BTreeMap<&Name, Sums>, usize) {
    let mut sums: BTreeMap<&Name, Sums> = BTreeMap::new();
    for (node, report) in book.reports() {
        let is_heard = is_reporting(node);
        for session in &report.sessions {
            let of_peer = sums.entry(&session.peer).or_default();
            // Alerts on a lost session need the series to fall to 0, at least for `Established`.
            of_peer.states.entry("Established").or_default();
            let state = if is_heard { word(session) } else { "Unknown" };
            *of_peer.states.entry(state).or_default() += 1;
            if is_heard {
                let counters = &session.counters;
                of_peer.prefixes_sent = of_peer.prefixes_sent.saturating_add(counters.prefixes_sent);
                of_peer.prefixes_received =
                    of_peer.prefixes_received.saturating_add(counters.prefixes_received);
            }
        }
    }
    let hidden = sums.len().saturating_sub(PEERS_EXPOSED_MAX);
    for _ in 0..hidden {
        sums.pop_last();
    }
    (sums, hidden)
}

const fn word(session: &BgpSession) -> &'static str {
    match session.state {
        BgpSessionState::Idle => "Idle",
        BgpSessionState::Connect => "Connect",
        BgpSessionState::Active => "Active",
        BgpSessionState::OpenSent => "OpenSent",
        BgpSessionState::OpenConfirm => "OpenConfirm",
        BgpSessionState::Established => "Established",
    }
}

fn as_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
