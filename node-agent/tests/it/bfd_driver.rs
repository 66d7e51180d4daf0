//! Tests of BFD between two Tidegate nodes: authentication, hop limits, sent packets, local addresses that
//! appear later, and unknown senders.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use bfd::{
    Algorithm, Diagnostic, State,
    wire::{self, Packet},
};
use nix::sys::socket::{setsockopt, sockopt};
use node_agent::bfd::{
    Bfd, Fault, HANDOVER, PEERS_MAX, PeerKey, RESTART, Reach, RemoteState, SessionConfig, TooManyPeers,
};

use crate::support::{
    Namespace,
    bfd::{Pair, V4, V6, address, eventually, every, is_up, key, ours, set, state, theirs, wait, wait_up},
};

const BOTH: [(&str, &str); 2] = [V4, V6];

/// Starts sessions between two nodes over IPv4 and IPv6, with `config` on both sides, and waits until they
/// are up.
fn come_up(pair: &Pair, config: &SessionConfig) -> (Bfd, Bfd) {
    let (one, other) = (pair.start(), pair.theirs.run(|| Bfd::start().unwrap()));
    set(&one, &BOTH.map(|addresses| (ours(addresses), config.clone())));
    set(&other, &BOTH.map(|addresses| (theirs(addresses), config.clone())));
    for addresses in BOTH {
        wait_up(&one, ours(addresses));
        wait_up(&other, theirs(addresses));
    }
    (one, other)
}

/// F132: nodes that detect each other's failure authenticate their packets.
#[test]
fn both_algorithms_authenticate_and_a_wrong_key_stays_down_and_is_counted() {
    let pair = Pair::new("bfd-auth");
    for algorithm in [Algorithm::KeyedSha1, Algorithm::MeticulousKeyedSha1] {
        let with = |secret: &str| SessionConfig { auth: Some(key(algorithm, secret)), ..every(50, 20) };
        let (one, other) = come_up(&pair, &with("a secret"));
        let before = state(&one, ours(V4)).counters.received;
        wait(&one, ours(V4), "fifty more packets", |state| state.counters.received > before + 50);
        assert!(is_up(&one, ours(V4)) && is_up(&other, theirs(V6)));
        // New sessions with another secret on one side stay down, and every packet is counted. Sessions that are up
        // would use both secrets for a while.
        one.stop();
        other.stop();
        let (one, other) = (pair.start(), pair.theirs.run(|| Bfd::start().unwrap()));
        set(&one, &BOTH.map(|addresses| (ours(addresses), with("a secret"))));
        set(&other, &BOTH.map(|addresses| (theirs(addresses), with("another"))));
        for addresses in BOTH {
            let refused = wait(&one, ours(addresses), "refused for long", |state| {
                state.counters.authentication_digest >= 5
            });
            assert_ne!(refused.state, State::Up);
            assert_ne!(state(&other, theirs(addresses)).state, State::Up);
        }
        // A side without a key increments another counter.
        set(&other, &BOTH.map(|addresses| (theirs(addresses), every(50, 20))));
        for addresses in BOTH {
            let presence = |state: &node_agent::bfd::PeerState| state.counters.authentication_presence >= 2;
            wait(&one, ours(addresses), "not authenticated", presence);
            wait(&other, theirs(addresses), "authenticated", presence);
        }
        // With the right secret both come up again.
        set(&other, &BOTH.map(|addresses| (theirs(addresses), with("a secret"))));
        for addresses in BOTH {
            wait_up(&one, ours(addresses));
        }
    }
}

#[test]
fn handing_over_and_restarting_are_told_apart() {
    let pair = Pair::new("bfd-words");
    let (one, other) = come_up(&pair, &every(100, 10));
    for diagnostic in [HANDOVER, RESTART] {
        one.admin_down(diagnostic);
        for addresses in BOTH {
            let expected = RemoteState { heard: true, state: State::AdminDown, diagnostic };
            wait(&other, theirs(addresses), "told", |state| state.remote == Some(expected));
        }
    }
    one.admin_down(HANDOVER);
    one.stop();
    for addresses in BOTH {
        let expected = RemoteState { heard: false, state: State::AdminDown, diagnostic: HANDOVER };
        wait(&other, theirs(addresses), "remembered", |state| state.remote == Some(expected));
    }
    // A new process on the same addresses comes up at once with the old peer.
    let one = pair.start();
    set(&one, &BOTH.map(|addresses| (ours(addresses), every(100, 10))));
    for addresses in BOTH {
        wait_up(&one, ours(addresses));
        wait_up(&other, theirs(addresses));
    }
}

#[test]
fn the_bell_rings_for_news_and_untouched_sessions_go_on() {
    let pair = Pair::new("bfd-bell");
    let (one, other) = come_up(&pair, &every(100, 10));
    let since = state(&one, ours(V4)).since;
    let mut news = one.news();
    news.mark_unchanged();
    // Only the IPv6 session changes: it renegotiates, and the other is not affected.
    set(&one, &[(ours(V4), every(100, 10)), (ours(V6), every(300, 10))]);
    wait(&one, ours(V6), "negotiated", |state| state.transmit_interval == Duration::from_millis(300));
    assert!(!news.has_changed().unwrap(), "intervals are no news");
    other.stop();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(news.changed()).unwrap();
    assert_eq!(state(&one, ours(V4)).counters.send_failures, 0);
    wait(&one, ours(V4), "down", |state| state.state == State::Down && state.since > since);
}

/// Sends a BFD packet from the first to the second of `addresses`, with this hop limit, as a peer would.
fn send(from: &Namespace, addresses: (&str, &str), packet: &Packet, hop_limit: u8) {
    let (local, to): (IpAddr, IpAddr) = (address(addresses.1), address(addresses.0));
    let bytes = wire::render(packet, None);
    from.run(|| {
        let socket = UdpSocket::bind(SocketAddr::new(local, 0)).unwrap();
        let hop_limit = i32::from(hop_limit);
        match local {
            IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4Ttl, &hop_limit).unwrap(),
            IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6Ttl, &hop_limit).unwrap(),
        }
        socket.send_to(&bytes, SocketAddr::new(to, 3784)).unwrap();
    });
}

/// Builds the first BFD packet that a peer sends after it has lost its state.
fn anew() -> Packet {
    Packet {
        diagnostic: Diagnostic::None,
        state: State::Down,
        poll: false,
        is_final: false,
        control_plane_independent: false,
        demand: false,
        multiplier: std::num::NonZeroU8::new(3).unwrap(),
        my_discriminator: std::num::NonZeroU32::new(99).unwrap(),
        your_discriminator: None,
        desired_min_tx_micros: 1_000_000,
        required_min_rx_micros: 1_000_000,
        required_min_echo_rx_micros: 0,
    }
}

#[test]
fn a_packet_that_crossed_a_router_is_ignored() {
    let pair = Pair::new("bfd-hops");
    let (one, _other) = come_up(&pair, &every(100, 10));
    for addresses in BOTH {
        let since = state(&one, ours(addresses)).since;
        send(&pair.theirs, addresses, &anew(), 254);
        let counted = wait(&one, ours(addresses), "counted", |state| state.counters.hop_limit == 1);
        assert_eq!((counted.state, counted.since), (State::Up, since));
        // The same packet with hop limit 255 brings the session down, so the hop limit made the difference.
        send(&pair.theirs, addresses, &anew(), 255);
        wait(&one, ours(addresses), "another state", |state| state.since > since);
    }
}

#[test]
fn strangers_and_garbage_are_dropped_and_counted() {
    let pair = Pair::new("bfd-strange");
    let (one, _other) = come_up(&pair, &every(100, 10));
    pair.theirs.ip(&["addr", "add", "192.0.2.77/24", "dev", "eth0"]);
    send(&pair.theirs, (V4.0, "192.0.2.77"), &anew(), 255);
    eventually("a stranger", || one.strangers() == 1, || one.strangers().to_string());
    // An unknown discriminator is rejected from any sender.
    let your_discriminator = std::num::NonZeroU32::new(12345);
    send(&pair.theirs, V4, &Packet { your_discriminator, ..anew() }, 255);
    eventually("two", || one.strangers() == 2, || one.strangers().to_string());
    pair.theirs.run(|| {
        let socket = UdpSocket::bind((V4.1, 0)).unwrap();
        socket.set_ttl(255).unwrap();
        socket.send_to(b"garbage", (V4.0, 3784)).unwrap();
        socket.send_to(&[0xff; 400], (V4.0, 3784)).unwrap();
    });
    wait(&one, ours(V4), "garbage", |state| state.counters.malformed == 2);
    assert!(is_up(&one, ours(V4)));
}

/// Packets that Tidegate sends arrive with hop limit 255 and a source port in the allowed range (RFC 5881 §4,
/// §5).
#[test]
fn packets_have_hop_limit_255_and_source_ports_of_the_range() {
    let pair = Pair::new("bfd-wire");
    let (_one, _other) = come_up(&pair, &every(50, 20));
    let dump = |filter: &str| {
        let command = ["timeout", "20", "tcpdump", "-i", "eth0", "-c", "10", "-nvt", filter];
        pair.theirs.exec(&command)
    };
    let v4 = dump("src host 192.0.2.1 and udp dst port 3784");
    let v6 = dump("src host 2001:db8::1 and udp dst port 3784");
    let heads: Vec<_> = v4.lines().filter(|line| line.starts_with("IP ")).collect();
    assert!(heads.len() == 10 && heads.iter().all(|line| line.contains("tos 0xc0, ttl 255,")), "{v4}");
    let lines: Vec<_> = v6.lines().filter(|line| line.starts_with("IP6 ")).collect();
    let good = |line: &&str| line.contains("class 0xc0") && line.contains("hlim 255,");
    assert!(lines.len() == 10 && lines.iter().all(good), "{v6}");
    for (text, source) in [(&v4, "192.0.2.1."), (&v6, "2001:db8::1.")] {
        let port = |rest: &str| rest.split(' ').next().unwrap().parse::<u16>().unwrap();
        let ports: BTreeSet<_> = text.split(source).skip(1).map(port).collect();
        assert!(ports.len() == 1 && ports.iter().all(|port| *port >= 49152), "{ports:?} in {text}");
        assert!(text.contains("State: Up") || text.contains("State Up"), "{text}");
    }
}

#[test]
fn a_session_waits_for_its_local_address_and_impossible_ones_fail_alone() {
    let pair = Pair::new("bfd-late");
    let (one, other) = (pair.start(), pair.theirs.run(|| Bfd::start().unwrap()));
    let late = ("192.0.2.10", "192.0.2.2");
    let mixed = PeerKey { local: address(V4.0), peer: address(V6.1) };
    let scoped = PeerKey { local: address("fe80::1"), peer: address("fe80::2") };
    let config = every(100, 3);
    set(&one, &[ours(late), ours(V4), mixed, scoped].map(|key| (key, config.clone())));
    set(&other, &[theirs(late), theirs(V4)].map(|key| (key, config.clone())));
    wait_up(&one, ours(V4));
    let missing = Fault::Socket(std::io::ErrorKind::AddrNotAvailable);
    wait(&one, ours(late), "no address yet", |state| state.fault == Some(missing));
    assert_eq!(state(&one, mixed).fault, Some(Fault::Families));
    assert_eq!(state(&one, scoped).fault, Some(Fault::Address));
    pair.ours.ip(&["addr", "add", "192.0.2.10/24", "dev", "eth0"]);
    let up = wait_up(&one, ours(late));
    assert_eq!(up.fault, None);
}

#[test]
fn as_many_peers_as_there_may_be_come_up_and_one_more_is_refused() {
    let pair = Pair::new("bfd-many");
    let (one, other) = (pair.start(), pair.theirs.run(|| Bfd::start().unwrap()));
    let count = u8::try_from(PEERS_MAX - 1).unwrap();
    let keys: Vec<_> = (0..=count)
        .map(|number| {
            (format!("192.0.2.{}", 1 + number / 128), format!("10.9.{}.{}", number / 128, 1 + number % 128))
        })
        .collect();
    pair.ours.ip(&["route", "add", "10.9.0.0/16", "dev", "eth0"]);
    pair.ours.ip(&["addr", "add", "192.0.2.2/32", "dev", "lo"]);
    pair.theirs.ip(&["addr", "del", "192.0.2.2/24", "dev", "eth0"]);
    pair.theirs.ip(&["route", "add", "192.0.2.0/24", "dev", "eth0"]);
    for (_, peer) in &keys {
        pair.theirs.ip(&["addr", "add", &format!("{peer}/32"), "dev", "lo"]);
    }
    let config = every(1000, 3);
    let map = |swap: bool| -> BTreeMap<_, _> {
        let key = |(local, peer): &(String, String)| {
            if swap { theirs((local, peer)) } else { ours((local, peer)) }
        };
        keys.iter().map(|pair| (key(pair), config.clone())).collect()
    };
    one.set_peers(map(false)).unwrap();
    other.set_peers(map(true)).unwrap();
    let up = |bfd: &Bfd| bfd.states().values().filter(|state| state.state == State::Up).count();
    eventually("all up", || up(&one) == PEERS_MAX && up(&other) == PEERS_MAX, || format!("{} up", up(&one)));
    let more = map(false).into_iter().chain([(ours(V6), config.clone())]).collect();
    assert_eq!(one.set_peers(more), Err(TooManyPeers { wanted: PEERS_MAX + 1 }));
    assert_eq!(one.states().len(), PEERS_MAX, "nothing has changed");
}

/// Multihop sessions accept packets whose hop limit is at least the configured minimum, and no others (RFC
/// 5883 §6).
#[test]
fn several_hops_take_packets_from_as_far_as_allowed() {
    let pair = Pair::new("bfd-far");
    let far = Namespace::new("bfd-far-c");
    pair.theirs.ip(&["link", "add", "eth1", "type", "veth", "peer", "eth0", "netns", far.name()]);
    pair.theirs.ip(&["addr", "add", "198.51.100.1/24", "dev", "eth1"]);
    pair.theirs.ip(&["link", "set", "eth1", "up"]);
    far.ip(&["addr", "add", "198.51.100.2/24", "dev", "eth0"]);
    far.ip(&["link", "set", "eth0", "up"]);
    pair.theirs.exec(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    pair.ours.ip(&["route", "add", "default", "via", V4.1]);
    far.ip(&["route", "add", "default", "via", "198.51.100.1"]);
    let (one, other) = (pair.start(), far.run(|| Bfd::start().unwrap()));
    let addresses = (V4.0, "198.51.100.2");
    let with = |reach| SessionConfig { reach, ..every(100, 3) };
    set(&other, &[(theirs(addresses), with(Reach::Multihop { hop_limit_min: 254 }))]);
    set(&one, &[(ours(addresses), with(Reach::Multihop { hop_limit_min: 254 }))]);
    wait_up(&one, ours(addresses));
    set(&one, &[(ours(addresses), with(Reach::Multihop { hop_limit_min: 255 }))]);
    wait(&one, ours(addresses), "too far", |state| state.counters.hop_limit >= 3);
    assert_ne!(state(&one, ours(addresses)).state, State::Up);
}

/// The BFD thread is woken only by packets and deadlines, so that a session with an interval of one second
/// causes few wake-ups.
#[test]
fn an_idle_thread_sleeps() {
    let pair = Pair::new("bfd-idle");
    let one = pair.start();
    let thread = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut tasks = tasks.map(|task| task.path());
        // Other tests of this process have threads of the same name: selects the one in this namespace.
        let here = std::fs::metadata(format!("/run/netns/{}", pair.ours.name())).unwrap();
        tasks.find(|task| {
            use std::os::unix::fs::MetadataExt as _;
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            let namespace = std::fs::metadata(task.join("ns/net"));
            name.trim() == "bfd" && namespace.is_ok_and(|namespace| namespace.ino() == here.ino())
        })
    };
    eventually("the thread", || thread().is_some(), String::new);
    let task = thread().unwrap();
    let sleeps = || {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    set(&one, &[(ours(V4), every(1000, 3))]);
    wait(&one, ours(V4), "the first packet", |state| state.counters.sent >= 1);
    let (sent, before) = (state(&one, ours(V4)).counters.sent, sleeps());
    thread::sleep(Duration::from_secs(2));
    let (sent, slept) = (state(&one, ours(V4)).counters.sent - sent, sleeps() - before);
    assert!(slept <= 2 * sent + 4, "{slept} sleeps for {sent} packets");
}
