//! Test that the cost of one endpoint change, in messages and bytes to an agent and its kernel, does not
//! depend on the number of Services.

use std::collections::BTreeMap;

use lab::cluster::deployment::{Cluster, Options};
use serde_json::{Value, json};

/// Number of objects per apply request; the server accepts at most 5,000.
const BATCH: usize = 1000;
const COUNTERS: [&str; 3] = ["objectsReceived", "kernelTransactions", "kernelMessages"];

fn services(range: std::ops::Range<usize>) -> Vec<Value> {
    let service = |number: usize| {
        let spec = json!({"selector": {"app": format!("app-{number}")}, "ports": [{"port": 80, "targetPort": 8080}]});
        json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": {"name": format!("svc-{number:05}")}, "spec": spec})
    };
    let workload = |number: usize| {
        let address = format!("10.1.{}.{}", 4 + number / 200, 2 + number % 200);
        json!({"apiVersion": "tidegate/v1", "kind": "Workload",
            "metadata": {"name": format!("w-{number:05}"), "labels": {"app": format!("app-{number}")}},
            "spec": {"addresses": [address], "node": "node1"}})
    };
    range.flat_map(|number| [service(number), workload(number)]).collect()
}

fn load(cluster: &Cluster, range: std::ops::Range<usize>) {
    for batch in services(range).chunks(BATCH) {
        cluster.apply_objects(batch).unwrap();
    }
    cluster.wait_converged().unwrap();
}

fn counters(cluster: &Cluster) -> BTreeMap<&'static str, u64> {
    COUNTERS.into_iter().map(|name| (name, cluster.agent_counter("node1", name).unwrap())).collect()
}

fn metric(cluster: &Cluster, name: &str) -> u64 {
    let text = cluster.api.get("/metrics").unwrap().text;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name} in\n{text}"));
    value.trim().parse::<f64>().unwrap() as u64
}

/// Makes one Workload not ready and ready again. Returns the resulting increases of the agent counters, of
/// the number of objects sent by the control server, and of the bytes that the agent received on its feed
/// (stream of state).
fn cost_of_one_change(cluster: &Cluster) -> (BTreeMap<&'static str, u64>, u64, u64) {
    let change = |ready: bool| {
        cluster.patch("namespaces/default/workloads/w-00007", &json!({"spec": {"ready": ready}})).unwrap();
        cluster.wait_verified("default/svc-00007").unwrap();
    };
    // The first round may meet cold caches; the second one is measured.
    change(false);
    change(true);
    let (before, sent) = (counters(cluster), metric(cluster, "tidegate_feed_objects_total"));
    let bytes = cluster.agent_counter("node1", "feedBytes").unwrap();
    change(false);
    change(true);
    let after = counters(cluster);
    let cost = COUNTERS.into_iter().map(|name| (name, after[name] - before[name])).collect();
    let bytes = cluster.agent_counter("node1", "feedBytes").unwrap() - bytes;
    (cost, metric(cluster, "tidegate_feed_objects_total") - sent, bytes)
}

/// F062: one endpoint change causes the same number of objects sent to the agent and of netlink messages with
/// 5,000 Services as with 50.
#[test]
fn f062_one_endpoint_change_costs_the_same_with_50_and_with_5000_services() {
    let cluster = Cluster::start(&Options { nodes: 1, ..Options::default() }).unwrap();
    load(&cluster, 0..50);
    let (few, few_sent, few_bytes) = cost_of_one_change(&cluster);
    load(&cluster, 50..5000);
    let (many, many_sent, many_bytes) = cost_of_one_change(&cluster);
    println!("two changes with 50 Services:    {few:?}, {few_sent} objects sent, {few_bytes} feed bytes");
    println!("two changes with 5,000 Services: {many:?}, {many_sent} objects sent, {many_bytes} feed bytes");
    assert_eq!(few["objectsReceived"], 2, "one object for each of the two changes");
    assert_eq!(few_sent, 2);
    assert!(few["kernelMessages"] > 0, "the changes reached the kernel");
    assert_eq!((many, many_sent), (few, few_sent));
    // Revisions have more digits, and heartbeats may fall in between.
    assert!(many_bytes < few_bytes + 1024, "{few_bytes} bytes became {many_bytes}");
}
