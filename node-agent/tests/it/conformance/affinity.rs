//! Conformance scenarios of session affinity (`sessionAffinity: ClientIP`).

use std::{
    collections::BTreeMap,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use model::kinds::service::Protocol;

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Ask, Bench, Build, Heard, Lane, Spot,
    Spot::{A, B, C, Client, Node},
    hosts::crowd,
    node::{Claim::Reach, TCP},
};

pub const SCENARIOS: &[Scenario] = &[
    scenario("With affinity a client stays on its endpoint at a cluster IP", "F047", |b| {
        holds(b, Place::ClusterIp)
    })
    .stands_for("S23 N19 D17"),
    scenario("With affinity a client stays on its endpoint at a node port", "F047", |b| {
        holds(b, Place::NodePort)
    })
    .stands_for("S26"),
    scenario("With affinity a client stays on its endpoint at a balancer", "F047", |b| {
        holds(b, Place::Balancer)
    })
    .stands_for("L6"),
    scenario("With affinity and policy Local a client stays on its endpoint", "F047", |b| {
        holds(b, Place::Local)
    })
    .stands_for("L4"),
    scenario("With affinity a client has one endpoint at all frontends of a port", "F047", every_frontend),
    scenario("UDP clients stay on their endpoint too", "F047", udp).stands_for("N20 D18"),
    scenario("Affinity at a cluster IP ends after its time", "F047", |b| times_out(b, Place::ClusterIp))
        .stands_for("S24"),
    scenario("Affinity at a node port ends after its time", "F047", |b| times_out(b, Place::NodePort))
        .stands_for("S27"),
    scenario("Affinity at a cluster IP can be switched on and off", "F047", |b| {
        switches(b, Place::ClusterIp)
    })
    .stands_for("S25"),
    scenario("Affinity at a node port can be switched on and off", "F047", |b| switches(b, Place::NodePort))
        .stands_for("S28"),
    scenario("Affinity at a balancer can be switched on and off", "F047", |b| switches(b, Place::Balancer))
        .stands_for("L7"),
    scenario("Affinity with policy Local can be switched on and off", "F047", |b| switches(b, Place::Local))
        .stands_for("L5"),
    scenario("When an endpoint goes its clients move and the others stay", "F047", endpoint_goes),
    scenario("An endpoint that comes takes no client from another", "F047", endpoint_comes),
    scenario("Affinity outlives the agent", "F047", outlives)
        .not_in("userspace", "the table is the relay's memory"),
];

/// Kind of frontend (such as a cluster IP or a node port) for which affinity is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    ClusterIp,
    NodePort,
    Balancer,
    Local,
}

impl Place {
    fn build(self, b: &Bench, spots: &[Spot]) -> Build {
        let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, spots).node_port(30080);
        if self == Self::Local { web.external_local() } else { web }
    }

    fn frontend(self, b: &Bench) -> (IpAddr, u16) {
        match self {
            Self::ClusterIp => (b.vip(1), 80),
            Self::NodePort => (b.node_address(), 30080),
            Self::Balancer | Self::Local => (b.outer(1), 80),
        }
    }
}

fn holds(b: &mut Bench, place: Place) {
    b.set(&[&place.build(b, &[A, B, C]).affinity(60)]);
    let at = place.frontend(b);
    let first = ask_crowd(b, at);
    assert!(spread(&first) > 1, "different clients may have different endpoints: {first:?}");
    for _ in 0..4 {
        assert_eq!(ask_crowd(b, at), first, "every client stays");
    }
}

/// Asserts that a client that connected by cluster IP reaches the same endpoint by load balancer IP, external IP and
/// node port, and that a connection by one frontend renews the time at the others.
fn every_frontend(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).external_ip(b.outer(2));
    let web = web.tcp(80, &[A, B, C]).node_port(30080);
    b.set(&[&web.clone().affinity(60)]);
    let others = [(b.outer(1), 80), (b.outer(2), 80), (b.node_address(), 30080)];
    let first = ask_crowd(b, (b.vip(1), 80));
    assert!(spread(&first) > 1, "different clients may have different endpoints: {first:?}");
    if b.lane == Lane::Ipvs {
        b.differences.insert("IPVS stores the clients of each frontend apart, as in kube-proxy");
        return;
    }
    for at in others {
        assert_eq!(ask_crowd_backwards(b, at), first, "every client stays at {at:?}");
    }
    b.set(&[&web.affinity(4)]);
    let pause = Duration::from_millis(2500);
    let mut last = (Instant::now(), ask_crowd(b, (b.vip(1), 80)));
    for at in others {
        thread::sleep(pause);
        let now = (Instant::now(), ask_crowd_backwards(b, at));
        if last.0.elapsed() < Duration::from_secs(4) {
            assert_eq!(now.1, last.1, "every client stays at {at:?}");
        }
        last = now;
    }
}

fn udp(b: &mut Bench) {
    b.set(&[&b.service("web", 1).udp(80, &[A, B, C]).affinity(60)]);
    let at = (b.vip(1), 80);
    let first = ask_crowd_over(b, Protocol::Udp, at);
    assert!(spread(&first) > 1, "different clients may have different endpoints: {first:?}");
    for _ in 0..3 {
        assert_eq!(ask_crowd_over(b, Protocol::Udp, at), first, "every client stays");
    }
}

fn times_out(b: &mut Bench, place: Place) {
    b.set(&[&place.build(b, &[A, B, C]).affinity(1)]);
    let at = place.frontend(b);
    let first = ask_crowd(b, at);
    if b.lane == Lane::Ipvs {
        // The kernel's timeout starts when a connection is forgotten, so only the configured value is checked for TCP.
        b.differences
            .insert("IPVS counts from when it forgets a client's last connection, minutes after its end");
        let told = b.hosts.at(Node).exec(&["ipvsadm", "-Sn"]);
        assert!(told.lines().any(|line| line.ends_with("-s rr -p 1")), "{told}");
        return times_out_of_flows(b, place);
    }
    thread::sleep(Duration::from_millis(2200));
    if ask_crowd(b, at) == first {
        // Kernels count such timeouts in coarse steps.
        thread::sleep(Duration::from_millis(4000));
        assert_ne!(ask_crowd(b, at), first, "after its time every client is still where it was");
    }
}

/// Asserts, for UDP flows that IPVS forgets after a second, that clients stay on their endpoints during the time of the
/// affinity and that some are elsewhere after it.
fn times_out_of_flows(b: &mut Bench, place: Place) {
    let service = b.service("flows", 2).load_balancer_ip(b.outer(2)).udp(80, &[A, B, C]).node_port(30081);
    b.set(&[&service.affinity(4)]);
    let at = match place {
        Place::NodePort => (b.node_address(), 30081),
        Place::ClusterIp => (b.vip(2), 80),
        Place::Balancer | Place::Local => (b.outer(2), 80),
    };
    b.hosts.at(Node).exec(&["ipvsadm", "--set", "0", "0", "1"]);
    let begun = Instant::now();
    let first = ask_crowd_over(b, Protocol::Udp, at);
    thread::sleep(Duration::from_millis(1500));
    let second = ask_crowd_over(b, Protocol::Udp, at);
    assert!(
        begun.elapsed() > Duration::from_secs(4) || second == first,
        "every client stays: {first:?} {second:?}"
    );
    thread::sleep(Duration::from_secs(7));
    assert_ne!(
        ask_crowd_over(b, Protocol::Udp, at),
        second,
        "after its time every client is still where it was"
    );
    b.hosts.at(Node).exec(&["ipvsadm", "--set", "900", "120", "300"]);
}

fn switches(b: &mut Bench, place: Place) {
    let without = place.build(b, &[A, B]);
    let at = place.frontend(b);
    for _ in 0..2 {
        b.set(&[&without]);
        b.expect(&[Client], TCP, at.0, at.1, Reach(&[A, B]));
        b.set(&[&without.clone().affinity(60)]);
        let first = ask_crowd(b, at);
        assert_eq!(ask_crowd(b, at), first, "every client stays");
        assert_eq!(ask_crowd(b, at), first, "every client stays");
    }
    b.set(&[&without]);
    b.expect(&[Client], TCP, at.0, at.1, Reach(&[A, B]));
}

fn endpoint_goes(b: &mut Bench) {
    let at = (b.vip(1), 80);
    b.set(&[&b.service("web", 1).tcp(80, &[A, B, C]).affinity(60)]);
    let first = ask_crowd(b, at);
    b.set(&[&b.service("web", 1).tcp(80, &[A, C]).affinity(60)]);
    let second = ask_crowd(b, at);
    for (client, server) in &first {
        let now = &second[client];
        assert!(
            if server == "b" { now != "b" } else { now == server },
            "{client} was on {server}, is on {now}"
        );
    }
    assert_eq!(ask_crowd(b, at), second, "and there they stay");
}

fn endpoint_comes(b: &mut Bench) {
    let at = (b.vip(1), 80);
    b.set(&[&b.service("web", 1).tcp(80, &[A, B]).affinity(60)]);
    let first = ask_crowd(b, at);
    b.set(&[&b.service("web", 1).tcp(80, &[A, B, C]).affinity(60)]);
    assert_eq!(ask_crowd(b, at), first, "every client stays");
}

fn outlives(b: &mut Bench) {
    let at = (b.vip(1), 80);
    b.set(&[&b.service("web", 1).tcp(80, &[A, B, C]).affinity(60)]);
    let first = ask_crowd(b, at);
    b.restart();
    assert_eq!(ask_crowd(b, at), first, "every client stays");
}

/// Connects from many client addresses to `at` (address and port) and returns the name of the server that
/// each reached.
fn ask_crowd(b: &mut Bench, at: (IpAddr, u16)) -> BTreeMap<IpAddr, String> {
    ask_crowd_over(b, Protocol::Tcp, at)
}

/// Like [`ask_crowd`], but in the reverse order, in which a round robin would select other servers.
fn ask_crowd_backwards(b: &mut Bench, (to, port): (IpAddr, u16)) -> BTreeMap<IpAddr, String> {
    let clients: Vec<_> = crowd(b.family).into_iter().rev().collect();
    let ask =
        |source: &IpAddr| Ask { from: Client, source: Some(*source), to, protocol: Protocol::Tcp, port };
    let heard: Vec<_> = clients.iter().map(|source| b.ask(&[ask(source)]).remove(0)).collect();
    clients.into_iter().zip(heard).map(|(client, heard)| (client, name(heard))).collect()
}

fn ask_crowd_over(b: &mut Bench, protocol: Protocol, (to, port): (IpAddr, u16)) -> BTreeMap<IpAddr, String> {
    let clients = crowd(b.family);
    let ask = |source: &IpAddr| Ask { from: Client, source: Some(*source), to, protocol, port };
    let asks: Vec<_> = clients.iter().map(ask).collect();
    let heard = b.ask(&asks);
    clients.into_iter().zip(heard).map(|(client, heard)| (client, name(heard))).collect()
}

fn spread(crowd: &BTreeMap<IpAddr, String>) -> usize {
    crowd.values().collect::<std::collections::BTreeSet<_>>().len()
}

fn name(heard: Heard) -> String {
    match heard {
        Heard::Answer { name, .. } => name,
        Heard::Refused | Heard::Prohibited | Heard::Silence | Heard::Odd(_) => {
            panic!("nobody answered: {heard:?}")
        }
    }
}

/// Connects `times` times from the client and returns the number of connections that reached each server.
pub fn count(b: &mut Bench, to: IpAddr, times: usize) -> BTreeMap<String, usize> {
    let source = Some(Client.address(b.family));
    let ask = Ask { from: Client, source, to, protocol: Protocol::Tcp, port: 80 };
    let mut counts = BTreeMap::new();
    for heard in b.ask(&vec![ask; times]) {
        *counts.entry(name(heard)).or_default() += 1;
    }
    counts
}
