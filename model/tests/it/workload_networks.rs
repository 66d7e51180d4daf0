//! Admission and compilation of WorkloadNetworks: their addresses are those of nothing else.

use model::{
    admission::{
        admit::Refusal,
        decode::{Expect, decode},
    },
    compile::network,
    primitives::{name::Name, violation::Violation},
    wire::workload_network::compile_network,
};
use serde_json::{Value, json};

use crate::support::{Cluster, of_kind};

fn network_of(name: &str, spec: Value) -> Value {
    of_kind("WorkloadNetwork", name, json!({}), spec)
}

fn violations(refused: Result<impl Sized, Refusal>) -> Vec<Violation> {
    let Err(Refusal::Invalid(violations)) = refused else { panic!("must be refused") };
    violations
}

/// Input: objects that use addresses. Output: each WorkloadNetwork with such addresses is refused, with the name of the
/// object.
#[test]
fn addresses_of_workloads_belong_to_nothing_else() {
    let mut cluster = Cluster::new();
    let others = [
        network_of("other", json!({ "cidrs": ["10.65.0.0/16"] })),
        of_kind("AddressPool", "lab", json!({}), json!({ "addresses": ["10.66.0.10-10.66.0.20"] })),
        of_kind(
            "Node",
            "n1",
            json!({}),
            json!({ "addresses": ["10.67.0.1"], "workloadCIDRs": ["10.68.1.0/24"] }),
        ),
    ];
    cluster.apply_many(&others, None).unwrap();
    for (cidr, named) in [
        ("10.65.128.0/24", "10.65.0.0/16 of WorkloadNetwork other"),
        ("10.96.64.0/18", "the range of virtual addresses, 10.96.0.0/16"),
        ("10.66.0.0/16", "AddressPool lab"),
        ("10.67.0.0/16", "10.67.0.1, which is an address of Node n1"),
        ("10.68.0.0/16", "the workload network 10.68.1.0/24 of Node n1"),
    ] {
        let found = violations(cluster.apply(&network_of("pods", json!({ "cidrs": [cidr] }))));
        assert!(found[0].message.contains(named), "{cidr}: {found:?}");
        assert!(found[0].pointer.ends_with("/spec/cidrs/0"), "{found:?}");
    }
    cluster.apply(&network_of("pods", json!({ "cidrs": ["10.64.0.0/16"] }))).unwrap();
}

/// Input: a WorkloadNetwork. Output: no pool, Node address, workload network of a Node, external address or second
/// network may take its addresses.
#[test]
fn addresses_of_a_network_are_refused_to_others() {
    let mut cluster = Cluster::new();
    cluster.apply(&network_of("pods", json!({ "cidrs": ["10.64.0.0/16", "192.0.2.0/25"] }))).unwrap();
    let service = json!({ "externalIPs": ["192.0.2.7"], "ports": [{ "port": 80 }] });
    for (object, named) in [
        (network_of("more", json!({ "cidrs": ["10.64.7.0/24"] })), "WorkloadNetwork pods"),
        (
            of_kind("AddressPool", "lab", json!({}), json!({ "addresses": ["10.64.0.0/28"] })),
            "10.64.0.0/16 of WorkloadNetwork pods",
        ),
        (of_kind("Node", "n1", json!({}), json!({ "addresses": ["10.64.0.1"] })), "WorkloadNetwork pods"),
        (
            of_kind("Node", "n1", json!({}), json!({ "workloadCIDRs": ["10.64.1.0/24"] })),
            "WorkloadNetwork pods",
        ),
        (of_kind("Service", "web", json!({}), service), "workload network 192.0.2.0/25"),
    ] {
        let found = violations(cluster.apply(&object));
        assert!(found.iter().any(|one| one.message.contains(named)), "{named}: {found:?}");
    }
    // The network itself may change.
    cluster.apply(&network_of("pods", json!({ "cidrs": ["10.64.0.0/15"], "mtu": 1400 }))).unwrap();
}

#[test]
fn a_network_without_meaning_is_refused_with_each_field() {
    let mut cluster = Cluster::new();
    for (spec, pointer) in [
        (json!({ "cidrs": [] }), "/spec/cidrs"),
        (json!({ "cidrs": ["10.64.0.1/16"] }), "/spec/cidrs/0"),
        (json!({ "cidrs": ["127.0.0.0/8"] }), "/spec/cidrs/0"),
        (json!({ "cidrs": ["10.64.0.0/16", "10.64.1.0/24"] }), "/spec/cidrs/1"),
        (json!({ "cidrs": ["10.64.0.0/27"] }), "/spec/cidrs/0"),
        (json!({ "cidrs": ["10.64.0.0/16"], "blockSize": { "ipv4": 31 } }), "/spec/blockSize/ipv4"),
        (json!({ "cidrs": ["10.64.0.0/16"], "natExcept": ["10.0.0.0/8"] }), "/spec/natExcept"),
        (json!({ "cidrs": ["10.64.0.0/16"], "reserved": ["10.65.0.1"] }), "/spec/reserved/0"),
        (json!({ "cidrs": ["10.64.0.0/16"], "mtu": 1279 }), "/spec/mtu"),
        (json!({ "cidrs": ["10.64.0.0/16"], "cooldownSeconds": 86401 }), "/spec/cooldownSeconds"),
        (json!({ "cidrs": ["10.64.0.0/16"], "encapsulation": "Geneve" }), "/spec/encapsulation"),
        (json!({ "cidrs": ["10.0.0.0/9"], "blockSize": { "ipv4": 28 } }), "/spec/blockSize/ipv4"),
        (json!({ "cidrs": ["10.64.0.0/16"], "reservedLabels": ["a b"] }), "/spec/reservedLabels/0"),
        (json!({ "cidrs": ["10.64.0.0/16"], "namespaces": { "names": ["*"] } }), "/spec/namespaces/names/0"),
        (json!({ "cidrs": ["10.64.0.0/16"], "encryption": "Required" }), "/spec/encryption"),
    ] {
        let value = network_of("pods", spec.clone());
        let found = match decode(&value, &Expect::default()) {
            Err(found) => found,
            Ok(_) => violations(cluster.apply(&value)),
        };
        assert!(found.iter().any(|one| one.pointer.ends_with(pointer)), "{spec}: {found:?}");
    }
}

/// Input: IPIP for networks of both families. Output: IPv6 is refused with the network and the remedy; IPv4 alone is accepted
/// and sent to nodes. (F156)
#[test]
fn f156_ipip_is_refused_for_ipv6_networks() {
    let mut cluster = Cluster::new();
    for cidrs in [json!(["10.64.0.0/16", "fd00:64::/112"]), json!(["fd00:64::/112"])] {
        let spec = json!({ "cidrs": cidrs, "encapsulation": "Ipip" });
        let found = decode(&network_of("pods", spec), &Expect::default()).err().unwrap_or_default();
        let [refused] = found.as_slice() else { panic!("{found:?}") };
        assert!(refused.pointer.ends_with("/spec/encapsulation"), "{refused:?}");
        assert!(refused.message.contains("fd00:64::/112"), "{refused:?}");
        assert!(refused.hint.as_deref().is_some_and(|hint| hint.contains("Vxlan")), "{refused:?}");
    }
    let spec = json!({ "cidrs": ["10.64.0.0/16"], "encapsulation": "Ipip", "when": "Always" });
    cluster.apply(&network_of("pods", spec)).unwrap();
    let state = compile_network(&cluster.snapshot, &Name::parse("pods").unwrap()).unwrap();
    let sent = serde_json::to_value(&state).unwrap();
    assert_eq!((&sent["encapsulation"], &sent["when"]), (&json!("Ipip"), &json!("Always")));
}

#[test]
fn nodes_receive_the_settings_and_treat_the_addresses_as_workloads() {
    let mut cluster = Cluster::new();
    let spec =
        json!({ "cidrs": ["10.64.0.0/16"], "natOutgoing": true, "natExcept": ["10.0.0.0/8"], "mtu": 1400 });
    cluster.apply(&network_of("pods", spec)).unwrap();
    assert_eq!(network(&cluster.snapshot).workload_cidrs, ["10.64.0.0/16".parse().unwrap()].into());
    let state = compile_network(&cluster.snapshot, &Name::parse("pods").unwrap()).unwrap();
    let expected = json!({
        "name": "pods", "revision": 0, "cidrs": ["10.64.0.0/16"], "encapsulation": "Vxlan", "when": "CrossSubnet",
        "natOutgoing": true, "natExcept": ["10.0.0.0/8"], "cooldownSeconds": 60, "mtu": 1400,
    });
    assert_eq!(serde_json::to_value(&state).unwrap(), expected);
}
