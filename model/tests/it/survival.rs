//! Two-stage path: compilation of the nodes of endpoints, and the frontends that take the path.

use std::collections::BTreeSet;

use ipnet::IpNet;
use model::{
    cluster::change::{Change, ChangeKind},
    compile::{affected, compile},
    kinds::resource::{Kind, ObjectKey},
    primitives::name::Name,
    program::{Masquerade, NodeLocation, Program, Role, Route, Verdict, program, survival::divide},
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

fn node(name: &str, addresses: Value) -> Value {
    of_kind("Node", name, json!({}), json!({ "addresses": addresses }))
}

fn endpoint_set(endpoints: Value) -> Value {
    of_kind("EndpointSet", "web", json!({}), json!({ "service": "web", "endpoints": endpoints }))
}

/// Cluster with a Service whose connections survive, and an endpoint on each of the nodes n1 and n2.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let pool = json!({ "addresses": ["192.0.2.100-192.0.2.110"] });
    cluster.apply(&of_kind("AddressPool", "lan", json!({}), pool)).unwrap();
    cluster.apply(&node("n1", json!(["192.0.2.1"]))).unwrap();
    cluster.apply(&node("n2", json!(["198.51.100.2", "192.0.2.2"]))).unwrap();
    let spec = json!({
        "type": "LoadBalancer", "ports": [{ "port": 80, "targetPort": 8080 }],
        "connections": { "survive": "Always" },
    });
    cluster.apply(&service("web", spec)).unwrap();
    let endpoints = json!([
        { "address": "10.1.0.1", "node": "n1" }, { "address": "10.1.0.2", "node": "n2" },
    ]);
    cluster.apply(&endpoint_set(endpoints)).unwrap();
    cluster
}

fn divided(cluster: &Cluster, networks: &[&str]) -> (Program, BTreeSet<String>) {
    let compiled = compile(&cluster.snapshot, &key("web")).unwrap();
    let place = NodeLocation { node: Name::parse("n1").unwrap(), zone: None };
    let mut program = program(&compiled, &place).unwrap();
    let networks: BTreeSet<IpNet> = networks.iter().map(|text| text.parse().unwrap()).collect();
    let obstacles = divide(&mut program, &compiled, &place.node, &networks);
    (program, obstacles)
}

fn of_load_balancer(program: &Program) -> &Route {
    let mut routes = program.frontends.values();
    routes.find(|route| route.role == Role::LoadBalancer).unwrap()
}

fn masquerade(verdict: &Verdict) -> Masquerade {
    let Verdict::Forward { masquerade, .. } = verdict else { panic!("{verdict:?}") };
    *masquerade
}

/// The load balancer address takes the path, with the address of n2 on a network of n1; clients in the cluster and
/// other addresses do not.
#[test]
fn load_balancer_addresses_take_the_path() {
    let (program, obstacles) = divided(&cluster(), &["192.0.2.0/24"]);
    assert_eq!(obstacles, BTreeSet::new());
    let route = of_load_balancer(&program);
    let owners: Vec<_> = route
        .owners
        .iter()
        .flat_map(|owners| owners.0.iter())
        .map(|(at, hop)| format!("{at} {hop}"))
        .collect();
    assert_eq!(owners, ["10.1.0.2 192.0.2.2"], "n1 itself has the other endpoint");
    assert_eq!(masquerade(&route.from_elsewhere), Masquerade::Never);
    assert_eq!(masquerade(&route.from_workloads), Masquerade::Always);
    assert_eq!(route.scheduler.as_ref().unwrap().0.as_str(), "mh");
    let others = program.frontends.values().filter(|route| route.role != Role::LoadBalancer);
    assert!(others.into_iter().all(|route| route.owners.is_none() && route.scheduler.is_none()));
}

#[test]
fn a_path_that_is_not_possible_is_left_out_with_the_reason() {
    let mut cluster = cluster();
    let check = |cluster: &Cluster, networks: &[&str], reason: &str| {
        let (program, obstacles) = divided(cluster, networks);
        assert_eq!(obstacles.into_iter().collect::<Vec<_>>(), [reason]);
        let route = of_load_balancer(&program);
        assert!(route.owners.is_none());
        assert_eq!(masquerade(&route.from_elsewhere), Masquerade::Always);
    };
    let far = "the node n2 of the endpoint 10.1.0.2 has no IPv4 address on a network of this node";
    check(&cluster, &["203.0.113.0/24"], far);
    cluster.apply(&endpoint_set(json!([{ "address": "10.1.0.9" }]))).unwrap();
    check(&cluster, &["192.0.2.0/24"], "the endpoint 10.1.0.9 has no node");
}

/// A changed address of a Node changes the compiled Services with endpoints on it.
#[test]
fn addresses_of_nodes_are_followed() {
    let mut cluster = cluster();
    let before = cluster.snapshot.clone();
    cluster.apply(&node("n2", json!(["192.0.2.7"]))).unwrap();
    let n2 = ObjectKey { kind: Kind::Node, namespace: None, name: Name::parse("n2").unwrap() };
    let change = Change { kind: ChangeKind::Modified, object: cluster.snapshot.get(&n2).unwrap().clone() };
    assert_eq!(affected(&before, &cluster.snapshot, &change), [key("web")].into());
    let (program, _) = divided(&cluster, &["192.0.2.0/24"]);
    let hops: Vec<_> = of_load_balancer(&program).owners.as_ref().unwrap().0.values().cloned().collect();
    assert_eq!(hops.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.7"]);
}
