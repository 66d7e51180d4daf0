//! Limits on large removals by one write: a write that removes too much is refused. Moves of addresses and
//! confirmed removals are accepted.

use model::{
    admission::admit::{ApplySet, GuardRefusal, Operation, Refusal, RemovalGuard, Request},
    cluster::config::Guards,
    kinds::resource::ObjectKey,
};
use serde_json::{Value, json};

use crate::support::{Cluster, object, of_kind, service};

fn guarded() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.config = cluster.config.with_guards(Guards { vips_percent: 50, endpoints_percent: 33 });
    cluster
}

fn plain(name: &str) -> Value {
    service(name, json!({ "ports": [{ "port": 80 }] }))
}

fn delete(names: &[&str]) -> Request {
    let delete = |name: &&str| Operation::Delete {
        key: ObjectKey::parse_store_key(&format!("services/default/{name}")).unwrap(),
        if_revision: None,
    };
    Request { operations: names.iter().map(delete).collect(), ..Request::default() }
}

fn held(result: Result<impl std::fmt::Debug, Refusal>) -> GuardRefusal {
    match result {
        Err(Refusal::GuardHeld(held)) => held,
        other => panic!("must be held, was {other:?}"),
    }
}

fn set(name: &str, service: &str, hosts: std::ops::Range<u8>) -> Value {
    let endpoints: Vec<_> = hosts.map(|host| json!({ "address": format!("10.2.0.{host}") })).collect();
    of_kind("EndpointSet", name, json!({}), json!({ "service": service, "endpoints": endpoints }))
}

#[test]
fn removing_more_than_half_of_the_virtual_addresses_is_refused_with_their_names() {
    let mut cluster = guarded();
    let names: Vec<_> = (1..=18).map(|number| format!("s{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    cluster.apply_many(&names.iter().map(|name| plain(name)).collect::<Vec<_>>(), None).unwrap();
    let found = held(cluster.write(&delete(&names[..10])));
    assert_eq!(
        (found.guard, found.removed, found.total, found.limit_percent),
        (RemovalGuard::Vips, 10, 18, 50)
    );
    assert!(found.named[0].ends_with(" of Service default/s01"), "{:?}", found.named);
    cluster.write(&Request { confirmed: true, ..delete(&names[..9]) }).unwrap();
    assert_eq!(cluster.snapshot.vips(), 9);
    cluster.write(&delete(&names[9..])).expect("a small cluster has no guard");
}

#[test]
fn guards_count_load_balancer_addresses_and_pruned_objects() {
    let mut cluster = guarded();
    let pool = of_kind("AddressPool", "lan", json!({}), json!({ "addresses": ["198.51.100.0/28"] }));
    let balancer = |name: &str| service(name, json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] }));
    let named = |prune: bool| {
        Some(ApplySet {
            name: "web".parse().unwrap(),
            scope: None,
            prune,
            prune_limit: Some(100),
            adopt: true,
        })
    };
    cluster.apply(&pool).unwrap();
    let balancers: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(balancer).into();
    cluster.apply_many(&balancers, named(false)).unwrap();
    assert_eq!(cluster.snapshot.vips(), 12);
    let found = held(cluster.apply_many(&balancers[..1], named(true)));
    assert_eq!((found.removed, found.total), (10, 12));
    cluster.apply_many(&balancers[..3], named(true)).unwrap();
}

#[test]
fn removing_a_third_of_the_endpoints_is_refused_and_moving_them_is_not() {
    let mut cluster = guarded();
    cluster.apply(&plain("web")).unwrap();
    cluster.apply(&set("one", "web", 1..31)).unwrap();
    assert_eq!(cluster.snapshot.endpoint_addresses(), 30);
    let found = held(cluster.apply(&set("one", "web", 1..20)));
    assert_eq!((found.guard, found.removed, found.total), (RemovalGuard::Endpoints, 11, 30));
    cluster.apply(&set("one", "web", 1..22)).unwrap();
    let key = ObjectKey::parse_store_key("endpointsets/default/one").unwrap();
    let moved = vec![
        Operation::Delete { key, if_revision: None },
        Operation::Apply(object(&set("two", "web", 1..22))),
    ];
    cluster.write(&Request { operations: moved, ..Request::default() }).unwrap();
    assert_eq!(cluster.snapshot.endpoint_addresses(), 21);
}

#[test]
fn a_guard_at_a_hundred_percent_is_off() {
    let mut cluster = guarded();
    cluster.config = cluster.config.with_guards(Guards::OFF);
    cluster.apply_many(&["a", "b", "c"].map(plain), None).unwrap();
    cluster.write(&delete(&["a", "b", "c"])).unwrap();
    assert_eq!(cluster.snapshot.vips(), 0);
}
