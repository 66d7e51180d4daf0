//! Tests that endpoints follow changes of the Workload objects, and that traffic follows the endpoints.

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{kernel, wait},
    network::client::{UdpClient, at},
};
use serde_json::{Value, json};

fn web(backends: u8) -> Cluster {
    let mut cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    cluster.add_place("client-in", "node2", 50).unwrap();
    for number in 1..=backends {
        cluster.add_backend(&format!("web-{number}"), "node1", 10 + number, "web").unwrap();
    }
    cluster
}

fn spec() -> Value {
    json!({"selector": {"app": "web"}, "ports": [{"name": "tcp", "port": 80, "targetPort": 8080}, {"name": "udp", "protocol": "UDP", "port": 80, "targetPort": 8080}]})
}

fn endpoint_addresses(cluster: &Cluster, service: &str) -> Vec<String> {
    let endpoints = cluster.object(&format!("namespaces/default/endpoints/{service}")).unwrap();
    let listed = endpoints["ports"][0]["endpoints"].as_array().unwrap();
    let ready = listed.iter().filter(|endpoint| endpoint["ready"] == true);
    ready
        .map(|endpoint| endpoint["address"].as_str().unwrap().to_owned())
        .filter(|text| !text.contains(':'))
        .collect()
}

/// Asserts that a list by label has exactly the matching Workloads, with their addresses, node and phase (F018).
fn look_for_workloads(cluster: &Cluster) {
    let other = json!({"apiVersion": "tidegate/v1", "kind": "Workload", "metadata": {"name": "db-1", "labels": {"app": "db"}}, "spec": {"addresses": ["10.1.1.98"], "node": "node1", "phase": "Pending", "ready": false}});
    cluster.apply_objects(&[other]).unwrap();
    let list = |selector: &str| {
        let listed =
            cluster.object(&format!("namespaces/default/workloads?labelSelector={selector}")).unwrap();
        let line = |item: &Value| {
            let spec = &item["spec"];
            format!(
                "{} {} {} {}",
                item["metadata"]["name"], spec["addresses"][0], spec["node"], spec["phase"]
            )
            .replace('"', "")
        };
        listed["items"].as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(list("app%3Dweb"), ["web-1 10.1.1.11 node1 Running", "web-2 10.1.1.12 node1 Running"]);
    assert_eq!(list("app%3Ddb"), ["db-1 10.1.1.98 node1 Pending"]);
    assert_eq!(list("app%3Dnobody"), [""; 0]);
    cluster.delete("namespaces/default/workloads/db-1").unwrap();
}

/// F018, F019, F020, F021: changes of labels, readiness, addresses or the selector, and the deletion of a
/// Workload each change the backends that receive traffic. Other changes do not.
#[test]
fn f021_endpoints_follow_labels_readiness_addresses_and_the_selector() {
    let mut cluster = web(2);
    cluster.add_service("web", spec()).unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let settle = |cluster: &Cluster, backends: &[&str]| {
        cluster.wait_verified("default/web").unwrap();
        cluster.expect_backends("client-in", to, backends).unwrap();
    };
    settle(&cluster, &["web-1", "web-2"]);
    look_for_workloads(&cluster);

    let second = "namespaces/default/workloads/web-2";
    cluster.patch(second, &json!({"spec": {"ready": false}})).unwrap();
    settle(&cluster, &["web-1"]);
    cluster.patch(second, &json!({"spec": {"ready": true}})).unwrap();
    settle(&cluster, &["web-1", "web-2"]);
    cluster.patch(second, &json!({"metadata": {"labels": {"app": "other"}}})).unwrap();
    settle(&cluster, &["web-1"]);
    cluster
        .patch("namespaces/default/services/web", &json!({"spec": {"selector": {"app": "other"}}}))
        .unwrap();
    settle(&cluster, &["web-2"]);
    cluster.patch("namespaces/default/services/web", &json!({"spec": {"selector": {"app": "web"}}})).unwrap();
    settle(&cluster, &["web-1"]);

    // F019: the workload returns elsewhere with the same labels and another address.
    cluster.add_place("web-1b", "node2", 77).unwrap();
    cluster.topology.serve("web-1b", 8080).unwrap();
    let moved = cluster.topology.workloads["web-1b"].addresses;
    cluster
        .patch("namespaces/default/workloads/web-1", &json!({"spec": {"addresses": moved, "node": "node2"}}))
        .unwrap();
    settle(&cluster, &["web-1b"]);

    let foreign = json!({"apiVersion": "tidegate/v1", "kind": "Workload", "metadata": {"name": "w", "namespace": "elsewhere", "labels": {"app": "web"}}, "spec": {"addresses": ["10.1.1.99"]}});
    cluster.apply_objects(&[foreign]).unwrap();
    cluster.wait_converged().unwrap();
    assert_eq!(
        endpoint_addresses(&cluster, "web"),
        ["10.1.2.77"],
        "F020: only workloads of its own namespace"
    );
}

/// F022: the API and the CLI show the addresses of endpoints with ports and conditions.
#[test]
fn f022_get_endpoints_shows_addresses_with_ports_and_their_conditions() {
    let cluster = web(2);
    cluster.add_service("web", spec()).unwrap();
    assert_eq!(endpoint_addresses(&cluster, "web"), ["10.1.1.11", "10.1.1.12"]);
    let tidegate = lab::processes::binaries::find("tidegate").unwrap();
    let control = cluster.place("control").unwrap();
    let show = |extra: &[&str]| {
        let mut arguments = vec!["--api", cluster.api.url(), "get", "ep", "web"];
        arguments.extend(extra);
        control.run(tidegate.to_str().unwrap(), &arguments).unwrap()
    };
    assert!(show(&[]).contains("10.1.1.11:8080,10.1.1.12:8080"), "{}", show(&[]));
    let terminating = json!({"spec": {"phase": "Terminating"}});
    cluster.patch("namespaces/default/workloads/web-2", &terminating).unwrap();
    let wide = show(&["-o", "wide"]);
    let (head, rows) = wide.split_once('\n').unwrap();
    let column = |name: &str| head.split_whitespace().position(|word| word == name).unwrap();
    let columns = ["ENDPOINT", "READY", "SERVING", "TERMINATING"].map(column);
    let row = |line: &str| {
        let line = line.replace(", not checked", ",not-checked");
        let words: Vec<_> = line.split_whitespace().collect();
        columns.map(|column| words[column].to_owned())
    };
    let first = ["10.1.1.11:8080", "true,not-checked", "true", "false"].map(str::to_owned);
    let second = ["10.1.1.12:8080", "false", "true", "true"].map(str::to_owned);
    let rows: Vec<_> = rows.lines().map(row).collect();
    assert!(rows.contains(&first) && rows.contains(&second), "{wide}");
}

/// A Service without a selector uses the endpoints of its EndpointSet. An endpoint with weight 0 or with
/// `drain` receives no new connection.
#[test]
fn endpoint_sets_give_endpoints_by_hand_and_drain_takes_no_new_connection() {
    let cluster = web(2);
    cluster.add_service("manual", json!({"ports": [{"port": 80, "targetPort": 8080}]})).unwrap();
    let set = |drain: bool| {
        json!({"apiVersion": "tidegate/v1", "kind": "EndpointSet", "metadata": {"name": "manual-1"}, "spec": {
            "service": "manual",
            "endpoints": [{"address": "10.1.1.11", "drain": drain}, {"address": "10.1.1.12", "node": "node1"}],
        }})
    };
    let to = at(cluster.cluster_ip("default/manual", 0).unwrap(), 80);
    cluster.apply_objects(&[set(false)]).unwrap();
    cluster.wait_verified("default/manual").unwrap();
    cluster.expect_backends("client-in", to, &["web-1", "web-2"]).unwrap();
    cluster.apply_objects(&[set(true)]).unwrap();
    cluster.wait_verified("default/manual").unwrap();
    cluster.expect_backends("client-in", to, &["web-2"]).unwrap();
}

/// A UDP client with a fixed port is moved to a remaining backend when its backend is removed; TCP
/// connections to other backends survive.
#[test]
fn conntrack_entries_of_a_removed_udp_endpoint_go_away() {
    let cluster = web(2);
    cluster.add_service("web", spec()).unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let client = UdpClient::open(cluster.place("client-in").unwrap(), to).unwrap();
    let first = client.ask().unwrap();
    assert_eq!(client.ask().unwrap().backend, first.backend, "one flow stays on one backend");
    let entry = |address: &str| {
        kernel::conntrack(cluster.place("node2").unwrap(), "udp")
            .unwrap()
            .iter()
            .any(|line| line.contains(&format!("src={address} ")))
    };
    let gone = cluster.topology.workloads[&first.backend].addresses[0].to_string();
    assert!(entry(&gone), "the flow is in conntrack before");

    cluster.delete(&format!("namespaces/default/workloads/{}", first.backend)).unwrap();
    cluster.wait_verified("default/web").unwrap();
    wait::until_true("the conntrack entry to go away", || !entry(&gone)).unwrap();
    let second = client.ask().unwrap();
    assert_ne!(second.backend, first.backend);
    assert!(cluster.agent_counter("node2", "conntrackDeletions").unwrap() > 0);
}
