//! Tests that the userspace relay process outlives the agent: real agent processes are killed, restarted and
//! upgraded while connections continue.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    net::Shutdown,
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use node_agent::dataplane::userspace::TABLE;

use crate::support::{
    Namespace,
    net::Topology,
    process::{AGENT, AgentProcess, Home, PortEcho, ask_port, runs, session, signal, web},
    relay::{TcpServer, connect, echo, echoes, eventually, read_pattern, send_pattern, udp},
};

const VIP: &str = "10.96.0.1";

fn transactions(agent: &AgentProcess) -> u64 {
    agent.state()["counters"]["kernelTransactions"].as_u64().unwrap()
}

/// F059: a long transfer, a UDP flow and new connections are not affected when agents are terminated or
/// killed and start again; a restarted agent writes nothing to the kernel.
#[test]
fn f059_a_transfer_a_flow_and_new_connections_go_on_while_agents_end_and_return() {
    /// Number of bytes per write: a multiple of 251, the length of the repeated byte pattern.
    const CHUNK: usize = 251 * 64;
    let topology = Topology::new("usa-end");
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let _flows = PortEcho::start(&topology.a, 9000);
    let home = Home::new("usa-end");
    home.save(vec![web()]);
    let agent = AgentProcess::start(&topology.node, &home);
    let relay = home.process();
    assert_eq!(session(relay), relay, "a signal to the agent's terminal is none to the relay");
    let rules = topology.node.list_table(TABLE);

    let flow = udp(&topology.client, VIP, 80);
    let flow_port = ask_port(&flow);
    let stream = connect(&topology.client, VIP, 80).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopped = StopAtEnd(&is_over);
        let receiver = scope.spawn(|| read_pattern(&mut &stream).unwrap());
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                send_pattern(&mut &stream, CHUNK).unwrap();
                sent += CHUNK;
                thread::sleep(Duration::from_millis(2));
            }
            stream.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let mut agent = agent;
        for how in [Signal::SIGTERM, Signal::SIGKILL] {
            agent.end(how);
            assert_eq!(topology.node.list_table(TABLE), rules, "{how}: the rules stay");
            for _ in 0..4 {
                topology.client.ask_tcp(VIP, 81).unwrap();
            }
            assert_eq!(ask_port(&flow), flow_port, "{how}: the flow goes on without an agent");
            agent = AgentProcess::start(&topology.node, &home);
            assert_eq!(transactions(&agent), 0, "{how}: a restart writes nothing");
            assert_eq!(topology.node.list_table(TABLE), rules, "{how}");
            assert_eq!(home.process(), relay, "{how}: the same relay");
            assert_eq!(ask_port(&flow), flow_port, "{how}: the flow goes on");
            topology.client.ask_tcp(VIP, 81).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
        assert!(sent > 10 * CHUNK && received == sent, "{received} of {sent}");
        agent.end(Signal::SIGTERM);
    });
    assert!(runs(relay));
}

/// Guard that stops the sending thread, even if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A relay that was killed is replaced within a second, and the agent reports the replacement.
#[test]
fn a_relay_that_is_killed_is_back_and_the_agent_says_so() {
    let topology = Topology::new("usa-kill");
    let home = Home::new("usa-kill");
    home.save(vec![web()]);
    let agent = AgentProcess::start(&topology.node, &home);
    let relay = home.process();
    topology.client.ask_tcp(VIP, 81).unwrap();
    signal(relay, Signal::SIGKILL);
    eventually("new connections", || topology.client.ask_tcp(VIP, 81).is_ok());
    assert_ne!(home.process(), relay);
    eventually("a healthy agent", || agent.state()["healthy"] == true);
    let events = agent.state()["events"].to_string();
    assert!(events.contains("PassFailed") && events.contains("relay process"), "{events}");
}

/// After an upgrade of the program file, a new relay accepts new connections before the old one stops
/// listening, and the old relay ends with its last connection.
#[test]
fn an_upgrade_hands_new_connections_over_and_breaks_none() {
    let topology = Topology::new("usa-new");
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let home = Home::new("usa-new");
    home.save(vec![web()]);
    let agent = AgentProcess::start(&topology.node, &home);
    let old = home.process();
    let mut stream = connect(&topology.client, VIP, 80).unwrap();
    assert!(echoes(&mut stream, "with the old agent"));

    let upgraded: PathBuf = home.path().join("tidegate-agent-upgraded");
    std::fs::copy(AGENT, &upgraded).unwrap();
    let is_over = AtomicBool::new(false);
    let agent = thread::scope(|scope| {
        let _stopped = StopAtEnd(&is_over);
        let client = scope.spawn(|| {
            let mut failures = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                failures.extend(topology.client.ask_tcp(VIP, 81).err());
            }
            failures
        });
        agent.end(Signal::SIGTERM);
        let agent = AgentProcess::start_program(&topology.node, &home, &upgraded, "userspace");
        thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let failures = client.join().unwrap();
        assert!(failures.is_empty(), "{failures:?}");
        agent
    });
    assert_eq!(home.processes().len(), 2, "the old one keeps its connection");
    let rules = topology.node.list_table(TABLE);
    thread::sleep(Duration::from_secs(3));
    assert!(echoes(&mut stream, "with the new agent") && runs(old));
    drop(stream);
    eventually("the old relay to end", || !runs(old) && home.processes().len() == 1);
    assert_eq!(topology.node.list_table(TABLE), rules, "the old one has touched no rule");
    topology.client.ask_tcp(VIP, 81).unwrap();
    assert!(agent.state()["healthy"] == true);
}

#[test]
fn an_agent_whose_relay_cannot_be_started_says_so_and_does_not_start() {
    let node = Namespace::new("usa-none");
    let home = Home::new("usa-none");
    home.save(vec![web()]);
    let relay = home.path().join("relay");
    std::fs::write(&relay, "not a directory").unwrap();
    let output = AgentProcess::once(&node, &home)
        .args(["--mode=userspace", "--api=http://127.0.0.1:1", "--node=n1"])
        .output()
        .unwrap();
    std::fs::remove_file(&relay).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("--mode userspace cannot be used") && said.contains("mode 0700"), "{said}");
}

/// If the next agent runs a different mode, the relay of a killed agent accepts no new connections and ends
/// with its last one.
#[test]
fn an_agent_that_comes_back_in_another_mode_lets_the_relay_drain() {
    let topology = Topology::new("usa-other");
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let home = Home::new("usa-other");
    home.save(vec![web()]);
    let agent = AgentProcess::start(&topology.node, &home);
    let relay = home.process();
    let mut stream = connect(&topology.client, VIP, 80).unwrap();
    assert!(echoes(&mut stream, "with the relay"));
    agent.end(Signal::SIGKILL);
    let agent = AgentProcess::start_program(&topology.node, &home, AGENT.as_ref(), "nftables");
    eventually("the rules to go", || !topology.node.has_table(TABLE));
    topology.client.ask_tcp(VIP, 81).unwrap();
    thread::sleep(Duration::from_secs(3));
    assert!(echoes(&mut stream, "still") && runs(relay));
    agent.end(Signal::SIGKILL);
    let _agent = AgentProcess::start_program(&topology.node, &home, AGENT.as_ref(), "nftables");
    assert!(echoes(&mut stream, "also with the next") && runs(relay));
    drop(stream);
    eventually("its end", || !runs(relay) && home.processes().is_empty());
}

/// F079: even if no agent is running, a cleanup removes rules, relay process, socket and lock.
#[test]
fn f079_cleanup_ends_the_relay_and_leaves_nothing() {
    let topology = Topology::new("usa-clean");
    let before = topology.node.exec(&["nft", "list", "ruleset"]);
    let home = Home::new("usa-clean");
    let found = || {
        let names = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != "lock").collect::<Vec<_>>()
    };
    home.save(vec![web()]);
    let agent = AgentProcess::start(&topology.node, &home);
    let relay = home.process();
    let cleanup = || {
        let mut command = AgentProcess::once(&topology.node, &home);
        command.arg("cleanup").stderr(Stdio::piped()).output().unwrap()
    };
    let refused = cleanup();
    assert!(!refused.status.success() && runs(relay), "{refused:?}");
    agent.end(Signal::SIGKILL);
    let done = cleanup();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && said.contains("ended 1 relay process"), "{said}");
    assert!(!runs(relay));
    assert_eq!(topology.node.exec(&["nft", "list", "ruleset"]), before);
    assert_eq!(found(), Vec::<std::ffi::OsString>::new());
}
