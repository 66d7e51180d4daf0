//! Tests of blocks of a workload network that routers learn from the nodes, and of the traffic of a client behind the
//! routers to the workloads.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use lab::{
    host::{netns::Namespace, shell, wait},
    network::{client, client::at, echo::EchoServer},
    processes::{binaries, routers::learned},
};
use serde_json::{Value, json};

use super::stage::{Peering, Stage, object, uplinks};

const CIDRS: [&str; 2] = ["10.64.0.0/16", "fd64::/64"];

fn texts(items: &Value, pointer: &str) -> Vec<String> {
    let texts = items.as_array().unwrap().iter().filter_map(|item| item.pointer(pointer)?.as_str());
    texts.map(str::to_owned).collect()
}

/// Returns the blocks of a node.
fn blocks(stage: &Stage, node: &str) -> Result<Vec<String>> {
    let listed = stage.cluster.object("blocks")?;
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let of_node: Vec<Value> = items.into_iter().filter(|item| item["spec"]["node"] == node).collect();
    Ok(texts(&Value::Array(of_node), "/spec/cidr"))
}

/// Waits until both routers have exactly these learned routes within the workload network.
#[track_caller]
fn wait_learned(stage: &Stage, expected: &[String]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    for router in &stage.routers {
        wait::until("the routes of blocks at a router", || {
            let all = Value::Array(learned(&router.namespace)?);
            let mut found = texts(&all, "/dst");
            found.retain(|prefix| prefix.starts_with("10.64.") || prefix.starts_with("fd64:"));
            found.sort_unstable();
            ensure!(found == expected, "{found:?} instead of {expected:?}");
            Ok(())
        })
        .unwrap();
    }
}

/// F155: routers learn the blocks of the nodes once an Advertisement names the network. A client behind the routers then
/// reaches a workload by the workload's address, with its own address, also while the node is drained. Without the
/// Advertisement, the routers lose the routes.
#[test]
fn f155_routers_learn_the_blocks_and_a_client_behind_them_reaches_a_workload() {
    let stage = Stage::new(2, &Peering::default());
    let network = object("WorkloadNetwork", "pods", &json!({"cidrs": CIDRS}));
    stage.cluster.apply_objects(&[network]).unwrap();
    let of_nodes = wait::until("two blocks of each node", || {
        let [first, second] = ["node1", "node2"].map(|node| blocks(&stage, node));
        let (first, second) = (first?, second?);
        ensure!((first.len(), second.len()) == (2, 2), "{first:?} {second:?}");
        Ok([first, second].concat())
    })
    .unwrap();
    wait_learned(&stage, &[]);
    let advertisement =
        object("Advertisement", "pods", &json!({"type": "BGP", "workloadNetworks": ["pods"]}));
    stage.cluster.apply_objects(&[advertisement]).unwrap();
    wait_learned(&stage, &of_nodes);

    let web = Namespace::new("web").unwrap();
    let program = binaries::find("tidegate-agent").unwrap().display().to_string();
    let state = format!("--state-dir={}", stage.cluster.state_directory("node1").display());
    shell::run(&program, &[&state, "attach", "web", "--netns", web.name()]).unwrap();
    let addresses: Vec<IpAddr> = wait::until("the record of the Workload", || {
        let workload = stage.cluster.object("namespaces/default/workloads/web")?;
        let addresses: Vec<IpAddr> = serde_json::from_value(workload["spec"]["addresses"].clone())?;
        ensure!(addresses.len() == 2, "{workload}");
        Ok(addresses)
    })
    .unwrap();
    for (cidr, family) in [(CIDRS[0], 0), (CIDRS[1], 1)] {
        let hops = [1, 2].map(|host| format!("nexthop via {}", uplinks(host)[family].0));
        stage.outside.ip(&[format!("route add {cidr} {} {}", hops[0], hops[1])]).unwrap();
    }
    let _server = EchoServer::start(&web, "web", 8080).unwrap();
    let wait_served = || {
        for address in &addresses {
            let reply = wait::until("a reply", || client::tcp(&stage.outside, at(*address, 8080))).unwrap();
            let source = reply.peer.ip().to_string();
            assert!(source.starts_with("198.51.100.") || source.starts_with("fd00:51:"), "{source}");
        }
    };
    wait_served();

    stage.patch("nodes/node1", &json!({"spec": {"unschedulable": true}}));
    wait::until("the drain of the node", || {
        let text = stage.routers[0].vtysh("show bgp summary")?;
        let node = stage.cluster.object("nodes/node1")?;
        ensure!(node["spec"]["unschedulable"] == true, "{text}");
        Ok(())
    })
    .unwrap();
    wait_learned(&stage, &of_nodes);
    wait_served();
    stage.cluster.delete("advertisements/pods").unwrap();
    wait_learned(&stage, &[]);
}
