//! Limits of agents, and Workloads with Attachments that clients write too.

use std::net::IpAddr;

use model::{
    admission::admit::{ApplySet, BLOCKS_GIVEN_MAX, Operation, Request},
    cluster::{change::Action, quota::Quotas},
    kinds::resource::Kind,
    wire::attachments::{AttachmentResult, RefusedAttachment},
};
use serde_json::{Value, json};

use crate::{
    blocks::{changes, entry, label, name, node, pods, removal, report},
    support::{Cluster, object, of_kind},
};

fn cluster(spec: Value) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.apply_many(&[node("n1", "a"), pods(spec)], None).unwrap();
    cluster
}

fn addresses(cluster: &Cluster, workload: &str) -> Vec<String> {
    let workload = cluster.get(&format!("workloads/{workload}"));
    workload.as_workload().unwrap().addresses.iter().map(IpAddr::to_string).collect()
}

/// Input: Attachments in several namespaces, and with labels that agents must not set. Output: agents create Workloads in the
/// permitted namespaces without these labels, and attach declared Workloads of their Node everywhere.
#[test]
fn agents_create_workloads_in_permitted_namespaces_without_reserved_labels() {
    let mut strict = Cluster::new();
    let network = of_kind("WorkloadNetwork", "pods", json!({}), json!({ "cidrs": ["10.64.0.0/16"] }));
    strict.apply_many(&[node("n1", "a"), network], None).unwrap();
    let both = changes(&[
        ("c1", entry("default/web", json!(["10.64.0.1"]))),
        ("c2", entry("shop/web", json!(["10.64.0.2"]))),
    ]);
    let refused = report(&mut strict, "n1", both.clone());
    assert_eq!(refused, [(label("c2"), RefusedAttachment::NamespaceNotAllowed)].into());
    // The administrator declares the Workload.
    let mut declared = of_kind("Workload", "web", json!({ "tier": "db" }), json!({ "node": "n1" }));
    declared["metadata"]["namespace"] = json!("shop");
    strict.apply(&declared).unwrap();
    assert!(report(&mut strict, "n1", both.clone()).is_empty());
    assert_eq!(addresses(&strict, "shop/web"), ["10.64.0.2"]);

    let spec =
        json!({ "cidrs": ["10.64.0.0/16"], "namespaces": { "from": "All" }, "reservedLabels": ["tier"] });
    let mut open = cluster(spec);
    assert!(report(&mut open, "n1", both).is_empty());
    let labelled = |id: &str, key: &str, address: &str| {
        let mut request = entry(&format!("shop/{id}"), json!([address]));
        request.labels.insert(key.to_owned(), "db".to_owned());
        request
    };
    let refused = report(
        &mut open,
        "n1",
        changes(&[
            ("l1", labelled("l1", "tier", "10.64.0.3")),
            ("l2", labelled("l2", "tidegate.io/source", "10.64.0.4")),
            ("l3", labelled("l3", "team", "10.64.0.5")),
        ]),
    );
    let reserved = RefusedAttachment::LabelNotAllowed;
    assert_eq!(refused, [(label("l1"), reserved), (label("l2"), reserved)].into());
    assert_eq!(open.snapshot.list(Kind::Workload, None, None).count(), 3);
}

/// Input: Attachments for Workloads to which a user has given addresses. Output: an Attachment that would replace one is refused,
/// and the Workload keeps it; one of the other IP family is recorded, and its end leaves the address of the user.
#[test]
fn an_attachment_does_not_replace_addresses_that_a_user_has_given() {
    let mut cluster = cluster(json!({ "cidrs": ["10.64.0.0/16", "fd00:64::/112"] }));
    let given = |name: &str| {
        of_kind("Workload", name, json!({}), json!({ "node": "n1", "addresses": ["192.0.2.11"] }))
    };
    for name in ["web", "six"] {
        cluster.apply(&given(name)).unwrap();
    }
    let both = changes(&[
        ("c1", entry("default/web", json!(["10.64.0.1", "fd00:64::1"]))),
        ("c2", entry("default/six", json!(["fd00:64::2"]))),
    ]);
    let refused = report(&mut cluster, "n1", both.clone());
    assert_eq!(refused, [(label("c1"), RefusedAttachment::WorkloadHasAddress)].into());
    assert_eq!(addresses(&cluster, "default/web"), ["192.0.2.11"]);
    assert_eq!(addresses(&cluster, "default/six"), ["192.0.2.11", "fd00:64::2"]);
    report(&mut cluster, "n1", removal(&["c1", "c2"]));
    for workload in ["default/web", "default/six"] {
        assert_eq!(addresses(&cluster, workload), ["192.0.2.11"], "{workload}");
    }
    // The user removes the address, and the next report is accepted.
    cluster.apply(&of_kind("Workload", "web", json!({}), json!({ "node": "n1", "addresses": [] }))).unwrap();
    assert!(report(&mut cluster, "n1", both.clone()).is_empty());
    assert!(report(&mut cluster, "n1", both).is_empty(), "a repeated report is accepted");
}

/// A reason that a later version of the control server gives does not make an agent reject the whole answer.
#[test]
fn an_unknown_reason_of_a_refusal_is_read() {
    let answer =
        json!({ "position": "1-1", "refused": { "c1": { "reason": "Quarantined", "message": "x" } } });
    let result: AttachmentResult = serde_json::from_value(answer).unwrap();
    assert_eq!(result.refused[&label("c1")].reason, RefusedAttachment::Other);
}

/// Input: a declared Workload that is applied again without addresses while it is attached. Output: its addresses stay, and the
/// write changes nothing.
#[test]
fn a_workload_that_is_applied_again_keeps_the_addresses_of_its_attachment() {
    let mut cluster = cluster(json!({ "cidrs": ["10.64.0.0/16"] }));
    let declared = of_kind("Workload", "web", json!({}), json!({ "node": "n1" }));
    cluster.apply(&declared).unwrap();
    assert!(
        report(&mut cluster, "n1", changes(&[("c1", entry("default/web", json!(["10.64.0.1"])))])).is_empty()
    );
    assert_eq!(cluster.apply(&declared).unwrap(), Action::Unchanged);
    assert_eq!(addresses(&cluster, "default/web"), ["10.64.0.1"]);
    let changed = of_kind("Workload", "web", json!({ "app": "db" }), json!({ "node": "n1" }));
    assert_eq!(cluster.apply(&changed).unwrap(), Action::Updated);
    assert_eq!(addresses(&cluster, "default/web"), ["10.64.0.1"]);
    // The end of the Attachment takes the address and leaves the Workload.
    report(&mut cluster, "n1", removal(&["c1"]));
    assert_eq!(addresses(&cluster, "default/web"), [""; 0]);
}

/// Input: a Workload that an agent created, and that a client declares, changes, or deletes and creates anew. Output: the end
/// of the Attachment deletes only the one that was merely changed.
#[test]
fn a_workload_that_a_client_declares_outlives_its_attachment() {
    let mut cluster = cluster(json!({ "cidrs": ["10.64.0.0/16"] }));
    let names = ["applied", "changed", "recreated"];
    let entries: Vec<_> = (1..)
        .zip(names)
        .map(|(host, name)| (name, entry(&format!("default/{name}"), json!([format!("10.64.0.{host}")]))))
        .collect();
    assert!(report(&mut cluster, "n1", changes(&entries)).is_empty());
    let declared = |name: &str| of_kind("Workload", name, json!({ "app": "web" }), json!({ "node": "n1" }));
    cluster.apply(&declared("applied")).unwrap();
    let mut patched = cluster.get("workloads/default/changed").clone();
    patched.metadata.labels.insert("team".to_owned(), "a".to_owned());
    let operations = vec![Operation::Replace { object: patched, if_revision: None }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    cluster.delete("workloads/default/recreated").unwrap();
    let operations = vec![Operation::Create(object(&declared("recreated")))];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    assert_eq!(addresses(&cluster, "default/recreated"), ["10.64.0.3"], "in the same write");
    report(&mut cluster, "n1", removal(&names));
    let left: Vec<_> = cluster.snapshot.list(Kind::Workload, None, None).collect();
    let left: Vec<_> = left.iter().map(|object| object.metadata.name.as_str()).collect();
    assert_eq!(left, ["applied", "recreated"]);
}

/// Input: Workloads of an agent and of a user, in an apply set without adoption. Output: the set gets the one of the agent, with
/// its labels and the address of the Attachment, and not the other one.
#[test]
fn an_apply_set_without_adoption_gets_the_workloads_of_agents() {
    let mut cluster = cluster(json!({ "cidrs": ["10.64.0.0/16"] }));
    let pod = |name: &str| {
        of_kind(
            "Workload",
            name,
            json!({ "app": "web" }),
            json!({ "node": "n1", "addresses": ["10.64.0.1"] }),
        )
    };
    let set =
        || Some(ApplySet { name: name("blue"), scope: None, prune: false, prune_limit: None, adopt: false });
    assert!(
        report(&mut cluster, "n1", changes(&[("c1", entry("default/pod", json!(["10.64.0.1"])))])).is_empty()
    );
    cluster.apply(&of_kind("Workload", "user", json!({}), json!({ "node": "n1" }))).unwrap();
    assert!(cluster.apply_many(&[pod("user")], set()).is_err());
    cluster.apply_many(&[pod("pod")], set()).unwrap();
    let metadata = cluster.get("workloads/default/pod").metadata.clone();
    assert_eq!((metadata.apply_set, metadata.labels["app"].as_str()), (Some(name("blue")), "web"));
    assert_eq!(addresses(&cluster, "default/pod"), ["10.64.0.1"]);
    // The set keeps it.
    report(&mut cluster, "n1", removal(&["c1"]));
    assert_eq!(addresses(&cluster, "default/pod"), [""; 0]);
}

/// Input: more entries than the quota of their namespace permits, and one of another namespace. Output: those that fit are
/// recorded in one write, and the others are refused.
#[test]
fn a_report_fills_the_quota_of_a_namespace_in_one_write() {
    let mut cluster = cluster(json!({ "cidrs": ["10.64.0.0/16"] }));
    let quotas = Quotas::new(["shop/workloads=3".parse().unwrap()]);
    cluster.config = cluster.config.clone().with_quotas(quotas);
    let ids: Vec<_> = (10..60).map(|host| format!("c{host}")).collect();
    let mut entries: Vec<_> = ids
        .iter()
        .map(|id| (id.as_str(), entry(&format!("shop/{id}"), json!([format!("10.64.0.{}", &id[1..])]))))
        .collect();
    entries.push(("other", entry("default/other", json!(["10.64.0.1"]))));
    let before = cluster.snapshot.revision();
    let refused = report(&mut cluster, "n1", changes(&entries));
    assert_eq!(refused.len(), 47);
    assert!(refused.values().all(|reason| *reason == RefusedAttachment::LimitReached), "{refused:?}");
    assert_eq!(cluster.snapshot.count(Kind::Attachment), 4);
    assert_eq!(cluster.snapshot.revision(), before.next());
    // The recorded ones may be reported again.
    let recorded = changes(&entries[..3]);
    assert!(report(&mut cluster, "n1", recorded).is_empty());
}

/// Input: a network that selects more Nodes than one write gives blocks. Output: the next writes of the task give the others
/// theirs.
#[test]
fn nodes_that_a_write_leaves_without_a_block_get_one_in_the_next_writes() {
    let mut cluster = Cluster::new();
    let nodes = BLOCKS_GIVEN_MAX / 2 + 1;
    let objects: Vec<_> =
        (0..nodes).map(|at| of_kind("Node", &format!("n{at}"), json!({}), json!({}))).collect();
    cluster.apply_many(&objects, None).unwrap();
    cluster.apply(&pods(json!({ "cidrs": ["10.64.0.0/13", "fd00:64::/104"] }))).unwrap();
    assert_eq!(cluster.snapshot.count(Kind::Block), BLOCKS_GIVEN_MAX);
    assert_eq!(cluster.snapshot.lacking_block_count(), 1);
    let operations = vec![Operation::RetryPending { after: None }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    assert_eq!(cluster.snapshot.lacking_block_count(), 0);
    assert_eq!(cluster.snapshot.blocks_of(&name(&format!("n{}", nodes - 1))).count(), 2);
}
