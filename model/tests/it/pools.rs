//! Pools and load balancer addresses: allocation, sharing, refusal, quarantine and eviction, with the reasons.

use std::net::IpAddr;

use model::{
    admission::admit::{Operation, Refusal, Request},
    cluster::change::Action,
    kinds::resource::ObjectKey,
    primitives::violation::{
        Violation,
        ViolationCode::{self, AddressNotAllowed, AddressTaken, Conflict, InUse, Invalid, NotFound, Overlap},
    },
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, object, of_kind, service, violations};

fn pool(name: &str, spec: Value) -> Value {
    of_kind("AddressPool", name, json!({}), spec)
}

/// Returns a pool whose released addresses are free at once, because its quarantine is 0 seconds.
fn simple(name: &str, addresses: &[&str]) -> Value {
    pool(name, json!({ "addresses": addresses, "quarantineSeconds": 0 }))
}

fn balancer(name: &str, load_balancer: Value) -> Value {
    let spec = json!({ "type": "LoadBalancer", "loadBalancer": load_balancer, "ports": [{ "port": 80 }] });
    service(name, spec)
}

fn with(mut value: Value, pointer: &str, more: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[field] = more;
    value
}

fn has(cluster: &Cluster, name: &str) -> Vec<String> {
    cluster.snapshot.addresses_of(&key(name)).map(|address| address.to_string()).collect()
}

fn evict(cluster: &mut Cluster, value: &Value) -> Result<(), Refusal> {
    let operations = vec![Operation::Apply(object(value))];
    cluster.write(&Request { operations, evict: true, ..Request::default() }).map(|_| ())
}

fn refusal(result: Result<Action, Refusal>) -> Violation {
    match result {
        Err(Refusal::Invalid(found)) if found.len() == 1 => found.into_iter().next().unwrap(),
        other => panic!("must be refused for one field, was {other:?}"),
    }
}

fn said(result: Result<Action, Refusal>) -> (String, ViolationCode, String) {
    let Violation { pointer, code, message, .. } = refusal(result);
    (pointer, code, message)
}

/// Submits an empty write, which removes expired quarantines and allocates addresses to pending Services.
fn turn(cluster: &mut Cluster) {
    cluster.write(&Request::default()).unwrap();
}

/// F118: addresses of both IP families are allocated in order, each to one Service, and recorded with their pool.
#[test]
fn f118_addresses_are_allocated_from_the_ranges_only() {
    let mut cluster = Cluster::new();
    let ranges = ["198.51.100.8/31", "198.51.100.20-198.51.100.21", "2001:db8:1::/127"];
    cluster.apply(&simple("blue", &ranges)).unwrap();
    let mut given = Vec::new();
    for n in 0..5 {
        cluster.apply(&balancer(&format!("s{n}"), json!({}))).unwrap();
        given.extend(has(&cluster, &format!("s{n}")));
    }
    assert_eq!(given, ["198.51.100.8", "198.51.100.9", "198.51.100.20", "198.51.100.21"]);
    let six = with(balancer("six", json!({})), "/spec/ipFamilies", json!(["IPv6"]));
    cluster.apply(&six).unwrap();
    assert_eq!(has(&cluster, "six"), ["2001:db8:1::"]);
    let record = cluster.get("addresses//198.51.100.8").as_address().unwrap();
    assert_eq!((record.pool.as_ref().unwrap().as_str(), record.services.len()), ("blue", 1));
    // Reserved addresses and those that old devices drop are skipped.
    let careful = json!({ "addresses": ["203.0.113.255", "203.0.114.0-203.0.114.3"], "avoidBuggyIPs": true, "reserved": ["203.0.114.2"], "priority": 1 });
    cluster.apply(&pool("careful", careful)).unwrap();
    assert_eq!(has(&cluster, "s4"), ["203.0.114.1"], "the Service that waited is served in the very write");
    cluster.apply(&balancer("s5", json!({}))).unwrap();
    cluster.apply(&balancer("s6", json!({}))).unwrap();
    assert_eq!((has(&cluster, "s5"), has(&cluster, "s6")), (vec!["203.0.114.3".to_owned()], vec![]));
}

/// F119, F120: a Service receives an address of the pool that it names, or else of the first matching pool. Pools
/// with selectors precede those without; priority orders each group. A named pool does not need `autoAssign`.
#[test]
fn f119_f120_a_pool_is_chosen_by_name_then_by_selector_then_by_priority() {
    let mut cluster = Cluster::new();
    let one = |last: u8, more: Value| {
        let mut spec = json!({ "addresses": [format!("198.51.100.{last}0-198.51.100.{last}9")] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let gold = json!({ "matchLabels": { "tier": "gold" } });
    for value in [
        pool("all-late", one(1, json!({}))),
        pool("all-first", one(2, json!({ "priority": 7 }))),
        pool("by-hand", one(3, json!({ "autoAssign": false, "priority": 1 }))),
        pool("gold-late", one(4, json!({ "serviceSelectors": [gold] }))),
        pool("gold-first", one(5, json!({ "serviceSelectors": [gold], "priority": 9 }))),
        pool("elsewhere", one(6, json!({ "namespaces": ["other"], "priority": 1 }))),
    ] {
        cluster.apply(&value).unwrap();
    }
    let golden =
        |name: &str, asked: Value| with(balancer(name, asked), "/metadata/labels", json!({ "tier": "gold" }));
    for (value, wanted) in [
        (balancer("plain", json!({})), "198.51.100.20"),
        (golden("golden", json!({})), "198.51.100.50"),
        (balancer("named", json!({ "pool": "by-hand" })), "198.51.100.30"),
        (balancer("asked", json!({ "addresses": ["198.51.100.35"] })), "198.51.100.35"),
        (golden("both", json!({ "pool": "all-late" })), "198.51.100.10"),
    ] {
        cluster.apply(&value).unwrap();
        let name = value["metadata"]["name"].as_str().unwrap();
        assert_eq!(has(&cluster, name), [wanted], "{name}");
    }
    // Allocated addresses stay when a better pool appears; a named pool moves the Service.
    cluster.apply(&pool("best", one(7, json!({ "priority": 1 })))).unwrap();
    cluster.apply(&with(balancer("plain", json!({})), "/metadata/labels", json!({ "a": "b" }))).unwrap();
    assert_eq!(has(&cluster, "plain"), ["198.51.100.20"]);
    cluster.apply(&balancer("plain", json!({ "pool": "best" }))).unwrap();
    assert_eq!(has(&cluster, "plain"), ["198.51.100.70"]);
    // A Service loses its address with the label that the pool selects.
    cluster.apply(&balancer("golden", json!({}))).unwrap();
    assert_eq!(has(&cluster, "golden"), ["198.51.100.71"]);
}

/// F121: a requested address is allocated if it is free and in a pool for the Service; all others are refused with
/// the reason.
#[test]
fn f121_a_requested_address_is_allocated_or_refused_with_the_reason() {
    let mut cluster = Cluster::new();
    cluster
        .apply(&of_kind(
            "Node",
            "n1",
            json!({}),
            json!({ "addresses": ["192.0.2.1"], "workloadCIDRs": ["10.1.0.0/24"] }),
        ))
        .unwrap();
    let mut blue =
        json!({ "addresses": ["198.51.100.0/29"], "reserved": ["198.51.100.2"], "avoidBuggyIPs": true });
    cluster.apply(&pool("blue", blue.clone())).unwrap();
    let other = json!({ "addresses": ["203.0.113.0/29"], "namespaces": ["other"] });
    cluster.apply(&pool("other", other)).unwrap();
    cluster.apply(&balancer("first", json!({ "addresses": ["198.51.100.5"] }))).unwrap();
    assert_eq!(has(&cluster, "first"), ["198.51.100.5"]);
    assert_eq!(cluster.service("first").load_balancer.as_ref().unwrap().addresses.len(), 1, "as written");
    cluster.apply(&balancer("gone", json!({ "addresses": ["198.51.100.6"] }))).unwrap();
    cluster.delete("services/default/gone").unwrap();
    cluster
        .apply(&service("ext", json!({ "externalIPs": ["192.0.2.9"], "ports": [{ "port": 443 }] })))
        .unwrap();
    let at = "/items/0/spec/loadBalancer/addresses/0";
    for (address, code, why) in [
        ("198.51.100.5", AddressTaken, "is held by Service default/first"),
        (
            "198.51.100.6",
            AddressTaken,
            "is in quarantine until 2026-02-13T16:27:40Z for its former Service default/gone",
        ),
        ("198.51.100.2", AddressNotAllowed, "is reserved in pool blue"),
        ("198.51.100.0", AddressNotAllowed, "is excluded by pool blue (avoidBuggyIPs)"),
        ("203.0.113.3", AddressNotAllowed, "lies in pool other, which is not for this Service"),
        ("203.0.113.9", AddressNotAllowed, "is in no pool and in no range that the control server allows"),
        ("192.0.2.1", AddressNotAllowed, "is one of Node n1"),
        ("192.0.2.9", AddressTaken, "is an external IP of Service default/ext"),
        ("10.1.0.7", AddressNotAllowed, "lies in the workload network 10.1.0.0/24"),
        ("10.96.0.7", AddressNotAllowed, "lies in the Service range 10.96.0.0/16"),
    ] {
        let found = said(cluster.apply(&balancer("web", json!({ "addresses": [address] }))));
        let message = format!("must be an address that the Service may have; {address} {why}");
        assert_eq!(found, (at.to_owned(), code, message));
    }
    let named = balancer("web", json!({ "addresses": ["198.51.100.4"], "pool": "other" }));
    assert!(
        said(cluster.apply(&named))
            .2
            .ends_with("lies in pool blue, not in pool other that the Service names")
    );
    blue["disabled"] = json!(true);
    cluster.apply(&pool("blue", blue)).unwrap();
    let disabled = said(cluster.apply(&balancer("web", json!({ "addresses": ["198.51.100.4"] }))));
    assert!(disabled.2.ends_with("198.51.100.4 lies in pool blue, which is disabled"), "{disabled:?}");
    assert_eq!(
        cluster.apply(&balancer("first", json!({ "addresses": ["198.51.100.5"] }))),
        Ok(Action::Unchanged)
    );
    // Outside of pools, an address of a range that the operator allows.
    cluster.apply(&balancer("web", json!({ "addresses": ["192.0.2.7"] }))).unwrap();
    assert_eq!(cluster.get("addresses//192.0.2.7").as_address().unwrap().pool, None);
}

/// F122: a Service releases its address if it is deleted or no longer requests one. During the quarantine, only
/// the former Service receives the address again; afterwards others do.
#[test]
fn f122_released_addresses_are_quarantined_and_return_to_the_pool() {
    let mut cluster = Cluster::new();
    cluster
        .apply(&pool("blue", json!({ "addresses": ["198.51.100.1-198.51.100.2"], "quarantineSeconds": 30 })))
        .unwrap();
    cluster.apply(&balancer("a", json!({}))).unwrap();
    cluster.apply(&service("a", json!({ "type": "NodePort", "ports": [{ "port": 80 }] }))).unwrap();
    assert_eq!(has(&cluster, "a"), Vec::<String>::new());
    cluster.apply(&balancer("b", json!({}))).unwrap();
    assert_eq!(has(&cluster, "b"), ["198.51.100.2"], "not the one that is held back");
    cluster.apply(&balancer("a", json!({}))).unwrap();
    assert_eq!(has(&cluster, "a"), ["198.51.100.1"], "its former Service has it back");
    cluster.delete("services/default/a").unwrap();
    cluster.apply(&balancer("c", json!({}))).unwrap();
    assert_eq!(has(&cluster, "c"), Vec::<String>::new());
    let end = cluster.snapshot.next_quarantine_end().unwrap();
    assert_eq!(end.unix_seconds(), cluster.now + 30);
    cluster.now += 29;
    turn(&mut cluster);
    assert_eq!(has(&cluster, "c"), Vec::<String>::new());
    cluster.now += 1;
    turn(&mut cluster);
    assert_eq!(has(&cluster, "c"), ["198.51.100.1"]);
    assert_eq!(cluster.snapshot.next_quarantine_end(), None);
    let before = cluster.snapshot.clone();
    turn(&mut cluster);
    assert_eq!(cluster.snapshot, before, "nothing is due");
}

/// F116: equal writes allocate equal addresses, even if the state is reloaded from the store between the writes.
#[test]
fn f116_the_allocation_depends_on_the_store_alone() {
    let run = |restart: bool| {
        let mut cluster = Cluster::new();
        cluster.apply(&simple("blue", &["198.51.100.0/28"])).unwrap();
        for n in 0..9 {
            cluster.apply(&balancer(&format!("s{n}"), json!({}))).unwrap();
            if n % 3 == 2 {
                cluster.delete(&format!("services/default/s{}", n - 1)).unwrap();
            }
            if restart {
                let kinds = model::kinds::resource::Kind::ALL.into_iter().rev();
                let objects: Vec<_> =
                    kinds.flat_map(|kind| cluster.snapshot.list(kind, None, None)).cloned().collect();
                let again =
                    model::cluster::snapshot::Snapshot::from_objects(cluster.snapshot.revision(), objects);
                assert_eq!(again, cluster.snapshot);
                cluster.snapshot = again;
                cluster.seed += 100;
            }
        }
        (0..9).map(|n| has(&cluster, &format!("s{n}"))).collect::<Vec<_>>()
    };
    assert_eq!(run(false), run(true));
}

/// F037, F038: a pending Service receives its address in the write that makes a suitable pool available.
#[test]
fn f037_f038_a_pending_service_is_served_by_the_write_that_makes_room() {
    let mut cluster = Cluster::new();
    cluster.apply(&balancer("old", json!({}))).unwrap();
    cluster.now += 1;
    cluster.apply(&balancer("young", json!({}))).unwrap();
    cluster.now += 1;
    cluster.apply(&balancer("named", json!({ "pool": "red" }))).unwrap();
    assert_eq!(cluster.snapshot.pending_count(), 3);
    cluster.apply(&simple("blue", &["198.51.100.1"])).unwrap();
    assert_eq!((has(&cluster, "old"), has(&cluster, "young")), (vec!["198.51.100.1".to_owned()], vec![]));
    cluster.delete("services/default/old").unwrap();
    assert_eq!(has(&cluster, "young"), ["198.51.100.1"]);
    cluster.apply(&with(simple("red", &["198.51.100.9"]), "/spec/autoAssign", json!(false))).unwrap();
    assert_eq!(
        (has(&cluster, "named"), cluster.snapshot.pending_count()),
        (vec!["198.51.100.9".to_owned()], 0)
    );
    // The record is a change of the same commit.
    let operations = vec![Operation::Delete {
        key: ObjectKey::parse_store_key("services/default/named").unwrap(),
        if_revision: None,
    }];
    let admitted = cluster.write(&Request { operations, ..Request::default() }).unwrap();
    let changed: Vec<_> = admitted.changes.iter().map(|change| change.object.key().to_string()).collect();
    assert_eq!(changed, ["Service default/named", "Address 198.51.100.9"]);
    assert_eq!(admitted.outcomes.len(), 1);
}

/// F038: every pending Service is retried, even if more Services are pending than one write retries.
#[test]
fn f038_every_pending_service_gets_its_turn() {
    let mut cluster = Cluster::new();
    let many = model::admission::admit::RETRIES_MAX + 3;
    let waiting: Vec<_> =
        (0..many).map(|n| balancer(&format!("s{n:04}"), json!({ "pool": "red" }))).collect();
    cluster.apply_many(&waiting, None).unwrap();
    cluster.now += 1;
    cluster.apply(&balancer("last", json!({}))).unwrap();
    cluster.apply(&simple("blue", &["198.51.100.1"])).unwrap();
    assert_eq!(has(&cluster, "last"), Vec::<String>::new(), "its turn has not come");
    let after = cluster.snapshot.pending(None).nth(model::admission::admit::RETRIES_MAX - 1).cloned();
    let operations = vec![Operation::RetryPending { after }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    assert_eq!(has(&cluster, "last"), ["198.51.100.1"]);
}

/// Services with the same sharing key and disjoint ports share an address. A refusal because of a port conflict
/// names the other Service. Without a sharing key, an address belongs to one Service.
#[test]
fn services_share_an_address_by_key_on_different_ports() {
    let mut cluster = Cluster::new();
    cluster.apply(&simple("blue", &["198.51.100.1-198.51.100.9"])).unwrap();
    let sharer = |name: &str, ports: Value, more: Value| {
        let mut spec =
            json!({ "type": "LoadBalancer", "loadBalancer": { "sharingKey": "k" }, "ports": ports });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        service(name, spec)
    };
    let port = |port: u16| json!([{ "port": port }]);
    cluster.apply(&sharer("a", port(80), json!({}))).unwrap();
    cluster.apply(&sharer("b", json!([{ "port": 1000, "endPort": 2000 }]), json!({}))).unwrap();
    cluster.apply(&sharer("u", json!([{ "port": 80, "protocol": "UDP" }]), json!({}))).unwrap();
    for name in ["a", "b", "u"] {
        assert_eq!(has(&cluster, name), ["198.51.100.1"], "{name}");
    }
    cluster.apply(&balancer("alone", json!({}))).unwrap();
    assert_eq!(has(&cluster, "alone"), ["198.51.100.2"]);
    // The port is in use: a new Service gets an address of its own; an existing one, or one that names the
    // address, is refused.
    cluster.apply(&sharer("c", port(1500), json!({}))).unwrap();
    assert_eq!(has(&cluster, "c"), ["198.51.100.3"]);
    let found = said(cluster.apply(&sharer("a", port(1500), json!({}))));
    assert_eq!((found.0.as_str(), found.1), ("/items/0/spec/loadBalancer/sharingKey", AddressTaken));
    assert!(
        found.2.ends_with("198.51.100.1 is shared with Service default/b, which has port 1500/TCP"),
        "{found:?}"
    );
    let insisting = json!({ "loadBalancer": { "sharingKey": "k", "addresses": ["198.51.100.1"] } });
    assert_eq!(said(cluster.apply(&sharer("d", port(80), insisting.clone()))).1, AddressTaken);
    cluster.apply(&sharer("d", port(81), insisting)).unwrap();
    let other_key = balancer("e", json!({ "sharingKey": "other", "addresses": ["198.51.100.1"] }));
    assert!(said(cluster.apply(&other_key)).2.contains("198.51.100.1 is held by Service default/a"));
    // The policies must be equal, and for Local the selectors too.
    let local = json!({ "externalTrafficPolicy": "Local", "selector": { "app": "x" } });
    cluster.apply(&sharer("l1", port(7001), local.clone())).unwrap();
    let own = has(&cluster, "l1");
    assert_ne!(own, ["198.51.100.1"]);
    cluster.apply(&sharer("l2", port(7002), local)).unwrap();
    assert_eq!(has(&cluster, "l2"), own);
    let other = json!({ "externalTrafficPolicy": "Local", "selector": { "app": "y" } });
    let changed = said(cluster.apply(&sharer("l2", port(7002), other)));
    assert!(
        changed.2.ends_with("is shared with Service default/l1, which has different endpoints"),
        "{changed:?}"
    );
    // A Service that drops the key leaves; the others stay, and the last one to leave releases the address.
    cluster.apply(&with(sharer("a", port(80), json!({})), "/spec/loadBalancer", json!({}))).unwrap();
    assert_ne!(has(&cluster, "a"), ["198.51.100.1"]);
    for name in ["b", "u", "d"] {
        assert_eq!(has(&cluster, name), ["198.51.100.1"], "{name}");
        cluster.delete(&format!("services/default/{name}")).unwrap();
    }
    assert_eq!(cluster.snapshot.address("198.51.100.1".parse::<IpAddr>().unwrap()), None);
}

/// A dual-stack Service receives its two addresses from two pools. With PreferDualStack, it uses the available
/// families; with RequireDualStack, it receives both addresses or none.
#[test]
fn dual_stack_services_draw_from_two_pools() {
    let mut cluster = Cluster::new();
    let both =
        |name: &str, policy: &str| with(balancer(name, json!({})), "/spec/ipFamilyPolicy", json!(policy));
    cluster.apply(&simple("four", &["198.51.100.1-198.51.100.3"])).unwrap();
    cluster.apply(&both("prefer", "PreferDualStack")).unwrap();
    cluster.apply(&both("require", "RequireDualStack")).unwrap();
    assert_eq!(
        (has(&cluster, "prefer"), has(&cluster, "require")),
        (vec!["198.51.100.1".to_owned()], vec![])
    );
    cluster.apply(&simple("six", &["2001:db8:1::1-2001:db8:1::2"])).unwrap();
    assert_eq!(has(&cluster, "prefer"), ["198.51.100.1", "2001:db8:1::1"]);
    assert_eq!(has(&cluster, "require"), ["198.51.100.2", "2001:db8:1::2"]);
    cluster.apply(&both("prefer", "SingleStack")).unwrap();
    assert_eq!(has(&cluster, "prefer"), ["198.51.100.1"], "the second family is given up");
}

/// MetalLB annotations apply if the field is absent; those that contradict the field or are invalid are refused.
#[test]
fn metallb_annotations_are_understood() {
    let mut cluster = Cluster::new();
    cluster.apply(&simple("blue", &["198.51.100.1-198.51.100.9"])).unwrap();
    cluster
        .apply(&with(
            simple("red", &["203.0.113.1-203.0.113.9", "2001:db8:1::/64"]),
            "/spec/autoAssign",
            json!(false),
        ))
        .unwrap();
    let annotated = |name: &str, annotations: Value| {
        with(balancer(name, json!({})), "/metadata/annotations", annotations)
    };
    cluster.apply(&annotated("a", json!({ "metallb.io/address-pool": "red" }))).unwrap();
    assert_eq!(has(&cluster, "a"), ["203.0.113.1"]);
    cluster
        .apply(&annotated(
            "b",
            json!({ "metallb.universe.tf/loadBalancerIPs": "203.0.113.7, 2001:db8:1::7" }),
        ))
        .unwrap();
    assert_eq!(has(&cluster, "b"), ["203.0.113.7", "2001:db8:1::7"]);
    cluster.apply(&annotated("c", json!({ "metallb.io/allow-shared-ip": "k" }))).unwrap();
    let d = with(annotated("d", json!({})), "/spec/loadBalancer", json!({ "sharingKey": "k" }));
    cluster.apply(&with(d, "/spec/ports/0/port", json!(81))).unwrap();
    assert_eq!(has(&cluster, "c"), has(&cluster, "d"));
    let contradiction = with(
        annotated("e", json!({ "metallb.io/address-pool": "red" })),
        "/spec/loadBalancer",
        json!({ "pool": "blue" }),
    );
    let pointer = "/metadata/annotations/metallb.io~1address-pool";
    let refused = model::admission::decode::decode(&contradiction, &Default::default()).unwrap_err();
    assert_eq!(
        refused.iter().map(|one| (one.pointer.as_str(), one.code)).collect::<Vec<_>>(),
        [(pointer, Conflict)]
    );
    let nothing = annotated("f", json!({ "metallb.io/loadBalancerIPs": "198.51.100.1,198.51.100.2" }));
    let refused = model::admission::decode::decode(&nothing, &Default::default()).unwrap_err();
    assert_eq!(refused[0].code, Invalid);
    let taken = said(cluster.apply(&annotated("g", json!({ "metallb.io/loadBalancerIPs": "203.0.113.7" }))));
    assert_eq!(taken.0, "/items/0/metadata/annotations/metallb.io~1loadBalancerIPs");
}

/// Pools must not overlap other pools, Service ranges, workload networks, Node addresses or external IPs; the
/// later write is refused, whichever object comes first.
#[test]
fn pools_never_overlap_in_either_order_of_writes() {
    let mut cluster = Cluster::new();
    cluster.apply(&simple("blue", &["198.51.100.0/28"])).unwrap();
    let node = |spec: Value| of_kind("Node", "n", json!({}), spec);
    let at = "/items/0/spec/addresses/0".to_owned();
    for (range, what) in [
        ("198.51.100.8-198.51.100.40", "AddressPool blue"),
        ("10.96.255.0-10.97.0.9", "the range of virtual addresses, 10.96.0.0/16"),
    ] {
        let found = said(cluster.apply(&simple("red", &[range])));
        assert_eq!((found.0, found.1), (at.clone(), Overlap));
        assert!(found.2.contains(what), "{}", found.2);
    }
    for (spec, pointer, code) in [
        (json!({ "addresses": ["198.51.100.3"] }), "/items/0/spec/addresses/0", AddressTaken),
        (json!({ "workloadCIDRs": ["198.51.100.0/24"] }), "/items/0/spec/workloadCIDRs/0", Overlap),
    ] {
        assert_eq!(violations(cluster.apply(&node(spec))), [(pointer.to_owned(), code)]);
    }
    cluster.apply(&node(json!({ "addresses": ["203.0.113.3"], "workloadCIDRs": ["10.1.0.0/24"] }))).unwrap();
    assert_eq!(
        violations(cluster.apply(&simple("red", &["10.0.0.0/8"]))).len(),
        2,
        "workloads and virtual addresses"
    );
    let red = simple("red", &["203.0.113.0/28"]);
    assert!(said(cluster.apply(&red)).2.contains("203.0.113.3, which is an address of Node n"));
    cluster.apply(&with(red, "/spec/reserved", json!(["203.0.113.3"]))).unwrap();
    let external = service("x", json!({ "externalIPs": ["198.51.100.1"], "ports": [{ "port": 80 }] }));
    assert!(said(cluster.apply(&external)).2.contains("198.51.100.1 lies in AddressPool blue"));
    cluster.apply(&service("y", json!({ "externalIPs": ["192.0.2.9"], "ports": [{ "port": 80 }] }))).unwrap();
    assert!(
        said(cluster.apply(&simple("green", &["192.0.2.0/28"])))
            .2
            .contains("an external IP of Service default/y")
    );
}

/// A write of a pool by which Services would lose addresses is refused, and the refusal names the Services. With
/// `evict`, the write is accepted, and these Services receive other addresses or are pending.
#[test]
fn a_pool_takes_an_address_from_a_service_only_by_eviction() {
    let mut cluster = Cluster::new();
    cluster.apply(&simple("blue", &["198.51.100.1-198.51.100.2"])).unwrap();
    cluster.apply(&balancer("web", json!({}))).unwrap();
    let blue = |more: Value| {
        let mut spec = json!({ "addresses": ["198.51.100.1-198.51.100.2"], "quarantineSeconds": 0 });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pool("blue", spec)
    };
    for (more, pointer) in [
        (json!({ "addresses": ["198.51.100.2"] }), "/spec/addresses"),
        (json!({ "reserved": ["198.51.100.1"] }), "/spec/reserved"),
        (json!({ "namespaces": ["other"] }), "/spec/serviceSelectors"),
        (json!({ "serviceSelectors": [{ "matchLabels": { "a": "b" } }] }), "/spec/serviceSelectors"),
    ] {
        let found = said(cluster.apply(&blue(more)));
        let message =
            "must leave to Services the addresses that they hold: 198.51.100.1 of Service default/web";
        assert_eq!(found, (format!("/items/0{pointer}"), InUse, message.to_owned()));
    }
    assert!(
        matches!(cluster.delete("addresspools//blue"), Err(Refusal::Invalid(found)) if found[0].code == InUse)
    );
    cluster.apply(&blue(json!({ "disabled": true }))).unwrap();
    cluster.apply(&balancer("late", json!({}))).unwrap();
    assert_eq!(
        (has(&cluster, "web"), has(&cluster, "late")),
        (vec!["198.51.100.1".to_owned()], vec![]),
        "kept, and no more given"
    );
    cluster.apply(&blue(json!({}))).unwrap();
    cluster.delete("services/default/late").unwrap();

    // A write of the Service in the same request does not count as its consent.
    let both = [blue(json!({ "reserved": ["198.51.100.1"] })), balancer("web", json!({}))];
    let refused = cluster.apply_many(&both, None).unwrap_err();
    assert!(
        matches!(&refused, Refusal::Invalid(found) if found[0].pointer == "/items/0/spec/reserved"),
        "{refused:?}"
    );
    let over = of_kind("Node", "n", json!({}), json!({ "workloadCIDRs": ["198.51.100.0/24"] }));
    assert_eq!(violations(cluster.apply(&over))[0].1, Overlap);

    evict(&mut cluster, &blue(json!({ "reserved": ["198.51.100.1"] }))).unwrap();
    assert_eq!(has(&cluster, "web"), ["198.51.100.2"], "moved in the same write");
    evict(&mut cluster, &blue(json!({ "namespaces": ["other"] }))).unwrap();
    assert_eq!((has(&cluster, "web"), cluster.snapshot.pending_count()), (vec![], 1), "there is no other");
    cluster.apply(&blue(json!({}))).unwrap();
    assert_eq!(has(&cluster, "web"), ["198.51.100.1"]);
    // An existing request is pending after an eviction, and its Service can still be written.
    let asking = balancer("web", json!({ "addresses": ["198.51.100.1"] }));
    cluster.apply(&asking).unwrap();
    evict(&mut cluster, &blue(json!({ "addresses": ["198.51.100.2"] }))).unwrap();
    assert_eq!(cluster.apply(&asking), Ok(Action::Unchanged));
    cluster.apply(&with(asking, "/metadata/labels", json!({ "a": "b" }))).unwrap();
    assert_eq!(has(&cluster, "web"), Vec::<String>::new());
    cluster.apply(&blue(json!({}))).unwrap();
    assert_eq!(has(&cluster, "web"), ["198.51.100.1"]);
}

/// A requested address outside of all pools becomes an address of a new pool that contains it. Replacing the pool
/// by another one keeps allocated addresses.
#[test]
fn addresses_stay_while_pools_around_them_are_created_and_deleted() {
    let mut cluster = Cluster::new();
    cluster.apply(&balancer("web", json!({ "addresses": ["192.0.2.7"] }))).unwrap();
    let pool_of = |cluster: &Cluster| {
        cluster.get("addresses//192.0.2.7").as_address().unwrap().pool.clone().map(String::from)
    };
    assert_eq!(pool_of(&cluster), None);
    cluster.apply(&simple("blue", &["192.0.2.0/28"])).unwrap();
    assert_eq!(pool_of(&cluster).as_deref(), Some("blue"));
    let operations = vec![
        Operation::Apply(object(&simple("red", &["192.0.2.0/24"]))),
        Operation::Delete {
            key: ObjectKey::parse_store_key("addresspools//blue").unwrap(),
            if_revision: None,
        },
    ];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    assert_eq!(
        (pool_of(&cluster).as_deref(), has(&cluster, "web")),
        (Some("red"), vec!["192.0.2.7".to_owned()])
    );
    cluster.delete("addresspools//red").unwrap();
    assert_eq!(pool_of(&cluster), None, "the range is still allowed by the operator");
}

/// An Advertisement can name existing pools only, and a pool that an Advertisement names cannot be deleted.
#[test]
fn an_advertisement_names_pools_that_exist() {
    let mut cluster = Cluster::new();
    let ad = of_kind("Advertisement", "lan", json!({}), json!({ "addressPools": ["blue"] }));
    let missing = said(cluster.apply(&ad));
    assert_eq!((missing.0.as_str(), missing.1), ("/items/0/spec/addressPools", NotFound));
    cluster.apply_many(&[ad, simple("blue", &["198.51.100.1"])], None).unwrap();
    let Err(Refusal::Invalid(found)) = cluster.delete("addresspools//blue") else {
        panic!("must be refused")
    };
    assert_eq!(found[0].message, "AddressPool blue must stay while Advertisement lan names it");
    cluster.delete("advertisements//lan").unwrap();
    cluster.delete("addresspools//blue").unwrap();
}

/// Two Services can swap requested addresses in one request; an address that another Service keeps is refused.
#[test]
fn one_request_may_pass_an_address_to_another_service() {
    let mut cluster = Cluster::new();
    cluster.apply(&pool("blue", json!({ "addresses": ["198.51.100.1-198.51.100.2"] }))).unwrap();
    let asking =
        |name: &str, last: u8| balancer(name, json!({ "addresses": [format!("198.51.100.{last}")] }));
    cluster.apply_many(&[asking("a", 1), asking("b", 2)], None).unwrap();
    cluster.apply_many(&[asking("a", 2), asking("b", 1)], None).unwrap();
    assert_eq!(
        (has(&cluster, "a"), has(&cluster, "b")),
        (vec!["198.51.100.2".to_owned()], vec!["198.51.100.1".to_owned()])
    );
    let refused = cluster.apply_many(&[asking("c", 1)], None).unwrap_err();
    assert!(matches!(refused, Refusal::Invalid(_)));
}
