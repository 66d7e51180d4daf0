//! Tests of session establishment, negotiation, rejection, and configuration changes.

use std::{collections::BTreeSet, net::Ipv4Addr};

use bgp::{
    Capability, Family, Message, Notification, Open, Refresh, RefreshKind, Role,
    notification::{cease, code},
    session::{Config, Direction, Event, Input, Output, PeerAsn, PrefixCount, State},
};

use super::support::{
    Bench, OURS, THEIRS, codes, config, connected, down, events, id, malformed, notification, notified, open,
    open_with, opened, passive, received, secs, sent, update,
};

/// A started session connects, sends OPEN and KEEPALIVE, and is established with the negotiated properties.
#[test]
fn an_active_session_is_established() {
    let config = Config { host_name: Some("node-1".to_owned()), ..config() };
    let mut bench = Bench::new(config);
    assert_eq!(bench.tell(Input::Start)[0], Output::Connect);
    let said = opened(&bench.tell(connected(1, Direction::Outgoing)));
    assert_eq!((said.asn, said.hold_time, said.router_id), (OURS, 90, Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(
        said.capabilities,
        [
            Capability::MultiProtocol(Family::Ipv4Unicast),
            Capability::MultiProtocol(Family::Ipv6Unicast),
            Capability::RouteRefresh,
            Capability::ExtendedMessage,
            Capability::FourOctetAs(OURS),
            Capability::EnhancedRouteRefresh,
            Capability::HostName { host: "node-1".to_owned(), domain: String::new() },
        ]
    );
    assert!(!bench.session.context(id(1)).four_octet_as, "nothing is agreed on yet");
    let theirs = open_with([
        Capability::HostName { host: "leaf".to_owned(), domain: "example.net".to_owned() },
        Capability::Unknown { code: 69, value: vec![] },
        Capability::Unknown { code: 240, value: vec![1, 2, 3] },
    ]);
    assert_eq!(sent(&bench.tell(received(1, Message::Open(theirs.clone())))), [&Message::Keepalive]);
    assert!(bench.session.context(id(1)).four_octet_as);
    let outputs = bench.tell(received(1, Message::Keepalive));
    let [Event::Established { connection, negotiated }, Event::State { .. }] = events(&outputs)[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!((*connection, negotiated.peer_asn), (id(1), THEIRS));
    assert_eq!((negotiated.hold_time, negotiated.keepalive_time), (30, 10), "the smaller proposal");
    assert_eq!(negotiated.families, BTreeSet::from(Family::ALL));
    assert!(negotiated.is_external && negotiated.route_refresh && negotiated.context().is_external);
    assert!(!negotiated.extended_messages && !negotiated.enhanced_refresh && !negotiated.extended_next_hop);
    assert_eq!(negotiated.host_name.as_deref(), Some("leaf.example.net"));
    assert_eq!(negotiated.capabilities, ["ipv4-unicast", "ipv6-unicast", "route refresh", "4-octet AS"]);
    assert_eq!(negotiated.other_capabilities, ["additional paths", "capability 240"]);
    assert_eq!(bench.session.peer_open(), Some(&theirs));
}

#[test]
fn a_passive_session_makes_no_connection_and_is_established_over_the_neighbours() {
    let mut bench = Bench::new(passive());
    assert_eq!(sent(&bench.tell(Input::Start)), [] as [&Message; 0]);
    assert_eq!(bench.session.reason(), "waiting for the neighbour to connect (passive)");
    assert_eq!(bench.pass(secs(100_000)), []);
    opened(&bench.tell(connected(1, Direction::Incoming)));
    bench.tell(received(1, Message::Open(open())));
    bench.tell(received(1, Message::Keepalive));
    assert_eq!((bench.state(), bench.session.established_over()), (State::Established, Some(id(1))));
    bench.tell(Input::Closed { connection: id(1), why: "reset".to_owned() });
    assert_eq!((bench.state(), bench.due_in()), (State::Active, None));
    assert_eq!(bench.session.reason(), "waiting for the neighbour to connect (passive); before: reset");
}

/// A neighbor without the Multiprotocol capability exchanges IPv4 unicast routes (RFC 4760 §8).
#[test]
fn a_neighbour_without_the_multiprotocol_capability_exchanges_ipv4_routes() {
    let bench = Bench::established(config(), Open { capabilities: vec![], ..open() });
    let negotiated = bench.session.negotiated().unwrap();
    assert_eq!(negotiated.families, BTreeSet::from([Family::Ipv4Unicast]));
    assert!(!negotiated.four_octet_as && !negotiated.route_refresh);
    assert_eq!(negotiated.capabilities, ["ipv4-unicast"]);
}

/// Every OPEN that must be rejected is answered with the NOTIFICATION for its error, and the reason is
/// reported as text.
#[test]
fn an_open_that_does_not_fit_is_refused_with_its_code_and_in_words() {
    let role = |role| open_with([Capability::Role(role)]);
    let ours = Config { role: Some(Role::Customer), ..config() };
    let internal = Config { peer_asn: PeerAsn::Internal, ..config() };
    let external = Config { peer_asn: PeerAsn::External, ..config() };
    let v6 = Config { families: BTreeSet::from([Family::Ipv6Unicast]), ..config() };
    let vpn = Capability::Unknown { code: 1, value: vec![0, 1, 0, 128] };
    #[rustfmt::skip]
    let cases: [(Config, Open, u8, &[u8], &str); 12] = [
        (config(), Open { asn: 65_009, ..open() }, 2, &[], "the neighbour is of AS 65009, expected is AS 65002"),
        (external, Open { asn: OURS, ..open() }, 2, &[], "the neighbour is of AS 65001, expected is another AS than ours"),
        (internal.clone(), open(), 2, &[], "the neighbour is of AS 65002, expected is our own AS"),
        (Config { peer_asn: PeerAsn::Number(0), ..config() }, Open { asn: 0, ..open() }, 2, &[], "the neighbour is of AS 0, expected is AS 0"),
        (config(), Open { router_id: Ipv4Addr::UNSPECIFIED, ..open() }, 3, &[], "the neighbour's router ID is 0.0.0.0"),
        (internal, Open { asn: OURS, router_id: Ipv4Addr::new(10, 0, 0, 1), ..open() }, 3, &[], "the neighbour is of our AS and has our router ID, 10.0.0.1"),
        (config(), Open { hold_time: 2, ..open() }, 6, &[], "the neighbour proposes a hold time of 2 s, less than 3"),
        (ours.clone(), role(Role::Customer), 11, &[], "role mismatch: we are customer, so the neighbour has to be provider; it is customer"),
        (ours.clone(), open_with([Capability::Role(Role::Provider), Capability::Role(Role::Peer)]), 11, &[], "role mismatch: we are customer, so the neighbour has to be provider; it is peer"),
        (ours, open_with([Capability::Unknown { code: 9, value: vec![7] }]), 11, &[], "role mismatch: we are customer, so the neighbour has to be provider; it is an unknown one"),
        (v6, Open { capabilities: vec![], ..open() }, 7, &[1, 4, 0, 2, 0, 1], "no address family in common: we want ipv6-unicast, the neighbour ipv4-unicast"),
        (config(), Open { capabilities: vec![vpn], ..open() }, 7, &[1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1], "no address family in common: we want ipv4-unicast and ipv6-unicast, the neighbour others"),
    ];
    for (config, open, subcode, data, why) in cases {
        let mut bench = Bench::outgoing(config, open.clone(), State::OpenSent);
        let outputs = bench.tell(received(1, Message::Open(open.clone())));
        let expected = Notification { code: code::OPEN, subcode, data: data.to_vec() };
        assert_eq!(notified(&outputs), Some(&expected), "{why}");
        assert_eq!((bench.session.reason(), bench.state()), (why, State::Idle));
        assert_eq!(bench.session.peer_open(), Some(&open), "what it said can be shown");
    }
}

/// An OPEN that is unusual but valid is accepted, such as an equal BGP Identifier in a different AS (RFC 6286
/// §2.2, RFC 9234 §4.2, RFC 5492 §3).
#[test]
fn an_open_that_fits_in_an_unusual_way_is_accepted() {
    let same_id = Open { router_id: Ipv4Addr::new(10, 0, 0, 1), ..open() };
    let customer = Config { role: Some(Role::Customer), ..config() };
    let internal = Config { peer_asn: PeerAsn::Internal, role: Some(Role::Customer), ..config() };
    let malformed = Capability::Unknown { code: 9, value: vec![] };
    for (config, open) in [
        (config(), same_id),
        (config(), Open { hold_time: 0, ..open() }),
        (config(), open_with([Capability::Role(Role::Customer)])),
        (customer.clone(), open_with([Capability::Role(Role::Provider)])),
        (customer.clone(), open()),
        (customer, open_with([malformed])),
        (internal, Open { asn: OURS, ..open_with([Capability::Role(Role::Peer)]) }),
        (Config { peer_asn: PeerAsn::External, ..config() }, open()),
        (Config { families: BTreeSet::from([Family::Ipv4Unicast]), ..config() }, open()),
    ] {
        Bench::established(config, open);
    }
}

#[test]
fn roles_and_extended_next_hops_are_told_where_they_mean_something_and_agreed_on_when_both_do() {
    let customer = Config { role: Some(Role::Customer), extended_next_hop: true, ..config() };
    let mut bench = Bench::new(customer.clone());
    bench.tell(Input::Start);
    let said = opened(&bench.tell(connected(1, Direction::Outgoing)));
    assert!(said.capabilities.contains(&Capability::Role(Role::Customer)));
    assert!(said.capabilities.contains(&Capability::ExtendedNextHop(vec![Family::Ipv4Unicast])));
    let theirs = open_with([
        Capability::Role(Role::Provider),
        Capability::ExtendedNextHop(vec![Family::Ipv4Unicast]),
        Capability::ExtendedMessage,
        Capability::EnhancedRouteRefresh,
    ]);
    let bench = Bench::established(customer.clone(), theirs);
    let negotiated = bench.session.negotiated().unwrap();
    assert_eq!(negotiated.role, Some(Role::Provider));
    assert!(negotiated.extended_next_hop && negotiated.extended_messages && negotiated.enhanced_refresh);
    let context = negotiated.context();
    assert!(context.extended_next_hop && context.extended_messages && context.four_octet_as);
    let internal =
        Config { peer_asn: PeerAsn::Internal, families: BTreeSet::from([Family::Ipv6Unicast]), ..customer };
    let mut bench = Bench::new(internal);
    bench.tell(Input::Start);
    let said = opened(&bench.tell(connected(1, Direction::Outgoing))).capabilities;
    assert!(!said.iter().any(|each| matches!(each, Capability::Role(_) | Capability::ExtendedNextHop(_))));
}

#[test]
fn a_host_name_is_cut_between_characters() {
    let mut bench = Bench::new(Config { host_name: Some(format!("{}ü", "n".repeat(63))), ..config() });
    bench.tell(Input::Start);
    let said = opened(&bench.tell(connected(1, Direction::Outgoing))).capabilities;
    assert!(said.contains(&Capability::HostName { host: "n".repeat(63), domain: String::new() }), "{said:?}");
}

/// A message that is not expected in the state ends the session with a NOTIFICATION whose subcode is the
/// state and whose data is the message type (RFC 6608 §3).
#[test]
fn a_message_that_does_not_belong_into_the_state_ends_the_session() {
    let refresh = || Message::Refresh(Refresh { family: None, kind: RefreshKind::Request });
    let cases = [
        (State::OpenSent, Message::Keepalive, 1, 4),
        (State::OpenSent, update(&[], &[]), 1, 2),
        (State::OpenSent, refresh(), 1, 5),
        (State::OpenConfirm, Message::Open(open()), 2, 1),
        (State::OpenConfirm, update(&[], &[]), 2, 2),
        (State::OpenConfirm, refresh(), 2, 5),
        (State::Established, Message::Open(open()), 3, 1),
    ];
    for (state, message, subcode, kind) in cases {
        let mut bench = Bench::outgoing(config(), open(), state);
        let outputs = bench.tell(received(1, message));
        assert_eq!(notified(&outputs), Some(&Notification { code: code::FSM, subcode, data: vec![kind] }));
        assert_eq!(bench.state(), State::Idle);
    }
}

#[test]
fn a_refresh_is_passed_on_for_families_that_were_agreed_on_only() {
    let mut bench =
        Bench::established(config(), Open { capabilities: vec![Capability::RouteRefresh], ..open() });
    let mut ask = |family, kind| bench.tell(received(1, Message::Refresh(Refresh { family, kind })));
    let (v4, v6) = (Some(Family::Ipv4Unicast), Some(Family::Ipv6Unicast));
    let wanted = [Output::Event(Event::RefreshRequested(Family::Ipv4Unicast))];
    assert_eq!(ask(v4, RefreshKind::Request), wanted);
    for (family, kind) in [
        (v6, RefreshKind::Request),
        (None, RefreshKind::Request),
        (v4, RefreshKind::Begin),
        (v4, RefreshKind::End),
        (v4, RefreshKind::Unknown(7)),
    ] {
        assert_eq!(ask(family, kind), []);
    }
    let outputs = bench.tell(malformed(1, notification(code::REFRESH, 1)));
    assert_eq!((codes(&outputs), bench.state()), (Some((7, 1)), State::Idle));
}

#[test]
fn settings_outside_of_open_take_effect_in_place_and_others_begin_again() {
    let mut bench = Bench::established(config(), open());
    let in_place = Config {
        keepalive_time: Some(2),
        connect_time: 9,
        passive: true,
        is_restarted: true,
        host_name: Some("another".to_owned()),
        max_prefixes: 5,
        ..config()
    };
    assert_eq!(config().needs_reset(&in_place), None);
    assert_eq!(bench.tell(Input::Configure(Box::new(in_place.clone()))), []);
    assert_eq!(bench.session.negotiated().unwrap().keepalive_time, 2);
    assert!(bench.due_in().unwrap() <= secs(2));
    let resets = [
        Config { local_asn: 7, ..config() },
        Config { peer_asn: PeerAsn::Internal, ..config() },
        Config { router_id: Ipv4Addr::new(10, 0, 0, 7), ..config() },
        Config { hold_time: 30, ..config() },
        Config { families: BTreeSet::from([Family::Ipv4Unicast]), ..config() },
        Config { graceful_restart: Some(7), ..config() },
        Config { extended_next_hop: true, ..config() },
        Config { role: Some(Role::Peer), ..config() },
    ];
    let mut reasons = BTreeSet::new();
    for next in resets {
        let why = config().needs_reset(&next).unwrap();
        assert!(reasons.insert(why), "{why}");
        let mut bench = Bench::established(config(), open());
        assert_eq!(bench.session.needs_reset(&next), Some(why));
        let outputs = bench.tell(Input::Configure(Box::new(next)));
        assert_eq!(codes(&outputs), Some((code::CEASE, cease::CONFIGURATION_CHANGE)));
        assert_eq!(down(&outputs).unwrap().why, format!("other settings: {why}"));
        assert_eq!(bench.state(), State::Connect, "at once");
    }
}

/// A changed rule for the AS number of the neighbor ends the session only if the new rule rejects the
/// neighbor.
#[test]
fn another_rule_for_the_neighbours_as_ends_only_what_does_not_fit_it() {
    let with = |peer_asn| Config { peer_asn, ..config() };
    let mut bench = Bench::established(config(), open());
    bench.tell(connected(2, Direction::Incoming));
    for rule in [PeerAsn::External, PeerAsn::Number(THEIRS)] {
        assert_eq!(bench.session.needs_reset(&with(rule)), None);
        assert_eq!(bench.tell(Input::Configure(Box::new(with(rule)))), []);
    }
    for rule in [PeerAsn::Internal, PeerAsn::Number(65_009)] {
        let mut bench = Bench::established(config(), open());
        assert_eq!(bench.session.needs_reset(&with(rule)), Some("the neighbour's AS"));
        let outputs = bench.tell(Input::Configure(Box::new(with(rule))));
        assert_eq!(codes(&outputs), Some((code::CEASE, cease::CONFIGURATION_CHANGE)));
    }
    let mut bench = Bench::outgoing(config(), open(), State::OpenSent);
    assert_eq!(bench.tell(Input::Configure(Box::new(with(PeerAsn::Number(65_009))))), []);
    let outputs = bench.tell(received(1, Message::Open(open())));
    assert_eq!(codes(&outputs), Some((code::OPEN, 2)), "its OPEN is checked by the new rule");
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    assert_eq!(bench.session.needs_reset(&with(PeerAsn::Internal)), None, "nothing was said yet");
}

#[test]
fn whether_connections_are_made_can_change_at_any_time() {
    let mut bench = Bench::new(config());
    bench.tell(Input::Start);
    assert_eq!(bench.tell(Input::Configure(Box::new(passive())))[0], Output::CancelConnect);
    assert_eq!((bench.state(), bench.due_in()), (State::Active, None));
    assert_eq!(bench.tell(Input::Configure(Box::new(config())))[0], Output::Connect);
    // A connection made meanwhile is not wanted.
    bench.tell(Input::Configure(Box::new(passive())));
    assert_eq!(bench.tell(connected(1, Direction::Outgoing)), [Output::Close { connection: id(1) }]);
}

#[test]
fn what_is_told_of_unknown_connections_is_nothing() {
    let mut bench = Bench::established(config(), open());
    for input in [
        received(9, Message::Keepalive),
        malformed(9, notification(code::HEADER, 1)),
        Input::Closed { connection: id(9), why: "closed".to_owned() },
        Input::SendStalled { connection: id(9) },
        Input::SendMoved { connection: id(9), is_drained: false },
        Input::ConnectFailed { why: "refused".to_owned() },
        Input::Start,
    ] {
        assert_eq!(bench.tell(input), []);
    }
    assert_eq!(bench.session.prefixes(), PrefixCount::Exactly(0));
}
