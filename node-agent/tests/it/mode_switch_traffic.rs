//! Tests of a change of the proxy mode while clients send traffic, with the agent loop and real kernels.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{
        event::EventReason,
        node::{Naming, ProxyMode, ProxyOptions},
        service::Protocol,
    },
    primitives::{
        net::IpFamily,
        quantity::{Revision, Weight},
    },
    wire::feed::NodeState,
};
use node_agent::{
    agent::{Agent, Beginning, Kernel},
    conntrack::KernelFlows,
    dataplane::{self, BackendOptions},
    defaults::ProxyDefaults,
    status::Status,
    tally::Tally,
};

use crate::support::{
    Namespace, enter, isolated::in_guest, net::Topology, process::Home, programs::*, states::*,
};

/// Maximum time to wait for an expected event; long, because the guest VM (`lab/guest.sh`) has one CPU and
/// slow system calls.
const PATIENCE: Duration = Duration::from_secs(60);

fn is_guest() -> bool {
    std::env::var_os("TIDEGATE_GUEST").is_some()
}

/// Node whose agent loop runs on a thread in the node's namespace.
struct Node {
    agent: Agent,
    tally: Tally,
    revision: u64,
}

impl Node {
    fn start(home: &Home) -> Self {
        let (journal, state) = home.dir.open();
        let tally = Tally::default();
        let revision = state.position().map_or(10, |position| position.revision.0);
        let kernel = Kernel {
            open: home.relays().opener(),
            flows: Box::new(KernelFlows::default()),
            routes: Box::new(node_agent::service_routes::NoServiceRoutes),
        };
        let beginning = Beginning {
            node: node_name(),
            kernel,
            defaults: ProxyDefaults::default(),
            journal,
            state,
            tally: tally.clone(),
        };
        let mut node = Self { agent: Agent::new(beginning, Instant::now()).unwrap(), tally, revision };
        node.turn();
        node
    }

    fn turn(&mut self) {
        self.agent.turn(Instant::now(), 0);
    }

    /// Runs the agent loop until `is_true` returns true. The first argument describes the condition in
    /// errors.
    fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_true(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.agent.status());
            let next = self.agent.next_turn(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
            self.turn();
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.until("time", |_| Instant::now() >= end);
    }

    fn ask(&mut self, mode: ProxyMode, proxy: ProxyOptions) {
        self.revision += 1;
        let mut batch = delta(&format!("7-{}", self.revision), Vec::new());
        batch.node = Some(NodeState { mode: Some(mode), proxy, ..NodeState::default() });
        self.agent.receive(batch, Instant::now());
        self.turn();
        self.until(mode.as_str(), |node| {
            let status = node.status();
            status.mode == mode && status.warnings.is_empty() && status.verified == status.received
        });
    }

    fn status(&mut self) -> Status {
        self.agent.status()
    }
}

/// Builds a TCP Service at a virtual address and a node port. One port closes each connection after a reply;
/// another one echoes until the client closes.
fn web() -> CompiledService {
    let endpoint = |ip: &str, number| CompiledEndpoint {
        address: address(ip),
        port: port(number),
        node: None,
        zone: None,
        weight: Weight(1),
        ready: true,
        serving: true,
        terminating: false,
        maintenance: None,
        node_lost: false,
        checked_by_source: false,
    };
    let of_port = |name: &str, number, node_port, target| CompiledPort {
        name: Some(name.parse().unwrap()),
        protocol: Protocol::Tcp,
        port: port(number),
        end_port: None,
        node_port: Some(port(node_port)),
        endpoints: vec![endpoint("10.1.1.2", target), endpoint("10.1.2.2", target)],
    };
    CompiledService {
        revision: Revision(9),
        cluster_ips: vec![address("10.96.0.1")],
        ip_families: vec![IpFamily::V4],
        ports: vec![of_port("web", 80, 30080, 8080), of_port("echo", 7, 30007, 7)],
        ..CompiledService::new(service_key(1))
    }
}

fn start_echo(namespace: &Namespace) {
    let listener = namespace.run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 7)).unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length) = stream.read(&mut buffer) {
                    if length == 0 || stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// TCP transfer without end, in which the server sends every byte back.
struct Transfer(TcpStream);

impl Transfer {
    fn begin(client: &Namespace, ip: &str, port: u16) -> Self {
        let (name, address) = (client.name().to_owned(), SocketAddr::new(address(ip), port));
        let connect = move || {
            enter(&name);
            TcpStream::connect_timeout(&address, PATIENCE).unwrap()
        };
        let stream = thread::spawn(connect).join().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut transfer = Self(stream);
        transfer.go_on("at its beginning");
        transfer
    }

    fn go_on(&mut self, when: &str) {
        let sent: Vec<u8> =
            (0..if is_guest() { 1_000 } else { 100_000_u32 }).flat_map(u32::to_be_bytes).collect();
        let mut writer = self.0.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&sent));
            let mut received = vec![0; sent.len()];
            self.0.read_exact(&mut received).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert!(received == sent, "{when}: other bytes came back");
        });
    }
}

/// Returns the proxy modes to test on this machine: those that its kernel supports. Modes that need the guest
/// VM (`lab/guest.sh`) are tested there.
fn modes() -> Vec<ProxyMode> {
    let mut modes = Vec::new();
    for mode in ProxyMode::ALL.iter().copied() {
        match dataplane::open(mode, &BackendOptions::default()) {
            Ok(_) => modes.push(mode),
            Err(error) => println!("{} is not to be had here: {error:?}", mode.as_str()),
        }
    }
    modes
}

/// Connects continuously to a virtual address or a node port until `stop` is set, and counts the connections
/// in `made`. Returns the descriptions of the failures.
fn connect_until(
    stop: &AtomicBool,
    client: &Namespace,
    ip: &str,
    port: u16,
    made: &AtomicUsize,
) -> Vec<String> {
    enter(client.name());
    let address = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port);
    let mut failures = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if is_guest() {
            thread::sleep(Duration::from_millis(200));
        }
        let answer = TcpStream::connect_timeout(&address, Duration::from_secs(5)).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        });
        match answer {
            Ok(text) if text.contains(' ') => {
                made.fetch_add(1, Ordering::Relaxed);
            }
            other => failures.push(format!("{ip}: {other:?}")),
        }
    }
    failures
}

/// F013, F053: while the node changes through every supported mode and back, and through other options of the
/// same mode, no new connection fails and earlier transfers continue.
#[test]
fn f013_f053_changes_of_mode_and_options_lose_no_connection() {
    let modes = modes();
    assert!(modes.len() >= 3, "{modes:?}");
    change_through(&modes, Naming::Kube, "switch");
}

/// F013, F053: while the node changes between iptables and ipvs mode, in the guest VM (`lab/guest.sh`), no
/// new connection fails and earlier transfers continue.
#[test]
fn f013_f053_changes_between_iptables_and_ipvs_lose_no_connection() {
    in_guest("mode_switch_traffic::f013_f053_changes_between_iptables_and_ipvs_lose_no_connection", || {
        change_through(&[ProxyMode::Iptables, ProxyMode::Ipvs], Naming::Tidegate, "guestswitch");
    });
}

/// Changes the node through the modes and back, and through other options of each mode, while clients connect
/// continuously. Asserts that no connection fails.
fn change_through(modes: &[ProxyMode], other_naming: Naming, test: &str) {
    let topology = Topology::new(test);
    start_echo(&topology.a);
    start_echo(&topology.b);
    let home = Home::new(test);
    topology.node.run(|| {
        let before = rules(&topology.node);
        let mut node = Node::start(&home);
        let mut batch = full("7-10", vec![web()]);
        batch.node = Some(NodeState { mode: modes.first().copied(), ..NodeState::default() });
        node.agent.receive(batch, Instant::now());
        node.turn();
        node.ask(modes[0], ProxyOptions::default());
        let failures = change_while_clients_connect(&mut node, &topology.client, modes, other_naming);
        assert_eq!(failures, [""; 0]);
        assert!(node.status().events.iter().all(|event| event.reason == EventReason::ModeChanged));
        let others: &[&str] = match modes[0] {
            ProxyMode::Iptables => &["TGV-", "KUBE-", "tidegate", " rr"],
            ProxyMode::Nftables | ProxyMode::Ipvs | ProxyMode::Userspace => &["TG-", "KUBE-", "-userspace"],
        };
        if is_guest() {
            // IPVS remembers a closed connection for two minutes, and the mode stays as long, which is too
            // long for the test.
            for mode in modes {
                dataplane::open(*mode, &BackendOptions::default()).unwrap().cleanup().unwrap();
            }
            return assert_eq!(rules(&topology.node), before);
        }
        node.until("the other modes to leave", |node| {
            node.run_for(Duration::from_millis(500));
            let rules = rules(&topology.node).join("\n");
            !others.iter().any(|other| rules.contains(other))
        });
        dataplane::open(modes[0], &BackendOptions::default()).unwrap().cleanup().unwrap();
        assert_eq!(rules(&topology.node), before);
    });
}

fn change_while_clients_connect(
    node: &mut Node,
    client: &Namespace,
    modes: &[ProxyMode],
    other_naming: Naming,
) -> Vec<String> {
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let clients = [("10.96.0.1", 80), ("192.0.2.1", 30080)].map(|(ip, port)| {
            let (stop, made) = (&stop, &made);
            scope.spawn(move || connect_until(stop, client, ip, port, made))
        });
        let _stopped = StopAtEnd(&stop);
        let mut transfers = vec![(modes[0].as_str(), Transfer::begin(client, "10.96.0.1", 7))];
        let mark = |bit| ProxyOptions { masquerade_bit: Some(bit), ..ProxyOptions::default() };
        for mode in modes.iter().chain(modes.iter().rev().skip(1)) {
            let other = ProxyOptions { naming: other_naming, ..mark(21) };
            let all = [ProxyOptions::default(), mark(20), other, ProxyOptions::default()];
            for options in all.into_iter().take(if is_guest() { 1 } else { 4 }) {
                node.ask(*mode, options);
                let seen = made.load(Ordering::Relaxed);
                node.until("connections", |_| {
                    made.load(Ordering::Relaxed) > seen + if is_guest() { 3 } else { 10 }
                });
                for (begun, transfer) in &mut transfers {
                    transfer.go_on(&format!("begun in {begun}, now in {}", mode.as_str()));
                }
            }
            println!("{} has taken over", mode.as_str());
            transfers.push((mode.as_str(), Transfer::begin(client, "192.0.2.1", 30007)));
        }
        stop.store(true, Ordering::Relaxed);
        let failures = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        println!("{} connections through {modes:?} and back", made.load(Ordering::Relaxed));
        failures
    })
}

/// Guard that stops the clients even if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the kernel state that an agent may have created. Empty iptables tables are omitted, because the
/// tools create them by reading.
fn rules(node: &Namespace) -> Vec<String> {
    let listings: &[&[&str]] = if is_guest() {
        &[
            &["iptables-legacy-save"],
            &["ip6tables-legacy-save"],
            &["ipvsadm", "-Ln"],
            &["ipset", "list", "-n"],
        ]
    } else {
        &[&["nft", "list", "ruleset"]]
    };
    let text: String = listings.iter().map(|listing| node.exec(listing)).collect();
    let ours = ["jump", "-j", "TG-", "TGV-", "KUBE-", "tidegate", " rr", " wrr"];
    let lines = text.lines().filter(|line| ours.iter().any(|word| line.contains(word)));
    lines.map(str::to_owned).collect()
}

/// In each mode, a restarted agent finds everything in place and writes nothing, and a long transfer
/// continues; in userspace mode this is possible because the relay is a separate process.
#[test]
fn a_restart_in_any_mode_writes_nothing_and_a_long_transfer_goes_on() {
    let topology = Topology::new("restart");
    start_echo(&topology.a);
    start_echo(&topology.b);
    let home = Home::new("restart");
    topology.node.run(|| {
        for mode in modes() {
            let mut node = Node::start(&home);
            if node.agent.state().position().is_none() {
                node.agent.receive(full("7-10", vec![web()]), Instant::now());
                node.turn();
            }
            node.ask(mode, ProxyOptions::default());
            node.run_for(Duration::from_secs(3));
            let mut transfer = Transfer::begin(&topology.client, "10.96.0.1", 7);
            let rules = topology.node.exec(&["nft", "list", "ruleset"]);
            node.agent.stop().unwrap();
            let mut node = Node::start(&home);
            node.run_for(Duration::from_secs(3));
            let status = node.status();
            assert_eq!((status.mode, status.is_healthy()), (mode, true), "{status:?}");
            assert_eq!(node.tally.kernel_writes.get(), 0, "{}", mode.as_str());
            assert_eq!(status.kernel.transactions, 0, "{}", mode.as_str());
            let now = topology.node.exec(&["nft", "list", "ruleset"]);
            assert_eq!(without_counters(&now), without_counters(&rules), "{}", mode.as_str());
            transfer.go_on(mode.as_str());
        }
    });
}

fn without_counters(ruleset: &str) -> Vec<String> {
    let words = |line: &str| {
        let words: Vec<_> =
            line.split_whitespace().filter(|word| !word.bytes().all(|b| b.is_ascii_digit())).collect();
        words.join(" ")
    };
    ruleset.lines().map(words).collect()
}
