//! Tests of client traffic over two routers while nodes are drained and agents restart or are killed.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use lab::{
    host::wait,
    network::{client::at, steady_client::SteadyClient, topology::node_addresses},
};
use serde_json::json;

use super::stage::{Peering, Stage};

/// F126, F127: when a node is drained or returns, or when its agent is terminated, no connection times out or is
/// refused, because the routes are withdrawn before any other change. A connection in progress at the moment of a
/// move may be reset, because its next packets take a path over another node.
#[test]
fn f126_f127_nodes_that_leave_in_good_order_reset_only_connections_in_progress() {
    let mut stage = Stage::new(3, &Peering::default());
    let vips = stage.add_web(&["node1", "node2"], &json!({}));
    vips.into_iter().for_each(|vip| stage.wait_routed(vip, &[1, 2, 3]));
    let traffic = vips.map(|vip| SteadyClient::start(&stage.outside, at(vip, 80)));
    let connect = || traffic.iter().for_each(|clients| clients.wait(20).unwrap());
    connect();
    stage.patch("nodes/node3", &json!({"spec": {"unschedulable": true}}));
    vips.into_iter().for_each(|vip| stage.wait_routed(vip, &[1, 2]));
    connect();
    stage.patch("nodes/node3", &json!({"spec": {"unschedulable": false}}));
    vips.into_iter().for_each(|vip| stage.wait_routed(vip, &[1, 2, 3]));
    connect();
    stage.cluster.agents.get_mut("node3").unwrap().terminate().unwrap();
    vips.into_iter().for_each(|vip| stage.wait_routed(vip, &[1, 2]));
    connect();
    for clients in traffic {
        clients.end(3).unwrap();
    }
}

/// F126, F127: after a planned restart or a kill of an agent, its node remains a next hop: both routers keep
/// its routes of both families, its kernel serves them, and no connection times out. Routers may reorder the same
/// next hops, which resets a connection in progress. BFD is disabled, because
/// the agent sends its packets: a stop of the agent would look like a failure of the path.
#[test]
fn f126_f127_the_restart_of_an_agent_withdraws_no_route_and_no_connection_times_out() {
    let peering = Peering {
        peer: json!({"gracefulRestart": {"restartTime": 60}, "bfdProfile": null}),
        arguments: vec!["--on-exit=keep".to_owned()],
    };
    let mut stage = Stage::new(2, &peering);
    let vips = stage.add_web(&["node1"], &json!({}));
    vips.into_iter().for_each(|vip| stage.wait_routed(vip, &[1, 2]));
    let traffic = vips.map(|vip| SteadyClient::start(&stage.outside, at(vip, 80)));
    let connect = || traffic.iter().for_each(|clients| clients.wait(30).unwrap());
    connect();
    let mut agent = stage.cluster.agents.remove("node2").unwrap();
    let (looks, lost) = watch(&stage, vips, || {
        agent.terminate().unwrap();
        connect();
        agent.start_again().unwrap();
        connect();
        wait_sessions(&stage);
        agent.kill();
        connect();
        agent.start_again().unwrap();
        connect();
        wait_sessions(&stage);
    });
    assert!(looks > 10 && lost == 0, "a router had no way over node2 at {lost} of {looks} looks");
    stage.cluster.agents.insert("node2".to_owned(), agent);
    stage.cluster.wait_agent_ready("node2").unwrap();
    stage.cluster.wait_converged().unwrap();
    vips.into_iter().for_each(|vip| stage.wait_routed(vip, &[1, 2]));
    for clients in traffic {
        clients.end(2).unwrap();
    }
}

/// F136: clients inside and outside the cluster reach every endpoint at the announced address.
#[test]
fn f136_inside_and_outside_every_endpoint_answers_at_an_announced_address() {
    let mut stage = Stage::new(2, &Peering::default());
    stage.cluster.add_place("inside", "node2", 50).unwrap();
    let vips = stage.add_web(&["node1", "node2"], &json!({}));
    for vip in vips {
        stage.wait_routed(vip, &[1, 2]);
        stage.cluster.expect_backends("inside", at(vip, 80), &["web-node1", "web-node2"]).unwrap();
        let counts = stage.spread(vip, 60);
        assert_eq!(counts.keys().collect::<Vec<_>>(), ["web-node1", "web-node2"], "{counts:?}");
    }
}

/// Waits until both routers have BGP sessions with the second node again.
fn wait_sessions(stage: &Stage) {
    let node = node_addresses(2)[0];
    wait::until_true("the sessions of node2", || {
        stage.routers.iter().all(|router| router.is_established(node).unwrap_or_default())
    })
    .unwrap();
}

/// Reads the routes of both routers repeatedly while `event` runs. Returns the number of reads, and the
/// number of reads in which the second node was not a next hop.
fn watch(stage: &Stage, vips: [IpAddr; 2], event: impl FnOnce()) -> (usize, usize) {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut looks, mut lost) = (0, 0);
            while !has_ended.load(Ordering::Relaxed) {
                for (router, vip) in stage.routers.iter().flat_map(|router| vips.map(|vip| (router, vip))) {
                    looks += 1;
                    lost += usize::from(!stage.ways(router, vip).unwrap().contains(&2));
                }
            }
            (looks, lost)
        });
        // The polling thread ends even if the event fails.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(event));
        has_ended.store(true, Ordering::Relaxed);
        let seen = watcher.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        seen
    })
}
