//! Compilation of Services, which determines their endpoints, and derivation of packet programs, which
//! determine the treatment of packets on a node.

use model::{
    compile::compile,
    kinds::node::NodeSpec,
    observed::{
        rollup::{NodeView, node_status},
        status::{ConditionStatus, ConditionType},
    },
    primitives::{name::Name, quantity::Position},
    program::{Destination, Masquerade, NodeLocation, Program, Verdict, program},
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

fn workload(name: &str, labels: Value, spec: Value) -> Value {
    of_kind("Workload", name, labels, spec)
}

fn endpoints(cluster: &Cluster, name: &str) -> Vec<String> {
    let compiled = compile(&cluster.snapshot, &key(name)).unwrap();
    let all = compiled.ports.iter().flat_map(|port| &port.endpoints);
    let letter = |set: bool, letter: &'static str| if set { letter } else { "" };
    all.map(|endpoint| {
        let (ready, terminating) = (letter(endpoint.ready, "R"), letter(endpoint.terminating, "T"));
        format!("{}:{}{}{}", endpoint.address, endpoint.port, ready, terminating)
    })
    .collect()
}

fn program_of(cluster: &Cluster, name: &str) -> Program {
    program(&compile(&cluster.snapshot, &key(name)).unwrap(), &place()).unwrap()
}

fn place() -> NodeLocation {
    NodeLocation { node: Name::parse("n1").unwrap(), zone: None }
}

fn verdicts(cluster: &Cluster, name: &str) -> Vec<Verdict> {
    let routes = program_of(cluster, name).frontends.into_iter().map(|(_, route)| route);
    routes.map(|route| route.uniform().unwrap().clone()).collect()
}

/// F020, F021: the endpoints of a Service are exactly the Workloads of its namespace that match its selector and
/// are running or terminating. Each endpoint has the readiness of its Workload.
#[test]
fn f020_a_selector_picks_exactly_the_matching_workloads() {
    let mut cluster = Cluster::new();
    cluster
        .apply(&service(
            "web",
            json!({ "selector": { "app": "nginx" }, "ports": [{ "port": 80, "targetPort": 8080 }] }),
        ))
        .unwrap();
    let nginx = || json!({ "app": "nginx", "extra": "1" });
    cluster.apply(&workload("a", nginx(), json!({ "addresses": ["10.1.0.1"] }))).unwrap();
    cluster.apply(&workload("b", nginx(), json!({ "addresses": ["10.1.0.2"], "ready": false }))).unwrap();
    cluster
        .apply(&workload("c", nginx(), json!({ "addresses": ["10.1.0.3"], "phase": "Terminating" })))
        .unwrap();
    cluster.apply(&workload("d", nginx(), json!({ "addresses": ["10.1.0.4"], "phase": "Failed" }))).unwrap();
    cluster.apply(&workload("e", json!({ "app": "db" }), json!({ "addresses": ["10.1.0.5"] }))).unwrap();
    assert_eq!(endpoints(&cluster, "web"), ["10.1.0.1:8080R", "10.1.0.2:8080", "10.1.0.3:8080T"]);
}

/// If a Service has no ready endpoint, terminating endpoints that still serve are used (KEP-1669); if there are
/// none either, connections are refused.
#[test]
fn serving_terminating_endpoints_are_the_fallback() {
    let mut cluster = Cluster::new();
    cluster
        .apply(&service(
            "web",
            json!({ "clusterIP": "10.96.0.1", "selector": { "app": "x" }, "ports": [{ "port": 80 }] }),
        ))
        .unwrap();
    let put =
        |cluster: &mut Cluster, spec| cluster.apply(&workload("a", json!({ "app": "x" }), spec)).unwrap();
    put(&mut cluster, json!({ "addresses": ["10.1.0.1"], "phase": "Terminating" }));
    let found = verdicts(&cluster, "web");
    assert!(matches!(&found[..], [Verdict::Forward { .. }]), "{found:?}");
    put(&mut cluster, json!({ "addresses": ["10.1.0.1"], "phase": "Terminating", "ready": false }));
    assert_eq!(verdicts(&cluster, "web"), [Verdict::Reject]);
}

/// F042: a named target port is resolved for each Workload; a Workload without a port of this name is no endpoint
/// of the Service port.
#[test]
fn f042_named_target_ports_resolve_per_workload() {
    let mut cluster = Cluster::new();
    cluster
        .apply(&service(
            "web",
            json!({ "selector": { "app": "x" }, "ports": [{ "port": 80, "targetPort": "http" }] }),
        ))
        .unwrap();
    for (name, address, port) in [("a", "10.1.0.1", 8080), ("b", "10.1.0.2", 9090)] {
        let spec = json!({ "addresses": [address], "ports": { "http": { "port": port } } });
        cluster.apply(&workload(name, json!({ "app": "x" }), spec)).unwrap();
    }
    let udp = json!({ "addresses": ["10.1.0.3"], "ports": { "http": { "port": 1, "protocol": "UDP" } } });
    cluster.apply(&workload("c", json!({ "app": "x" }), udp)).unwrap();
    assert_eq!(endpoints(&cluster, "web"), ["10.1.0.1:8080R", "10.1.0.2:9090R"]);
}

#[test]
fn endpoint_sets_serve_by_port_name_and_join_with_workloads() {
    let mut cluster = Cluster::new();
    let ports = json!([{ "name": "http", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
    cluster.apply(&service("web", json!({ "selector": { "app": "x" }, "ports": ports }))).unwrap();
    cluster.apply(&workload("a", json!({ "app": "x" }), json!({ "addresses": ["10.1.0.1"] }))).unwrap();
    let set = json!({
        "service": "web",
        "ports": [{ "name": "http", "port": 8080 }],
        "endpoints": [{ "address": "10.2.0.1" }, { "address": "10.2.0.2", "conditions": { "ready": false } }],
    });
    cluster.apply(&of_kind("EndpointSet", "s", json!({}), set)).unwrap();
    let expected = ["10.1.0.1:80R", "10.2.0.1:8080R", "10.2.0.2:8080", "10.1.0.1:53R"];
    assert_eq!(endpoints(&cluster, "web"), expected);
}

#[test]
fn every_frontend_has_its_masquerade_rule_and_family() {
    let mut cluster = Cluster::new();
    let spec = json!({
        "type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "externalIPs": ["192.0.2.1"],
        "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 30080 }],
    });
    cluster.apply(&service("web", spec)).unwrap();
    let set = json!({ "service": "web", "endpoints": [{ "address": "10.2.0.1" }, { "address": "fd00:2::1", "node": "n2" }] });
    cluster.apply(&of_kind("EndpointSet", "s", json!({}), set)).unwrap();
    let program = program_of(&cluster, "web");
    assert_eq!(program.frontends.len(), 5, "two cluster IPs, one external IP, a node port per family");
    for (frontend, route) in &program.frontends {
        let Some(Verdict::Forward { masquerade, targets }) = route.uniform() else {
            panic!("{frontend:?} must forward")
        };
        assert!(targets.keys().all(|target| target.port.unwrap().get() == 8080
            && model::primitives::net::IpFamily::of(target.address) == frontend.destination.family()));
        let expected = match frontend.destination {
            Destination::Address(address) if program.virtual_addresses.contains(&address) => {
                Masquerade::OffCluster
            }
            Destination::Address(_) | Destination::AnyLocal(_) => Masquerade::Always,
        };
        assert_eq!(*masquerade, expected, "{frontend:?}");
    }
    let hairpins: Vec<_> = program.hairpins.iter().map(ToString::to_string).collect();
    assert_eq!(hairpins, ["10.2.0.1"], "an endpoint of another node never meets itself here");
}

#[test]
fn f033_headless_and_disabled_services_are_not_programmed() {
    let mut cluster = Cluster::new();
    cluster.apply(&service("h", json!({ "clusterIP": "None", "ports": [{ "port": 80 }] }))).unwrap();
    cluster
        .apply(&service("d", json!({ "type": "NodePort", "disabled": true, "ports": [{ "port": 80 }] })))
        .unwrap();
    for name in ["h", "d"] {
        let compiled = compile(&cluster.snapshot, &key(name)).unwrap();
        assert!(!compiled.is_programmable());
        assert_eq!(program_of(&cluster, name), Program::default());
    }
}

#[test]
fn a_service_with_a_blocking_setting_is_not_programmed_and_reports_it() {
    let mut cluster = Cluster::new();
    cluster
        .apply(&service("web", json!({ "forwardingMethod": "direct", "ports": [{ "port": 80 }] })))
        .unwrap();
    let compiled = compile(&cluster.snapshot, &key("web")).unwrap();
    let refused = program(&compiled, &place()).unwrap_err();
    assert_eq!(refused[0].field, "spec.forwardingMethod");
}

/// A Node whose spec sets every field is accepted.
#[test]
fn a_node_is_accepted_with_every_setting() {
    let name = Name::parse("n1").unwrap();
    let view = NodeView {
        name: &name,
        is_connected: true,
        has_left: false,
        is_contested: false,
        is_lost: false,
        last_report: None,
        report: None,
    };
    let spec: NodeSpec = serde_json::from_value(json!({ "mode": "ipvs", "unschedulable": true })).unwrap();
    let status = node_status(&spec, &view, Position::default());
    let accepted = status.conditions.iter().find(|one| one.condition_type == ConditionType::Accepted);
    assert_eq!(accepted.unwrap().status, ConditionStatus::True);
}
