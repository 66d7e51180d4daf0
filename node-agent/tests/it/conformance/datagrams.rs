//! Conformance scenarios of UDP flows: a client that continues to send from the same port follows the endpoints. The
//! backend and the conntrack cleaner are called as the agent loop does.

use std::time::{Duration, Instant};

use model::{kinds::service::Protocol, primitives::quantity::Timestamp};
use node_agent::{
    conntrack::{Cleaner, KernelFlows, plan::Depth},
    dataplane::Scope,
};

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Bench, Build, Lane, Spot,
    Spot::{A, B, C, Client, Node},
    ask::PATIENCE,
    flow::Datagrams,
    node::verified,
};

/// Time for which a client without an endpoint waits for a reply.
const SHORT: Duration = Duration::from_millis(300);

pub const SCENARIOS: &[Scenario] = &[
    scenario("A UDP client follows the endpoints of its Service", "F021", follow)
        .stands_for("L10 L17 C1 C2 C4"),
    scenario("A UDP client gets a reply when the first endpoint becomes ready", "F021", first_ready)
        .stands_for("C5"),
    scenario("A UDP client follows another target port", "F042", target_port).stands_for("C7"),
    scenario("With internal policy Local a UDP client follows the endpoints", "F021", local).stands_for("C3"),
];

/// Node whose conntrack entries follow each update of the kernel.
struct Flows<'a> {
    bench: &'a mut Bench,
    cleaner: Cleaner,
}

impl<'a> Flows<'a> {
    fn new(bench: &'a mut Bench) -> Self {
        Self { bench, cleaner: Cleaner::new(Box::new(KernelFlows::default())) }
    }

    /// Programs a Service and then deletes its stale flows. In userspace mode, the relay deletes them itself.
    fn set(&mut self, service: &Build) {
        let pass = self.bench.try_set(&[service]);
        verified(&pass);
        if self.bench.lane == Lane::Userspace {
            return;
        }
        let (desired, cleaner) = (&self.bench.desired, &mut self.cleaner);
        let scope = Scope::Services([service.key()].into());
        let known = cleaner.programmed().services();
        let programs: Vec<_> = desired.programmed(&scope, &pass.outcomes, known).into_iter().collect();
        cleaner.follow(programs, Depth::Changes);
        let run = || cleaner.run(&desired.networks, Instant::now(), Timestamp::from_unix_seconds(0), 0);
        self.bench.hosts.at(Node).run(run).expect("flows can be deleted");
    }

    /// Creates clients of the Service that [`web`] builds: from outside and from the node at the cluster IP, and from
    /// outside at the node port and the load balancer address.
    fn clients(&self) -> Vec<Datagrams> {
        let b = &self.bench;
        [
            (Client, b.vip(1), 80),
            (Node, b.vip(1), 80),
            (Client, b.node_address(), 30080),
            (Client, b.outer(1), 80),
        ]
        .map(|(from, to, port)| Datagrams::new(&b.hosts, from, to, port))
        .into()
    }
}

fn web(b: &Bench, spots: &[Spot], target_port: u16) -> Build {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1));
    web.port_to(Protocol::Udp, 80, target_port, spots).node_port(30080)
}

/// Asserts that each client reaches the server with this name and port.
fn reach(clients: &[Datagrams], name: &str, port: u16) {
    for (index, client) in clients.iter().enumerate() {
        for _ in 0..2 {
            assert_eq!(client.ask(PATIENCE), Some((name.to_owned(), port)), "client {index}");
        }
    }
}

fn follow(b: &mut Bench) {
    let mut flows = Flows::new(b);
    let clients = flows.clients();
    for (spot, name) in [(A, "a"), (B, "b"), (C, "c"), (A, "a")] {
        let service = web(flows.bench, &[spot], 8080);
        flows.set(&service);
        reach(&clients, name, 8080);
    }
    let service = web(flows.bench, &[], 8080);
    flows.set(&service);
    for client in &clients {
        assert_eq!(client.ask(SHORT), None, "there is no endpoint");
    }
}

fn first_ready(b: &mut Bench) {
    let mut flows = Flows::new(b);
    let service = web(flows.bench, &[A], 8080).not_ready(A);
    flows.set(&service);
    let clients = flows.clients();
    for client in &clients {
        assert_eq!(client.ask(SHORT), None, "no endpoint is ready");
    }
    let service = web(flows.bench, &[A], 8080);
    flows.set(&service);
    reach(&clients, "a", 8080);
}

fn target_port(b: &mut Bench) {
    let mut flows = Flows::new(b);
    let clients = flows.clients();
    for port in [8080, 8081, 8080] {
        let service = web(flows.bench, &[A], port);
        flows.set(&service);
        reach(&clients, "a", port);
    }
}

fn local(b: &mut Bench) {
    let mut flows = Flows::new(b);
    let vip = flows.bench.vip(1);
    let clients = [Node, C].map(|from| Datagrams::new(&flows.bench.hosts, from, vip, 80));
    for (spot, name) in [(A, "a"), (B, "b"), (A, "a")] {
        let service = flows.bench.service("web", 1).internal_local().udp(80, &[spot]);
        flows.set(&service);
        reach(&clients, name, 8080);
    }
}
