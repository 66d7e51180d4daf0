//! What happens to the ways to an address, and to those who use them, when nodes die, leave or restart.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use lab::{client::at, cluster::Options};
use serde_json::json;

use super::stage::{Stage, Traffic};

const ALL: [&str; 3] = ["node1", "node2", "node3"];

/// F127: a node falls off the network without a word: both routers leave it out by BFD, long before the hold time, and then every
/// connection is made; when it is back it is a way again.
#[test]
fn f127_a_node_that_dies_is_left_out_by_the_routers() {
    let mut stage = Stage::new(&Options::default());
    let vips = stage.add_web(&["node1", "node2"], &json!({}));
    stage.wait_ways(&vips, &ALL);
    stage.wait_watched();
    let traffic = Traffic::start(&stage.client, at(vips[0], 80));
    traffic.wait(20);
    // It has no endpoint, and nothing but BFD can tell.
    stage.cluster.topology.plug("node3", false).unwrap();
    stage.wait_ways(&vips, &["node1", "node2"]);
    traffic.wait(20);
    let _lost_meanwhile = traffic.end();
    let traffic = Traffic::start(&stage.client, at(vips[0], 80));
    traffic.wait(50);
    assert_eq!(traffic.end(), [""; 0], "every connection is made");
    stage.cluster.topology.plug("node3", true).unwrap();
    stage.wait_ways(&vips, &ALL);
    for vip in vips {
        stage.spread(vip, 20);
    }
}

/// F127: a drained node is no way any longer, and no new connection is lost; when the drain ends, it is one again.
#[test]
fn f127_a_drained_node_is_no_way_and_no_connection_is_lost() {
    let mut stage = Stage::new(&Options::default());
    let vips = stage.add_web(&["node1", "node2"], &json!({}));
    stage.wait_ways(&vips, &ALL);
    let traffic = Traffic::start(&stage.client, at(vips[0], 80));
    traffic.wait(20);
    stage.cluster.patch("nodes/node3", &json!({"spec": {"unschedulable": true}})).unwrap();
    stage.wait_ways(&vips, &["node1", "node2"]);
    traffic.wait(20);
    stage.cluster.patch("nodes/node3", &json!({"spec": {"unschedulable": false}})).unwrap();
    stage.wait_ways(&vips, &ALL);
    traffic.wait(20);
    let failures = traffic.end();
    // The beginning of a connection that is made in the very moment may be on another way than its end.
    assert!(failures.len() <= 2, "lost in two moves: {failures:#?}");
}

/// F126, F127: an agent that is ended with `--on-exit=keep`, or killed, and started again is a way all the time: the routers keep
/// its routes, the kernel serves them. Without BFD, which would tell of the path what is true of the agent only.
#[test]
fn f126_f127_the_restart_of_an_agent_moves_no_route() {
    let keep = vec!["--on-exit=keep".to_owned()];
    let mut stage = Stage::with(&Options { nodes: 2, agent_arguments: keep, ..Options::default() }, false);
    let vips = stage.add_web(&["node1"], &json!({}));
    stage.wait_ways(&vips, &["node1", "node2"]);
    let traffic = Traffic::start(&stage.client, at(vips[0], 80));
    traffic.wait(20);
    let mut agent = stage.cluster.agents.remove("node2").unwrap();
    let lost = watch(&stage, vips, || {
        agent.terminate().unwrap();
        traffic.wait(20);
        agent.start_again().unwrap();
        traffic.wait(50);
        agent.kill();
        traffic.wait(20);
        agent.start_again().unwrap();
        traffic.wait(50);
    });
    assert_eq!(lost, 0, "looks at which a router had lost a way");
    stage.cluster.agents.insert("node2".to_owned(), agent);
    stage.cluster.wait_agent_ready("node2").unwrap();
    stage.cluster.wait_converged().unwrap();
    stage.wait_ways(&vips, &["node1", "node2"]);
    assert_eq!(traffic.end(), [""; 0], "no connection is lost");
}

/// F126: an agent that leaves for good takes its routes along before it has ended.
#[test]
fn f126_an_agent_that_leaves_withdraws_its_routes_first() {
    let mut stage = Stage::new(&Options { nodes: 2, ..Options::default() });
    let vips = stage.add_web(&["node1"], &json!({}));
    stage.wait_ways(&vips, &["node1", "node2"]);
    let traffic = Traffic::start(&stage.client, at(vips[0], 80));
    traffic.wait(20);
    stage.cluster.agents.get_mut("node2").unwrap().terminate().unwrap();
    stage.wait_ways(&vips, &["node1"]);
    traffic.wait(20);
    let failures = traffic.end();
    assert!(failures.len() <= 2, "lost in one move: {failures:#?}");
}

/// Looks at both routers' ways to the first address all the time while something happens; answers how often node2 was missing.
fn watch(stage: &Stage, vips: [IpAddr; 2], event: impl FnOnce()) -> usize {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut lost = 0;
            while !has_ended.load(Ordering::Relaxed) {
                for (router, vip) in [(0, vips[0]), (1, vips[0]), (0, vips[1]), (1, vips[1])] {
                    lost += usize::from(!stage.ways(router, vip).contains("node2"));
                }
            }
            lost
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(event));
        has_ended.store(true, Ordering::Relaxed);
        let lost = watcher.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        lost
    })
}
