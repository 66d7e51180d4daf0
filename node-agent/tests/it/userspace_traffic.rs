//! Tests of userspace mode with real connections through the relay: sources, targets and failures.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    net::IpAddr,
    thread,
    time::Duration,
};

use model::{
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{PortRange, Weight},
    },
    program::{Frontend, Masquerade, Program, Role, Route, Target, Verdict},
};
use node_agent::dataplane::{
    Dataplane as _, DesiredState, Scope,
    userspace::{Limits, TABLE},
};

use crate::support::{
    self,
    net::{Server, Topology},
    programs::{address, at, desired, forward, node_port, only, port, program, set, verified},
    relay::{TcpServer, change, connect, echo, echoes, eventually, open, relaying},
};

const BOTH4: [(&str, u16, u16); 2] = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
const BOTH6: [(&str, u16, u16); 2] = [("fd01:1::2", 8080, 1), ("fd01:2::2", 8080, 1)];

/// Builds one Service with every kind of frontend (cluster IP, external address, node port), all of which
/// forward, and with cluster IP port 81, which rejects connections.
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
        ]);
    }
    desired(vec![("web", program(&["10.96.0.1", "fd96::1"], &["10.1.1.2", "fd01:1::2"], &frontends))])
}

const ENTRANCES: [(&str, u16); 6] = [
    ("10.96.0.1", 80),
    ("fd96::1", 80),
    ("203.0.113.7", 80),
    ("2001:db8:7::7", 80),
    ("192.0.2.1", 30080),
    ("2001:db8::1", 30080),
];

fn is_of_node(source: IpAddr) -> bool {
    ["10.1.1.1", "10.1.2.1", "fd01:1::1", "fd01:2::1"].map(address).contains(&source)
}

/// F053, F054: every frontend is relayed for TCP and UDP in both address families, and targets observe the
/// node's address as the source for every client.
#[test]
fn f053_f054_every_frontend_is_relayed_for_tcp_and_udp_in_both_families() {
    let (topology, _backend) = relaying("us-fwd", &web(), Limits::default());
    for namespace in [&topology.client, &topology.a, &topology.node] {
        for (ip, port) in ENTRANCES {
            let tcp = namespace.ask_tcp(ip, port);
            assert!(
                tcp.as_ref().is_ok_and(|it| is_of_node(it.source)),
                "TCP {ip} from {}: {tcp:?}",
                namespace.name()
            );
            let udp = namespace.ask_udp(ip, port);
            assert!(
                udp.as_ref().is_ok_and(|it| is_of_node(it.source)),
                "UDP {ip} from {}: {udp:?}",
                namespace.name()
            );
        }
        for ip in ["10.96.0.1", "fd96::1"] {
            for port in [81, 82] {
                let refused = namespace.ask_tcp(ip, port).unwrap_err();
                assert_eq!(
                    refused.kind(),
                    ErrorKind::ConnectionRefused,
                    "{ip} {port} from {}",
                    namespace.name()
                );
            }
        }
    }
}

/// Returns the number of TCP and UDP sockets on which the relay listens in the namespace of the node.
fn listeners(topology: &Topology) -> usize {
    let listing = topology.node.exec(&["ss", "-Hltun"]);
    listing.lines().filter(|line| line.contains("0.0.0.0:*") || line.contains("[::]:*")).count()
}

/// Both sides of a relayed connection have keepalives, so that a client or target that has vanished is
/// detected. Accepted connections inherit these options from the listening socket.
#[test]
fn both_sides_of_a_connection_are_asked_whether_they_are_there() {
    let frontends =
        [(at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &[("10.1.1.2", 9000, 1)]))];
    let wanted = desired(vec![("web", program(&["10.96.0.1"], &[], &frontends))]);
    let (topology, _backend) = relaying("us-alive", &wanted, Limits::default());
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let mut stream = connect(&topology.client, "10.96.0.1", 80).unwrap();
    assert!(echoes(&mut stream, "hello\n"));
    let sockets = topology.node.exec(&["ss", "-Htno", "state", "established"]);
    let asked = sockets.lines().filter(|line| line.contains("timer:(keepalive,4min"));
    assert_eq!(asked.count(), 2, "{sockets}");
}

/// F054, F055: each frontend that forwards has its own listening socket on a port chosen by the kernel. Rules
/// and sockets are removed with the Service, and a cleanup restores the initial ruleset.
#[test]
fn f054_f055_redirects_and_listeners_exist_while_the_service_does() {
    let topology = Topology::new("us-gone");
    topology.node.nft("add table inet theirs\nadd chain inet theirs c\nadd rule inet theirs c counter");
    let before = topology.node.exec(&["nft", "list", "ruleset"]);
    let mut backend = open(&topology.node, Limits::default());
    let mut wanted = web();
    verified(&backend.apply(&wanted, &Scope::Everything));
    assert!(topology.node.has_table(TABLE));
    assert_eq!(listeners(&topology), 12);
    assert!(topology.client.ask_tcp("10.96.0.1", 80).is_ok());
    let writes = verified(&backend.apply(&wanted, &Scope::Everything));
    assert_eq!(writes, 0, "a pass that changes nothing writes nothing");

    set(&mut wanted, "other", support::programs::simple("10.96.0.2", &BOTH4));
    wanted.programs.remove(&support::programs::key("web"));
    verified(&backend.apply(&wanted, &only(&["web", "other"])));
    assert!(!topology.node.list_table(TABLE).contains("203.0.113.7"));
    assert!(topology.client.ask_tcp("10.96.0.2", 80).is_ok());
    assert!(topology.client.ask_tcp("192.0.2.1", 30080).is_err());
    eventually("listeners of a Service that is gone are closed", || listeners(&topology) == 1);

    backend.cleanup().unwrap();
    assert_eq!(topology.node.exec(&["nft", "list", "ruleset"]), before);
    eventually("all listeners are closed", || listeners(&topology) == 0);
}

#[test]
fn f056_round_robin_gives_each_backend_its_turn() {
    let three = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1), ("10.1.2.2", 8081, 1)];
    let wanted = desired(vec![("web", support::programs::simple("10.96.0.1", &three))]);
    let (topology, _backend) = relaying("us-rr", &wanted, Limits::default());
    let _third = Server::start(&topology.b, "third", 8081);
    for connections in [10, 50] {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for answer in topology.client.ask_tcp_often("10.96.0.1", 80, connections) {
            *counts.entry(answer.name).or_default() += 1;
        }
        let (most, fewest) = (counts.values().max().unwrap(), counts.values().min().unwrap());
        assert!(counts.len() == 3 && most - fewest <= 1, "{counts:?}");
    }
}

#[test]
fn f068_f069_weights_divide_exactly_and_other_schedulers_are_refused_alone() {
    let weighted = support::programs::simple("10.96.0.1", &[("10.1.1.2", 8080, 3), ("10.1.2.2", 8080, 1)]);
    let mut wanted =
        desired(vec![("web", weighted), ("odd", support::programs::simple("10.96.0.2", &BOTH4))]);
    let scheduler = |name: &str| Some(model::kinds::service::Scheduler(name.to_owned().try_into().unwrap()));
    change(&mut wanted, "web", |route| route.scheduler = scheduler("wrr"));
    change(&mut wanted, "odd", |route| route.scheduler = scheduler("lblcr"));
    let topology = Topology::new("us-wrr");
    let mut backend = open(&topology.node, Limits::default());
    let pass = backend.apply(&wanted, &Scope::Everything);
    let odd = format!("{:?}", pass.outcomes[&support::programs::key("odd")]);
    assert!(odd.contains("Unsupported") && odd.contains("lblcr"), "{odd}");
    let answers = topology.client.ask_tcp_often("10.96.0.1", 80, 40);
    assert_eq!(answers.iter().filter(|answer| answer.name == "a").count(), 30);
    assert!(topology.client.ask_tcp("10.96.0.2", 80).is_err(), "nothing of it is programmed");
    change(&mut wanted, "odd", |route| route.scheduler = scheduler("lc"));
    verified(&backend.apply(&wanted, &only(&["odd"])));
    assert!(topology.client.ask_tcp("10.96.0.2", 80).is_ok());
}

/// F057: every connection succeeds if one endpoint works, although another one refuses connections and a
/// third one does not respond.
#[test]
fn f057_every_connection_succeeds_while_one_endpoint_does() {
    let list4 = [("10.1.1.2", 9, 1), ("10.1.2.99", 8080, 1), ("10.1.2.2", 8080, 1)];
    let list6 = [("fd01:1::2", 9, 1), ("fd01:2::99", 8080, 1), ("fd01:2::2", 8080, 1)];
    let refusing4 = [("10.1.1.2", 9, 1), ("10.1.2.2", 8080, 1)];
    let refusing6 = [("fd01:1::2", 9, 1), ("fd01:2::2", 8080, 1)];
    let frontends = [
        (at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &list4)),
        (at("fd96::1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &list6)),
        (at("10.96.0.1", Protocol::Udp, 80), forward(Masquerade::OffCluster, &refusing4)),
        (at("fd96::1", Protocol::Udp, 80), forward(Masquerade::OffCluster, &refusing6)),
    ];
    let wanted = desired(vec![("web", program(&["10.96.0.1", "fd96::1"], &[], &frontends))]);
    let (topology, backend) = relaying("us-dead", &wanted, Limits::default());
    for ip in ["10.96.0.1", "fd96::1"] {
        for answer in topology.client.ask_tcp_often(ip, 80, 9) {
            assert_eq!(answer.name, "b");
        }
        for _ in 0..6 {
            assert_eq!(topology.client.ask_udp(ip, 80).unwrap().name, "b");
        }
    }
    assert!(backend.relay_counters().retries > 0);
    assert_eq!(backend.relay_counters().unplaced, 0);
}

#[test]
fn a_connection_that_no_endpoint_takes_is_reset() {
    let wanted = desired(vec![("web", support::programs::simple("10.96.0.1", &[("10.1.1.2", 9, 1)]))]);
    let (topology, backend) = relaying("us-none", &wanted, Limits::default());
    let error = topology.client.ask_tcp("10.96.0.1", 80).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(backend.relay_counters().unplaced, 1);
}

#[test]
fn f047_a_source_stays_until_its_time_is_over_or_its_endpoint_goes() {
    let mut wanted = desired(vec![("web", support::programs::simple("10.96.0.1", &BOTH4))]);
    change(&mut wanted, "web", |route| route.affinity_seconds = Some(1));
    let (topology, mut backend) = relaying("us-affinity", &wanted, Limits::default());
    let names = |times| -> BTreeSet<String> {
        topology.client.ask_tcp_often("10.96.0.1", 80, times).into_iter().map(|answer| answer.name).collect()
    };
    let held = names(8);
    assert_eq!(held.len(), 1);
    thread::sleep(Duration::from_millis(1100));
    let after = names(1);
    assert_ne!(after, held, "round robin goes on when the time is over");
    change(&mut wanted, "web", |route| route.affinity_seconds = Some(100));
    verified(&backend.apply(&wanted, &only(&["web"])));
    assert_eq!(names(3), after, "what was remembered is kept");
    let is_a = after.contains("a");
    let rest = if is_a { BOTH4[1] } else { BOTH4[0] };
    let mut fewer = support::programs::simple("10.96.0.1", &[rest]);
    fewer.frontends.iter_mut().map(|(_, route)| route).for_each(|route| route.affinity_seconds = Some(100));
    set(&mut wanted, "web", fewer);
    verified(&backend.apply(&wanted, &only(&["web"])));
    assert_ne!(names(3), after, "its endpoint is gone");
}

/// F048, F049: with external policy Local, outside clients reach only local endpoints, and the node and
/// workloads reach all endpoints; sources outside of the allowed ranges are blocked.
#[test]
fn f048_f049_each_class_of_sources_meets_its_own_targets() {
    let local = forward(Masquerade::Never, &[("10.1.1.2", 8080, 1)]);
    let route = Route {
        from_elsewhere: local,
        ..Route::new(Role::LoadBalancer, forward(Masquerade::Always, &BOTH4))
    };
    let ranged = Route {
        allowed_sources: Some(BTreeSet::from(["198.51.100.0/24".parse().unwrap()])),
        ..Route::new(Role::LoadBalancer, forward(Masquerade::Always, &BOTH4))
    };
    let program = Program {
        frontends: [
            (at("203.0.113.7", Protocol::Tcp, 80), route),
            (at("203.0.113.8", Protocol::Tcp, 80), ranged),
        ]
        .into_iter()
        .collect(),
        ..Program::default()
    };
    let mut wanted = desired(vec![("web", program)]);
    wanted.networks.workloads = BTreeSet::from(["10.1.0.0/16".parse().unwrap()]);
    let (topology, _backend) = relaying("us-local", &wanted, Limits::default());
    let names = |namespace: &support::Namespace| -> BTreeSet<String> {
        namespace.ask_tcp_often("203.0.113.7", 80, 6).into_iter().map(|answer| answer.name).collect()
    };
    assert_eq!(names(&topology.client).len(), 1);
    assert_eq!(names(&topology.b).len(), 2);
    assert_eq!(names(&topology.node).len(), 2);
    assert!(topology.node.ask_tcp("203.0.113.8", 80).is_ok(), "the node is exempt");
    let outside = topology.client.run(|| {
        std::net::TcpStream::connect_timeout(&"203.0.113.8:80".parse().unwrap(), Duration::from_millis(400))
    });
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_frontend_of_several_ports_keeps_the_port_of_the_client() {
    let frontend =
        |protocol| Frontend { ports: PortRange::new(port(8000), port(8100)), ..at("10.96.0.1", protocol, 1) };
    let targets = BTreeMap::from([(Target { address: address("10.1.1.2"), port: None }, Weight(1))]);
    let verdict =
        Verdict::Forward { masquerade: Masquerade::OffCluster, targets: std::sync::Arc::new(targets) };
    let frontends = [Protocol::Tcp, Protocol::Udp]
        .map(|protocol| (frontend(protocol), Route::new(Role::ClusterIp, verdict.clone())));
    let program = Program { frontends: frontends.into_iter().collect(), ..Program::default() };
    let (topology, _backend) = relaying("us-range", &desired(vec![("web", program)]), Limits::default());
    let _other = Server::start(&topology.a, "other", 8099);
    for (port, name) in [(8080, "a"), (8099, "other")] {
        assert_eq!(topology.client.ask_tcp("10.96.0.1", port).unwrap().name, name);
        assert_eq!(topology.client.ask_udp("10.96.0.1", port).unwrap().name, name);
    }
}

/// A direct connection to the port of a listening socket, without redirection, gets no reply.
#[test]
fn listeners_answer_only_what_was_captured() {
    let (topology, backend) = relaying("us-stray", &web(), Limits::default());
    let listing = topology.node.exec(&["ss", "-Hltun"]);
    let ports: Vec<(String, u16)> = listing
        .lines()
        .map(|line| {
            let mut columns = line.split_whitespace();
            let kind = columns.next().unwrap().to_owned();
            (kind, columns.nth(3).unwrap().rsplit(':').next().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(ports.len(), 12);
    for (kind, port) in ports {
        for ip in ["192.0.2.1", "2001:db8::1"] {
            if kind == "tcp" {
                let error = topology.client.ask_tcp(ip, port).unwrap_err();
                let kinds = [ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused];
                assert!(kinds.contains(&error.kind()), "{ip} {port}: {error}");
            } else {
                assert!(topology.client.udp(ip, port).ask(Duration::from_millis(10)).is_err(), "{ip} {port}");
            }
        }
    }
    let counters = backend.relay_counters();
    assert!(counters.strays >= 12, "{counters:?}");
    assert!(backend.relay_counters().unplaced == 0);
}
