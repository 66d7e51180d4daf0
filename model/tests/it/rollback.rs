//! Rollbacks restore all objects, compiled Services (with resolved endpoints), addresses and announcements.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::{
    admission::{
        admit::{Operation, Refusal, Request},
        rollback,
    },
    cluster::{
        history::{Maker, Origin, RevisedObject, RevisionEntry},
        snapshot::Snapshot,
    },
    compile::compile,
    kinds::{
        address::{Announcement, Candidate},
        advertisement::InterfaceName,
        resource::{Kind, ObjectKey},
    },
    primitives::quantity::Revision,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Cluster, key, object, of_kind, service};

/// Cluster with its history of writes. After each client write, the server assigns the addresses to nodes.
struct World {
    cluster: Cluster,
    history: Vec<RevisionEntry>,
}

impl World {
    fn new() -> Self {
        let mut world = Self { cluster: Cluster::new(), history: Vec::new() };
        let quick = json!({ "addresses": ["198.51.100.0/28"], "quarantineSeconds": 0 });
        let slow = json!({ "addresses": ["203.0.113.0/29"], "quarantineSeconds": 600, "autoAssign": false });
        for value in [
            of_kind("Node", "n1", json!({}), json!({ "addresses": ["172.16.0.1"], "zone": "z1" })),
            of_kind("Node", "n2", json!({}), json!({ "addresses": ["172.16.0.2"] })),
            of_kind("AddressPool", "quick", json!({}), quick),
            of_kind("AddressPool", "slow", json!({}), slow),
            of_kind("Advertisement", "all", json!({}), json!({ "addressPools": ["quick"] })),
            workload("v", "a", 1),
            workload("w", "b", 2),
            balancer("a", json!({}), 80),
            balancer("b", json!({ "pool": "slow" }), 80),
            service(
                "c",
                json!({ "type": "NodePort", "selector": { "app": "b" }, "ports": [{ "port": 80 }] }),
            ),
            endpoints("s", "c", 1),
        ] {
            world.apply(value).unwrap();
        }
        world
    }

    fn head(&self) -> Revision {
        self.cluster.snapshot.revision()
    }

    fn write(&mut self, maker: Maker, request: &Request) -> Result<(), Refusal> {
        let before = self.cluster.snapshot.clone();
        let admitted = self.cluster.write(request)?;
        if admitted.changes.is_empty() {
            return Ok(());
        }
        let state = |snapshot: &Snapshot, key: &ObjectKey| snapshot.get(key).cloned();
        let revised = admitted.changes.iter().map(|change| {
            let key = change.object.key();
            let (before, after) = (state(&before, &key), state(&admitted.snapshot, &key));
            RevisedObject { key, before, after }
        });
        let objects = revised.collect();
        let origin = Origin { maker, ..Origin::server() };
        let at = model::primitives::quantity::Timestamp::from_unix_seconds(self.cluster.now);
        self.history.push(RevisionEntry { revision: admitted.snapshot.revision(), at, origin, objects });
        Ok(())
    }

    /// Executes a client request, and the assignment decisions of the server that follow.
    fn ask(&mut self, request: &Request) -> Result<(), Refusal> {
        self.write(Maker::Client, request)?;
        let unanswered = self.cluster.snapshot.list(Kind::Address, None, None);
        let unanswered = unanswered.filter_map(|object| object.as_address());
        let unanswered = unanswered
            .filter(|record| !record.services.is_empty() && record.announcement.candidates.is_empty());
        let operations =
            unanswered.map(|record| order(record.address, record.announcement.epoch, ["n1", "n2"]));
        let request = Request { operations: operations.collect(), ..Request::default() };
        self.write(Maker::Server, &request)
    }

    fn apply(&mut self, value: Value) -> Result<(), Refusal> {
        let operations = vec![Operation::Apply(object(&value))];
        self.ask(&Request { operations, evict: true, ..Request::default() })
    }

    fn delete(&mut self, store_key: &str) -> Result<(), Refusal> {
        let key = ObjectKey::parse_store_key(store_key).unwrap();
        let operations = vec![Operation::Delete { key, if_revision: None }];
        self.ask(&Request { operations, evict: true, ..Request::default() })
    }

    fn move_to_second(&mut self, name: &str) -> Result<(), Refusal> {
        let Some(address) = self.cluster.snapshot.addresses_of(&key(name)).next() else { return Ok(()) };
        let epoch = self.cluster.snapshot.address(address).unwrap().as_address().unwrap().announcement.epoch;
        let operations = vec![order(address, epoch, ["n2", "n1"])];
        self.ask(&Request { operations, ..Request::default() })
    }

    fn roll_back(&mut self, to: Revision) {
        let after = self.history.partition_point(|entry| entry.revision <= to);
        let mut former = rollback::FormerStates::new();
        rollback::before(&mut former, &self.history[after..]);
        let request = rollback::request(&self.cluster.snapshot, &former, true);
        self.ask(&request).unwrap();
    }
}

fn workload(name: &str, app: &str, ip: u8) -> Value {
    let spec = json!({ "addresses": [format!("10.1.0.{ip}")], "node": "n1" });
    of_kind("Workload", name, json!({ "app": app }), spec)
}

fn endpoints(name: &str, of: &str, ip: u8) -> Value {
    let spec = json!({ "service": of, "endpoints": [{ "address": format!("10.2.0.{ip}") }] });
    of_kind("EndpointSet", name, json!({}), spec)
}

fn balancer(name: &str, load_balancer: Value, port: u16) -> Value {
    let spec = json!({
        "type": "LoadBalancer", "loadBalancer": load_balancer, "selector": { "app": name },
        "ports": [{ "port": port }],
    });
    service(name, spec)
}

fn order(address: IpAddr, if_epoch: u64, nodes: [&str; 2]) -> Operation {
    let candidate = |(index, node): (usize, &str)| Candidate {
        node: node.parse().unwrap(),
        address: [172, 16, 0, u8::try_from(index).unwrap() + 1].into(),
        interfaces: [InterfaceName::try_from("eth0".to_owned()).unwrap()].into(),
        peer_public_key: None,
    };
    let mut candidates: Vec<_> = ["n1", "n2"].into_iter().enumerate().map(candidate).collect();
    candidates.sort_by_key(|candidate| nodes.iter().position(|node| *node == candidate.node.as_str()));
    Operation::SetAnnouncer {
        address,
        if_epoch,
        announcement: Announcement { candidates, ..Announcement::default() },
    }
}

/// Returns the visible state without values that always differ: revisions, UIDs, times and announcement epochs.
fn essence(snapshot: &Snapshot) -> BTreeMap<String, Value> {
    let mut seen = BTreeMap::new();
    for object in Kind::ALL.into_iter().flat_map(|kind| snapshot.list(kind, None, None)) {
        if let Some(record) = object.as_address() {
            let nodes: Vec<_> = record.announcement.candidates.iter().map(|one| one.node.clone()).collect();
            let value = json!([record.pool, record.services, record.sharing_key, nodes]);
            if !record.services.is_empty() {
                seen.insert(object.key().to_string(), value);
            }
            continue;
        }
        let metadata = &object.metadata;
        let value = json!([metadata.labels, metadata.annotations, metadata.apply_set, object.spec.to_json()]);
        seen.insert(object.key().to_string(), value);
        if object.as_service().is_some() {
            let mut compiled = compile(snapshot, &key(metadata.name.as_str())).unwrap();
            compiled.revision = Revision(0);
            seen.insert(format!("compiled {}", metadata.name), json!(compiled));
        }
    }
    seen
}

fn assert_same(found: &Snapshot, expected: &BTreeMap<String, Value>, what: &str) {
    let found = essence(found);
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    for key in keys {
        assert_eq!(found.get(key), expected.get(key), "{key} after {what}");
    }
}

/// Change that a client makes in a test cluster.
type Change = fn(&mut World) -> Result<(), Refusal>;

/// Changes by a client, with a description. Before each, the cluster has the LoadBalancer Services a (pool quick)
/// and b (pool slow), and the NodePort Service c.
const CHANGES: [(&str, Change); 24] = [
    ("a balancer is deleted", |world| world.delete("services/default/a")),
    ("a balancer of a pool with quarantine is deleted", |world| world.delete("services/default/b")),
    ("a balancer is deleted and another takes its address", |world| {
        let had = world.cluster.snapshot.addresses_of(&key("a")).next().unwrap();
        world.delete("services/default/a")?;
        world.apply(balancer("d", json!({ "addresses": [had] }), 80))
    }),
    ("a balancer is deleted and made again", |world| {
        world.delete("services/default/a")?;
        world.apply(balancer("e", json!({}), 80))?;
        world.apply(balancer("a", json!({}), 81))
    }),
    ("a balancer becomes an ordinary Service", |world| {
        world.apply(service("a", json!({ "selector": { "app": "a" }, "ports": [{ "port": 80 }] })))
    }),
    ("a balancer names another address", |world| {
        world.apply(balancer("a", json!({ "addresses": ["198.51.100.9"] }), 80))
    }),
    ("a balancer moves to another pool", |world| world.apply(balancer("a", json!({ "pool": "slow" }), 80))),
    ("a balancer is new", |world| world.apply(balancer("d", json!({}), 80))),
    ("a port changes", |world| world.apply(balancer("a", json!({}), 443))),
    ("a node port Service becomes a cluster Service", |world| {
        world.apply(service("c", json!({ "selector": { "app": "b" }, "ports": [{ "port": 80 }] })))
    }),
    ("a node port Service is deleted, made again and has other ports", |world| {
        world.delete("services/default/c")?;
        let ports = json!([{ "port": 80, "nodePort": 30001 }]);
        world.apply(service("c", json!({ "type": "NodePort", "clusterIP": "10.96.0.9", "ports": ports })))
    }),
    ("a Service becomes headless after it was deleted", |world| {
        world.delete("services/default/c")?;
        world.apply(service("c", json!({ "clusterIP": "None", "ports": [{ "port": 80 }] })))
    }),
    ("a selector changes", |world| {
        let spec = json!({ "type": "NodePort", "selector": { "app": "a" }, "ports": [{ "port": 80 }] });
        world.apply(service("c", spec))
    }),
    ("a workload is deleted", |world| world.delete("workloads/default/v")),
    ("a workload has another address and other labels", |world| world.apply(workload("v", "b", 9))),
    ("a workload is new", |world| world.apply(workload("x", "a", 7))),
    ("endpoints change", |world| world.apply(endpoints("s", "c", 9))),
    ("endpoints are deleted", |world| world.delete("endpointsets/default/s")),
    ("a pool has other addresses, and who had one gets another", |world| {
        let spec = json!({ "addresses": ["198.51.100.32/28"], "quarantineSeconds": 0 });
        world.apply(of_kind("AddressPool", "quick", json!({}), spec))
    }),
    ("a pool is deleted, and who had its address waits", |world| {
        world.delete("advertisements//all")?;
        world.delete("addresspools//quick")
    }),
    ("an Advertisement changes", |world| {
        world.apply(of_kind("Advertisement", "all", json!({}), json!({ "addressPools": ["slow"] })))
    }),
    ("a node has another zone", |world| {
        world.apply(of_kind("Node", "n1", json!({ "rack": "r" }), json!({ "addresses": ["172.16.0.1"] })))
    }),
    ("an address moves", |world| world.move_to_second("a")),
    ("nothing, for a while, and quarantines end", |world| {
        world.delete("services/default/b")?;
        world.cluster.now += 1000;
        world.ask(&Request::default())?;
        world.apply(balancer("d", json!({ "pool": "slow" }), 80))
    }),
];

/// A rollback of each change restores the state before the change, and a rollback of the rollback restores the
/// state after it.
#[test]
fn rollback_of_each_kind_of_change_restores_everything() {
    for (name, change) in CHANGES {
        let mut world = World::new();
        let (base, before) = (world.head(), essence(&world.cluster.snapshot));
        change(&mut world).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
        let (changed, after) = (world.head(), essence(&world.cluster.snapshot));
        assert_ne!(before, after, "{name} changes nothing");
        world.roll_back(base);
        assert_same(&world.cluster.snapshot, &before, &format!("rollback: {name}"));
        world.roll_back(changed);
        assert_same(&world.cluster.snapshot, &after, &format!("rollback of the rollback: {name}"));
    }
}

#[test]
fn values_that_others_hold_meanwhile_stay_theirs_and_the_rollback_allocates_others() {
    let mut world = World::new();
    let former = world.cluster.service("c").clone();
    let base = world.head();
    world.delete("services/default/c").unwrap();
    let clash = json!({
        "type": "NodePort", "clusterIP": former.cluster_ip, "ports": [{ "port": 1, "nodePort": former.ports[0].node_port }],
    });
    // A write of an agent is not undone.
    let operations = vec![Operation::Apply(object(&service("z", clash)))];
    world.write(Maker::Agent, &Request { operations, ..Request::default() }).unwrap();
    world.roll_back(base);
    let restored = world.cluster.service("c");
    assert_ne!(restored.cluster_ip, former.cluster_ip);
    assert_ne!(restored.ports[0].node_port, former.ports[0].node_port);
    assert_eq!(world.cluster.service("z").cluster_ip, former.cluster_ip);
}

/// If the server changed the order of candidates because a client drained a node, the rollback restores the order.
/// If the server changed the order by itself, the rollback keeps it.
#[test]
fn a_rollback_restores_the_order_of_candidates_even_if_the_server_changed_it() {
    for is_asked in [true, false] {
        let mut world = World::new();
        let (base, before) = (world.head(), essence(&world.cluster.snapshot));
        if is_asked {
            let spec = json!({ "addresses": ["172.16.0.1"], "zone": "z1", "unschedulable": true });
            world.apply(of_kind("Node", "n1", json!({}), spec)).unwrap();
        }
        let address = world.cluster.snapshot.addresses_of(&key("a")).next().unwrap();
        let epoch = world.cluster.snapshot.address(address).unwrap().as_address().unwrap().announcement.epoch;
        let operations = vec![order(address, epoch, ["n2", "n1"])];
        world.write(Maker::Server, &Request { operations, ..Request::default() }).unwrap();
        let moved = essence(&world.cluster.snapshot);
        assert_ne!(moved, before);
        world.roll_back(base);
        let expected = if is_asked { &before } else { &moved };
        assert_same(&world.cluster.snapshot, expected, "what the server decided");
        world.roll_back(base);
        assert_same(&world.cluster.snapshot, expected, "the same rollback once more");
    }
}

#[test]
fn one_write_is_undone_unless_a_later_one_changed_the_same_object() {
    let mut world = World::new();
    world.apply(workload("v", "b", 9)).unwrap();
    let undone = world.history.len() - 1;
    world.apply(workload("x", "a", 7)).unwrap();
    let entry = world.history[undone].clone();
    let former = rollback::before_only(&entry);
    assert_eq!(rollback::later(&former, &world.history[undone + 1..]), []);
    let request = rollback::request(&world.cluster.snapshot, &former, false);
    world.ask(&request).unwrap();
    assert_eq!(world.cluster.get("workloads/default/v").metadata.labels["app"], "a");
    assert!(
        world.cluster.snapshot.get(&ObjectKey::parse_store_key("workloads/default/x").unwrap()).is_some()
    );
    let later = rollback::later(&former, &world.history[undone + 1..]);
    assert_eq!(later.len(), 1);
    assert_eq!((later[0].key.name.as_str(), later[0].revision), ("v", world.head()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// After twenty random changes, a rollback of any number of the last changes restores the state before
    /// them. Changes that are not possible are skipped.
    #[test]
    fn rollback_over_random_changes_restores_everything(
        picks in prop::collection::vec(0..CHANGES.len(), 20),
        cut in 0_usize..20,
    ) {
        let mut world = World::new();
        let mut mark = None;
        for (index, pick) in picks.iter().enumerate() {
            if index == cut {
                mark = Some((world.head(), essence(&world.cluster.snapshot)));
            }
            let snapshot = &world.cluster.snapshot;
            let is_possible = snapshot.addresses_of(&key("a")).next().is_some();
            if is_possible {
                // A change that is refused in this state has no effect.
                let _ = CHANGES[*pick].1(&mut world);
            }
        }
        let (base, before) = mark.unwrap();
        world.roll_back(base);
        let names: Vec<_> = picks[cut..].iter().map(|pick| CHANGES[*pick].0).collect();
        assert_same(&world.cluster.snapshot, &before, &names.join(", "));
    }
}

/// Returns the number of proptest cases; `make soak` runs more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}
