//! Tests of changes of the owner as clients and operators see them: a change is no conflict, and a node that
//! missed the change does not take clients back.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use lab::{
    cluster::deployment::Cluster,
    host::wait,
    network::client::{Connection, at},
};
use serde_json::{Value, json};

use super::stage::{add_web, answerers, order, roles, stage, wait_moved, wait_owner, wait_reached};

/// Interval between two looks at the conditions.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Watcher that collects conflicts in the status of all addresses until it ends.
struct Alarms {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Alarms {
    fn start(cluster: &Cluster) -> Self {
        let (api, stop) = (cluster.api.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut found = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let list = api.get_json("/v1/addresses").unwrap_or_default();
                let items = list["items"].as_array().cloned().unwrap_or_default();
                found.extend(items.iter().flat_map(alarms));
                std::thread::sleep(LOOK_INTERVAL);
            }
            found.dedup();
            found
        });
        Self { stop, thread }
    }

    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn alarms(address: &Value) -> Vec<String> {
    let conditions = address["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_alarm =
        |condition: &&Value| condition["reason"] == "Conflict" || condition["reason"] == "TwoOwners";
    let nodes = address["status"]["nodes"].as_object().cloned().unwrap_or_default();
    let conflicts = nodes.into_iter().filter(|(_, part)| !part["conflict"].is_null());
    let conditions = conditions.iter().filter(is_alarm).map(|condition| condition["message"].to_string());
    conditions.chain(conflicts.map(|(node, part)| format!("{node}: {}", part["conflict"]))).collect()
}

fn is_standby(cluster: &Cluster, node: &str, vips: &[IpAddr]) -> bool {
    vips.iter().all(|vip| roles(cluster, *vip).get(node).is_some_and(|(role, _)| role == "Standby"))
}

fn is_disconnected(cluster: &Cluster, node: &str) -> bool {
    let node = cluster.api.get_json(&format!("/v1/nodes/{node}")).unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Connected" && condition["status"] == "False")
}

/// F124: a change of the owner is not reported as a conflict: at the start of a cluster, at a move, a drain, a
/// pause of the owner's agent, its death, and the deletion of its Node.
#[test]
fn f124_a_change_of_the_owner_is_no_conflict() {
    let mut cluster = stage(3);
    let alarms = Alarms::start(&cluster);
    let vips = add_web(&mut cluster, &["node1", "node2", "node3"], &json!({}));
    wait_reached(&cluster, &vips);
    for vip in vips {
        let next = order(&cluster, vip).1[1].clone();
        let name = model::kinds::address::name_of(vip);
        let path = format!("/v1/addresses/{}/move", name.as_str());
        cluster.api.send_json("POST", &path, &json!({"node": next})).unwrap().success().unwrap();
        wait::until_true("the address to be moved", || {
            super::stage::owner(&cluster, vip).is_ok_and(|owner| owner == next)
        })
        .unwrap();
    }
    let drained = wait_owner(&cluster, vips[0]);
    let unschedulable = |is: bool| json!({"spec": {"unschedulable": is}});
    cluster.patch(&format!("nodes/{drained}"), &unschedulable(true)).unwrap();
    wait_moved(&cluster, &vips, &drained);
    cluster.patch(&format!("nodes/{drained}"), &unschedulable(false)).unwrap();
    wait::until_true("the drained node to be a candidate", || is_standby(&cluster, &drained, &vips)).unwrap();

    let paused = wait_owner(&cluster, vips[0]);
    cluster.agents[&paused].pause().unwrap();
    cluster.wait_owner(vips[0], |owner| owner != paused).unwrap();
    // A node that resumes at the very moment of the takeover answers first and keeps the address.
    wait::until_true("the paused node to be disconnected", || is_disconnected(&cluster, &paused)).unwrap();
    cluster.agents[&paused].go_on().unwrap();
    wait::until_true("the resumed node to stand by", || is_standby(&cluster, &paused, &vips[..1])).unwrap();

    let killed = wait_owner(&cluster, vips[0]);
    cluster.agents.get_mut(&killed).unwrap().kill();
    wait_moved(&cluster, &vips, &killed);
    cluster
        .api
        .send("DELETE", &format!("/v1/nodes/{killed}?confirm=true"), &[], String::new())
        .unwrap()
        .success()
        .unwrap();
    cluster.start_agent_again(&killed).unwrap();
    wait::until_true("the deleted node to be back", || is_standby(&cluster, &killed, &vips)).unwrap();
    assert_eq!(alarms.end(), Vec::<String>::new());
}

/// F117, F132: an owner whose agent was paused leaves the address to the node that has taken over. The
/// connections that were opened there continue.
#[test]
fn f117_f132_a_paused_owner_resets_no_connection_of_its_successor() {
    let mut cluster = stage(3);
    let vips = add_web(&mut cluster, &["node1", "node2", "node3"], &json!({}));
    wait_reached(&cluster, &vips);
    for vip in vips {
        let first = wait_owner(&cluster, vip);
        cluster.agents[&first].pause().unwrap();
        let second = cluster.wait_owner(vip, |owner| owner != first).unwrap();
        assert_eq!(answerers(&cluster, vip), [second.clone()].into());
        let client = cluster.place("client").unwrap();
        let mut connections: Vec<_> =
            (0..12).map(|_| Connection::open(client, at(vip, 80)).unwrap()).collect();
        cluster.agents[&first].go_on().unwrap();
        let mut rounds = 0;
        wait::until_true("the resumed node to stand by", || {
            rounds += 1;
            for connection in &mut connections {
                connection.exchange(&format!("round {rounds}")).unwrap();
            }
            is_standby(&cluster, &first, &[vip])
        })
        .unwrap();
        for connection in &mut connections {
            connection.exchange("in the end").unwrap();
        }
        assert_eq!(wait_owner(&cluster, vip), second);
        assert_eq!(answerers(&cluster, vip), [second].into());
    }
}
