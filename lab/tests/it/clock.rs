//! Test of a node and a control server whose system clock jumps by minutes in both directions, in a guest VM.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers, and prints counts"
)]

use lab::{
    cluster::{
        control::string,
        deployment::{Cluster, Options},
    },
    host::{guest, shell},
    network::client::{Connection, at},
};
use serde_json::{Value, json};

/// Consecutive clock changes in seconds.
const MOVES_SECS: [i64; 2] = [600, -1200];

fn service(port: u16) -> Value {
    json!({"type": "ClusterIP", "selector": {"app": "web"}, "ports": [{"port": port, "targetPort": 8080}]})
}

fn move_clock(secs: i64) {
    let now: i64 = shell::run("date", &["+%s"]).unwrap().trim().parse().unwrap();
    shell::run("date", &["-s", &format!("@{}", now + secs)]).unwrap();
    let moved: i64 = shell::run("date", &["+%s"]).unwrap().trim().parse().unwrap();
    assert!((moved - now - secs).abs() < 60, "the clock was moved by {} s", moved - now);
}

fn revision_of(cluster: &Cluster, service: &str) -> u64 {
    let service = cluster.service(service).unwrap();
    string(&service, "/metadata/resourceVersion").unwrap().parse().unwrap()
}

/// After each jump of the clock, a write is accepted and programmed in the kernel, the node still counts as
/// connected, and nothing else is written to the kernel. An open connection continues, and a restarted
/// control server has all acknowledged writes.
#[test]
fn a_clock_that_jumps_loses_no_write_and_touches_no_traffic() {
    guest::run("clock::a_clock_that_jumps_loses_no_write_and_touches_no_traffic", move_the_clock_and_write);
}

fn move_the_clock_and_write() {
    let options = Options { nodes: 1, modes: vec!["iptables"], ..Options::default() };
    let mut cluster = Cluster::start(&options).unwrap();
    cluster.add_place("inside", "node1", 50).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_service("web", service(80)).unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let mut connection = Connection::open(cluster.place("inside").unwrap(), to).unwrap();
    let mut revision = revision_of(&cluster, "default/web");
    for (turn, secs) in MOVES_SECS.into_iter().enumerate() {
        cluster.wait_converged().unwrap();
        let before = cluster.agent_counter("node1", "kernelTransactions").unwrap();
        move_clock(secs);
        connection.exchange("after the clock has jumped").unwrap();
        let position = string(&cluster.agent_state("node1").unwrap(), "/received").unwrap();
        cluster.wait_converged().unwrap();
        cluster.restart_control().unwrap();
        cluster.wait_converged().unwrap();
        assert_eq!(string(&cluster.agent_state("node1").unwrap(), "/received").unwrap(), position);
        assert_eq!(cluster.agent_counter("node1", "kernelTransactions").unwrap(), before, "after {secs} s");
        let name = format!("late-{turn}");
        cluster.add_service(&name, service(81 + u16::try_from(turn).unwrap())).unwrap();
        let written = revision_of(&cluster, &format!("default/{name}"));
        assert!(written > revision, "{written} after {revision}");
        revision = written;
        cluster.expect_backends("inside", to, &["web-1"]).unwrap();
    }
    let services = cluster.api.get_json("/v1/services").unwrap();
    assert_eq!(services["items"].as_array().unwrap().len(), 1 + MOVES_SECS.len());
    connection.exchange("at the end").unwrap();
    println!(
        "the clock was moved {} times; 0 writes lost, 0 needless writes to the kernel",
        MOVES_SECS.len()
    );
}
