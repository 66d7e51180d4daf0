//! Tests of nodes that leave, planned or not, and of the routes that routers keep in the meantime.

use lab::{host::wait, network::steady_client::SteadyClient, processes::routers::learned};
use serde_json::json;

use super::stage::{Peering, Stage};

/// F126: a drained node withdraws its routes before it changes anything else. Clients that connect during the drain
/// and the return of the node get a reply, except for a connection in progress at a move, which may be reset.
#[test]
fn f126_a_drained_node_withdraws_first_and_resets_only_connections_in_progress() {
    let mut stage = Stage::new(2, &Peering::default());
    let [vip, _] = stage.add_web(&["node1", "node2"], &json!({}));
    stage.wait_routed(vip, &[1, 2]);
    stage.wait_reached(vip);
    let traffic = SteadyClient::start(&stage.outside, stage.at(vip));
    traffic.wait(20).unwrap();
    stage.patch("nodes/node1", &json!({"spec": {"unschedulable": true}}));
    stage.wait_routed(vip, &[2]);
    traffic.wait(30).unwrap();
    stage.patch("nodes/node1", &json!({"spec": {"unschedulable": false}}));
    stage.wait_routed(vip, &[1, 2]);
    traffic.wait(20).unwrap();
    traffic.end(2).unwrap();
}

/// An agent that receives SIGTERM withdraws its routes. During a planned restart of the agent the routers keep its
/// routes (Graceful Restart).
#[test]
fn routes_stay_over_a_planned_restart_and_go_with_a_hand_over() {
    let peering = Peering {
        peer: json!({"gracefulRestart": {"restartTime": 60}}),
        arguments: vec!["--on-exit=keep".to_owned()],
    };
    let mut stage = Stage::new(2, &peering);
    let [vip, _] = stage.add_web(&["node1", "node2"], &json!({}));
    stage.wait_routed(vip, &[1, 2]);
    stage.wait_reached(vip);
    let router = stage.routers[0].namespace.clone();
    let hops = || {
        let routes = learned(&router).unwrap();
        let route = routes.iter().find(|route| route["dst"] == vip.to_string());
        route.map_or(0, |route| route["nexthops"].as_array().map_or(1, Vec::len))
    };
    stage.cluster.agents.get_mut("node1").unwrap().terminate().unwrap();
    // The router has detected the end of the session and keeps the route.
    wait::until_true("the router to notice", || {
        !stage.routers[0].is_established(lab::network::topology::node_addresses(1)[0]).unwrap()
    })
    .unwrap();
    assert_eq!(hops(), 2, "kept");
    stage.spread(vip, 20);
    stage.cluster.start_agent_again("node1").unwrap();
    let mut fewest = 2;
    wait::until_true("the session to come back", || {
        fewest = fewest.min(hops());
        stage.routers[0].is_established(lab::network::topology::node_addresses(1)[0]).unwrap()
    })
    .unwrap();
    assert_eq!(fewest, 2, "no moment without the route");
    stage.wait_established();
    stage.wait_routed(vip, &[1, 2]);

    let agent = stage.cluster.agents.get_mut("node1").unwrap();
    agent.arguments_mut().retain(|argument| argument != "--on-exit=keep");
    agent.terminate().unwrap();
    stage.cluster.start_agent_again("node1").unwrap();
    stage.wait_established();
    stage.cluster.agents.get_mut("node1").unwrap().terminate().unwrap();
    stage.wait_routed(vip, &[2]);
    stage.spread(vip, 20);
}

/// Routes do not depend on the control server: the routers keep the routes while the server is down, and an
/// agent that starts during this time announces its routes too.
#[test]
fn routes_stay_and_come_without_control() {
    let mut stage = Stage::new(2, &Peering::default());
    let [vip, _] = stage.add_web(&["node1", "node2"], &json!({}));
    stage.wait_routed(vip, &[1, 2]);
    stage.cluster.server.kill();
    stage.cluster.agents.get_mut("node1").unwrap().kill();
    stage.wait_routed(vip, &[2]);
    stage.cluster.agents.get_mut("node1").unwrap().start_again().unwrap();
    stage.wait_routed(vip, &[1, 2]);
    stage.wait_reached(vip);
    stage.cluster.start_control_again().unwrap();
    stage.cluster.wait_converged().unwrap();
    stage.wait_routed(vip, &[1, 2]);
}
