//! Tests of ipvs mode with real packets to IPVS virtual servers.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests, and its cases are listed"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    thread,
    time::Duration,
};

use model::{
    kinds::service::{Protocol, Scheduler},
    primitives::{name::Label, net::IpFamily},
    program::{Masquerade, Program, Removal, Role, Route, Verdict},
};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, bind, socket};
use node_agent::dataplane::{BackendOptions, Dataplane, DesiredState, Scope, ipvs::IpvsBackend};

use crate::support::{
    Namespace, counters, drain, guest,
    net::{Server, Topology},
    programs::*,
};

const BOTH4: [(&str, u16, u16); 2] = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
const BOTH6: [(&str, u16, u16); 2] = [("fd01:1::2", 8080, 1), ("fd01:2::2", 8080, 1)];

fn open() -> IpvsBackend {
    IpvsBackend::open(&BackendOptions::default()).unwrap()
}

fn apply(topology: &Topology, desired: &DesiredState) {
    topology.node.run(|| verified(&open().apply(desired, &Scope::Everything)));
}

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

fn is_node(ip: std::net::IpAddr) -> bool {
    ["10.1.1.1", "10.1.2.1", "fd01:1::1", "fd01:2::1"].map(address).contains(&ip)
}

fn every_frontend_forwards() {
    let topology = Topology::new("fwd");
    apply(&topology, &web());
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

fn sources_are_masqueraded_as_the_program_says() {
    let topology = Topology::new("masq");
    apply(&topology, &web());
    for (ip, port) in [("10.96.0.1", 80), ("fd96::1", 80), ("203.0.113.7", 80), ("192.0.2.1", 30080)] {
        let source = topology.client.ask_tcp(ip, port).unwrap().source;
        assert!(is_node(source), "{ip} from outside: the workload saw {source}");
        let source = topology.client.ask_udp(ip, port).unwrap().source;
        assert!(is_node(source), "{ip} from outside over UDP: the workload saw {source}");
    }
    for (ip, own) in [("10.96.0.1", "10.1.1.2"), ("fd96::1", "fd01:1::2")] {
        for answer in topology.a.ask_tcp_often(ip, 80, 6) {
            match answer.name.as_str() {
                "b" => assert_eq!(answer.source, address(own), "workloads keep their source"),
                _ => assert!(is_node(answer.source), "a workload reaches itself by the node's address"),
            }
        }
    }
    let answers = topology.a.ask_tcp_often("203.0.113.7", 80, 4);
    assert!(answers.iter().all(|answer| is_node(answer.source)));
    let names: BTreeSet<_> = answers.into_iter().map(|answer| answer.name).collect();
    assert_eq!(names.len(), 2, "round robin: a met itself");
}

fn every_source_is_masqueraded_when_all_are() {
    let topology = Topology::new("all");
    let mut desired = web();
    desired.networks.masquerade_sources = ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()].into();
    apply(&topology, &desired);
    for ip in ["10.96.0.1", "fd96::1"] {
        let answers = topology.a.ask_tcp_often(ip, 80, 4);
        assert!(answers.iter().all(|answer| is_node(answer.source)), "{answers:?}");
    }
}

fn what_is_not_served_is_refused() {
    let topology = Topology::new("refuse");
    apply(&topology, &web());
    // A daemon of the node that listens on all addresses.
    let _daemon = Server::start(&topology.node, "daemon", 8080);
    let undefined =
        [("10.96.0.1", 81), ("fd96::1", 81), ("10.96.0.1", 8080), ("fd96::1", 8080), ("10.96.0.1", 30080)];
    for namespace in [&topology.client, &topology.a, &topology.node] {
        for (ip, port) in undefined {
            let tcp = namespace.ask_tcp(ip, port).unwrap_err();
            assert_eq!(tcp.kind(), ErrorKind::ConnectionRefused, "TCP {ip} {port} from {}", namespace.name());
            let udp = namespace.udp(ip, port).ask(Duration::from_secs(3)).unwrap_err();
            let kinds = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
            assert!(kinds.contains(&udp.kind()), "UDP {ip} {port} from {}: {udp}", namespace.name());
        }
    }
    assert!(topology.client.ask_tcp("203.0.113.7", 8080).is_err(), "no daemon at an external address");
    let node_port = topology.client.ask_tcp("192.0.2.1", 30081).unwrap_err();
    assert_eq!(node_port.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(
        topology.client.ask_tcp("192.0.2.1", 8080).unwrap().name,
        "daemon",
        "at its own address it answers"
    );
}

/// Builds a Service whose ports 80 and 82 have external policy Local (only port 80 has an endpoint on this
/// node), and whose ports 83 and 84 have source ranges.
fn policies() -> DesiredState {
    let local = |elsewhere: Verdict| Route {
        from_workloads: forward(Masquerade::Never, &BOTH4),
        from_node: forward(Masquerade::Always, &BOTH4),
        from_elsewhere: elsewhere,
        ..Route::new(Role::LoadBalancer, Verdict::Drop)
    };
    let ranged = |range: &str| Route {
        allowed_sources: Some([range.parse().unwrap()].into()),
        ..Route::new(Role::LoadBalancer, forward(Masquerade::Always, &BOTH4))
    };
    let frontends = [
        (at("203.0.113.8", Protocol::Tcp, 80), local(forward(Masquerade::Never, &BOTH4[..1]))),
        (at("203.0.113.8", Protocol::Tcp, 82), local(Verdict::Drop)),
        (at("203.0.113.8", Protocol::Tcp, 83), ranged("192.0.2.0/28")),
        (at("203.0.113.8", Protocol::Tcp, 84), ranged("198.51.100.0/24")),
        (node_port(IpFamily::V4, Protocol::Tcp, 30082), local(forward(Masquerade::Never, &BOTH4[..1]))),
        (at("203.0.113.8", Protocol::Udp, 80), local(forward(Masquerade::Never, &BOTH4[..1]))),
        (node_port(IpFamily::V4, Protocol::Udp, 30082), local(forward(Masquerade::Never, &BOTH4[..1]))),
        (node_port(IpFamily::V4, Protocol::Tcp, 30084), ranged("198.51.100.0/24")),
    ];
    let program = Program {
        frontends: frontends.into_iter().collect(),
        virtual_addresses: [address("203.0.113.8")].into(),
        hairpins: [address("10.1.1.2")].into(),
        health_check: None,
    };
    let mut desired = web();
    set(&mut desired, "policies", program);
    desired
}

fn local_policy_keeps_the_client_address_and_drops_without_endpoints() {
    let topology = Topology::new("local");
    apply(&topology, &policies());
    for (ip, port) in [("203.0.113.8", 80), ("192.0.2.1", 30082)] {
        for answer in topology.client.ask_tcp_often(ip, port, 4) {
            assert_eq!((answer.name.as_str(), answer.source), ("a", address("192.0.2.2")), "{ip}");
        }
        for _ in 0..4 {
            let answer = topology.client.ask_udp(ip, port).unwrap();
            assert_eq!((answer.name.as_str(), answer.source), ("a", address("192.0.2.2")), "UDP {ip}");
        }
    }
    assert_eq!(topology.b.ask_tcp("203.0.113.8", 80).unwrap().source, address("10.1.2.2"));
    assert!(is_node(topology.node.ask_tcp("203.0.113.8", 80).unwrap().source));
    let dropped = topology.client.ask_tcp("203.0.113.8", 82).unwrap_err();
    assert_eq!(dropped.kind(), ErrorKind::TimedOut, "from elsewhere: dropped without an answer");
    assert!(topology.a.ask_tcp("203.0.113.8", 82).is_ok(), "workloads meet the endpoints elsewhere");
    assert!(topology.node.ask_tcp("203.0.113.8", 82).is_ok(), "so does the node");
}

fn only_listed_sources_pass() {
    let topology = Topology::new("cidr");
    apply(&topology, &policies());
    assert!(is_node(topology.client.ask_tcp("203.0.113.8", 83).unwrap().source));
    for (ip, port) in [("203.0.113.8", 84), ("192.0.2.1", 30084)] {
        assert_eq!(topology.client.ask_tcp(ip, port).unwrap_err().kind(), ErrorKind::TimedOut, "{ip} {port}");
        assert!(topology.node.ask_tcp(ip, port).is_ok(), "the node itself always may: {ip} {port}");
    }
}

fn with(scheduler: &str, list: &[(&str, u16, u16)]) -> Program {
    let mut program = simple("10.96.0.1", list);
    for (_, route) in &mut program.frontends {
        route.scheduler = Some(Scheduler(Label::parse(scheduler).unwrap()));
    }
    program
}

fn counts(client: &Namespace, ip: &str, times: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for answer in client.ask_tcp_often(ip, 80, times) {
        *counts.entry(answer.name).or_default() += 1;
    }
    counts
}

fn rr_and_wrr_divide_exactly() {
    let topology = Topology::new("rr");
    apply(&topology, &desired(vec![("web", with("rr", &BOTH4))]));
    assert_eq!(
        counts(&topology.client, "10.96.0.1", 20),
        [("a".to_owned(), 10), ("b".to_owned(), 10)].into()
    );
    let weighted = [("10.1.1.2", 8080, 3), ("10.1.2.2", 8080, 1)];
    for program in [with("wrr", &weighted), simple("10.96.0.1", &weighted)] {
        apply(&topology, &desired(vec![("web", program)]));
        assert_eq!(
            counts(&topology.client, "10.96.0.1", 20),
            [("a".to_owned(), 15), ("b".to_owned(), 5)].into()
        );
    }
}

/// Starts a TCP server that sends its name and then echoes lines until the client closes the connection. Each
/// connection has its own thread.
fn hold(namespace: &Namespace, name: &'static str, port: u16) {
    let listener = namespace.run(|| TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let _ = stream.write_all(name.as_bytes());
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Opens a connection that stays open. Returns the name of the server and the connection.
fn connect(client: &Namespace, ip: &str, port: u16) -> (String, TcpStream) {
    let at = SocketAddr::new(address(ip), port);
    let mut stream = client.run(move || TcpStream::connect_timeout(&at, Duration::from_secs(5))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut name = [0];
    stream.read_exact(&mut name).unwrap();
    (String::from_utf8(name.to_vec()).unwrap(), stream)
}

/// Sends a line and returns true if the server sends the same line back.
fn echoes(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut buffer).is_ok() && buffer == *b"hello"
}

fn holding(test: &str, scheduler: &str, weights: [u16; 2]) -> Topology {
    let topology = Topology::new(test);
    hold(&topology.a, "a", 9090);
    hold(&topology.b, "b", 9090);
    let list = [("10.1.1.2", 9090, weights[0]), ("10.1.2.2", 9090, weights[1])];
    apply(&topology, &desired(vec![("web", with(scheduler, &list))]));
    topology
}

/// Opens `connections` connections that stay open. Returns the names of their servers in order, and the
/// connections.
fn trace(topology: &Topology, connections: usize) -> (String, Vec<TcpStream>) {
    (0..connections).map(|_| connect(&topology.client, "10.96.0.1", 80)).unzip()
}

fn lc_and_wlc_choose_the_least_busy() {
    let topology = holding("lc", "lc", [1, 1]);
    let (names, streams) = trace(&topology, 6);
    assert_eq!(names.matches('a').count(), 3, "{names}");
    let mut by_name: BTreeMap<char, Vec<TcpStream>> = BTreeMap::new();
    for (name, stream) in names.chars().zip(streams) {
        by_name.entry(name).or_default().push(stream);
    }
    // All of b's connections end; the next three go to b. Closed ones weigh 1, active ones 256.
    drop(by_name.remove(&'b'));
    thread::sleep(Duration::from_millis(300));
    let (names, _streams) = trace(&topology, 2);
    assert_eq!(names, "bb");
    drop(topology);
    let topology = holding("wlc", "wlc", [3, 1]);
    let (names, _streams) = trace(&topology, 8);
    assert_eq!(names.matches('a').count(), 6, "{names}");
}

/// Scheduler `sed` selects the server with the smallest (active + 1) / weight. Scheduler `nq` selects an idle
/// server if there is one, else the same server as `sed`. The weights in the test avoid ties.
fn sed_and_nq_follow_their_formulas() {
    let topology = holding("sed", "sed", [5, 2]);
    let (names, _streams) = trace(&topology, 5);
    assert_eq!(names, shortest_delay([5, 2], [0, 0], 5), "sed");
    drop(topology);
    let topology = holding("nq", "nq", [5, 2]);
    let (names, _streams) = trace(&topology, 5);
    assert!(["ab", "ba"].contains(&&names[..2]), "an idle endpoint is chosen before a busy one: {names}");
    assert_eq!(names[2..], shortest_delay([5, 2], [1, 1], 3), "nq");
}

fn shortest_delay(weights: [u32; 2], mut active: [u32; 2], connections: usize) -> String {
    let mut names = String::new();
    for _ in 0..connections {
        let chosen = (0..2).min_by_key(|index| (active[*index] + 1) * weights[1 - *index]).unwrap();
        active[chosen] += 1;
        names.push(['a', 'b'][chosen]);
    }
    names
}

fn sh_and_dh_hash_one_end() {
    let topology = Topology::new("hash");
    for host in 3..11 {
        topology.client.ip(&["addr", "add", &format!("192.0.2.{host}/24"), "dev", "eth0"]);
    }
    apply(&topology, &desired(vec![("web", with("sh", &BOTH4))]));
    let mut all = BTreeSet::new();
    for host in 2..11 {
        let names = ask_from(&topology.client, &format!("192.0.2.{host}"), "10.96.0.1", 4);
        assert_eq!(names.len(), 1, "one source meets one endpoint: {names:?}");
        all.extend(names);
    }
    assert_eq!(all.len(), 2, "other sources meet others");
    let mut desired = DesiredState::default();
    for host in 1..9 {
        let mut program = simple(&format!("10.96.0.{host}"), &BOTH4);
        for (_, route) in &mut program.frontends {
            route.scheduler = Some(Scheduler(Label::parse("dh").unwrap()));
        }
        set(&mut desired, &format!("s{host}"), program);
    }
    apply(&topology, &desired);
    let mut all = BTreeSet::new();
    for host in 1..9 {
        let counts = counts(&topology.client, &format!("10.96.0.{host}"), 4);
        assert_eq!(counts.len(), 1, "one destination meets one endpoint: {counts:?}");
        all.extend(counts.into_keys());
    }
    assert_eq!(all.len(), 2, "other destinations meet others");
}

fn ask_from(client: &Namespace, source: &str, ip: &str, times: usize) -> BTreeSet<String> {
    let (source, to) = (SocketAddr::new(address(source), 0), SocketAddr::new(address(ip), 80));
    let ask = |_| {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(socket.as_raw_fd(), &SockaddrStorage::from(source)).unwrap();
        socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(to)).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut output = String::new();
        stream.read_to_string(&mut output).unwrap();
        output.split(' ').next().unwrap().to_owned()
    };
    client.run(|| (0..times).map(ask).collect())
}

fn a_client_stays_until_its_endpoint_goes() {
    let topology = Topology::new("affine");
    let mut sticky = simple("10.96.0.1", &BOTH4);
    for (_, route) in &mut sticky.frontends {
        route.affinity_seconds = Some(600);
    }
    topology.node.run(|| {
        let mut backend = open();
        let mut desired = desired(vec![("web", sticky.clone())]);
        verified(&backend.apply(&desired, &Scope::Everything));
        let first = counts(&topology.client, "10.96.0.1", 6);
        assert_eq!(first.len(), 1, "{first:?}");
        let (gone, rest) = if first.contains_key("a") { ("a", &BOTH4[1..]) } else { ("b", &BOTH4[..1]) };
        let mut smaller = simple("10.96.0.1", rest);
        for (_, route) in &mut smaller.frontends {
            route.affinity_seconds = Some(600);
        }
        set(&mut desired, "web", smaller);
        verified(&backend.apply(&desired, &only(&["web"])));
        let second = counts(&topology.client, "10.96.0.1", 4);
        assert!(!second.contains_key(gone), "{second:?}");
        set(&mut desired, "web", sticky.clone());
        verified(&backend.apply(&desired, &only(&["web"])));
        let third = counts(&topology.client, "10.96.0.1", 4);
        assert!(!third.contains_key(gone), "it stays where it went: {third:?}");
    });
}

fn destinations(node: &Namespace) -> Vec<String> {
    let listing = node.exec(&["ipvsadm", "-ln"]);
    let words = listing.lines().filter(|line| line.contains("-> 10.")).map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        format!("{} weight {}", words[1], words[3])
    });
    words.collect::<BTreeSet<_>>().into_iter().collect()
}

fn targets_go_with_their_last_connection() {
    let topology = holding("drain", "rr", [1, 1]);
    let both = [("10.1.1.2", 9090, 1), ("10.1.2.2", 9090, 1)];
    let with_removal = |list: &[(&str, u16, u16)], removal| {
        let mut program = simple("10.96.0.1", list);
        program.frontends.iter_mut().map(|(_, route)| route).for_each(|route| route.removal = removal);
        desired(vec![("web", program)])
    };
    let (mut name, mut stream) = connect(&topology.client, "10.96.0.1", 80);
    if name != "a" {
        (name, stream) = connect(&topology.client, "10.96.0.1", 80);
    }
    assert_eq!(name, "a");
    topology.node.run(|| {
        let mut backend = open();
        verified(&backend.apply(&with_removal(&both[1..], Removal::Keep), &Scope::Everything));
        let waiting = ["10.1.1.2:9090 weight 0", "10.1.2.2:9090 weight 1"];
        assert_eq!(destinations(&topology.node), waiting);
        assert!(echoes(&mut stream), "its connection goes on");
        for _ in 0..3 {
            assert_eq!(connect(&topology.client, "10.96.0.1", 80).0, "b", "new ones go elsewhere");
        }
        backend.upkeep().unwrap();
        assert_eq!(destinations(&topology.node), waiting);
        // A new process recognizes draining destinations and writes nothing.
        let mut fresh = open();
        let pass = fresh.apply(&with_removal(&both[1..], Removal::Keep), &Scope::Everything);
        assert_eq!(verified(&pass), 0);
        fresh.upkeep().unwrap();
        assert!(echoes(&mut stream));
        // The destination comes back, and is removed again with an immediate deadline.
        verified(&fresh.apply(&with_removal(&both, Removal::Keep), &Scope::Everything));
        assert_eq!(destinations(&topology.node), ["10.1.1.2:9090 weight 1", "10.1.2.2:9090 weight 1"]);
        assert!(echoes(&mut stream));
        verified(&fresh.apply(&with_removal(&both[1..], Removal::Drain(0)), &Scope::Everything));
        assert_eq!(destinations(&topology.node), ["10.1.2.2:9090 weight 1"]);
        assert!(!echoes(&mut stream), "it was cut");
        // The whole Service is removed: its last connection keeps the virtual server.
        let (_, mut last) = connect(&topology.client, "10.96.0.1", 80);
        verified(&fresh.apply(&DesiredState::default(), &Scope::Everything));
        assert_eq!(destinations(&topology.node), ["10.1.2.2:9090 weight 0"]);
        assert!(echoes(&mut last));
        assert!(topology.client.ask_tcp("10.96.0.1", 80).is_err(), "nobody new");
    });
}

fn a_long_transfer_survives_changes_and_restart() {
    let topology = holding("long", "rr", [1, 1]);
    let (name, mut stream) = connect(&topology.client, "10.96.0.1", 80);
    let own = if name == "a" { "10.1.1.2" } else { "10.1.2.2" };
    let other = if name == "a" { "10.1.2.2" } else { "10.1.1.2" };
    for list in [
        vec![(own, 9090, 1), (other, 9090, 1), ("10.1.1.3", 9090, 1)],
        vec![(own, 9090, 1), (other, 9090, 1)],
        vec![(own, 9090, 1)],
        vec![(own, 9090, 7), (other, 9090, 2)],
    ] {
        for _ in 0..100 {
            assert!(echoes(&mut stream));
        }
        // A new backend each time, as after a restart of the agent.
        apply(&topology, &desired(vec![("web", with("rr", &list))]));
        assert!(echoes(&mut stream), "after {list:?}");
    }
    let traffic = topology.node.run(|| {
        let mut backend = open();
        verified(&backend.apply(
            &desired(vec![("web", with("rr", &[(own, 9090, 7), (other, 9090, 2)]))]),
            &Scope::Everything,
        ));
        backend.traffic().unwrap()
    });
    let own = traffic.iter().find(|one| one.target.address == address(own)).unwrap();
    assert_eq!((own.active, own.inactive), (Some(1), Some(0)), "{own:?}");
    assert_eq!(own.service, key("web"));
}

fn retiring_waits_for_established_connections() {
    let topology = holding("retire", "rr", [1, 1]);
    let (_, mut stream) = connect(&topology.client, "10.96.0.1", 80);
    topology.node.run(|| {
        let mut backend = open();
        assert!(!backend.retire().unwrap());
        assert!(echoes(&mut stream), "its connection goes on");
        assert!(!topology.node.exec(&["iptables-legacy-save"]).contains("-j TGV-SERVICES"));
        assert!(!backend.retire().unwrap());
        assert!(echoes(&mut stream));
        assert!(backend.cleanup().unwrap() > 0);
        assert!(backend.retire().unwrap(), "nothing is left");
    });
}

fn a_drain_lets_connections_finish_and_its_deadline_cuts_them() {
    let topology = Topology::silent("drain");
    drain::tell(&topology, || Box::new(open()));
}

/// F103, F104: besides the rows in the name, cluster IPs are masqueraded for off-cluster sources and for all.
#[test]
fn f065_f087_f092_f104_f105_f106_f107_f109_f110_f111_f112_f113_f114_f115_packets_go_where_the_program_says() {
    guest::run(
        "ipvs_traffic::f065_f087_f092_f104_f105_f106_f107_f109_f110_f111_f112_f113_f114_f115_packets_go_where_the_program_says",
        &[
            ("every frontend forwards", every_frontend_forwards),
            ("sources are masqueraded", sources_are_masqueraded_as_the_program_says),
            ("every source is masqueraded", every_source_is_masqueraded_when_all_are),
            ("what is not served is refused", what_is_not_served_is_refused),
            ("local policy", local_policy_keeps_the_client_address_and_drops_without_endpoints),
            ("only listed sources pass", only_listed_sources_pass),
            ("targets go with their last connection", targets_go_with_their_last_connection),
            ("a long transfer survives", a_long_transfer_survives_changes_and_restart),
            ("retiring waits", retiring_waits_for_established_connections),
            ("a drain lets connections finish", a_drain_lets_connections_finish_and_its_deadline_cuts_them),
        ],
    );
}

fn what_goes_through_is_counted() {
    let topology = Topology::silent("count");
    counters::tell(&topology, || Box::new(open()));
}

#[test]
fn f086_f087_what_goes_through_is_counted_in_ipvs_mode() {
    guest::run(
        "ipvs_traffic::f086_f087_what_goes_through_is_counted_in_ipvs_mode",
        &[("what goes through is counted", what_goes_through_is_counted)],
    );
}

#[test]
fn f067_f068_f069_f070_f071_f072_f073_f074_each_scheduler_does_what_it_is_for() {
    guest::run(
        "ipvs_traffic::f067_f068_f069_f070_f071_f072_f073_f074_each_scheduler_does_what_it_is_for",
        &[
            ("rr and wrr divide exactly", rr_and_wrr_divide_exactly),
            ("lc and wlc choose the least busy", lc_and_wlc_choose_the_least_busy),
            ("sed and nq follow their formulas", sed_and_nq_follow_their_formulas),
            ("sh and dh hash one end", sh_and_dh_hash_one_end),
            ("a client stays until its endpoint goes", a_client_stays_until_its_endpoint_goes),
        ],
    );
}
