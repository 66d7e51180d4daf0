//! Tests of takeovers that candidates report: which of them become the recorded order, and how conflicts between
//! announcers are shown. A node that reports false states obtains no address of a live owner.

use std::collections::BTreeSet;

use model::{
    observed::{
        rollup::{AnnouncementInputs, address_status},
        status::AddressStatus,
    },
    primitives::quantity::Timestamp,
    wire::report::{AddressConflict, AnnouncementRole},
};
use proptest::prelude::*;
use serde_json::json;

use super::{NODES, World, host, ip, name, names, report};

#[test]
fn a_takeover_is_recorded_and_the_former_owner_does_not_preempt_it() {
    let mut world = World::new(&["a", "b", "c"], 1);
    world.settle(101);
    let before = names(&world.order(101));
    let epoch = world.announcement(101).epoch;
    world.say(before[0].as_str(), 101, AnnouncementRole::Owner, epoch);
    world.say(before[1].as_str(), 101, AnnouncementRole::Owner, epoch);
    world.partition(&[&[&before[0]], &[&before[1], &before[2]]]);
    assert!(world.settle(101), "the third candidate confirms the takeover");
    let before: Vec<_> = before.iter().map(ToString::to_string).collect();
    assert_eq!(world.order(101)[..2], [before[1].clone(), before[0].clone()]);
    world.lost.insert(name(&before[0]));
    assert!(world.settle(101) && world.order(101) == [before[1].clone(), before[2].clone()]);
    world.lost.clear();
    assert!(world.settle(101));
    assert_eq!(world.order(101), [before[1].clone(), before[2].clone(), before[0].clone()]);
}

/// A candidate that is cut off from the others claims the address as well. The owner that is up for another
/// candidate keeps it.
#[test]
fn f117_a_standby_that_is_cut_off_does_not_become_the_recorded_owner() {
    let mut world = World::new(&["a", "b", "c", "d"], 1);
    world.settle(101);
    let before = names(&world.order(101));
    let [owner, first, second, third] = &before[..] else { panic!() };
    let epoch = world.announcement(101).epoch;
    world.say(owner.as_str(), 101, AnnouncementRole::Owner, epoch);
    for (isolated, groups) in
        [(first, [&[first][..], &[owner, second, third]]), (third, [&[third][..], &[owner, first, second]])]
    {
        world.say(isolated.as_str(), 101, AnnouncementRole::Owner, epoch);
        world.partition(&groups);
        assert!(!world.settle(101), "{isolated} is isolated");
    }
    world.say(first.as_str(), 101, AnnouncementRole::Standby, epoch);
    world.partition(&[&[owner], &[first], &[second], &[third]]);
    assert!(!world.settle(101), "no candidate reaches another one");
    world.partition(&[&[owner, first], &[second, third]]);
    assert!(!world.settle(101), "the owner serves its half");
    world.say(second.as_str(), 101, AnnouncementRole::Owner, epoch);
    world.partition(&[&[owner], &[second], &[first, third]]);
    assert!(world.settle(101), "the owner and the first claimant are isolated");
    assert_eq!(names(&world.order(101))[0], *third);
}

/// With two candidates nobody can confirm a takeover: the recorded owner stays until it is silent or yields.
#[test]
fn f117_of_two_candidates_the_recorded_owner_stays_until_it_is_silent_or_yields() {
    for yields in [None, Some(AnnouncementRole::Standby), Some(AnnouncementRole::Held)] {
        let mut world = World::new(&["a", "b"], 1);
        world.settle(101);
        let before = world.order(101);
        let epoch = world.announcement(101).epoch;
        world.say(&before[1], 101, AnnouncementRole::Owner, epoch);
        assert!(!world.settle(101), "the owner has not reported its state under this order");
        world.say(&before[0], 101, AnnouncementRole::Owner, epoch);
        world.partition(&[&[&name("a")], &[&name("b")]]);
        assert!(!world.settle(101), "both report that they own it");
        match yields {
            Some(role) => world.say(&before[0], 101, role, epoch),
            None => _ = world.silent.insert(name(&before[0])),
        }
        assert!(world.settle(101));
        assert_eq!(world.order(101), [before[1].clone(), before[0].clone()]);
    }
}

/// Fields of a report by which a node could try to obtain addresses of live owners.
#[derive(Debug, Clone)]
struct Lie {
    role: AnnouncementRole,
    epochs_ahead: u64,
    down: BTreeSet<usize>,
    interfaces: Vec<String>,
    addresses: Vec<u8>,
}

fn lies() -> impl Strategy<Value = Vec<Lie>> {
    let role = prop_oneof![
        Just(AnnouncementRole::Owner),
        Just(AnnouncementRole::Standby),
        Just(AnnouncementRole::Held),
    ];
    let ahead = prop_oneof![Just(0), Just(1), Just(999_999), Just(u64::MAX / 2)];
    let down = prop::collection::btree_set(0..NODES.len(), 0..5);
    let interfaces = prop::collection::vec(prop_oneof!["eth0", "eth1"], 0..3);
    let addresses = prop::collection::vec(prop_oneof![1..6_u8, 101..106_u8], 0..4);
    let lie = (role, ahead, down, interfaces, addresses).prop_map(
        |(role, epochs_ahead, down, interfaces, addresses)| Lie {
            role,
            epochs_ahead,
            down,
            interfaces,
            addresses,
        },
    );
    prop::collection::vec(lie, 1..8)
}

impl World {
    /// Applies a false report of `liar`.
    fn lie(&mut self, liar: usize, lie: &Lie) {
        let peers = (0..NODES.len()).filter(|node| *node != liar).map(|node| {
            let state = if lie.down.contains(&node) { "Down" } else { "Up" };
            json!({ "node": NODES[node], "address": ip(node + 1), "state": state, "since": "2026-11-21T09:00:00Z" })
        });
        let mut facts = json!({ "addresses": [ip(liar + 1)], "subnets": { "eth0": ["192.0.2.0/24"] } });
        for address in &lie.addresses {
            facts["addresses"].as_array_mut().unwrap().push(json!(ip(usize::from(*address))));
        }
        for interface in &lie.interfaces {
            facts["subnets"][interface] = json!(["192.0.2.0/24", "0.0.0.0/0"]);
        }
        let peers: Vec<_> = peers.collect();
        self.reports.insert(name(NODES[liar]), report(liar + 1, json!({ "peers": peers, "facts": facts })));
        for last in 101..=105 {
            let epoch = self.announcement(last).epoch.saturating_add(lie.epochs_ahead);
            self.say(NODES[liar], last, lie.role, epoch);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The report of one node, whatever it contains, moves no address of a live owner. The node is a candidate
    /// from the beginning, or becomes one by its first report.
    #[test]
    fn f117_a_lying_node_gets_no_address_of_a_live_owner(
        nodes in 2_usize..=5, liar in 0_usize..5, is_known in any::<bool>(), lies in lies(),
    ) {
        let liar = liar % nodes;
        let mut world = World::new(&NODES[..nodes], 5);
        let its_report = world.reports.get(&name(NODES[liar])).cloned();
        if !is_known {
            world.reports.remove(&name(NODES[liar]));
        }
        world.settle_all();
        let honest: Vec<_> = (0..nodes).filter(|node| *node != liar).map(|node| name(NODES[node])).collect();
        world.partition(&[&honest.iter().collect::<Vec<_>>()]);
        if let Some(report) = its_report {
            world.reports.insert(name(NODES[liar]), report);
        }
        let owners: Vec<_> = (101..=105).map(|last| world.order(last)[0].clone()).collect();
        for (at, owner) in owners.iter().enumerate() {
            let epoch = world.announcement(101 + at).epoch;
            world.say(owner, 101 + at, AnnouncementRole::Owner, epoch);
        }
        for lie in &lies {
            world.lie(liar, lie);
            world.settle_all();
            for (at, owner) in owners.iter().enumerate().filter(|(_, owner)| **owner != NODES[liar]) {
                prop_assert_eq!(&world.order(101 + at)[0], owner, "{:?}", lie);
                let epoch = world.announcement(101 + at).epoch;
                world.say(owner, 101 + at, AnnouncementRole::Owner, epoch);
            }
        }
    }
}

/// Time of the conflicts after the last change of the roles, in seconds: too long for a handover.
const CONFLICT_AFTER_SECS: i64 = 60;

fn conflict(mac: &str, node: Option<&str>) -> Option<AddressConflict> {
    conflict_after(CONFLICT_AFTER_SECS, mac, node)
}

fn conflict_after(secs: i64, mac: &str, node: Option<&str>) -> Option<AddressConflict> {
    let at = Timestamp::from_unix_seconds(1_771_000_000 + secs);
    Some(AddressConflict { mac: mac.to_owned(), interface: "eth0".to_owned(), at, node: node.map(name) })
}

/// A node that reports the link-layer address of a stranger does not end the alarm about it. Its report is believed
/// if the control server had ordered it to announce the address at that time, or if a third node has recognized it.
#[test]
fn a_claimed_link_layer_address_does_not_silence_a_conflict() {
    let mut world = World::new(&["a", "b", "c"], 1);
    world.settle(101);
    let [owner, liar, third] = &world.order(101)[..] else { panic!() };
    let (owner, liar, third) = (owner.clone(), liar.clone(), third.clone());
    let facts = json!({
        "addresses": [ip(host(&name(&liar)))], "subnets": { "eth0": ["192.0.2.0/24"] },
        "linkLayerAddresses": { "eth0": "02:00:00:00:00:99" },
    });
    let heard = conflict("02:00:00:00:00:99", None);
    world.say_with(&owner, 101, AnnouncementRole::Owner, 1, heard.clone());
    world.reports.insert(name(&liar), report(host(&name(&liar)), json!({ "facts": facts })));
    for role in [None, Some(AnnouncementRole::Standby), Some(AnnouncementRole::Held)] {
        if let Some(role) = role {
            world.say(&liar, 101, role, 1);
        }
        let shown = world.announced(1);
        assert!(shown.starts_with("False Conflict"), "{role:?}: {shown}");
        assert!(shown.contains(&format!("; node {liar} claims this link-layer address")), "{shown}");
    }
    world.say(&liar, 101, AnnouncementRole::Owner, 1);
    world.say_with(&owner, 101, AnnouncementRole::Owner, 1, heard.clone());
    assert!(world.announced(1).starts_with("False TwoOwners"), "{}", world.announced(1));
    world.say(&liar, 101, AnnouncementRole::Standby, 1);

    let at = |secs: i64| Timestamp::from_unix_seconds(1_771_000_000 + CONFLICT_AFTER_SECS + secs);
    world.book.record_order(ip(101), Some(&name(&liar)), at(-31));
    assert!(world.announced(1).starts_with("False Conflict"), "the order ended before");
    world.book.record_order(ip(101), Some(&name(&liar)), at(-1));
    assert!(world.announced(1).starts_with("True Announced"), "the address has moved");
    world.book.record_order(ip(101), Some(&name(&liar)), at(-31));

    world.say_with(&third, 101, AnnouncementRole::Standby, 1, conflict("02:00:00:00:00:99", Some(&liar)));
    assert!(world.announced(1).starts_with("True Announced"), "another node has recognized it");
}

/// Only an unknown machine is a conflict. A node that announces the address, too, has its own reason, and only
/// while both nodes announce it.
#[test]
fn f124_a_conflict_is_an_unknown_machine_and_a_node_is_named() {
    let mut world = World::new(&["a", "b"], 1);
    world.settle(101);
    let (owner, other) = (world.order(101)[0].clone(), world.order(101)[1].clone());
    let links = json!({
        "addresses": [ip(host(&name(&other)))], "subnets": { "eth0": ["192.0.2.0/24"] },
        "linkLayerAddresses": { "eth0": "02:00:00:00:00:0b" },
    });
    world.reports.insert(name(&other), report(host(&name(&other)), json!({ "facts": links })));
    let owns = AnnouncementRole::Owner;

    world.say_with(&owner, 101, owns, 1, conflict("02:00:00:00:00:99", None));
    assert!(world.announced(1).starts_with("False Conflict"), "{}", world.announced(1));
    assert!(world.announced(1).contains("02:00:00:00:00:99"), "{}", world.announced(1));

    world.book.record_order(ip(101), Some(&name(&other)), Timestamp::from_unix_seconds(1_771_000_060));
    for heard in [conflict("02:00:00:00:00:0b", None), conflict("02:00:00:00:00:0c", Some(&other))] {
        world.say(&other, 101, AnnouncementRole::Standby, 1);
        world.say_with(&owner, 101, owns, 1, heard.clone());
        assert!(world.announced(1).starts_with("True Announced"), "{}", world.announced(1));
        world.say(&other, 101, owns, 1);
        world.say_with(&owner, 101, owns, 1, heard.clone());
        assert_eq!(
            world.announced(1),
            format!("False TwoOwners {owner} and {other} both announce 192.0.2.101")
        );
        world.say_with(&other, 101, AnnouncementRole::Standby, 1, heard);
        assert!(world.announced(1).starts_with("True Announced"), "{}", world.announced(1));
    }
    let status = status_of(&world);
    assert!(status.nodes.values().all(|part| part.conflict.is_none()), "{status:?}");
}

fn status_of(world: &World) -> AddressStatus {
    let record = world.snapshot().address(ip(101)).unwrap().as_address().unwrap().clone();
    world.with_scene(|scene| {
        address_status(&AnnouncementInputs { scene: *scene, book: &world.book, bgp: &world.bgp }, &record)
    })
}

/// F117, F124: a candidate that has taken an address over is the owner at once, although the lease of the silent node lasts for
/// ten seconds more. Two owners that both go on reporting are a conflict.
#[test]
fn f124_a_successor_is_the_owner_while_the_lease_of_the_silent_owner_lasts() {
    let mut world = World::new(&["a", "b"], 1);
    world.settle(101);
    let (owner, other) = (world.order(101)[0].clone(), world.order(101)[1].clone());
    let macs = json!({
        "addresses": [ip(host(&name(&other)))], "subnets": { "eth0": ["192.0.2.0/24"] },
        "linkLayerAddresses": { "eth0": "02:00:00:00:00:0b" },
    });
    world.reports.insert(name(&other), report(host(&name(&other)), json!({ "facts": macs })));
    let owns = AnnouncementRole::Owner;
    // The last report before the cut has a conflict with the successor.
    world.say_with(&owner, 101, owns, 1, conflict_after(3, "02:00:00:00:00:0b", None));
    world.say(&other, 101, owns, 1);
    let shown = world.announced(1);
    assert!(shown.starts_with(&format!("True Announced {other} announces")), "{shown}");
    let status = status_of(&world);
    assert_eq!(status.owner, Some(name(&other)));
    assert_eq!(
        status.nodes[&name(&owner)].reason,
        format!("last report before {other} took over: as a test says")
    );
    // The node is not silent: its heartbeat arrives after the report of the successor.
    world.say_with(&owner, 101, owns, 1, conflict_after(3, "02:00:00:00:00:0b", Some(&other)));
    let shown = world.announced(1);
    assert!(shown.starts_with("False TwoOwners"), "{shown}");
}

/// F124: announcements of another candidate at the time of a handover are no conflict, also if the control server did not
/// see the role of that candidate, because it was unreachable. The address of a stranger is one, and so is an
/// announcement long after the handover.
#[test]
fn f124_a_former_owner_is_no_conflict_of_its_successor() {
    let mut world = World::new(&["a", "b"], 1);
    world.settle(101);
    let (owner, other) = (world.order(101)[0].clone(), world.order(101)[1].clone());
    let macs = json!({
        "addresses": [ip(host(&name(&other)))], "subnets": { "eth0": ["192.0.2.0/24"] },
        "linkLayerAddresses": { "eth0": "02:00:00:00:00:0b" },
    });
    world.reports.insert(name(&other), report(host(&name(&other)), json!({ "facts": macs })));
    world.say(&other, 101, AnnouncementRole::Standby, 1);
    let mut shown = |secs, mac| {
        world.say_with(&owner, 101, AnnouncementRole::Owner, 1, conflict_after(secs, mac, None));
        world.announced(1)
    };
    let during = shown(14, "02:00:00:00:00:0b");
    assert!(during.starts_with("True Announced"), "{during}");
    let stranger = shown(14, "02:00:00:00:00:99");
    assert!(stranger.starts_with("False Conflict"), "{stranger}");
    let later = shown(31, "02:00:00:00:00:0b");
    assert!(later.starts_with("False Conflict"), "{later}");
}
