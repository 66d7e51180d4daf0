//! Tests of ARP announcements, checked with the neighbor tables of real kernels and with common ARP tools.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    process::Command,
    time::{Duration, Instant},
};

use node_agent::{
    announce::l2::{
        announcer::{Duty, ProbeAnswer},
        wire::{Arp, Frame, Operation, Packet},
    },
    links::Mac,
};

use crate::support::{
    self,
    segment::{Node, Segment, Tap, eventually, knock, mac_of, neighbor},
};

const VIP: &str = "192.0.2.100";

fn is_about(frame: &Frame, address: &str) -> bool {
    matches!(&frame.packet, Packet::Arp(arp) if arp.sender.to_string() == address)
}

/// If two nodes have an address but only one of them announces it, three broadcast ARP requests get three
/// replies, all from the announcing node.
#[test]
fn f124_one_node_answers_arp_and_the_other_is_silent() {
    let segment = Segment::new("arpone", 3);
    let [first, second, client] = &segment.members[..] else { panic!("three") };
    let (one, two) = (Node::start(first), Node::start(second));
    one.announce(&[VIP]);
    two.want(&[VIP], &["eth0"], Duty::Watch);
    // Each run broadcasts until the first reply, because later requests of the tool are unicast. A single
    // request would be lost on a machine that is busy for longer than the tool waits.
    let said: String =
        (0..3).map(|_| client.exec(&["arping", "-f", "-b", "-w", "20", "-I", "eth0", VIP])).collect();
    let mac = mac_of(first, "eth0").to_string();
    let said = said.to_lowercase();
    assert_eq!(said.matches(&mac).count(), 3, "{said}");
    assert!(!said.contains(&mac_of(second, "eth0").to_string()), "{said}");
    let status = one.status();
    assert!(status.addresses[&VIP.parse().unwrap()].replies >= 3, "{status:?}");
    assert_eq!(two.status().addresses[&VIP.parse().unwrap()].replies, 0);

    one.withdraw(&[VIP]);
    let answered = Command::new("ip")
        .args(["netns", "exec", client.name(), "arping", "-c", "2", "-w", "3", "-I", "eth0", VIP])
        .output()
        .unwrap();
    assert!(!answered.status.success(), "somebody still answers: {answered:?}");
}

/// A takeover sends gratuitous ARP as a request and as a reply (RFC 5227, RFC 5944). Each frame has 60 bytes,
/// all with the expected values.
#[test]
fn f124_gratuitous_arp_has_both_forms_and_every_field_is_right() {
    let segment = Segment::new("arpgrat", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    let tap = Tap::open(client, "eth0");
    announcer.announce(&[VIP]);
    let mac = mac_of(node, "eth0").0;
    for (operation, target_mac) in [(1, [0; 6]), (2, mac)] {
        let (_, bytes) = tap.next("gratuitous ARP", |frame| is_about(frame, VIP));
        let mut expected = vec![0xff; 6];
        expected.extend(mac);
        expected.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, operation]);
        expected.extend(mac);
        expected.extend([192, 0, 2, 100]);
        expected.extend(target_mac);
        expected.extend([192, 0, 2, 100]);
        expected.resize(60, 0);
        assert_eq!(bytes, expected, "form {operation}");
    }
    eventually("five rounds of two frames", || {
        announcer.status().addresses[&VIP.parse().unwrap()].gratuitous == 10
    });
}

/// After a takeover, the kernel of a client that already has a neighbor entry updates the entry without
/// sending a request.
#[test]
fn f124_a_takeover_updates_the_neighbour_entry_of_a_client() {
    let segment = Segment::new("arptake", 3);
    let [first, second, client] = &segment.members[..] else { panic!("three") };
    let (one, two) = (Node::start(first), Node::start(second));
    let (old, new) = (mac_of(first, "eth0").to_string(), mac_of(second, "eth0").to_string());
    one.announce(&[VIP]);
    knock(client, VIP);
    eventually("the first node's entry", || neighbor(client, VIP).is_some_and(|(mac, _)| mac == old));
    one.withdraw(&[VIP]);
    two.announce(&[VIP]);
    eventually("the second node's entry", || neighbor(client, VIP).is_some_and(|(mac, _)| mac == new));
}

/// A kernel that checks a stale neighbor entry by a unicast ARP request gets a reply.
#[test]
fn f124_a_unicast_check_of_a_known_neighbour_is_answered() {
    let segment = Segment::new("arpnud", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    announcer.announce(&[VIP]);
    knock(client, VIP);
    let mac = mac_of(node, "eth0").to_string();
    eventually("an entry", || neighbor(client, VIP).is_some());
    client.exec(&["ip", "neigh", "replace", VIP, "lladdr", &mac, "dev", "eth0", "nud", "stale"]);
    client.exec(&["ip", "neigh", "change", VIP, "dev", "eth0", "nud", "probe"]);
    eventually("a reachable neighbour", || {
        neighbor(client, VIP).is_some_and(|(found, state)| found == mac && state == "REACHABLE")
    });
}

/// An address is announced with the current MAC address each time that its interface appears, regains its
/// link, changes its MAC address, or is created again.
#[test]
fn f124_an_interface_that_appears_flaps_or_changes_is_announced_on_again() {
    let segment = Segment::new("arpflap", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    announcer.want(&[VIP], &["late0"], Duty::Announce);
    let tap = Tap::open(client, "eth0");
    segment.plug(node, "late0", 7);
    let from = |mac: Mac| {
        tap.next("gratuitous ARP", |frame| is_about(frame, VIP) && frame.source == mac);
        client.exec(&["ip", "neigh", "flush", "to", VIP]);
        knock(client, VIP);
        eventually("an entry", || neighbor(client, VIP).is_some_and(|(found, _)| found == mac.to_string()));
    };
    from(mac_of(node, "late0"));
    for _ in 0..3 {
        segment.hub.ip(&["link", "set", "port7", "down"]);
        eventually("no carrier", || !announcer.status().interfaces.contains_key("late0"));
        while tap.look(|_| true).is_some() {}
        segment.hub.ip(&["link", "set", "port7", "up"]);
        from(mac_of(node, "late0"));
    }
    node.ip(&["link", "set", "late0", "down"]);
    eventually("set down", || !announcer.status().interfaces.contains_key("late0"));
    node.ip(&["link", "set", "late0", "address", "02:00:00:00:77:77", "up"]);
    from(Mac([2, 0, 0, 0, 0x77, 0x77]));
    node.ip(&["link", "set", "late0", "address", "02:00:00:00:77:78"]);
    from(Mac([2, 0, 0, 0, 0x77, 0x78]));
    node.ip(&["link", "del", "late0"]);
    eventually("gone", || !announcer.status().interfaces.contains_key("late0"));
    segment.plug(node, "late0", 8);
    from(mac_of(node, "late0"));
}

/// An announced address is announced again at regular intervals.
#[test]
fn f124_an_announced_address_is_announced_again_and_again() {
    let segment = Segment::new("arprefresh", 2);
    let announcer = Node::with_refresh(&segment.members[0], Duration::from_millis(200));
    announcer.announce(&[VIP]);
    eventually("more than the burst", || announcer.status().addresses[&VIP.parse().unwrap()].gratuitous > 16);
}

/// A probe for an address detects a node that announces it and a kernel that has it, and gets no reply for an
/// unused address.
#[test]
fn f124_a_probe_tells_whether_somebody_has_the_address() {
    let segment = Segment::new("arpprobe", 3);
    let [first, second, third] = &segment.members[..] else { panic!("three") };
    let (one, two) = (Node::start(first), Node::start(second));
    one.announce(&[VIP]);
    let probe = |address: &str| {
        let interfaces = [String::from("eth0").try_into().unwrap()].into();
        two.announcer().probe(address.parse().unwrap(), interfaces).blocking_recv().unwrap()
    };
    let taken = |mac: Mac| ProbeAnswer::Taken { mac, interface: "eth0".to_owned() };
    eventually("listening", || probe(VIP) == taken(mac_of(first, "eth0")));
    assert_eq!(probe("192.0.2.3"), taken(mac_of(third, "eth0")), "the kernel's own address");
    assert_eq!(probe("192.0.2.200"), ProbeAnswer::Silent);
    one.withdraw(&[VIP]);
    assert_eq!(probe(VIP), ProbeAnswer::Silent);
    assert!(neighbor(first, VIP).is_none(), "a probe teaches nobody anything");
}

/// Another announcer of the address is reported with its MAC address and interface, by the owner and by an
/// observing node. The node's own frames, received on a second interface of the same Ethernet, are not
/// reported.
#[test]
fn f124_somebody_else_who_announces_is_heard() {
    let segment = Segment::new("arpconf", 3);
    let [first, second, client] = &segment.members[..] else { panic!("three") };
    segment.plug(first, "eth1", 7);
    let (mut one, mut two) = (Node::start(first), Node::start(second));
    one.want(&[VIP], &["eth0", "eth1"], Duty::Announce);
    two.want(&[VIP], &["eth0"], Duty::Watch);
    let heard = two.conflict();
    let own = [mac_of(first, "eth0"), mac_of(first, "eth1")];
    assert!(own.contains(&heard.mac) && heard.address.to_string() == VIP, "{heard:?}");
    assert!(!one.has_conflict(), "its own voice");
    let tap = Tap::open(client, "eth0");
    let mut claim = question(tap.mac(), VIP);
    if let Packet::Arp(arp) = &mut claim.packet {
        arp.sender = arp.target;
    }
    tap.send(&claim.render());
    let heard = one.conflict();
    assert_eq!((heard.mac, heard.interface.starts_with("eth")), (mac_of(client, "eth0"), true));
}

/// Ten thousand ARP requests for other addresses do not wake the announcer, because the kernel's BPF
/// interpreter filters them out.
#[test]
fn f124_questions_about_other_addresses_do_not_wake_the_announcer() {
    let segment = Segment::new("arpquiet", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    let tap = Tap::open(client, "eth0");
    announcer.announce(&[VIP]);
    tap.send(&question(tap.mac(), VIP).render());
    tap.next("an answer", |frame| is_about(frame, VIP) && frame.destination == tap.mac());
    let before = announcer.status();
    for number in 0..10_000_u32 {
        let other = std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string();
        tap.flood(&question(tap.mac(), &other).render());
    }
    let mut tagged = question(tap.mac(), VIP).render();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
    tap.send(&tagged);
    tap.send(&question(tap.mac(), VIP).render());
    tap.next("an answer", |frame| is_about(frame, VIP) && frame.destination == tap.mac());
    let after = announcer.status();
    let received =
        |status: &node_agent::announce::l2::announcer::Status| status.interfaces["eth0"].counters.received;
    assert_eq!(received(&after) - received(&before), 1, "{after:?}");
    assert!(after.wakeups - before.wakeups <= 2, "{before:?} {after:?}");
}

/// Malformed, truncated, spoofed and excessive frames for an announced address do not stop replies to other
/// machines.
#[test]
fn f124_a_flood_of_bad_frames_changes_nothing() {
    let segment = Segment::new("arpflood", 3);
    let [node, client, attacker] = &segment.members[..] else { panic!("three") };
    let announcer = Node::start(node);
    announcer.announce(&[VIP]);
    let (tap, other) = (Tap::open(attacker, "eth0"), Tap::open(client, "eth0"));
    let good = question(tap.mac(), VIP).render();
    let mut damaged = Vec::new();
    for at in 12..42 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            damaged.push(bytes);
        }
    }
    for length in 14..good.len() {
        damaged.push(good[..length].to_vec());
    }
    for frame in &damaged {
        tap.flood(frame);
    }
    for number in 0..20_000_u32 {
        let [_, b, c, d] = number.to_be_bytes();
        let mut spoofed = question(Mac([2, 9, 9, b, c, d]), VIP);
        spoofed.source = if number % 2 == 0 { tap.mac() } else { spoofed.source };
        tap.flood(&spoofed.render());
        tap.flood(&good);
    }
    let begin = Instant::now();
    let mut is_answered = false;
    while !is_answered && begin.elapsed() < support::segment::PATIENCE {
        other.send(&question(other.mac(), VIP).render());
        std::thread::sleep(Duration::from_millis(50));
        is_answered = other.look(|frame| is_about(frame, VIP) && frame.destination == other.mac()).is_some();
    }
    assert!(is_answered, "{:?}", announcer.status());
    let counters = &announcer.status().interfaces["eth0"].counters;
    assert!(counters.dropped.len() >= 2, "{counters:?}");
    assert!(counters.replies < counters.received, "{counters:?}");
}

fn question(mac: Mac, target: &str) -> Frame {
    let packet = Packet::Arp(Arp {
        operation: Operation::Request,
        sender_mac: mac,
        sender: "192.0.2.66".parse().unwrap(),
        target_mac: Mac::ZERO,
        target: target.parse().unwrap(),
    });
    Frame { destination: Mac::BROADCAST, source: mac, packet }
}
