//! Health checks on real nodes: an endpoint that fails leaves service everywhere and comes back; what is decided while many fail,
//! and while nobody checks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]
#![allow(clippy::print_stdout, reason = "how long it takes is printed, never asserted")]

use std::{
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use lab::{
    client::{self, at},
    cluster::{Cluster, Options},
    scene::BACKEND_PORT,
    wait,
};
use serde_json::{Value, json};

const HEALTH: &str = "/v1/namespaces/default/services/web/health";

/// A cluster with backend `web-N` and place `inside-N` on each node, and Service `web`, checked twice a second.
fn cluster(modes: &[&'static str], check: &Value) -> (Cluster, SocketAddr) {
    let nodes = u8::try_from(modes.len()).unwrap();
    let options = Options { nodes, modes: modes.to_vec(), ..Options::default() };
    let mut cluster = Cluster::start(&options).unwrap();
    for number in 1..=nodes {
        let node = format!("node{number}");
        cluster.add_place(&format!("inside-{number}"), &node, 50 + number).unwrap();
        cluster.add_backend(&format!("web-{number}"), &node, 10 + number, "web").unwrap();
    }
    let to = add_web(&cluster, check);
    (cluster, to)
}

fn add_web(cluster: &Cluster, check: &Value) -> SocketAddr {
    let mut health_check =
        json!({ "type": "Tcp", "intervalMs": 500, "timeoutMs": 500, "fall": 2, "rise": 2 });
    health_check.as_object_mut().unwrap().extend(check.as_object().unwrap().clone());
    let spec = json!({
        "selector": { "app": "web" }, "healthCheck": health_check,
        "ports": [{ "port": 80, "targetPort": BACKEND_PORT }],
    });
    cluster.add_service("web", spec).unwrap();
    at(cluster.cluster_ip("default/web", 0).unwrap(), 80)
}

/// What is shown of the endpoint at an address.
fn endpoint(cluster: &Cluster, address: &str) -> Result<Value> {
    let health = cluster.api.get_json(HEALTH)?;
    let all = health["endpoints"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["address"] == address);
    found.ok_or_else(|| anyhow::anyhow!("{address} is not checked: {health:#}"))
}

fn wait_for(cluster: &Cluster, address: &str, state: &str, share: u64) -> Value {
    wait::until(&format!("{address} to be {state} with a share of {share} %"), || {
        let endpoint = endpoint(cluster, address)?;
        ensure!(endpoint["state"] == state && endpoint["share"] == share, "{endpoint:#}");
        Ok(endpoint)
    })
    .unwrap()
}

/// A backend is killed, without a word to control; its neighbours and clients on every node see nothing of it once it is out, and
/// it is used again when it is back.
fn refuses_and_comes_back(modes: &[&'static str]) {
    let (mut cluster, web) = cluster(modes, &json!({}));
    let own = format!("node{}", modes.len());
    let victim = "web-9";
    cluster.add_backend(victim, &own, 19, "web").unwrap();
    let address = format!("10.1.{}.19", modes.len());
    let mut all: Vec<String> = (1..=modes.len()).map(|number| format!("web-{number}")).collect();
    all.push(victim.to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    wait_for(&cluster, &address, "Healthy", 100);
    let places: Vec<_> =
        (1..=modes.len()).map(|number| cluster.place(&format!("inside-{number}")).unwrap().clone()).collect();
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (stopped, removed, failures) = std::thread::scope(|scope| {
        let clients: Vec<_> = places
            .iter()
            .map(|place| {
                let (stop, made) = (&stop, &made);
                scope.spawn(move || {
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        if let Err(error) = client::tcp(place, web) {
                            failures.push((began, Instant::now(), format!("{error:#}")));
                        }
                        made.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    failures
                })
            })
            .collect();
        let seen = made.load(Ordering::Relaxed);
        wait::until_true("connections before", || made.load(Ordering::Relaxed) > seen + 20).unwrap();
        let stopped = Instant::now();
        cluster.topology.stop_serving(victim);
        let endpoint = wait_for(&cluster, &address, "Unhealthy", 0);
        cluster.wait_verified("default/web").unwrap();
        let removed = Instant::now();
        assert_eq!(endpoint["checkers"].as_object().unwrap().keys().collect::<Vec<_>>(), [&own]);
        assert!(endpoint["message"].as_str().unwrap().contains("refused"), "{endpoint:#}");
        let seen = made.load(Ordering::Relaxed);
        wait::until_true("connections after", || made.load(Ordering::Relaxed) > seen + 60).unwrap();
        stop.store(true, Ordering::Relaxed);
        let failures: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (stopped, removed, failures)
    });
    println!(
        "{modes:?}: out of service on every node {} ms after it was killed (2 checks every 500 ms); {} of {} connections failed \
         before",
        removed.duration_since(stopped).as_millis(),
        failures.len(),
        made.load(Ordering::Relaxed),
    );
    for (began, ended, error) in &failures {
        assert!(*ended >= stopped, "before it was killed: {error}");
        assert!(*began < removed, "after it was out: {error}");
    }
    cluster.topology.serve(victim, BACKEND_PORT).unwrap();
    wait_for(&cluster, &address, "Healthy", 100);
    cluster.wait_verified("default/web").unwrap();
    for number in 1..=modes.len() {
        cluster.expect_backends(&format!("inside-{number}"), web, &all).unwrap();
    }
}

/// F148: nftables, iptables and userspace side by side.
#[test]
fn f148_an_endpoint_that_refuses_leaves_service_in_every_mode_and_comes_back() {
    refuses_and_comes_back(&["nftables", "iptables", "userspace"]);
}

/// F148: the same in ipvs, on the kernel that has it.
#[test]
fn f148_an_endpoint_that_refuses_leaves_service_in_ipvs_mode_and_comes_back() {
    if std::env::var_os("TIDEGATE_GUEST").is_none() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest.sh");
        let test = "f148_an_endpoint_that_refuses_leaves_service_in_ipvs_mode_and_comes_back";
        let executable = std::env::current_exe().unwrap();
        let arguments = [test, "--exact", "--nocapture"];
        let status = Command::new(script).arg(executable).args(arguments).status().unwrap();
        assert!(status.success(), "failed in the guest: {status}");
        return;
    }
    refuses_and_comes_back(&["ipvs"]);
}

/// F061: iptables tries no other backend; the health check takes a dead one out, without anybody who says that it is not ready.
#[test]
fn f061_health_checks_take_a_dead_backend_out_where_no_other_is_tried() {
    let (mut cluster, web) = cluster(&["iptables"], &json!({}));
    cluster.add_place("dead", "node1", 99).unwrap();
    cluster.apply_objects(&[cluster.workload_record("dead", "web").unwrap()]).unwrap();
    wait_for(&cluster, "10.1.1.99", "Unhealthy", 0);
    cluster.wait_verified("default/web").unwrap();
    let counts = cluster.spread("inside-1", web, 40).unwrap();
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("web-1".to_owned(), 40)]);
}

/// F148: with one of three endpoints down (the backend has an address of each family), a threshold of 70 % uses all; without
/// it, the dead one is not.
#[test]
fn f148_below_the_panic_threshold_all_endpoints_are_used() {
    let (mut cluster, web) = cluster(&["nftables"], &json!({ "panicThreshold": 70 }));
    cluster.add_place("dead", "node1", 99).unwrap();
    let dead = json!({
        "kind": "EndpointSet", "metadata": { "name": "dead" },
        "spec": { "service": "web", "endpoints": [{ "address": "10.1.1.99" }], "ports": [{ "port": BACKEND_PORT }] },
    });
    cluster.apply_objects(&[dead]).unwrap();
    wait_for(&cluster, "10.1.1.99", "Unhealthy", 0);
    let service = cluster.service("default/web").unwrap();
    assert_eq!(
        service["status"]["endpoints"],
        json!({ "total": 3, "ready": 3, "unhealthy": 1 }),
        "{service:#}"
    );
    cluster.wait_verified("default/web").unwrap();
    let failed = (0..40).filter(|_| cluster.tcp("inside-1", web).is_err()).count();
    assert!((1..40).contains(&failed), "{failed} of 40 connections failed");
    let patch = json!({ "spec": { "healthCheck": { "panicThreshold": 0 } } });
    cluster.patch("namespaces/default/services/web", &patch).unwrap();
    cluster.wait_verified("default/web").unwrap();
    cluster.expect_backends("inside-1", web, &["web-1"]).unwrap();
}

/// F148: the node that checks two endpoints goes away: nobody knows of them, and both stay as they were decided last. When
/// it is back, so are its words.
#[test]
fn f148_what_was_decided_holds_when_the_checker_is_lost() {
    let (mut cluster, web) = cluster(&["nftables", "nftables"], &json!({}));
    // By hand, because Workloads of a Node that is lost are no endpoints any longer.
    for number in [1, 2] {
        cluster.delete(&format!("namespaces/default/workloads/web-{number}")).unwrap();
    }
    let endpoints =
        json!([{ "address": "10.1.2.12", "node": "node2" }, { "address": "10.1.2.99", "node": "node2" }]);
    let set = json!({
        "kind": "EndpointSet", "metadata": { "name": "web" },
        "spec": { "service": "web", "endpoints": endpoints, "ports": [{ "port": BACKEND_PORT }] },
    });
    cluster.apply_objects(&[set]).unwrap();
    wait_for(&cluster, "10.1.2.12", "Healthy", 100);
    wait_for(&cluster, "10.1.2.99", "Unhealthy", 0);
    cluster.wait_verified("default/web").unwrap();
    cluster.agents.get_mut("node2").unwrap().kill();
    wait_for(&cluster, "10.1.2.12", "Unknown", 100);
    wait_for(&cluster, "10.1.2.99", "Unknown", 0);
    let compiled = cluster.object("namespaces/default/endpoints/web").unwrap();
    let ready = [0, 1].map(|index| compiled["ports"][0]["endpoints"][index]["ready"].as_bool().unwrap());
    assert_eq!(ready, [true, false], "{compiled:#}");
    cluster.expect_backends("inside-1", web, &["web-2"]).unwrap();
    cluster.start_agent_again("node2").unwrap();
    wait_for(&cluster, "10.1.2.12", "Healthy", 100);
    wait_for(&cluster, "10.1.2.99", "Unhealthy", 0);
}
