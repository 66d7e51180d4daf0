//! Tests of a workload network: from the object through blocks and routes to packets between workloads of two nodes.

use std::{net::IpAddr, time::Duration};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{netns::Namespace, shell, wait},
    network::{
        client::{self, at},
        echo::EchoServer,
    },
    processes::binaries,
};
use serde_json::Value;

const NETWORK: &str = "apiVersion: tidegate/v1
kind: WorkloadNetwork
metadata: {name: pods}
spec:
  cidrs: [10.64.0.0/16, fd64::/64]
";

/// Runs a command of the agent of a node, such as `attach`.
fn agent(cluster: &Cluster, node: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let program = binaries::find("tidegate-agent")?.display().to_string();
    let state = format!("--state-dir={}", cluster.state_directory(node).display());
    shell::run(&program, &[&[state.as_str()], arguments].concat())
}

/// Returns the blocks of a node.
fn blocks(cluster: &Cluster, node: &str) -> Vec<String> {
    let listed = cluster.object("blocks").unwrap();
    let items = listed["items"].as_array().unwrap();
    let of_node = items.iter().filter(|item| item["spec"]["node"] == node);
    of_node.map(|item| item["spec"]["cidr"].as_str().unwrap().to_owned()).collect()
}

fn addresses(workload: &Value) -> Vec<IpAddr> {
    serde_json::from_value(workload["spec"]["addresses"].clone()).unwrap()
}

/// F150, F152, F154, F158: a network gives each node blocks, and every node has a route to those of the others. A workload that is
/// attached on a node is recorded with its addresses, exchanges packets with one on another node under these addresses, and
/// is gone after its removal. Attachments need no control server; those of its absence are recorded afterwards.
#[test]
fn f150_f154_attached_workloads_of_two_nodes_reach_each_other_and_are_recorded() {
    let mut cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    cluster.apply(NETWORK).unwrap();
    for (node, other) in [("node1", "node2"), ("node2", "node1")] {
        wait::until_true("routes to the blocks of the other node", || {
            let blocks = blocks(&cluster, other);
            let place = cluster.topology.place(node).unwrap();
            let routes = ["-4", "-6"]
                .map(|family| place.run("ip", &[family, "route", "show", "proto", "116"]).unwrap());
            blocks.len() == 2 && blocks.iter().all(|block| routes.concat().contains(&format!("{block} via ")))
        })
        .unwrap();
    }

    let pods = ["web", "client"].map(|role| Namespace::new(role).unwrap());
    agent(&cluster, "node1", &["attach", "web", "--netns", pods[0].name(), "--workload-label", "app=web"])
        .unwrap();
    agent(&cluster, "node2", &["attach", "client", "--netns", pods[1].name()]).unwrap();
    let path = |name: &str| format!("namespaces/default/workloads/{name}");
    let recorded = |name: &str| {
        wait::until("the record of the Workload", || {
            let workload = cluster.object(&path(name))?;
            anyhow::ensure!(addresses(&workload).len() == 2, "{workload}");
            Ok(workload)
        })
        .unwrap()
    };
    let (web, client) = (recorded("web"), recorded("client"));
    assert_eq!(
        (web["metadata"]["labels"]["app"].as_str(), web["spec"]["node"].as_str()),
        (Some("web"), Some("node1"))
    );
    let server = EchoServer::start(&pods[0], "web", 8080).unwrap();
    for address in addresses(&web) {
        let reply = wait::until("a reply", || client::tcp(&pods[1], at(address, 8080))).unwrap();
        let own = addresses(&client);
        assert!(own.contains(&reply.peer.ip()), "{reply:?} {own:?}");
        let route = cluster
            .topology
            .place("node1")
            .unwrap()
            .run("ip", &["route", "get", &address.to_string()])
            .unwrap();
        assert!(route.contains("dev tg"), "{route}");
    }
    drop(server);

    // A restart of the agent writes nothing, and control is away.
    cluster.server.kill();
    cluster.agents.get_mut("node1").unwrap().terminate().unwrap();
    cluster.start_agent_again("node1").unwrap();
    let log = cluster.agents["node1"].log();
    let changes = log.matches("the routes of the workload network have changed").count();
    let third = Namespace::new("third").unwrap();
    let said = agent(&cluster, "node1", &["attach", "third", "--netns", third.name()]).unwrap();
    assert!(said.contains("attached third/eth0 to network pods: 10.64."), "{said}");
    assert_eq!(agent(&cluster, "node1", &["detach", "web"]).unwrap().trim(), "detached web/eth0");
    let links = cluster.topology.place("node1").unwrap().run("ip", &["-o", "link"]).unwrap();
    assert_eq!(links.matches("ee:ee:ee:ee:ee:ee").count(), 1, "{links}");
    assert_eq!(
        cluster.agents["node1"].log().matches("the routes of the workload network have changed").count(),
        changes
    );
    cluster.start_control_again().unwrap();
    wait::until_within(Duration::from_secs(90), "the records of the absence", || {
        anyhow::ensure!(addresses(&cluster.object(&path("third"))?).len() == 2);
        let listed = cluster.object("attachments")?;
        anyhow::ensure!(listed["items"].as_array().is_some_and(|items| items.len() == 2), "{listed}");
        Ok(())
    })
    .unwrap();
}

/// F156: on a kernel without IPIP, a Node with a network that needs it is not converged, with the reason and the remedy, and it converges
/// after a change to VXLAN. On one with IPIP, it has the device.
#[test]
fn f156_a_node_without_ipip_has_a_condition_with_the_remedy() {
    let cluster = Cluster::start(&Options { nodes: 1, ..Options::default() }).unwrap();
    let network = |encapsulation: &str| {
        let spec = format!("  cidrs: [10.64.0.0/16]\n  encapsulation: {encapsulation}\n");
        NETWORK.split_once("  cidrs").unwrap().0.to_owned() + &spec
    };
    let has_device = |device: &str| {
        let links = cluster.topology.place("node1").unwrap().run("ip", &["-o", "link"]).unwrap();
        links.contains(&format!(" {device}"))
    };
    let probe = Namespace::new("probe").unwrap();
    let has_ipip = probe.run("ip", &["link", "add", "probe0", "type", "ipip", "external"]).is_ok();
    cluster.apply(&network("Ipip")).unwrap();
    if has_ipip {
        wait::until_true("the device", || has_device("tg-ipip")).unwrap();
        converged(&cluster, "Verified");
    } else {
        let found = converged(&cluster, "NetworkNotProgrammed");
        let message = found["message"].as_str().unwrap();
        assert!(found["status"] == "False" && message.contains("modprobe ipip"), "{found}");
        assert!(!has_device("tg-ipip"));
    }
    cluster.apply(&network("Vxlan")).unwrap();
    wait::until_true("the device", || has_device("tg-vx")).unwrap();
    converged(&cluster, "Verified");
}

/// Waits until the condition `Converged` of node1 has a reason, and returns it.
fn converged(cluster: &Cluster, reason: &str) -> Value {
    wait::until("the condition of the node", || {
        let node = cluster.object("nodes/node1")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|one| one["type"] == "Converged").unwrap_or_default();
        anyhow::ensure!(found["reason"] == reason, "{found}");
        Ok(found)
    })
    .unwrap()
}

/// A Node whose kernel forwards no packets is not converged while it has workloads, with the remedy.
#[test]
fn a_node_that_does_not_forward_has_a_condition_with_the_remedy() {
    let cluster = Cluster::start(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply(NETWORK).unwrap();
    let node = cluster.topology.place("node1").unwrap();
    let set = |value: u8| node.run("sysctl", &["-qw", &format!("net.ipv4.ip_forward={value}")]).unwrap();
    set(0);
    let workload = Namespace::new("workload").unwrap();
    wait::until("the attachment", || {
        agent(&cluster, "node1", &["attach", "web", "--netns", workload.name()])
    })
    .unwrap();
    let found = converged(&cluster, "NetworkNotProgrammed");
    let message = found["message"].as_str().unwrap();
    assert!(found["status"] == "False" && message.contains("`net.ipv4.ip_forward=1`"), "{found}");
    set(1);
    converged(&cluster, "Verified");
}
