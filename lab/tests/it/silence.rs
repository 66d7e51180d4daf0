//! Tests of agents that fall silent while the kernel and the workloads of their node go on: no request fails while a
//! backend lives, and an endpoint that fails during the silence leaves service.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Result, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::scene::BACKEND_PORT,
    host::{guest, modes, netns::Namespace, wait},
    network::client::{self, Reply, at},
};
use serde_json::{Value, json};

/// Node whose agent falls silent. It is one of three, so that it may count as lost.
const SILENT: &str = "node2";
/// Nodes whose agents report.
const REPORTING: [&str; 2] = ["node1", "node3"];
/// Number of requests of each client after the Node is lost and its endpoints were checked.
const REQUESTS: usize = 40;
/// Pause between two requests of a client.
const PAUSE: Duration = Duration::from_millis(20);

/// Transport protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// Outcomes of the requests of a client, each with the phase of the test in which the request began.
type Outcomes = Arc<Mutex<Vec<(u8, Result<Reply>)>>>;

/// Client that sends a request after the other, and records the outcome of each with the phase of the test in which
/// the request began.
struct Client {
    label: String,
    made: Outcomes,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(
        label: String,
        from: &Namespace,
        transport: Transport,
        to: SocketAddr,
        phase: &Arc<AtomicU8>,
    ) -> Self {
        let (made, stop) = (Outcomes::default(), Arc::<AtomicBool>::default());
        let (noted, stopped, phase) = (Arc::clone(&made), Arc::clone(&stop), Arc::clone(phase));
        let inside = from.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let begun_in = phase.load(Ordering::SeqCst);
                let outcome = match transport {
                    Transport::Tcp => client::tcp(&inside, to),
                    Transport::Udp => client::udp(&inside, to),
                };
                noted.lock().unwrap().push((begun_in, outcome));
                thread::sleep(PAUSE);
            }
        });
        Self { label, made, stop, thread: Some(thread) }
    }

    /// Asserts that no request that began in a phase has failed, and returns the backends that replied to these
    /// requests.
    fn backends_in(&self, phase: u8) -> Vec<String> {
        let made = self.made.lock().unwrap();
        let outcomes = made.iter().filter(|(begun_in, _)| *begun_in == phase).map(|(_, outcome)| outcome);
        let backend = |outcome: &Result<Reply>| match outcome {
            Ok(reply) => reply.backend.clone(),
            Err(error) => panic!("{} in phase {phase}: {error:#}", self.label),
        };
        outcomes.map(backend).collect()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Cluster of three nodes. Service `both` has a backend on a reporting and on the silent node, `checked` the same with
/// a health check, `alone` has its only backend on the silent node, and `udp` has UDP backends.
struct Stage {
    cluster: Cluster,
    phase: Arc<AtomicU8>,
}

impl Stage {
    fn new(modes: &[&'static str]) -> Self {
        let server_arguments = vec!["--node-lost-after=10".to_owned()];
        let options = Options { modes: modes.to_vec(), server_arguments, ..Options::default() };
        let mut cluster = Cluster::start(&options).unwrap();
        for number in 1..=3 {
            cluster.add_place(&format!("inside-{number}"), &format!("node{number}"), 50).unwrap();
        }
        for (app, host) in [("both", 11), ("checked", 12), ("udp", 13)] {
            cluster.add_backend(&format!("{app}-1"), "node1", host, app).unwrap();
            cluster.add_backend(&format!("{app}-2"), SILENT, host, app).unwrap();
        }
        cluster.add_backend("alone-2", SILENT, 14, "alone").unwrap();
        let spec = |app: &str, protocol: &str| json!({ "selector": { "app": app }, "ports": [{ "port": 80, "protocol": protocol, "targetPort": BACKEND_PORT }] });
        cluster.add_service("both", spec("both", "TCP")).unwrap();
        cluster.add_service("alone", spec("alone", "TCP")).unwrap();
        cluster.add_service("udp", spec("udp", "UDP")).unwrap();
        let mut checked = spec("checked", "TCP");
        checked["healthCheck"] =
            json!({ "type": "Tcp", "intervalMs": 500, "timeoutMs": 500, "fall": 3, "rise": 1 });
        cluster.add_service("checked", checked).unwrap();
        cluster.wait_converged().unwrap();
        Self { cluster, phase: Arc::default() }
    }

    /// Starts a client of each Service on each of the nodes.
    fn clients(&self, nodes: &[&str], services: &[&str]) -> Vec<Client> {
        let mut clients = Vec::new();
        for node in nodes {
            for service in services {
                let to = at(self.cluster.cluster_ip(&format!("default/{service}"), 0).unwrap(), 80);
                let transport = if *service == "udp" { Transport::Udp } else { Transport::Tcp };
                let from = self.cluster.place(&node.replace("node", "inside-")).unwrap();
                clients.push(Client::start(
                    format!("{service} from {node}"),
                    from,
                    transport,
                    to,
                    &self.phase,
                ));
            }
        }
        clients
    }

    fn turn(&self, phase: u8) {
        self.phase.store(phase, Ordering::SeqCst);
    }

    fn wait_lost(&self, is_lost: bool) {
        wait::until(&format!("{SILENT} to be lost: {is_lost}"), || {
            let node = self.cluster.object(&format!("nodes/{SILENT}"))?;
            ensure!(node["spec"]["lostSince"].is_string() == is_lost, "{}", node["spec"]);
            Ok(())
        })
        .unwrap();
    }

    /// Waits until the condition `EndpointsAvailable` of a Service has the given reason and words, and returns its
    /// message.
    fn wait_available(&self, service: &str, reason: &str, words: &str) -> String {
        wait::until(&format!("{service} to be {reason}: {words}"), || {
            let object = self.cluster.service(&format!("default/{service}"))?;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|one| one["type"] == "EndpointsAvailable");
            let found = found.unwrap_or_default();
            let message = found["message"].as_str().unwrap_or_default().to_owned();
            ensure!(found["reason"] == reason && message.contains(words), "{found:#}");
            Ok(message)
        })
        .unwrap()
    }

    /// Waits until the endpoint of a backend is ready or not, and the reporting nodes have verified its Service.
    fn wait_ready(&self, service: &str, backend: &str, is_ready: bool) {
        let address = self.cluster.topology.workloads[backend].addresses[0].to_string();
        wait::until(&format!("{backend} to be ready: {is_ready}"), || {
            let compiled = self.cluster.object(&format!("namespaces/default/endpoints/{service}"))?;
            let endpoints = compiled["ports"][0]["endpoints"].as_array().cloned().unwrap_or_default();
            let found = endpoints.iter().find(|one| one["address"] == address);
            ensure!(found.is_some_and(|one| one["ready"] == is_ready), "{compiled:#}");
            let nodes = &self.cluster.service(&format!("default/{service}"))?["status"]["nodes"];
            let lagging: Value = nodes["notVerified"].clone();
            ensure!(REPORTING.iter().all(|node| lagging[*node].is_null()), "{nodes:#}");
            Ok(())
        })
        .unwrap();
    }

    /// Stops the server of a backend, waits until it has left service and asserts that requests succeed without it.
    fn kill_backend(&mut self, service: &str) {
        let victim = format!("{service}-2");
        self.cluster.topology.stop_serving(&victim);
        self.wait_ready(service, &victim, false);
        self.expect_only(service);
    }

    /// Asserts that new requests from the reporting nodes reach only the backend on `node1`.
    fn expect_only(&self, service: &str) {
        let clients = self.clients(&REPORTING, &[service]);
        let phase = self.phase.load(Ordering::SeqCst);
        wait_requests(&clients, phase);
        for client in &clients {
            let others: Vec<_> = client.backends_in(phase);
            assert!(
                others.iter().all(|name| *name == format!("{service}-1")),
                "{}: {others:?}",
                client.label
            );
        }
    }
}

fn wait_requests(clients: &[Client], phase: u8) {
    wait::until(&format!("{REQUESTS} requests of each client"), || {
        for client in clients {
            let count = client.backends_in(phase).len();
            ensure!(count >= REQUESTS, "{count} of {}", client.label);
        }
        Ok(())
    })
    .unwrap();
}

const SERVICES: [&str; 4] = ["both", "checked", "alone", "udp"];

/// Silences the agent of a node for longer than its lease while clients on every node send requests: none may fail,
/// and every backend is used. Then backends on the node are killed: those that are not the last leave service.
fn silence_and_kill_backends(modes: &[&'static str], is_killed: bool) {
    let mut stage = Stage::new(modes);
    let clients = stage.clients(&["node1", "node2", "node3"], &SERVICES);
    wait_requests(&clients, 0);
    let agent = stage.cluster.agents.get_mut(SILENT).unwrap();
    if is_killed {
        agent.kill();
    } else {
        agent.pause().unwrap();
    }
    stage.wait_lost(true);
    for (service, words) in
        [("both", "answers to node"), ("checked", "answers to node"), ("alone", "answers to node")]
    {
        let message = stage.wait_available(service, "EndpointsReady", words);
        assert!(message.contains(SILENT), "{message}");
    }
    stage.wait_available("udp", "EndpointsReady", "cannot be checked");
    stage.turn(1);
    wait_requests(&clients, 1);
    for client in &clients {
        client.backends_in(0);
        let backends = client.backends_in(1);
        assert!(backends.iter().any(|name| name.ends_with("-2")), "{}: {backends:?}", client.label);
    }
    drop(clients);

    stage.turn(2);
    stage.kill_backend("both");
    stage.kill_backend("checked");
    // The node refuses connections, so it lives: nothing is known about its UDP endpoint, nor is the last one removed.
    stage.cluster.topology.stop_serving("alone-2");
    stage.wait_available("alone", "LastEndpointsKept", "connection refused");
    stage.wait_ready("udp", "udp-2", true);
    stage.cluster.topology.serve("alone-2", BACKEND_PORT).unwrap();
    stage.turn(3);
    let clients = stage.clients(&REPORTING, &["alone"]);
    wait_requests(&clients, 3);
    drop(clients);

    // A process that continues reports again, and its Node has its endpoints back.
    if is_killed {
        stage.cluster.start_agent_again(SILENT).unwrap();
    } else {
        stage.cluster.agents[SILENT].go_on().unwrap();
    }
    for app in ["both", "checked"] {
        stage.cluster.topology.serve(&format!("{app}-2"), BACKEND_PORT).unwrap();
    }
    stage.wait_lost(false);
    for app in ["both", "checked"] {
        stage.wait_ready(app, &format!("{app}-2"), true);
    }
    stage.cluster.wait_converged().unwrap();
}

/// F168: while the agent of a node is frozen (SIGSTOP), no request fails, on nodes in every native mode, and backends
/// that are killed during that time leave service.
#[test]
fn f168_frozen_agent_no_request_fails_and_a_killed_backend_leaves() {
    silence_and_kill_backends(&modes::NATIVE, false);
}

/// F168: the same in ipvs mode, in the guest VM whose kernel has IPVS.
#[test]
fn f168_frozen_agent_no_request_fails_and_a_killed_backend_leaves_in_ipvs_mode() {
    guest::run(
        "silence::f168_frozen_agent_no_request_fails_and_a_killed_backend_leaves_in_ipvs_mode",
        || {
            silence_and_kill_backends(&modes::GUEST, false);
        },
    );
}

/// F168: the same while the agent is killed.
#[test]
fn f168_killed_agent_no_request_fails_and_a_killed_backend_leaves() {
    silence_and_kill_backends(&modes::NATIVE, true);
}

/// F168: when a node is cut off from the network, all of its endpoints leave service, also those that no node can
/// check, except the last ones of a Service.
#[test]
fn f168_a_node_that_is_cut_off_loses_all_endpoints_except_the_last_ones() {
    let stage = Stage::new(&modes::NATIVE);
    stage.cluster.topology.plug(SILENT, false).unwrap();
    stage.wait_lost(true);
    for service in ["both", "checked", "udp"] {
        stage.wait_ready(service, &format!("{service}-2"), false);
        stage.expect_only(service);
    }
    stage.wait_available("alone", "LastEndpointsKept", "other nodes cannot reach them");
    stage.cluster.topology.plug(SILENT, true).unwrap();
    stage.wait_lost(false);
    for service in ["both", "checked", "udp"] {
        stage.wait_ready(service, &format!("{service}-2"), true);
    }
}

/// F168: while the agent of a node is so slow that it runs for a small part of the time only, the Node is not lost, no
/// request fails, and its endpoints stay in service.
#[test]
fn f168_slow_agent_no_request_fails_and_all_endpoints_stay() {
    /// Number of pauses. Together they are longer than the time after which a silent Node is lost.
    const PAUSES: usize = 8;
    const PAUSE_TIME: Duration = Duration::from_secs(3);
    const RUN_TIME: Duration = Duration::from_millis(300);
    let mut stage = Stage::new(&modes::NATIVE);
    let clients = stage.clients(&["node1", "node2", "node3"], &SERVICES);
    wait_requests(&clients, 0);
    for _ in 0..PAUSES {
        let agent = stage.cluster.agents.get_mut(SILENT).unwrap();
        agent.pause().unwrap();
        thread::sleep(PAUSE_TIME);
        agent.go_on().unwrap();
        thread::sleep(RUN_TIME);
        let node = stage.cluster.object(&format!("nodes/{SILENT}")).unwrap();
        assert!(node["spec"]["lostSince"].is_null(), "{}", node["spec"]);
    }
    stage.turn(1);
    wait_requests(&clients, 1);
    for client in &clients {
        client.backends_in(0);
        let backends = client.backends_in(1);
        assert!(backends.iter().any(|name| name.ends_with("-2")), "{}: {backends:?}", client.label);
    }
    for service in ["both", "checked", "udp"] {
        stage.wait_ready(service, &format!("{service}-2"), true);
    }
    stage.cluster.wait_converged().unwrap();
}
