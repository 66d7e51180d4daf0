//! Test of HAProxy as an external load balancer that knows only node ports and their health check port.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use anyhow::ensure;
use lab::{
    cluster::{
        control::number,
        deployment::{Cluster, Options},
    },
    host::{modes, netns::Namespace, wait},
    network::{
        client::{self, at},
        topology::{fabric_addresses, node_addresses},
    },
    processes::haproxy::Haproxy,
};
use serde_json::{Value, json};

/// Host number of the load balancer in the network of the nodes.
const BALANCER_HOST: u8 = 210;
const NODES: [&str; 3] = ["node1", "node2", "node3"];

/// F039: for a Service of type LoadBalancer without a matching pool, a load balancer outside of the cluster
/// that is configured with the node addresses, the node port and the health check node port uses exactly the
/// nodes with endpoints. The load balancer adapts without a failed connection when a backend terminates and
/// when it returns. Each node is in a different mode.
#[test]
fn f039_a_balancer_of_others_follows_node_ports_and_their_health_checks() {
    let modes = modes::NATIVE.to_vec();
    let mut cluster = Cluster::start(&Options { modes, ..Options::default() }).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_backend("web-2", "node2", 12, "web").unwrap();
    let spec = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": "web"}],
    });
    cluster.add_service("web", spec).unwrap();
    let service = cluster.service("default/web").unwrap();
    assert_eq!(service.pointer("/status/loadBalancer/ingress/0"), None, "its address is the balancer's");
    let health = u16::try_from(number(&service, "/spec/healthCheckNodePort").unwrap()).unwrap();

    let place = cluster.topology.add_place("balancer", BALANCER_HOST).unwrap();
    let haproxy =
        Haproxy::start(&place, &sections(cluster.node_port("default/web", 0).unwrap(), health)).unwrap();
    let balanced = at(fabric_addresses(BALANCER_HOST)[0], 80);
    wait_states(&haproxy, [("UP", "200"), ("UP", "200"), ("DOWN", "503")]);
    for (index, endpoints) in [(1, 1), (2, 1), (3, 0)] {
        let (status, answer) = ask_health(&place, node_addresses(index)[0], health);
        assert_eq!(status, if endpoints > 0 { 200 } else { 503 }, "node{index}: {answer}");
        assert_eq!(answer["localEndpoints"], endpoints, "node{index}: {answer}");
        assert_eq!(answer["service"], json!({"namespace": "default", "name": "web"}));
    }
    cluster.expect_backends("client", balanced, &["web-1", "web-2"]).unwrap();
    let seen = cluster.tcp("client", balanced).unwrap().peer.ip();
    assert_eq!(seen, fabric_addresses(BALANCER_HOST)[0], "backends see the balancer, not a node");

    let failures = while_connecting(&cluster.topology.client, balanced, || {
        let phase = |phase: &str| {
            cluster.patch("namespaces/default/workloads/web-2", &json!({"spec": {"phase": phase}})).unwrap();
        };
        // Terminating: its node still serves it, but fails the health check.
        phase("Terminating");
        wait_states(&haproxy, [("UP", "200"), ("DOWN", "503"), ("DOWN", "503")]);
        cluster.expect_backends("client", balanced, &["web-1"]).unwrap();
        cluster.delete("namespaces/default/workloads/web-2").unwrap();
        cluster.wait_converged().unwrap();
        cluster.expect_backends("client", balanced, &["web-1"]).unwrap();
        // The backend comes back.
        cluster.apply_objects(&[cluster.workload_record("web-2", "web").unwrap()]).unwrap();
        wait_states(&haproxy, [("UP", "200"), ("UP", "200"), ("DOWN", "503")]);
        cluster.expect_backends("client", balanced, &["web-1", "web-2"]).unwrap();
    });
    assert_eq!(failures, [""; 0]);

    // With policy Cluster every node forwards and there is no health check node port; the node port itself
    // shows that a node serves.
    cluster
        .patch("namespaces/default/services/web", &json!({"spec": {"externalTrafficPolicy": "Cluster"}}))
        .unwrap();
    cluster.wait_verified("default/web").unwrap();
    let refused = client::tcp(&place, at(node_addresses(1)[0], health)).unwrap_err();
    assert!(client::is_refusal(&refused), "{refused:#}");
    let node_port = cluster.node_port("default/web", 0).unwrap();
    cluster.expect_backends("client", at(node_addresses(3)[0], node_port), &["web-1", "web-2"]).unwrap();
}

/// Renders an HAProxy configuration that balances over the node port `node_port` of all nodes and checks them
/// at the port `health`.
fn sections(node_port: u16, health: u16) -> String {
    let server = |index: u8| {
        let [v4, _] = node_addresses(index);
        format!("  server node{index} {v4}:{node_port} check port {health} inter 200ms fall 2 rise 1\n")
    };
    let servers: String = (1..=3).map(server).collect();
    format!(
        "defaults\n  mode tcp\n  timeout connect 3s\n  timeout client 30s\n  timeout server 30s\n\
         frontend site\n  bind :80\n  default_backend nodes\n\
         backend nodes\n  balance roundrobin\n  option httpchk GET /healthz\n  retries 0\n{servers}"
    )
}

/// Waits until HAProxy reports the states and last check results in `wanted` for the three nodes, in order.
#[track_caller]
fn wait_states(haproxy: &Haproxy, wanted: [(&str, &str); 3]) {
    wait::until(&format!("the balancer to say {wanted:?}"), || {
        for (node, (state, code)) in NODES.into_iter().zip(wanted) {
            let seen = haproxy.state("nodes", node)?;
            ensure!(seen.0 == state && seen.1 == code, "{node}: {seen:?}");
        }
        Ok(())
    })
    .unwrap();
}

/// Requests the health check node port of a node, and returns the status and body of the response.
fn ask_health(from: &Namespace, node: IpAddr, port: u16) -> (u16, Value) {
    let url = format!("http://{}/healthz", at(node, port));
    let words = ["-sS", "--noproxy", "*", "--max-time", "5", "-w", "\n%{http_code}", &url];
    let said = from.run("curl", &words).unwrap();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// Connects repeatedly to `to` while `work` runs, and returns the descriptions of failed connections.
fn while_connecting(from: &Namespace, to: std::net::SocketAddr, work: impl FnOnce()) -> Vec<String> {
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failures = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut failures = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match client::tcp(from, to) {
                    Ok(_) => drop(made.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => failures.push(format!("{error:#}")),
                }
            }
            failures
        });
        let ended = StopOnDrop(&stop);
        work();
        drop(ended);
        client.join().unwrap()
    });
    assert!(made.load(Ordering::Relaxed) > 0);
    failures
}

/// Guard that stops the client thread even if the other work panics, because a thread scope waits for its
/// threads.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
