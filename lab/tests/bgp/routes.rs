//! Which nodes are a way to an address.

use std::collections::BTreeSet;

use lab::{client::at, cluster::Options, wait};
use serde_json::json;

use super::stage::{CLIENT_V4, CLIENT_V6, Stage};

/// F126, F127, F136: every node is a way to the addresses, both routers use all of them, and whoever connects, from behind the
/// routers or inside, meets every endpoint; also through nodes that have none.
#[test]
fn f126_f127_f136_a_client_behind_two_routers_reaches_every_endpoint_through_every_node() {
    let mut stage = Stage::new(&Options::default());
    stage.cluster.add_place("inside", "node3", 50).unwrap();
    let vips = stage.add_web(&["node1", "node2"], &json!({}));
    stage.wait_ways(&vips, &["node1", "node2", "node3"]);
    for vip in vips {
        let both = BTreeSet::from(["web-node1".to_owned(), "web-node2".to_owned()]);
        let counts = stage.spread(vip, 60);
        assert_eq!(counts.keys().cloned().collect::<BTreeSet<_>>(), both, "{counts:?}");
        stage.cluster.expect_backends("inside", at(vip, 80), &["web-node1", "web-node2"]).unwrap();
    }
    // Control knows it from the nodes.
    let object = stage.cluster.service("default/web").unwrap();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    assert!(!conditions.is_empty(), "{:#}", object["status"]);
    // What is gone is announced by nobody.
    stage.cluster.delete("namespaces/default/services/web").unwrap();
    stage.wait_ways(&vips, &[]);
}

/// F127: with `externalTrafficPolicy: Local` the nodes with a ready endpoint are the way, the client's address is kept, and the
/// ways follow the endpoints.
#[test]
fn f127_the_ways_to_an_address_of_policy_local_follow_its_endpoints() {
    let mut stage = Stage::new(&Options::default());
    let vips = stage.add_web(&["node2"], &json!({"externalTrafficPolicy": "Local"}));
    stage.wait_ways(&vips, &["node2"]);
    for vip in vips {
        let reply = stage.tcp(vip).unwrap();
        assert_eq!(reply.backend, "web-node2");
        let seen = reply.peer.ip().to_string();
        assert!([CLIENT_V4, CLIENT_V6].contains(&seen.as_str()), "the client's address is kept: {seen}");
    }
    stage.cluster.add_backend("web-late", "node3", 21, "web").unwrap();
    stage.wait_ways(&vips, &["node2", "node3"]);
    stage
        .cluster
        .patch("namespaces/default/workloads/web-node2", &json!({"spec": {"ready": false}}))
        .unwrap();
    stage.wait_ways(&vips, &["node3"]);
    for vip in vips {
        assert_eq!(stage.spread(vip, 10).into_keys().collect::<Vec<_>>(), ["web-late"]);
    }
}

/// F127: without any ready endpoint no node is a way; with one again, all are.
#[test]
fn f127_an_address_without_endpoints_is_announced_by_nobody() {
    let mut stage = Stage::new(&Options { nodes: 2, ..Options::default() });
    let vips = stage.add_web(&["node1"], &json!({}));
    stage.wait_ways(&vips, &["node1", "node2"]);
    let ready = |is_ready: bool| json!({"spec": {"ready": is_ready}});
    stage.cluster.patch("namespaces/default/workloads/web-node1", &ready(false)).unwrap();
    stage.wait_ways(&vips, &[]);
    stage.cluster.patch("namespaces/default/workloads/web-node1", &ready(true)).unwrap();
    stage.wait_ways(&vips, &["node1", "node2"]);
    wait::until("the client to reach it", || stage.tcp(vips[0]).map(drop)).unwrap();
}
