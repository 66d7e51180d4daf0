//! Tests of paths from a user to a page: through a load balancer address, node ports and an external address.

use std::{collections::BTreeSet, net::IpAddr};

use lab::network::{
    client::{self, at, is_refusal},
    topology::{self, fabric_addresses, node_addresses},
};
use serde_json::{Value, json};

use super::stage::{SITE, Stage};

/// Host number of the client in the network of the nodes.
const CLIENT_HOST: u8 = 200;
const INGRESSES: [&str; 2] = ["ingress-1", "ingress-2"];

/// F138, F139, F140: with nodes in nftables mode, users reach pages through nginx by the host name of the
/// site. With policy Local, nginx observes the user's address, in both address families.
#[test]
fn f138_f139_f140_users_reach_pages_through_nginx_in_nftables_mode() {
    every_way("nftables");
}

/// F138, F139, F140: with nodes in iptables mode, users reach pages through nginx by the host name of the site.
#[test]
fn f138_f139_f140_users_reach_pages_through_nginx_in_iptables_mode() {
    every_way("iptables");
}

/// F138: in userspace mode, in which the node's relay connects to nginx on behalf of users, the PROXY
/// protocol gives nginx the user's address, in both protocol versions.
#[test]
fn f138_in_userspace_mode_nginx_hears_of_users_by_the_proxy_protocol() {
    let stage = Stage::new("userspace", true);
    for version in ["v1", "v2"] {
        set_ingress(&stage, &json!({"type": "LoadBalancer", "proxyProtocol": version}));
        for address in stage.wait_addresses() {
            let users: BTreeSet<_> = stage.ask_often(at(address, 80)).iter().map(|page| page.user).collect();
            assert_eq!(users, [client_like(address)].into(), "{version}");
        }
    }
}

fn every_way(mode: &'static str) {
    let mut stage = Stage::new(mode, false);
    through_node_ports_and_an_external_address(&stage);
    through_an_address_of_the_pool(&stage);
    nginx_is_a_workload_like_any_other(&mut stage);
}

/// F138: the site is reachable at an address from the pool, which is announced to the client's network. A request
/// for another host name gets no page.
fn through_an_address_of_the_pool(stage: &Stage) {
    set_ingress(stage, &json!({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"}));
    let addresses = stage.wait_addresses();
    assert!(matches!(addresses[..], [IpAddr::V4(_), IpAddr::V6(_)]), "{addresses:?}");
    for address in &addresses {
        let pages = stage.ask_often(at(*address, 80));
        assert_eq!(stage.ingresses(&pages, &INGRESSES), INGRESSES.into(), "the outer Service spreads");
        let client = client_like(*address);
        assert!(pages.iter().all(|page| page.user != client), "masqueraded, so that any node can lead on");
        let refused = stage.ask("other.example", at(*address, 80)).unwrap_err();
        assert!(format!("{refused:#}").contains("404"), "{refused:#}");
    }

    set_ingress(stage, &json!({"externalTrafficPolicy": "Local"}));
    for address in stage.wait_addresses() {
        let owner = stage.wait_owner(address, &["node1", "node2"]);
        let pages = stage.ask_often(at(address, 80));
        // One node owns the address, and it has one ingress.
        let there = if owner == "node1" { "ingress-1" } else { "ingress-2" };
        assert_eq!(stage.ingresses(&pages, &INGRESSES), [there].into());
        let users: BTreeSet<_> = pages.iter().map(|page| page.user).collect();
        assert_eq!(users, [client_like(address)].into(), "the pages are told who asks");
    }
}

/// F139: the site is reachable at the node port of every node, even of one without an ingress workload, and
/// at an external address that is routed to the first node.
fn through_node_ports_and_an_external_address(stage: &Stage) {
    let external = [IpAddr::from(topology::EXTERNAL_V4), IpAddr::from(topology::EXTERNAL_V6)];
    set_ingress(stage, &json!({"type": "NodePort", "externalIPs": external}));
    let node_port = stage.cluster.node_port("default/ingress", 0).unwrap();
    let ports = (1..=3).flat_map(node_addresses).map(|address| at(address, node_port));
    for to in ports.chain(external.map(|address| at(address, 80))) {
        let pages = stage.ask_often(to);
        assert_eq!(stage.ingresses(&pages, &INGRESSES), INGRESSES.into(), "at {to}");
    }

    set_ingress(stage, &json!({"externalTrafficPolicy": "Local"}));
    let [v4, v6] = node_addresses(2);
    let at_node1 = external.map(|address| (at(address, 80), "ingress-1"));
    let at_node2 = [v4, v6].map(|address| (at(address, node_port), "ingress-2"));
    for (to, there) in at_node1.into_iter().chain(at_node2) {
        let pages = stage.ask_often(to);
        assert_eq!(stage.ingresses(&pages, &INGRESSES), [there].into(), "at {to}");
        assert!(pages.iter().all(|page| page.user == client_like(to.ip())), "at {to}: {:?}", pages[0]);
    }
    let nobody = at(node_addresses(3)[0], node_port);
    let silence = client::tcp(&stage.cluster.topology.client, nobody).unwrap_err();
    assert!(!is_refusal(&silence), "a node without ingress says nothing: {silence:#}");
}

/// F140: the nodes have no listening process of nginx, which runs in workloads, and the address of the
/// Service follows the workloads.
fn nginx_is_a_workload_like_any_other(stage: &mut Stage) {
    for node in ["node1", "node2", "node3"] {
        let listening = stage.cluster.place(node).unwrap().run("ss", &["-Htln", "sport = :80"]).unwrap();
        assert_eq!(listening, "", "{node} has no server of its own");
    }
    let refused = client::tcp(&stage.cluster.topology.client, at(node_addresses(1)[0], 80)).unwrap_err();
    assert!(is_refusal(&refused), "{refused:#}");

    stage.add_ingress("ingress-3", "node3", 23);
    stage.cluster.wait_verified("default/ingress").unwrap();
    for name in INGRESSES {
        stage.remove(name);
    }
    for address in stage.wait_addresses() {
        assert_eq!(stage.wait_owner(address, &["node3"]), "node3");
        let pages = stage.ask_often(at(address, 80));
        assert_eq!(stage.ingresses(&pages, &["ingress-3"]), ["ingress-3"].into());
        let users: BTreeSet<_> = pages.iter().map(|page| page.user).collect();
        assert_eq!(users, [client_like(address)].into(), "site {SITE}");
    }
}

/// Creates or replaces the Service `ingress`. `changes` are merged into its default spec.
fn set_ingress(stage: &Stage, changes: &Value) {
    let path = "namespaces/default/services/ingress";
    if stage.cluster.object(path).is_ok() {
        stage.cluster.patch(path, &json!({"spec": changes})).unwrap();
        return stage.cluster.wait_verified("default/ingress").unwrap();
    }
    let mut spec = json!({
        "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "ingress"}, "ports": [{"name": "http", "port": 80}],
    });
    for (field, value) in changes.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    stage.cluster.add_service("ingress", spec).unwrap();
}

fn client_like(address: IpAddr) -> IpAddr {
    let [v4, v6] = fabric_addresses(CLIENT_HOST);
    if address.is_ipv4() { v4 } else { v6 }
}
