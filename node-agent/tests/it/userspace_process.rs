//! Tests of the userspace relay as a separate process, started by the agent's backend: access control,
//! robustness, and takeover by a new relay.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use model::{
    kinds::service::{Protocol, ProxyProtocol, SchedulerFlag},
    primitives::quantity::PortRange,
    program::{Masquerade, Removal, Route, Verdict},
};
use nix::sys::signal::Signal;
use node_agent::dataplane::{
    BackendOptions, Dataplane, DesiredState, Scope,
    userspace::{
        TABLE,
        process::{RelayClient, end_all, wire},
    },
};
use node_agent::journal::lock::StateDirLock;
use proptest::prelude::*;

use crate::support::{
    Namespace,
    net::Topology,
    process::{AGENT, AgentProcess, Home, PortEcho, ask_port, runs, signal},
    programs::{
        at, by_source, desired, forward, key, nets, only, port, program, routed, set, simple, verified,
    },
    relay::{TcpServer, connect, echo, echoes, eventually, udp},
};

const VIP: &str = "10.96.0.1";
const BOTH: [(&str, u16, u16); 2] = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];

fn mark() -> u32 {
    BackendOptions::default().masquerade_mark
}

/// Starts a relay process in the directory `home` and programs the desired state. Returns the client that
/// controls the relay. `mark` is the packet mark of the rules.
fn running(node: &Namespace, home: &Home, mark: u32, desired: &DesiredState) -> RelayClient {
    let mut client = node.run(|| RelayClient::open(home.relays(), mark).unwrap());
    node.run(|| client.observe()).unwrap();
    verified(&node.run(|| client.apply(desired, &Scope::Everything)));
    client
}

/// Builds a Service: TCP and UDP port 80 lead to port 9000 of workload a, and TCP port 81 leads to port 8080
/// of both workloads, on which servers send short replies.
fn services() -> DesiredState {
    let to_a = [("10.1.1.2", 9000, 1)];
    let frontends = [
        (at(VIP, Protocol::Tcp, 80), forward(Masquerade::OffCluster, &to_a)),
        (at(VIP, Protocol::Udp, 80), forward(Masquerade::OffCluster, &to_a)),
        (at(VIP, Protocol::Tcp, 81), forward(Masquerade::OffCluster, &BOTH)),
    ];
    desired(vec![("web", program(&[VIP], &[], &frontends))])
}

#[test]
fn a_client_that_comes_later_finds_everything_and_changes_only_what_changed() {
    let topology = Topology::new("usp-later");
    let home = Home::new("usp-later");
    let _flows = PortEcho::start(&topology.a, 9000);
    let mut wanted = services();
    let first = running(&topology.node, &home, mark(), &wanted);
    let relay = home.process();
    let flow = udp(&topology.client, VIP, 80);
    let flow_port = ask_port(&flow);
    drop(first);
    topology.client.ask_tcp(VIP, 81).unwrap();

    let mut second = topology.node.run(|| RelayClient::open(home.relays(), mark()).unwrap());
    assert_eq!(second.relay_heap_bytes(), None, "no relay was asked yet");
    topology.node.run(|| second.observe()).unwrap();
    assert!(second.relay_heap_bytes() > Some(64 << 10), "{:?}", second.relay_heap_bytes());
    let pass = topology.node.run(|| second.apply(&wanted, &Scope::Everything));
    assert_eq!((verified(&pass), second.process()), (0, Some(relay)));
    assert_eq!(second.counters().transactions, 0, "what an earlier agent did is not counted");
    assert!(!topology.node.run(|| second.is_disturbed()).unwrap());
    assert_eq!(ask_port(&flow), flow_port);

    set(&mut wanted, "more", simple("10.96.0.2", &BOTH));
    let pass = topology.node.run(|| second.apply(&wanted, &only(&["more"])));
    assert_eq!(pass.outcomes.keys().collect::<Vec<_>>(), [&key("more")], "only that one is told");
    assert!(verified(&pass) > 0 && second.counters().transactions == 1);
    topology.client.ask_tcp("10.96.0.2", 80).unwrap();
    topology.client.ask_tcp(VIP, 81).unwrap();
    let traffic = topology.node.run(|| second.traffic()).unwrap();
    assert!(traffic.iter().any(|row| row.service == key("more") && row.connections == 1), "{traffic:?}");
    wanted.programs.remove(&key("more"));
    verified(&topology.node.run(|| second.apply(&wanted, &only(&["more"]))));
    assert!(topology.client.ask_tcp("10.96.0.2", 80).is_err());
}

/// Even with thousands of clients, the relay does not reserve a datagram buffer of maximum size for each
/// client.
#[test]
fn flows_and_listeners_that_wait_hold_no_room_for_a_datagram() {
    const EACH_MAX: u64 = 8 << 10;
    let topology = Topology::new("usp-room");
    let home = Home::new("usp-room");
    let _flows = PortEcho::start(&topology.a, 9000);
    let mut wanted = services();
    let mut client = running(&topology.node, &home, mark(), &wanted);
    let in_use = |client: &mut RelayClient| {
        topology.node.run(|| client.observe()).unwrap();
        client.relay_heap_bytes().unwrap()
    };
    // Buffers allocated at the first datagram and then kept exist before the measurement.
    ask_port(&udp(&topology.client, VIP, 80));
    let before = in_use(&mut client);
    let flows: Vec<_> = (0..200).map(|_| udp(&topology.client, VIP, 80)).collect();
    let ports: BTreeSet<_> = flows.iter().map(ask_port).collect();
    assert_eq!(ports.len(), flows.len(), "each is a flow of its own");
    let with_flows = in_use(&mut client);
    assert!(with_flows < before + 200 * EACH_MAX, "{before} and then {with_flows}");

    for last in 1..=100 {
        let vip = format!("10.96.1.{last}");
        let frontends =
            [(at(&vip, Protocol::Udp, 80), forward(Masquerade::OffCluster, &[("10.1.1.2", 9000, 1)]))];
        wanted.programs.extend(desired(vec![(&vip, program(&[&vip], &[], &frontends))]).programs);
    }
    verified(&topology.node.run(|| client.apply(&wanted, &Scope::Everything)));
    let with_listeners = in_use(&mut client);
    assert!(with_listeners < with_flows + 100 * EACH_MAX, "{with_flows} and then {with_listeners}");
    assert_eq!(flows.iter().map(ask_port).collect::<BTreeSet<_>>(), ports);
}

#[test]
fn bytes_of_any_kind_on_the_socket_do_no_harm() {
    let topology = Topology::new("usp-bytes");
    let home = Home::new("usp-bytes");
    let wanted = services();
    let mut client = running(&topology.node, &home, mark(), &wanted);
    let relay = home.process();
    let path = home.path().join(format!("relay/{relay}.socket"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(home.path().join("relay")).unwrap().permissions().mode() & 0o777, 0o700);

    let greeting = wire::encode(&wire::Greeting::new(wire::Intent::Serve)).unwrap();
    let stage = wire::Request::Apply { networks: wanted.networks.clone(), scope: Scope::Everything };
    let apply = wire::encode(&stage).unwrap();
    let mut other_magic = greeting.clone();
    other_magic[wire::LENGTH_BYTES] ^= 1;
    let mut other_intent = greeting.clone();
    *other_intent.last_mut().unwrap() = 99;
    let sayings: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0; 3],
        vec![0; 4096],
        vec![0xff; 4096],
        u32::MAX.to_be_bytes().to_vec(),
        [&8_u32.to_be_bytes()[..], &[1; 8]].concat(),
        greeting[..greeting.len() - 1].to_vec(),
        other_magic,
        other_intent,
        [&greeting[..], &[0xff; 64]].concat(),
        [&greeting[..], &apply[..apply.len() - 2]].concat(),
        [&greeting[..], &(64_u32 << 20).to_be_bytes(), &[0; 1000]].concat(),
        (0..10_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect(),
    ];
    for bytes in &sayings {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The connection may be closed before everything is sent.
        let _closed = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let _closed = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(home.process(), relay);
    topology.client.ask_tcp(VIP, 81).unwrap();
    assert_eq!(verified(&topology.node.run(|| client.apply(&wanted, &Scope::Everything))), 0);
}

#[test]
fn a_relay_that_ended_is_an_error_until_another_one_has_everything() {
    let topology = Topology::new("usp-ended");
    let home = Home::new("usp-ended");
    let wanted = services();
    let mut client = running(&topology.node, &home, mark(), &wanted);
    let relay = home.process();
    signal(relay, Signal::SIGKILL);
    eventually("its end", || !runs(relay));
    let node = &topology.node;
    let error = node.run(|| client.is_disturbed()).unwrap_err().to_string();
    assert!(error.contains("relay process"), "{error}");
    let pass = node.run(|| client.apply(&wanted, &only(&["web"])));
    assert!(pass.failed.is_some(), "one that lacks the others is not told of one");
    node.run(|| client.observe()).unwrap();
    let pass = node.run(|| client.apply(&wanted, &only(&["web"])));
    assert!(pass.failed.is_some(), "still");
    assert!(verified(&node.run(|| client.apply(&wanted, &Scope::Everything))) > 0);
    topology.client.ask_tcp(VIP, 81).unwrap();
    assert!(!node.run(|| client.is_disturbed()).unwrap());
}

#[test]
fn another_mark_is_another_relay_and_the_first_keeps_its_connections() {
    let topology = Topology::new("usp-mark");
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let home = Home::new("usp-mark");
    let wanted = services();
    let node = &topology.node;
    let first = running(node, &home, mark(), &wanted);
    let old = home.process();
    let mut stream = connect(&topology.client, VIP, 80).unwrap();
    assert!(echoes(&mut stream, "one"));
    let mut second = node.run(|| RelayClient::open(home.relays(), 1 << 20).unwrap());
    node.run(|| second.observe()).unwrap();
    topology.client.ask_tcp(VIP, 81).unwrap();
    assert!(verified(&node.run(|| second.apply(&wanted, &Scope::Everything))) > 0);
    let rules = node.list_table(TABLE);
    assert!(rules.contains("0x00100000"), "{rules}");
    drop(first);
    thread::sleep(Duration::from_secs(3));
    assert!(echoes(&mut stream, "two") && runs(old));
    topology.client.ask_tcp(VIP, 81).unwrap();
    drop(stream);
    eventually("the old one to end", || !runs(old));
    assert_eq!(node.list_table(TABLE), rules);
}

/// If the agent starts a second relay and abandons it, for example because the kernel rejected a part of the
/// rules with a new packet mark, the rules still lead to the first relay.
#[test]
fn a_relay_that_is_abandoned_leaves_the_rules_to_the_first() {
    let topology = Topology::new("usp-abandon");
    let home = Home::new("usp-abandon");
    let wanted = services();
    let node = &topology.node;
    let mut first = running(node, &home, mark(), &wanted);
    let (old, rules) = (home.process(), node.list_table(TABLE));
    let mut second = node.run(|| RelayClient::open(home.relays(), 1 << 20).unwrap());
    node.run(|| second.observe()).unwrap();
    node.run(|| second.abandon());
    eventually("only the first", || home.processes() == [old]);
    node.run(|| first.observe()).unwrap();
    verified(&node.run(|| first.apply(&wanted, &Scope::Everything)));
    assert_eq!(node.list_table(TABLE), rules);
    topology.client.ask_tcp(VIP, 81).unwrap();
}

#[test]
fn a_relay_that_was_never_needed_ends_with_its_client() {
    let topology = Topology::new("usp-try");
    let home = Home::new("usp-try");
    let wanted = services();
    let node = &topology.node;
    let _kept = running(node, &home, mark(), &wanted);
    let old = home.process();
    let rules = node.list_table(TABLE);
    let mut tried = node.run(|| RelayClient::open(home.relays(), 1 << 20).unwrap());
    node.run(|| tried.begin()).unwrap();
    assert_eq!(home.processes().len(), 2);
    drop(tried);
    eventually("only the first", || home.processes() == [old]);
    assert_eq!(node.list_table(TABLE), rules);
    topology.client.ask_tcp(VIP, 81).unwrap();
}

#[test]
fn a_relay_that_retires_drains_and_ends() {
    let topology = Topology::new("usp-retire");
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let home = Home::new("usp-retire");
    let node = &topology.node;
    let before = node.exec(&["nft", "list", "ruleset"]);
    let mut client = running(node, &home, mark(), &services());
    let relay = home.process();
    // The kernel translates packets of established connections as long as any nat rules exist, as in the next
    // mode.
    node.nft(
        "add table ip other\n\
         add chain ip other pre { type nat hook prerouting priority -100; }\n\
         add chain ip other post { type nat hook postrouting priority 100; }\n\
         add rule ip other pre ip daddr 203.0.113.99 tcp dport 1 redirect to :2",
    );
    let mut stream = connect(&topology.client, VIP, 80).unwrap();
    assert!(echoes(&mut stream, "one"));
    assert!(!node.run(|| client.retire()).unwrap());
    assert!(!node.has_table(TABLE));
    drop(client);
    // An agent that returns in another mode looks for leftovers, and lets the relay drain.
    let mut later = node.run(|| RelayClient::open(home.relays(), mark()).unwrap());
    assert_eq!(node.run(|| later.cleanup()).unwrap(), 0);
    assert!(echoes(&mut stream, "two") && runs(relay));
    drop(stream);
    eventually("its end", || !runs(relay) && home.processes().is_empty());
    node.exec(&["nft", "delete", "table", "ip", "other"]);
    assert_eq!(node.exec(&["nft", "list", "ruleset"]), before);
}

#[test]
fn rules_whose_relay_is_gone_are_cleaned_up_and_a_mute_relay_is_killed() {
    let topology = Topology::new("usp-mute");
    let home = Home::new("usp-mute");
    let node = &topology.node;
    let client = running(node, &home, mark(), &services());
    let relay = home.process();
    signal(relay, Signal::SIGKILL);
    eventually("its end", || !runs(relay));
    drop(client);
    let mut later = node.run(|| RelayClient::open(home.relays(), mark()).unwrap());
    assert!(node.run(|| later.cleanup()).unwrap() > 0 && !node.has_table(TABLE));
    assert_eq!(home.processes(), [0_u32; 0]);
    let relay = {
        let _client = running(node, &home, mark(), &services());
        home.process()
    };
    signal(relay, Signal::SIGSTOP);
    assert_eq!(end_all(home.path()).unwrap().processes, 1);
    eventually("its end", || !runs(relay));
    assert!(!home.path().join("relay").exists());
}

/// The relay rejects connections from other users, even if the file permissions would allow access.
#[test]
fn strangers_are_not_talked_to() {
    // The relay may close the connection before or after the first request.
    const SAY: &str = "use IO::Socket::UNIX; $SIG{PIPE} = 'IGNORE'; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die; \
        syswrite($s, pack('H*', $ARGV[1])); my $n = sysread($s, my $answer, 4096); print($n // 0)";
    let topology = Topology::new("usp-uid");
    let home = Home::new("usp-uid");
    let _client = running(&topology.node, &home, mark(), &services());
    let relay = home.path().join("relay");
    let socket = relay.join(format!("{}.socket", home.process()));
    let greeting = wire::encode(&wire::Greeting::new(wire::Intent::Serve)).unwrap();
    let greeting: String = greeting.iter().map(|byte| format!("{byte:02x}")).collect();
    let answered = |user: u32| {
        let mut command = Command::new("perl");
        command.args(["-e", SAY]).arg(&socket).arg(&greeting).uid(user).gid(user);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().parse::<u32>().unwrap() > 0
    };
    for (path, mode) in [(&relay, 0o755), (&socket, 0o666)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let heard = [0, 65_534].map(answered);
    fs::set_permissions(&relay, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(heard, [true, false]);
}

#[test]
fn only_one_relay_runs_and_only_in_a_directory_of_its_own() {
    let topology = Topology::new("usp-one");
    let home = Home::new("usp-one");
    let node = &topology.node;
    let _client = running(node, &home, mark(), &services());
    let start = || {
        let mut command = AgentProcess::once(node, &home);
        let output = command.args(["relay", "--mark=16384"]).stderr(Stdio::piped()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_good, said) = start();
    assert!(!is_good && said.contains("another relay runs"), "{said}");
    fs::set_permissions(home.path().join("relay"), Permissions::from_mode(0o755)).unwrap();
    let (is_good, said) = start();
    assert!(!is_good && said.contains("mode 0700"), "{said}");
    let mut other = node.run(|| RelayClient::open(home.relays(), mark()).unwrap());
    let error = node.run(|| other.begin()).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(error.to_string().contains("starting") && source.contains("mode 0700"), "{error}: {source}");
    fs::set_permissions(home.path().join("relay"), Permissions::from_mode(0o700)).unwrap();
    let mut missing =
        node.run(|| RelayClient::open(home.relays_of(home.path().join("nothing")), mark()).unwrap());
    assert!(node.run(|| missing.begin()).is_err());
}

fn rich() -> DesiredState {
    let frontend = at("fd96::1", Protocol::Udp, 53);
    let verdicts = [
        forward(Masquerade::Never, &[("fd01:1::2", 53, 7)]),
        Verdict::Reject,
        Verdict::Relay { port: port(1) },
    ];
    let route = Route {
        port_name: Some("dns".parse().unwrap()),
        allowed_sources: Some(nets(&["2001:db8::/32", "192.0.2.0/24"])),
        affinity_seconds: Some(86_400),
        scheduler: Some(model::kinds::service::Scheduler("sh".parse().unwrap())),
        scheduler_flags: [SchedulerFlag::Port, SchedulerFlag::Fallback].into(),
        proxy_protocol: Some(ProxyProtocol::V2),
        removal: Removal::Drain(30),
        ..by_source(&frontend, verdicts)
    };
    let mut program = routed(vec![(frontend, route)]);
    program.health_check =
        Some(model::program::HealthCheckNodePort { port: port(32_000), local_endpoints: 3 });
    desired(vec![("dns", program), ("web", simple(VIP, &BOTH))])
}

#[test]
fn what_is_encoded_is_decoded() {
    for (service, wanted) in rich().programs {
        let request = wire::Request::Stage {
            service: service.clone(),
            revision: wanted.revision,
            program: wanted.program.clone(),
        };
        let frame = wire::encode(&request).unwrap();
        let head = frame[..wire::LENGTH_BYTES].try_into().unwrap();
        let payload = &frame[wire::LENGTH_BYTES..];
        assert_eq!(wire::length(head, wire::FRAME_BYTES_MAX).unwrap(), payload.len());
        let wire::Request::Stage { service: its, revision, program } = wire::decode(payload).unwrap() else {
            panic!("another request");
        };
        assert_eq!((its, revision, program), (service, wanted.revision, wanted.program));
        assert!(wire::decode::<wire::Request>(&payload[..payload.len() - 1]).is_err());
        assert!(wire::decode::<wire::Request>(&[payload, &[0]].concat()).is_err());
    }
    // A reversed range is the same range.
    let backwards = wire::encode(&(port(9), port(3))).unwrap();
    let range: PortRange = wire::decode(&backwards[wire::LENGTH_BYTES..]).unwrap();
    assert_eq!(range, PortRange::new(port(3), port(9)));
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _any = wire::decode::<wire::Request>(&bytes);
        let _any = wire::decode::<wire::Answer>(&bytes);
        let _any = wire::decode::<wire::Greeting>(&bytes);
        let _any = wire::decode::<wire::Welcome>(&bytes);
        let _any = wire::decode::<wire::Farewell>(&bytes);
    }

    #[test]
    fn a_changed_byte_is_decoded_or_refused(place in 0_usize..4096, change in 1_u8..) {
        for (service, wanted) in rich().programs {
            let request = wire::Request::Stage { service, revision: wanted.revision, program: wanted.program };
            let mut payload = wire::encode(&request).unwrap().split_off(wire::LENGTH_BYTES);
            let place = place % payload.len();
            payload[place] ^= change;
            let _any = wire::decode::<wire::Request>(&payload);
        }
    }
}

/// A cleanup with another state directory ends the relay processes of this network namespace, except those of a
/// running agent.
#[test]
fn a_cleanup_ends_the_relays_of_other_state_directories() {
    let topology = Topology::new("usp-cleanup");
    let (home, other) = (Home::new("usp-cleanup"), Home::new("usp-cleanup-other"));
    let client = running(&topology.node, &home, mark(), &services());
    let relay = home.process();
    drop(client);
    let settings = ["cleanup", "--api", "http://127.0.0.1:1", "--node", "n1", "--state-dir"];
    let cleanup = [&[AGENT][..], &settings, &[other.path().to_str().unwrap()]].concat();
    let lock = StateDirLock::acquire(home.path()).unwrap();
    let said = topology.node.exec(&cleanup);
    assert!(said.contains("whose agent runs"), "{said}");
    assert!(runs(relay));
    drop(lock);
    let said = topology.node.exec(&cleanup);
    assert!(said.contains("ended 1 relay processes of --state-dir"), "{said}");
    eventually("the relay to end", || !runs(relay));
}
