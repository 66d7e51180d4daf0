//! Tests of verdicts that depend on the source (workloads, the node itself, others), and of source ranges, in
//! nftables mode.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{collections::BTreeSet, time::Duration};

use model::{
    kinds::service::Protocol,
    primitives::net::IpFamily,
    program::{Frontend, Masquerade, Program, Verdict},
};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use node_agent::dataplane::{
    Dataplane, DesiredState, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};

use crate::support::{
    Namespace,
    net::{Server, Topology},
    programs::*,
};

const BOTH4: [(&str, u16, u16); 2] = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
const BOTH6: [(&str, u16, u16); 2] = [("fd01:1::2", 8080, 1), ("fd01:2::2", 8080, 1)];
const HERE4: [(&str, u16, u16); 1] = [("10.1.1.2", 8080, 1)];
const HERE6: [(&str, u16, u16); 1] = [("fd01:1::2", 8080, 1)];
/// Time to wait if no reply is expected.
const SHORT: Duration = Duration::from_millis(400);
const FRONTENDS: [(&str, u16); 4] =
    [("203.0.113.7", 80), ("2001:db8:7::7", 80), ("192.0.2.1", 30080), ("2001:db8::1", 30080)];

fn frontends() -> Vec<(Frontend, bool)> {
    let mut frontends = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        frontends.extend([
            (at("203.0.113.7", protocol, 80), true),
            (at("2001:db8:7::7", protocol, 80), false),
            (node_port(IpFamily::V4, protocol, 30080), true),
            (node_port(IpFamily::V6, protocol, 30080), false),
        ]);
    }
    frontends
}

/// Builds a Service with external policy Local, at load balancer addresses and a node port. One of its
/// endpoints is on this node if `has_endpoint_here` is true.
fn local(has_endpoint_here: bool) -> Program {
    let routes = frontends().into_iter().map(|(frontend, is_v4)| {
        let (all, here) = if is_v4 { (&BOTH4, &HERE4) } else { (&BOTH6, &HERE6) };
        let from_elsewhere = if has_endpoint_here { forward(Masquerade::Never, here) } else { Verdict::Drop };
        let verdicts = [forward(Masquerade::Never, all), forward(Masquerade::Always, all), from_elsewhere];
        (frontend, by_source(&frontend, verdicts))
    });
    Program {
        virtual_addresses: [address("203.0.113.7"), address("2001:db8:7::7")].into(),
        hairpins: BOTH4.iter().chain(&BOTH6).map(|(ip, ..)| address(ip)).collect(),
        ..routed(routes.collect())
    }
}

fn with_networks(program: Program) -> DesiredState {
    let mut desired = desired(vec![("web", program)]);
    desired.networks.workloads = nets(&["10.1.1.2/32", "10.1.2.0/24", "fd01:1::2/128", "fd01:2::/64"]);
    desired.networks.masquerade_sources = nets(&["192.0.2.0/24", "2001:db8::/64"]);
    desired
}

fn backend() -> NftablesBackend {
    NftablesBackend::open(NftablesOptions::default()).unwrap()
}

fn apply(topology: &Topology, desired: &DesiredState) {
    topology.node.run(|| verified(&backend().apply(desired, &Scope::Everything)));
}

fn names(namespace: &Namespace, ip: &str, port: u16) -> BTreeSet<String> {
    namespace.ask_tcp_often(ip, port, 24).into_iter().map(|answer| answer.name).collect()
}

fn is_silent(namespace: &Namespace, ip: &str, port: u16) -> bool {
    use std::io::ErrorKind::{PermissionDenied, WouldBlock};
    let result = namespace.udp(ip, port).ask(SHORT);
    let is_silent =
        result.as_ref().is_err_and(|error| [WouldBlock, PermissionDenied].contains(&error.kind()));
    if !is_silent {
        println!("{ip} port {port} from {}: {result:?}", namespace.name());
    }
    is_silent
}

/// Returns the address of the host `namespace` on its link to the node, in the address family of `ip`.
fn own(namespace: &Namespace, topology: &Topology, ip: &str) -> std::net::IpAddr {
    let v4 = address(ip).is_ipv4();
    let text = if namespace.name() == topology.client.name() {
        if v4 { "192.0.2.2" } else { "2001:db8::2" }
    } else if v4 {
        "10.1.2.2"
    } else {
        "fd01:2::2"
    };
    address(text)
}

/// F048: with policy Local, an outside client reaches only the endpoint on this node and keeps its address; a
/// workload and the node reach all endpoints.
#[test]
fn f048_policy_local_serves_clients_from_this_node_and_keeps_their_address() {
    let topology = Topology::new("local");
    apply(&topology, &with_networks(local(true)));
    for (ip, port) in FRONTENDS {
        for answer in topology.client.ask_tcp_often(ip, port, 12) {
            assert_eq!(answer.name, "a", "{ip}");
            assert_eq!(answer.source, own(&topology.client, &topology, ip), "{ip}");
        }
        assert_eq!(topology.client.ask_udp(ip, port).unwrap().name, "a", "{ip}");
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(names(&topology.b, ip, port), both, "a workload meets all: {ip}");
        assert_eq!(names(&topology.node, ip, port), both, "the node meets all: {ip}");
        for answer in topology.b.ask_tcp_often(ip, port, 12) {
            if answer.name == "a" {
                assert_eq!(answer.source, own(&topology.b, &topology, ip), "workloads keep their address");
            }
        }
    }
}

/// F048: with policy Local and no endpoint on this node, an outside client gets no reply; a workload and the
/// node are served.
#[test]
fn f048_without_an_endpoint_here_policy_local_drops_clients_and_serves_the_cluster() {
    let topology = Topology::new("nolocal");
    apply(&topology, &with_networks(local(false)));
    for (ip, port) in FRONTENDS {
        assert!(is_silent(&topology.client, ip, port), "{ip}");
        for namespace in [&topology.b, &topology.node] {
            assert_eq!(names(namespace, ip, port).len(), 2, "{ip} from {}", namespace.name());
        }
    }
    let refused = topology.client.ask_tcp("203.0.113.7", 81).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "undefined ports are still refused");
    // A local endpoint is added and removed in passes over this Service alone.
    topology.node.run(|| {
        let mut backend = backend();
        let mut desired = with_networks(local(false));
        verified(&backend.apply(&desired, &Scope::Everything));
        for has_endpoint_here in [true, false] {
            set(&mut desired, "web", local(has_endpoint_here));
            assert!(verified(&backend.apply(&desired, &only(&["web"]))) > 0);
            for (ip, port) in FRONTENDS {
                if has_endpoint_here {
                    assert_eq!(topology.client.ask_udp(ip, port).unwrap().name, "a");
                } else {
                    assert!(is_silent(&topology.client, ip, port), "{ip}");
                }
            }
        }
        assert_eq!(verified(&self::backend().apply(&desired, &Scope::Everything)), 0);
    });
}

/// With three routes in which each kind of source has a different verdict, each source gets the verdict for
/// its kind.
#[test]
fn verdicts_of_every_kind_go_to_the_source_they_are_for() {
    let topology = Topology::new("kinds");
    let _listener = Server::start(&topology.node, "relay", 15_000);
    let to_b = |is_v4| {
        let list = if is_v4 { [BOTH4[1]] } else { [BOTH6[1]] };
        forward(Masquerade::Always, &list)
    };
    let kinds = |is_v4| [to_b(is_v4), Verdict::Reject, Verdict::Drop, Verdict::Relay { port: port(15_000) }];
    topology.node.run(|| {
        let mut backend = backend();
        for turn in 0..4_usize {
            let routes = frontends().into_iter().map(|(frontend, is_v4)| {
                let verdict = |source: usize| kinds(is_v4)[(turn + source) % 4].clone();
                (frontend, by_source(&frontend, [verdict(0), verdict(1), verdict(2)]))
            });
            let desired = with_networks(routed(routes.collect()));
            verified(&backend.apply(&desired, &Scope::Everything));
            for (ip, port) in FRONTENDS {
                for (source, namespace) in
                    [&topology.b, &topology.node, &topology.client].into_iter().enumerate()
                {
                    let what = format!("turn {turn}, source {source}, {ip}");
                    match (turn + source) % 4 {
                        0 => assert_eq!(namespace.ask_tcp(ip, port).unwrap().name, "b", "{what}"),
                        1 => {
                            let error = namespace.ask_tcp(ip, port).unwrap_err();
                            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{what}");
                        }
                        2 => assert!(is_silent(namespace, ip, port), "{what}"),
                        _ => assert_eq!(namespace.ask_tcp(ip, port).unwrap().name, "relay", "{what}"),
                    }
                }
            }
        }
    });
}

/// F049: at every kind of frontend, clients within the source ranges get a reply and others do not; the node
/// itself is always allowed.
#[test]
fn f049_sources_that_are_not_allowed_are_dropped_at_every_kind_of_frontend() {
    let topology = Topology::new("allowed");
    let restricted = |allowed: &[&str]| {
        let mut list = frontends();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            list.push((range("203.0.113.8", protocol, 8000, 8100), true));
            list.push((range("2001:db8:7::8", protocol, 8000, 8100), false));
        }
        let routes = list.into_iter().map(|(frontend, is_v4)| {
            let verdict = match (frontend.ports.single(), is_v4) {
                (Some(_), true) => forward(Masquerade::Always, &BOTH4),
                (Some(_), false) => forward(Masquerade::Always, &BOTH6),
                (None, true) => forward_ports(Masquerade::Always, &["10.1.1.2"]),
                (None, false) => forward_ports(Masquerade::Always, &["fd01:1::2"]),
            };
            let mut route = route(&frontend, verdict);
            route.allowed_sources = Some(nets(allowed));
            (frontend, route)
        });
        routed(routes.collect())
    };
    let everywhere: Vec<_> =
        FRONTENDS.into_iter().chain([("203.0.113.8", 8080), ("2001:db8:7::8", 8080)]).collect();
    topology.node.run(|| {
        let mut backend = backend();
        let mut desired = with_networks(restricted(&[]));
        verified(&backend.apply(&desired, &Scope::Everything));
        for (allowed, client, workload) in [
            (&["192.0.2.0/24", "2001:db8::/32"][..], true, false),
            (&["192.0.2.3/32", "10.1.2.0/24", "2001:db8::3/128", "fd01:2::/64"], false, true),
            // Nested networks, and everything.
            (&["10.0.0.0/8", "10.1.2.0/24", "192.0.2.2/32", "::/0"], true, true),
            (&[], false, false),
        ] {
            set(&mut desired, "web", restricted(allowed));
            verified(&backend.apply(&desired, &only(&["web"])));
            for (ip, port) in &everywhere {
                for (namespace, may) in
                    [(&topology.client, client), (&topology.b, workload), (&topology.node, true)]
                {
                    let what = format!("{allowed:?} {ip} from {}", namespace.name());
                    if may {
                        namespace.ask_tcp(ip, *port).unwrap_or_else(|error| panic!("{what}: {error}"));
                        namespace.ask_udp(ip, *port).unwrap_or_else(|error| panic!("{what}: {error}"));
                    } else {
                        assert!(is_silent(namespace, ip, *port), "{what}");
                    }
                }
            }
            assert_eq!(verified(&self::backend().apply(&desired, &Scope::Everything)), 0, "{allowed:?}");
        }
    });
}

/// Node ports that are limited to some networks respond only at node addresses in these networks.
#[test]
fn node_ports_answer_only_at_the_addresses_that_are_chosen() {
    let topology = Topology::new("npaddr");
    let mut desired = with_networks(local(true));
    desired.networks.node_ports = nets(&["192.0.2.0/24", "fd01:1::/64"]);
    apply(&topology, &desired);
    for (ip, answers) in
        [("192.0.2.1", true), ("10.1.1.1", false), ("2001:db8::1", false), ("fd01:1::1", true)]
    {
        assert_eq!(topology.client.ask_tcp(ip, 30080).is_ok(), answers, "{ip}");
    }
}

/// F032: a ping to a virtual address is not rejected by a rule, unlike a TCP segment to an undefined port.
#[test]
fn f032_an_echo_request_to_a_virtual_address_is_left_alone() {
    let topology = Topology::new("echo");
    apply(&topology, &with_networks(local(true)));
    // The node routes the address back to the client, which replies itself.
    topology.client.ip(&["addr", "add", "203.0.113.7/32", "dev", "lo"]);
    topology.a.exec(&["sysctl", "-qw", "net.ipv4.ping_group_range=0 0"]);
    topology.a.run(|| {
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::empty(), SockProtocol::Icmp);
        let socket = std::net::UdpSocket::from(socket.unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.connect("203.0.113.7:0").unwrap();
        socket.send(&[8, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        let mut answer = [0; 8];
        socket.recv(&mut answer).unwrap();
        assert_eq!(answer[0], 0, "an echo reply");
    });
    let refused = topology.a.ask_tcp("203.0.113.7", 81).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}
