//! Tests of claims of an address by other nodes than its recorded owner: isolated standbys, partitions and
//! false reports.

use super::*;

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

    /// The report of one node, whatever it contains, moves no address of a live owner. The node is a candidate from
    /// the beginning, or becomes one by its first report.
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
