//! Tests of the route reflector (RFC 4456): receivers of each route, loops, the best of several routes, limits, lost
//! sessions, and networks of reflectors and clients.

mod network;

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use bgp::{
    AsPath, Attributes, Community, Family, Origin, Segment,
    attributes::NextHop,
    reflector::{PeerKind, ReflectedPeer, ReflectionRefusal, Reflector},
};
use ipnet::IpNet;

use PeerKind::{Client, NonClient};

const AS: u32 = 64_512;
const REFLECTOR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

type Table = Reflector<u8>;

/// Returns the peer with BGP Identifier and address `192.0.2.<number>`.
fn peer(number: u8, kind: PeerKind) -> ReflectedPeer {
    let router_id = Ipv4Addr::new(192, 0, 2, number);
    ReflectedPeer { kind, router_id, address: router_id.into(), cluster_id: REFLECTOR, asn: AS }
}

fn attributes() -> Attributes {
    Attributes {
        origin: Origin::Igp,
        as_path: AsPath::default(),
        next_hop: NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)),
        med: None,
        local_pref: Some(100),
        is_atomic_aggregate: false,
        aggregator: None,
        communities: BTreeSet::new(),
        originator_id: None,
        cluster_list: Vec::new(),
        extended_communities: BTreeSet::new(),
        large_communities: BTreeSet::new(),
        only_to_customer: None,
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn path(numbers: &[u32]) -> AsPath {
    AsPath(vec![Segment::Sequence(numbers.to_vec())])
}

/// Announces 10.0.0.0/24 by a client and returns the reason for which the route is refused, if any.
fn announce(table: &mut Table, from: u8, attributes: &Attributes) -> Result<(), ReflectionRefusal> {
    table.announce(&from, &peer(from, Client), &[net("10.0.0.0/24")], attributes)
}

/// Returns the number of the peer whose route to 10.0.0.0/24 is reflected to a client without routes.
fn best(table: &Table) -> Option<u8> {
    let route = table.route(&net("10.0.0.0/24"), &99, Client)?;
    Some(route.originator_id.unwrap().octets()[3])
}

/// Input: a route of a client and one of a non-client. Output: the former for all others, the latter for clients.
#[test]
fn f160_routes_of_clients_are_for_all_and_those_of_non_clients_for_clients() {
    let mut table = Table::default();
    let (of_client, of_other) = (net("10.0.1.0/24"), net("10.0.2.0/24"));
    table.announce(&1, &peer(1, Client), &[of_client], &attributes()).unwrap();
    table.announce(&3, &peer(3, NonClient), &[of_other], &attributes()).unwrap();
    let receivers = |prefix: &IpNet| {
        let all = [(1, Client), (2, Client), (3, NonClient), (4, NonClient)];
        let received = all.into_iter().filter(|(number, kind)| table.route(prefix, number, *kind).is_some());
        received.map(|(number, _)| number).collect::<Vec<_>>()
    };
    assert_eq!(receivers(&of_client), [2, 3, 4]);
    assert_eq!(receivers(&of_other), [1, 2]);
}

/// Input: a route with and without attributes of another reflector. Output: our cluster ID first in the list, the
/// originator kept, and everything else unchanged, except for the link-local next hop.
#[test]
fn f160_a_reflected_route_keeps_its_attributes_and_gets_originator_and_cluster() {
    let mut table = Table::default();
    let received = Attributes {
        med: Some(5),
        communities: [Community(7)].into(),
        as_path: path(&[65_001]),
        ..attributes()
    };
    announce(&mut table, 1, &received).unwrap();
    let expected = Attributes {
        originator_id: Some(Ipv4Addr::new(192, 0, 2, 1)),
        cluster_list: vec![REFLECTOR],
        ..received.clone()
    };
    assert_eq!(table.route(&net("10.0.0.0/24"), &2, Client).as_deref(), Some(&expected));

    let [origin, cluster] = [Ipv4Addr::new(192, 0, 2, 50), Ipv4Addr::new(192, 0, 2, 60)];
    let global = "2001:db8::1".parse().unwrap();
    let passed = Attributes {
        originator_id: Some(origin),
        cluster_list: vec![cluster],
        next_hop: NextHop::V6 { global, link_local: Some("fe80::1".parse().unwrap()) },
        local_pref: None,
        ..received
    };
    let prefix = net("2001:db8:1::/64");
    table.announce(&1, &peer(1, Client), &[prefix], &passed).unwrap();
    let expected = Attributes {
        cluster_list: vec![REFLECTOR, cluster],
        next_hop: NextHop::V6 { global, link_local: None },
        local_pref: Some(100),
        ..passed
    };
    assert_eq!(table.route(&prefix, &2, Client).as_deref(), Some(&expected));
}

/// Input: a route after which one follows that must not be reflected. Output: the reason, and no route at all.
#[test]
fn f160_loops_and_unusable_routes_are_refused_and_replace_the_route_before() {
    let link_local = NextHop::V6 { global: "fe80::1".parse().unwrap(), link_local: None };
    let cases = [
        (Attributes { originator_id: Some(REFLECTOR), ..attributes() }, ReflectionRefusal::OwnRoute),
        (
            Attributes { cluster_list: vec![Ipv4Addr::LOCALHOST, REFLECTOR], ..attributes() },
            ReflectionRefusal::ClusterLoop,
        ),
        (Attributes { as_path: path(&[65_001, AS]), ..attributes() }, ReflectionRefusal::AsLoop),
        (
            Attributes { communities: [Community::NO_ADVERTISE].into(), ..attributes() },
            ReflectionRefusal::NoAdvertise,
        ),
        (Attributes { next_hop: link_local, ..attributes() }, ReflectionRefusal::NextHop),
        (
            Attributes { communities: (0..250).map(Community).collect(), ..attributes() },
            ReflectionRefusal::TooLong,
        ),
    ];
    for (refused, reason) in cases {
        let mut table = Table::default();
        announce(&mut table, 1, &attributes()).unwrap();
        assert_eq!((best(&table), table.count(&1)), (Some(1), 1));
        table.take_changed(9);
        assert_eq!(announce(&mut table, 1, &refused), Err(reason));
        assert_eq!((best(&table), table.count(&1), table.has_changed()), (None, 0, true), "{reason}");
    }
    // The next hop of an UPDATE with prefixes of both families is that of the IPv4 ones.
    let mut table = Table::default();
    let both = [net("10.0.0.0/24"), net("2001:db8::/64")];
    assert_eq!(table.announce(&1, &peer(1, Client), &both, &attributes()), Err(ReflectionRefusal::NextHop));
    assert_eq!((best(&table), table.count(&1)), (Some(1), 1));
}

/// Input: two or three routes to a prefix, the first of which is better in one step of the decision. Output: the
/// first, whatever the order of arrival.
#[test]
fn f160_the_best_of_several_routes_is_reflected() {
    let with = |change: fn(&mut Attributes)| {
        let mut changed = attributes();
        change(&mut changed);
        changed
    };
    let cases = [
        (9, with(|it| it.local_pref = Some(200)), 1, with(|it| it.local_pref = None)),
        (9, with(|it| it.as_path = path(&[1])), 1, with(|it| it.as_path = path(&[1, 2]))),
        (9, with(|it| it.origin = Origin::Igp), 1, with(|it| it.origin = Origin::Incomplete)),
        (
            9,
            with(|it| (it.as_path, it.med) = (path(&[1]), Some(5))),
            1,
            with(|it| (it.as_path, it.med) = (path(&[1]), Some(6))),
        ),
        // Exits of different neighboring AS are not compared: the lower originator wins.
        (
            1,
            with(|it| (it.as_path, it.med) = (path(&[1]), Some(6))),
            9,
            with(|it| (it.as_path, it.med) = (path(&[2]), Some(5))),
        ),
        // RFC 4456 §9: the originator counts, not the peer.
        (9, with(|it| it.originator_id = Some(Ipv4Addr::new(192, 0, 1, 9))), 1, attributes()),
        (
            9,
            with(|it| it.originator_id = Some(Ipv4Addr::new(192, 0, 2, 7))),
            1,
            with(|it| {
                it.originator_id = Some(Ipv4Addr::new(192, 0, 2, 7));
                it.cluster_list = vec![Ipv4Addr::LOCALHOST];
            }),
        ),
    ];
    for (better, route, worse, other) in cases {
        for order in [[(better, &route), (worse, &other)], [(worse, &other), (better, &route)]] {
            let mut table = Table::default();
            for (from, attributes) in order {
                announce(&mut table, from, attributes).unwrap();
            }
            let reflected = table.route(&net("10.0.0.0/24"), &better, Client);
            assert_eq!(reflected, None, "{route:?} over {other:?}: the best route is not sent back");
            assert!(table.route(&net("10.0.0.0/24"), &worse, Client).is_some());
            table.withdraw(&better, &net("10.0.0.0/24"));
            assert!(table.route(&net("10.0.0.0/24"), &better, Client).is_some(), "the other one remains");
        }
    }
}

/// Three routes of which each is better than the next one only together with the third (MED of two AS). Output: the
/// same best route for every order of arrival.
#[test]
fn the_best_route_does_not_depend_on_the_order_of_arrival() {
    let routes = [(1, 10, 1), (2, 5, 2), (3, 1, 1)].map(|(from, med, neighbor)| {
        (from, Attributes { med: Some(med), as_path: path(&[neighbor]), ..attributes() })
    });
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut table = Table::default();
        for index in order {
            let (from, route) = &routes[index];
            announce(&mut table, *from, route).unwrap();
        }
        // Route 1 is beaten by route 3, of the same AS; of the others, 2 has the lower originator.
        assert_eq!(best(&table), Some(2), "{order:?}");
    }
}

/// Input: changes of routes that are not the best one, and repetitions. Output: no changed prefix.
#[test]
fn only_changes_of_the_best_route_are_changes() {
    let mut table = Table::default();
    let prefix = net("10.0.0.0/24");
    announce(&mut table, 1, &attributes()).unwrap();
    assert_eq!(table.take_changed(9), [prefix].into());
    announce(&mut table, 1, &attributes()).unwrap();
    announce(&mut table, 2, &attributes()).unwrap();
    table.withdraw(&2, &prefix);
    table.withdraw(&3, &prefix);
    assert!(!table.has_changed());
    table.withdraw(&1, &prefix);
    assert_eq!(table.take_changed(9), [prefix].into());
    assert_eq!((table.prefixes().count(), table.count(&1)), (0, 0));
    // In portions, each prefix once.
    let many: Vec<_> = (0..10).map(|third| net(&format!("10.1.{third}.0/24"))).collect();
    table.announce(&1, &peer(1, Client), &many, &attributes()).unwrap();
    let portions = [table.take_changed(4), table.take_changed(4), table.take_changed(4)];
    assert_eq!(portions.each_ref().map(BTreeSet::len), [4, 4, 2]);
    assert_eq!(portions.iter().flatten().collect::<BTreeSet<_>>(), many.iter().collect());
}

/// Input: more routes than the table takes. Output: the first ones stay and can change, the others are refused, and
/// their peer is asked again once a quarter of the table is free.
#[test]
fn f160_the_table_is_limited_and_refused_routes_are_requested_again() {
    let mut table = Table::with_routes_max(8);
    let many: Vec<_> = (0..12).map(|third| net(&format!("10.1.{third}.0/24"))).collect();
    assert_eq!(table.announce(&1, &peer(1, Client), &many, &attributes()), Err(ReflectionRefusal::TableFull));
    assert_eq!(
        (table.count(&1), announce(&mut table, 2, &attributes())),
        (8, Err(ReflectionRefusal::TableFull))
    );
    let changed = Attributes { med: Some(1), ..attributes() };
    table.announce(&1, &peer(1, Client), &many[..8], &changed).unwrap();
    assert_eq!(table.route(&many[0], &2, Client).unwrap().med, Some(1));
    table.withdraw(&1, &many[0]);
    assert_eq!(table.take_lacking(), [].into());
    table.withdraw(&1, &many[1]);
    assert_eq!(table.take_lacking(), [1, 2].into());
    assert_eq!(table.take_lacking(), [].into());
    table.announce(&2, &peer(2, Client), &many[8..10], &attributes()).unwrap();
    assert_eq!(announce(&mut table, 2, &attributes()), Err(ReflectionRefusal::TableFull));
    table.remove(&1);
    table.remove(&2);
    assert_eq!((table.take_lacking(), table.prefixes().count()), ([].into(), 0));
}

/// Input: a lost session with graceful restart for IPv4, then a second one. Output: IPv4 routes stay until they are
/// removed as stale, unless they were announced again; routes that were stale before the second loss go at once.
#[test]
fn stale_routes_stay_until_their_end() {
    let mut table = Table::default();
    let [first, second, other] = [net("10.0.0.0/24"), net("10.0.1.0/24"), net("2001:db8::/64")];
    let (from, families) = (peer(1, Client), BTreeSet::from([Family::Ipv4Unicast]));
    let v6 = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
    table.announce(&1, &from, &[first, second], &attributes()).unwrap();
    table.announce(&1, &from, &[other], &Attributes { next_hop: v6, ..attributes() }).unwrap();
    table.take_changed(9);
    table.retain_stale(&1, &families);
    assert_eq!((table.take_changed(9), table.count(&1)), ([other].into(), 2));
    table.announce(&1, &from, &[first], &attributes()).unwrap();
    table.remove_stale(&1, Family::Ipv6Unicast);
    assert_eq!(table.count(&1), 2);
    table.retain_stale(&1, &families);
    assert_eq!((table.take_changed(9), table.count(&1)), ([second].into(), 1));
    table.remove_stale(&1, Family::Ipv4Unicast);
    assert_eq!((table.take_changed(9), table.count(&1)), ([first].into(), 0));
}

/// Routes with equal attributes share one copy of them.
#[test]
fn routes_of_an_update_share_their_attributes() {
    let mut table = Table::default();
    let both = [net("10.0.0.0/24"), net("10.0.1.0/24")];
    table.announce(&1, &peer(1, Client), &both, &attributes()).unwrap();
    let [first, second] = both.map(|prefix| table.route(&prefix, &2, Client).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
}
