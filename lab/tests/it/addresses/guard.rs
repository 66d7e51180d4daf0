//! Tests of a loss of the control server's database: nodes continue with their previous state until the
//! database is restored or an operator confirms the loss.

use std::{net::SocketAddr, time::SystemTime};

use anyhow::{Result, ensure};
use lab::{
    cluster::{
        control::{number, string},
        deployment::{Cluster, Options},
    },
    host::{modes, wait},
    network::client::{Connection, at},
    processes::binaries,
};
use serde_json::Value;

use super::stage::{add_web, stage_with, wait_owner};

const NODES: [&str; 3] = ["node1", "node2", "node3"];
const MODES: [&str; 3] = modes::NATIVE;
const BACKENDS: [&str; 3] = ["web-node1", "web-node2", "web-node3"];

/// Returns the epoch of the current store (its creation time, which identifies the store).
fn epoch(cluster: &Cluster) -> u64 {
    let position = string(&cluster.api.get_json("/v1/status").unwrap(), "/position").unwrap();
    position.split_once('-').unwrap().0.parse().unwrap()
}

/// Restarts the control server with the argument `store` (`--store=…`), and returns the previous value of
/// this argument.
fn start_control_on(cluster: &mut Cluster, store: &str) -> String {
    cluster.server.kill();
    let arguments = cluster.server.arguments_mut();
    let place = arguments.iter_mut().find(|argument| argument.starts_with("--store=")).unwrap();
    let before = std::mem::replace(place, store.to_owned());
    cluster.start_control_again().unwrap();
    before
}

/// Restarts the control server on an empty store. Waits for the next second first, because the epoch of a
/// store is its creation time in seconds and must differ.
fn start_control_empty(cluster: &mut Cluster) -> String {
    let before = epoch(cluster);
    wait::until_true("the next second", || {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() > before
    })
    .unwrap();
    start_control_on(cluster, "--store=memory:")
}

fn held(cluster: &Cluster, node: &str) -> Result<Value> {
    let held = cluster.agent_state(node)?["held"].clone();
    ensure!(held["reason"] == "MuchLost", "{node} holds {held}");
    Ok(held)
}

/// Waits until every agent reports that it applies the new state only after a confirmation, and until the
/// control server shows this as the reason why the node has not converged.
fn wait_held(cluster: &Cluster) {
    for node in NODES {
        let held = wait::until(&format!("{node} to hold the empty state"), || held(cluster, node)).unwrap();
        assert_eq!((&held["vips"]["lost"], &held["vips"]["total"]), (&4.into(), &4.into()), "{held}");
        assert_eq!(
            (&held["endpoints"]["lost"], &held["endpoints"]["total"]),
            (&6.into(), &6.into()),
            "{held}"
        );
        wait::until(&format!("control to know of {node}"), || {
            let shown = cluster.object(&format!("nodes/{node}"))?;
            let conditions = shown["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let converged =
                conditions.iter().find(|it| it["type"] == "Converged").cloned().unwrap_or_default();
            ensure!(converged["reason"] == "StateHeld", "{converged}");
            let hint = string(&converged, "/hint")?;
            ensure!(hint.contains(&format!("tidegate confirm {node} --epoch {}", epoch(cluster))), "{hint}");
            Ok(())
        })
        .unwrap();
    }
}

fn transactions(cluster: &Cluster) -> Vec<u64> {
    NODES.iter().map(|node| cluster.agent_counter(node, "kernelTransactions").unwrap()).collect()
}

fn expect_service(cluster: &Cluster, cluster_ip: SocketAddr, vip: SocketAddr) {
    for number in 1..=NODES.len() {
        cluster.expect_backends(&format!("inside-{number}"), cluster_ip, &BACKENDS).unwrap();
    }
    cluster.expect_backends("client", vip, &BACKENDS).unwrap();
}

/// If the control server runs on an empty database, nodes in all modes continue to serve and announce, even
/// after a restart of their agents. The return of the old database causes no kernel write. A node applies the
/// empty state only after an operator has confirmed it for this node.
#[test]
fn an_empty_database_takes_no_traffic_away_until_it_is_confirmed() {
    let mut cluster = stage_with(&Options { nodes: 3, modes: MODES.to_vec(), ..Options::default() });
    for (number, node) in (1..).zip(NODES) {
        cluster.add_place(&format!("inside-{number}"), node, 50 + number).unwrap();
    }
    let [vip, vip6] = add_web(&mut cluster, &NODES, &serde_json::json!({}));
    let owners = [vip, vip6].map(|vip| wait_owner(&cluster, vip));
    let (vip_port, cluster_port) = (at(vip, 80), at(cluster.cluster_ip("default/web", 0).unwrap(), 80));
    cluster.wait_converged().unwrap();
    expect_service(&cluster, cluster_port, vip_port);
    let mut connection = Connection::open(cluster.place("inside-3").unwrap(), cluster_port).unwrap();
    let before = transactions(&cluster);

    let right = start_control_empty(&mut cluster);
    wait_held(&cluster);
    expect_service(&cluster, cluster_port, vip_port);
    connection.exchange("without a database").unwrap();
    assert_eq!([vip, vip6].map(|vip| wait_owner(&cluster, vip)), owners);
    assert_eq!(transactions(&cluster), before, "nothing was programmed");
    let problems = cluster.api.get_json("/v1/status").unwrap()["problems"].to_string();
    assert!(problems.contains("StateHeld"), "{problems}");

    // An agent that owns no address, so that no address moves.
    let again = NODES.iter().position(|node| !owners.iter().any(|owner| owner == node)).unwrap();
    cluster.agents.get_mut(NODES[again]).unwrap().kill();
    cluster.start_agent_again(NODES[again]).unwrap();
    wait_held(&cluster);
    expect_service(&cluster, cluster_port, vip_port);
    let expected: Vec<_> =
        (0..).zip(&before).map(|(node, count)| if node == again { 0 } else { *count }).collect();

    start_control_on(&mut cluster, &right);
    cluster.wait_converged().unwrap();
    for node in NODES {
        wait::until_true(&format!("{node} to hold nothing back"), || {
            cluster.agent_state(node).is_ok_and(|state| state["held"].is_null() && state["connected"] == true)
        })
        .unwrap();
    }
    assert_eq!(transactions(&cluster), expected, "the right database changes nothing");
    connection.exchange("with the database").unwrap();

    start_control_empty(&mut cluster);
    wait_held(&cluster);
    confirm_everywhere(&cluster);
    cluster.wait_converged().unwrap();
    assert!(cluster.tcp("client", vip_port).is_err(), "the address is not announced any longer");
    assert!(cluster.tcp("inside-1", cluster_port).is_err(), "the Service is gone");
}

/// Confirms the new state of each node: of two nodes through the control server, of the other one on the node
/// itself. First asserts that the control server rejects a confirmation for a different epoch.
fn confirm_everywhere(cluster: &Cluster) {
    let epoch = epoch(cluster);
    let confirm = |node: &str, epoch: u64| {
        cluster
            .api
            .send("POST", &format!("/v1/nodes/{node}/confirm?epoch={epoch}"), &[], String::new())
            .unwrap()
    };
    confirm("node1", epoch - 1).expect(409).unwrap();
    for node in ["node1", "node3"] {
        let confirmed = confirm(node, epoch).expect(200).unwrap();
        assert_eq!(number(&confirmed, "/confirmed/vips/lost").unwrap(), 4, "{confirmed}");
    }
    confirm("node1", epoch).expect(502).unwrap();

    let agent = binaries::find("tidegate-agent").unwrap();
    let state = format!("--state-dir={}", cluster.state_directory("node2").display());
    let arguments = |epoch: u64| ["confirm".to_owned(), format!("--epoch={epoch}"), state.clone()];
    let run = |epoch: u64| {
        let arguments = arguments(epoch);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        cluster.place("node2").unwrap().run(agent.to_str().unwrap(), &arguments)
    };
    run(epoch).unwrap();
    for node in NODES {
        wait::until_true(&format!("{node} to have taken the empty state"), || {
            cluster.agent_state(node).is_ok_and(|state| state["held"].is_null() && state["services"] == 0)
        })
        .unwrap();
    }
}
