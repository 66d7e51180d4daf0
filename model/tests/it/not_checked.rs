//! Endpoints that nobody checks are shown as not checked, never as healthy.

use std::collections::BTreeSet;

use model::{
    cluster::compiled::CompiledService,
    compile::compile,
    observed::{
        health::{
            Guard, HealthBook, HealthInputs, HealthSource, addresses_not_checked, health_source, not_checked,
        },
        rollup::{
            NodeViews, ServiceObservations, add_not_checked, count_endpoints, service_health, service_status,
        },
        service_health::{HealthState, ServiceHealth},
    },
    primitives::quantity::{Epoch, Timestamp},
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

/// Creates Service `web` with the fields of `spec`, and an EndpointSet with the given annotations and two endpoints.
fn cluster(spec: Value, annotations: &Value) -> Cluster {
    let mut cluster = Cluster::new();
    let mut all = json!({ "ports": [{ "name": "http", "port": 80 }] });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    cluster.apply(&service("web", all)).unwrap();
    let endpoints = json!([{ "address": "10.1.0.1" }, { "address": "10.1.0.2" }]);
    let mut set =
        of_kind("EndpointSet", "web", json!({}), json!({ "service": "web", "endpoints": endpoints }));
    set["metadata"]["annotations"] = annotations.clone();
    cluster.apply(&set).unwrap();
    cluster
}

fn compiled(cluster: &Cluster) -> CompiledService {
    compile(&cluster.snapshot, &key("web")).unwrap()
}

fn health(cluster: &Cluster) -> ServiceHealth {
    let form = compiled(cluster);
    let (book, nodes) = (HealthBook::default(), BTreeSet::new());
    let now = Timestamp::from_unix_seconds(1_771_000_000);
    let inputs =
        HealthInputs { book: &book, checkers: &nodes, is_reporting: &|_| true, dead: &BTreeSet::new(), now };
    let mut health = service_health(&cluster.snapshot, &form, &inputs, &Guard::new(33));
    add_not_checked(&mut health, &form);
    health
}

fn states(cluster: &Cluster) -> Vec<HealthState> {
    health(cluster).endpoints.iter().map(|one| one.state).collect()
}

/// Without a health check and without a source that checks, every endpoint in use is counted and listed as not
/// checked.
#[test]
fn endpoints_that_nobody_checks_are_counted_and_listed_as_not_checked() {
    let cluster = cluster(json!({}), &json!({}));
    assert_eq!(count_endpoints(&compiled(&cluster)).not_checked, 2);
    assert_eq!(not_checked(&compiled(&cluster)).len(), 2);
    assert_eq!(states(&cluster), [HealthState::NotChecked; 2]);
    let one = health(&cluster).endpoints.remove(0);
    assert_eq!((one.share, one.checkers.len()), (100, 0));
    assert!(one.message.contains("no health check"), "{one:?}");
    let object = cluster.get("services/default/web");
    let form = compiled(&cluster);
    let views = NodeViews::new(Vec::new());
    let observed = ServiceObservations::default();
    let spec = object.as_service().unwrap();
    let status =
        service_status(&cluster.snapshot, &key("web"), spec, Some(&form), Epoch(1), &views, observed);
    assert_eq!(status.endpoints.not_checked, 2);
}

/// A health check, or a source that checks the endpoints, counts as a check.
#[test]
fn a_health_check_or_a_source_that_checks_leaves_no_endpoint_unchecked() {
    let checked = cluster(json!({ "healthCheck": { "type": "Tcp" } }), &json!({}));
    assert_eq!(count_endpoints(&compiled(&checked)).not_checked, 0);
    assert_eq!(states(&checked), [HealthState::Unknown; 2]);
    let by_source = cluster(json!({}), &json!({ "tidegate.io/checked-by": "kubernetes" }));
    let form = compiled(&by_source);
    assert_eq!(count_endpoints(&form).not_checked, 0);
    assert_eq!(states(&by_source), []);
    let port = &form.ports[0];
    assert_eq!(health_source(&form, port, &port.endpoints[0]), HealthSource::Source);
}

/// Endpoints that receive no new connections need no check: not ready, drained, or of a disabled Service.
#[test]
fn endpoints_out_of_use_are_not_reported_as_unchecked() {
    let mut cluster = cluster(json!({}), &json!({}));
    let endpoints = json!([
        { "address": "10.1.0.1", "conditions": { "ready": false } },
        { "address": "10.1.0.2", "weight": 0 },
        { "address": "10.1.0.3" },
    ]);
    let set = of_kind("EndpointSet", "web", json!({}), json!({ "service": "web", "endpoints": endpoints }));
    cluster.apply(&set).unwrap();
    assert_eq!(addresses_not_checked(&compiled(&cluster)), ["10.1.0.3".parse().unwrap()].into());
}

/// On a lost Node, other nodes check the TCP port, so the address counts as checked; its UDP port stays unchecked.
#[test]
fn other_nodes_vouch_for_tcp_ports_on_lost_nodes_only() {
    let spec = json!({ "selector": { "app": "web" },
        "ports": [{ "name": "http", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }] });
    let mut cluster = Cluster::new();
    cluster.apply(&of_kind("Node", "a", json!({}), json!({}))).unwrap();
    cluster.apply(&service("web", spec)).unwrap();
    let workload = json!({ "addresses": ["10.1.0.9"], "node": "a" });
    cluster.apply(&of_kind("Workload", "w", json!({ "app": "web" }), workload)).unwrap();
    let mut form = compiled(&cluster);
    assert_eq!(not_checked(&form).len(), 2);
    for port in &mut form.ports {
        port.endpoints[0].node_lost = true;
    }
    let ports: Vec<_> = not_checked(&form).into_keys().map(|key| key.port.get()).collect();
    assert_eq!((ports, addresses_not_checked(&form).len()), (vec![53], 0));
}
