//! Test of the restore of a backup while the cluster serves clients: agents receive the whole state in a new
//! epoch, and no packet is lost.

use std::{path::PathBuf, process::Command};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{kernel, wait},
    network::client::{Connection, at},
    processes::binaries,
};
use serde_json::{Value, json};

const NODES: [&str; 2] = ["node1", "node2"];

fn service(port: u16) -> Value {
    json!({"type": "ClusterIP", "selector": {"app": "web"}, "ports": [{"port": port, "targetPort": 8080}]})
}

fn api(arguments: &[&str]) -> String {
    let output = Command::new(binaries::find("tidegate-api").unwrap()).args(arguments).output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

fn store_of(cluster: &mut Cluster) -> String {
    let arguments = cluster.server.arguments_mut();
    arguments.iter().find_map(|argument| argument.strip_prefix("--store=")).unwrap().to_owned()
}

fn epoch(cluster: &Cluster, node: &str) -> u64 {
    let state = cluster.agent_state(node).unwrap();
    let position = state["received"].as_str().unwrap_or_else(|| panic!("{state:#}"));
    position.split_once('-').unwrap().0.parse().unwrap()
}

fn transactions(cluster: &Cluster) -> Vec<u64> {
    NODES.iter().map(|node| cluster.agent_counter(node, "kernelTransactions").unwrap()).collect()
}

/// A backup is restored twice while a connection is open, the second time after another Service was created.
/// A watch that resumes from before the restore gets status 410, and agents receive the whole state in a
/// higher epoch. Unchanged objects cause no kernel write, the Service that is not in the backup is removed,
/// and the connection continues.
#[test]
fn after_a_restore_agents_take_the_whole_state_and_traffic_goes_on() {
    let mut cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    cluster.add_place("inside", "node2", 50).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_service("web", service(80)).unwrap();
    cluster.wait_converged().unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let mut connection = Connection::open(cluster.place("inside").unwrap(), to).unwrap();
    let store = store_of(&mut cluster);
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("backup");
    let backup = cluster.api.send("POST", "/v1/backup?history=true", &[], String::new()).unwrap();
    std::fs::write(&file, backup.success().unwrap().text).unwrap();
    let file = file.display().to_string();
    let old = cluster.api.get_json("/v1/status").unwrap();
    let rulesets = |cluster: &Cluster| -> Vec<_> {
        NODES.iter().map(|node| kernel::ruleset(cluster.place(node).unwrap()).unwrap()).collect()
    };
    let before = (rulesets(&cluster), transactions(&cluster), epoch(&cluster, "node1"));

    // The same state in a new epoch: everything is sent again, nothing is programmed again.
    restore(&mut cluster, &store, &file);
    connection.exchange("after a restore").unwrap();
    cluster.expect_backends("inside", to, &["web-1"]).unwrap();
    assert_eq!((rulesets(&cluster), transactions(&cluster)), (before.0.clone(), before.1));
    assert!(epoch(&cluster, "node1") > before.2);
    let token = old["position"].as_str().map_or_else(|| format!("{}-1", before.2), str::to_owned);
    let answer = cluster.api.get(&format!("/v1/watch?resume={token}")).unwrap();
    assert_eq!(answer.status, 410, "{}", answer.text);

    // A Service missing in the backup is removed.
    cluster.add_service("late", service(81)).unwrap();
    cluster.wait_converged().unwrap();
    assert_ne!(rulesets(&cluster), before.0);
    restore(&mut cluster, &store, &file);
    assert_eq!(rulesets(&cluster), before.0);
    connection.exchange("after a second restore").unwrap();
    cluster.expect_backends("inside", to, &["web-1"]).unwrap();
}

fn restore(cluster: &mut Cluster, store: &str, file: &str) {
    let was = NODES.map(|node| epoch(cluster, node));
    cluster.server.terminate().unwrap();
    api(&["store", "restore", "--store", store, "--from", file, "--yes"]);
    cluster.start_control_again().unwrap();
    for (node, was) in NODES.into_iter().zip(was) {
        wait::until_true(&format!("{node} to begin anew"), || {
            cluster.agent_state(node).is_ok_and(|state| state["connected"] == true)
                && epoch(cluster, node) > was
        })
        .unwrap();
    }
    cluster.wait_converged().unwrap();
}
