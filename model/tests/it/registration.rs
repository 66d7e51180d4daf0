//! Registration of a Node by its agent: limits of labels, addresses and workload networks.

use model::{
    admission::admit::{Operation, Request},
    kinds::{metadata::Labels, node::NodeSpec},
    observed::rollup::{NodeView, node_status},
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision},
        violation::ViolationCode::Invalid,
    },
};
use serde_json::{Value, json};

use crate::support::{Cluster, object, of_kind, violations};

fn register(cluster: &mut Cluster, node: &Value, permitted: &[(&str, &str)]) -> (Labels, NodeSpec) {
    let permitted = permitted.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let operations = vec![Operation::Create(object(node))];
    let request = Request { operations, registration: Some(permitted), ..Request::default() };
    let admitted = cluster.write(&request).unwrap();
    let object = &admitted.outcomes[0].object;
    (object.metadata.labels.clone(), object.as_node().unwrap().clone())
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// A Node gets all labels of its join token and no others, whatever its agent requests.
#[test]
fn an_agent_has_the_labels_of_its_join_token_only() {
    let mut cluster = Cluster::new();
    let wanted = of_kind("Node", "n1", json!({ "role": "edge", "rack": "r1" }), json!({}));
    let (labels, spec) = register(&mut cluster, &wanted, &[("rack", "r1"), ("role", "core"), ("zone", "a")]);
    assert_eq!(json!(labels), json!({ "rack": "r1", "role": "core", "zone": "a" }));
    assert_eq!(json!(spec.requested), json!({ "labels": { "role": "edge" } }));
}

/// The label with the name of the node needs no permission, because it says nothing new. Another name is a request.
#[test]
fn an_agent_labels_its_node_with_its_own_name() {
    let mut cluster = Cluster::new();
    let own = of_kind("Node", "n1", json!({ "kubernetes.io/hostname": "n1" }), json!({}));
    let (labels, spec) = register(&mut cluster, &own, &[("rack", "r1")]);
    assert_eq!(json!(labels), json!({ "kubernetes.io/hostname": "n1", "rack": "r1" }));
    assert!(spec.requested.is_empty(), "{spec:?}");
    let other = of_kind("Node", "n2", json!({ "kubernetes.io/hostname": "n1" }), json!({}));
    let (labels, spec) = register(&mut cluster, &other, &[]);
    assert!(labels.is_empty(), "{labels:?}");
    assert_eq!(json!(spec.requested), json!({ "labels": { "kubernetes.io/hostname": "n1" } }));
}

/// Workload networks must be in a range, small, and of no other Node; the rest of a registration takes effect.
#[test]
fn an_agent_gets_workload_networks_that_change_no_other_node() {
    let mut cluster = Cluster::new();
    let first = of_kind(
        "Node",
        "n1",
        json!({}),
        json!({
            "addresses": ["10.0.0.1", "fd00::1"], "workloadCIDRs": ["10.1.1.0/24", "203.0.113.0/28"],
        }),
    );
    cluster.apply(&first).unwrap();
    let claims = json!([
        "1.0.0.0/8",
        "2.0.0.0/7",
        "64.0.0.0/3",
        "208.0.0.0/4",
        "2001:db8::/64", // outside of the ranges
        "10.128.0.0/9",
        "fd01::/16", // too large
        "10.1.0.0/23",
        "10.0.0.0/24",
        "fd00::/64", // of n1
        "10.2.0.0/17",
        "10.2.128.0/18",
        "fd00:2::/64",
        "10.2.224.0/19",
        "10.3.0.0/18", // beyond the sum
    ]);
    let (_, spec) =
        register(&mut cluster, &of_kind("Node", "n9", json!({}), json!({ "workloadCIDRs": claims })), &[]);
    let has = ["10.2.0.0/17", "10.2.128.0/18", "fd00:2::/64", "10.2.224.0/19"];
    assert_eq!(texts(&spec.workload_cidrs), has);
    assert_eq!(spec.requested.workload_cidrs.len(), 11);
    let own = ["172.16.0.0/12".parse().unwrap()];
    cluster.config = cluster.config.with_workload_ranges(own.to_vec()).unwrap();
    let claims = json!(["10.9.0.0/24", "172.20.0.0/24"]);
    let (_, spec) =
        register(&mut cluster, &of_kind("Node", "n8", json!({}), json!({ "workloadCIDRs": claims })), &[]);
    assert_eq!(texts(&spec.workload_cidrs), ["172.20.0.0/24"], "--workload-range replaces the default");
}

/// An agent cannot take addresses of other Nodes or out of their workload networks.
#[test]
fn an_agent_gets_addresses_that_belong_to_no_other_node() {
    let mut cluster = Cluster::new();
    let spec = json!({ "addresses": ["10.0.0.1"], "workloadCIDRs": ["10.1.1.0/24"] });
    cluster.apply(&of_kind("Node", "n1", json!({}), spec)).unwrap();
    let claims = json!({ "addresses": ["10.0.0.1", "10.0.0.9", "10.1.1.7"] });
    let (_, spec) = register(&mut cluster, &of_kind("Node", "n9", json!({}), claims), &[]);
    assert_eq!(texts(&spec.addresses), ["10.0.0.9"]);
    assert_eq!(texts(&spec.requested.addresses), ["10.0.0.1", "10.1.1.7"]);
}

/// An operator accepts requests by writing them, and declines the others by a write without the field.
#[test]
fn an_operator_accepts_or_declines_and_is_not_limited() {
    let mut cluster = Cluster::new();
    let wanted = of_kind(
        "Node",
        "n9",
        json!({ "role": "edge" }),
        json!({ "workloadCIDRs": ["208.0.0.0/4", "1.0.0.0/8"] }),
    );
    let (_, spec) = register(&mut cluster, &wanted, &[]);
    let requested = json!(spec.requested);
    let view = NodeView {
        name: &Name::parse("n9").unwrap(),
        is_connected: true,
        has_left: false,
        is_contested: false,
        is_lost: false,
        last_report: None,
        report: None,
    };
    let head = Position { epoch: Epoch(1), revision: Revision(1) };
    let warnings = node_status(&spec, &view, head).warnings;
    assert!(
        warnings[0].contains("role=edge") && warnings[0].contains("tidegate node accept n9"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].contains("208.0.0.0/4, 1.0.0.0/8") && warnings[1].contains("--workload-range"),
        "{warnings:?}"
    );

    let foreign = json!({ "workloadCIDRs": [], "requested": { "labels": { "role": "x" } } });
    let refused = violations(cluster.apply(&of_kind("Node", "n9", json!({}), foreign)));
    assert_eq!(refused, [("/items/0/spec/requested".to_owned(), Invalid)]);
    let partly = json!({ "workloadCIDRs": ["208.0.0.0/4"], "requested": requested });
    cluster.apply(&of_kind("Node", "n9", json!({ "role": "edge" }), partly.clone())).unwrap();
    let spec = cluster.get("nodes//n9").as_node().unwrap().clone();
    assert_eq!(texts(&spec.workload_cidrs), ["208.0.0.0/4"]);
    assert_eq!(json!(spec.requested), json!({ "workloadCIDRs": ["1.0.0.0/8"] }), "{spec:?}");
    let declined = json!({ "workloadCIDRs": ["208.0.0.0/4"] });
    cluster.apply(&of_kind("Node", "n9", json!({ "role": "edge" }), declined)).unwrap();
    assert!(cluster.get("nodes//n9").as_node().unwrap().requested.is_empty());
}
