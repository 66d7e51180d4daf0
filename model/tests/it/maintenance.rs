//! Drain and maintenance of endpoints: the objects on which they can be set, their effect on packet programs,
//! and the list of remaining connections.

use std::collections::BTreeMap;

use model::{
    cluster::{
        change::{Change, ChangeKind},
        compiled::CompiledService,
    },
    compile::{affected, compile},
    kinds::resource::{Kind, ObjectKey},
    observed::{
        rollup::{NodeView, count_endpoints},
        traffic::TrafficBook,
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision, Timestamp},
    },
    program::{NodeLocation, program},
    views::drains::{DrainFilter, DrainList, drains},
    wire::report::Report,
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

const NOW: i64 = 1_771_000_000;

/// Creates Service `web` with two Workloads and one endpoint of an EndpointSet, each on a Node of its own.
fn web() -> Cluster {
    let mut cluster = Cluster::new();
    for node in ["n1", "n2", "n3"] {
        cluster.apply(&of_kind("Node", node, json!({}), json!({}))).unwrap();
    }
    let ports = json!([{ "port": 80 }]);
    let spec = json!({ "clusterIP": "10.96.0.1", "selector": { "app": "x" }, "ports": ports });
    cluster.apply(&service("web", spec)).unwrap();
    for (name, node, address) in [("a", "n1", "10.1.0.1"), ("b", "n2", "10.1.0.2")] {
        cluster.apply(&workload(name, node, address, Value::Null)).unwrap();
    }
    cluster.apply(&set(Value::Null)).unwrap();
    cluster
}

fn workload(name: &str, node: &str, address: &str, maintenance: Value) -> Value {
    let spec = with(json!({ "addresses": [address], "node": node }), maintenance);
    of_kind("Workload", name, json!({ "app": "x" }), spec)
}

fn set(maintenance: Value) -> Value {
    let endpoint = with(json!({ "address": "10.1.0.3", "node": "n3" }), maintenance);
    of_kind("EndpointSet", "web-by-hand", json!({}), json!({ "service": "web", "endpoints": [endpoint] }))
}

fn with(mut spec: Value, maintenance: Value) -> Value {
    if !maintenance.is_null() {
        spec["maintenance"] = maintenance;
    }
    spec
}

fn compiled(cluster: &Cluster) -> CompiledService {
    compile(&cluster.snapshot, &key("web")).unwrap()
}

/// Returns the targets for new connections to Service `web`, and the draining endpoints of the Service with
/// their deadlines.
fn told(cluster: &Cluster) -> (Vec<String>, Vec<String>) {
    let place = NodeLocation { node: Name::parse("n1").unwrap(), zone: None };
    let program = program(&compiled(cluster), &place).unwrap();
    let route = program.frontends.values().next().unwrap();
    let targets = route.all_targets().iter().map(|target| target.address.to_string()).collect();
    let until = |until: &Option<Timestamp>| until.map_or("its end".to_owned(), |until| until.to_string());
    let leaving = route.leaving.iter().map(|(target, at)| format!("{} {}", target.address, until(at)));
    (targets, leaving.collect())
}

/// A drain or maintenance can be set on an endpoint, its Workload, its Node and its Service. If several are
/// set, maintenance takes precedence over a drain. After the removal of all, the endpoint is in service
/// again.
#[test]
fn endpoints_workloads_nodes_and_services_can_be_taken_out_of_service() {
    let mut cluster = web();
    let whole = told(&cluster);
    assert_eq!(whole, (vec!["10.1.0.1".into(), "10.1.0.2".into(), "10.1.0.3".into()], vec![]));
    let drain = json!({ "mode": "Drain", "reason": "disk", "by": "ops", "deadline": "2026-01-02T03:04:05Z" });
    let expect = |cluster: &Cluster, targets: &[&str], leaving: &[&str]| {
        let found = told(cluster);
        assert_eq!(
            (found.0.iter().map(String::as_str).collect::<Vec<_>>(), found.1),
            (targets.to_vec(), leaving.iter().map(|text| (*text).to_owned()).collect(),)
        );
    };

    cluster.apply(&workload("a", "n1", "10.1.0.1", drain.clone())).unwrap();
    expect(&cluster, &["10.1.0.2", "10.1.0.3"], &["10.1.0.1 2026-01-02T03:04:05Z"]);
    cluster.apply(&set(json!({ "mode": "Maintenance" }))).unwrap();
    expect(&cluster, &["10.1.0.2"], &["10.1.0.1 2026-01-02T03:04:05Z"]);
    let counts = count_endpoints(&compiled(&cluster));
    assert_eq!((counts.total, counts.ready, counts.draining, counts.maintenance), (3, 1, 1, 1));

    let before = cluster.snapshot.clone();
    let node = |maintenance| of_kind("Node", "n3", json!({}), with(json!({}), maintenance));
    cluster.apply(&set(Value::Null)).unwrap();
    cluster.apply(&workload("a", "n1", "10.1.0.1", Value::Null)).unwrap();
    assert_eq!(told(&cluster), whole);
    cluster.apply(&node(json!({ "mode": "Drain" }))).unwrap();
    expect(&cluster, &["10.1.0.1", "10.1.0.2"], &["10.1.0.3 its end"]);
    let n3 = ObjectKey { kind: Kind::Node, namespace: None, name: Name::parse("n3").unwrap() };
    let object = cluster.snapshot.get(&n3).unwrap().clone();
    let change = Change { kind: ChangeKind::Modified, object };
    assert!(affected(&before, &cluster.snapshot, &change).contains(&key("web")), "through the set");

    let out = json!({ "mode": "Maintenance", "reason": "moving" });
    let spec = json!({ "clusterIP": "10.96.0.1", "selector": { "app": "x" }, "ports": [{ "port": 80 }] });
    cluster.apply(&service("web", with(spec, out))).unwrap();
    expect(&cluster, &[], &[]);
}

/// A drain is over when every node has counted connections after the start of the drain and found none.
/// Before that, the list shows the open connections through each node; a node with a missing or older count
/// is listed as unknown.
#[test]
fn a_drain_is_over_when_every_node_has_counted_since_and_found_none() {
    let mut cluster = web();
    cluster.apply(&workload("a", "n1", "10.1.0.1", json!({ "mode": "Drain" }))).unwrap();
    let mut compiled = compiled(&cluster);
    compiled.revision = Revision(9);
    let names = ["n1", "n2"].map(|name| Name::parse(name).unwrap());
    let mut book = TrafficBook::default();
    let list = |book: &TrafficBook, counted_at: Option<&str>, filter: &DrainFilter| -> DrainList {
        let report = report(counted_at);
        let view = |name| NodeView {
            name,
            is_connected: true,
            has_left: false,
            is_contested: false,
            is_lost: false,
            last_report: Some(Timestamp::from_unix_seconds(NOW)),
            report: Some(&report),
        };
        drains([&compiled].into_iter(), filter, book, &names.each_ref().map(view), Epoch(1))
    };
    let all = DrainFilter::default();
    for counted_at in [None, Some("1-8")] {
        let found = list(&book, counted_at, &all);
        assert_eq!((found.is_over, found.items[0].unknown.len()), (false, 2), "{counted_at:?}");
    }
    assert!(list(&book, Some("1-9"), &all).is_over);
    let row = json!({ "protocol": "TCP", "address": "10.1.0.1", "port": 80, "connections": 5, "active": 2 });
    let say = |book: &mut TrafficBook, rows: Value| {
        let traffic = BTreeMap::from([(key("web"), serde_json::from_value(rows).unwrap())]);
        book.apply(&names[1], "boot", traffic, Timestamp::from_unix_seconds(NOW));
    };
    say(&mut book, json!([row]));
    let found = list(&book, Some("1-9"), &all);
    assert_eq!((found.connections, found.is_over, found.items.len()), (2, false, 1));
    assert_eq!(found.items[0].nodes, BTreeMap::from([(names[1].clone(), 2)]));
    let elsewhere = DrainFilter { address: Some("10.1.0.2".parse().unwrap()), ..all.clone() };
    assert!(list(&book, Some("1-9"), &elsewhere).items.is_empty());
    let on_n1 = DrainFilter { node: Some(names[0].clone()), ..all.clone() };
    assert_eq!(list(&book, Some("1-9"), &on_n1).connections, 2);
    assert_eq!(list(&book, Some("1-9"), &all).connections_through_node, None);
    say(&mut book, json!([]));
    assert!(list(&book, Some("1-10"), &all).is_over);
}

/// Connections through a Node to endpoints elsewhere are counted for Services with load balancer addresses, because
/// a drain of the Node moves these addresses.
#[test]
fn connections_through_a_node_are_counted_with_its_drain() {
    let mut cluster = web();
    cluster.apply(&workload("a", "n1", "10.1.0.1", json!({ "mode": "Drain" }))).unwrap();
    let mut compiled = compiled(&cluster);
    let names = ["n1", "n2"].map(|name| Name::parse(name).unwrap());
    let row = |address, active| json!({ "protocol": "TCP", "address": address, "port": 80, "connections": 9, "active": active });
    let rows = json!([row("10.1.0.1", 2), row("10.1.0.2", 3), row("10.1.0.3", 4)]);
    let mut book = TrafficBook::default();
    for name in &names {
        let traffic = BTreeMap::from([(key("web"), serde_json::from_value(rows.clone()).unwrap())]);
        book.apply(name, "boot", traffic, Timestamp::from_unix_seconds(NOW));
    }
    let through = |compiled: &CompiledService, node: Option<&Name>| {
        let filter = DrainFilter { node: node.cloned(), ..DrainFilter::default() };
        drains([compiled].into_iter(), &filter, &book, &[], Epoch(1)).connections_through_node
    };
    assert_eq!(through(&compiled, Some(&names[0])), Some(0), "no load balancer address");
    compiled.load_balancer_ips.push("192.0.2.7".parse().unwrap());
    assert_eq!(through(&compiled, Some(&names[0])), Some(7), "without those to the drained endpoint");
    assert_eq!(through(&compiled, Some(&names[1])), Some(9), "the drained endpoint is on another node");
    assert_eq!(through(&compiled, None), None);
}

fn report(counted_at: Option<&str>) -> Report {
    let counted_at: Option<Position> = counted_at.map(|text| text.parse().unwrap());
    serde_json::from_value(json!({
        "bootId": "a", "agentVersion": "0", "mode": "nftables", "received": "1-9", "applied": "1-9",
        "verified": "1-9", "trafficAt": counted_at,
    }))
    .unwrap()
}
