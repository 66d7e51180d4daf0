//! Status of EndpointSets and Workloads: the Services that use their endpoints, or the reason why none does.

use model::{
    admission::decode::{Expect, decode},
    compile::compile,
    kinds::{resource::Spec, workload::WorkloadSpec},
    observed::{
        rollup::{NodeViews, ServiceObservations, endpoint_set_status, service_status, workload_status},
        status::{Condition, ConditionStatus, ConditionType},
    },
    primitives::{quantity::Epoch, violation::ViolationCode},
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

fn conditions(cluster: &Cluster, store_key: &str) -> Vec<Condition> {
    let object = cluster.get(store_key);
    let namespace = object.metadata.namespace.as_ref().unwrap();
    match &object.spec {
        Spec::EndpointSet(spec) => endpoint_set_status(&cluster.snapshot, namespace, spec).conditions,
        Spec::Workload(spec) => {
            workload_status(&cluster.snapshot, namespace, &object.metadata, spec).conditions
        }
        Spec::Service(_)
        | Spec::Node(_)
        | Spec::AddressPool(_)
        | Spec::BfdProfile(_)
        | Spec::BgpPeer(_)
        | Spec::Advertisement(_)
        | Spec::DnsZone(_)
        | Spec::Certificate(_)
        | Spec::Gateway(_)
        | Spec::HttpRoute(_)
        | Spec::TlsRoute(_)
        | Spec::WorkloadNetwork(_)
        | Spec::NetworkPolicy(_)
        | Spec::Address(_)
        | Spec::EndpointHealth(_)
        | Spec::Block(_)
        | Spec::Attachment(_) => panic!("has another status"),
    }
}

fn used(cluster: &Cluster, store_key: &str) -> String {
    let conditions = conditions(cluster, store_key);
    let used = conditions.iter().find(|one| one.condition_type == ConditionType::Used).unwrap();
    assert_eq!(
        used.status == ConditionStatus::True,
        matches!(used.reason.as_str(), "ServiceFound" | "Selected")
    );
    format!("{}: {}", used.reason, used.message)
}

fn set_of(spec: Value) -> Value {
    of_kind("EndpointSet", "web-1", json!({}), spec)
}

#[test]
fn the_status_of_an_endpoint_set_gives_the_reason_for_unused_endpoints() {
    let mut cluster = Cluster::new();
    let key = "endpointsets/default/web-1";
    let endpoints = json!([{ "address": "10.1.0.1" }]);
    cluster.apply(&set_of(json!({ "service": "web", "endpoints": endpoints }))).unwrap();
    assert_eq!(used(&cluster, key), "NoService: there is no Service default/web");

    cluster.apply(&service("web", json!({ "type": "ExternalName", "externalName": "example.com" }))).unwrap();
    assert!(used(&cluster, key).starts_with("ExternalName: "));

    let ports = json!([{ "name": "http", "port": 80, "targetPort": "web" }]);
    cluster.apply(&service("web", json!({ "ports": ports, "ipFamilies": ["IPv4"] }))).unwrap();
    assert_eq!(
        used(&cluster, key),
        "PortsUnmatched: the ports of Service default/web have named target ports, and the set states no ports"
    );

    let wrong = json!([{ "name": "http", "port": 8080 }, { "name": "dns", "protocol": "UDP", "port": 53 }]);
    cluster.apply(&set_of(json!({ "service": "web", "ports": wrong, "endpoints": endpoints }))).unwrap();
    assert_eq!(used(&cluster, key), "PortsUnmatched: Service default/web has no port `dns` with UDP");

    let right = json!([{ "name": "http", "port": 8080 }]);
    let mixed = json!([{ "address": "10.1.0.1" }, { "address": "fd00:1::1" }]);
    cluster.apply(&set_of(json!({ "service": "web", "ports": right, "endpoints": mixed }))).unwrap();
    assert!(used(&cluster, key).starts_with("FamilyUnmatched: 1 of 2 endpoints"));

    cluster.apply(&set_of(json!({ "service": "web", "ports": right, "endpoints": endpoints }))).unwrap();
    assert_eq!(used(&cluster, key), "ServiceFound: ");
}

#[test]
fn the_status_of_a_workload_names_its_services() {
    let mut cluster = Cluster::new();
    let key = "workloads/default/web-1";
    let mut apply = |spec: Value| {
        cluster.apply(&of_kind("Workload", "web-1", json!({ "app": "web" }), spec)).unwrap();
        let accepted = conditions(&cluster, key).remove(0);
        (accepted.reason.as_str(), used(&cluster, key))
    };
    let (accepted, said) = apply(json!({ "addresses": ["10.1.0.1"] }));
    assert_eq!(accepted, "Valid");
    assert_eq!(said, "NotSelected: no Service of the namespace selects its labels");

    let ports = json!([{ "port": 80, "targetPort": "http" }]);
    cluster.apply(&service("web", json!({ "selector": { "app": "web" }, "ports": ports }))).unwrap();
    let mut apply = |spec: Value| {
        cluster.apply(&of_kind("Workload", "web-1", json!({ "app": "web" }), spec)).unwrap();
        used(&cluster, key)
    };
    assert!(apply(json!({ "addresses": ["10.1.0.1"] })).starts_with("NoPort: "));
    let named = json!({ "http": { "port": 8080 } });
    assert!(apply(json!({ "ports": named })).starts_with("NoAddress: "));
    let done = json!({ "addresses": ["10.1.0.1"], "ports": named, "phase": "Succeeded" });
    assert!(apply(done).starts_with("NotRunning: "));
    assert_eq!(apply(json!({ "addresses": ["10.1.0.1"], "ports": named })), "Selected: selected by web");
}

/// A lease is rejected, because no Workload expires. An object with a lease that an earlier version stored can still be
/// read, and its status says that the lease has no effect.
#[test]
fn a_workload_with_a_lease_is_rejected_and_a_stored_one_says_that_it_has_no_effect() {
    let mut cluster = Cluster::new();
    let spec = json!({ "addresses": ["10.1.0.1"], "leaseSeconds": 30 });
    let workload = of_kind("Workload", "web-1", json!({}), spec.clone());
    let refused = decode(&workload, &Expect::default()).unwrap_err();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(
        (refused[0].pointer.as_str(), refused[0].code),
        ("/spec/leaseSeconds", ViolationCode::Invalid)
    );
    cluster.apply(&of_kind("Workload", "web-1", json!({}), json!({ "addresses": ["10.1.0.1"] }))).unwrap();
    let object = cluster.get("workloads/default/web-1");
    let stored: WorkloadSpec = serde_json::from_value(spec).unwrap();
    let namespace = object.metadata.namespace.as_ref().unwrap();
    let status = workload_status(&cluster.snapshot, namespace, &object.metadata, &stored);
    assert_eq!(status.conditions[0].reason.as_str(), "Unsupported");
    assert!(status.conditions[0].message.contains("has no effect"), "{:?}", status.conditions[0]);
}

#[test]
fn a_service_reports_missing_receivers_although_endpoints_are_ready() {
    let mut cluster = Cluster::new();
    let both = json!({ "ports": [{ "port": 80 }], "ipFamilyPolicy": "RequireDualStack" });
    cluster.apply(&service("web", both)).unwrap();
    let mut available = |endpoints: Value| {
        cluster.apply(&set_of(json!({ "service": "web", "endpoints": endpoints }))).unwrap();
        let compiled = compile(&cluster.snapshot, &key("web")).unwrap();
        let spec = cluster.service("web");
        let status = service_status(
            &cluster.snapshot,
            &key("web"),
            spec,
            Some(&compiled),
            Epoch(1),
            &NodeViews::new(Vec::new()),
            ServiceObservations::default(),
        );
        let mut found = status.conditions.into_iter();
        let found = found.find(|one| one.condition_type == ConditionType::EndpointsAvailable).unwrap();
        (found.reason.as_str(), found.message, status.endpoints.ready)
    };
    let (reason, message, ready) = available(json!([{ "address": "10.1.0.1", "weight": 0 }]));
    assert_eq!((reason, &*message, ready), ("NoWeight", "none of 1 endpoints has a weight", 0));
    let (reason, message, _) = available(json!([{ "address": "10.1.0.1" }]));
    assert_eq!(reason, "EndpointsReady");
    assert!(message.starts_with("connections to fd00:96::"), "{message}");
    let (_, message, ready) = available(json!([{ "address": "10.1.0.1" }, { "address": "fd00:1::1" }]));
    assert_eq!((&*message, ready), ("", 2));
}
