//! Tests of frontends with port ranges and of traffic counters, in nftables mode.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{collections::BTreeMap, io::ErrorKind};

use model::{
    kinds::service::Protocol,
    primitives::net::IpFamily,
    program::{Masquerade, Program},
    wire::report::FailureReason,
};
use node_agent::dataplane::{
    Dataplane, DesiredState, Outcome, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};

use crate::support::{
    net::{Server, Topology},
    programs::*,
};

fn backend() -> NftablesBackend {
    NftablesBackend::open(NftablesOptions::default()).unwrap()
}

/// Builds a Service with the port range from `first` to `last` at the virtual addresses, for TCP and UDP,
/// with the targets `v4` and `v6`.
fn ports(first: u16, last: u16, v4: &[&str], v6: &[&str]) -> Program {
    let mut frontends = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        frontends.push((range("10.96.0.1", protocol, first, last), forward_ports(Masquerade::Always, v4)));
        frontends.push((range("fd96::1", protocol, first, last), forward_ports(Masquerade::Always, v6)));
    }
    program(&["10.96.0.1", "fd96::1"], &[], &frontends)
}

/// A port range keeps the destination port and ends at its limits; a single port of another Service within
/// the range takes precedence, in any order of creation.
#[test]
fn port_ranges_keep_the_port_and_give_way_to_single_ports() {
    let topology = Topology::new("range");
    let _more = [Server::start(&topology.a, "a-8500", 8500), Server::start(&topology.a, "a-9000", 9000)];
    topology.node.run(|| {
        let mut backend = backend();
        let mut desired = desired(vec![("range", ports(8080, 9000, &["10.1.1.2"], &["fd01:1::2"]))]);
        verified(&backend.apply(&desired, &Scope::Everything));
        let single = program(
            &[],
            &[],
            &[
                (at("10.96.0.1", Protocol::Tcp, 8080), forward(Masquerade::Always, &[("10.1.2.2", 8080, 1)])),
                (at("fd96::1", Protocol::Tcp, 8500), forward(Masquerade::Always, &[("fd01:2::2", 8080, 1)])),
            ],
        );
        for with_single in [false, true, false] {
            if with_single {
                set(&mut desired, "a-single", single.clone());
            } else {
                desired.programs.remove(&key("a-single"));
            }
            verified(&backend.apply(&desired, &only(&["a-single"])));
            for (ip, port, name) in [
                ("10.96.0.1", 8080, if with_single { "b" } else { "a" }),
                ("10.96.0.1", 8500, "a-8500"),
                ("10.96.0.1", 9000, "a-9000"),
                ("fd96::1", 8080, "a"),
                ("fd96::1", 8500, if with_single { "b" } else { "a-8500" }),
                ("fd96::1", 9000, "a-9000"),
            ] {
                for namespace in [&topology.client, &topology.b, &topology.node] {
                    let what = format!("{ip} {port} from {}", namespace.name());
                    let answer =
                        namespace.ask_tcp(ip, port).unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(answer.name, name, "{what}");
                }
            }
            assert_eq!(
                topology.client.ask_udp("10.96.0.1", 8080).unwrap().name,
                "a",
                "UDP is another frontend"
            );
            for (ip, port) in [("10.96.0.1", 8079), ("10.96.0.1", 9001), ("fd96::1", 8079), ("fd96::1", 9001)]
            {
                let error = topology.client.ask_tcp(ip, port).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{ip} {port}");
            }
            assert_eq!(verified(&self::backend().apply(&desired, &Scope::Everything)), 0);
        }
    });
}

/// Every port of a Service with all ports reaches the current endpoints, while endpoints and ports change.
#[test]
fn all_ports_of_an_address_follow_the_endpoints() {
    let topology = Topology::new("allports");
    topology.node.run(|| {
        let mut backend = backend();
        let mut desired = DesiredState::default();
        verified(&backend.apply(&desired, &Scope::Everything));
        for (first, last, v4, v6, name) in [
            (1, 65_535, "10.1.1.2", "fd01:1::2", "a"),
            (1, 65_535, "10.1.2.2", "fd01:2::2", "b"),
            (8000, 8100, "10.1.1.2", "fd01:1::2", "a"),
            (8080, 8081, "10.1.2.2", "fd01:2::2", "b"),
        ] {
            set(&mut desired, "all", ports(first, last, &[v4], &[v6]));
            verified(&backend.apply(&desired, &only(&["all"])));
            for ip in ["10.96.0.1", "fd96::1"] {
                assert_eq!(topology.client.ask_tcp(ip, 8080).unwrap().name, name);
                assert_eq!(topology.client.ask_udp(ip, 8080).unwrap().name, name);
                // No listener there: the endpoint itself refuses, or the rule rejects.
                let error = topology.client.ask_tcp(ip, 22).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            }
            assert_eq!(verified(&self::backend().apply(&desired, &Scope::Everything)), 0);
        }
        desired.programs.clear();
        verified(&backend.apply(&desired, &only(&["all"])));
        assert!(!topology.node.list_table("tidegate").contains("10.96.0.1"));
    });
}

/// Of three Services with overlapping port ranges, the first by name gets the ports and the others report a
/// conflict. When the first is removed, the next one gets the ports, in any order of creation.
#[test]
fn overlapping_ranges_belong_to_the_first_service_and_are_inherited() {
    let topology = Topology::new("overlap");
    topology.node.run(|| {
        let a = || ports(8000, 8090, &["10.1.1.2"], &["fd01:1::2"]);
        let b = || ports(8080, 8200, &["10.1.2.2"], &["fd01:2::2"]);
        for order in [["a", "b"], ["b", "a"]] {
            let mut backend = backend();
            let mut desired = DesiredState::default();
            verified(&backend.apply(&desired, &Scope::Everything));
            for name in order {
                set(&mut desired, name, if name == "a" { a() } else { b() });
                backend.apply(&desired, &only(&[name]));
            }
            let pass = backend.apply(&desired, &Scope::Everything);
            assert_eq!(pass.outcomes[&key("a")], Outcome::Verified);
            let Outcome::Failed { reason: FailureReason::Unsupported, message } = &pass.outcomes[&key("b")]
            else {
                panic!("{:?}", pass.outcomes);
            };
            assert!(message.contains("is already taken by Service default/a"), "{message}");
            assert_eq!(pass.writes, 0, "passes over one Service have done everything");
            assert_eq!(topology.client.ask_tcp("10.96.0.1", 8080).unwrap().name, "a");
            desired.programs.remove(&key("a"));
            verified(&backend.apply(&desired, &only(&["a"])));
            assert_eq!(topology.client.ask_tcp("10.96.0.1", 8080).unwrap().name, "b");
            assert_eq!(verified(&self::backend().apply(&desired, &Scope::Everything)), 0);
        }
    });
}

/// The backend reports the exact number of connections per target, over several frontends, with and without
/// affinity.
#[test]
fn connections_are_counted_for_each_target() {
    let topology = Topology::new("count");
    topology.node.run(|| {
        let mut backend = backend();
        let list = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
        let verdict = || forward(Masquerade::Always, &list);
        let frontends = [at("10.96.0.1", Protocol::Tcp, 80), node_port(IpFamily::V4, Protocol::Tcp, 30080)];
        let sticky = at("10.96.0.2", Protocol::Tcp, 80);
        let mut sticky_route = route(&sticky, verdict());
        sticky_route.affinity_seconds = Some(600);
        let mut desired = desired(vec![
            ("web", program(&[], &[], &frontends.map(|frontend| (frontend, verdict())))),
            ("sticky", routed(vec![(sticky, sticky_route)])),
            ("range", ports(8000, 8100, &["10.1.1.2"], &["fd01:1::2"])),
        ]);
        verified(&backend.apply(&desired, &Scope::Everything));
        let mut wanted: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (service, ip, port, times) in [
            ("web", "10.96.0.1", 80, 30),
            ("web", "192.0.2.1", 30080, 20),
            ("sticky", "10.96.0.2", 80, 12),
            ("range", "10.96.0.1", 8080, 5),
        ] {
            for answer in topology.client.ask_tcp_often(ip, port, times) {
                *wanted.entry((service.to_owned(), answer.name)).or_default() += 1;
            }
        }
        let counted = |backend: &mut NftablesBackend| {
            let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
            for traffic in backend.traffic().unwrap() {
                let name = if traffic.target.address == address("10.1.1.2") { "a" } else { "b" };
                if traffic.connections > 0 {
                    counts.insert((traffic.service.name.to_string(), name.to_owned()), traffic.connections);
                }
            }
            counts
        };
        assert_eq!(counted(&mut backend), wanted);
        // A remaining target keeps its count when the other one is removed.
        let only_b = forward(Masquerade::Always, &list[1..]);
        set(&mut desired, "web", program(&[], &[], &frontends.map(|frontend| (frontend, only_b.clone()))));
        verified(&backend.apply(&desired, &only(&["web"])));
        topology.client.ask_tcp_often("10.96.0.1", 80, 3);
        wanted.remove(&("web".to_owned(), "a".to_owned()));
        *wanted.entry(("web".to_owned(), "b".to_owned())).or_default() += 3;
        assert_eq!(counted(&mut backend), wanted);
    });
}
