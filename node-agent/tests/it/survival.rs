//! Survival of established connections on the two-stage path, with real packets: a client, two announcing nodes and
//! nodes with endpoints on one segment.
//!
//! ```text
//! client .1 ──┬── A .2   B .3      announce 192.0.2.100 and 2001:db8::100
//!             └── C .4   D .5   E .6   endpoints at port 8080 of their own addresses
//! ```

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService, Survival},
    kinds::{
        maintenance::{Maintenance, MaintenanceMode},
        service::{Protocol, TrafficPolicy},
    },
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::{Port, Revision, Weight},
    },
    program::{self, NodeLocation, survival},
};
use node_agent::{
    dataplane::{
        Dataplane as _, DesiredProgram, DesiredState, Scope,
        nftables::{NftablesBackend, NftablesOptions},
    },
    links::local_networks,
};

use crate::support::{
    Namespace,
    programs::{address, key, port, verified},
    segment::{Node, Segment},
};

const ADDRESSES: [&str; 2] = ["192.0.2.100", "2001:db8::100"];
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Number of connections of each family.
const CONNECTIONS: usize = 120;
/// Line that asks for a line of [`FILL_BYTES`] bytes.
const FILL: &str = "fill";
const FILL_BYTES: usize = 100_000;
/// Maximum time to wait for a reply. Retransmissions after a failover take less.
const PATIENCE: Duration = Duration::from_secs(20);

/// Address of a node or of its endpoint.
fn of_node(name: &str, family: IpFamily) -> IpAddr {
    let number = NAMES.iter().position(|one| *one == name).unwrap() + 2;
    match family {
        IpFamily::V4 => address(&format!("192.0.2.{number}")),
        IpFamily::V6 => address(&format!("2001:db8::{number}")),
    }
}

fn service(endpoints: &[(&str, u16)], survives: bool) -> CompiledService {
    let name = |text: &str| Name::parse(text).unwrap();
    let drain = Maintenance { mode: MaintenanceMode::Drain, reason: None, by: None, deadline: None };
    let endpoints = endpoints.iter().flat_map(|(node, weight)| {
        IpFamily::ALL.map(|family| CompiledEndpoint {
            address: of_node(node, family),
            port: port(8080),
            node: Some(name(node)),
            zone: None,
            weight: Weight(*weight),
            ready: true,
            serving: true,
            terminating: false,
            maintenance: (*weight == 0).then(|| Box::new(drain.clone())),
            node_lost: false,
            checked_by_source: false,
        })
    });
    let mut endpoints: Vec<_> = endpoints.collect();
    endpoints.sort();
    let mut service = CompiledService::new(key("web"));
    service.load_balancer_ips = ADDRESSES.map(address).to_vec();
    service.ip_families = IpFamily::ALL.to_vec();
    service.external_traffic_policy = TrafficPolicy::Cluster;
    service.ports = vec![CompiledPort {
        name: Some(Label::parse("http").unwrap()),
        protocol: Protocol::Tcp,
        port: port(80),
        end_port: None,
        node_port: None::<Port>,
        endpoints,
    }];
    let addresses = |node: &&str| (name(node), IpFamily::ALL.map(|family| of_node(node, family)).into());
    let node_addresses: BTreeMap<_, BTreeSet<_>> = NAMES.iter().map(addresses).collect();
    service.survival = survives.then(|| Box::new(Survival { node_addresses }));
    service
}

/// Segment with the nodes, their announcers, and servers at all endpoints.
struct Stage {
    segment: Segment,
    announcers: BTreeMap<&'static str, Node>,
    /// Number of pushes that servers have to send on each connection.
    pushes: Arc<AtomicU32>,
}

impl Stage {
    fn new(test: &str) -> Self {
        let segment = Segment::new(test, 1 + NAMES.len());
        let pushes = Arc::new(AtomicU32::new(0));
        for (number, name) in (1..).zip(NAMES) {
            let node: &Namespace = &segment.members[number];
            for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
                node.exec(&["sysctl", "-qw", setting]);
            }
            for family in IpFamily::ALL {
                node.run(|| serve(SocketAddr::new(of_node(name, family), 8080), Arc::clone(&pushes)));
            }
        }
        let announcers = ["a", "b"].map(|name| (name, Node::start(&segment.members[number_of(name)]))).into();
        Self { segment, announcers, pushes }
    }

    fn node(&self, name: &str) -> &Namespace {
        &self.segment.members[number_of(name)]
    }

    /// Programs a Service on all nodes, and returns the number of kernel writes.
    fn program(&self, service: &CompiledService) -> u64 {
        NAMES.iter().map(|name| self.program_on(name, service)).sum()
    }

    /// Programs a Service on a node as a new process of its agent does.
    fn program_on(&self, name: &str, service: &CompiledService) -> u64 {
        let place = NodeLocation { node: Name::parse(name).unwrap(), zone: None };
        self.node(name).run(|| {
            let mut program = program::program(service, &place).unwrap();
            let obstacles = survival::divide(&mut program, service, &place.node, &local_networks().unwrap());
            assert_eq!(obstacles, BTreeSet::new());
            let mut desired = DesiredState::default();
            let program = DesiredProgram { revision: Revision(1), program: Arc::new(program) };
            desired.programs.insert(key("web"), program);
            let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
            verified(&backend.apply(&desired, &Scope::Everything))
        })
    }

    /// Cuts one announcing node off the segment, after which the other one announces.
    fn fail_over(&self, from: &str, to: &str) {
        let link = |name: &str, state: &str| {
            self.segment.hub.ip(&["link", "set", &format!("port{}", number_of(name) + 1), state]);
        };
        link(from, "down");
        self.announcers[from].withdraw(&ADDRESSES);
        link(to, "up");
        self.announcers[to].announce(&ADDRESSES);
    }

    /// Number of connections that a node tracks.
    fn tracked(&self, name: &str) -> usize {
        let listed = ["ipv4", "ipv6"]
            .map(|family| self.node(name).exec(&["conntrack", "-L", "-p", "tcp", "-f", family]));
        listed.iter().map(|text| text.lines().count()).sum()
    }
}

fn number_of(name: &str) -> usize {
    NAMES.iter().position(|one| *one == name).unwrap() + 1
}

/// Starts a server that greets each client with its name and the client's address, echoes lines, sends a line for
/// each push, and replies to the line [`FILL`] with a long line.
fn serve(at: SocketAddr, pushes: Arc<AtomicU32>) {
    let listener = TcpListener::bind(at).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let pushes = Arc::clone(&pushes);
            std::thread::spawn(move || converse(stream, at, &pushes));
        }
    });
}

fn converse(stream: TcpStream, at: SocketAddr, pushes: &AtomicU32) -> Option<()> {
    let mut sent = pushes.load(Ordering::SeqCst);
    let mut writer = stream.try_clone().ok()?;
    writeln!(writer, "{} {}", at.ip(), stream.peer_addr().ok()?.ip()).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        match reader.read_line(&mut line) {
            Ok(0) => return None,
            Ok(_) => {
                let reply =
                    if line.trim() == FILL { format!("{}\n", "x".repeat(FILL_BYTES)) } else { line.clone() };
                writer.write_all(reply.as_bytes()).ok()?;
                line.clear();
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        while sent < pushes.load(Ordering::SeqCst) {
            sent += 1;
            writeln!(writer, "push {sent}").ok()?;
        }
    }
}

/// Established connection of the client.
struct Connection {
    reader: BufReader<TcpStream>,
    endpoint: IpAddr,
    /// True if the endpoint sees the address of the client.
    is_seen: bool,
}

impl Connection {
    fn open(to: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let (endpoint, client) = line.trim().split_once(' ').unwrap();
        let own = reader.get_ref().local_addr().unwrap().ip();
        Self { is_seen: address(client) == own, endpoint: address(endpoint), reader }
    }

    fn say(&mut self, text: &str) -> bool {
        writeln!(self.reader.get_mut(), "{text}").is_ok()
    }

    fn hear(&mut self, text: &str) -> bool {
        let mut line = String::new();
        self.reader.read_line(&mut line).is_ok() && line.trim() == text
    }
}

/// Opens the connections, half of them for exchanges that the client begins.
fn connect(client: &Namespace) -> Vec<Connection> {
    client.run(|| {
        let to = |text: &&str| SocketAddr::new(address(text), 80);
        ADDRESSES.iter().flat_map(|text| (0..CONNECTIONS).map(move |_| Connection::open(to(text)))).collect()
    })
}

/// Exchanges a line on every connection: on one half, the client begins; on the other, the server does. Returns the
/// number of lost connections of each half.
fn exchange(stage: &Stage, connections: &mut [Connection], text: &str) -> [usize; 2] {
    let is_first = |index: usize| index.is_multiple_of(2);
    for (_, connection) in connections.iter_mut().enumerate().filter(|(index, _)| is_first(*index)) {
        connection.say(text);
    }
    let heard = connections.iter_mut().enumerate().filter(|(index, _)| is_first(*index));
    let client_first =
        heard.map(|(_, connection)| connection.hear(text)).filter(|is_heard| !is_heard).count();
    let number = stage.pushes.fetch_add(1, Ordering::SeqCst) + 1;
    let push = format!("push {number}");
    let heard = connections.iter_mut().enumerate().filter(|(index, _)| !is_first(*index));
    let server_first =
        heard.map(|(_, connection)| connection.hear(&push)).filter(|is_heard| !is_heard).count();
    // The first half reads the push as well, before its next line.
    for (_, connection) in connections.iter_mut().enumerate().filter(|(index, _)| is_first(*index)) {
        connection.hear(&push);
    }
    [client_first, server_first]
}

/// No connection ends when the announcing node is cut off, while endpoints are added and drained. The announcing nodes
/// track none of them, and endpoints see the address of the client.
#[test]
fn connections_survive_the_loss_of_announcing_nodes_and_changes_of_endpoints() {
    let stage = Stage::new("survive");
    let two = service(&[("c", 1), ("d", 1)], true);
    stage.program(&two);
    stage.announcers["a"].announce(&ADDRESSES);
    let mut connections = connect(&stage.segment.members[0]);
    assert!(connections.iter().all(|connection| connection.is_seen), "endpoints see the client");
    let by_endpoint = connections.iter().fold(BTreeMap::new(), |mut counts, connection| {
        *counts.entry(connection.endpoint).or_insert(0) += 1;
        counts
    });
    assert_eq!(by_endpoint.len(), 4, "{by_endpoint:?}");
    assert_eq!(exchange(&stage, &mut connections, "before"), [0, 0]);
    assert_eq!(stage.tracked("a"), 0, "the announcing node tracks nothing");
    assert!(stage.tracked("c") > 0 && stage.tracked("d") > 0);

    stage.fail_over("a", "b");
    assert_eq!(exchange(&stage, &mut connections, "after the loss of A"), [0, 0]);
    assert_eq!(stage.tracked("b"), 0);

    let three = service(&[("c", 1), ("d", 1), ("e", 1)], true);
    stage.program(&three);
    stage.fail_over("b", "a");
    assert_eq!(exchange(&stage, &mut connections, "with a third endpoint"), [0, 0]);
    let more = connect(&stage.segment.members[0]);
    assert!(more.iter().any(|connection| connection.endpoint == of_node("e", IpFamily::V4)));
    connections.extend(more);

    let drained = service(&[("c", 0), ("d", 1), ("e", 1)], true);
    stage.program(&drained);
    stage.fail_over("a", "b");
    assert_eq!(exchange(&stage, &mut connections, "while C drains"), [0, 0]);

    for name in NAMES {
        assert_eq!(stage.program_on(name, &drained), 0, "a new process of {name} writes nothing");
    }
    assert_eq!(exchange(&stage, &mut connections, "after restarts"), [0, 0]);
}

/// F133: packets reach their owner and are translated there beside rules of network plugins that change the packet mark before the
/// packet is routed, whether these are older or newer than our rules: Calico clears its bits and marks packets of its workloads,
/// and Cilium marks packets with an identity.
#[test]
fn f133_connections_survive_beside_the_packet_marks_of_network_plugins() {
    let stage = Stage::new("marks");
    let mark = |name: &str, mark: &str| {
        for tool in ["iptables-nft", "ip6tables-nft"] {
            let rule = [tool, "-t", "raw", "-A", "PREROUTING", "-j", "MARK", "--set-xmark", mark];
            stage.node(name).exec(&rule);
        }
    };
    mark("a", "0x0/0xf0000");
    mark("c", "0x40000/0x40000");
    stage.program(&service(&[("c", 1), ("d", 1)], true));
    mark("b", "0x0/0xf0000");
    // The upper bits are the number of an owner.
    mark("d", "0x100f00/0xffffffff");
    stage.announcers["a"].announce(&ADDRESSES);
    let mut connections = connect(&stage.segment.members[0]);
    assert_eq!(exchange(&stage, &mut connections, "beside older rules"), [0, 0]);
    stage.fail_over("a", "b");
    assert_eq!(exchange(&stage, &mut connections, "beside newer rules"), [0, 0]);
}

/// All slots move from node to node, so that the last owner asks three former ones. Connections at each of them survive,
/// also if one of these nodes is lost afterwards.
#[test]
fn connections_survive_several_moves_of_their_slots() {
    let stage = Stage::new("chain");
    stage.announcers["a"].announce(&ADDRESSES);
    let mut connections = Vec::new();
    for name in ["c", "d", "e"] {
        stage.program(&service(&[(name, 1)], true));
        let opened = connect(&stage.segment.members[0]).into_iter().step_by(3);
        connections.extend(opened.inspect(|one| {
            assert!(IpFamily::ALL.map(|family| of_node(name, family)).contains(&one.endpoint));
        }));
    }
    stage.program(&service(&[("b", 1)], true));
    assert_eq!(exchange(&stage, &mut connections, "at the last owner"), [0, 0]);

    stage.segment.hub.ip(&["link", "set", &format!("port{}", number_of("e") + 1), "down"]);
    stage.program(&service(&[("b", 1), ("c", 1), ("d", 1)], true));
    connections.retain(|one| IpFamily::ALL.iter().all(|family| one.endpoint != of_node("e", *family)));
    assert_eq!(exchange(&stage, &mut connections, "without E"), [0, 0]);
}

/// Connections to endpoints that are all in drain continue, also after the announcing node is lost. New ones are refused.
#[test]
fn connections_survive_the_drain_of_all_endpoints() {
    let stage = Stage::new("last");
    stage.announcers["a"].announce(&ADDRESSES);
    stage.program(&service(&[("c", 1), ("d", 1)], true));
    let mut connections = connect(&stage.segment.members[0]);
    for (weights, text) in [([0, 1], "of C"), ([0, 0], "of both")] {
        stage.program(&service(&[("c", weights[0]), ("d", weights[1])], true));
        assert_eq!(exchange(&stage, &mut connections, text), [0, 0], "{text}");
    }
    stage.fail_over("a", "b");
    assert_eq!(exchange(&stage, &mut connections, "after the loss of A"), [0, 0]);
    let opened = stage.segment.members[0].run(|| {
        ADDRESSES.map(|text| TcpStream::connect_timeout(&SocketAddr::new(address(text), 80), PATIENCE))
    });
    for refused in opened {
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

/// The first segment after the slot moved may end the connection: the endpoint gets it, and closes its side.
#[test]
fn the_end_of_a_moved_connection_reaches_its_endpoint() {
    let stage = Stage::new("end");
    stage.announcers["a"].announce(&ADDRESSES);
    stage.program(&service(&[("c", 1)], true));
    let connections = connect(&stage.segment.members[0]);
    stage.program(&service(&[("c", 0), ("d", 1)], true));
    for one in &connections {
        one.reader.get_ref().shutdown(Shutdown::Write).unwrap();
        one.reader.get_ref().set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    }
    let mut streams = connections.iter().map(|one| one.reader.get_ref());
    let is_closed = |mut stream: &TcpStream| matches!(stream.read(&mut [0; 8]), Ok(0));
    assert!(streams.all(is_closed));
}

/// Clients of a drained node are reset at their next segment after the deadline, at which the node forgets its connections:
/// those that the new owner has forwarded during the drain, and those that were silent.
#[test]
fn connections_of_a_drained_node_are_reset_after_the_deadline() {
    let stage = Stage::new("deadline");
    stage.announcers["a"].announce(&ADDRESSES);
    stage.program(&service(&[("c", 1)], true));
    let (mut busy, silent) = (connect(&stage.segment.members[0]), connect(&stage.segment.members[0]));
    stage.program(&service(&[("c", 0), ("d", 1)], true));
    assert_eq!(exchange(&stage, &mut busy, "during the drain"), [0, 0]);
    for family in ["ipv4", "ipv6"] {
        stage.node("c").exec(&["conntrack", "-D", "-p", "tcp", "-f", family]);
    }
    assert_eq!(reset(busy, "busy"), 2 * CONNECTIONS);
    assert_eq!(reset(silent, "silent"), 2 * CONNECTIONS);
}

/// Sends a line on each connection, and returns the number of connections that are reset within 3 s.
fn reset(mut connections: Vec<Connection>, text: &str) -> usize {
    let line = format!("{text}\n");
    // One write, because the reset may come before a second one.
    for connection in &mut connections {
        connection.reader.get_mut().write_all(line.as_bytes()).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(3);
    let is_reset = |connection: &mut Connection| {
        let rest = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        connection.reader.get_ref().set_read_timeout(Some(rest)).unwrap();
        let read = std::io::copy(&mut connection.reader, &mut std::io::sink());
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    };
    connections.iter_mut().map(is_reset).filter(|is_reset| *is_reset).count()
}

/// "Fragmentation needed" of a router reaches the node that translates the connection: before the announcing node is lost,
/// after that, and after the slots have moved to another node.
#[test]
fn icmp_errors_reach_the_owner() {
    const MTU: &str = "1300";
    let stage = Stage::new("narrow");
    // The first member is the router in front of a client, on a link whose MTU the client does not know.
    let (router, far) = (&stage.segment.members[0], Namespace::new("narrow-far"));
    router.ip(&[
        "link",
        "add",
        "narrow",
        "mtu",
        MTU,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        far.name(),
    ]);
    for (at, interface, addresses) in [
        (router, "narrow", ["198.51.100.1/24", "2001:db8:1::1/64"]),
        (&far, "eth0", ["198.51.100.2/24", "2001:db8:1::2/64"]),
    ] {
        at.ip(&["link", "set", interface, "up"]);
        addresses.iter().for_each(|address| at.ip(&["addr", "add", address, "dev", interface, "nodad"]));
    }
    far.ip(&["link", "set", "eth0", "mtu", "1500"]);
    for (family, gateway, network, hop) in [
        ("-4", "198.51.100.1", "198.51.100.0/24", "192.0.2.1"),
        ("-6", "2001:db8:1::1", "2001:db8:1::/64", "2001:db8::1"),
    ] {
        far.ip(&[family, "route", "add", "default", "via", gateway]);
        for name in NAMES {
            stage.node(name).ip(&[family, "route", "add", network, "via", hop]);
        }
    }
    for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        router.exec(&["sysctl", "-qw", setting]);
    }
    let filled = |connections: &mut [Connection]| {
        let ok = connections
            .iter_mut()
            .map(|connection| connection.say(FILL) && connection.hear(&"x".repeat(FILL_BYTES)));
        ok.collect::<Vec<_>>()
    };
    let forget = || {
        for (name, family) in NAMES.iter().flat_map(|name| ["-4", "-6"].map(|family| (name, family))) {
            stage.node(name).ip(&[family, "route", "flush", "cache"]);
        }
    };

    stage.program(&service(&[("c", 1)], true));
    stage.announcers["a"].announce(&ADDRESSES);
    let open = || far.run(|| ADDRESSES.map(|text| Connection::open(SocketAddr::new(address(text), 80))));
    let mut connections = open();
    assert_eq!(filled(&mut connections), [true, true], "by the announcing node");
    assert_eq!(stage.tracked("a"), 0);

    stage.fail_over("a", "b");
    forget();
    assert_eq!(filled(&mut connections), [true, true], "by the other announcing node");

    // C keeps its connections, and all of its slots belong to D.
    stage.program(&service(&[("d", 1)], true));
    forget();
    assert_eq!(filled(&mut connections), [true, true], "by the new owner");
    assert!(filled(&mut open()).iter().all(|ok| *ok));
}

/// Without survival, no connection outlives the node that announces the address, and endpoints see its address.
#[test]
fn connections_end_with_the_announcing_node_without_survival() {
    let stage = Stage::new("sever");
    let service = service(&[("c", 1), ("d", 1)], false);
    stage.program(&service);
    stage.announcers["a"].announce(&ADDRESSES);
    let mut connections = connect(&stage.segment.members[0]);
    assert!(connections.iter().all(|connection| !connection.is_seen));
    connections.truncate(8);
    for connection in &connections {
        connection.reader.get_ref().set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }
    stage.fail_over("a", "b");
    let [client_first, _] = exchange(&stage, &mut connections, "after the loss of A");
    assert_eq!(client_first, 4);
}

/// Changes by other programs are repaired, and the removal of the Service and of everything leaves no objects.
#[test]
fn owners_are_repaired_and_removed() {
    let stage = Stage::new("owners");
    let two = service(&[("c", 1), ("d", 1)], true);
    stage.program(&two);
    let a = stage.node("a");
    assert!(a.has_table("tidegate-owners"));
    let rules = |family: &str| a.exec(&["ip", family, "rule"]).matches("proto 174").count();
    assert_eq!([rules("-4"), rules("-6")], [2, 2]);
    a.ip(&["rule", "del", "priority", "7440"]);
    a.nft("flush map inet tidegate-owners owners6\n");
    assert!(stage.program_on("a", &two) > 0);
    assert_eq!([rules("-4"), rules("-6")], [2, 2]);
    assert_eq!(stage.program_on("a", &two), 0);
    a.nft("flush chain inet tidegate-owners forward\n");
    assert!(stage.program_on("a", &two) > 0);
    assert_eq!(stage.program_on("a", &two), 0);

    stage.program_on("a", &service(&[("c", 1), ("d", 1)], false));
    assert!(!a.has_table("tidegate-owners"));
    assert_eq!([rules("-4"), rules("-6")], [0, 0]);
    stage.program_on("a", &two);
    a.run(|| NftablesBackend::open(NftablesOptions::default()).unwrap().cleanup().unwrap());
    assert!(!a.has_table("tidegate-owners") && !a.has_table("tidegate"));
    assert_eq!([rules("-4"), rules("-6")], [0, 0]);
}
