//! Tests of the BGP speaker as a route reflector (RFC 4456), with simulated clients, and a comparison of a full mesh of
//! speakers with two route reflectors.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

mod mesh;

use std::{collections::BTreeMap, io::Write as _, net::Ipv4Addr, time::Duration};

use bgp::{
    AsPath, Attributes, Capability, Family, GracefulRestart, Message, Open, Origin, Update,
    attributes::NextHop,
    wire::{Context, encode},
};
use model::{
    bgp::settings::{BgpNeighbour, BgpRemote},
    kinds::bgp_peer::{GracefulRestart as Restart, PeerAsn},
};
use node_agent::bgp::Leave;

use crate::support::{
    bfd::{Pair, V4, eventually},
    bgp::{LINK, Node, OURS, Puppet, connect, med, neighbour, net},
};

/// Restart time of simulated clients in seconds.
const RESTART_TIME: u16 = 60;

/// BGP Identifier of the reflector, which is its cluster ID too.
const REFLECTOR: Ipv4Addr = Ipv4Addr::new(0, 0, 0xfd, 0xe9);

/// Creates a link, on whose other side simulated clients have the addresses 192.0.2.11 to 192.0.2.13, and starts a
/// speaker on this side.
fn stage(test: &str) -> (Pair, Node) {
    let pair = Pair::new(test);
    for last in 11..=13 {
        pair.theirs.ip(&["addr", "add", &format!("192.0.2.{last}/24"), "dev", "eth0"]);
    }
    let node = Node::start(&pair.ours, "one", &LINK);
    (pair, node)
}

/// Builds the peer for all clients in the network of the link.
fn clients() -> BgpNeighbour {
    BgpNeighbour {
        remote: BgpRemote::Network { network: net("192.0.2.0/24"), limit: 16 },
        peer_asn: PeerAsn::Internal,
        ttl: 64,
        hold_time: 90,
        route_reflector_client: true,
        ..neighbour(OURS, V4.1, OURS)
    }
}

/// Builds a peer at 192.0.2.`last` that waits for connections.
fn internal(last: u8, route_reflector_client: bool) -> BgpNeighbour {
    BgpNeighbour {
        remote: BgpRemote::Address(Ipv4Addr::new(192, 0, 2, last).into()),
        passive: true,
        route_reflector_client,
        ..clients()
    }
}

/// Connects a simulated internal peer from 192.0.2.`last`. `restart` is the forwarding state bit for IPv4 of its
/// Graceful Restart capability, or `None` for no such capability.
fn join(pair: &Pair, last: u8, restart: Option<bool>) -> Puppet {
    let from = Ipv4Addr::new(192, 0, 2, last);
    let patience = Duration::from_secs(20);
    let mut stream = connect(&pair.theirs, &from.to_string(), V4.0, patience).expect("the speaker listens");
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut capabilities = vec![
        Capability::MultiProtocol(Family::Ipv4Unicast),
        Capability::MultiProtocol(Family::Ipv6Unicast),
        Capability::RouteRefresh,
        Capability::FourOctetAs(OURS),
    ];
    capabilities.extend(restart.map(|forwards| {
        Capability::GracefulRestart(GracefulRestart {
            is_restarted: false,
            notification: false,
            restart_time: RESTART_TIME,
            families: BTreeMap::from([(Family::Ipv4Unicast, forwards)]),
        })
    }));
    let open = Open { asn: OURS, hold_time: 90, router_id: from, capabilities };
    let context = Context { four_octet_as: true, ..Context::default() };
    stream.write_all(&encode(&Message::Open(open), &Context::default()).unwrap()).unwrap();
    stream.write_all(&encode(&Message::Keepalive, &context).unwrap()).unwrap();
    Puppet { stream, context }
}

fn attributes(next_hop: u8) -> Attributes {
    Attributes {
        origin: Origin::Igp,
        as_path: AsPath::default(),
        next_hop: NextHop::V4(Ipv4Addr::new(192, 0, 2, next_hop)),
        med: None,
        local_pref: Some(100),
        is_atomic_aggregate: false,
        aggregator: None,
        communities: Default::default(),
        originator_id: None,
        cluster_list: Vec::new(),
        extended_communities: Default::default(),
        large_communities: Default::default(),
        only_to_customer: None,
    }
}

/// Returns the attributes with which a route of the client at 192.0.2.`client` is reflected.
fn reflected(client: u8) -> Attributes {
    Attributes {
        originator_id: Some(Ipv4Addr::new(192, 0, 2, client)),
        cluster_list: vec![REFLECTOR],
        ..attributes(client)
    }
}

fn announce(puppet: &mut Puppet, prefixes: &[&str], attributes: Attributes) {
    let announced = prefixes.iter().map(|prefix| net(prefix)).collect();
    let update = Update { announced, attributes: Some(attributes), ..Update::default() };
    puppet.send(&Message::Update(Box::new(update))).unwrap();
}

fn withdraw(puppet: &mut Puppet, prefix: &str) {
    let update = Update { withdrawn: vec![net(prefix)], ..Update::default() };
    puppet.send(&Message::Update(Box::new(update))).unwrap();
}

/// Returns the next UPDATE with routes: announced and withdrawn prefixes, and the attributes.
#[track_caller]
fn next(puppet: &mut Puppet) -> (Vec<String>, Vec<String>, Option<Attributes>) {
    loop {
        match puppet.receive().expect("the session stays") {
            Message::Update(update) if update.end_of_rib.is_none() => {
                let Update { announced, withdrawn, attributes, .. } = *update;
                let words = |prefixes: Vec<ipnet::IpNet>| prefixes.iter().map(ToString::to_string).collect();
                return (words(announced), words(withdrawn), attributes);
            }
            Message::Open(_) | Message::Keepalive | Message::Update(_) | Message::Refresh(_) => {}
            Message::Notification(notification) => panic!("{notification}"),
        }
    }
}

fn words(prefixes: &[&str]) -> Vec<String> {
    prefixes.iter().map(|prefix| (*prefix).to_owned()).collect()
}

/// Asserts that the next UPDATE announces exactly these prefixes with these attributes.
#[track_caller]
fn expect_announced(puppet: &mut Puppet, prefixes: &[&str], attributes: Attributes) {
    assert_eq!(next(puppet), (words(prefixes), vec![], Some(attributes)));
}

#[track_caller]
fn expect_withdrawn(puppet: &mut Puppet, prefixes: &[&str]) {
    assert_eq!(next(puppet), (vec![], words(prefixes), None));
}

fn wait_routes(node: &Node, peer: &str, reflected: u64) {
    node.wait(peer, "its routes", |session| session.counters.prefixes_reflected == reflected);
}

/// Input: clients announce, withdraw and disconnect. Output: the other clients, also a later one, have exactly the
/// routes of the others, with the next hop and the identifier of the originator; a client gets no route of its own.
#[test]
fn f160_routes_of_a_client_reach_the_other_clients_with_its_next_hop() {
    let (pair, node) = stage("bgp-reflect");
    node.configure(OURS, [("clients", clients())]);
    let [mut first, mut second] = [11, 12].map(|last| join(&pair, last, None));
    let blocks = ["10.64.1.0/26", "10.64.1.64/26"];
    announce(&mut first, &blocks, attributes(11));
    expect_announced(&mut second, &blocks, reflected(11));
    let mut third = join(&pair, 13, None);
    expect_announced(&mut third, &blocks, reflected(11));
    announce(&mut second, &["10.64.2.0/26"], attributes(12));
    for other in [&mut first, &mut third] {
        expect_announced(other, &["10.64.2.0/26"], reflected(12));
    }
    wait_routes(&node, "clients@192.0.2.11", 2);
    for (last, sent) in [(11, 1), (12, 2), (13, 3)] {
        let peer = format!("clients@192.0.2.{last}");
        node.wait(&peer, "sent routes", |session| session.counters.prefixes_sent == sent);
    }

    withdraw(&mut first, blocks[0]);
    expect_withdrawn(&mut second, &blocks[..1]);
    expect_withdrawn(&mut third, &blocks[..1]);
    drop(first);
    expect_withdrawn(&mut second, &blocks[1..]);
    expect_withdrawn(&mut third, &blocks[1..]);
}

/// Input: a client sends routes that have passed the reflector before. Output: nobody receives them, the reason of the
/// session names the loop, and later routes are reflected.
#[test]
fn f160_a_route_that_returns_to_the_reflector_is_not_reflected_again() {
    let (pair, node) = stage("bgp-reflect-loop");
    node.configure(OURS, [("clients", clients())]);
    let [mut first, mut second] = [11, 12].map(|last| join(&pair, last, None));
    node.wait_established("clients@192.0.2.12");
    let own = Attributes { originator_id: Some(REFLECTOR), ..attributes(11) };
    let passed = Attributes { cluster_list: vec![Ipv4Addr::new(192, 0, 2, 99), REFLECTOR], ..attributes(11) };
    announce(&mut first, &["10.64.1.0/26"], own);
    announce(&mut first, &["10.64.2.0/26"], passed);
    announce(&mut first, &["10.64.3.0/26"], attributes(11));
    expect_announced(&mut second, &["10.64.3.0/26"], reflected(11));
    let session =
        node.wait("clients@192.0.2.11", "the reason", |session| session.reason.contains("cluster list"));
    assert!(session.reason.contains("this node has originated the route"), "{}", session.reason);
    assert_eq!((session.counters.prefixes_reflected, session.counters.prefixes_received), (1, 3));
}

/// Input: routes of a client and of a non-client, and a route of the reflector itself for the same prefix. Output:
/// non-clients do not receive the route of the non-client, and the own route replaces the reflected one for its time, unless
/// the reflected one has a higher LOCAL_PREF.
#[test]
fn f160_non_clients_receive_routes_of_clients_only_and_own_routes_come_first() {
    let (pair, node) = stage("bgp-reflect-kinds");
    node.configure(OURS, [("a", internal(11, true)), ("m", internal(12, false)), ("n", internal(13, false))]);
    let [mut client, mut m, mut n] = [11, 12, 13].map(|last| join(&pair, last, None));
    for peer in ["a", "m", "n"] {
        node.wait_established(peer);
    }
    announce(&mut m, &["10.64.2.0/26"], attributes(12));
    expect_announced(&mut client, &["10.64.2.0/26"], reflected(12));
    announce(&mut client, &["10.64.1.0/26"], attributes(11));
    for other in [&mut m, &mut n] {
        expect_announced(other, &["10.64.1.0/26"], reflected(11));
    }

    node.change("n", &["10.64.1.0/26"], Some(&med(7)));
    let own = Attributes { med: Some(7), ..attributes(1) };
    expect_announced(&mut n, &["10.64.1.0/26"], own);
    // A better route of a client replaces the own one (RFC 4271 §9.1.2).
    let better = Attributes { local_pref: Some(200), ..attributes(11) };
    announce(&mut client, &["10.64.1.0/26"], better);
    expect_announced(&mut n, &["10.64.1.0/26"], Attributes { local_pref: Some(200), ..reflected(11) });
    announce(&mut client, &["10.64.1.0/26"], attributes(11));
    expect_announced(&mut n, &["10.64.1.0/26"], Attributes { med: Some(7), ..attributes(1) });
    node.change("n", &["10.64.1.0/26"], None);
    expect_announced(&mut n, &["10.64.1.0/26"], reflected(11));
    node.leave(Leave::Shutdown("maintenance".to_owned()));
    expect_withdrawn(&mut n, &["10.64.1.0/26"]);
    expect_withdrawn(&mut client, &["10.64.2.0/26"]);
}

/// Without a client, a node reflects nothing, as before. Output: with a client from then on, sessions start anew.
#[test]
fn a_node_without_clients_reflects_nothing() {
    let (pair, node) = stage("bgp-reflect-none");
    let peers = |is_client| [("a", internal(11, is_client)), ("m", internal(12, false))];
    node.configure(OURS, peers(false));
    let [mut a, mut m] = [11, 12].map(|last| join(&pair, last, None));
    announce(&mut a, &["10.64.1.0/26"], attributes(11));
    node.wait("a", "the route", |session| session.counters.prefixes_received == 1);
    node.change("m", &["10.64.9.0/26"], Some(&med(7)));
    expect_announced(&mut m, &["10.64.9.0/26"], Attributes { med: Some(7), ..attributes(1) });
    assert_eq!(node.session("a").unwrap().counters.prefixes_reflected, 0);

    node.configure(OURS, peers(true));
    for peer in ["a", "m"] {
        node.wait(peer, "reset", |session| session.negotiated.is_none());
    }
    drop((a, m));
    let mut a = join(&pair, 11, None);
    node.wait("a", "another session", |session| session.established == 2);
    let mut m = join(&pair, 12, None);
    announce(&mut a, &["10.64.1.0/26"], attributes(11));
    let mut received = vec![next(&mut m), next(&mut m)];
    received.sort();
    let expected =
        [("10.64.1.0/26", reflected(11)), ("10.64.9.0/26", Attributes { med: Some(7), ..attributes(1) })];
    assert_eq!(received, expected.map(|(prefix, attributes)| (words(&[prefix]), vec![], Some(attributes))));
}

/// Input: a client with graceful restart loses its connection and returns, with and without its forwarding state.
/// Output: its routes stay meanwhile; those that it does not announce again go at its End-of-RIB, or at once.
#[test]
fn f160_routes_of_a_restarting_client_stay_until_its_end_of_rib() {
    let (pair, node) = stage("bgp-reflect-restart");
    let restarting = BgpNeighbour { graceful_restart: Some(Restart { restart_time: 120 }), ..clients() };
    node.configure(OURS, [("clients", restarting)]);
    let mut first = join(&pair, 11, Some(true));
    let mut second = join(&pair, 12, None);
    let blocks = ["10.64.1.0/26", "10.64.1.64/26"];
    announce(&mut first, &blocks, attributes(11));
    expect_announced(&mut second, &blocks, reflected(11));
    drop(first);
    let is_down = |session: &model::bgp::report::BgpSession| session.negotiated.is_none();
    node.wait("clients@192.0.2.11", "down", is_down);
    wait_routes(&node, "clients@192.0.2.11", 2);

    let mut first = join(&pair, 11, Some(true));
    announce(&mut first, &blocks[..1], attributes(11));
    let end = Update { end_of_rib: Some(Family::Ipv4Unicast), ..Update::default() };
    first.send(&Message::Update(Box::new(end))).unwrap();
    // The first message since: the routes were neither withdrawn nor announced again.
    expect_withdrawn(&mut second, &blocks[1..]);
    drop(first);
    node.wait("clients@192.0.2.11", "down again", is_down);
    wait_routes(&node, "clients@192.0.2.11", 1);
    let _first = join(&pair, 11, Some(false));
    expect_withdrawn(&mut second, &blocks[..1]);
    eventually(
        "no routes",
        || node.session("clients@192.0.2.11").is_some_and(|it| it.counters.prefixes_reflected == 0),
        String::new,
    );
}
