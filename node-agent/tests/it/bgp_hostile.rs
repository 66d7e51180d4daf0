//! Tests of the BGP speaker with malicious neighbors and with unknown hosts that connect to it. Sessions with
//! other neighbors must not be affected.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    io::{Read as _, Write as _},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bgp::{AsPath, Attributes, Message, Origin, Segment, Update, attributes::NextHop, wire};
use model::bgp::{report::BgpSessionState, settings::BgpNeighbour};
use nix::sys::socket::{setsockopt, sockopt};
use node_agent::bgp::Leave;

use crate::support::{
    Namespace,
    bfd::{Pair, V4, eventually},
    bgp::{LINK, Node, OURS, Puppet, THEIRS, connect, is_established, med, neighbour, net, them, two, us},
};

fn attributes() -> Attributes {
    Attributes {
        origin: Origin::Igp,
        as_path: AsPath(vec![Segment::Sequence(vec![THEIRS])]),
        next_hop: NextHop::V4([192, 0, 2, 2].into()),
        med: None,
        local_pref: None,
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

/// Announces 1.1 million prefixes, or as many as the speaker accepts before it closes the session.
fn flood(theirs: &Namespace) {
    let mut puppet = Puppet::connect(theirs, "192.0.2.11", V4.0, THEIRS);
    let mut drain = puppet.stream.try_clone().unwrap();
    thread::spawn(move || while matches!(drain.read(&mut [0; 4096]), Ok(1..)) {});
    for chunk in 0..1_100_000_u32 / 500 {
        let hosts = chunk * 500..(chunk + 1) * 500;
        let announced = hosts.map(|host| {
            let [_, a, b, c] = host.to_be_bytes();
            net(&format!("{}.{b}.{c}.0/24", 20 + a))
        });
        let update =
            Update { announced: announced.collect(), attributes: Some(attributes()), ..Update::default() };
        if puppet.send(&Message::Update(Box::new(update))).is_err() {
            return;
        }
    }
}

fn wait_until_over(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Opens a connection and sends no OPEN message.
fn stay_silent(theirs: &Namespace, is_over: &AtomicBool) {
    let _stream = connect(theirs, "192.0.2.12", V4.0, Duration::from_secs(20));
    wait_until_over(is_over);
}

/// Sends the 16-byte marker of a BGP message header at one byte per second.
fn send_byte_by_byte(theirs: &Namespace, is_over: &AtomicBool) {
    let mut stream = connect(theirs, "192.0.2.13", V4.0, Duration::from_secs(20)).unwrap();
    while !is_over.load(Ordering::Relaxed) && stream.write_all(&[0xff]).is_ok() {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Opens connections one after another and closes each at once.
fn close_at_once(theirs: &Namespace, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        drop(connect(theirs, "192.0.2.14", V4.0, Duration::from_secs(1)));
        thread::sleep(Duration::from_millis(10));
    }
}

/// Establishes a session and reads none of the messages that follow.
fn read_nothing(theirs: &Namespace, is_over: &AtomicBool) {
    let _puppet = Puppet::connect(theirs, "192.0.2.15", V4.0, THEIRS);
    wait_until_over(is_over);
}

/// Opens connections one after another and sends an invalid message on each.
fn send_garbage(theirs: &Namespace, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if let Some(mut stream) = connect(theirs, "192.0.2.16", V4.0, Duration::from_secs(1)) {
            let _ = stream.write_all(&[0x42; 4096]);
            let _ = stream.read(&mut [0; 4096]);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A session with a good neighbor stays established while other neighbors flood the speaker, stay silent,
/// send byte by byte, close connections at once, read nothing, or send garbage.
#[test]
fn bad_neighbours_do_no_harm_to_a_good_one() {
    let (pair, one, other) = two("bgp-hostile");
    for last in 11..=16 {
        pair.theirs.ip(&["addr", "add", &format!("192.0.2.{last}/24"), "dev", "eth0"]);
    }
    let hand =
        |last: u8| BgpNeighbour { passive: true, ..neighbour(OURS, &format!("192.0.2.{last}"), THEIRS) };
    one.configure(
        OURS,
        [
            ("good", them(V4)),
            ("flood", BgpNeighbour { max_prefixes: 1_000_000, ..hand(11) }),
            ("mute", hand(12)),
            ("slow", hand(13)),
            ("closing", hand(14)),
            ("deaf", hand(15)),
            ("nonsense", hand(16)),
        ],
    );
    other.configure(THEIRS, [("good", us(V4))]);
    let established = [&one, &other].map(|node| node.wait_established("good").established);
    // Far more than the socket buffers hold.
    let many: Vec<_> = (0..60_000_u32)
        .map(|host| format!("10.{}.{}.{}/32", host >> 16, host >> 8 & 255, host & 255))
        .collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for (index, chunk) in many.chunks(10).enumerate() {
        // Different attributes: every ten prefixes need their own message.
        one.change("deaf", chunk, Some(&med(u32::try_from(index).unwrap())));
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let theirs = &pair.theirs;
        scope.spawn(move || flood(theirs));
        for misbehave in [stay_silent, send_byte_by_byte, close_at_once, read_nothing, send_garbage] {
            let is_over = &is_over;
            scope.spawn(move || misbehave(theirs, is_over));
        }
        let checks = scope.spawn(|| {
            one.wait_established("deaf");
            one.wait("flood", "cut off", |session| {
                session.last_sent.as_ref().is_some_and(|error| (error.code, error.subcode) == (6, 1))
            });
            // Routes of the good neighbor change meanwhile.
            let end = Instant::now() + Duration::from_secs(8);
            let mut round = 0;
            while Instant::now() < end {
                round += 1;
                one.change("good", &["203.0.113.1/32"], Some(&med(round)));
                one.wait("good", "told", |_| {
                    one.told("good", "203.0.113.1/32").is_some_and(|told| told.attributes.med == Some(round))
                });
            }
            for peer in ["mute", "slow", "nonsense"] {
                assert!(!is_established(&one.session(peer).unwrap()), "{peer}");
            }
            // The neighbor is rejected for a while after each invalid message.
            one.wait("nonsense", "sent away", |session| session.last_sent.is_some());
        });
        let outcome = checks.join();
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    for (node, before) in [&one, &other].into_iter().zip(established) {
        let good = node.session("good").unwrap();
        assert!(is_established(&good) && good.established == before, "{good:#?}");
    }
}

#[test]
fn who_takes_nothing_does_not_keep_the_speaker_from_leaving() {
    let (pair, one, other) = two("bgp-deaf");
    pair.theirs.ip(&["addr", "add", "192.0.2.15/24", "dev", "eth0"]);
    let deaf = BgpNeighbour { passive: true, ..neighbour(OURS, "192.0.2.15", THEIRS) };
    one.configure(OURS, [("deaf", deaf), ("v4", them(V4))]);
    other.configure(THEIRS, [("v4", us(V4))]);
    let puppet = Puppet::connect(&pair.theirs, "192.0.2.15", V4.0, THEIRS);
    one.wait_established("deaf");
    one.wait_established("v4");
    for index in 0..20_000_u32 {
        let [_, _, high, low] = index.to_be_bytes();
        one.change("deaf", &[&format!("10.9.{high}.{low}/32")], Some(&med(index)));
    }
    one.wait("deaf", "told what the kernel takes", |session| session.counters.prefixes_sent > 0);
    one.leave(Leave::Shutdown("gone".to_owned()));
    other.wait("v4", "a farewell", |session| session.last_received.is_some());
    drop(puppet);
}

#[test]
fn a_neighbour_that_announces_too_much_is_cut_off() {
    let pair = Pair::new("bgp-limit");
    let one = Node::start(&pair.ours, "one", &LINK);
    one.configure(OURS, [("hand", BgpNeighbour { passive: true, max_prefixes: 2, ..them(V4) })]);
    let mut puppet = Puppet::connect(&pair.theirs, V4.1, V4.0, THEIRS);
    let announced = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"].map(net).to_vec();
    let update = Update { announced, attributes: Some(attributes()), ..Update::default() };
    puppet.send(&Message::Update(Box::new(update))).unwrap();
    let last = std::iter::from_fn(|| puppet.receive()).last().unwrap();
    let Message::Notification(notification) = last else { panic!("{last:?}") };
    assert_eq!((notification.code, notification.subcode), (6, 1));
    one.wait("hand", "a reason", |session| !is_established(session) && session.reason.contains("prefix"));
}

#[test]
fn strangers_are_sent_away_and_counted() {
    let pair = Pair::new("bgp-strangers");
    pair.theirs.ip(&["addr", "add", "192.0.2.66/24", "dev", "eth0"]);
    let one = Node::start(&pair.ours, "one", &LINK);
    one.configure(OURS, [("v4", BgpNeighbour { passive: true, ..them(V4) })]);
    one.wait("v4", "waits", |session| session.state == BgpSessionState::Active);
    for count in 1..=3 {
        let mut stream = connect(&pair.theirs, "192.0.2.66", V4.0, Duration::from_secs(20)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!matches!(stream.read(&mut [0; 64]), Ok(1..)), "strangers are told nothing");
        eventually(
            "counted",
            || one.speaker.shown().borrow().strangers == count,
            || format!("{:?}", one.speaker.shown()),
        );
    }
    // Without peers the listener is closed.
    one.configure(OURS, []);
    eventually("closed", || one.session("v4").is_none(), || format!("{:?}", one.speaker.shown()));
    assert!(connect(&pair.theirs, V4.1, V4.0, Duration::from_secs(2)).is_none());
}

/// The listening socket also accepts a neighbor that is several hops away. Each incoming connection gets the
/// hop limit that is configured for its neighbor.
#[test]
fn hop_limits_of_neighbours_made_by_hand_matter() {
    let pair = Pair::new("bgp-hops");
    let one = Node::start(&pair.ours, "one", &LINK);
    let far = BgpNeighbour { passive: true, ..neighbour(OURS, "192.0.2.9", THEIRS) };
    let near = BgpNeighbour { passive: true, ttl_security: Some(1), hold_time: 3, ..them(V4) };
    one.configure(OURS, [("hand", near), ("far", far)]);
    one.wait("hand", "waits", |session| session.state == BgpSessionState::Active);
    pair.theirs.exec(&["sysctl", "-qw", "net.ipv4.ip_default_ttl=255"]);
    let stream = connect(&pair.theirs, V4.1, V4.0, Duration::from_secs(20)).unwrap();
    let puppet = Puppet::greet(stream, THEIRS);
    // While near, the neighbor may send anything, also for longer than the hold time.
    let alive = wire::encode(&Message::Keepalive, &puppet.context).unwrap();
    let speak = || (&puppet.stream).write_all(&alive).is_ok();
    one.wait("hand", "heard", |session| speak() && session.counters.messages_received >= 250);
    assert_eq!(one.session("hand").unwrap().established, 1);
    // From now on it seems farther away, and its packets are dropped.
    setsockopt(&puppet.stream, sockopt::Ipv4Ttl, &254).unwrap();
    one.wait("hand", "lost", |session| !speak() || !is_established(session));
}
