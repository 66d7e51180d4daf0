//! Tests with a real Docker engine on the node: its published ports and the agent's Services work side by
//! side, regardless of restarts.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use model::{
    kinds::{node::ProxyMode, service::Protocol},
    primitives::net::IpFamily,
    program::Masquerade,
};
use node_agent::dataplane::{self, BackendOptions, DesiredState, Scope};

use crate::support::{self, Namespace, docker::Docker, net::Topology, programs::*, segment::eventually};

/// Prefix of the names of the agent's iptables chains.
const OURS: &str = "TG-";

/// Checks a proxy mode beside a Docker engine: clients, the node and the container get replies from a
/// published container port, a Service to two workloads and a Service to the container, before and after a
/// restart of either program. Docker's rules remain unchanged byte by byte, and the jumps of both programs
/// keep their order. Returns the iptables rules that exist while both programs run.
fn docker_beside_us(mode: ProxyMode, test: &str) -> Rules {
    let topology = Topology::new(test);
    let mut docker = Docker::start(&topology.node, test);
    docker.publish("web", "8080:80");
    let alone = Rules::of(&topology.node);
    // The engine publishes the port before the program in the container listens.
    eventually("the container to answer", || topology.client.ask_tcp("192.0.2.1", 8080).is_ok());
    check_published_port(&topology, "alone");

    let desired = services(&docker.address("web").to_string());
    let beside = while_published_port_answers(&topology, || {
        program(&topology.node, mode, &desired);
        let beside = Rules::of(&topology.node);
        assert_eq!(beside.of_docker, alone.of_docker, "Docker's rules are left as they are");
        check_everything(&topology, &docker, "beside us");
        topology.node.run(|| {
            let mut restarted = dataplane::open(mode, &BackendOptions::default()).unwrap();
            restarted.observe().unwrap();
            assert_eq!(
                verified(&restarted.apply(&desired, &Scope::Everything)),
                0,
                "a restart writes nothing"
            );
            assert!(restarted.cleanup().unwrap() > 0);
        });
        assert_eq!(Rules::of(&topology.node), alone, "after our cleanup everything is as it was");
        program(&topology.node, mode, &desired);
        assert_eq!(Rules::of(&topology.node), beside);
        check_everything(&topology, &docker, "after we came again");
        beside
    });

    docker.restart();
    let restarted = Rules::of(&topology.node);
    assert_eq!(restarted.of_docker, alone.of_docker, "Docker finds its place beside us");
    assert_eq!(restarted.jumps, beside.jumps, "the order of jumps is the same");
    check_everything(&topology, &docker, "after Docker came again");

    program(&topology.node, mode, &desired);
    assert_eq!(Rules::of(&topology.node).jumps, beside.jumps);
    check_everything(&topology, &docker, "after a full pass of ours");
    beside
}

#[test]
fn f101_docker_s_published_ports_work_beside_nftables_mode_after_restarts_of_either() {
    let rules = docker_beside_us(ProxyMode::Nftables, "dock-nft");
    assert!(rules.jumps.iter().all(|jump| jump.ends_with("-j DOCKER")), "{:?}", rules.jumps);
}

#[test]
fn f100_f101_docker_s_published_ports_work_beside_iptables_mode_after_restarts_of_either() {
    let rules = docker_beside_us(ProxyMode::Iptables, "dock-ipt");
    for chain in ["PREROUTING", "OUTPUT"] {
        let of_chain =
            rules.jumps.iter().filter(|jump| jump.starts_with(&format!("iptables-save -A {chain} ")));
        let targets: Vec<_> = of_chain.filter_map(|jump| jump.split(" -j ").nth(1)).collect();
        assert_eq!(targets, ["TG-SERVICES", "DOCKER"], "ours is asked first");
    }
}

fn program(node: &Namespace, mode: ProxyMode, desired: &DesiredState) {
    node.run(|| {
        let mut backend = dataplane::open(mode, &BackendOptions::default()).unwrap();
        verified(&backend.apply(desired, &Scope::Everything));
    });
}

/// Runs `work` while an outside client continuously connects to the published port of the container, and
/// asserts that no connection fails.
fn while_published_port_answers<T>(topology: &Topology, work: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                let answer = topology.client.ask_tcp("192.0.2.1", 8080);
                assert_eq!(
                    answer.unwrap_or_else(|error| panic!("request {asked}: {error}")).name,
                    "container"
                );
                asked += 1;
            }
            asked
        });
        let stop = Stop(&is_over);
        let value = work();
        drop(stop);
        assert!(asker.join().unwrap() > 0);
        value
    })
}

/// Builds two Services: one to the workloads, at a cluster IP and a node port, and one to port 80 of the
/// container, which has the address `container`.
fn services(container: &str) -> DesiredState {
    let workloads = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
    let frontends = [
        (at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &workloads)),
        (node_port(IpFamily::V4, Protocol::Tcp, 30080), forward(Masquerade::Always, &workloads)),
    ];
    let outside = support::programs::program(&["10.96.0.1"], &["10.1.1.2", "10.1.2.2"], &frontends);
    desired(vec![("outside", outside), ("inside", simple("10.96.0.2", &[(container, 80, 1)]))])
}

/// Asserts that the published port works, and that the container observes the client's address. `when`
/// describes the situation in errors.
fn check_published_port(topology: &Topology, when: &str) {
    for (from, source) in [(&topology.client, "192.0.2.2"), (&topology.a, "10.1.1.2")] {
        let answer = from.ask_tcp("192.0.2.1", 8080).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!((answer.name.as_str(), answer.source), ("container", address(source)), "{when}");
    }
    // Packets of the node itself pass OUTPUT.
    assert_eq!(topology.node.ask_tcp("192.0.2.1", 8080).unwrap().name, "container", "{when}");
}

fn check_everything(topology: &Topology, docker: &Docker, when: &str) {
    check_published_port(topology, when);
    for from in [&topology.client, &topology.a, &topology.node] {
        let ask = |ip, port| {
            let answer = from.ask_tcp(ip, port);
            answer.unwrap_or_else(|error| panic!("{when}: {ip}:{port} from {}: {error}", from.name())).name
        };
        assert_eq!(ask("10.96.0.2", 80), "container", "{when}");
        for (ip, port) in [("10.96.0.1", 80), ("192.0.2.1", 30080)] {
            assert!(["a", "b"].contains(&ask(ip, port).as_str()), "{when}");
        }
        assert!(from.ask_tcp("10.96.0.1", 8080).is_err(), "{when}: Docker's port is none of our address");
    }
    let answer = docker.ask_from("web", "10.96.0.1:80");
    assert!(answer.starts_with("a ") || answer.starts_with("b "), "{when}: {answer}");
    let itself = docker.ask_from("web", "10.96.0.2:80");
    assert!(itself.starts_with("container "), "{when}: {itself}");
}

/// The iptables rules of both address families, without counters. Empty built-in chains with policy ACCEPT
/// are omitted, because the kernel creates them when their table is first read.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    /// Rules that were not created by the agent.
    of_docker: Vec<String>,
    /// Rules of the nat table's built-in chains in order, including those of the agent.
    jumps: Vec<String>,
}

impl Rules {
    fn of(node: &Namespace) -> Self {
        let mut rules = Self { of_docker: Vec::new(), jumps: Vec::new() };
        for program in ["iptables-save", "ip6tables-save"] {
            let mut table = String::new();
            for line in node.exec(&[program]).lines() {
                let is_built_in =
                    |line: &str| ["-A PREROUTING ", "-A OUTPUT "].iter().any(|start| line.starts_with(start));
                match line.get(..1) {
                    Some("*") => line.clone_into(&mut table),
                    Some(":") if !line.contains(" ACCEPT ") && !line.contains(OURS) => {
                        // `:FORWARD DROP [12:345]` has packet counters.
                        let chain = line.split(" [").next().unwrap_or(line);
                        rules.of_docker.push(format!("{program} {table} {chain}"));
                    }
                    Some("-") => {
                        if table == "*nat" && is_built_in(line) {
                            rules.jumps.push(format!("{program} {line}"));
                        }
                        if !line.contains(OURS) {
                            rules.of_docker.push(format!("{program} {table} {line}"));
                        }
                    }
                    _ => {}
                }
            }
        }
        rules
    }
}
