//! Tests of BGP between two Tidegate speakers and with simulated neighbors: sessions, passwords, hop limits,
//! routes, and incoming connections.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::time::Duration;

use bgp::{Message, attributes::NextHop};
use model::{
    bgp::{
        report::BgpSessionState,
        settings::{BgpNeighbour, BgpRemote},
    },
    kinds::{
        bfd_profile::BfdProfileSpec,
        bgp_peer::{GracefulRestart, PeerAsn},
    },
};
use node_agent::bgp::Leave;

use crate::support::{
    bfd::{Pair, V4, V6, eventually},
    bgp::{
        LINK, Node, OURS, Puppet, THEIRS, connect, is_established, listen, med, name, neighbour, net,
        password, them, two, us,
    },
};

/// Configures BGP sessions over IPv4 and IPv6 between two nodes. `change` modifies the default neighbor
/// configuration on both sides.
fn configure(one: &Node, other: &Node, change: impl Fn(BgpNeighbour) -> BgpNeighbour) {
    one.configure(OURS, [("v4", change(them(V4))), ("v6", change(them(V6)))]);
    other.configure(THEIRS, [("v4", change(us(V4))), ("v6", change(us(V6)))]);
}

fn wait_both(one: &Node, other: &Node) {
    for peer in ["v4", "v6"] {
        one.wait_established(peer);
        other.wait_established(peer);
    }
}

#[test]
fn sessions_come_up_over_both_families_and_routes_of_both_are_told_and_withdrawn() {
    let (_pair, one, other) = two("bgp-routes");
    configure(&one, &other, |peer| peer);
    wait_both(&one, &other);
    let session = one.session("v4").unwrap();
    assert_eq!((session.remote_asn, session.host_name.as_deref()), (Some(THEIRS), Some("other")));
    assert_eq!(session.remote_router_id, Some([0, 0, 0xfd, 0xea].into()));
    assert!(session.negotiated.unwrap().capabilities.iter().any(|text| text.contains("ipv4-unicast")));
    let prefixes = ["203.0.113.1/32", "203.0.113.2/32", "2001:db8:5::1/128"];
    for peer in ["v4", "v6"] {
        one.change(peer, &prefixes, Some(&med(50)));
        other.wait(peer, "three prefixes", |session| session.counters.prefixes_received == 3);
        one.wait(peer, "three told", |session| session.counters.prefixes_sent == 3);
    }
    let hop = |peer: &str, prefix: &str| one.told(peer, prefix).unwrap().attributes.next_hop;
    assert_eq!(hop("v4", prefixes[0]), NextHop::V4([192, 0, 2, 1].into()));
    let own = NextHop::V6 { global: LINK[1].0.parse().unwrap(), link_local: None };
    assert_eq!((hop("v4", prefixes[2]), hop("v6", prefixes[2])), (own, own));
    // Both ends of an IPv6 session accept IPv6 next hops for IPv4 routes (RFC 8950).
    assert_eq!(hop("v6", prefixes[0]), own);
    for peer in ["v4", "v6"] {
        one.change(peer, &prefixes[..2], None);
        other.wait(peer, "one prefix", |session| session.counters.prefixes_received == 1);
        one.wait(peer, "one told", |session| session.counters.prefixes_sent == 1);
        assert!(one.told(peer, prefixes[0]).is_none() && one.told(peer, prefixes[2]).is_some());
    }
}

#[test]
fn a_change_is_one_message_and_a_change_to_and_fro_is_none() {
    let (_pair, one, other) = two("bgp-one-update");
    one.configure(OURS, [("v4", them(V4))]);
    other.configure(THEIRS, [("v4", us(V4))]);
    one.wait_established("v4");
    let updates = |count: u64| {
        move |session: &model::bgp::report::BgpSession| session.counters.updates_received == count
    };
    // The two End-of-RIB markers.
    other.wait("v4", "the ends", updates(2));
    one.change("v4", &["203.0.113.1/32"], Some(&med(1)));
    other.wait("v4", "one message", updates(3));
    // A changed attribute results in one announcement, which replaces the previous one.
    one.change("v4", &["203.0.113.1/32"], Some(&med(2)));
    other.wait("v4", "another", updates(4));
    assert_eq!(one.told("v4", "203.0.113.1/32").unwrap().attributes.med, Some(2));
    // Changes that cancel out within a batch, and changes for an unknown peer.
    one.change("v4", &["203.0.113.9/32"], Some(&med(1)));
    one.change("v4", &["203.0.113.9/32"], None);
    one.change("nobody", &["203.0.113.8/32"], Some(&med(1)));
    // Many routes with the same attributes fit in the next message.
    let many: Vec<_> = (0..200).map(|last| format!("198.51.100.{last}/32")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    one.change("v4", &many, Some(&med(3)));
    let session = other.wait("v4", "all of them", |session| session.counters.prefixes_received == 201);
    assert_eq!(session.counters.updates_received, 5);
    one.change("v4", &["203.0.113.1/32"], None);
    let session = other.wait("v4", "withdrawn", |session| session.counters.prefixes_received == 200);
    assert_eq!(session.counters.updates_received, 6);
}

#[test]
fn end_of_rib_waits_until_routes_are_complete() {
    let pair = Pair::new("bgp-eor");
    let one = Node::start(&pair.ours, "one", &LINK);
    one.speaker.hold_end_of_rib(true);
    one.configure(OURS, [("hand", BgpNeighbour { passive: true, ..them(V4) })]);
    let mut puppet = Puppet::connect(&pair.theirs, V4.1, V4.0, THEIRS);
    one.wait_established("hand");
    one.change("hand", &["203.0.113.1/32"], Some(&med(1)));
    one.wait("hand", "told", |session| session.counters.prefixes_sent == 1);
    one.speaker.hold_end_of_rib(false);
    let mut updates = Vec::new();
    while updates.len() < 3 {
        if let Message::Update(update) = puppet.receive().unwrap() {
            updates.push(update);
        }
    }
    assert_eq!(updates[0].announced, [net("203.0.113.1/32")]);
    assert!(updates[1..].iter().all(|update| update.end_of_rib.is_some()), "{updates:?}");
}

#[test]
fn a_right_password_lets_in_and_a_wrong_one_is_named_and_another_one_resets_nothing() {
    let (_pair, one, other) = two("bgp-md5");
    let with = |text: &'static str| move |peer| BgpNeighbour { password: password(text), ..peer };
    configure(&one, &other, with("secret"));
    wait_both(&one, &other);
    let established = || ["v4", "v6"].map(|peer| one.session(peer).unwrap().established);
    let before = established();
    // Both sides change the password; the sessions survive.
    configure(&one, &other, with("another"));
    for peer in ["v4", "v6"] {
        let before = other.session(peer).unwrap().counters.messages_received;
        other.wait(peer, "keepalives go on", |session| session.counters.messages_received >= before + 3);
    }
    assert_eq!(established(), before, "{:#?} {:#?}", one.session("v4"), one.session("v6"));
    // One side has a wrong password.
    other.configure(THEIRS, [("v4", with("wrong")(us(V4))), ("v6", with("wrong")(us(V6)))]);
    for peer in ["v4", "v6"] {
        one.wait(peer, "a hint", |session| !is_established(session) && session.reason.contains("password"));
    }
    one.wait("v4", "counted", |session| session.counters.md5_failures > 0);
    other.configure(THEIRS, [("v4", with("another")(us(V4))), ("v6", with("another")(us(V6)))]);
    wait_both(&one, &other);
    assert!(!one.session("v4").unwrap().reason.contains("password"));
}

#[test]
fn a_neighbour_that_does_not_sign_is_not_heard() {
    let pair = Pair::new("bgp-unsigned");
    let one = Node::start(&pair.ours, "one", &LINK);
    let peer = BgpNeighbour { password: password("secret"), passive: true, ..them(V4) };
    one.configure(OURS, [("hand", peer)]);
    one.wait("hand", "waits", |session| session.state == BgpSessionState::Active);
    assert!(connect(&pair.theirs, V4.1, V4.0, Duration::from_secs(3)).is_none());
    one.wait("hand", "a hint", |session| session.reason.contains("password mismatch?"));
    one.configure(OURS, [("hand", BgpNeighbour { passive: true, ..them(V4) })]);
    assert!(connect(&pair.theirs, V4.1, V4.0, Duration::from_secs(30)).is_some());
}

#[test]
fn ttl_security_lets_only_near_neighbours_in() {
    let (pair, one, other) = two("bgp-gtsm");
    configure(&one, &other, |peer| BgpNeighbour { ttl_security: Some(1), ..peer });
    wait_both(&one, &other);
    // Without TTL security on the other side, our packets arrive with a lower TTL than the neighbor requires.
    other.configure(
        THEIRS,
        [("v4", BgpNeighbour { ttl: 64, ..us(V4) }), ("v6", BgpNeighbour { ttl: 64, ..us(V6) })],
    );
    for peer in ["v4", "v6"] {
        one.wait(peer, "down", |session| !is_established(session));
    }
    // A remote host cannot even connect.
    assert!(connect(&pair.theirs, V4.1, V4.0, Duration::from_secs(3)).is_none());
    configure(&one, &other, |peer| BgpNeighbour { ttl_security: Some(254), ..peer });
    wait_both(&one, &other);
}

#[test]
fn a_passive_neighbour_waits_and_says_so() {
    let (_pair, one, other) = two("bgp-passive");
    let passive = |peer| BgpNeighbour { passive: true, ..peer };
    configure(&one, &other, passive);
    for (node, peer) in [(&one, "v4"), (&one, "v6"), (&other, "v4"), (&other, "v6")] {
        node.wait(peer, "waits", |session| {
            session.state == BgpSessionState::Active && session.reason.contains("passive")
        });
    }
    other.configure(THEIRS, [("v4", us(V4)), ("v6", us(V6))]);
    wait_both(&one, &other);
}

#[test]
fn everybody_of_a_network_may_come_up_to_the_limit_and_is_told_everything() {
    let (pair, one, other) = two("bgp-dynamic");
    pair.theirs.ip(&["addr", "add", "192.0.2.3/24", "dev", "eth0"]);
    let dynamic = BgpNeighbour {
        remote: BgpRemote::Network { network: net("192.0.2.0/24"), limit: 1 },
        password: password("of all"),
        ..them(V4)
    };
    one.configure(OURS, [("any", dynamic.clone())]);
    one.change("any", &["203.0.113.1/32"], Some(&med(1)));
    let signing = BgpNeighbour { password: password("of all"), ..us(V4) };
    other.configure(THEIRS, [("v4", signing.clone())]);
    one.wait_established("any@192.0.2.2");
    other.wait("v4", "told", |session| session.counters.prefixes_received == 1);
    one.change("any", &["203.0.113.2/32"], Some(&med(1)));
    other.wait("v4", "told more", |session| session.counters.prefixes_received == 2);
    // There is no slot for another neighbor.
    let third = BgpNeighbour { source_address: Some("192.0.2.3".parse().unwrap()), ..signing.clone() };
    other.configure(THEIRS, [("v4", signing), ("third", third.clone())]);
    eventually(
        "refused",
        || one.speaker.shown().borrow().strangers > 0,
        || format!("{:?}", one.speaker.shown()),
    );
    assert!(one.session("any@192.0.2.3").is_none());
    // The first one leaves and frees its slot.
    other.configure(THEIRS, [("third", third)]);
    one.wait_established("any@192.0.2.3");
    one.configure(OURS, []);
    other.wait("third", "Cease/3", |session| {
        session.last_received.as_ref().is_some_and(|error| (error.code, error.subcode) == (6, 3))
    });
}

#[test]
fn connections_that_cross_leave_one() {
    let (pair, one, other) = two("bgp-collision");
    for round in 1..=5 {
        configure(&one, &other, |peer| peer);
        wait_both(&one, &other);
        for peer in ["v4", "v6"] {
            let before = one.session(peer).unwrap();
            let messages = before.counters.messages_received;
            one.wait(peer, "goes on", |session| session.counters.messages_received >= messages + 2);
            assert_eq!(one.session(peer).unwrap().established, before.established, "round {round}");
        }
        let connections =
            pair.ours.exec(&["ss", "-Htn", "state", "established", "( sport = 179 or dport = 179 )"]);
        assert_eq!(connections.lines().count(), 2, "round {round}:\n{connections}");
        one.configure(OURS, []);
        other.configure(THEIRS, []);
        eventually("gone", || one.session("v4").is_none() && other.session("v4").is_none(), String::new);
    }
}

#[test]
fn settings_change_in_place_where_they_can_and_say_so_where_not() {
    let (_pair, one, other) = two("bgp-configure");
    configure(&one, &other, |peer| peer);
    wait_both(&one, &other);
    let [before, before_v6] = ["v4", "v6"].map(|peer| one.session(peer).unwrap());
    one.configure(
        OURS,
        [
            ("v4", BgpNeighbour { max_prefixes: 10, keepalive_time: Some(1), connect_time: 2, ..them(V4) }),
            ("v6", BgpNeighbour { hold_time: 30, ..them(V6) }),
        ],
    );
    let reset = one.wait("v6", "another session", |session| {
        session.established == before_v6.established + 1 && is_established(session)
    });
    assert_eq!(reset.last_sent.map(|error| (error.code, error.subcode)), Some((6, 6)));
    let after = one.wait("v4", "keepalives", |session| {
        session.counters.messages_sent >= before.counters.messages_sent + 3
    });
    assert_eq!((after.established, after.since), (before.established, before.since));
    // A removed peer is notified; the other one is not affected.
    one.configure(OURS, [("v4", them(V4))]);
    let told =
        other.wait("v6", "Cease/3", |session| session.last_received.is_some() && !is_established(session));
    assert!(told.last_received.unwrap().subcode == 3 || told.reason.contains("refused"), "{}", told.reason);
    assert_eq!(one.session("v4").unwrap().established, before.established);
}

#[test]
fn a_wrong_as_is_named_by_both() {
    let (_pair, one, other) = two("bgp-as");
    one.configure(OURS, [("v4", BgpNeighbour { peer_asn: PeerAsn::Number(65_009), ..them(V4) })]);
    other.configure(THEIRS, [("v4", us(V4))]);
    let session = one.wait("v4", "a reason", |session| {
        session.reason.contains("65009") || session.reason.contains("65002")
    });
    assert!(!is_established(&session));
    other.wait("v4", "2/2", |session| {
        session.last_received.as_ref().is_some_and(|error| (error.code, error.subcode) == (2, 2))
    });
}

#[test]
fn who_leaves_withdraws_and_says_why_and_who_restarts_says_nothing() {
    let (pair, one, other) = two("bgp-leave");
    let restarting =
        |peer| BgpNeighbour { graceful_restart: Some(GracefulRestart { restart_time: 60 }), ..peer };
    configure(&one, &other, restarting);
    one.change("v4", &["203.0.113.1/32"], Some(&med(1)));
    wait_both(&one, &other);
    other.wait("v4", "told", |session| session.counters.prefixes_received == 1);
    let updates = other.session("v4").unwrap().counters.updates_received;
    one.leave(Leave::Shutdown("the node is retired".to_owned()));
    let session = other.wait("v4", "a farewell", |session| session.last_received.is_some());
    assert!(session.counters.updates_received > updates, "withdrawn before");
    let farewell = session.last_received.unwrap();
    // Hard Reset, because a plain Cease would keep the routes (RFC 8538 §3).
    assert_eq!((farewell.code, farewell.subcode), (6, 9));
    assert!(farewell.message.contains("the node is retired"), "{}", farewell.message);
    // Started again, and then restarted.
    let one = Node::start(&pair.ours, "one", &LINK);
    one.configure(OURS, [("v4", restarting(them(V4)))]);
    one.wait_established("v4");
    let received = other.wait_established("v4").last_received;
    one.leave(Leave::Restart);
    let session = other.wait("v4", "gone", |session| !is_established(session));
    assert_eq!(session.last_received, received, "no NOTIFICATION");
}

#[test]
fn the_path_is_watched_and_its_failure_ends_the_session_at_once() {
    let (pair, one, other) = two("bgp-bfd");
    let profile =
        BfdProfileSpec { receive_interval: 200, transmit_interval: 200, ..BfdProfileSpec::default() };
    let watched = |peer| BgpNeighbour { bfd: Some(profile.clone()), hold_time: 90, ..peer };
    configure(&one, &other, watched);
    wait_both(&one, &other);
    for peer in ["v4", "v6"] {
        one.wait(peer, "BFD up", |session| session.bfd.as_deref() == Some("up"));
    }
    // A connection collision at the start may have created a second session.
    let before = one.wait_established("v4").established;
    // BFD in AdminDown is not a failure (RFC 5882 §3.2).
    other.bfd.admin_down(node_agent::bfd::HANDOVER);
    one.wait("v4", "held", |session| session.bfd.as_deref() == Some("held down by the neighbour"));
    other.bfd.enable();
    one.wait("v4", "BFD up again", |session| session.bfd.as_deref() == Some("up"));
    assert_eq!(one.session("v4").unwrap().established, before);
    // Only BFD packets are dropped.
    pair.theirs
        .nft("table inet lossy { chain out { type filter hook output priority 0; udp dport 3784 drop; }; }");
    for peer in ["v4", "v6"] {
        // The end that detects the failure sends the NOTIFICATION; the other one detects it by BFD at the
        // same time.
        one.wait(peer, "Cease/10", |session| {
            let mut said = session.last_sent.iter().chain(&session.last_received);
            said.any(|error| (error.code, error.subcode) == (6, 10))
        });
        one.wait(peer, "BFD down", |session| {
            session.bfd.as_ref().is_some_and(|text| text.starts_with("down"))
        });
    }
    // BFD does not prevent a new BGP session.
    wait_both(&one, &other);
}

#[test]
fn next_hops_follow_the_addresses_of_the_link() {
    let (_pair, one, other) = two("bgp-next-hop");
    one.set_addresses(2, &LINK[..1]);
    one.configure(OURS, [("v4", them(V4))]);
    other.configure(THEIRS, [("v4", us(V4))]);
    one.change("v4", &["2001:db8:5::1/128"], Some(&med(1)));
    let session = one.wait_established("v4");
    assert!(
        session.reason.contains("no ipv6-unicast routes are announced: eth0 has no IPv6 address"),
        "{}",
        session.reason
    );
    assert!(one.told("v4", "2001:db8:5::1/128").is_none());
    one.set_addresses(2, &LINK);
    other.wait("v4", "told", |session| session.counters.prefixes_received == 1);
    one.set_addresses(2, &LINK[..1]);
    other.wait("v4", "withdrawn", |session| session.counters.prefixes_received == 0);
}

/// Two nodes on a link that has only link-local addresses discover each other and establish a session.
#[test]
fn nodes_find_each_other_at_the_ends_of_an_interface() {
    let (pair, one, other) = two("bgp-unnumbered");
    let mut ends = Vec::new();
    for (namespace, node) in [(&pair.ours, &one), (&pair.theirs, &other)] {
        namespace.ip(&["addr", "flush", "dev", "eth0", "scope", "global"]);
        let index = namespace.index("eth0");
        let shown = namespace.exec(&["ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link"]);
        let mut words = shown.split_whitespace().skip_while(|word| *word != "inet6");
        let end = words.nth(1).expect("an interface has a link-local address").to_owned();
        let end = end.split('/').next().unwrap().to_owned();
        node.set_addresses(index, &[(&end, 64)]);
        ends.push(end);
    }
    let unnumbered = |neighbour: BgpNeighbour| BgpNeighbour {
        remote: BgpRemote::Interface("eth0".to_owned().try_into().unwrap()),
        ttl_security: Some(1),
        ..neighbour
    };
    one.configure(OURS, [("eth", unnumbered(them(V6)))]);
    one.wait("eth", "waits", |session| session.reason.contains("router advertisement"));
    other.configure(THEIRS, [("eth", unnumbered(us(V6)))]);
    let session = one.wait_established("eth");
    assert_eq!(session.address, Some(ends[1].parse().unwrap()));
    other.wait_established("eth");
    // The link-local address is the next hop of both families (RFC 8950).
    one.change("eth", &["203.0.113.1/32", "2001:db8:5::1/128"], Some(&med(1)));
    other.wait("eth", "told", |session| session.counters.prefixes_received == 2);
    let hop = NextHop::V6 { global: ends[0].parse().unwrap(), link_local: None };
    for prefix in ["203.0.113.1/32", "2001:db8:5::1/128"] {
        assert_eq!(one.told("eth", prefix).unwrap().attributes.next_hop, hop);
    }
}

#[test]
fn another_program_on_the_port_is_named_and_our_connections_go_out() {
    let (pair, one, other) = two("bgp-port");
    let taken = listen(&pair.ours, V4.0);
    one.configure(OURS, [("v4", them(V4))]);
    one.wait("v4", "named", |session| session.reason.contains("another program listens there"));
    // The passive neighbor waits for our connection.
    other.configure(THEIRS, [("v4", BgpNeighbour { passive: true, ..us(V4) })]);
    one.wait_established("v4");
    assert_eq!(one.speaker.shown().borrow().faults.len(), 1);
    drop(taken);
    eventually(
        "opened",
        || one.speaker.shown().borrow().faults.is_empty(),
        || format!("{:?}", one.speaker.shown()),
    );
}

#[test]
fn what_cannot_be_connected_to_says_why() {
    let pair = Pair::new("bgp-why");
    let one = Node::start(&pair.ours, "one", &LINK);
    let elsewhere = Some("192.0.2.77".parse().unwrap());
    one.configure(
        OURS,
        [
            ("refused", them(V4)),
            ("unreachable", neighbour(OURS, "198.51.100.1", THEIRS)),
            ("source", BgpNeighbour { source_address: elsewhere, ..them(V6) }.with_remote(V4.1)),
        ],
    );
    one.wait("refused", "refused", |session| session.reason.contains("connection refused"));
    one.wait("unreachable", "no route", |session| session.reason.contains("no route"));
    one.wait("source", "address", |session| {
        session.reason.contains("our address 192.0.2.77 is not on this node")
    });
    assert_eq!(name("refused"), one.session("refused").unwrap().peer);
}

trait WithRemote {
    fn with_remote(self, remote: &str) -> Self;
}

impl WithRemote for BgpNeighbour {
    fn with_remote(mut self, remote: &str) -> Self {
        self.remote = BgpRemote::Address(remote.parse().unwrap());
        self
    }
}
