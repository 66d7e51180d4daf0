//! Tests of the conntrack cleaner, which deletes entries that lead to removed targets and keeps entries of
//! other traffic. The test calls backend and cleaner as the agent loop does, with a clock of its own.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use model::{
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{PortRange, Timestamp},
    },
    program::{Frontend, Masquerade, Program, Removal, Target, Verdict},
};
use node_agent::{
    conntrack::{Cleaner, Flow, KernelFlows, memory::MemoryFlows, plan::Depth},
    dataplane::{
        Dataplane, DesiredState, Scope,
        memory::MemoryKernel,
        nftables::{NftablesBackend, NftablesOptions},
    },
};

use crate::support::{Namespace, enter, net::Topology, programs::*};

const WAIT: Duration = Duration::from_secs(3);

/// Node without a running agent loop; the test calls its backend and conntrack cleaner.
struct Node {
    backend: Box<dyn Dataplane>,
    cleaner: Cleaner,
    desired: DesiredState,
    now: Instant,
}

impl Node {
    /// Creates a node and programs `desired` in a real kernel.
    fn real(desired: DesiredState) -> Self {
        let backend = Box::new(NftablesBackend::open(NftablesOptions::default()).unwrap());
        Self::begin(backend, Cleaner::new(Box::new(KernelFlows::default())), desired)
    }

    fn in_memory(flows: &MemoryFlows, desired: DesiredState) -> Self {
        Self::begin(Box::new(MemoryKernel::default().open()), Cleaner::new(Box::new(flows.clone())), desired)
    }

    fn begin(backend: Box<dyn Dataplane>, cleaner: Cleaner, desired: DesiredState) -> Self {
        let mut node = Self { backend, cleaner, desired, now: Instant::now() };
        node.pass(&Scope::Everything, Depth::Everything);
        node
    }

    fn set(&mut self, name: &str, program: Program) {
        set(&mut self.desired, name, program);
        self.pass(&only(&[name]), Depth::Changes);
    }

    fn remove(&mut self, name: &str) {
        self.desired.programs.remove(&key(name));
        self.pass(&only(&[name]), Depth::Changes);
    }

    fn pass(&mut self, scope: &Scope, depth: Depth) {
        let pass = self.backend.apply(&self.desired, scope);
        verified(&pass);
        let known = self.cleaner.programmed().services();
        self.cleaner.follow(self.desired.programmed(scope, &pass.outcomes, known), depth);
        self.wait(0);
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        let _told = self.cleaner.run(&self.desired.networks, self.now, Timestamp::from_unix_seconds(0), 0);
    }
}

fn verdict(list: &[(&str, u16, u16)]) -> Verdict {
    if list.is_empty() { Verdict::Reject } else { forward(Masquerade::Always, list) }
}

/// Builds a DNS Service at a virtual address and a node port, in both address families. `list` contains the
/// targets as address, port and weight.
fn dns(list: &[(&str, u16, u16)]) -> Program {
    let (six, four): (Vec<_>, Vec<_>) = list.iter().copied().partition(|(ip, ..)| ip.contains(':'));
    program(
        &["10.96.0.10", "fd00:96::10"],
        &[],
        &[
            (at("10.96.0.10", Protocol::Udp, 53), verdict(&four)),
            (at("fd00:96::10", Protocol::Udp, 53), verdict(&six)),
            (at("10.96.0.10", Protocol::Tcp, 53), verdict(&four)),
            (node_port(IpFamily::V4, Protocol::Udp, 30053), verdict(&four)),
            (node_port(IpFamily::V6, Protocol::Udp, 30053), verdict(&six)),
        ],
    )
}

const A: [(&str, u16, u16); 2] = [("10.1.1.2", 8080, 1), ("fd01:1::2", 8080, 1)];
const B: [(&str, u16, u16); 2] = [("10.1.2.2", 8080, 1), ("fd01:2::2", 8080, 1)];

/// UDP clients that always send from the same port reach the current endpoints, or no server, while the
/// endpoints of the Service change and the Service is removed.
#[test]
fn a_udp_client_that_keeps_its_port_follows_the_endpoints() {
    let topology = Topology::new("udp");
    topology.node.run(|| {
        let mut node = Node::real(DesiredState::default());
        let ports = [("10.96.0.10", 53), ("192.0.2.1", 30053), ("fd00:96::10", 53), ("2001:db8::1", 30053)];
        let clients = ports.map(|(ip, port)| topology.client.udp(ip, port));
        // Flows that begin before the Service exists are tracked as untranslated.
        for client in &clients {
            let _nobody = client.ask(Duration::from_millis(300));
        }
        let mut expect = |list: &[(&str, u16, u16)], name: Option<&str>| {
            node.set("dns", dns(list));
            for (number, client) in clients.iter().enumerate() {
                let answer = client.ask(WAIT).ok().map(|answer| answer.name);
                assert_eq!(answer.as_deref(), name, "client {number} with {list:?}");
            }
            node.cleaner.deleted()
        };
        expect(&A, Some("a"));
        let deleted = expect(&B, Some("b"));
        assert!(deleted >= 4, "{deleted}");
        assert_eq!(expect(&[B, A].concat(), Some("b")), deleted, "a current target keeps its flows");
        let gone = expect(&[], None);
        assert!(gone >= deleted + 4, "{gone}");
        expect(&A, Some("a"));
        node.remove("dns");
        let entries = topology.node.exec(&["conntrack", "-L", "-p", "udp"]);
        assert!(!entries.contains("src=10.1.1.2"), "{entries}");
    });
}

/// A new agent detects a conntrack entry whose target was removed while no agent was running.
#[test]
fn a_restarted_agent_finds_the_flows_that_went_stale_meanwhile() {
    let topology = Topology::new("udprestart");
    topology.node.run(|| {
        let mut node = Node::real(desired(vec![("dns", dns(&A))]));
        let client = topology.client.udp("10.96.0.10", 53);
        assert_eq!(client.ask(WAIT).unwrap().name, "a");
        set(&mut node.desired, "dns", dns(&B));
        verified(&node.backend.apply(&node.desired, &Scope::Everything));
        assert_eq!(client.ask(WAIT).unwrap().name, "a", "nobody has looked");
        let node = Node::real(node.desired);
        assert_eq!(client.ask(WAIT).unwrap().name, "b");
        assert_eq!(node.cleaner.deleted(), 1);
    });
}

/// A UDP client of a Service with a single address reaches the current endpoint after a change. For a single
/// address, the agent could let the kernel filter the conntrack dump, but the kernel's filter for IPv6 is
/// unreliable.
#[test]
fn a_udp_flow_of_a_service_with_a_single_frontend_follows_the_endpoints() {
    let topology = Topology::new("udpone");
    for (vip, a, b) in [("10.96.0.12", "10.1.1.2", "10.1.2.2"), ("fd00:96::12", "fd01:1::2", "fd01:2::2")] {
        let one =
            |target| program(&[vip], &[], &[(at(vip, Protocol::Udp, 53), verdict(&[(target, 8080, 1)]))]);
        topology.node.run(|| {
            let mut node = Node::real(desired(vec![("one", one(a))]));
            let client = topology.client.udp(vip, 53);
            assert_eq!(client.ask(WAIT).unwrap().name, "a");
            node.set("one", one(b));
            assert_eq!(client.ask(WAIT).unwrap().name, "b", "{vip}");
        });
    }
}

#[test]
fn udp_flows_through_a_range_of_ports_follow_the_endpoints() {
    let topology = Topology::new("udprange");
    let range = |list: &[&str]| {
        let target =
            |ip: &&str| (Target { address: address(ip), port: None }, model::primitives::quantity::Weight(1));
        let targets = std::sync::Arc::new(list.iter().map(target).collect());
        let ports = PortRange::new(port(8000), port(8999));
        let frontend = Frontend { ports, ..at("10.96.0.11", Protocol::Udp, 1) };
        program(&[], &[], &[(frontend, Verdict::Forward { masquerade: Masquerade::Always, targets })])
    };
    topology.node.run(|| {
        let mut node = Node::real(desired(vec![("range", range(&["10.1.1.2"]))]));
        let client = topology.client.udp("10.96.0.11", 8080);
        assert_eq!(client.ask(WAIT).unwrap().name, "a");
        node.set("range", range(&["10.1.2.2"]));
        assert_eq!(client.ask(WAIT).unwrap().name, "b");
    });
}

/// Starts a TCP server that sends all bytes back. Its threads end when their connections end.
fn start_echo(namespace: &Namespace) {
    let listener = namespace.run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 7)).unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(length) = stream.read(&mut buffer) {
                    if length == 0 || stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// TCP connection of a client through a Service to an echo server.
struct Conversation(TcpStream);

impl Conversation {
    fn begin(namespace: &Namespace, ip: &str, port: u16) -> Self {
        let (name, address) = (namespace.name().to_owned(), SocketAddr::new(address(ip), port));
        let connect = move || {
            enter(&name);
            TcpStream::connect_timeout(&address, WAIT).unwrap()
        };
        let stream = thread::spawn(connect).join().unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let mut conversation = Self(stream);
        assert!(conversation.goes_on());
        conversation
    }

    /// Sends data and returns true if the server sends it back, or false if the connection has ended. Panics
    /// if neither happens.
    fn goes_on(&mut self) -> bool {
        let mut buffer = [0; 5];
        match self.0.write_all(b"hello").and_then(|()| self.0.read_exact(&mut buffer)) {
            Ok(()) => true,
            Err(error) => {
                let kind = error.kind();
                assert_ne!(kind, std::io::ErrorKind::WouldBlock, "the connection hangs");
                false
            }
        }
    }
}

fn echo(removal: Removal, list: &[(&str, u16, u16)]) -> Program {
    let mut program = program(
        &["10.96.0.7", "fd00:96::7"],
        &[],
        &[
            (at("10.96.0.7", Protocol::Tcp, 7), verdict(list)),
            (node_port(IpFamily::V4, Protocol::Tcp, 30007), verdict(list)),
        ],
    );
    for (_, route) in &mut program.frontends {
        route.removal = removal;
    }
    program
}

const ECHO_A: (&str, u16, u16) = ("10.1.1.2", 7, 1);
const ECHO_B: (&str, u16, u16) = ("10.1.2.2", 7, 1);

/// Established TCP connections follow the removal policy of the Service when a target is replaced, when the
/// last target is removed, and when the Service is removed.
#[test]
fn tcp_connections_to_a_target_that_goes_follow_the_removal_policy() {
    let topology = Topology::new("removal");
    start_echo(&topology.a);
    start_echo(&topology.b);
    topology.node.run(|| {
        let mut node = Node::real(DesiredState::default());
        let begin = || {
            [("10.96.0.7", 7), ("192.0.2.1", 30007)]
                .map(|(ip, port)| Conversation::begin(&topology.client, ip, port))
        };
        let go_on = |pair: &mut [Conversation; 2]| pair.each_mut().map(Conversation::goes_on);

        node.set("echo", echo(Removal::Keep, &[ECHO_A]));
        let mut pair = begin();
        node.set("echo", echo(Removal::Keep, &[ECHO_B]));
        node.set("echo", echo(Removal::Keep, &[]));
        node.wait(100_000);
        assert_eq!(go_on(&mut pair), [true, true], "keep: they end by themselves");
        assert_eq!(node.cleaner.deleted(), 0);

        for without in [&[ECHO_B][..], &[]] {
            node.set("echo", echo(Removal::Reset, &[ECHO_A]));
            let mut pair = begin();
            node.set("echo", echo(Removal::Reset, &[ECHO_A, ECHO_B]));
            assert_eq!(go_on(&mut pair), [true, true], "reset: their target is still there");
            node.set("echo", echo(Removal::Reset, without));
            assert_eq!(go_on(&mut pair), [false, false], "reset, then {without:?}");
        }

        node.set("echo", echo(Removal::Drain(10), &[ECHO_A]));
        let mut pair = begin();
        node.set("echo", echo(Removal::Drain(10), &[ECHO_B]));
        node.wait(9);
        assert_eq!(go_on(&mut pair), [true, true], "drain: there is time");
        let next = node.cleaner.next_run().unwrap();
        assert_eq!(next - node.now, Duration::from_secs(1));
        node.wait(1);
        assert_eq!(go_on(&mut pair), [false, false], "drain: time is over");

        node.set("echo", echo(Removal::Drain(10), &[ECHO_A]));
        let mut pair = begin();
        node.set("echo", echo(Removal::Drain(10), &[ECHO_B]));
        node.wait(5);
        node.set("echo", echo(Removal::Drain(10), &[ECHO_A, ECHO_B]));
        node.wait(100);
        assert_eq!(go_on(&mut pair), [true, true], "drain: the target came back in time");
    });
}

/// Connections to draining targets continue when the agent ends. The next agent sets their deadline anew.
#[test]
fn a_restarted_agent_drains_anew_and_resets_what_it_finds() {
    let topology = Topology::new("removalrestart");
    start_echo(&topology.a);
    topology.node.run(|| {
        for removal in [Removal::Drain(10), Removal::Reset, Removal::Keep] {
            let mut node = Node::real(DesiredState::default());
            node.set("echo", echo(removal, &[ECHO_A]));
            let mut conversation = Conversation::begin(&topology.client, "10.96.0.7", 7);
            set(&mut node.desired, "echo", echo(removal, &[ECHO_B]));
            verified(&node.backend.apply(&node.desired, &Scope::Everything));
            let mut node = Node::real(node.desired);
            assert_eq!(conversation.goes_on(), removal != Removal::Reset, "{removal:?}");
            node.wait(10);
            assert_eq!(conversation.goes_on(), removal == Removal::Keep, "{removal:?}");
            drop(conversation);
            node.remove("echo");
        }
    });
}

/// Conntrack entries of other traffic are kept: one to a forwarded port with the same number as a node port,
/// and one to an unknown address.
#[test]
fn flows_that_are_not_ours_are_left_alone() {
    let topology = Topology::new("foreign");
    topology.node.run(|| {
        let mut node = Node::real(DesiredState::default());
        let through = topology.client.udp("10.1.1.2", 8080);
        assert_eq!(through.ask(WAIT).unwrap().name, "a");
        let before = node.cleaner.deleted();
        let frontend = node_port(IpFamily::V4, Protocol::Udp, 8080);
        node.set("np", program(&[], &[], &[(frontend, verdict(&[("10.1.2.2", 8080, 1)]))]));
        assert_eq!(topology.client.ask_udp("192.0.2.1", 8080).unwrap().name, "b");
        node.remove("np");
        assert_eq!(node.cleaner.deleted(), before + 1, "only what went through the node port");
        assert_eq!(through.ask(WAIT).unwrap().name, "a");
    });
}

fn flow(protocol: Protocol, to: &str, number: u16, target: &str, target_port: u16) -> Flow {
    Flow {
        protocol,
        destination: address(to),
        port: port(number),
        target: address(target),
        target_port: port(target_port),
        is_unanswered: false,
    }
}

/// A batch of changes causes exactly one dump of the conntrack table if it affects conntrack entries, and no
/// dump if it does not.
#[test]
fn the_table_is_walked_once_for_a_batch_and_not_at_all_without_need() {
    let flows = MemoryFlows::default();
    let tcp = simple("10.96.0.1", &[("10.1.1.1", 80, 1)]);
    let mut node = Node::in_memory(&flows, desired(vec![("tcp", tcp)]));
    assert_eq!(flows.walks(), 1, "connections without an answer that are older than the frontend");
    for number in 0..9 {
        node.set("tcp", simple("10.96.0.1", &[(&format!("10.1.1.{number}"), 80, 1)]));
    }
    assert_eq!(flows.walks(), 1, "TCP that may finish its work");
    for number in 0..50 {
        set(&mut node.desired, &format!("dns{number}"), dns(&A));
    }
    let names: Vec<String> = (0..50).map(|number| format!("dns{number}")).collect();
    node.pass(&only(&names.iter().map(String::as_str).collect::<Vec<_>>()), Depth::Changes);
    assert_eq!(flows.walks(), 2);
    node.set("dns0", dns(&[A, B].concat()));
    assert_eq!(flows.walks(), 2, "a target more makes no flow stale");
    node.set("dns0", dns(&B));
    assert_eq!(flows.walks(), 3);
    node.wait(1000);
    assert_eq!(flows.walks(), 3);
}

#[test]
fn a_walk_that_fails_is_tried_again_and_nothing_is_forgotten() {
    let flows = MemoryFlows::default();
    let mut node = Node::in_memory(&flows, desired(vec![("dns", dns(&A))]));
    flows.add(flow(Protocol::Udp, "10.96.0.10", 53, "10.1.1.2", 8080));
    flows.fail_walks(3);
    node.set("dns", dns(&B));
    let kept = flow(Protocol::Udp, "10.96.0.10", 53, "10.1.2.2", 8080);
    flows.add(kept);
    for _ in 0..3 {
        assert_eq!(flows.flows().len(), 2);
        node.now = node.cleaner.next_run().unwrap();
        node.wait(0);
    }
    assert_eq!(flows.flows(), [kept].into());
    assert_eq!(node.cleaner.next_run(), None);
}

/// A TCP connection without an answer is deleted if its frontend is new, also if a relay answers; others stay.
#[test]
fn connections_without_an_answer_are_deleted_when_their_frontend_is_added() {
    let waiting =
        |to: &str, number| Flow { is_unanswered: true, ..flow(Protocol::Tcp, to, number, to, number) };
    for have_relays in [false, true] {
        let flows = MemoryFlows::default();
        let mut node =
            Node::in_memory(&flows, desired(vec![("old", simple("10.96.0.1", &[("10.1.1.1", 80, 1)]))]));
        let others = [
            waiting("10.96.0.1", 80),
            waiting("10.96.0.2", 81),
            waiting("10.96.0.3", 80),
            flow(Protocol::Tcp, "10.96.0.2", 80, "10.96.0.2", 80),
        ];
        others.into_iter().chain([waiting("10.96.0.2", 80)]).for_each(|flow| flows.add(flow));
        set(&mut node.desired, "new", simple("10.96.0.2", &[("10.1.1.2", 80, 1)]));
        let pass = node.backend.apply(&node.desired, &only(&["new"]));
        let programs = node.desired.programmed(&only(&["new"]), &pass.outcomes, [].into_iter());
        node.cleaner.follow(programs, Depth::Changes);
        if have_relays {
            node.cleaner.run_for_relays(&node.desired.networks, node.now, 0).unwrap();
        } else {
            node.wait(0);
        }
        assert_eq!(flows.flows(), others.into());
    }
}

/// A conntrack entry belongs to the frontend with the most specific port, even within the port range of
/// another Service, and to the Service that currently has this frontend.
#[test]
fn a_flow_belongs_to_the_most_specific_frontend_and_to_its_owner_of_the_moment() {
    let flows = MemoryFlows::default();
    flows.set_local_addresses(["192.0.2.1".parse::<IpAddr>().unwrap()]);
    let one = |frontend, list: &[(&str, u16, u16)]| program(&[], &[], &[(frontend, verdict(list))]);
    let exact = at("10.96.0.10", Protocol::Udp, 53);
    let range = Frontend { ports: PortRange::new(port(50), port(60)), ..exact };
    let local = node_port(IpFamily::V4, Protocol::Udp, 30053);
    let external = at("192.0.2.1", Protocol::Udp, 30053);
    let mut node = Node::in_memory(
        &flows,
        desired(vec![
            ("exact", one(exact, &[("10.1.1.1", 53, 1)])),
            ("range", one(range, &[("10.1.1.2", 55, 1)])),
            ("external", one(external, &[("10.1.1.3", 53, 1)])),
            ("local", one(local, &[("10.1.1.4", 53, 1)])),
        ]),
    );
    let [of_exact, of_range, of_external] = [
        flow(Protocol::Udp, "10.96.0.10", 53, "10.1.1.1", 53),
        flow(Protocol::Udp, "10.96.0.10", 55, "10.1.1.2", 55),
        flow(Protocol::Udp, "192.0.2.1", 30053, "10.1.1.3", 53),
    ];
    [of_exact, of_range, of_external].into_iter().for_each(|flow| flows.add(flow));
    node.set("range", one(range, &[("10.1.1.9", 55, 1)]));
    node.set("local", one(local, &[("10.1.1.9", 53, 1)]));
    assert_eq!(flows.flows(), [of_exact, of_external].into());
    // `heir` takes over the frontend of `exact` with the same target: the flow survives.
    node.desired.programs.remove(&key("exact"));
    set(&mut node.desired, "heir", one(exact, &[("10.1.1.1", 53, 1)]));
    node.pass(&only(&["exact", "heir"]), Depth::Changes);
    assert_eq!(flows.flows(), [of_exact, of_external].into());
    node.remove("heir");
    assert_eq!(flows.flows(), [of_external].into());
}

/// TCP connections whose target is the node itself, such as those through a userspace relay, do not count as
/// connections to a removed target.
#[test]
fn tcp_connections_that_end_on_the_node_itself_are_not_taken_for_stale() {
    let flows = MemoryFlows::default();
    flows.set_local_addresses(["192.0.2.1".parse::<IpAddr>().unwrap()]);
    let relayed = flow(Protocol::Tcp, "10.96.0.7", 7, "192.0.2.1", 40000);
    let stale = flow(Protocol::Tcp, "10.96.0.7", 7, "10.1.1.9", 7);
    [relayed, stale].into_iter().for_each(|flow| flows.add(flow));
    let _node = Node::in_memory(&flows, desired(vec![("echo", echo(Removal::Reset, &[ECHO_A]))]));
    assert_eq!(flows.flows(), [relayed].into());
}

/// When userspace relays take over, UDP entries that bypass them are deleted, and entries that lead to a
/// relay are kept.
#[test]
fn connectionless_flows_move_to_relays_that_take_over() {
    let flows = MemoryFlows::default();
    flows.set_local_addresses(["192.0.2.1".parse::<IpAddr>().unwrap()]);
    let mut node = Node::in_memory(&flows, desired(vec![("dns", dns(&A))]));
    let relayed = flow(Protocol::Udp, "10.96.0.10", 53, "192.0.2.1", 40000);
    let connection = flow(Protocol::Tcp, "10.96.0.10", 53, "10.1.1.2", 8080);
    let foreign = flow(Protocol::Udp, "8.8.8.8", 53, "8.8.8.8", 53);
    let direct = flow(Protocol::Udp, "10.96.0.10", 53, "10.1.1.2", 8080);
    [relayed, connection, foreign, direct].into_iter().for_each(|flow| flows.add(flow));
    let pass = node.backend.apply(&node.desired, &Scope::Everything);
    let known = node.cleaner.programmed().services();
    let programs = node.desired.programmed(&Scope::Everything, &pass.outcomes, known);
    node.cleaner.follow(programs, Depth::Everything);
    node.cleaner.hand_over_to_relays(&node.desired.networks, node.now).unwrap();
    assert_eq!(flows.flows(), [relayed, connection, foreign].into());
}

/// A dump of a large conntrack table is complete: every entry that another program lists is counted.
/// `TIDEGATE_TEST_FLOWS` sets the number of entries (default 5000). The duration is printed.
#[test]
fn a_reading_of_a_full_table_sees_every_flow() {
    let count: u32 = std::env::var("TIDEGATE_TEST_FLOWS").map_or(5_000, |text| text.parse().unwrap());
    let topology = Topology::silent("ct-full");
    let lines: String = (0..count)
        .map(|flow| {
            let client = std::net::Ipv4Addr::from(0xc612_0000 + flow / 4);
            format!(
                "-I -s {client} -d 10.96.0.9 -p tcp --sport {} --dport 7 --dst-nat 10.1.1.2:9000 --state ESTABLISHED -t 3600\n",
                20_000 + flow % 4
            )
        })
        .collect();
    let file = std::env::temp_dir().join(format!("tg-flows-{}", std::process::id()));
    std::fs::write(&file, lines).unwrap();
    topology.node.exec(&["conntrack", "-R", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    // The kernel may refuse an entry while modules of other tests are loaded or removed.
    let listed = topology.node.exec(&["conntrack", "-L", "-d", "10.96.0.9"]).lines().count() as u64;
    assert!(listed > u64::from(count) * 9 / 10, "the kernel has only {listed} of {count} flows");
    let frontend = at("10.96.0.9", Protocol::Tcp, 7);
    let program =
        program(&["10.96.0.9"], &[], &[(frontend, forward(Masquerade::Always, &[("10.1.1.2", 9000, 1)]))]);
    topology.node.run(|| {
        let mut node = Node::real(desired(vec![("web", program)]));
        for _ in 0..2 {
            let begun = Instant::now();
            assert!(node.cleaner.read_flows(&node.desired.networks).unwrap());
            println!("a reading of {listed} flows took {} ms", begun.elapsed().as_millis());
            let seen: u64 = node.cleaner.flows().map(|(_, _, _, flows)| flows.active + flows.inactive).sum();
            assert_eq!(seen, listed);
        }
    });
}
