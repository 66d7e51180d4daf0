//! Assignment of load balancer addresses to nodes: reasons why a node is no candidate, stable and balanced
//! owners, takeovers and drains.

mod takeover;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::{
    bgp::book::BgpBook,
    cluster::snapshot::Snapshot,
    compile::compile,
    kinds::{
        address::{AddressSpec, Announcement, name_of},
        metadata::Metadata,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
    },
    observed::{
        announcements::{AnnouncementBook, AnnouncementUpdate},
        assign::{AssignmentAction, AssignmentInputs, ClusterView, assign, evaluate, move_to},
        rollup::{
            AnnouncementInputs, NodeView, address_status, advertisement_status, pool_announced,
            service_announced,
        },
        status::{Condition, ConditionStatus},
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision, Timestamp},
    },
    wire::report::{AddressConflict, AddressReport, AnnouncementRole, Report},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{key, object, of_kind, service};

mod new_addresses;
mod rebalance;
mod routed_externally;

/// Test cluster: objects, node reports and announcement states, on which assignment decisions are made one
/// after the other.
struct World {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    reports: BTreeMap<Name, Report>,
    lost: BTreeSet<Name>,
    silent: BTreeSet<Name>,
    book: AnnouncementBook,
    bgp: BgpBook,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn names(texts: &[String]) -> Vec<Name> {
    texts.iter().map(|text| name(text)).collect()
}

fn host(node: &Name) -> usize {
    usize::from(node.as_str().as_bytes()[0] - b'a') + 1
}

fn ip(last: usize) -> IpAddr {
    format!("192.0.2.{last}").parse().unwrap()
}

/// Returns a report of the node with address 192.0.2.`host` on `eth0`. The fields in `more` are added or
/// replaced.
fn report(host: usize, more: Value) -> Report {
    let mut json = json!({
        "bootId": "a", "agentVersion": "0", "mode": "nftables", "received": "1-9", "applied": "1-9", "verified": "1-9",
        "facts": { "addresses": [format!("192.0.2.{host}")], "subnets": { "eth0": ["192.0.2.0/24"], "lo": ["192.0.2.77/32"] } },
    });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

impl World {
    /// Creates nodes `a`, `b`, … in 192.0.2.0/24, one Advertisement for all pools, and Services `s1`, `s2`, … with
    /// the addresses 192.0.2.101, 192.0.2.102, ….
    fn new(nodes: &[&str], addresses: usize) -> Self {
        let mut world = Self {
            objects: BTreeMap::new(),
            reports: BTreeMap::new(),
            lost: BTreeSet::new(),
            silent: BTreeSet::new(),
            book: AnnouncementBook::default(),
            bgp: BgpBook::default(),
        };
        for (at, node) in nodes.iter().enumerate() {
            world.node(node, json!({}), json!({}));
            world.reports.insert(name(node), report(at + 1, json!({})));
        }
        world.put(object(&of_kind("Advertisement", "all", json!({}), json!({}))));
        for at in 1..=addresses {
            world.balancer(at, json!({}));
        }
        world
    }

    fn put(&mut self, object: Object) {
        self.objects.insert(object.key(), Arc::new(object));
    }

    fn node(&mut self, node: &str, labels: Value, spec: Value) {
        self.put(object(&of_kind("Node", node, labels, spec)));
    }

    fn balancer(&mut self, at: usize, more: Value) {
        let mut spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.put(object(&service(&format!("s{at}"), spec)));
        let mut record = AddressSpec::new(ip(100 + at), Some(name("pool")));
        record.services.insert(key(&format!("s{at}")));
        self.record(record);
    }

    fn record(&mut self, record: AddressSpec) {
        self.put(Object {
            metadata: Metadata::named(name_of(record.address), None),
            spec: Spec::Address(Box::new(record)),
        });
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::from_objects(Revision(1), self.objects.values().cloned())
    }

    fn with_scene<T>(&self, look: impl FnOnce(&ClusterView<'_>) -> T) -> T {
        let snapshot = self.snapshot();
        let names: Vec<Name> =
            snapshot.list(Kind::Node, None, None).map(|node| node.metadata.name.clone()).collect();
        let view = |name| NodeView {
            name,
            is_connected: !self.silent.contains(name) && !self.lost.contains(name),
            has_left: false,
            is_contested: false,
            is_lost: self.lost.contains(name),
            last_report: Some(Timestamp::from_unix_seconds(1_771_000_000)),
            report: self.reports.get(name),
        };
        let nodes: Vec<_> = names.iter().map(view).collect();
        let compiled = |key: &ServiceKey| {
            compile(&snapshot, key).map(|mut form| {
                form.revision = Revision(5);
                Arc::new(form)
            })
        };
        look(&ClusterView { snapshot: &snapshot, epoch: Epoch(1), nodes: &nodes, compiled: &compiled })
    }

    fn announcement(&self, last: usize) -> Announcement {
        self.snapshot().address(ip(last)).unwrap().as_address().unwrap().announcement.clone()
    }

    fn order(&self, last: usize) -> Vec<String> {
        self.announcement(last).candidates.iter().map(|candidate| candidate.node.to_string()).collect()
    }

    fn owned(&self) -> BTreeMap<Name, usize> {
        let mut owned = BTreeMap::new();
        for record in self.objects.values().filter_map(|object| object.as_address()) {
            if let Some(first) = record.announcement.candidates.first() {
                *owned.entry(first.node.clone()).or_insert(0) += 1;
            }
        }
        owned
    }

    fn decide(&self, last: usize, may_wait: bool) -> AssignmentAction {
        let owned = self.owned();
        let circumstances = AssignmentInputs { book: &self.book, owned: &owned, may_wait };
        self.with_scene(|scene| assign(scene, &circumstances, ip(last)).action)
    }

    /// Decides the candidates of the address 192.0.2.`last` and writes them to the address record. Returns
    /// true if the record changed.
    fn settle(&mut self, last: usize) -> bool {
        let AssignmentAction::Record(announcement) = self.decide(last, false) else { return false };
        self.set(last, announcement);
        true
    }

    fn set(&mut self, last: usize, announcement: Announcement) {
        let mut record = self.snapshot().address(ip(last)).unwrap().as_address().unwrap().clone();
        assert!(announcement.epoch > record.announcement.epoch);
        let previous = record.announcement.candidates.first().map(|first| first.node.clone());
        record.announcement = announcement;
        self.record(record);
        self.book.record_order(ip(last), previous.as_ref(), Timestamp::from_unix_seconds(1_771_000_000));
    }

    fn settle_all(&mut self) -> usize {
        let addresses: Vec<_> =
            self.objects.values().filter_map(|object| object.as_address()).map(|one| one.address).collect();
        let last =
            |address: &IpAddr| usize::from(if let IpAddr::V4(v4) = address { v4.octets()[3] } else { 0 });
        addresses.iter().filter(|address| self.settle(last(address))).count()
    }

    fn say(&mut self, node: &str, last: usize, role: AnnouncementRole, epoch: u64) {
        self.say_with(node, last, role, epoch, None);
    }

    /// Applies the report of a node that another machine announces the address as well.
    fn say_with(
        &mut self,
        node: &str,
        last: usize,
        role: AnnouncementRole,
        epoch: u64,
        conflict: Option<AddressConflict>,
    ) {
        let announced = AddressReport {
            role,
            epoch,
            since: Timestamp::from_unix_seconds(1_771_000_000),
            reason: "as a test says".to_owned(),
            interfaces: vec!["eth0".to_owned()],
            last_gratuitous: None,
            replies: 0,
            gratuitous: 0,
            conflict,
        };
        self.book.apply(
            &name(node),
            AnnouncementUpdate {
                parts: BTreeMap::from([(ip(last), announced)]),
                ..AnnouncementUpdate::default()
            },
            Timestamp::from_unix_seconds(1_771_000_000),
        );
    }

    /// Sets the BFD states of other nodes in the report of `node`.
    fn monitor(&mut self, node: &Name, peers: &[(&Name, &str)]) {
        let peer = |(peer, state): &(&Name, &str)| json!({ "node": peer, "address": ip(host(peer)), "state": state, "since": "2026-11-21T09:00:00Z" });
        let peers: Vec<_> = peers.iter().map(peer).collect();
        self.reports.insert(node.clone(), report(host(node), json!({ "peers": peers })));
    }

    /// Sets the BFD states that the nodes report while the nodes of each group reach each other only.
    fn partition(&mut self, groups: &[&[&Name]]) {
        let all: Vec<_> = groups.iter().flat_map(|group| group.iter().copied()).collect();
        for group in groups {
            for node in *group {
                let others = all.iter().copied().filter(|other| other != node);
                let peers: Vec<_> =
                    others.map(|other| (other, if group.contains(&other) { "Up" } else { "Down" })).collect();
                self.monitor(node, &peers);
            }
        }
    }

    fn why_not(&self, last: usize, node: &str) -> String {
        let judgement = self.with_scene(|scene| evaluate(scene, ip(last)).unwrap());
        judgement.eligibility(&name(node)).unwrap().reason().map(ToString::to_string).unwrap_or_default()
    }

    fn not_candidates(&self, last: usize) -> BTreeMap<Name, String> {
        self.with_scene(|scene| evaluate(scene, ip(last)).unwrap().not_candidates())
    }

    /// Returns the condition of a pool with one range.
    fn pool_condition(&self, range: &str) -> Condition {
        let spec = serde_json::from_value(json!({ "addresses": [range] })).unwrap();
        self.with_scene(|scene| pool_announced(scene, &name("p"), &spec))
    }

    fn announced(&self, at: usize) -> String {
        let condition = self.with_scene(|scene| {
            let of = AnnouncementInputs { scene: *scene, book: &self.book, bgp: &self.bgp };
            service_announced(&of, &key(&format!("s{at}"))).unwrap()
        });
        format!("{:?} {} {}", condition.status, condition.reason, condition.message)
    }
}

#[test]
fn f117_only_nodes_that_can_announce_an_address_are_candidates_and_others_have_a_reason() {
    let mut world = World::new(&["a", "b", "c", "d", "e", "f", "g", "h"], 1);
    world.node("b", json!({}), json!({ "unschedulable": true }));
    world.reports.insert(
        name("c"),
        report(3, json!({ "facts": { "addresses": ["10.0.0.3"], "subnets": { "eth0": ["10.0.0.0/24"] } } })),
    );
    world.reports.insert(name("d"), report(4, json!({ "verified": "1-4" })));
    let failure =
        json!({ "default/s1": { "revision": 5, "reason": "KernelRefused", "message": "no memory" } });
    world.reports.insert(name("e"), report(5, json!({ "failures": failure })));
    world.lost.insert(name("f"));
    world.reports.remove(&name("g"));
    world.reports.insert(
        name("h"),
        report(8, json!({ "facts": { "addresses": [], "subnets": { "eth0": ["192.0.2.0/24"] } } })),
    );
    assert!(world.settle(101));
    assert_eq!(world.order(101), ["a"]);
    let candidate = &world.announcement(101).candidates[0];
    assert_eq!(candidate.address, ip(1));
    assert_eq!(candidate.interfaces.iter().map(ToString::to_string).collect::<Vec<_>>(), ["eth0"]);
    for (node, why) in [
        ("b", "spec.unschedulable"),
        ("c", "none of its networks contains 192.0.2.101"),
        ("d", "has not verified Service default/s1"),
        ("e", "failed there: no memory"),
        ("f", "has not reported since"),
        ("g", "has not reported since"),
        ("h", "no address of its own"),
    ] {
        assert!(world.why_not(101, node).contains(why), "{node}: {}", world.why_not(101, node));
    }
    let record = world.snapshot().address(ip(101)).unwrap().as_address().unwrap().clone();
    let status = world.with_scene(|scene| {
        address_status(&AnnouncementInputs { scene: *scene, book: &world.book, bgp: &world.bgp }, &record)
    });
    assert_eq!(status.not_candidates.len(), 7, "{status:?}");
}

#[test]
fn f117_advertisements_select_pools_services_nodes_and_interfaces() {
    let mut world = World::new(&["a", "b"], 1);
    world.node("b", json!({ "rack": "r1" }), json!({}));
    for (spec, order) in [
        (json!({ "addressPools": ["other"] }), vec![]),
        (
            json!({ "addressPools": ["pool"], "nodeSelectors": [{ "matchLabels": { "rack": "r1" } }] }),
            vec!["b"],
        ),
        (json!({ "serviceSelectors": [{ "matchLabels": { "app": "x" } }] }), vec![]),
        (json!({ "interfaces": ["eth1"] }), vec![]),
        (
            json!({ "interfaces": ["eth0"], "nodeSelectors": [{ "matchLabels": { "rack": "r1" } }] }),
            vec!["b"],
        ),
    ] {
        world.put(object(&of_kind("Advertisement", "all", json!({}), spec.clone())));
        world.settle(101);
        assert_eq!(world.order(101), order, "{spec}");
    }
    let preference = json!([{ "weight": 5, "preference": { "matchLabels": { "rack": "r1" } } }]);
    let mut world = World::new(&["a", "b"], 4);
    world.node("b", json!({ "rack": "r1" }), json!({}));
    world.put(object(&of_kind(
        "Advertisement",
        "all",
        json!({}),
        json!({ "preferredNodeSelectors": preference }),
    )));
    world.settle_all();
    assert_eq!(world.owned(), BTreeMap::from([(name("b"), 4)]), "preference comes before balance");
}

#[test]
fn f117_a_local_service_is_announced_where_its_endpoints_are() {
    let mut world = World::new(&["a", "b", "c"], 0);
    world.balancer(1, json!({ "externalTrafficPolicy": "Local" }));
    let endpoints = |node: &str| {
        let set = json!({ "service": "s1", "endpoints": [{ "address": "10.1.0.1", "node": node }] });
        object(&of_kind("EndpointSet", "s1", json!({}), set))
    };
    world.put(endpoints("b"));
    world.settle(101);
    assert_eq!(world.order(101), ["b"]);
    world.put(endpoints("c"));
    world.settle(101);
    assert_eq!(world.order(101), ["c"], "{}", world.why_not(101, "b"));
}

#[test]
fn an_owner_stays_while_it_lacks_a_change_and_is_replaced_after_a_failure() {
    let mut world = World::new(&["a", "b"], 1);
    world.settle(101);
    let owner = world.order(101)[0].clone();
    let behind = report(usize::from(owner == "b") + 1, json!({ "verified": "1-4" }));
    world.reports.insert(name(&owner), behind);
    assert!(!world.settle(101), "nothing moves while it catches up");
    world.silent.insert(name(&owner));
    assert!(!world.settle(101), "nor while it is only silent");
    world.silent.clear();
    let failure = json!({ "default/s1": { "revision": 5, "reason": "KernelRefused", "message": "no" } });
    world.reports.insert(name(&owner), report(1, json!({ "failures": failure })));
    assert!(world.settle(101) && world.order(101)[0] != owner);
}

#[test]
fn the_next_candidate_in_the_order_succeeds_a_silent_owner() {
    let mut world = World::new(&["a", "b", "c", "d"], 6);
    world.settle_all();
    for last in 101..=106 {
        let before = world.order(last);
        world.lost = BTreeSet::from([name(&before[0])]);
        world.settle(last);
        assert_eq!(world.order(last), before[1..]);
    }
}

#[test]
fn the_first_owner_is_chosen_among_all_candidates_that_become_ready_in_time() {
    let mut world = World::new(&["a", "b"], 1);
    world.reports.insert(name("b"), report(2, json!({ "verified": "1-4" })));
    assert_eq!(world.decide(101, true), AssignmentAction::Wait);
    assert!(matches!(world.decide(101, false), AssignmentAction::Record(_)));
    world.settle(101);
    assert_eq!(world.decide(101, true), AssignmentAction::Leave, "once there is an owner, nothing waits");
}

#[test]
fn after_a_restore_the_order_has_a_higher_epoch_than_the_agents_follow() {
    let mut world = World::new(&["a"], 1);
    world.say("a", 101, AnnouncementRole::Owner, 40);
    world.say("x", 101, AnnouncementRole::Standby, u64::MAX);
    world.settle(101);
    assert_eq!(world.announcement(101).epoch, 41);
}

#[test]
fn an_address_moves_to_a_candidate_on_request_and_stays_there() {
    let mut world = World::new(&["a", "b", "c"], 1);
    world.settle(101);
    let before = world.order(101);
    world.say(&before[0], 101, AnnouncementRole::Owner, 1);
    let moved = world.with_scene(|scene| move_to(scene, &world.book, ip(101), &name(&before[2])).unwrap());
    world.set(101, moved);
    assert_eq!(world.order(101), [before[2].clone(), before[0].clone(), before[1].clone()]);
    world.say(&before[0], 101, AnnouncementRole::Owner, 2);
    assert!(!world.settle(101), "the former owner has not stopped yet; that is no takeover");
    world.reports.insert(name("a"), report(1, json!({ "verified": "1-4" })));
    let refused = world.with_scene(|scene| move_to(scene, &world.book, ip(101), &name("a")).unwrap_err());
    assert!(refused.to_string().contains("has not verified"), "{refused}");
    let refused = world.with_scene(|scene| move_to(scene, &world.book, ip(101), &name("z")).unwrap_err());
    assert_eq!(refused.to_string(), "there is no such Node");
}

#[test]
fn conditions_name_the_obstacle_of_an_announcement() {
    let mut world = World::new(&["a", "b"], 1);
    assert!(world.announced(1).starts_with("False NotYetAnnounced the candidates"), "{}", world.announced(1));
    world.settle(101);
    let owner = world.order(101)[0].clone();
    assert_eq!(
        world.announced(1),
        format!(
            "False NotYetAnnounced {owner} is assigned to announce 192.0.2.101: it has not reported it yet"
        )
    );
    world.say(&owner, 101, AnnouncementRole::Owner, 1);
    assert_eq!(world.announced(1), format!("True Announced {owner} announces 192.0.2.101 on eth0"));
    world.silent.insert(name(&owner));
    assert!(world.announced(1).starts_with("Unknown OwnerSilent"), "{}", world.announced(1));
    world.objects.retain(|key, _| key.kind != Kind::Advertisement);
    world.settle(101);
    world.say(&owner, 101, AnnouncementRole::Standby, 2);
    assert!(world.announced(1).starts_with("False NoAdvertisement"), "{}", world.announced(1));
    let mut world = World::new(&["a"], 1);
    world.reports.insert(name("a"), report(1, json!({ "facts": { "subnets": { "eth0": ["10.0.0.0/8"] } } })));
    assert!(world.announced(1).starts_with("False NoNodeInSubnet"), "{}", world.announced(1));
    world.node("a", json!({}), json!({ "unschedulable": true }));
    assert_eq!(
        world.announced(1),
        "False NoCandidate no node can announce 192.0.2.101; a: it is being drained (spec.unschedulable or spec.maintenance)"
    );
}

#[test]
fn f128_a_pool_outside_of_node_networks_and_an_advertisement_without_nodes_are_reported() {
    let mut world = World::new(&["a"], 0);
    let pool = |addresses: Value| {
        let Spec::AddressPool(spec) =
            object(&of_kind("AddressPool", "p", json!({}), json!({ "addresses": addresses }))).spec
        else {
            panic!()
        };
        spec
    };
    let said = |world: &World, addresses: Value| {
        let condition = world.with_scene(|scene| pool_announced(scene, &name("p"), &pool(addresses)));
        format!("{:?} {}", condition.status, condition.reason)
    };
    assert_eq!(said(&world, json!(["192.0.2.10-192.0.2.20"])), "True Announceable");
    assert_eq!(said(&world, json!(["192.0.2.10-192.0.2.20", "198.51.100.0/24"])), "False NoNodeInSubnet");
    let advertised = |world: &World| {
        let snapshot = world.snapshot();
        let object = snapshot.list(Kind::Advertisement, None, None).next().unwrap().clone();
        let status =
            world.with_scene(|scene| advertisement_status(scene, object.as_advertisement().unwrap()));
        let last = status.conditions.last().unwrap().clone();
        (last.status, last.reason.as_str())
    };
    assert_eq!(advertised(&world).0, ConditionStatus::True);
    world.put(object(&of_kind(
        "Advertisement",
        "all",
        json!({}),
        json!({ "nodeSelectors": [{ "matchLabels": { "x": "y" } }] }),
    )));
    assert_eq!(advertised(&world).1, "NoMatchingNode");
    world.put(object(&of_kind(
        "Advertisement",
        "all",
        json!({}),
        json!({ "interfaces": ["eth7"], "addressPools": ["q"] }),
    )));
    assert_eq!(advertised(&world).1, "NoMatchingInterface");
    assert_eq!(said(&world, json!(["192.0.2.0/28"])), "False NoAdvertisement");
}

const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Debug, Clone)]
enum Event {
    Lose(usize),
    Return(usize),
    Drain(usize),
    Undrain(usize),
    Relabel(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let node = || 0..NODES.len();
    let event = prop_oneof![
        node().prop_map(Event::Lose),
        node().prop_map(Event::Return),
        node().prop_map(Event::Drain),
        node().prop_map(Event::Undrain),
        node().prop_map(Event::Relabel),
    ];
    prop::collection::vec(event, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Nodes that differ only in their names own equal numbers of addresses, give or take one. Equal inputs
    /// give equal decisions, and a second round of decisions changes nothing.
    #[test]
    fn owners_are_balanced_within_one_and_decisions_repeat(nodes in 1_usize..=5, addresses in 1_usize..20) {
        let mut world = World::new(&NODES[..nodes], addresses);
        for last in 101..=100 + addresses {
            prop_assert_eq!(world.decide(last, false), world.decide(last, false));
            world.settle(last);
        }
        let owned = world.owned();
        let counts: Vec<_> = NODES[..nodes].iter().map(|node| owned.get(&name(node)).copied().unwrap_or(0)).collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
        prop_assert_eq!(world.settle_all(), 0);
    }

    /// In any sequence of events, the owner of an address changes only if the owner was lost or drained. An
    /// address has an owner if and only if at least one node is eligible.
    #[test]
    fn an_owner_changes_only_if_it_must(history in events()) {
        let mut world = World::new(&NODES, 10);
        world.settle_all();
        let mut drained = BTreeSet::new();
        for event in history {
            let before: Vec<_> = (101..=110).map(|last| world.order(last)).collect();
            match event {
                Event::Lose(at) => { world.lost.insert(name(NODES[at])); }
                Event::Return(at) => { world.lost.remove(&name(NODES[at])); }
                Event::Drain(at) => { drained.insert(NODES[at]); world.node(NODES[at], json!({}), json!({ "unschedulable": true })); }
                Event::Undrain(at) => { drained.remove(NODES[at]); world.node(NODES[at], json!({}), json!({})); }
                Event::Relabel(at) => world.node(NODES[at], json!({ "x": "y" }), json!({ "unschedulable": drained.contains(NODES[at]) })),
            }
            world.settle_all();
            let can = |node: &str| !drained.contains(node) && !world.lost.contains(&name(node));
            for (at, before) in before.iter().enumerate() {
                let after = world.order(101 + at);
                prop_assert_eq!(after.is_empty(), !NODES.iter().any(|node| can(node)));
                prop_assert!(after.iter().all(|node| can(node)));
                if let Some(owner) = before.first().filter(|owner| can(owner)) {
                    prop_assert_eq!(&after[0], owner, "{:?}", &event);
                }
            }
        }
        prop_assert_eq!(world.settle_all(), 0, "quiet when nothing happens");
    }
}

#[test]
fn positions_are_compared_with_the_epoch_of_the_store() {
    let mut world = World::new(&["a"], 1);
    let old = Position { epoch: Epoch(0), revision: Revision(99) };
    let mut other = report(1, json!({}));
    (other.received, other.applied, other.verified) = (old, old, old);
    world.reports.insert(name("a"), other);
    assert!(world.why_not(101, "a").contains("has not verified"));
}
