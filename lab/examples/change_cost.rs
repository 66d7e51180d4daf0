//! What one endpoint change costs among few and among many Services, and how long an agent takes to start from nothing.
//!
//! `cargo build --release --workspace && cargo run --release -p lab --example change_cost` (as root). Prints, asserts nothing.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that measures and prints, or fails")]

use std::time::{Duration, Instant};

use lab::{
    client::at,
    cluster::{Cluster, Options},
    kernel,
};
use serde_json::{Value, json};

const ROUNDS: usize = 200;
const ENDPOINTS: usize = 10;
const OBJECTS_PER_APPLY: usize = 1000;

fn main() {
    let mut cluster = Cluster::start(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.add_backend("b-1", "node1", 11, "unused").unwrap();
    cluster.add_backend("b-2", "node1", 12, "unused").unwrap();
    cluster.add_place("near", "node1", 90).unwrap();
    cluster.apply_objects(&[service("probe"), probe(11)]).unwrap();
    let mut loaded = 1;
    for count in [50, 5000] {
        load(&cluster, loaded..count);
        loaded = count;
        one_change(&cluster, count);
    }
    starts(&mut cluster);
}

/// The time from sending the write to the first connection through the virtual address that the new endpoint answers.
fn one_change(cluster: &Cluster, services: usize) {
    let vip = at(cluster.cluster_ip("default/probe", 0).unwrap(), 80);
    let counter = |name: &str| cluster.agent_counter("node1", name).unwrap();
    let names = ["objectsReceived", "feedBytes", "kernelTransactions", "kernelMessages"];
    let before = names.map(counter);
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let (host, backend) = if round % 2 == 0 { (12, "b-2") } else { (11, "b-1") };
        let begun = Instant::now();
        cluster
            .patch("namespaces/default/endpointsets/probe", &json!({ "spec": probe(host)["spec"] }))
            .unwrap();
        while cluster.tcp("near", vip).unwrap().backend != backend {
            assert!(begun.elapsed() < Duration::from_secs(10), "the change never arrived");
        }
        times.push(begun.elapsed());
    }
    times.sort();
    let after = names.map(counter);
    let per_change = |index: usize| (after[index] - before[index]) as f64 / ROUNDS as f64;
    println!(
        "{services:>5} Services: write → first connection to the new endpoint: median {:.2} ms, p99 {:.2} ms; \
         per change {:.2} objects, {:.0} feed bytes, {:.2} transactions, {:.2} netlink messages",
        milliseconds(times[ROUNDS / 2]),
        milliseconds(times[ROUNDS * 99 / 100]),
        per_change(0),
        per_change(1),
        per_change(2),
        per_change(3),
    );
}

/// From nothing at all, from the saved state with an empty kernel, and with nothing to do.
fn starts(cluster: &mut Cluster) {
    let agent = |cluster: &mut Cluster| cluster.agents.get_mut("node1").unwrap().terminate().unwrap();
    let node = cluster.place("node1").unwrap().clone();
    agent(cluster);
    std::fs::remove_dir_all(cluster.state_directory("node1")).unwrap();
    kernel::load(&node, "delete table inet tidegate").unwrap();
    start(cluster, "empty kernel, no saved state");
    agent(cluster);
    kernel::load(&node, "delete table inet tidegate").unwrap();
    start(cluster, "empty kernel, saved state   ");
    agent(cluster);
    start(cluster, "nothing to do               ");
}

fn start(cluster: &mut Cluster, what: &str) {
    let begun = Instant::now();
    cluster.start_agent_again("node1").unwrap();
    let ready = begun.elapsed();
    cluster.wait_converged().unwrap();
    let state = cluster.agent_state("node1").unwrap();
    let pid = cluster.agents["node1"].pid().unwrap();
    println!(
        "start, {what}: ready after {:.0} ms, converged after {:.0} ms, {} transactions, {} messages, peak memory {}",
        milliseconds(ready),
        milliseconds(begun.elapsed()),
        state["counters"]["kernelTransactions"],
        state["counters"]["kernelMessages"],
        peak_memory(pid),
    );
}

/// The peak resident memory of the agent, which is the process or, when it was started through a wrapper, its child.
fn peak_memory(pid: u32) -> String {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pid = children.split_whitespace().next().map_or_else(|| pid.to_string(), str::to_owned);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown");
    line.trim().to_owned()
}

fn load(cluster: &Cluster, range: std::ops::Range<usize>) {
    let objects: Vec<Value> = range.flat_map(|number| pair(&format!("svc-{number:05}"), number)).collect();
    let begun = Instant::now();
    for batch in objects.chunks(OBJECTS_PER_APPLY) {
        cluster.apply_objects(batch).unwrap();
    }
    cluster.wait_converged().unwrap();
    println!("{} objects applied and verified in {:.0} ms", objects.len(), milliseconds(begun.elapsed()));
}

fn pair(name: &str, number: usize) -> [Value; 2] {
    let endpoint = |index: usize| {
        let number = number * ENDPOINTS + index;
        json!({ "address": format!("10.200.{}.{}", number / 250 % 250, 1 + number % 250), "weight": 1 })
    };
    let endpoints: Vec<_> = (0..ENDPOINTS).map(endpoint).collect();
    [service(name), set(name, &endpoints)]
}

fn service(name: &str) -> Value {
    json!({ "kind": "Service", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80, "targetPort": 8080 }] } })
}

fn set(name: &str, endpoints: &[Value]) -> Value {
    json!({ "kind": "EndpointSet", "metadata": { "name": name }, "spec": { "service": name, "endpoints": endpoints } })
}

fn probe(host: u8) -> Value {
    set("probe", &[json!({ "address": format!("10.1.1.{host}") })])
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
