//! Tests of the routes that routers learn from the nodes, their next hops, and the traffic of a client behind
//! the routers.

use std::collections::BTreeSet;

use anyhow::ensure;
use lab::{host::wait, load::outage, network::topology::node_addresses, processes::routers::learned};
use serde_json::json;

use super::stage::{Peering, Stage, object};

/// F126, F127, F136: both routers distribute connections over all nodes in both address families. The routers
/// remove a node from the routes when BFD detects its failure, and the other nodes serve the client.
#[test]
fn f126_f127_f136_two_routers_spread_over_three_nodes_and_lose_one() {
    let mut stage = Stage::new(3, &Peering::default());
    // For two nodes the only endpoint is elsewhere: a node that attracts traffic forwards it.
    let vips = stage.add_web(&["node3"], &json!({}));
    for vip in vips {
        stage.wait_routed(vip, &[1, 2, 3]);
        stage.wait_reached(vip);
        assert_eq!(stage.spread(vip, 60).keys().collect::<Vec<_>>(), ["web-node3"]);
    }
    let entered = |index: u8| {
        let node = stage.cluster.place(&format!("node{index}")).unwrap();
        let said = node.run("sh", &["-c", "conntrack -L -d 10.200.0.0/24 2>/dev/null | wc -l"]).unwrap();
        said.trim().parse::<usize>().unwrap()
    };
    let by_node: Vec<_> = [1, 2, 3].into_iter().map(entered).collect();
    assert!(by_node.iter().all(|connections| *connections > 0), "connections by node: {by_node:?}");

    let [vip, _] = vips;
    stage.wait_watched();
    let seen = outage::during(&stage.outside, stage.at(vip), || {
        stage.cluster.topology.plug("node2", false)?;
        stage.wait_routed(vip, &[1, 3]);
        Ok(())
    })
    .unwrap();
    assert!(seen.answered > 0, "{seen:?}");
    stage.spread(vip, 30);
    stage.cluster.topology.plug("node2", true).unwrap();
    for vip in vips {
        stage.wait_routed(vip, &[1, 2, 3]);
    }
    stage.cluster.delete("namespaces/default/services/web").unwrap();
    for vip in vips {
        stage.wait_routed(vip, &[]);
    }
}

/// F117, F126: with policy Local, the next hops are exactly the nodes with ready endpoints, also after the
/// endpoints change. Without endpoints no route is announced. Endpoints observe the client's address.
#[test]
fn f117_f126_routes_of_policy_local_follow_the_endpoints() {
    let mut stage = Stage::new(3, &Peering::default());
    let [vip, vip6] = stage.add_web(&["node1", "node2"], &json!({"externalTrafficPolicy": "Local"}));
    stage.wait_routed(vip, &[1, 2]);
    stage.wait_routed(vip6, &[1, 2]);
    stage.wait_reached(vip);
    let sources: BTreeSet<_> = (0..20).map(|_| stage.ask(vip).unwrap().peer.ip().to_string()).collect();
    assert!(sources.iter().all(|source| source.starts_with("198.51.100.")), "{sources:?}");

    stage.patch("namespaces/default/workloads/web-node1", &json!({"spec": {"ready": false}}));
    stage.wait_routed(vip, &[2]);
    assert_eq!(stage.spread(vip, 10).keys().collect::<Vec<_>>(), ["web-node2"]);
    stage.patch("namespaces/default/workloads/web-node2", &json!({"spec": {"ready": false}}));
    stage.wait_routed(vip, &[]);
    stage.patch("namespaces/default/workloads/web-node1", &json!({"spec": {"ready": true}}));
    stage.wait_routed(vip, &[1]);
}

/// F126: routes have the attributes that their Advertisement sets, a change of the attributes does not reset
/// the session, and an aggregate route covers the addresses.
#[test]
fn f126_attributes_and_aggregates_follow_the_advertisement() {
    let mut stage = Stage::new(1, &Peering::default());
    let [vip, _] = stage.add_web(&["node1"], &json!({}));
    stage.wait_routed(vip, &[1]);
    let node = node_addresses(1)[0];
    let ups = |stage: &Stage| {
        let said = stage.routers[0].show(&format!("bgp neighbors {node}")).unwrap();
        said[node.to_string()]["connectionsEstablished"].as_u64().unwrap()
    };
    let before = ups(&stage);
    let spec = json!({"type": "BGP", "communities": ["65000:100", "large:64512:1:2", "no-export"], "med": 50, "prepend": 2});
    stage.cluster.apply_objects(&[object("Advertisement", "outside", &spec)]).unwrap();
    wait::until("the attributes to arrive", || {
        let said = stage.routers[0].show(&format!("bgp ipv4 unicast {vip}/32"))?;
        let path = &said["paths"][0];
        ensure!(path["aspath"]["string"] == "64512 64512 64512", "{said:#}");
        ensure!(path["metric"] == 50, "{said:#}");
        let communities = path["community"]["string"].as_str().unwrap_or_default();
        ensure!(communities.contains("65000:100") && communities.contains("no-export"), "{said:#}");
        ensure!(path["largeCommunity"]["string"] == "64512:1:2", "{said:#}");
        Ok(())
    })
    .unwrap();
    let spec = json!({"type": "BGP", "aggregationLength": 24});
    stage.cluster.apply_objects(&[object("Advertisement", "outside", &spec)]).unwrap();
    wait::until("the aggregate in the place of the address", || {
        let routes = learned(&stage.routers[0].namespace)?;
        let there: Vec<_> = routes.iter().filter_map(|route| route["dst"].as_str()).collect();
        ensure!(there.contains(&"10.200.0.0/24") && !there.contains(&vip.to_string().as_str()), "{there:?}");
        Ok(())
    })
    .unwrap();
    stage.wait_reached(vip);
    assert_eq!(ups(&stage), before, "no session has fallen");
}
