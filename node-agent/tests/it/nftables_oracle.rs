//! Tests with random packet programs and networks: the result of each real connection must be the one that
//! the oracle (pure interpreter of packet programs) computes.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    io::{self, ErrorKind, Read},
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use model::{
    kinds::service::Protocol,
    primitives::net::IpFamily,
    program::{
        Frontend, Masquerade, Program, Route, Verdict,
        oracle::{self, Connection, Fate, Networks},
    },
};
use node_agent::dataplane::{
    Dataplane, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};
use proptest::{prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};

use crate::support::{
    Namespace,
    net::{Server, Topology},
    programs::*,
};

/// Number of generated packet programs. Each is tested from three hosts and with every destination.
const PROGRAMS: usize = 15;
/// Time without a reply after which a packet counts as dropped.
const SILENCE: Duration = Duration::from_millis(300);
/// Maximum time to wait for a connection that is expected to succeed.
const PATIENCE: Duration = Duration::from_secs(8);
const RELAY_PORT: u16 = 15_000;

/// Destinations that are tested: frontends, and ports without a Service.
const DESTINATIONS: [(&str, u16); 12] = [
    ("10.96.0.1", 80),
    ("10.96.0.1", 81),
    ("203.0.113.7", 8080),
    ("203.0.113.7", 9001),
    ("192.0.2.1", 30080),
    ("10.1.1.1", 30080),
    ("fd96::1", 80),
    ("fd96::1", 8080),
    ("fd96::1", 81),
    ("2001:db8::1", 30080),
    ("10.96.0.9", 80),
    ("fd96::9", 80),
];

fn frontends() -> [Frontend; 7] {
    let tcp = Protocol::Tcp;
    [
        at("10.96.0.1", tcp, 80),
        range("203.0.113.7", tcp, 8080, 9000),
        node_port(IpFamily::V4, tcp, 30080),
        at("fd96::1", tcp, 80),
        range("fd96::1", tcp, 8000, 8100),
        node_port(IpFamily::V6, tcp, 30080),
        // A node address as a specific frontend, which takes precedence over the node port.
        at("10.1.1.1", tcp, 30080),
    ]
}

fn any_verdict(frontend: Frontend) -> impl Strategy<Value = Verdict> {
    let ips = match frontend.destination.family() {
        IpFamily::V4 => ["10.1.1.2", "10.1.2.2"],
        IpFamily::V6 => ["fd01:1::2", "fd01:2::2"],
    };
    let masquerade = select(vec![Masquerade::Never, Masquerade::OffCluster, Masquerade::Always]);
    let forward =
        (masquerade, select(vec![&[0, 1][..], &[0], &[1]])).prop_map(move |(masquerade, chosen)| {
            let ips: Vec<_> = chosen.iter().map(|index: &usize| ips[*index]).collect();
            if frontend.ports.single().is_none() {
                forward_ports(masquerade, &ips)
            } else {
                forward(masquerade, &ips.iter().map(|ip| (*ip, 8080, 1)).collect::<Vec<_>>())
            }
        });
    prop_oneof![
        4 => forward,
        1 => Just(Verdict::Reject),
        1 => Just(Verdict::Drop),
        1 => Just(Verdict::Relay { port: port(RELAY_PORT) }),
    ]
}

fn any_route(frontend: Frontend) -> impl Strategy<Value = Route> {
    let verdicts = [any_verdict(frontend), any_verdict(frontend), any_verdict(frontend)];
    let allowed = prop::option::of(any_networks());
    (verdicts, any::<bool>(), allowed, prop::option::of(Just(600))).prop_map(
        move |(verdicts, is_uniform, allowed_sources, affinity_seconds)| {
            let route = if is_uniform {
                route(&frontend, verdicts[0].clone())
            } else {
                by_source(&frontend, verdicts)
            };
            Route { allowed_sources, affinity_seconds, ..route }
        },
    )
}

fn any_networks() -> impl Strategy<Value = std::collections::BTreeSet<ipnet::IpNet>> {
    let all = ["192.0.2.0/24", "10.1.0.0/24", "10.1.2.0/24", "2001:db8::/64", "fd01:2::/64", "10.1.1.1/32"];
    prop::sample::subsequence(all.to_vec(), 0..all.len()).prop_map(|list| nets(&list))
}

fn any_program() -> impl Strategy<Value = (Program, Networks)> {
    let routes: Vec<_> = frontends()
        .into_iter()
        .map(|frontend| prop::option::weighted(0.8, any_route(frontend)).boxed())
        .collect();
    let node_ports = prop_oneof![Just(Networks::default().node_ports), any_networks()];
    let services =
        prop::sample::subsequence(vec!["10.96.0.0/24", "fd96::/64"], 0..=2).prop_map(|list| nets(&list));
    (routes, any_networks(), any_networks(), node_ports, services, any::<bool>()).prop_map(
        |(routes, workloads, masquerade_sources, node_ports, services, has_hairpins)| {
            let routes = frontends().into_iter().zip(routes);
            let routes = routes.filter_map(|(frontend, route)| Some((frontend, route?))).collect();
            let hairpins = ["10.1.2.2", "fd01:2::2"].map(address);
            let program = Program {
                virtual_addresses: ["10.96.0.1", "fd96::1", "203.0.113.7"].map(address).into(),
                hairpins: hairpins.into_iter().filter(|_| has_hairpins).collect(),
                ..routed(routes)
            };
            (program, Networks { workloads, masquerade_sources, node_ports, services })
        },
    )
}

/// Connects to a destination and waits at most `wait` for the reply. Returns the name of the server and the
/// client address that the server observed.
fn ask(namespace: &Namespace, ip: &str, port: u16, wait: Duration) -> io::Result<(String, IpAddr)> {
    let destination = SocketAddr::new(address(ip), port);
    namespace.run(move || {
        let mut stream = TcpStream::connect_timeout(&destination, wait)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (name, source) = text.split_once(' ').unwrap();
        Ok((name.to_owned(), source.parse().unwrap()))
    })
}

const NODE_ADDRESSES: [&str; 6] =
    ["192.0.2.1", "10.1.1.1", "10.1.2.1", "2001:db8::1", "fd01:1::1", "fd01:2::1"];

/// Returns true if the observed result `came` is one that the oracle's result `fate` allows.
fn agrees(fate: &Fate, source: IpAddr, is_from_node: bool, came: &io::Result<(String, IpAddr)>) -> bool {
    let failed_as = |kinds: &[ErrorKind]| came.as_ref().is_err_and(|error| kinds.contains(&error.kind()));
    match fate {
        Fate::Untouched => true,
        Fate::Reject => failed_as(&[ErrorKind::ConnectionRefused]),
        Fate::Drop => failed_as(&[ErrorKind::TimedOut, ErrorKind::PermissionDenied]),
        Fate::Relay(_) => came.as_ref().is_ok_and(|(name, _)| name == "relay"),
        Fate::Forward { targets, is_masqueraded, hairpins } => {
            let Ok((name, seen)) = came else { return may_be_silent(fate, source) };
            let ips = if source.is_ipv4() { ["10.1.1.2", "10.1.2.2"] } else { ["fd01:1::2", "fd01:2::2"] };
            let target = address(if name == "a" { ips[0] } else { ips[1] });
            let is_target = targets.keys().any(|(ip, _)| *ip == target);
            let sees_node = NODE_ADDRESSES.map(address).contains(seen);
            let should = *is_masqueraded || hairpins.contains(&target);
            name != "relay" && is_target && (is_from_node || sees_node == should)
        }
    }
}

/// Returns true if the oracle's result allows that no reply arrives: an endpoint cannot reply to itself
/// without masquerading.
fn may_be_silent(fate: &Fate, source: IpAddr) -> bool {
    match fate {
        Fate::Drop | Fate::Untouched => true,
        Fate::Reject | Fate::Relay(_) => false,
        Fate::Forward { targets, is_masqueraded, hairpins } => {
            let is_own = |(target, _): &(IpAddr, _)| *target == source && !hairpins.contains(target);
            !is_masqueraded && targets.keys().any(is_own)
        }
    }
}

/// Returns the time to wait for the result of a connection: long if a reply is expected, because a busy
/// machine may lose the first packet.
fn wait(fate: &Fate, source: IpAddr) -> Duration {
    if may_be_silent(fate, source) { SILENCE } else { PATIENCE }
}

#[test]
fn real_connections_end_as_the_interpreter_says() {
    let topology = Topology::new("oracle");
    let _listener = Server::start(&topology.node, "relay", RELAY_PORT);
    let mut runner = TestRunner::default();
    let mut asked = 0;
    topology.node.run(|| {
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        for _ in 0..PROGRAMS {
            let (program, networks) = any_program().new_tree(&mut runner).unwrap().current();
            let mut desired = desired(vec![("web", program.clone())]);
            desired.networks = networks.clone();
            verified(&backend.apply(&desired, &Scope::Everything));
            for (ip, number) in DESTINATIONS {
                for namespace in [&topology.client, &topology.b, &topology.node] {
                    let is_from_node = namespace.name() == topology.node.name();
                    let connection = connection(&topology, namespace, address(ip), port(number));
                    let fate = oracle::fate([&program].into_iter(), &networks, &connection);
                    let came = ask(namespace, ip, number, wait(&fate, connection.source));
                    asked += 1;
                    assert!(
                        agrees(&fate, connection.source, is_from_node, &came),
                        "{connection:?}: {fate:?}, but {came:?}; {program:#?} {networks:?}"
                    );
                }
            }
        }
    });
    println!("{asked} connections");
}

fn connection(
    topology: &Topology,
    namespace: &Namespace,
    destination: IpAddr,
    port: model::primitives::quantity::Port,
) -> Connection {
    let is_from_node = namespace.name() == topology.node.name();
    let is_node_address = NODE_ADDRESSES.map(address).contains(&destination);
    let [client, workload, node] = if destination.is_ipv4() {
        ["192.0.2.2", "10.1.2.2", "192.0.2.1"]
    } else {
        ["2001:db8::2", "fd01:2::2", "2001:db8::1"]
    };
    let source = match (is_from_node, is_node_address) {
        (true, true) => destination,
        (true, false) => address(node),
        (false, _) => address(if namespace.name() == topology.client.name() { client } else { workload }),
    };
    Connection { source, is_from_node, destination, is_node_address, protocol: Protocol::Tcp, port }
}
