//! Tests of announcements by Neighbor Discovery (NDP), checked with the neighbor tables of real kernels and
//! with common tools.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{net::Ipv6Addr, process::Command};

use node_agent::{
    announce::l2::{
        announcer::{Duty, ProbeAnswer},
        wire::{Advertisement, Frame, Packet, Solicitation, group_mac, solicited_node_group},
    },
    links::Mac,
};

use crate::support::segment::{Node, Segment, Tap, eventually, knock, mac_of, neighbor};

const VIP: &str = "2001:db8::100";
const CLIENT: &str = "2001:db8::2";

fn told(frame: &Frame) -> Option<&Advertisement> {
    let Packet::Advertisement(told) = &frame.packet else { return None };
    (told.target.to_string() == VIP).then_some(told)
}

fn question(mac: Mac, source: &str, target: &str, source_mac: Option<Mac>) -> Frame {
    let target: Ipv6Addr = target.parse().unwrap();
    let destination = solicited_node_group(target);
    let source_address = source.parse().unwrap();
    let packet =
        Packet::Solicitation(Solicitation { source: source_address, destination, target, source_mac });
    Frame { destination: group_mac(destination), source: mac, packet }
}

/// All addresses of an IPv4 and an IPv6 pool resolve to the MAC address of the node, and none resolves after
/// they are withdrawn.
#[test]
fn f123_addresses_of_a_pool_of_both_families_are_announced() {
    let segment = Segment::new("l2pool", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    let pool: Vec<String> =
        (100..120).flat_map(|n| [format!("192.0.2.{n}"), format!("2001:db8::1:{n}")]).collect();
    let pool: Vec<&str> = pool.iter().map(String::as_str).collect();
    announcer.announce(&pool);
    let mac = mac_of(node, "eth0").to_string();
    let is_learnt = |address: &str| neighbor(client, address).is_some_and(|(found, _)| found == mac);
    // All namespaces share the limits of the neighbor tables: while other tests fill the tables, the kernel rejects
    // entries or removes failed ones, and a further datagram repeats the resolution.
    for address in &pool {
        eventually("an entry", || {
            knock(client, address);
            is_learnt(address)
        });
    }
    announcer.withdraw(&pool);
    client.exec(&["ip", "neigh", "flush", "all"]);
    for address in &pool {
        knock(client, address);
    }
    for address in &pool {
        eventually("a failed resolution", || {
            let entry = client.exec(&["ip", "neigh", "show", "to", address]);
            if entry.trim().is_empty() {
                knock(client, address);
            }
            entry.contains("FAILED")
        });
    }
}

/// A takeover sends an unsolicited Neighbor Advertisement in which every byte has the expected value and the
/// checksum is correct.
#[test]
fn f125_an_unsolicited_advertisement_has_every_field_right() {
    let segment = Segment::new("ndpgrat", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    let tap = Tap::open(client, "eth0");
    announcer.announce(&[VIP]);
    let (_, bytes) = tap.next("an advertisement", |frame| told(frame).is_some());
    let mac = mac_of(node, "eth0").0;
    let vip: Ipv6Addr = VIP.parse().unwrap();
    let mut expected = vec![0x33, 0x33, 0, 0, 0, 1];
    expected.extend(mac);
    expected.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
    expected.extend(vip.octets());
    expected.extend("ff02::1".parse::<Ipv6Addr>().unwrap().octets());
    expected.extend([136, 0, bytes[56], bytes[57], 0x20, 0, 0, 0]);
    expected.extend(vip.octets());
    expected.extend([2, 1]);
    expected.extend(mac);
    assert_eq!(bytes, expected);
}

/// If one node announces an address and another one only observes it, a command-line tool and a client's
/// kernel resolve the address to the MAC address of the announcing node.
#[test]
fn f125_one_node_answers_solicitations_and_the_other_is_silent() {
    let segment = Segment::new("ndpone", 3);
    let [first, second, client] = &segment.members[..] else { panic!("three") };
    let (one, two) = (Node::start(first), Node::start(second));
    one.announce(&[VIP]);
    two.want(&[VIP], &["eth0"], Duty::Watch);
    let mac = mac_of(first, "eth0").to_string();
    // The tool fails without a reply within a second, as on a busy machine, and while its network is unreachable.
    let mut said = String::new();
    eventually("a reply to the tool", || {
        let ask = ["netns", "exec", client.name(), "ndisc6", "-m", "-r", "1", "-w", "1000", VIP, "eth0"];
        let output = Command::new("ip").args(ask).output().unwrap();
        said = String::from_utf8_lossy(&output.stdout).to_lowercase();
        output.status.success()
    });
    assert_eq!(said.matches("link-layer address").count(), 1, "{said}");
    assert!(said.contains(&mac), "{said}");
    knock(client, VIP);
    eventually("an entry", || neighbor(client, VIP).is_some_and(|(found, _)| found == mac));
    let entry = client.exec(&["ip", "neigh", "show", "to", VIP]);
    assert!(!entry.contains("router"), "{entry}");
    assert_eq!(two.status().addresses[&VIP.parse().unwrap()].replies, 0);
}

#[test]
fn f125_a_takeover_updates_the_neighbour_entry_of_a_client() {
    let segment = Segment::new("ndptake", 3);
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

/// A real kernel that checks the reachability of a known neighbor gets a reply, also to a solicitation
/// without a source link-layer address, which RFC 4861 §4.3 allows and some announcers drop.
#[test]
fn f125_unicast_checks_of_a_known_neighbour_are_answered() {
    let segment = Segment::new("ndpnud", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    announcer.announce(&[VIP]);
    knock(client, VIP);
    let mac = mac_of(node, "eth0");
    eventually("an entry", || neighbor(client, VIP).is_some());
    // A check that no packet waits for has the link-local source address, without which the kernel sends none.
    eventually("a usable link-local address", || {
        let addresses = client.exec(&["ip", "-6", "addr", "show", "dev", "eth0", "scope", "link"]);
        addresses.contains("fe80::") && !addresses.contains("tentative")
    });
    client.exec(&["ip", "neigh", "replace", VIP, "lladdr", &mac.to_string(), "dev", "eth0", "nud", "stale"]);
    client.exec(&["ip", "neigh", "change", VIP, "dev", "eth0", "nud", "probe"]);
    eventually("a reachable neighbour", || {
        neighbor(client, VIP).is_some_and(|(found, state)| found == mac.to_string() && state == "REACHABLE")
    });
    let tap = Tap::open(client, "eth0");
    let mut check = question(tap.mac(), CLIENT, VIP, None);
    check.destination = mac;
    if let Packet::Solicitation(solicitation) = &mut check.packet {
        solicitation.destination = VIP.parse().unwrap();
    }
    tap.send(&check.render());
    let (frame, _) = tap.next("an answer", |frame| told(frame).is_some_and(|told| told.is_solicited));
    assert_eq!(frame.destination, tap.mac());
    let told = told(&frame).unwrap();
    assert_eq!((told.destination.to_string().as_str(), told.target_mac), (CLIENT, Some(mac)));
}

/// A kernel that configures an announced address detects the conflict by duplicate address detection.
#[test]
fn f125_duplicate_address_detection_of_another_machine_finds_the_address_taken() {
    let segment = Segment::new("ndpdad", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    announcer.announce(&[VIP]);
    client.ip(&["addr", "add", &format!("{VIP}/64"), "dev", "eth0"]);
    eventually("a duplicate", || {
        client.exec(&["ip", "-6", "addr", "show", "dev", "eth0"]).contains("dadfailed")
    });
}

/// The announcer joins the solicited-node multicast group of an address, so that switches (MLD snooping) forward
/// solicitations to it. Addresses with the same suffix share one group. The group is also joined on interfaces
/// that appear later, and left when its last address is withdrawn.
#[test]
fn f125_the_solicited_node_group_is_joined_and_left() {
    let segment = Segment::new("ndpgroup", 1);
    let [node] = &segment.members[..] else { panic!("one") };
    let announcer = Node::start(node);
    let (same, group) = ("2001:db8:7::100", "ff02::1:ff00:100");
    announcer.want(&[VIP, same], &["eth0", "late0"], Duty::Announce);
    let is_joined = |interface: &str| {
        let groups = node.exec(&["ip", "maddr", "show", "dev", interface]);
        groups.contains(group) && groups.contains("33:33:ff:00:01:00")
    };
    let is_known_to_switch = |port: &str| {
        segment
            .hub
            .exec(&["bridge", "mdb", "show"])
            .lines()
            .any(|line| line.contains(port) && line.contains(group))
    };
    eventually("joined", || is_joined("eth0"));
    eventually("known to the switch", || is_known_to_switch("port1"));
    segment.plug(node, "late0", 7);
    eventually("joined on the late one", || is_joined("late0"));
    eventually("known to the switch", || is_known_to_switch("port7"));
    announcer.withdraw(&[VIP]);
    assert!(is_joined("eth0"), "another address shares the group");
    announcer.withdraw(&[same]);
    assert!(!is_joined("eth0") && !is_joined("late0"));
    announcer.want(&[VIP], &["eth0"], Duty::Announce);
    assert!(is_joined("eth0"));
    announcer.want(&[VIP], &["eth0"], Duty::Watch);
    assert!(!is_joined("eth0"), "who watches is not asked");
}

/// More multicast groups can be joined than the kernel allows per socket.
#[test]
fn f125_a_thousand_groups_are_joined() {
    let segment = Segment::new("ndpmany", 1);
    let announcer = Node::start(&segment.members[0]);
    let pool: Vec<String> = (0..1000).map(|n| format!("2001:db8::9:{n:x}")).collect();
    let pool: Vec<&str> = pool.iter().map(String::as_str).collect();
    announcer.announce(&pool);
    let groups = || {
        let listed = segment.members[0].exec(&["ip", "maddr", "show", "dev", "eth0"]);
        listed.lines().filter(|line| line.contains("ff02::1:ff09:")).count()
    };
    eventually("all groups", || groups() == 1000);
    assert_eq!(announcer.status().interfaces["eth0"].error, None);
    announcer.withdraw(&pool);
    assert_eq!(groups(), 0);
}

#[test]
fn f125_a_probe_finds_an_announcer_a_kernel_and_silence() {
    let segment = Segment::new("ndpprobe", 3);
    let [first, second, third] = &segment.members[..] else { panic!("three") };
    let (one, two) = (Node::start(first), Node::start(second));
    one.announce(&[VIP]);
    let probe = |address: &str| {
        let interfaces = [String::from("eth0").try_into().unwrap()].into();
        two.announcer().probe(address.parse().unwrap(), interfaces).blocking_recv().unwrap()
    };
    let taken = |mac: Mac| ProbeAnswer::Taken { mac, interface: "eth0".to_owned() };
    eventually("listening", || probe(VIP) == taken(mac_of(first, "eth0")));
    assert_eq!(probe("2001:db8::3"), taken(mac_of(third, "eth0")), "the kernel's own address");
    assert_eq!(probe("2001:db8::200"), ProbeAnswer::Silent);
}

/// The announcer is not woken by other IPv6 traffic or by solicitations for other addresses, and damaged
/// solicitations do not stop it.
#[test]
fn f125_other_frames_do_not_wake_the_announcer_and_bad_ones_do_not_stop_it() {
    let segment = Segment::new("ndpflood", 2);
    let [node, client] = &segment.members[..] else { panic!("two") };
    let announcer = Node::start(node);
    announcer.announce(&[VIP]);
    let tap = Tap::open(client, "eth0");
    let ask = || {
        tap.send(&question(tap.mac(), CLIENT, VIP, Some(tap.mac())).render());
        tap.next("an answer", |frame| told(frame).is_some_and(|told| told.is_solicited));
    };
    ask();
    let received = || announcer.status().interfaces["eth0"].counters.received;
    let before = received();
    for number in 0..5000_u32 {
        let other = format!("2001:db8::5:{number:x}");
        tap.flood(&question(tap.mac(), CLIENT, &other, Some(tap.mac())).render());
        let mut data = question(tap.mac(), CLIENT, VIP, None).render();
        data[20] = 17;
        tap.flood(&data);
    }
    ask();
    assert_eq!(received() - before, 1, "{:?}", announcer.status());
    let good = question(tap.mac(), CLIENT, VIP, Some(tap.mac())).render();
    for at in 14..good.len() {
        for value in [0, 1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            tap.flood(&bytes);
            tap.flood(&good[..at]);
        }
    }
    let mut routed = good;
    routed[21] = 64;
    tap.send(&routed);
    eventually("an answer", || {
        tap.send(&question(tap.mac(), CLIENT, VIP, Some(tap.mac())).render());
        std::thread::sleep(std::time::Duration::from_millis(50));
        tap.look(|frame| told(frame).is_some_and(|told| told.is_solicited)).is_some()
    });
    let counters = announcer.status().interfaces["eth0"].counters.clone();
    let reasons: Vec<&str> = counters.dropped.keys().map(|reason| reason.as_str()).collect();
    for reason in ["hopLimit", "checksum"] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
}

/// The owner of an address detects another node that advertises the address or sends packets from it.
#[test]
fn f125_somebody_else_who_announces_is_heard() {
    let segment = Segment::new("ndpconf", 3);
    let [first, second, client] = &segment.members[..] else { panic!("three") };
    let (mut one, mut two) = (Node::start(first), Node::start(second));
    one.announce(&[VIP]);
    two.want(&[VIP], &["eth0"], Duty::Watch);
    assert_eq!(two.conflict().mac, mac_of(first, "eth0"));
    client.ip(&["addr", "add", &format!("{VIP}/64"), "dev", "eth0", "nodad"]);
    client.exec(&["ndisc6", "-1", "-r", "20", "-w", "500", "-s", VIP, "2001:db8::1", "eth0"]);
    assert_eq!(one.conflict().mac, mac_of(client, "eth0"));
}
