//! Interfaces that Workloads declare: permitted by the WorkloadNetwork, sent to their Node, and reported by its agent.

use std::net::IpAddr;

use model::{
    admission::{
        admit::{Operation, Request},
        decode::{Expect, decode},
    },
    compile::node_state,
    kinds::attachment::{AttachmentKind, AttachmentSpec, InterfaceFault, InterfaceFaultReason},
    observed::{
        rollup::{attachment_status, workload_status},
        status::{Condition, ConditionType},
    },
    primitives::{name::Namespace, violation::ViolationCode},
    wire::attachments::{AttachmentRequest, RefusedAttachment},
};
use serde_json::{Value, json};

use crate::{
    blocks::{changes, entry, label, name, node, pods, removal, report},
    support::{Cluster, object, of_kind, violations},
};

/// Returns a cluster of two nodes, each with a block of 64 addresses: `10.64.0.0/26` and `10.64.0.64/26`.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let spec = json!({
        "cidrs": ["10.64.0.0/16"], "namespaces": { "names": ["default", "shop"] },
        "interfaces": { "names": ["tap*", "eth1"], "networkNamespaces": ["vm-*"] },
    });
    cluster.apply_many(&[node("n1", "a"), node("n2", "a"), pods(spec)], None).unwrap();
    cluster
}

fn tap(interface: &str) -> Value {
    json!({ "network": "pods", "kind": "Tap", "name": interface })
}

fn workload(name: &str, interface: Value, addresses: &[&str]) -> Value {
    of_kind(
        "Workload",
        name,
        json!({}),
        json!({ "node": "n1", "interface": interface, "addresses": addresses }),
    )
}

/// Applies an object, and returns the JSON pointers and codes of its violations.
fn refused(cluster: &mut Cluster, object: &Value) -> Vec<(String, ViolationCode)> {
    let found = match decode(object, &Expect::default()) {
        Err(found) => found.into_iter().map(|one| (one.pointer, one.code)).collect(),
        Ok(_) => violations(cluster.apply(object)),
    };
    found.into_iter().map(|(at, code)| (at.trim_start_matches("/items/0").to_owned(), code)).collect()
}

/// Returns the entry of a report for an interface that a Workload of the namespace `default` declares.
fn declared(name: &str, interface: &str, addresses: &[&str]) -> AttachmentRequest {
    let mut request = entry(&format!("default/{name}"), json!(addresses));
    request.labels = Default::default();
    request.kind = AttachmentKind::Tap;
    request.interface = interface.to_owned();
    request.declared = true;
    request
}

fn addresses(cluster: &Cluster, workload: &str) -> Vec<String> {
    let found = cluster.get(&format!("workloads/default/{workload}"));
    found.as_workload().unwrap().addresses.iter().map(IpAddr::to_string).collect()
}

fn attachments(cluster: &Cluster) -> Vec<AttachmentSpec> {
    let all = cluster.snapshot.attachments_of_node(&name("n1"));
    all.filter_map(|object| object.as_attachment().cloned()).collect()
}

/// Input: declared interfaces with one fault each. Output: each is refused at its field.
#[test]
fn an_interface_must_be_permitted_and_its_addresses_of_a_block_of_the_node() {
    let mut cluster = cluster();
    cluster.apply(&workload("first", tap("tap1"), &["10.64.0.9"])).unwrap();
    use ViolationCode::{AddressNotAllowed, AddressTaken, Conflict, Forbidden, Invalid, NotFound, Required};
    let veth = |namespace: &str| json!({ "network": "pods", "kind": "Veth", "name": "eth0", "networkNamespace": namespace });
    let none: &[&str] = &[];
    for (interface, addresses, expected) in [
        (tap("eth0"), none, ("/spec/interface/name", Forbidden)),
        (tap("tap 0"), none, ("/spec/interface/name", Invalid)),
        (tap("tap0/../lo"), none, ("/spec/interface/name", Invalid)),
        (tap("tap0123456789012"), none, ("/spec/interface/name", Invalid)),
        (tap("lo"), none, ("/spec/interface/name", Invalid)),
        (tap("all"), none, ("/spec/interface/name", Invalid)),
        (tap("tg-vx"), none, ("/spec/interface/name", Invalid)),
        (veth("other"), none, ("/spec/interface/networkNamespace", Forbidden)),
        (veth("../vm-1"), none, ("/spec/interface/networkNamespace", Invalid)),
        (
            json!({ "network": "pods", "kind": "Veth", "name": "eth0" }),
            none,
            ("/spec/interface/networkNamespace", Invalid),
        ),
        (
            json!({ "network": "pods", "kind": "Tap", "name": "tap2", "networkNamespace": "vm-1" }),
            none,
            ("/spec/interface/networkNamespace", Invalid),
        ),
        (
            json!({ "network": "pods", "kind": "Tap", "name": "tap2", "mac": "01:00:5e:00:00:01" }),
            none,
            ("/spec/interface/mac", Invalid),
        ),
        (
            json!({ "network": "vms", "kind": "Tap", "name": "tap2" }),
            none,
            ("/spec/interface/network", NotFound),
        ),
        (tap("tap2"), &["10.64.0.65"], ("/spec/addresses/0", AddressNotAllowed)),
        (tap("tap2"), &["10.99.0.1"], ("/spec/addresses/0", AddressNotAllowed)),
        (tap("tap2"), &["10.64.0.9"], ("/spec/addresses/0", AddressTaken)),
    ] {
        let found = refused(&mut cluster, &workload("second", interface.clone(), addresses));
        assert_eq!(found, [(expected.0.to_owned(), expected.1)], "{interface}");
    }
    let mut without_node = workload("second", tap("tap2"), none);
    without_node["spec"].as_object_mut().unwrap().remove("node");
    assert_eq!(refused(&mut cluster, &without_node), [("/spec/node".to_owned(), Required)]);
    let placed = |namespace: &str, interface: Value| {
        let mut object = workload("second", interface, none);
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let other = refused(&mut cluster, &placed("secret", tap("tap2")));
    assert_eq!(other, [("/spec/interface/network".to_owned(), Forbidden)]);
    // An interface belongs to one namespace; several of its Workloads can be behind it.
    let shared = refused(&mut cluster, &placed("shop", tap("tap1")));
    assert_eq!(shared, [("/spec/interface/name".to_owned(), Conflict)]);
    cluster.apply(&workload("second", tap("tap1"), &["10.64.0.10"])).unwrap();
    cluster.apply(&workload("third", veth("vm-1"), none)).unwrap();
    assert_eq!(
        refused(&mut cluster, &workload("fourth", veth("vm-1"), none)),
        [("/spec/interface/name".to_owned(), Conflict)]
    );
    cluster.apply(&workload("fourth", veth("vm-2"), none)).unwrap();
    let patterns = json!({ "cidrs": ["10.65.0.0/16"], "interfaces": { "names": ["*", "a*b"], "networkNamespaces": [""] } });
    let found = refused(&mut cluster, &of_kind("WorkloadNetwork", "odd", json!({}), patterns));
    let expected = ["/spec/interfaces/names/1", "/spec/interfaces/networkNamespaces/0"];
    assert_eq!(found, expected.map(|at| (at.to_owned(), Invalid)));
}

/// Input: a network that no longer permits an interface. Output: the Workload stays valid as long as its interface is unchanged.
#[test]
fn an_unchanged_interface_outlasts_the_permission() {
    let mut cluster = cluster();
    let mut object = workload("vm", tap("tap0"), &["10.64.0.9"]);
    cluster.apply(&object).unwrap();
    cluster.apply(&pods(json!({ "cidrs": ["10.64.0.0/16"] }))).unwrap();
    object["metadata"]["labels"] = json!({ "app": "web" });
    cluster.apply(&object).unwrap();
    object["spec"]["interface"] = tap("tap1");
    assert_eq!(
        refused(&mut cluster, &object),
        [("/spec/interface/name".to_owned(), ViolationCode::Forbidden)]
    );
}

/// Input: Workloads that declare an interface. Output: their Node receives the interfaces with the addresses, and no other Node
/// does.
#[test]
fn a_node_receives_the_interfaces_that_workloads_declare_on_it() {
    let mut cluster = cluster();
    cluster.apply(&workload("vm", tap("tap0"), &["10.64.0.9"])).unwrap();
    cluster.apply(&of_kind("Workload", "plain", json!({}), json!({ "node": "n1" }))).unwrap();
    let of = |cluster: &Cluster, node: &str| node_state(&cluster.snapshot, &name(node), 64512).interfaces;
    let sent = of(&cluster, "n1");
    assert_eq!(sent.keys().map(ToString::to_string).collect::<Vec<_>>(), ["default/vm"]);
    let interface = sent.values().next().unwrap();
    assert_eq!((interface.name.as_str(), interface.addresses.len()), ("tap0", 1));
    assert!(of(&cluster, "n2").is_empty());
    cluster.delete("workloads/default/vm").unwrap();
    assert!(of(&cluster, "n1").is_empty());
}

/// Input: reports of a declared interface whose addresses the agent has assigned. Output: the Workload has them, also after it
/// is applied again; they stay while the agent does not report, and end with the declaration. False reports are refused.
#[test]
fn addresses_of_a_declared_interface_follow_the_declaration() {
    let mut cluster = cluster();
    let manifest = workload("vm", tap("tap0"), &[]);
    cluster.apply(&manifest).unwrap();
    let id = |id: &str, request: AttachmentRequest| changes(&[(id, request)]);
    let not_declared = [(label("d1"), RefusedAttachment::NotDeclared)];
    for false_report in [
        declared("vm", "tap9", &["10.64.0.3"]),
        declared("plain", "tap0", &["10.64.0.3"]),
        AttachmentRequest { kind: AttachmentKind::Host, ..declared("vm", "tap0", &["10.64.0.3"]) },
    ] {
        assert_eq!(report(&mut cluster, "n1", id("d1", false_report)), not_declared.clone().into());
    }
    assert!(report(&mut cluster, "n1", id("d1", declared("vm", "tap0", &["10.64.0.3"]))).is_empty());
    assert_eq!(addresses(&cluster, "vm"), ["10.64.0.3"]);
    assert!(attachments(&cluster)[0].declared && !attachments(&cluster)[0].owns_workload);
    cluster.apply(&manifest).unwrap();
    assert_eq!(
        (addresses(&cluster, "vm").as_slice(), attachments(&cluster).len()),
        (["10.64.0.3".to_owned()].as_slice(), 1)
    );
    // Another address than the Workload has.
    assert_eq!(
        report(&mut cluster, "n1", id("d1", declared("vm", "tap0", &["10.64.0.4"]))),
        not_declared.into()
    );

    report(&mut cluster, "n1", removal(&["d1"]));
    assert_eq!((addresses(&cluster, "vm"), attachments(&cluster).len()), (vec!["10.64.0.3".to_owned()], 0));
    assert!(report(&mut cluster, "n1", id("d1", declared("vm", "tap0", &["10.64.0.3"]))).is_empty());

    // A user states another address: the record of the former one ends, and the agent reports anew.
    cluster.apply(&workload("vm", tap("tap0"), &["10.64.0.7"])).unwrap();
    assert_eq!((addresses(&cluster, "vm"), attachments(&cluster).len()), (vec!["10.64.0.7".to_owned()], 0));
    assert!(report(&mut cluster, "n1", id("d1", declared("vm", "tap0", &["10.64.0.7"]))).is_empty());

    // A change that removes the interface takes the addresses with it, which the agent gives to others.
    let mut plain = workload("vm", tap("tap0"), &["10.64.0.7"]);
    plain["spec"].as_object_mut().unwrap().remove("interface");
    let replaced = Operation::Replace { object: object(&plain), if_revision: None };
    cluster.write(&Request { operations: vec![replaced], ..Request::default() }).unwrap();
    assert_eq!((addresses(&cluster, "vm").len(), attachments(&cluster).len()), (0, 0));

    cluster.apply(&manifest).unwrap();
    assert!(report(&mut cluster, "n1", id("d1", declared("vm", "tap0", &["10.64.0.8"]))).is_empty());
    cluster.delete("workloads/default/vm").unwrap();
    assert_eq!(attachments(&cluster).len(), 0);
}

/// Input: a Workload whose interface is not reported, then missing, then configured. Output: the condition names each state.
#[test]
fn the_state_of_a_declared_interface_is_a_condition() {
    let mut cluster = cluster();
    cluster.apply(&workload("vm", tap("tap0"), &["10.64.0.3"])).unwrap();
    let condition = |cluster: &Cluster| -> Condition {
        let object = cluster.get("workloads/default/vm");
        let namespace = Namespace::parse("default").unwrap();
        let spec = object.as_workload().unwrap();
        let status = workload_status(&cluster.snapshot, &namespace, &object.metadata, spec);
        status.conditions.into_iter().find(|one| one.condition_type == ConditionType::Programmed).unwrap()
    };
    assert_eq!(condition(&cluster).reason.as_str(), "InterfacePending");
    let fault = |reason| InterfaceFault { reason, message: "cause".to_owned() };
    for (found, expected) in [
        (Some(fault(InterfaceFaultReason::Missing)), "InterfaceMissing"),
        (Some(fault(InterfaceFaultReason::Refused)), "InterfaceRefused"),
        (Some(fault(InterfaceFaultReason::Failed)), "InterfacePending"),
        (None, "Attached"),
    ] {
        let request = AttachmentRequest { fault: found, ..declared("vm", "tap0", &["10.64.0.3"]) };
        assert!(report(&mut cluster, "n1", changes(&[("d1", request)])).is_empty());
        assert_eq!(condition(&cluster).reason.as_str(), expected);
        let status = attachment_status(&cluster.snapshot, &attachments(&cluster)[0]);
        assert_eq!(status.conditions[1], condition(&cluster));
    }
    let long = InterfaceFault { message: "x".repeat(1025), ..fault(InterfaceFaultReason::Failed) };
    let request = AttachmentRequest { fault: Some(long), ..declared("vm", "tap0", &["10.64.0.3"]) };
    let refused = report(&mut cluster, "n1", changes(&[("d1", request)]));
    assert_eq!(refused, [(label("d1"), RefusedAttachment::Invalid)].into());
}
