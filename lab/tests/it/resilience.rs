//! Tests that traffic does not depend on the control plane: control servers and agents are killed and
//! restarted without a lost packet.

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{kernel, wait},
    network::client::{Connection, at},
};
use serde_json::json;

const NODES: [&str; 2] = ["node1", "node2"];

fn web() -> (Cluster, std::net::SocketAddr) {
    web_in("nftables")
}

fn web_in(mode: &'static str) -> (Cluster, std::net::SocketAddr) {
    let mut cluster = Cluster::start(&Options { nodes: 2, modes: vec![mode], ..Options::default() }).unwrap();
    cluster.add_place("inside", "node2", 50).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_backend("web-2", "node2", 12, "web").unwrap();
    let spec = json!({"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
    cluster.add_service("web", spec).unwrap();
    cluster.wait_converged().unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    (cluster, to)
}

fn rulesets(cluster: &Cluster) -> Vec<String> {
    NODES.iter().map(|node| kernel::ruleset(cluster.place(node).unwrap()).unwrap()).collect()
}

fn transactions(cluster: &Cluster) -> Vec<u64> {
    NODES.iter().map(|node| cluster.agent_counter(node, "kernelTransactions").unwrap()).collect()
}

fn wait_connected(cluster: &Cluster) {
    for node in NODES {
        wait::until_true(&format!("{node} to follow the feed"), || {
            cluster.agent_state(node).is_ok_and(|state| state["connected"] == true)
        })
        .unwrap();
    }
}

/// F003: after a kill and restart of the control server, agents resume from their position (epoch and
/// revision), traffic continues, and no kernel state is written again.
#[test]
fn f003_control_dies_and_returns_traffic_goes_on_and_nothing_is_reprogrammed() {
    let (mut cluster, to) = web();
    let mut connection = Connection::open(cluster.place("inside").unwrap(), to).unwrap();
    let before = (rulesets(&cluster), transactions(&cluster));
    let received =
        |cluster: &Cluster| NODES.map(|node| cluster.agent_counter(node, "objectsReceived").unwrap());
    let objects = received(&cluster);

    cluster.server.kill();
    wait::until_true("the agents to notice", || {
        NODES.iter().all(|node| cluster.agent_state(node).is_ok_and(|state| state["connected"] == false))
    })
    .unwrap();
    connection.exchange("without control").unwrap();
    cluster.expect_backends("inside", to, &["web-1", "web-2"]).unwrap();

    cluster.start_control_again().unwrap();
    wait_connected(&cluster);
    cluster.wait_converged().unwrap();
    connection.exchange("with control again").unwrap();
    assert_eq!((rulesets(&cluster), transactions(&cluster)), before, "nothing was programmed again");
    assert_eq!(received(&cluster), objects, "the agents resumed: no object was sent again");

    // Changes arrive again.
    cluster.delete("namespaces/default/workloads/web-1").unwrap();
    cluster.wait_verified("default/web").unwrap();
    cluster.expect_backends("inside", to, &["web-2"]).unwrap();
}

/// F059: while the agent is terminated or killed, its rules stay in force. A restart of the agent without a
/// control server writes nothing to the kernel and breaks no connection.
#[test]
fn f059_an_agent_restart_without_api_makes_no_kernel_write_and_breaks_no_connection() {
    restart_without_api("nftables");
}

/// F059: in userspace mode, in which the relay process continues without the agent, a restart of the agent
/// writes nothing to the kernel and breaks no connection.
#[test]
fn f059_an_agent_restart_in_userspace_mode_makes_no_kernel_write_and_breaks_no_connection() {
    restart_without_api("userspace");
}

fn restart_without_api(mode: &'static str) {
    let (mut cluster, to) = web_in(mode);
    let mut connection = Connection::open(cluster.place("inside").unwrap(), to).unwrap();
    let before = rulesets(&cluster);
    cluster.server.kill();
    for node in NODES {
        cluster.agents.get_mut(node).unwrap().terminate().unwrap();
    }
    assert_eq!(rulesets(&cluster), before, "SIGTERM flushes nothing");
    connection.exchange("no agent").unwrap();
    cluster.expect_backends("inside", to, &["web-1", "web-2"]).unwrap();

    for node in NODES {
        cluster.start_agent_again(node).unwrap();
    }
    assert_eq!(transactions(&cluster), [0, 0], "a restart with nothing to do makes no kernel write");
    assert_eq!(rulesets(&cluster), before);
    connection.exchange("agents again").unwrap();

    for node in NODES {
        cluster.agents.get_mut(node).unwrap().kill();
        cluster.start_agent_again(node).unwrap();
    }
    assert_eq!(transactions(&cluster), [0, 0], "the same after SIGKILL");
    assert_eq!(rulesets(&cluster), before);
    connection.exchange("agents after SIGKILL").unwrap();
}

/// F078: if another program flushes the agent's rules or changes one element, the agent repairs the kernel
/// state and counts the repair.
#[test]
fn f078_drift_is_repaired_and_counted() {
    let (cluster, to) = web();
    let node = cluster.place("node2").unwrap();
    let before = kernel::ruleset(node).unwrap();
    let repairs = cluster.agent_counter("node2", "driftRepairs").unwrap();
    node.run("nft", &["flush", "ruleset"]).unwrap();
    wait::until_true("the rules to be as before", || kernel::ruleset(node).unwrap() == before).unwrap();
    cluster.expect_backends("inside", to, &["web-1", "web-2"]).unwrap();
    wait::until_true("the repair to be counted", || {
        cluster.agent_counter("node2", "driftRepairs").unwrap() > repairs
    })
    .unwrap();
    wait::until_true("the agent to be healthy again", || {
        cluster.agent("node2").unwrap().get("/healthz").is_ok_and(|answer| answer.status == 200)
    })
    .unwrap();
}

/// F079: foreign tables stay byte-identical while the agent programs, changes and removes rules; after
/// `cleanup` none of the agent's tables is left.
#[test]
fn f079_foreign_tables_stay_byte_identical_and_cleanup_leaves_nothing() {
    const FOREIGN: &str = "table inet mine {
        set blocked { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 } }
        map jumps { type inet_service : verdict; elements = { 22 : accept } }
        chain prerouting { type nat hook prerouting priority -90; tcp dport 4444 redirect to :5555; }
        chain forward { type filter hook forward priority 0; ip saddr @blocked drop comment \"not yours\"; }
    }
    table ip nat { chain POSTROUTING { type nat hook postrouting priority 100; ip saddr 192.0.2.0/24 masquerade; }; }
    ";
    let mut cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let node = cluster.place("node1").unwrap().clone();
    kernel::load(&node, FOREIGN).unwrap();
    let (before, network) = (kernel::ruleset(&node).unwrap(), kernel::network(&node).unwrap());
    let foreign = |table: &str| kernel::table(&node, table).unwrap();
    let tables = ["inet mine", "ip nat"].map(foreign);

    cluster.start_agent("node1").unwrap();
    cluster.wait_agent_ready("node1").unwrap();
    cluster.add_service("one", json!({"ports": [{"port": 80}]})).unwrap();
    cluster.delete("namespaces/default/services/one").unwrap();
    cluster.add_service("two", json!({"type": "NodePort", "ports": [{"port": 80}]})).unwrap();
    assert!(kernel::tables(&node).unwrap().iter().any(|table| table.contains("tidegate")));
    assert_eq!(["inet mine", "ip nat"].map(foreign), tables, "while the agent runs");

    cluster.agents.get_mut("node1").unwrap().terminate().unwrap();
    assert_ne!(kernel::ruleset(&node).unwrap(), before, "SIGTERM is not a clean-up");
    let agent = lab::processes::binaries::find("tidegate-agent").unwrap();
    let state = format!("--state-dir={}", cluster.state_directory("node1").display());
    node.run(agent.to_str().unwrap(), &["cleanup", &state]).unwrap();
    assert_eq!(kernel::ruleset(&node).unwrap(), before);
    assert_eq!(kernel::network(&node).unwrap(), network, "links, addresses and routes");
}
