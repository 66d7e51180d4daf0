//! Tests of iptables mode with real connections: from the node, from workloads and from outside. Each test runs
//! for every variant of iptables (nft, legacy) that the kernel supports, and some tests run in the guest VM
//! (`lab/guest.sh`).

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use model::{
    kinds::{node::Naming, service::Protocol},
    primitives::{
        net::IpFamily,
        quantity::{PortRange, Weight},
    },
    program::{Masquerade, Program, Role, Route, Target, Verdict},
};
use node_agent::dataplane::{Dataplane, DesiredState, Scope, iptables::Flavour};

use crate::support::{
    self,
    iptables::{backend, flavours, is_guest, named, run_in_guest},
    net::{Server, Topology},
    programs::*,
};

const BOTH4: [(&str, u16, u16); 2] = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
const BOTH6: [(&str, u16, u16); 2] = [("fd01:1::2", 8080, 1), ("fd01:2::2", 8080, 1)];
const NODE: [&str; 6] = ["192.0.2.1", "10.1.1.1", "10.1.2.1", "2001:db8::1", "fd01:1::1", "fd01:2::1"];

/// Builds one Service with frontends of every kind. Port 80 and node port 30080 forward; port 81 and node
/// port 30081 have no endpoint and reject connections.
fn web() -> DesiredState {
    let mut frontends = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        frontends.extend([
            (at("10.96.0.1", protocol, 80), forward(Masquerade::OffCluster, &BOTH4)),
            (at("fd96::1", protocol, 80), forward(Masquerade::OffCluster, &BOTH6)),
            (at("203.0.113.7", protocol, 80), forward(Masquerade::Always, &BOTH4)),
            (at("2001:db8:7::7", protocol, 80), forward(Masquerade::Always, &BOTH6)),
            (node_port(IpFamily::V4, protocol, 30080), forward(Masquerade::Always, &BOTH4)),
            (node_port(IpFamily::V6, protocol, 30080), forward(Masquerade::Always, &BOTH6)),
            (at("10.96.0.1", protocol, 81), Verdict::Reject),
            (at("fd96::1", protocol, 81), Verdict::Reject),
            (node_port(IpFamily::V4, protocol, 30081), Verdict::Reject),
        ]);
    }
    let hairpins = ["10.1.1.2", "10.1.2.2", "fd01:1::2", "fd01:2::2"];
    let mut desired = desired(vec![("web", program(&["10.96.0.1", "fd96::1"], &hairpins, &frontends))]);
    desired.networks.masquerade_sources =
        ["192.0.2.0/24", "2001:db8::/64"].iter().map(|text| text.parse().unwrap()).collect();
    desired.networks.workloads =
        ["10.1.0.0/16", "fd01::/16"].iter().map(|text| text.parse().unwrap()).collect();
    desired
}

/// Runs `check` for each variant of iptables (nft, legacy) that the kernel supports. Each time, a backend programs
/// `desired` on the node of a new topology and is closed before `check` runs.
fn each(test: &str, desired: &DesiredState, check: impl Fn(&Topology, Flavour)) {
    for flavour in flavours() {
        let topology = Topology::new(&format!("{test}{}", flavour.as_str()));
        topology.node.run(|| verified(&backend(flavour).apply(desired, &Scope::Everything)));
        check(&topology, flavour);
    }
}

fn is_node(address: IpAddr) -> bool {
    NODE.iter().any(|node| node.parse::<IpAddr>().unwrap() == address)
}

#[test]
fn f059_f080_every_frontend_forwards_tcp_and_udp_in_both_families_without_the_agent() {
    each("if", &web(), |topology, flavour| {
        for namespace in [&topology.client, &topology.a, &topology.node] {
            for (ip, port) in [
                ("10.96.0.1", 80),
                ("fd96::1", 80),
                ("203.0.113.7", 80),
                ("2001:db8:7::7", 80),
                ("192.0.2.1", 30080),
                ("2001:db8::1", 30080),
            ] {
                let place = format!("{ip} {port} from {} ({})", namespace.name(), flavour.as_str());
                assert!(namespace.ask_tcp(ip, port).is_ok(), "TCP {place}");
                assert!(namespace.ask_udp(ip, port).is_ok(), "UDP {place}");
            }
        }
        let listing =
            topology.node.exec(&[&format!("iptables-{}", flavour.as_str()), "-L", "-v", "-n", "-t", "nat"]);
        let counted =
            listing.lines().find(|line| line.contains("TG-SVC-") && line.contains("dpt:80")).unwrap();
        assert_ne!(counted.split_whitespace().next(), Some("0"), "{listing}");
    });
}

#[test]
fn f060_over_10000_connections_each_of_four_endpoints_gets_a_quarter() {
    let list = [("10.1.1.2", 8080, 1), ("10.1.1.2", 8081, 1), ("10.1.2.2", 8080, 1), ("10.1.2.2", 8081, 1)];
    let program = program(
        &["10.96.0.1"],
        &[],
        &[(at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &list))],
    );
    let desired = desired(vec![("web", program)]);
    for flavour in flavours() {
        let topology = Topology::new(&format!("iq{}", flavour.as_str()));
        let _more = [Server::start(&topology.a, "a2", 8081), Server::start(&topology.b, "b2", 8081)];
        topology.node.run(|| verified(&named(flavour, Naming::Kube).apply(&desired, &Scope::Everything)));
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for answer in topology.client.ask_tcp_often("10.96.0.1", 80, 10_000) {
            *counts.entry(answer.name).or_default() += 1;
        }
        println!("{}: {counts:?}", flavour.as_str());
        // 2,500 ± 43 is one standard deviation; six of them make a chance failure less likely than one in
        // 10^8.
        assert_eq!(counts.len(), 4);
        assert!(counts.values().all(|count| (2240..=2760).contains(count)), "{counts:?}");
        // The counters of the endpoint rules match.
        let mut traffic = topology.node.run(|| named(flavour, Naming::Kube).traffic().unwrap());
        traffic.sort_by_key(|entry| entry.target);
        let counted: Vec<_> = traffic.iter().map(|entry| entry.connections).collect();
        let met: Vec<_> = ["a", "a2", "b", "b2"].iter().map(|name| u64::from(counts[*name])).collect();
        assert_eq!(counted, met);
    }
}

#[test]
fn weights_divide_new_connections() {
    let weighted = forward(Masquerade::OffCluster, &[("10.1.1.2", 8080, 300), ("10.1.2.2", 8080, 100)]);
    let program = program(&["10.96.0.1"], &[], &[(at("10.96.0.1", Protocol::Tcp, 80), weighted)]);
    each("iw", &desired(vec![("web", program)]), |topology, _| {
        let answers = topology.client.ask_tcp_often("10.96.0.1", 80, 1200);
        let to_a = answers.iter().filter(|answer| answer.name == "a").count();
        // 900 ± 15 is one standard deviation.
        assert!((810..=990).contains(&to_a), "{to_a} of 1200");
    });
}

/// F088, F090, F092, F096: for clients outside of the cluster, servers observe the node's address as the
/// source, and for workloads the workload's own address. A workload can reach itself through a Service.
#[test]
fn f088_f090_f092_f096_sources_are_masqueraded_when_the_program_says_so_and_only_then() {
    each("im", &web(), |topology, flavour| {
        for (ip, port) in [("10.96.0.1", 80), ("fd96::1", 80), ("203.0.113.7", 80), ("192.0.2.1", 30080)] {
            let source = topology.client.ask_tcp(ip, port).unwrap().source;
            assert!(is_node(source), "{ip} from outside: the workload saw {source}");
        }
        for (ip, own) in [("10.96.0.1", "10.1.1.2"), ("fd96::1", "fd01:1::2")] {
            let mut names = BTreeSet::new();
            for answer in topology.a.ask_tcp_often(ip, 80, 40) {
                match answer.name.as_str() {
                    "b" => assert_eq!(answer.source, address(own), "workloads keep their source"),
                    _ => assert!(is_node(answer.source), "a workload reaches itself by the node's address"),
                }
                names.insert(answer.name);
            }
            assert_eq!(names.len(), 2, "{flavour:?}");
        }
        let answers = topology.a.ask_tcp_often("203.0.113.7", 80, 20);
        assert!(answers.iter().all(|answer| is_node(answer.source)));
    });
}

#[test]
fn the_mark_bits_can_be_chosen() {
    use node_agent::dataplane::iptables::{IptablesBackend, IptablesOptions, layout::NamingLayout};
    for flavour in flavours() {
        let topology = Topology::new(&format!("ib{}", flavour.as_str()));
        topology.node.run(|| {
            let layout = NamingLayout {
                naming: Naming::Tidegate,
                masquerade_mark: 0x10,
                drop_mark: 0x8000_0000,
                drop_invalid: true,
            };
            let options = IptablesOptions { layout, flavour: Some(flavour) };
            let mut backend = IptablesBackend::open(&options).unwrap();
            verified(&backend.apply(&web(), &Scope::Everything));
            let other = self::backend(flavour).apply(&web(), &Scope::Everything);
            assert!(verified(&other) > 0, "another bit is another rule");
            verified(&backend.apply(&web(), &Scope::Everything));
        });
        assert!(is_node(topology.client.ask_tcp("203.0.113.7", 80).unwrap().source));
    }
}

#[test]
fn ports_without_endpoints_and_undefined_ports_are_refused_at_once_and_host_daemons_are_not_reached() {
    each("ir", &web(), |topology, _| {
        // The address is local to the node, where a daemon listens.
        topology.node.ip(&["addr", "add", "10.96.0.1/32", "dev", "lo"]);
        let _daemon = Server::start(&topology.node, "daemon", 22);
        for namespace in [&topology.client, &topology.a, &topology.node] {
            for (ip, port) in
                [("10.96.0.1", 81), ("fd96::1", 81), ("10.96.0.1", 8080), ("fd96::1", 22), ("10.96.0.1", 22)]
            {
                let place = format!("{ip} {port} from {}", namespace.name());
                let tcp = namespace.ask_tcp(ip, port).unwrap_err();
                assert_eq!(tcp.kind(), ErrorKind::ConnectionRefused, "TCP {place}: {tcp}");
                let udp = namespace.udp(ip, port).ask(Duration::from_secs(3)).unwrap_err();
                // On the node itself the packet is rejected before it is sent.
                let kinds = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
                assert!(kinds.contains(&udp.kind()), "UDP {place}: {udp}");
            }
        }
        let node_port = topology.client.ask_tcp("192.0.2.1", 30081).unwrap_err();
        assert_eq!(node_port.kind(), ErrorKind::ConnectionRefused);
        assert!(
            topology.client.ask_tcp("192.0.2.1", 22).is_ok(),
            "the daemon is reached by the node's own address"
        );
    });
}

#[test]
fn f098_node_ports_answer_on_every_address_of_the_node_but_loopback() {
    each("in", &web(), |topology, _| {
        for ip in ["192.0.2.1", "10.1.1.1", "10.1.2.1", "2001:db8::1", "fd01:2::1"] {
            assert!(topology.client.ask_tcp(ip, 30080).is_ok(), "{ip}");
        }
        let _daemon = Server::start(&topology.node, "daemon", 30081);
        for ip in ["127.0.0.1", "::1"] {
            assert!(topology.node.ask_tcp(ip, 30080).is_err(), "{ip}");
            assert!(topology.node.ask_tcp(ip, 30081).is_ok(), "a daemon on loopback is left alone");
        }
        let other = topology.client.ask_tcp("10.1.1.2", 30080);
        assert!(other.is_err(), "an address behind the node is none of its own");
    });
    let mut some = web();
    some.networks.node_ports =
        ["10.1.1.0/24", "10.1.2.1/32", "2001:db8::/64"].iter().map(|text| text.parse().unwrap()).collect();
    each("io", &some, |topology, _| {
        for ip in ["10.1.1.1", "10.1.2.1", "2001:db8::1"] {
            assert!(topology.client.ask_tcp(ip, 30080).is_ok(), "{ip}");
        }
        for ip in ["192.0.2.1", "fd01:2::1"] {
            assert!(topology.client.ask_tcp(ip, 30080).is_err(), "{ip}");
        }
    });
}

/// Builds a Service with a load balancer address and a node port, with external policy Local. `here` is the
/// verdict for outside clients, which may reach only local endpoints.
fn local(here: Verdict) -> DesiredState {
    let mut program = Program::default();
    let mut public = Route::new(Role::LoadBalancer, here);
    public.from_workloads = forward(Masquerade::Never, &BOTH4);
    public.from_node = forward(Masquerade::Always, &BOTH4);
    program.frontends.insert(at("203.0.113.7", Protocol::Tcp, 80), public.clone());
    public.role = Role::NodePort;
    program.frontends.insert(node_port(IpFamily::V4, Protocol::Tcp, 30080), public);
    program.hairpins.extend(["10.1.1.2", "10.1.2.2"].map(address));
    let mut desired = desired(vec![("web", program)]);
    desired.networks.workloads = web().networks.workloads;
    desired
}

#[test]
fn f097_f099_with_local_policy_outside_meets_local_endpoints_unmasqueraded_or_silence() {
    let names = |answers: Vec<support::net::Answer>| -> BTreeSet<String> {
        answers.into_iter().map(|answer| answer.name).collect()
    };
    let both: BTreeSet<_> = ["a".to_owned(), "b".to_owned()].into();
    let here = forward(Masquerade::Never, &[("10.1.1.2", 8080, 1)]);
    each("il", &local(here), |topology, _| {
        for (ip, port) in [("203.0.113.7", 80), ("192.0.2.1", 30080)] {
            for answer in topology.client.ask_tcp_often(ip, port, 20) {
                assert_eq!((answer.name.as_str(), answer.source), ("a", address("192.0.2.2")));
            }
            assert_eq!(names(topology.b.ask_tcp_often(ip, port, 40)), both);
            assert_eq!(names(topology.node.ask_tcp_often(ip, port, 40)), both);
        }
    });
    each("id", &local(Verdict::Drop), |topology, flavour| {
        for (ip, port) in [("203.0.113.7", 80), ("192.0.2.1", 30080)] {
            let silent = topology.client.ask_tcp(ip, port).unwrap_err();
            assert_eq!(silent.kind(), ErrorKind::TimedOut, "{silent}");
            assert_eq!(names(topology.b.ask_tcp_often(ip, port, 40)), both);
            assert_eq!(names(topology.node.ask_tcp_often(ip, port, 40)), both);
        }
        // F089: the packets were dropped by the mark, and none left the node.
        let tool = format!("iptables-{}", flavour.as_str());
        let listing = topology.node.exec(&[&tool, "-L", "TG-PROXY-FIREWALL", "-v", "-n", "-x"]);
        let dropped = listing.lines().last().unwrap().split_whitespace().next().unwrap();
        assert!(dropped.parse::<u32>().unwrap() >= 2, "{listing}");
    });
}

#[test]
fn f089_f097_only_allowed_sources_and_the_node_pass_and_others_are_dropped() {
    let mut frontends = Vec::new();
    for (number, role) in [Role::LoadBalancer, Role::ExternalIp, Role::ClusterIp].into_iter().enumerate() {
        let mut route = Route::new(role, forward(Masquerade::Always, &BOTH4));
        route.allowed_sources =
            Some(["10.1.1.0/24".parse().unwrap(), "198.51.100.0/24".parse().unwrap()].into());
        let place = ["203.0.113.7", "203.0.113.8", "10.96.0.1"][number];
        frontends.push((at(place, Protocol::Tcp, 80), route));
    }
    let mut refused = frontends[0].1.clone();
    (refused.from_workloads, refused.from_node, refused.from_elsewhere) =
        (Verdict::Reject, Verdict::Reject, Verdict::Reject);
    frontends.push((at("203.0.113.9", Protocol::Tcp, 80), refused));
    let program = Program { frontends: frontends.into_iter().collect(), ..Program::default() };
    each("is", &desired(vec![("web", program)]), |topology, _| {
        for ip in ["203.0.113.7", "203.0.113.8", "10.96.0.1"] {
            assert!(topology.a.ask_tcp(ip, 80).is_ok(), "{ip}: a is allowed");
            assert!(topology.node.ask_tcp(ip, 80).is_ok(), "{ip}: the node is exempt");
            let silent = topology.client.ask_tcp(ip, 80).unwrap_err();
            assert_eq!(silent.kind(), ErrorKind::TimedOut, "{ip}: {silent}");
        }
        assert_eq!(topology.a.ask_tcp("203.0.113.9", 80).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(topology.client.ask_tcp("203.0.113.9", 80).unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_client_stays_on_its_endpoint_until_that_goes() {
    let sticky = |list: &[(&str, u16, u16)]| {
        let mut program = simple("10.96.0.1", list);
        program
            .frontends
            .iter_mut()
            .map(|(_, route)| route)
            .for_each(|route| route.affinity_seconds = Some(100));
        program
    };
    let mut state = desired(vec![("web", sticky(&BOTH4))]);
    for flavour in flavours() {
        let topology = Topology::new(&format!("ia{}", flavour.as_str()));
        topology.node.run(|| {
            set(&mut state, "web", sticky(&BOTH4));
            let mut backend = backend(flavour);
            verified(&backend.apply(&state, &Scope::Everything));
            let first = topology.client.ask_tcp("10.96.0.1", 80).unwrap().name;
            let all = topology.client.ask_tcp_often("10.96.0.1", 80, 40);
            assert!(all.iter().all(|answer| answer.name == first));
            // Changed weights and another agent move no client.
            let heavy = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1000)];
            let heavy = if first == "a" { heavy } else { [("10.1.1.2", 8080, 1000), ("10.1.2.2", 8080, 1)] };
            set(&mut state, "web", sticky(&heavy));
            let mut backend = self::backend(flavour);
            verified(&backend.apply(&state, &Scope::Everything));
            let all = topology.client.ask_tcp_often("10.96.0.1", 80, 20);
            assert!(all.iter().all(|answer| answer.name == first), "{first}: {all:?}");
            let other = if first == "a" { BOTH4[1] } else { BOTH4[0] };
            set(&mut state, "web", sticky(&[other]));
            verified(&backend.apply(&state, &only(&["web"])));
            assert_ne!(topology.client.ask_tcp("10.96.0.1", 80).unwrap().name, first);
            set(&mut state, "web", sticky(&BOTH4));
            verified(&backend.apply(&state, &only(&["web"])));
        });
    }
}

#[test]
fn a_range_of_ports_keeps_the_port_and_one_port_in_it_can_be_another_services() {
    let ports = PortRange::new(port(8000), port(8100));
    let range = model::program::Frontend { ports, ..at("10.96.0.1", Protocol::Tcp, 1) };
    let target = Target { address: address("10.1.1.2"), port: None };
    let targets = Arc::new([(target, Weight(1))].into());
    let verdict = Verdict::Forward { masquerade: Masquerade::OffCluster, targets };
    let mut desired = desired(vec![("all", program(&["10.96.0.1"], &[], &[(range, verdict)]))]);
    let one =
        program(&[], &[], &[(at("10.96.0.1", Protocol::Tcp, 8081), forward(Masquerade::Never, &[BOTH4[1]]))]);
    set(&mut desired, "one", one);
    each("ip", &desired, |topology, _| {
        let _other = Server::start(&topology.a, "other", 8090);
        assert_eq!(topology.client.ask_tcp("10.96.0.1", 8080).unwrap().name, "a");
        assert_eq!(topology.client.ask_tcp("10.96.0.1", 8090).unwrap().name, "other");
        assert_eq!(topology.client.ask_tcp("10.96.0.1", 8081).unwrap().name, "b");
        assert!(topology.client.ask_tcp("10.96.0.1", 7999).is_err());
    });
}

/// A host whose forward policy is DROP still forwards translated Service traffic and its replies.
#[test]
fn services_pass_a_host_whose_policy_is_not_to_forward() {
    for flavour in flavours() {
        let topology = Topology::new(&format!("ix{}", flavour.as_str()));
        let tool = format!("iptables-{}", flavour.as_str());
        topology.node.exec(&[&tool, "-P", "FORWARD", "DROP"]);
        topology.node.run(|| verified(&backend(flavour).apply(&web(), &Scope::Everything)));
        assert!(topology.client.ask_tcp("203.0.113.7", 80).is_ok());
        assert_eq!(topology.client.ask_tcp("10.1.1.2", 8080).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}

#[test]
fn f059_f097_f099_traffic_flows_by_the_legacy_tables_of_another_kernel() {
    if !is_guest() {
        run_in_guest(&[
            "iptables_traffic::f059_f080_every_frontend_forwards_tcp_and_udp_in_both_families_without_the_agent",
            "iptables_traffic::f089_f097_only_allowed_sources_and_the_node_pass_and_others_are_dropped",
            "iptables_traffic::f097_f099_with_local_policy_outside_meets_local_endpoints_unmasqueraded_or_silence",
            "iptables_traffic::a_client_stays_on_its_endpoint_until_that_goes",
        ]);
    }
}
