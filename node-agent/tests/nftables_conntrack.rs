//! Flows of connectionless protocols do not stay on a target that is gone.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

mod support;

use std::time::Duration;

use model::{
    net::IpFamily,
    program::{Masquerade, Verdict},
    service::Protocol,
};
use node_agent::dataplane::{
    Dataplane, Desired, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};
use support::{net::Topology, programs::*};

const WAIT: Duration = Duration::from_secs(3);

fn dns(list: &[(&str, u16, u16)]) -> model::program::Program {
    let verdict = if list.is_empty() { Verdict::Reject } else { forward(Masquerade::Always, list) };
    program(
        &["10.96.0.10"],
        &[],
        &[
            (at("10.96.0.10", Protocol::Udp, 53), verdict.clone()),
            (at("10.96.0.10", Protocol::Tcp, 53), verdict.clone()),
            (node_port(IpFamily::V4, Protocol::Udp, 30053), verdict),
        ],
    )
}

#[test]
fn a_udp_client_that_keeps_its_port_follows_the_endpoints() {
    let topology = Topology::new("udp");
    topology.node.run(|| {
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        let mut desired = Desired::default();
        verified(&backend.apply(&desired, &Scope::Everything));
        // Flows that begin before the Service is there, and are tracked on their way to nowhere.
        let clients = [topology.client.udp("10.96.0.10", 53), topology.client.udp("192.0.2.1", 30053)];
        for client in &clients {
            let _ = client.ask(Duration::from_millis(300));
        }
        let mut expect = |list: &[(&str, u16, u16)], name: Option<&str>| {
            set(&mut desired, "dns", dns(list));
            verified(&backend.apply(&desired, &only(&["dns"])));
            for (number, client) in clients.iter().enumerate() {
                let answer = client.ask(WAIT).ok().map(|answer| answer.name);
                assert_eq!(answer.as_deref(), name, "client {number} with {list:?}");
            }
            backend.counters().conntrack_deletions
        };
        expect(&[("10.1.1.2", 8080, 1)], Some("a"));
        let deleted = expect(&[("10.1.2.2", 8080, 1)], Some("b"));
        assert!(deleted >= 2, "{deleted}");
        assert_eq!(
            expect(&[("10.1.2.2", 8080, 2), ("10.1.1.2", 8080, 1)], Some("b")),
            deleted,
            "a current target keeps its flows"
        );
        let gone = expect(&[], None);
        assert!(gone >= deleted + 2, "{gone}");
        expect(&[("10.1.1.2", 8080, 1)], Some("a"));
        desired.programs.clear();
        verified(&backend.apply(&desired, &only(&["dns"])));
        let entries = topology.node.exec(&["conntrack", "-L", "-p", "udp"]);
        assert!(!entries.contains("src=10.1.1.2"), "{entries}");
    });
}

#[test]
fn established_tcp_connections_outlive_their_endpoint_in_the_kernel() {
    let topology = Topology::new("tcp");
    topology.node.run(|| {
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        let mut desired = desired(vec![("dns", dns(&[("10.1.1.2", 8080, 1)]))]);
        verified(&backend.apply(&desired, &Scope::Everything));
        topology.client.ask_tcp("10.96.0.10", 53).unwrap();
        set(&mut desired, "dns", dns(&[("10.1.2.2", 8080, 1)]));
        verified(&backend.apply(&desired, &only(&["dns"])));
        let entries = topology.node.exec(&["conntrack", "-L", "-p", "tcp"]);
        assert!(entries.contains("src=10.1.1.2"), "{entries}");
    });
}
