//! Storage of BGP reports (`BgpBook`): sessions and routes within memory limits, and events derived from the
//! differences between two reports.

use std::collections::BTreeMap;

use ipnet::IpNet;
use model::{
    bgp::{
        book::{BgpBook, BgpReportUpdate, EVENTS_KEPT_MAX, EVENTS_OF_NODE_MAX},
        listing::{self as bgp_listing, EventFilter, RouteFilter, SessionFilter},
        report::{BgpReport, BgpRoute, BgpSession, BgpSessionState},
    },
    kinds::event::{Event, EventReason},
    primitives::{name::Name, quantity::Timestamp},
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: i64 = 1_771_000_000;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_unix_seconds(NOW + secs)
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Returns a session with the BgpPeer `peer` at 10.0.0.1, which has been in `state` since the second `since`.
/// The fields in `more` are added or replaced.
fn session(peer: &str, state: &str, since: i64, more: Value) -> BgpSession {
    let mut json = json!({
        "peer": peer, "address": "10.0.0.1", "state": state, "since": at(since), "reason": format!("{state} it is"),
        "localASN": 64512,
    });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

fn sessions(sessions: Vec<BgpSession>) -> BgpReportUpdate {
    let bgp = BgpReport { asn: 64512, router_id: "192.0.2.1".parse().unwrap(), sessions, strangers: 0 };
    BgpReportUpdate { bgp: Some(bgp), ..BgpReportUpdate::default() }
}

/// Returns a BGP route for load balancer addresses. `peers` contains the state of the route for each BgpPeer;
/// a state with a time (`since`) means that the route is announced to the peer. `withheld` is the reason why
/// the route is withheld from all peers, if it is.
fn route(addresses: &[&str], peers: Value, withheld: Option<&str>) -> BgpRoute {
    serde_json::from_value(json!({ "addresses": addresses, "peers": peers, "withheld": withheld })).unwrap()
}

fn announced(address: &str) -> BgpRoute {
    route(&[address], json!({ "tor-1": { "since": at(0), "text": "next hop self" } }), None)
}

fn routes(routes: &[(&str, BgpRoute)]) -> BgpReportUpdate {
    let routes = routes.iter().map(|(prefix, route)| (net(prefix), route.clone())).collect();
    BgpReportUpdate { routes, ..BgpReportUpdate::default() }
}

fn shown(book: &BgpBook, filter: &RouteFilter) -> Vec<String> {
    let part = bgp_listing::routes(book, filter, |_| true, None, usize::MAX);
    part.items.iter().map(|item| format!("{} {}", item.node, item.prefix)).collect()
}

/// Returns a line with type, BgpPeer and message for each stored event, such as
/// `Down tor-1: hold timer expired`, the oldest first.
fn happened(book: &BgpBook) -> Vec<String> {
    let word = |reason| if reason == EventReason::BgpSessionUp { "Up" } else { "Down" };
    let peer = |peer: &Option<Name>| peer.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    book.events()
        .rev()
        .map(|event| format!("{} {}: {}", word(event.reason), peer(&event.peer), event.message))
        .collect()
}

fn event(secs: i64, reason: EventReason, message: &str, count: u64) -> Event {
    Event { time: at(secs), reason, message: message.to_owned(), count }
}

#[test]
fn a_report_updates_its_differences_and_a_complete_one_replaces_all() {
    let (mut book, a, all) = (BgpBook::default(), name("a"), RouteFilter::default());
    book.apply(
        &a,
        routes(&[("192.0.2.1/32", announced("192.0.2.1")), ("192.0.2.2/32", announced("192.0.2.2"))]),
        at(0),
    );
    book.apply(&a, routes(&[("192.0.2.3/32", announced("192.0.2.3"))]), at(1));
    assert_eq!(shown(&book, &all), ["a 192.0.2.1/32", "a 192.0.2.2/32", "a 192.0.2.3/32"]);
    book.apply(
        &a,
        BgpReportUpdate {
            gone: [net("192.0.2.2/32"), net("192.0.2.9/32")].into(),
            ..BgpReportUpdate::default()
        },
        at(2),
    );
    assert_eq!(shown(&book, &all), ["a 192.0.2.1/32", "a 192.0.2.3/32"]);
    let complete =
        BgpReportUpdate { is_complete: true, ..routes(&[("192.0.2.3/32", announced("192.0.2.4"))]) };
    book.apply(&a, complete, at(3));
    assert_eq!(shown(&book, &all), ["a 192.0.2.3/32"]);
    let of = |address: &str| book.of_address(address.parse().unwrap()).count();
    assert_eq!((of("192.0.2.1"), of("192.0.2.3"), of("192.0.2.4")), (0, 0, 1), "the index follows");
    book.apply(&a, BgpReportUpdate { is_complete: true, ..BgpReportUpdate::default() }, at(4));
    assert_eq!((book.bytes(), shown(&book, &all).len()), (0, 0));
}

#[test]
fn routes_are_found_by_node_peer_prefix_and_address() {
    let mut book = BgpBook::default();
    let told =
        json!({ "tor-1": { "since": at(0), "text": "x" }, "racks@10.9.0.4": { "text": "no session" } });
    book.apply(
        &name("a"),
        routes(&[
            ("192.0.2.0/24", route(&["192.0.2.7", "192.0.2.8"], told, None)),
            ("192.0.2.7/32", announced("192.0.2.7")),
            ("192.0.3.1/32", route(&["192.0.3.1"], json!({}), Some("no usable endpoint"))),
            ("2001:db8::7/128", announced("2001:db8::7")),
        ]),
        at(0),
    );
    book.apply(&name("b"), routes(&[("192.0.2.7/32", announced("192.0.2.7"))]), at(0));
    let none = RouteFilter::default;
    let prefix = |text| RouteFilter { prefix: Some(net(text)), ..none() };
    let address = |text: &str| RouteFilter { address: Some(text.parse().unwrap()), ..none() };
    let peer = |text| RouteFilter { peer: Some(name(text)), ..none() };
    for (filter, expected) in [
        (RouteFilter { node: Some(name("b")), ..none() }, &["b 192.0.2.7/32"][..]),
        (prefix("192.0.2.0/24"), &["a 192.0.2.0/24", "a 192.0.2.7/32", "b 192.0.2.7/32"]),
        (prefix("192.0.2.7/32"), &["a 192.0.2.7/32", "b 192.0.2.7/32"]),
        (prefix("192.0.2.0/25"), &["a 192.0.2.7/32", "b 192.0.2.7/32"]),
        (prefix("::/0"), &["a 2001:db8::7/128"]),
        (address("192.0.2.7"), &["a 192.0.2.0/24", "a 192.0.2.7/32", "b 192.0.2.7/32"]),
        (RouteFilter { node: Some(name("a")), ..address("192.0.2.8") }, &["a 192.0.2.0/24"]),
        (RouteFilter { prefix: Some(net("192.0.2.7/32")), ..address("192.0.2.8") }, &[]),
        (peer("racks"), &["a 192.0.2.0/24"]),
        (peer("rack"), &[]),
    ] {
        assert_eq!(shown(&book, &filter), expected, "{filter:?}");
    }
    let of_racks = bgp_listing::routes(&book, &peer("racks"), |_| false, None, 9).items;
    assert_eq!(of_racks[0].peers.keys().collect::<Vec<_>>(), ["racks@10.9.0.4"], "only what it was told");
    assert!(!of_racks[0].is_reporting);
}

#[test]
fn sessions_are_listed_in_order_for_any_input() {
    let mut book = BgpBook::default();
    let other = |address: &str| json!({ "address": address });
    book.apply(
        &name("a"),
        sessions(vec![
            session("tor-2", "Idle", 0, json!({})),
            session("racks", "Active", 0, other("10.9.0.4")),
            session("racks", "Established", 0, other("10.9.0.3")),
        ]),
        at(0),
    );
    book.apply(&name("b"), sessions(vec![session("tor-2", "Established", 0, json!({}))]), at(0));
    let listed = |filter: SessionFilter, limit: usize| {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let part = bgp_listing::sessions(&book, &filter, |_| true, |_| None, after.as_ref(), limit);
            rows.extend(part.items.into_iter().map(|item| {
                format!("{} {} {}", item.node, item.session.peer, item.session.address.unwrap())
            }));
            after = part.more_after;
            if after.is_none() {
                return rows;
            }
        }
    };
    let all = ["a racks 10.9.0.3", "a racks 10.9.0.4", "a tor-2 10.0.0.1", "b tor-2 10.0.0.1"];
    for limit in 1..6 {
        assert_eq!(listed(SessionFilter::default(), limit), all, "in pages of {limit}");
    }
    let up = SessionFilter { state: Some(BgpSessionState::Established), ..SessionFilter::default() };
    assert_eq!(listed(up, 9), ["a racks 10.9.0.3", "b tor-2 10.0.0.1"]);
    let racks =
        SessionFilter { peer: Some(name("racks")), node: Some(name("b")), ..SessionFilter::default() };
    assert!(listed(racks, 9).is_empty());
}

/// Differences of a session between two successive reports are stored as events.
#[test]
fn events_follow_from_two_reports() {
    let up = |since| vec![session("tor-1", "Established", since, json!({}))];
    let down = |since| vec![session("tor-1", "Active", since, json!({}))];
    let unnumbered = |address: Value, state| vec![session("tor-1", state, 0, json!({ "address": address }))];
    let reset = json!({ "lastReceived": { "at": at(5), "code": 6, "subcode": 4, "message": "Administrative Reset" } });
    let again = vec![session("tor-1", "Established", 6, reset)];
    for (before, after, expected) in [
        (vec![], up(0), &["Up tor-1: Established it is"][..]),
        (vec![], down(0), &[]),
        (down(0), up(5), &["Up tor-1: Established it is"]),
        (up(0), up(0), &["Up tor-1: Established it is"]),
        (up(0), down(5), &["Up tor-1: Established it is", "Down tor-1: Active it is"]),
        (
            up(0),
            again,
            &[
                "Up tor-1: Established it is",
                "Down tor-1: interrupted between two reports; last received: Administrative Reset",
                "Up tor-1: Established it is",
            ],
        ),
        (
            up(0),
            vec![],
            &["Up tor-1: Established it is", "Down tor-1: the session was removed from the node"],
        ),
        (down(0), vec![], &[]),
        (
            unnumbered(json!(null), "Connect"),
            unnumbered(json!("fe80::1"), "Established"),
            &["Up tor-1: Established it is"],
        ),
        (
            unnumbered(json!("fe80::1"), "Established"),
            unnumbered(json!(null), "Idle"),
            &["Up tor-1: Established it is", "Down tor-1: Idle it is"],
        ),
    ] {
        let mut book = BgpBook::default();
        for (secs, report) in [(1, &before), (10, &after), (20, &after)] {
            book.apply(&name("a"), sessions(report.clone()), at(secs));
        }
        assert_eq!(happened(&book), expected, "{before:?} {after:?}");
    }
}

#[test]
fn events_of_the_agent_are_kept_once_with_their_session() {
    let (mut book, a) = (BgpBook::default(), name("a"));
    let racks = |state, since| {
        let of = |address: &str| session("racks", state, since, json!({ "address": address }));
        vec![of("10.9.0.3"), of("10.9.0.30"), session("tor-1", state, since, json!({}))]
    };
    book.apply(&a, sessions(racks("Established", 0)), at(1));
    assert_eq!(happened(&book).len(), 3);
    let told = vec![
        event(0, EventReason::DriftRepaired, "racks", 1),
        event(10, EventReason::BgpSessionDown, "session with racks (10.9.0.30): hold timer expired", 1),
        event(10, EventReason::BgpSessionDown, "tor-1: received Cease.", 1),
        event(11, EventReason::BgpSessionDown, "something about nobody", 1),
    ];
    let report = BgpReportUpdate { events: told.clone(), ..sessions(racks("Active", 10)) };
    book.apply(&a, report.clone(), at(12));
    assert_eq!(
        happened(&book)[3..],
        [
            "Down racks: session with racks (10.9.0.30): hold timer expired",
            "Down tor-1: tor-1: received Cease.",
            "Down racks: Active it is",
            "Down ?: something about nobody"
        ],
        "the other neighbour of racks is told by its state alone"
    );
    let addresses: Vec<_> = book.events().map(|event| event.address.map(|one| one.to_string())).collect();
    assert_eq!(
        addresses[1..4],
        [Some("10.9.0.3"), None, Some("10.9.0.30")].map(|one| one.map(str::to_owned))
    );
    book.apply(&a, report, at(22));
    assert_eq!(happened(&book).len(), 7, "a list that is repeated tells nothing new");
    let mut again = told;
    again[1] = event(40, EventReason::BgpSessionDown, &again[1].message.clone(), 2);
    book.apply(&a, BgpReportUpdate { events: again, ..sessions(racks("Active", 10)) }, at(42));
    assert_eq!(book.events().next().map(|event| (event.count, event.time)), Some((2, at(40))));
    let of_racks = EventFilter { peer: Some(name("racks")), node: Some(a) };
    let newest = bgp_listing::events(&book, &of_racks, None, 2);
    assert_eq!(newest.items.iter().map(|event| event.time).collect::<Vec<_>>(), [at(40), at(10)]);
    let older = bgp_listing::events(&book, &of_racks, newest.more_after, 9);
    assert_eq!((older.items.len(), older.more_after), (2, None), "what repeats itself is one row");
}

#[test]
fn the_memory_is_bounded_and_reports_its_omissions() {
    let (a, b) = (name("a"), name("b"));
    let mut book = BgpBook::with_room(1000);
    let prefixes: Vec<String> = (0..20).map(|at| format!("192.0.2.{at}/32")).collect();
    let many: Vec<_> = prefixes.iter().map(|prefix| (prefix.as_str(), announced("192.0.2.1"))).collect();
    book.apply(&a, routes(&many), at(0));
    let kept = shown(&book, &RouteFilter::default()).len();
    assert!((1..20).contains(&kept) && book.bytes() <= 1000, "{kept} routes in {} bytes", book.bytes());
    assert!(book.refused > 0 && book.is_partial());
    book.apply(&b, routes(&[("192.0.2.1/32", announced("192.0.2.1"))]), at(0));
    book.forget(|node| *node == b);
    assert_eq!((book.bytes(), shown(&book, &RouteFilter::default()).len()), (0, 0));
    book.apply(&b, BgpReportUpdate { is_complete: true, ..routes(&many[..1]) }, at(1));
    assert!(!book.is_partial(), "a complete report that fits mends it");
    assert_eq!(shown(&book, &RouteFilter::default()), ["b 192.0.2.0/32"]);
}

#[test]
fn events_are_a_ring_with_a_share_for_each_node() {
    let mut book = BgpBook::default();
    let flap = |book: &mut BgpBook, node: &str, times: usize| {
        for at_secs in (0..i64::try_from(times).unwrap()).map(|time| time * 10) {
            let state = if at_secs % 20 == 0 { "Established" } else { "Idle" };
            book.apply(&name(node), sessions(vec![session("tor-1", state, at_secs, json!({}))]), at(at_secs));
        }
    };
    flap(&mut book, "quiet", 2);
    flap(&mut book, "noisy", EVENTS_OF_NODE_MAX + 50);
    let of = |book: &BgpBook, node: &str| {
        let filter = EventFilter { node: Some(name(node)), peer: None };
        bgp_listing::events(book, &filter, None, usize::MAX).items.len()
    };
    assert_eq!((of(&book, "quiet"), of(&book, "noisy")), (2, EVENTS_OF_NODE_MAX));
    for node in 0..EVENTS_KEPT_MAX / EVENTS_OF_NODE_MAX {
        flap(&mut book, &format!("n{node}"), EVENTS_OF_NODE_MAX);
    }
    assert_eq!((of(&book, "quiet"), book.events().count()), (0, EVENTS_KEPT_MAX), "the oldest go first");
    book.forget(|node| node.as_str() == "n39");
    assert_eq!(book.events().count(), EVENTS_OF_NODE_MAX);
}

/// Report of a node that proptest generates, with numbers that stand for prefixes and addresses.
#[derive(Debug, Clone)]
struct Said {
    node: usize,
    prefixes: BTreeMap<u8, Option<u8>>,
    is_complete: bool,
}

fn said() -> impl Strategy<Value = Said> {
    let prefixes = prop::collection::btree_map(0..6_u8, prop::option::of(0..4_u8), 0..4);
    (0..3_usize, prefixes, prop::bool::weighted(0.2)).prop_map(|(node, prefixes, is_complete)| Said {
        node,
        prefixes,
        is_complete,
    })
}

proptest! {
    /// For any sequence of reports, the listing and the look-up by address return the last reported route of each
    /// prefix. After all nodes are removed, the stored size is zero.
    #[test]
    fn the_last_report_counts(all in prop::collection::vec(said(), 0..40), limit in 1..5_usize) {
        let nodes = ["a", "b", "c"];
        let mut book = BgpBook::default();
        let mut expected: BTreeMap<(Name, IpNet), String> = BTreeMap::new();
        let prefix = |number: u8| net(&format!("192.0.2.{number}/32"));
        for Said { node, prefixes, is_complete } in all {
            let node = name(nodes[node]);
            let mut news = BgpReportUpdate { is_complete, ..BgpReportUpdate::default() };
            if is_complete {
                expected.retain(|(of, _), _| *of != node);
            }
            for (number, address) in prefixes {
                match address {
                    Some(address) => {
                        let address = format!("198.51.100.{address}");
                        news.routes.insert(prefix(number), announced(&address));
                        expected.insert((node.clone(), prefix(number)), address);
                    }
                    None => {
                        news.gone.insert(prefix(number));
                        expected.remove(&(node.clone(), prefix(number)));
                    }
                }
            }
            book.apply(&node, news, at(0));
        }
        let (mut found, mut after) = (BTreeMap::new(), None);
        loop {
            let part = bgp_listing::routes(&book, &RouteFilter::default(), |_| true, after.as_ref(), limit);
            for item in part.items {
                found.insert((item.node, item.prefix), item.addresses[0].to_string());
            }
            after = part.more_after;
            if after.is_none() {
                break;
            }
        }
        prop_assert_eq!(&found, &expected);
        for address in (0..4).map(|at| format!("198.51.100.{at}")) {
            let by_index = book.of_address(address.parse().unwrap()).map(|(node, prefix, _)| (node.clone(), prefix));
            let by_hand = expected.iter().filter(|(_, of)| **of == address).map(|(key, _)| key.clone());
            prop_assert_eq!(by_index.collect::<Vec<_>>(), by_hand.collect::<Vec<_>>());
        }
        book.forget(|_| false);
        prop_assert_eq!(book.bytes(), 0);
    }
}
