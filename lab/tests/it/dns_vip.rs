//! One virtual address for the DNS servers of all nodes: clients ask the server of their own node, and another one while
//! that is down.

use lab::{
    cluster::{
        control::Http,
        deployment::{Cluster, Options},
    },
    host::wait,
    network::topology::node_addresses,
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use serde_json::json;

/// Virtual address of the DNS servers.
const ADDRESS: &str = "10.96.0.53";
/// Name that clients ask for, and its address.
const NAME: (&str, &str) = ("web.shop.svc.cluster.local", "10.96.7.7");

/// Starts `tidegate-dns` at port 53 of a node's address.
fn start_on(cluster: &Cluster, index: u8, directory: &std::path::Path) -> (Process, Http) {
    let namespace = cluster.place(&format!("node{index}")).unwrap().clone();
    let [address, _] = node_addresses(index);
    let mut process = Process::start(Plan {
        label: format!("tidegate-dns of node{index}"),
        namespace: namespace.clone(),
        program: binaries::find("tidegate-dns").unwrap(),
        arguments: vec![
            format!("--api={}", cluster.api.url()),
            format!("--listen={address}"),
            format!("--server-address={ADDRESS}"),
            "--status-listen=127.0.0.1:7443".to_owned(),
        ],
        environment: Vec::new(),
        log: directory.join(format!("log{index}")),
    })
    .unwrap();
    let status = Http::new(&namespace, "127.0.0.1:7443".parse().unwrap());
    process.wait_ready(|| status.get("/readyz")?.success()).unwrap();
    (process, status)
}

/// Returns the number of questions that a server has answered with records.
fn answered(status: &Http) -> u64 {
    let text = status.get("/metrics").unwrap().text;
    let of = "tidegate_dns_questions_total{outcome=\"Own\"} ";
    text.lines().find_map(|line| line.strip_prefix(of)).map_or(0, |count| count.parse().unwrap())
}

/// F164: `resolv.conf` of every client names one address. The server of the client's node answers; after it was killed, the
/// one of another node does, without a change at the client.
#[test]
fn f164_a_virtual_address_leads_to_the_server_of_the_node() {
    let mut cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    cluster.topology.add_workload("workload", "node1", 9).unwrap();
    let endpoints = [1, 2].map(|index| {
        let [address, _] = node_addresses(index);
        json!({ "address": address, "node": format!("node{index}") })
    });
    let ports = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53 }]);
    cluster
        .apply_objects(&[
            json!({ "kind": "Service", "metadata": { "name": "dns" }, "spec": {
                "clusterIP": ADDRESS, "ports": ports, "trafficDistribution": "PreferSameNode",
                "healthCheck": { "type": "Tcp", "port": 53, "intervalMs": 1000, "timeoutMs": 500, "fall": 1, "rise": 1 } } }),
            json!({ "kind": "EndpointSet", "metadata": { "name": "dns" }, "spec": {
                "service": "dns", "endpoints": endpoints } }),
            json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "shop" }, "spec": {
                "clusterIP": NAME.1, "ports": [{ "port": 80 }] } }),
        ])
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (mut own, own_status) = start_on(&cluster, 1, directory.path());
    let (_other, other_status) = start_on(&cluster, 2, directory.path());
    let client = cluster.place("workload").unwrap().clone();
    let ask = |option: &str| {
        let server = format!("@{ADDRESS}");
        let answer = client.run("dig", &[&server, "+tries=1", "+time=1", "+short", option, NAME.0]);
        answer.is_ok_and(|answer| answer.trim() == NAME.1)
    };
    for option in ["+notcp", "+tcp"] {
        wait::until_true("the server of the node", || {
            let before = answered(&own_status);
            ask(option) && answered(&own_status) > before
        })
        .unwrap();
    }
    let others = answered(&other_status);
    assert!((0..10).all(|_| ask("+notcp")));
    assert_eq!(answered(&other_status), others, "only the server of the node is asked");
    own.kill();
    wait::until_true("the server of another node", || ask("+notcp") && ask("+tcp")).unwrap();
    assert!(answered(&other_status) > others);
}
