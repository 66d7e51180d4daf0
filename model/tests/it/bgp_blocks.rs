//! Blocks of workload networks in the BGP configuration of nodes, and the rules of the Advertisements that announce
//! them.

use ipnet::IpNet;
use model::{
    admission::{
        admit::Refusal,
        decode::{Expect, decode},
    },
    bgp::compile::bgp_state,
    cluster::snapshot::Snapshot,
    primitives::violation::ViolationCode,
};
use serde_json::{Value, json};

use crate::{
    blocks::{name, node, pods},
    support::{Cluster, of_kind, violations},
};

fn announcing(spec: Value) -> Value {
    of_kind("Advertisement", "pods", json!({}), spec)
}

/// Returns the announced blocks of a node, each with its Advertisements, as text.
fn announced(snapshot: &Snapshot, node: &str) -> Vec<String> {
    let blocks = bgp_state(snapshot, &name(node), 64_512).map(|state| state.blocks).unwrap_or_default();
    let text = |(block, by): (IpNet, _)| format!("{block} {by:?}");
    blocks.into_iter().map(text).collect()
}

fn invalid(value: &Value) -> Vec<(String, ViolationCode)> {
    let found = decode(value, &Expect::default()).unwrap_err();
    found.into_iter().map(|violation| (violation.pointer, violation.code)).collect()
}

/// F155: each node announces its own blocks of the networks that its Advertisements name, and no others.
#[test]
fn f155_a_node_announces_its_blocks_of_the_named_networks() {
    let mut cluster = Cluster::new();
    cluster.apply_many(&[node("n1", "a"), node("n2", "b")], None).unwrap();
    cluster.apply(&pods(json!({ "cidrs": ["10.64.0.0/24", "fd00:64::/120"] }))).unwrap();
    cluster
        .apply(&of_kind("BgpPeer", "tor", json!({}), json!({ "peerAddress": "10.0.0.1", "peerASN": 65_001 })))
        .unwrap();
    assert!(announced(&cluster.snapshot, "n1").is_empty());
    let spec = json!({
        "type": "BGP", "workloadNetworks": ["pods"], "nodeSelectors": [{ "matchLabels": { "rack": "a" } }],
    });
    cluster.apply(&announcing(spec)).unwrap();
    assert_eq!(
        announced(&cluster.snapshot, "n1"),
        [r#"10.64.0.0/26 {Name("pods")}"#, r#"fd00:64::/122 {Name("pods")}"#]
    );
    assert!(announced(&cluster.snapshot, "n2").is_empty());
}

/// Advertisements name existing networks, have no settings without effect, and keep their networks. Those of blocks
/// announce no addresses of load balancers, except from pools that they list.
#[test]
fn advertisements_of_blocks_are_checked_and_announce_no_pool_by_default() {
    let mut cluster = Cluster::new();
    let spec = json!({ "type": "BGP", "workloadNetworks": ["pods"] });
    assert_eq!(
        violations(cluster.apply(&announcing(spec.clone()))),
        [("/items/0/spec/workloadNetworks".to_owned(), ViolationCode::NotFound)]
    );
    cluster.apply(&pods(json!({ "cidrs": ["10.64.0.0/24"] }))).unwrap();
    let l2 = json!({ "workloadNetworks": ["pods"] });
    assert_eq!(invalid(&announcing(l2)), [("/spec/workloadNetworks".to_owned(), ViolationCode::Conflict)]);
    let aggregated = json!({ "type": "BGP", "workloadNetworks": ["pods"], "aggregationLength": 24 });
    assert_eq!(
        invalid(&announcing(aggregated)),
        [("/spec/aggregationLength".to_owned(), ViolationCode::Conflict)]
    );
    cluster.apply(&announcing(spec)).unwrap();
    let covers = |cluster: &Cluster, pool: &str| {
        let advertisement = cluster.get("advertisements//pods").as_advertisement().unwrap();
        (advertisement.covers_pool(None), advertisement.covers_pool(Some(&name(pool))))
    };
    assert_eq!(covers(&cluster, "outside"), (false, false));
    let Err(Refusal::Invalid(kept)) = cluster.delete("workloadnetworks//pods") else {
        panic!("must be refused")
    };
    assert_eq!(kept[0].code, ViolationCode::InUse);
    cluster
        .apply(&of_kind("AddressPool", "outside", json!({}), json!({ "addresses": ["198.51.100.0/28"] })))
        .unwrap();
    let both = json!({ "type": "BGP", "workloadNetworks": ["pods"], "addressPools": ["outside"] });
    cluster.apply(&announcing(both)).unwrap();
    assert_eq!(covers(&cluster, "outside"), (false, true));
}
