//! Tests of nodes in different proxy modes, and of a mode change of a running node.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{kernel, modes, wait},
    network::client::{self, Connection, at},
};
use serde_json::json;

const MODES: [&str; 3] = modes::NATIVE;

fn cluster(modes: &[&'static str]) -> Cluster {
    let nodes = u8::try_from(modes.len()).unwrap();
    let mut cluster =
        Cluster::start(&Options { nodes, modes: modes.to_vec(), ..Options::default() }).unwrap();
    for number in 1..=nodes {
        let node = format!("node{number}");
        cluster.add_place(&format!("inside-{number}"), &node, 50 + number).unwrap();
        cluster.add_backend(&format!("web-{number}"), &node, 10 + number, "web").unwrap();
    }
    cluster
}

fn add_web(cluster: &Cluster) -> SocketAddr {
    let spec = json!({
        "type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"},
        "ports": [
            {"name": "web", "port": 80, "targetPort": 8080},
            {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 8080},
        ],
    });
    cluster.add_service("web", spec).unwrap();
    at(cluster.cluster_ip("default/web", 0).unwrap(), 80)
}

fn running_mode(cluster: &Cluster, node: &str) -> String {
    cluster.agent_state(node).unwrap()["mode"].as_str().unwrap().to_owned()
}

/// F053: nodes in three modes serve the same Service in the same way: from inside of each node and through
/// each node port, by TCP and UDP, in both address families. A removed backend is no longer reached from
/// inside of any node.
#[test]
fn f053_nodes_in_different_modes_serve_one_desired_state_alike() {
    let cluster = cluster(&MODES);
    let web = add_web(&cluster);
    let backends = ["web-1", "web-2", "web-3"];
    let six = at(cluster.cluster_ip("default/web", 1).unwrap(), 80);
    let node_port = cluster.node_port("default/web", 0).unwrap();
    for (index, mode) in MODES.into_iter().enumerate() {
        let node = format!("node{}", index + 1);
        assert_eq!(running_mode(&cluster, &node), mode);
        let inside = format!("inside-{}", index + 1);
        cluster.expect_backends(&inside, web, &backends).unwrap();
        cluster.expect_backends(&inside, six, &backends).unwrap();
        let dns = cluster.udp(&inside, at(web.ip(), 53)).unwrap();
        assert!(backends.contains(&dns.backend.as_str()), "{mode}: {dns:?}");
        let address = lab::network::topology::node_addresses(u8::try_from(index + 1).unwrap())[0];
        cluster.expect_backends("client", at(address, node_port), &backends).unwrap();
    }
    cluster.delete("namespaces/default/workloads/web-2").unwrap();
    cluster.wait_verified("default/web").unwrap();
    for inside in ["inside-1", "inside-2", "inside-3"] {
        cluster.expect_backends(inside, web, &["web-1", "web-3"]).unwrap();
    }
}

/// F013, F053: when the mode of a running Node is changed through the API, no new connection fails, an
/// established one survives, and no kernel state of the previous mode is left.
#[test]
fn f053_a_running_node_changes_its_mode_without_a_failed_connection() {
    let cluster = cluster(&["nftables"]);
    let web = add_web(&cluster);
    let place = cluster.place("inside-1").unwrap();
    let mut established = Connection::open(place, web).unwrap();
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failures: Vec<String> = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut failures = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match client::tcp(place, web) {
                    Ok(_) => {
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => failures.push(format!("{error:#}")),
                }
            }
            failures
        });
        for mode in ["iptables", "nftables", "userspace", "iptables", "userspace", "nftables"] {
            cluster.patch("nodes/node1", &json!({"spec": {"mode": mode}})).unwrap();
            wait::until_true(&format!("node1 to run {mode}"), || running_mode(&cluster, "node1") == mode)
                .unwrap();
            established.exchange(&format!("in mode {mode}")).unwrap();
            let seen = made.load(Ordering::Relaxed);
            wait::until_true("connections in the new mode", || made.load(Ordering::Relaxed) > seen + 20)
                .unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    assert_eq!(failures, [""; 0], "of {} connections", made.load(Ordering::Relaxed));
    established.exchange("still here").unwrap();
    drop(established);
    wait::until_true("the old modes to leave the kernel", || {
        kernel::ruleset(cluster.place("node1").unwrap())
            .is_ok_and(|ruleset| !["TG-", "tidegate-userspace"].iter().any(|name| ruleset.contains(name)))
    })
    .unwrap();
}

/// F061: in iptables mode, a connection is assigned to one backend and not retried at another one. While a
/// dead backend still counts as ready, some connections fail; once it is not ready, none fails.
#[test]
fn f061_iptables_tries_no_other_backend_and_readiness_takes_a_dead_one_out() {
    let mut cluster = cluster(&["iptables"]);
    let web = add_web(&cluster);
    cluster.add_place("dead", "node1", 99).unwrap();
    cluster.apply_objects(&[cluster.workload_record("dead", "web").unwrap()]).unwrap();
    cluster.wait_verified("default/web").unwrap();
    // The probability that all 60 have the same result is below 1e-17.
    let failed = (0..60).filter(|_| cluster.tcp("inside-1", web).is_err()).count();
    assert!((1..60).contains(&failed), "{failed} of 60 connections failed");
    cluster.patch("namespaces/default/workloads/dead", &json!({"spec": {"ready": false}})).unwrap();
    cluster.wait_verified("default/web").unwrap();
    cluster.expect_backends("inside-1", web, &["web-1"]).unwrap();
}
