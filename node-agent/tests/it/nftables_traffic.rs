//! Tests of nftables mode with real connections: from the node, from workloads and from outside.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use model::{kinds::service::Protocol, primitives::net::IpFamily, program::Masquerade};
use node_agent::dataplane::{
    Dataplane, DesiredState, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};

use crate::support::{
    Namespace,
    net::Topology,
    programs::{address, at, desired, forward, node_port, only, program, route, routed, verified},
};

const BOTH4: [(&str, u16, u16); 2] = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
const BOTH6: [(&str, u16, u16); 2] = [("fd01:1::2", 8080, 1), ("fd01:2::2", 8080, 1)];

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
            (at("10.96.0.1", protocol, 81), model::program::Verdict::Reject),
            (at("fd96::1", protocol, 81), model::program::Verdict::Reject),
            (node_port(IpFamily::V4, protocol, 30081), model::program::Verdict::Reject),
        ]);
    }
    let hairpins = ["10.1.1.2", "10.1.2.2", "fd01:1::2", "fd01:2::2"];
    let mut desired = desired(vec![("web", program(&["10.96.0.1", "fd96::1"], &hairpins, &frontends))]);
    desired.networks.masquerade_sources =
        ["192.0.2.0/24", "2001:db8::/64"].iter().map(|text| text.parse().unwrap()).collect();
    desired
}

fn topology(test: &str, desired: &DesiredState) -> Topology {
    let topology = Topology::new(test);
    topology.node.run(|| {
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        verified(&backend.apply(desired, &Scope::Everything));
        // The backend is dropped; its rules stay and work (F059).
    });
    topology
}

#[test]
fn f030_f035_f040_f042_f044_f045_every_frontend_forwards_tcp_and_udp_in_both_families() {
    let topology = topology("fwd", &web());
    let ports = [
        ("10.96.0.1", 80),
        ("fd96::1", 80),
        ("203.0.113.7", 80),
        ("2001:db8:7::7", 80),
        ("192.0.2.1", 30080),
        ("2001:db8::1", 30080),
    ];
    for namespace in [&topology.client, &topology.a, &topology.node] {
        for (ip, port) in ports {
            let tcp = namespace.ask_tcp(ip, port);
            assert!(tcp.is_ok(), "TCP {ip} {port} from {}: {tcp:?}", namespace.name());
            let udp = namespace.ask_udp(ip, port);
            assert!(udp.is_ok(), "UDP {ip} {port} from {}: {udp:?}", namespace.name());
        }
    }
}

/// F088, F090, F092, F096: for clients outside of the cluster, servers observe the node's address as the
/// source, and for workloads the workload's own address. Connections to external addresses and node ports are
/// always masqueraded.
#[test]
fn f088_f090_f092_f096_sources_are_masqueraded_when_the_program_says_so_and_only_then() {
    let topology = topology("masq", &web());
    let node = |ip: &str| {
        [("10.1.1.1"), ("10.1.2.1"), ("fd01:1::1"), ("fd01:2::1")].map(address).contains(&address(ip))
    };
    for (ip, port) in [("10.96.0.1", 80), ("fd96::1", 80), ("203.0.113.7", 80), ("192.0.2.1", 30080)] {
        let source = topology.client.ask_tcp(ip, port).unwrap().source;
        assert!(node(&source.to_string()), "{ip} from outside: the workload saw {source}");
    }
    for (ip, own) in [("10.96.0.1", "10.1.1.2"), ("fd96::1", "fd01:1::2")] {
        for answer in topology.a.ask_tcp_often(ip, 80, 40) {
            match answer.name.as_str() {
                "b" => assert_eq!(answer.source, address(own), "workloads keep their source"),
                _ => assert!(
                    node(&answer.source.to_string()),
                    "a workload reaches itself by the node's address"
                ),
            }
        }
    }
    let answer = topology.a.ask_tcp_often("203.0.113.7", 80, 20);
    assert!(answer.iter().all(|answer| node(&answer.source.to_string())));
    let marked = topology.node.exec(&["conntrack", "-L", "--mark", "0x4000/0x4000"]);
    assert_eq!(marked.trim(), "", "the mark is for the packet, not for the connection");
}

/// F114: if every source is to be masqueraded, endpoints see the node's address, even for connections of
/// local workloads.
#[test]
fn f114_with_every_source_masqueraded_workloads_are_too() {
    let mut desired = web();
    desired.networks.workloads = ["10.1.0.0/16", "fd01::/16"].map(|text| text.parse().unwrap()).into();
    desired.networks.masquerade_sources = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap()).into();
    let topology = topology("masqall", &desired);
    for ip in ["10.96.0.1", "fd96::1"] {
        for namespace in [&topology.client, &topology.a, &topology.b] {
            for answer in namespace.ask_tcp_often(ip, 80, 12) {
                let nodes = ["10.1.1.1", "10.1.2.1", "fd01:1::1", "fd01:2::1"].map(address);
                assert!(nodes.contains(&answer.source), "{ip} from {}: {answer:?}", namespace.name());
            }
        }
    }
}

#[test]
fn f046_weights_divide_new_connections() {
    let weighted = forward(Masquerade::OffCluster, &[("10.1.1.2", 8080, 300), ("10.1.2.2", 8080, 100)]);
    let program = program(&["10.96.0.1"], &[], &[(at("10.96.0.1", Protocol::Tcp, 80), weighted)]);
    let topology = topology("weight", &desired(vec![("web", program)]));
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for answer in topology.client.ask_tcp_often("10.96.0.1", 80, 1200) {
        *counts.entry(answer.name).or_default() += 1;
    }
    // 900 ± 15 is one standard deviation; six of them make a chance failure less likely than one in 10^8.
    assert!((810..=990).contains(&counts["a"]), "{counts:?}");
    assert_eq!(counts["a"] + counts["b"], 1200);
}

#[test]
fn f032_ports_without_endpoints_and_undefined_ports_are_refused_at_once() {
    let topology = topology("reject", &web());
    for namespace in [&topology.client, &topology.a, &topology.node] {
        for (ip, port) in
            [("10.96.0.1", 81), ("fd96::1", 81), ("10.96.0.1", 8080), ("fd96::1", 22), ("10.96.0.1", 30080)]
        {
            let tcp = namespace.ask_tcp(ip, port).unwrap_err();
            assert_eq!(
                tcp.kind(),
                ErrorKind::ConnectionRefused,
                "TCP {ip} {port} from {}: {tcp}",
                namespace.name()
            );
            let udp = namespace.udp(ip, port).ask(Duration::from_secs(3)).unwrap_err();
            // On the node itself the packet is rejected before it is sent.
            let kinds = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
            assert!(kinds.contains(&udp.kind()), "UDP {ip} {port} from {}: {udp}", namespace.name());
        }
    }
    let node_port = topology.client.ask_tcp("192.0.2.1", 30081).unwrap_err();
    assert_eq!(node_port.kind(), ErrorKind::ConnectionRefused);
}

/// Frontend that fails over: the error of an endpoint that refuses a datagram does not reach the client, which waits as after
/// a loss. Clients of other frontends get the error.
#[test]
fn refused_datagrams_are_lost_at_frontends_that_fail_over_and_only_there() {
    // Nobody listens at these ports of a workload and of the node.
    let refusing = [("10.96.0.1", "10.1.1.2"), ("fd96::1", "fd01:1::2"), ("10.96.0.2", "192.0.2.1")];
    let routes = refusing.into_iter().flat_map(|(ip, target)| {
        [(53, true), (54, false)].map(|(number, fails_over)| {
            let frontend = at(ip, Protocol::Udp, number);
            let verdict = forward(Masquerade::OffCluster, &[(target, 9, 1)]);
            (frontend, model::program::Route { fails_over, ..route(&frontend, verdict) })
        })
    });
    let desired = desired(vec![("dns", routed(routes.collect()))]);
    let topology = topology("failover", &desired);
    for namespace in [&topology.client, &topology.b, &topology.node] {
        // The links have their IPv6 addresses now.
        namespace.ask_udp("fd01:1::2", 8080).unwrap();
        for (ip, _) in refusing {
            let ask = |number| namespace.udp(ip, number).ask(Duration::from_millis(300)).unwrap_err().kind();
            let at = format!("{ip} from {}", namespace.name());
            assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&ask(53)), "{at}: {}", ask(53));
            assert_eq!(ask(54), ErrorKind::ConnectionRefused, "{at}");
        }
    }
    topology.node.run(|| {
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        let again = backend.apply(&desired, &Scope::Everything);
        assert_eq!(verified(&again), 0, "a restart writes nothing");
    });
}

#[test]
fn node_ports_answer_on_every_address_of_the_node_but_loopback() {
    let topology = topology("nodeport", &web());
    for ip in ["192.0.2.1", "10.1.1.1", "10.1.2.1", "2001:db8::1", "fd01:2::1"] {
        assert!(topology.client.ask_tcp(ip, 30080).is_ok(), "{ip}");
    }
    for ip in ["127.0.0.1", "::1"] {
        assert!(topology.node.ask_tcp(ip, 30080).is_err(), "{ip}");
    }
    assert!(
        topology.client.ask_tcp("10.1.1.2", 30080).is_err(),
        "an address behind the node is none of its own"
    );
}

/// Starts a TCP server on a port that sends all bytes back. The server handles one connection at a time.
fn echo(namespace: &Namespace, port: u16) {
    let listener = namespace.run(|| TcpListener::bind(("0.0.0.0", port)).unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..length]).unwrap();
        }
    });
}

/// An open connection survives changes of endpoints, weights and affinity, a restart of the agent, and the
/// retirement of the backend for another mode. After the retirement, new connections are no longer
/// translated.
#[test]
fn established_connections_survive_changes_restarts_and_the_change_of_mode() {
    let topology = Topology::new("survive");
    echo(&topology.a, 7000);
    let frontend = at("10.96.0.1", Protocol::Tcp, 80);
    let service = |list: &[(&str, u16, u16)], affinity_seconds| {
        let mut route = route(&frontend, forward(Masquerade::Always, list));
        route.affinity_seconds = affinity_seconds;
        desired(vec![("web", routed(vec![(frontend, route)]))])
    };
    let a = ("10.1.1.2", 7000, 1);
    topology.node.run(|| {
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        verified(&backend.apply(&service(&[a], None), &Scope::Everything));
        let mut stream = topology.client.run(|| TcpStream::connect("10.96.0.1:80").unwrap());
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut goes_on = |when: &str| {
            let mut answer = [0; 4];
            stream.write_all(b"ping").unwrap();
            stream.read_exact(&mut answer).unwrap_or_else(|error| panic!("{when}: {error}"));
        };
        goes_on("at first");
        let b = ("10.1.2.2", 8080, 1);
        for (when, list, affinity) in [
            ("another endpoint", vec![a, b], None),
            ("another weight", vec![("10.1.1.2", 7000, 3), b], None),
            ("affinity", vec![a, b], Some(60)),
            ("the other endpoint gone", vec![a], None),
            ("its own endpoint gone", vec![b], None),
        ] {
            verified(&backend.apply(&service(&list, affinity), &only(&["web"])));
            goes_on(when);
        }
        drop(backend);
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        verified(&backend.apply(&service(&[b], None), &Scope::Everything));
        goes_on("a restart");
        // The other mode has a nat chain too, which keeps the kernel's translation of established flows
        // active.
        topology.node.nft(
            "table ip other { chain pre { type nat hook prerouting priority -100; tcp dport 1 redirect to :2; }; }",
        );
        assert!(backend.retire().unwrap());
        assert!(!topology.node.has_table("tidegate"));
        goes_on("another mode");
        assert!(topology.client.ask_tcp("10.96.0.1", 80).is_err());
    });
}
