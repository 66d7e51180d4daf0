//! Tests of the choice of the announcing node and interface: one node per address, IPv4 and IPv6, on the
//! interface of the address's network, and with local endpoints if the policy requires them.

use std::{collections::BTreeSet, net::IpAddr};

use lab::{
    host::{
        netns::{self, Namespace},
        wait,
    },
    network::client::at,
};
use serde_json::json;

use super::stage::{
    add_web, addresses, advertisement, answerers, answering, order, pool, roles, stage, wait_first,
    wait_moved, wait_owner, wait_reached,
};

/// F123, F124, F125, F127: exactly one node replies to ARP and exactly one to neighbor solicitations. Through
/// this node the outside client reaches an endpoint on a different node. Every other node reports why it does
/// not announce the address.
#[test]
fn f123_f124_f125_f127_one_node_answers_and_leads_to_an_endpoint_elsewhere() {
    let mut cluster = stage(3);
    let vips = add_web(&mut cluster, &["node3"], &json!({}));
    wait_reached(&cluster, &vips);
    for vip in vips {
        let owner = wait_owner(&cluster, vip);
        assert_eq!(answerers(&cluster, vip), BTreeSet::from([owner.clone()]));
        for (node, (role, reason)) in roles(&cluster, vip) {
            assert_eq!(role == "Owner", node == owner, "{node}: {role}: {reason}");
            assert!(!reason.is_empty());
        }
        // The path through a node without an endpoint is the same for any owner.
        cluster.patch(&format!("nodes/{owner}"), &json!({"spec": {"unschedulable": true}})).unwrap();
        let second = wait_moved(&cluster, &[vip], &owner);
        assert_eq!(cluster.tcp("client", at(vip, 80)).unwrap().backend, "web-node3");
        assert_eq!(answerers(&cluster, vip), BTreeSet::from([second]));
        cluster.patch(&format!("nodes/{owner}"), &json!({"spec": {"unschedulable": false}})).unwrap();
    }
    // No replies for a deleted address.
    cluster.delete("namespaces/default/services/web").unwrap();
    for vip in vips {
        wait::until_true("nobody to answer", || answerers(&cluster, vip).is_empty()).unwrap();
        assert!(roles(&cluster, vip).is_empty());
    }
}

/// F117: an address with `externalTrafficPolicy: Local` is announced by a node that has an endpoint, and
/// moves to another node when the endpoint moves there.
#[test]
fn f117_an_address_of_policy_local_follows_its_endpoints() {
    let mut cluster = stage(3);
    let vips = add_web(&mut cluster, &["node2"], &json!({"externalTrafficPolicy": "Local"}));
    wait_reached(&cluster, &vips);
    let [vip, _] = vips;
    assert_eq!(wait_owner(&cluster, vip), "node2");
    assert_eq!(order(&cluster, vip).1, ["node2"]);
    let reply = cluster.tcp("client", at(vip, 80)).unwrap();
    assert_eq!(reply.peer.ip(), "172.17.8.200".parse::<IpAddr>().unwrap(), "the client's address is kept");

    cluster.add_backend("web-late", "node3", 21, "web").unwrap();
    cluster.patch("namespaces/default/workloads/web-node2", &json!({"spec": {"ready": false}})).unwrap();
    wait_first(&cluster, vip, "node3");
    assert_eq!(wait_moved(&cluster, &vips, "node2"), "node3");
    wait_reached(&cluster, &vips);
    assert_eq!(cluster.tcp("client", at(vip, 80)).unwrap().backend, "web-late");
    assert_eq!(answerers(&cluster, vip), BTreeSet::from(["node3".to_owned()]));
}

/// F117, F123: with two pools in two networks, each address is announced only on the interface of its
/// network.
#[test]
fn f123_two_pools_are_announced_on_two_interfaces() {
    let mut cluster = stage(2);
    let other = Namespace::new("other").unwrap();
    other
        .ip(&["link add switch type bridge", "link set switch up", "addr add 192.0.2.200/24 dev switch"])
        .unwrap();
    for index in 1..=2u8 {
        let node = cluster.place(&format!("node{index}")).unwrap();
        let port = format!("port{index}");
        netns::join((&other, &port), (node, "eth1")).unwrap();
        other.ip(&[format!("link set {port} master switch")]).unwrap();
        node.ip(&[format!("addr add 192.0.2.{index}/24 dev eth1")]).unwrap();
    }
    cluster.apply_objects(&[pool("other", &["192.0.2.100-192.0.2.110"])]).unwrap();
    let vips = add_web(&mut cluster, &["node1", "node2"], &json!({}));
    let spec = json!({
        "type": "LoadBalancer", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "loadBalancer": {"pool": "other"},
        "ports": [{"port": 80, "targetPort": 8080}],
    });
    cluster.add_service("side", spec).unwrap();
    let side = addresses(&cluster, "default/side").unwrap()[0];
    let owner = wait_owner(&cluster, side);
    let part = cluster.agent(&owner).unwrap().get_json("/v1/announcements").unwrap();
    assert_eq!(part[side.to_string()]["interfaces"], json!(["eth1"]));
    wait::until("a client of the other network to reach it", || {
        lab::network::client::tcp(&other, at(side, 80))
    })
    .unwrap();
    let asked = other.run("sh", &["-c", &format!("arping -c 2 -w 2 -I switch {} || true", vips[0])]).unwrap();
    assert!(!asked.to_lowercase().contains("reply from") && !asked.contains("bytes from"), "{asked}");

    // Only on one of them, if the Advertisement is limited to it.
    cluster.apply_objects(&[advertisement("lan", &json!({"interfaces": ["eth1"]}))]).unwrap();
    wait::until_true("the address of the first network to be withdrawn", || {
        answerers(&cluster, vips[0]).is_empty()
    })
    .unwrap();
    wait::until("the other one to stay", || lab::network::client::tcp(&other, at(side, 80))).unwrap();
}

/// F051: an address that a Service requests is allocated, and the rules of every node serve it, not only
/// those of the announcing node.
#[test]
fn f051_a_pinned_address_is_programmed_on_every_node() {
    let mut cluster = stage(3);
    let pinned: IpAddr = "172.17.8.225".parse().unwrap();
    cluster.add_backend("web-node2", "node2", 11, "web").unwrap();
    let spec = json!({
        "type": "LoadBalancer", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
        "loadBalancer": {"addresses": [pinned]}, "ports": [{"port": 80, "targetPort": 8080}],
    });
    cluster.add_service("web", spec).unwrap();
    assert_eq!(addresses(&cluster, "default/web").unwrap(), [pinned]);
    wait_reached(&cluster, &[pinned]);
    cluster.wait_converged().unwrap();
    let client = cluster.place("client").unwrap();
    for index in 1..=3u8 {
        assert_eq!(cluster.tcp(&format!("node{index}"), at(pinned, 80)).unwrap().backend, "web-node2");
        // Routes the client to this node, independent of the owner.
        let [via, _] = lab::network::topology::node_addresses(index);
        client.ip(&[format!("route replace {pinned}/32 via {via}")]).unwrap();
        assert_eq!(
            cluster.tcp("client", at(pinned, 80)).unwrap().backend,
            "web-node2",
            "through node{index}"
        );
    }
}

/// F052: no node replies to requests for the link-layer address of a cluster IP, even if an outside client
/// considers the cluster IP on-link.
#[test]
fn f052_cluster_ips_are_not_reachable_from_outside() {
    let mut cluster = stage(2);
    let vips = add_web(&mut cluster, &["node1", "node2"], &json!({}));
    wait_reached(&cluster, &vips);
    let client = cluster.place("client").unwrap();
    client.ip(&["route replace 10.96.0.0/16 dev eth0", "route replace fd00:96::/112 dev eth0"]).unwrap();
    for index in 0..2 {
        let inside = cluster.cluster_ip("default/web", index).unwrap();
        cluster.tcp("node1", at(inside, 80)).unwrap();
        assert!(answering(&cluster, inside).is_empty());
        cluster.tcp("client", at(inside, 80)).unwrap_err();
    }
}
