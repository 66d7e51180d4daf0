//! Tests of the announcer's state machine with a simulated clock.

use imbl::OrdMap;
use kernel::links::{Link, Links};

use super::*;
use crate::l2::wire::{Arp, Frame, Operation, Packet, Solicitation, parse, solicited_node_group};

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 9]);
const REFRESH: Duration = Duration::from_secs(60);

struct Bench {
    machine: Machine,
    now: Instant,
    links: Links,
}

impl Bench {
    /// Creates an announcer with the interface `eth0` at index 2.
    fn new() -> Self {
        let machine = Machine::new(Timing { refresh_interval: REFRESH, random: 7 });
        let mut bench = Self { machine, now: Instant::now(), links: Links { by_index: OrdMap::new() } };
        bench.link(2, "eth0", Some(OURS), true);
        bench
    }

    fn link(&mut self, index: u32, name: &str, mac: Option<Mac>, is_up: bool) {
        let link = Link { name: name.to_owned(), mac, is_up, addresses: BTreeMap::new() };
        self.links.by_index.insert(index, link);
        self.machine.links(&self.links, self.now);
    }

    fn want(&mut self, address: &str, interfaces: &[&str], duty: Duty) {
        let interfaces = names(interfaces);
        let changes = BTreeMap::from([(ip(address), Some(DesiredAddress { interfaces, duty }))]);
        assert_eq!(self.machine.set(changes, self.now), BTreeSet::new());
    }

    fn announce(&mut self, address: &str) {
        self.want(address, &["eth0"], Duty::Announce);
    }

    fn withdraw(&mut self, address: &str) {
        self.machine.set([(ip(address), None)].into(), self.now);
    }

    /// Advances the time and returns the sent frames, each with the seconds since the call and the interface
    /// index.
    fn pass(&mut self, time: Duration) -> Vec<(f64, u32, Frame)> {
        let (begin, end) = (self.now, self.now + time);
        let mut sent = Vec::new();
        loop {
            self.machine.timeout(self.now);
            for output in self.machine.take_outputs() {
                if let L2Output::Send { index, frame, .. } = output {
                    let at = (self.now - begin).as_secs_f64();
                    sent.push((at, index, parse(&frame).unwrap()));
                }
            }
            match self.machine.poll_timeout().filter(|next| *next <= end) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = end;
        sent
    }

    /// Passes a received frame to the state machine and returns the immediate outputs.
    fn hear(&mut self, index: u32, frame: &Frame) -> Vec<L2Output> {
        self.hear_late(index, frame, Duration::ZERO)
    }

    /// Passes a frame that was received `age` ago.
    fn hear_late(&mut self, index: u32, frame: &Frame, age: Duration) -> Vec<L2Output> {
        let _earlier = self.machine.take_outputs();
        self.machine.receive(index, &frame.render(), age, self.now);
        self.machine.take_outputs()
    }

    fn dropped(&self) -> Vec<&'static str> {
        let (_, _, counters) = self.machine.interfaces().next().unwrap();
        counters.dropped.keys().map(|reason| reason.as_str()).collect()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn names(names: &[&str]) -> BTreeSet<InterfaceName> {
    names.iter().map(|name| InterfaceName::try_from((*name).to_owned()).unwrap()).collect()
}

fn arp(operation: Operation, sender_mac: Mac, sender: &str, target: &str) -> Frame {
    let packet = Packet::Arp(Arp {
        operation,
        sender_mac,
        sender: sender.parse().unwrap(),
        target_mac: Mac::ZERO,
        target: target.parse().unwrap(),
    });
    Frame { destination: Mac::BROADCAST, source: sender_mac, packet }
}

fn request(target: &str) -> Frame {
    arp(Operation::Request, THEIRS, "192.0.2.2", target)
}

fn solicit(source: &str, target: &str, source_mac: Option<Mac>) -> Frame {
    let target = target.parse().unwrap();
    let packet = Packet::Solicitation(Solicitation {
        source: source.parse().unwrap(),
        destination: solicited_node_group(target),
        target,
        source_mac,
    });
    Frame { destination: Mac([0x33, 0x33, 0xff, 0, 0, 0]), source: THEIRS, packet }
}

fn sent(outputs: Vec<L2Output>) -> Vec<Frame> {
    let frame = |output| match output {
        L2Output::Send { frame, .. } => parse(&frame).unwrap(),
        other @ (L2Output::Conflict(_) | L2Output::Probed(..)) => panic!("{other:?}"),
    };
    outputs.into_iter().map(frame).collect()
}

/// An address is announced in a burst of five rounds within five seconds and then about once a minute, each
/// time by an ARP request and an ARP reply.
#[test]
fn an_address_is_announced_in_a_burst_and_then_now_and_then() {
    let mut bench = Bench::new();
    bench.announce("192.0.2.100");
    let burst = bench.pass(Duration::from_secs(10));
    let times: Vec<f64> = burst.iter().step_by(2).map(|(at, ..)| (at * 10.0).round() / 10.0).collect();
    assert_eq!(times, [0.0, 1.1, 2.2, 3.3, 4.4]);
    let forms: Vec<_> = burst.iter().take(2).map(|(_, _, frame)| frame.clone()).collect();
    let expected = |operation, target_mac| {
        let mut frame = arp(operation, OURS, "192.0.2.100", "192.0.2.100");
        if let Packet::Arp(arp) = &mut frame.packet {
            arp.target_mac = target_mac;
        }
        frame
    };
    assert_eq!(forms, [expected(Operation::Request, Mac::ZERO), expected(Operation::Reply, OURS)]);
    let hour = bench.pass(Duration::from_secs(3600));
    assert!((48 * 2..=80 * 2).contains(&hour.len()), "{}", hour.len());
    let (_, counters) = bench.machine.addresses().next().unwrap();
    assert_eq!(usize::try_from(counters.gratuitous).unwrap(), burst.len() + hour.len());
}

#[test]
fn an_unchanged_wish_announces_nothing_and_an_ended_one_is_silent_at_once() {
    let mut bench = Bench::new();
    bench.announce("192.0.2.100");
    bench.pass(Duration::from_secs(10));
    bench.announce("192.0.2.100");
    assert_eq!(bench.pass(Duration::from_secs(1)), []);
    assert_eq!(sent(bench.hear(2, &request("192.0.2.100"))).len(), 1);
    assert!(bench.machine.announce_again(ip("192.0.2.100"), bench.now));
    assert_eq!(bench.pass(Duration::from_secs(5)).len(), 10);
    bench.withdraw("192.0.2.100");
    assert_eq!(bench.hear(2, &request("192.0.2.100")), []);
    assert_eq!(bench.pass(Duration::from_secs(600)), []);
    assert_eq!(bench.machine.poll_timeout(), None);
    assert!(!bench.machine.announce_again(ip("192.0.2.100"), bench.now));
    assert_eq!(bench.machine.listening(2, ip("192.0.2.100")), Listening::No);
}

#[test]
fn questions_are_answered_with_the_mac_of_the_interface_that_heard_them() {
    let mut bench = Bench::new();
    let second = Mac([2, 0, 0, 0, 0, 2]);
    bench.link(3, "eth1", Some(second), true);
    bench.want("192.0.2.100", &["eth0", "eth1"], Duty::Announce);
    for (index, mac) in [(2, OURS), (3, second)] {
        let expected = Packet::Arp(Arp {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: "192.0.2.100".parse().unwrap(),
            target_mac: THEIRS,
            target: "192.0.2.2".parse().unwrap(),
        });
        let expected = Frame { destination: THEIRS, source: mac, packet: expected };
        assert_eq!(sent(bench.hear(index, &request("192.0.2.100"))), [expected]);
    }
    assert_eq!(bench.hear(2, &request("192.0.2.101")), []);
    let mut elsewhere = request("192.0.2.100");
    elsewhere.destination = Mac([2, 0, 0, 0, 0, 0x55]);
    assert_eq!(bench.hear(2, &elsewhere), [], "sent to another station");
    let probe = arp(Operation::Request, THEIRS, "0.0.0.0", "192.0.2.100");
    assert_eq!(sent(bench.hear(2, &probe)).len(), 1, "an address probe is answered, and no conflict");
    assert_eq!(bench.dropped(), ["notOurs"]);
}

#[test]
fn solicitations_are_answered_as_the_standard_says() {
    let mut bench = Bench::new();
    bench.announce("2001:db8::100");
    let reply = |source: &str, source_mac, bench: &mut Bench| {
        let [frame] =
            <[Frame; 1]>::try_from(sent(bench.hear(2, &solicit(source, "2001:db8::100", source_mac))))
                .unwrap();
        let Packet::Advertisement(told) = frame.packet else { panic!("an advertisement") };
        assert!(told.is_override && !told.is_router && told.target_mac == Some(OURS));
        (frame.destination, told.destination.to_string(), told.is_solicited)
    };
    let source_mac = Mac([2, 0, 0, 0, 0, 8]);
    let asked = reply("2001:db8::2", Some(source_mac), &mut bench);
    assert_eq!(asked, (source_mac, "2001:db8::2".to_owned(), true));
    let checked = reply("2001:db8::2", None, &mut bench);
    assert_eq!(checked, (THEIRS, "2001:db8::2".to_owned(), true), "to the station that sent it");
    let duplicate = reply("::", None, &mut bench);
    let all = Mac([0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(duplicate, (all, "ff02::1".to_owned(), false));
}

#[test]
fn what_others_claim_is_told_once_a_second_and_our_own_voice_is_not() {
    let mut bench = Bench::new();
    bench.announce("192.0.2.100");
    bench.want("2001:db8::100", &["eth0"], Duty::Watch);
    let conflict = |address: &str| {
        L2Output::Conflict(L2Conflict { address: ip(address), mac: THEIRS, interface: "eth0".to_owned() })
    };
    let claim = arp(Operation::Reply, THEIRS, "192.0.2.100", "192.0.2.100");
    assert_eq!(bench.hear(2, &claim), [conflict("192.0.2.100")]);
    assert_eq!(bench.hear(2, &claim), []);
    bench.now += Duration::from_secs(1);
    assert_eq!(bench.hear(2, &claim), [conflict("192.0.2.100")]);
    let asks = arp(Operation::Request, THEIRS, "192.0.2.100", "192.0.2.1");
    bench.now += Duration::from_secs(1);
    assert_eq!(bench.hear(2, &asks), [conflict("192.0.2.100")], "who asks from an address claims it");
    let told = frames::gratuitous(ip("2001:db8::100"), THEIRS).remove(0);
    assert_eq!(bench.hear(2, &told), [conflict("2001:db8::100")]);
    assert_eq!(bench.hear(2, &solicit("2001:db8::2", "2001:db8::100", None)), [], "only watched");
    let own = arp(Operation::Reply, OURS, "192.0.2.100", "192.0.2.100");
    bench.now += Duration::from_secs(1);
    assert_eq!(bench.hear(2, &own), []);
    assert_eq!(bench.pass(Duration::from_secs(3)).len(), 6, "the burst goes on; nothing is added to it");
}

#[test]
fn interfaces_that_come_late_come_back_or_change_are_announced_on() {
    let mut bench = Bench::new();
    bench.want("192.0.2.100", &["eth0", "eth1"], Duty::Announce);
    bench.pass(Duration::from_secs(10));
    let indexes = |sent: Vec<(f64, u32, Frame)>| -> BTreeSet<u32> {
        sent.into_iter().map(|(_, index, _)| index).collect()
    };
    bench.link(3, "eth1", Some(Mac([2, 0, 0, 0, 0, 2])), true);
    assert_eq!(indexes(bench.pass(Duration::from_secs(5))), [3].into(), "a new one, and only there");
    bench.link(2, "eth0", Some(OURS), false);
    assert_eq!(bench.pass(Duration::from_secs(1)), []);
    assert_eq!(bench.hear(2, &request("192.0.2.100")), []);
    bench.link(2, "eth0", Some(OURS), true);
    assert_eq!(indexes(bench.pass(Duration::from_secs(5))), [2].into());
    let other = Mac([2, 0, 0, 0, 0, 0x77]);
    bench.link(2, "eth0", Some(other), true);
    let again = bench.pass(Duration::from_secs(5));
    assert!(again.len() == 10 && again.iter().all(|(_, _, frame)| frame.source == other));
    bench.link(3, "renamed", Some(Mac([2, 0, 0, 0, 0, 2])), true);
    assert_eq!(bench.machine.listening(3, ip("192.0.2.100")), Listening::No);
    bench.link(9, "lo", None, true);
    bench.want("192.0.2.101", &["lo"], Duty::Announce);
    assert_eq!(bench.pass(Duration::from_secs(5)), [], "no Ethernet there");
}

#[test]
fn a_probe_tells_who_has_an_address() {
    let mut bench = Bench::new();
    bench.machine.probe(1, ip("192.0.2.100"), &names(&["eth0"]), bench.now);
    assert_eq!(bench.machine.listening(2, ip("192.0.2.100")), Listening::Overheard);
    bench.machine.timeout(bench.now);
    assert_eq!(sent(bench.machine.take_outputs()), [arp(Operation::Request, OURS, "0.0.0.0", "192.0.2.100")]);
    let reply = arp(Operation::Reply, THEIRS, "192.0.2.100", "0.0.0.0");
    let taken = ProbeAnswer::Taken { mac: THEIRS, interface: "eth0".to_owned() };
    assert_eq!(bench.hear(2, &reply), [L2Output::Probed(1, taken)]);
    assert_eq!(bench.machine.listening(2, ip("192.0.2.100")), Listening::No);

    bench.machine.probe(2, ip("2001:db8::100"), &names(&["eth0"]), bench.now);
    let begin = bench.now;
    let mut silent = None;
    while let Some(at) = bench.machine.poll_timeout() {
        bench.now = bench.now.max(at);
        bench.machine.timeout(bench.now);
        for output in bench.machine.take_outputs() {
            if let L2Output::Probed(id, answer) = output {
                silent = Some((id, answer, bench.now - begin));
            }
        }
    }
    assert_eq!(silent, Some((2, ProbeAnswer::Silent, PROBE_TIME)));
    bench.machine.probe(3, ip("192.0.2.100"), &names(&["eth7"]), bench.now);
    assert_eq!(bench.machine.take_outputs(), [L2Output::Probed(3, ProbeAnswer::Unknown)]);
}

#[test]
fn ten_thousand_addresses_are_announced_without_keeping_a_question_waiting() {
    let mut bench = Bench::new();
    let wanted = DesiredAddress { interfaces: names(&["eth0"]), duty: Duty::Announce };
    let addresses = (0..10_000_u32).map(|n| IpAddr::V4((0x0a00_0000 + n).into()));
    bench.machine.set(addresses.map(|address| (address, Some(wanted.clone()))).collect(), bench.now);
    bench.machine.timeout(bench.now);
    assert_eq!(bench.machine.take_outputs().len(), 2 * ANNOUNCED_PER_TURN_MAX);
    assert_eq!(bench.machine.poll_timeout(), Some(bench.now), "the rest is due");
    assert_eq!(sent(bench.hear(2, &request("10.0.39.15"))).len(), 1);
    let rounds = bench.pass(Duration::from_secs(10)).len() / 2 + ANNOUNCED_PER_TURN_MAX;
    assert_eq!(rounds, 50_000);
    bench.withdraw("10.0.0.0");
    assert_eq!(bench.machine.take_changed().len(), 10_000);
}

#[test]
fn more_addresses_than_the_limit_are_refused_and_named() {
    let mut bench = Bench::new();
    let wanted = DesiredAddress { interfaces: BTreeSet::new(), duty: Duty::Watch };
    let limit = u32::try_from(ADDRESSES_MAX).unwrap();
    let all = (0..=limit).map(|n| (IpAddr::V4((0x0a00_0000 + n).into()), Some(wanted.clone())));
    let refused = bench.machine.set(all.collect(), bench.now);
    assert_eq!(refused, [IpAddr::V4((0x0a00_0000 + limit).into())].into());
}

/// A process that was paused neither answers the requests that waited in its socket, nor sends the
/// announcements that were due: another node may have taken over. It still reports the announcements of that
/// node.
#[test]
fn after_a_pause_nothing_is_announced_or_answered_for_the_time_of_the_pause() {
    let mut bench = Bench::new();
    bench.announce("192.0.2.100");
    bench.pass(Duration::from_millis(500));
    bench.now += Duration::from_secs(8);
    let late = Duration::from_secs(7);
    assert_eq!(bench.hear_late(2, &request("192.0.2.100"), late), []);
    assert_eq!(bench.dropped(), ["late"]);
    let takeover = arp(Operation::Request, THEIRS, "192.0.2.100", "192.0.2.100");
    assert!(matches!(bench.hear_late(2, &takeover, late)[..], [L2Output::Conflict(_)]));
    bench.machine.timeout(bench.now);
    assert_eq!(bench.machine.take_outputs(), [], "the announcement that was due");
    assert_eq!(sent(bench.hear(2, &request("192.0.2.100"))).len(), 1, "a new request");
    assert_eq!(bench.pass(Duration::from_secs(5)).len(), 4 * 2, "the rest of the burst");
}

#[test]
fn a_quiet_address_is_answered_but_its_burst_ends() {
    let mut bench = Bench::new();
    bench.announce("192.0.2.100");
    bench.machine.quiet(ip("192.0.2.100"), bench.now);
    assert_eq!(bench.pass(Duration::from_secs(40)).len(), 2, "the first announcement only");
    assert!(bench.machine.announce_again(ip("192.0.2.100"), bench.now));
    assert_eq!(bench.pass(Duration::from_secs(1)).len(), 2);
    bench.machine.quiet(ip("192.0.2.100"), bench.now);
    assert_eq!(bench.pass(Duration::from_secs(40)), []);
    assert_eq!(sent(bench.hear(2, &request("192.0.2.100"))).len(), 1);
}

/// The reaction of another station to an own announcement is reported at once, although that station was
/// reported in the same second before.
#[test]
fn a_reaction_to_an_own_announcement_is_reported() {
    let mut bench = Bench::new();
    bench.announce("192.0.2.100");
    bench.pass(Duration::from_secs(5));
    let claim = arp(Operation::Request, THEIRS, "192.0.2.100", "192.0.2.100");
    assert_eq!(bench.hear(2, &claim).len(), 1);
    assert_eq!(bench.hear(2, &claim), [], "reported already");
    assert!(bench.machine.announce_again(ip("192.0.2.100"), bench.now));
    bench.pass(Duration::from_millis(10));
    assert_eq!(bench.hear(2, &claim).len(), 1);
}
