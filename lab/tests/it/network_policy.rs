//! Tests of network policy: from the object to connections of attached workloads.

use std::{net::IpAddr, time::Duration};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{netns::Namespace, shell, wait},
    network::{
        client::{Connection, at},
        echo::EchoServer,
    },
    processes::binaries,
};

const NETWORK: &str = "apiVersion: tidegate/v1
kind: WorkloadNetwork
metadata: {name: pods}
spec:
  cidrs: [10.64.0.0/16, fd64::/64]
";
const POLICY: &str = "apiVersion: tidegate/v1
kind: NetworkPolicy
metadata: {name: clients-only}
spec:
  selector: {matchLabels: {app: web}}
  ingress:
  - from: [{workloadSelector: {matchLabels: {app: client}}}]
    ports: [{port: 8080}]
";
/// Time in which a connection that must fail does not succeed.
const SILENCE: Duration = Duration::from_millis(300);

/// F149, F153: a policy that is written to the API isolates an attached workload: a client that it names connects, another one
/// does not and its packets are counted, in both families; an established connection of the other one ends. After the deletion
/// of the policy all connect, and the node has no table of policy.
#[test]
fn f149_f153_a_policy_isolates_an_attached_workload_until_its_deletion() {
    let cluster = Cluster::start(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply(NETWORK).unwrap();
    let program = binaries::find("tidegate-agent").unwrap().display().to_string();
    let state = format!("--state-dir={}", cluster.state_directory("node1").display());
    let pods = ["web", "client", "stranger"].map(|role| {
        let namespace = Namespace::new(role).unwrap();
        let label = format!("app={role}");
        let words =
            [state.as_str(), "attach", role, "--netns", namespace.name(), "--workload-label", label.as_str()];
        wait::until("the attachment", || shell::run(&program, &words)).unwrap();
        namespace
    });
    let [web, client, stranger] = &pods;
    let _server = EchoServer::start(web, "web", 8080).unwrap();
    // A client whose record has not arrived is not known to match the policy.
    let [addresses, ..] = ["web", "client", "stranger"].map(|role| {
        wait::until("the record of the Workload", || {
            let workload = cluster.object(&format!("namespaces/default/workloads/{role}"))?;
            let addresses: Vec<IpAddr> = serde_json::from_value(workload["spec"]["addresses"].clone())?;
            anyhow::ensure!(addresses.len() == 2, "{workload}");
            Ok(addresses)
        })
        .unwrap()
    });
    let connect =
        |from: &Namespace, address: IpAddr| Connection::open_within(from, at(address, 8080), SILENCE);
    for address in &addresses {
        wait::until("a connection without a policy", || connect(stranger, *address)).unwrap();
    }
    let mut established = connect(stranger, addresses[0]).unwrap();
    let mut kept = connect(client, addresses[0]).unwrap();

    cluster.apply(POLICY).unwrap();
    for address in &addresses {
        wait::until_true("the isolation", || connect(stranger, *address).is_err()).unwrap();
        wait::until("a connection of the client", || connect(client, *address)).unwrap();
    }
    wait::until_true("the end of the established connection", || established.exchange("x").is_err()).unwrap();
    kept.exchange("x").unwrap();
    wait::until_true("the count of dropped packets", || {
        let metrics = cluster.agent("node1").unwrap().get("/metrics").unwrap().text;
        let line =
            metrics.lines().find(|line| line.starts_with("tidegate_agent_policy_dropped_packets_total"));
        line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).is_some_and(|dropped| dropped > 0)
    })
    .unwrap();

    wait::until_true("the condition Enforced", || {
        let policy = cluster.object("namespaces/default/networkpolicies/clients-only").unwrap();
        let mut conditions = policy["status"]["conditions"].as_array().unwrap().iter();
        conditions.any(|one| one["type"] == "Enforced" && one["status"] == "True")
    })
    .unwrap();
    cluster.delete("namespaces/default/networkpolicies/clients-only").unwrap();
    for address in &addresses {
        wait::until("a connection after the deletion", || connect(stranger, *address)).unwrap();
    }
    kept.exchange("x").unwrap();
    let node = cluster.topology.place("node1").unwrap();
    wait::until_true("the removal of the table", || {
        !node.run("nft", &["list", "tables"]).unwrap().contains("tidegate-policy")
    })
    .unwrap();
}
