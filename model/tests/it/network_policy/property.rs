//! Random policies and workloads.

use model::policy::node_policy::{Attempt, AttemptProtocol, PolicyVerdict};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NAMES, NAMESPACES, Policies, address, network_policy, workload};
use crate::support::of_kind;

#[derive(Debug, Clone)]
enum Step {
    Apply(Vec<Value>),
    Delete(String),
}

fn select<T: Clone + std::fmt::Debug + 'static>(values: &[T]) -> impl Strategy<Value = T> + Clone + use<T> {
    prop::sample::select(values.to_vec())
}

fn a_selector() -> impl Strategy<Value = Value> {
    let key = select(&["pod", "tier"]);
    let values = prop::sample::subsequence(vec!["a", "b", "c"], 1..=2);
    prop_oneof![
        Just(json!({})),
        (key.clone(), select(&NAMES)).prop_map(|(key, value)| json!({ "matchLabels": { key: value } })),
        (key.clone(), select(&["In", "NotIn"]), values).prop_map(|(key, operator, values)| {
            json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
        }),
        (key, select(&["Exists", "DoesNotExist"])).prop_map(
            |(key, operator)| json!({ "matchExpressions": [{ "key": key, "operator": operator }] })
        ),
    ]
}

fn namespaces() -> impl Strategy<Value = Value> {
    let key = "kubernetes.io/metadata.name";
    let values = prop::sample::subsequence(NAMESPACES.to_vec(), 1..=2);
    prop_oneof![
        Just(json!({})),
        select(&NAMESPACES).prop_map(move |name| json!({ "matchLabels": { key: name } })),
        (select(&["In", "NotIn"]), values).prop_map(move |(operator, values)| {
            json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
        }),
        select(&["Exists", "DoesNotExist"])
            .prop_map(move |operator| json!({ "matchExpressions": [{ "key": key, "operator": operator }] })),
    ]
}

fn a_block() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "cidr": "0.0.0.0/0" })),
        Just(json!({ "cidr": "10.0.0.0/23", "except": ["10.0.0.2/32", "10.0.1.0/31"] })),
        Just(json!({ "cidr": "192.0.2.0/24" })),
        Just(json!({ "cidr": "10.0.2.0/24", "except": ["10.0.2.0/30"] })),
    ]
}

fn a_peer() -> impl Strategy<Value = Value> {
    prop_oneof![
        a_selector().prop_map(|workloads| json!({ "workloadSelector": workloads })),
        namespaces().prop_map(|namespaces| json!({ "namespaceSelector": namespaces })),
        (a_selector(), namespaces()).prop_map(|(workloads, namespaces)| {
            json!({ "workloadSelector": workloads, "namespaceSelector": namespaces })
        }),
        a_block().prop_map(|block| json!({ "ipBlock": block })),
    ]
}

fn a_port() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!({ "protocol": "UDP" })),
        (select(&["TCP", "UDP", "SCTP"]), 79_u16..82)
            .prop_map(|(protocol, port)| { json!({ "protocol": protocol, "port": port }) }),
        Just(json!({ "port": 70, "endPort": 80 })),
        (select(&["TCP", "UDP"]), select(&["serve-80-tcp", "serve-81-udp", "serve-80-sctp", "none"]))
            .prop_map(|(protocol, name)| json!({ "protocol": protocol, "port": name })),
    ]
}

fn rules(peers: &'static str) -> impl Strategy<Value = Vec<Value>> {
    let rule = (prop::collection::vec(a_peer(), 0..3), prop::collection::vec(a_port(), 0..3));
    let rule = rule.prop_map(move |(ends, mut ports)| {
        let has_block = ends.iter().any(|end| end.get("ipBlock").is_some());
        if has_block && peers == "to" {
            ports.retain(|port| !port["port"].is_string());
        }
        json!({ peers: ends, "ports": ports })
    });
    prop::collection::vec(rule, 0..3)
}

fn a_policy() -> impl Strategy<Value = Value> {
    let types = prop::option::of(prop::sample::subsequence(vec!["Ingress", "Egress"], 1..=2));
    let parts = (select(&NAMESPACES), "[pqr]", a_selector(), types, rules("from"), rules("to"));
    parts.prop_map(|(namespace, name, selector, types, ingress, egress)| {
        let has = |one: &str| types.as_ref().is_none_or(|types| types.contains(&one));
        let ingress = if has("Ingress") { ingress } else { Vec::new() };
        let egress = if has("Egress") { egress } else { Vec::new() };
        let mut spec = json!({ "selector": selector, "ingress": ingress, "egress": egress });
        if let Some(types) = &types {
            spec["policyTypes"] = json!(types);
        }
        network_policy(namespace, &name, &spec)
    })
}

fn a_workload() -> impl Strategy<Value = Value> {
    let parts = (
        select(&NAMESPACES),
        select(&NAMES),
        select(&NAMES),
        prop::option::of(select(&NAMES)),
        select(&["Running", "Running", "Pending", "Succeeded", "Terminating", "Failed"]),
        select(&["web", "serve-80-tcp", "serve-81-udp"]),
        80_u16..83,
        prop::option::weighted(0.8, select(&["n1", "n2"])),
    );
    parts.prop_map(|(namespace, name, pod, tier, phase, port, number, node)| {
        let mut labels = json!({ "pod": pod });
        if let Some(tier) = tier {
            labels["tier"] = json!(tier);
        }
        let mut found = workload(namespace, name, &labels);
        found["spec"]["phase"] = json!(phase);
        match node {
            Some(node) => found["spec"]["node"] = json!(node),
            None => drop(found["spec"].as_object_mut().unwrap().remove("node")),
        }
        let protocol = if port.ends_with("udp") { "UDP" } else { "TCP" };
        found["spec"]["ports"][port] = json!({ "port": number, "protocol": protocol });
        found
    })
}

/// Returns a write of several policies, of which each has its own name.
fn distinct(policies: Vec<(&'static str, Value)>) -> Step {
    let mut found: Vec<Value> = Vec::new();
    for (name, mut policy) in policies {
        policy["metadata"]["name"] = json!(name);
        let key = |one: &Value| (one["metadata"]["namespace"].clone(), one["metadata"]["name"].clone());
        if found.iter().all(|one| key(one) != key(&policy)) {
            found.push(policy);
        }
    }
    Step::Apply(found)
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => a_policy().prop_map(|policy| Step::Apply(vec![policy])),
        3 => prop::collection::vec((select(&["p", "q", "r"]), a_policy()), 2..4).prop_map(distinct),
        3 => a_workload().prop_map(|workload| Step::Apply(vec![workload])),
        1 => (a_policy(), a_workload()).prop_map(|(policy, workload)| Step::Apply(vec![policy, workload])),
        1 => (select(&NAMESPACES), "[pqr]").prop_map(|(namespace, name)| Step::Delete(format!("networkpolicies/{namespace}/{name}"))),
        1 => (select(&NAMESPACES), select(&NAMES)).prop_map(|(namespace, name)| Step::Delete(format!("workloads/{namespace}/{name}"))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Input: random writes of policies and workloads. Output: after each of them, the compiled form equals one that is
    /// compiled anew, and decides on every connection as the objects say.
    #[test]
    fn the_compiled_policy_decides_as_the_objects(steps in prop::collection::vec(a_step(), 1..12)) {
        let mut policies = Policies::new();
        for step in steps {
            match step {
                Step::Apply(objects) => policies.apply(&objects),
                Step::Delete(key) => policies.delete(&key),
            };
            policies.check();
        }
    }
}

/// Input: one write that moves a named port of egress from one policy to another. Output: each number counts all workloads that
/// serve it, so that the rule stays while one of them does.
#[test]
fn a_selector_that_moves_to_another_policy_keeps_its_numbers() {
    let mut policies = Policies::new();
    let ports = json!([{ "port": "serve-80-tcp" }]);
    let named = json!({ "selector": {}, "policyTypes": ["Egress"], "egress": [{ "ports": ports }] });
    let denied = json!({ "selector": {}, "policyTypes": ["Egress"] });
    policies.apply(&[network_policy("x", "p", &named)]);
    policies.apply(&[network_policy("x", "p", &denied), network_policy("x", "q", &named)]);
    policies.delete("workloads/y/a");
    policies.check();
}

/// Input: more rules for a workload than a set may have. Output: it accepts nothing, and other workloads are not affected.
#[test]
fn a_set_with_too_many_rules_accepts_nothing() {
    let mut policies = Policies::new();
    let ports: Vec<_> = (1..=100).map(|port| json!({ "port": port })).collect();
    let peers: Vec<_> = (0..20).map(|_| json!({ "workloadSelector": {} })).collect();
    let spec = json!({ "selector": { "matchLabels": { "pod": "a" } }, "ingress": [{ "from": peers, "ports": ports }] });
    let attempt = Attempt {
        source: address("x", "b"),
        destination: address("x", "a"),
        protocol: AttemptProtocol::Tcp,
        port: 80,
    };
    for (name, is_accepted) in [("p", true), ("q", true), ("r", false)] {
        policies.apply(&[network_policy("x", name, &spec)]);
        let verdict = policies.node_policy().judge(&attempt);
        assert_eq!(matches!(verdict, PolicyVerdict::Accept(_)), is_accepted, "{name}");
    }
}

/// Input: a workload with the address of its Node, which a policy isolates. Output: nodes do not get the workload, because
/// they cannot distinguish it; with an address of its own, it is isolated.
#[test]
fn addresses_of_the_node_are_not_isolated() {
    let mut policies = Policies::new();
    let mut host = workload("x", "a", &json!({}));
    host["spec"]["node"] = json!("n1");
    let node = |address: &str| of_kind("Node", "n1", json!({}), json!({ "addresses": [address] }));
    policies.apply(&[node("10.0.0.1"), host, network_policy("x", "deny", &json!({ "selector": {} }))]);
    let attempt = Attempt {
        source: address("x", "b"),
        destination: address("x", "a"),
        protocol: AttemptProtocol::Tcp,
        port: 80,
    };
    assert_eq!(policies.node_policy().judge(&attempt), PolicyVerdict::Accept(None));
    let changes = policies.apply(&[node("172.16.0.1")]);
    assert_eq!(changes.workloads.len(), 1);
    assert!(matches!(policies.node_policy().judge(&attempt), PolicyVerdict::Drop { .. }));
}
