//! Tests of the plan that spreads addresses over the nodes again after failures.

use std::collections::BTreeMap;

use model::{
    observed::{
        assign::move_to,
        rollup::{
            AnnouncementInputs,
            rebalance::{RebalancePlan, rebalance},
        },
    },
    wire::report::AnnouncementRole,
};
use proptest::prelude::*;
use serde_json::json;

use super::{World, host, ip, name};
use crate::support::{object, of_kind};

const NODES: [&str; 3] = ["a", "b", "c"];

/// Puts each address on a node, given by its index, and reports that this node announces it.
fn placed(owners: &[usize]) -> World {
    let mut world = World::new(&NODES, owners.len());
    world.settle_all();
    for (at, owner) in owners.iter().enumerate() {
        own(&mut world, 101 + at, NODES[*owner]);
    }
    world
}

fn own(world: &mut World, last: usize, node: &str) {
    let before = world.order(last)[0].clone();
    let moved = world.with_scene(|scene| move_to(scene, &world.book, ip(last), &name(node)).unwrap());
    let epoch = moved.epoch;
    world.set(last, moved);
    if before != node {
        world.say(&before, last, AnnouncementRole::Standby, epoch);
    }
    world.say(node, last, AnnouncementRole::Owner, epoch);
}

fn plan(world: &World) -> RebalancePlan {
    world.with_scene(|scene| {
        rebalance(&AnnouncementInputs { scene: *scene, book: &world.book, bgp: &world.bgp })
    })
}

fn loads(plan: &RebalancePlan) -> Vec<(u64, u64)> {
    plan.nodes.iter().map(|load| (load.addresses, load.after)).collect()
}

#[test]
fn f117_addresses_of_one_node_are_spread_by_as_few_moves_as_possible() {
    let mut world = placed(&[1, 1, 1, 1, 1]);
    let planned = plan(&world);
    assert_eq!(planned.moves.len(), 3, "{planned:?}");
    assert!(planned.moves.iter().all(|one| one.from == name("b") && one.to != one.from));
    assert_eq!(planned.unsettled, 0);
    let after: u64 = planned.nodes.iter().map(|load| load.after).sum();
    assert_eq!((planned.nodes.len(), after), (3, 5));
    assert!(planned.nodes.iter().all(|load| (1..=2).contains(&load.after)), "{planned:?}");
    for one in &planned.moves {
        let last = (101..106).find(|last| ip(*last) == one.address).unwrap();
        own(&mut world, last, one.to.as_str());
    }
    assert_eq!(plan(&world).moves, [], "a second plan has nothing to do");
}

#[test]
fn f117_only_settled_addresses_move_and_only_to_nodes_that_can_announce_them() {
    let mut world = placed(&[0, 0, 0, 0]);
    // The recorded owner does not announce this address.
    world.say("a", 101, AnnouncementRole::Standby, 9);
    world.silent.insert(name("b"));
    let planned = plan(&world);
    assert_eq!((planned.unsettled, planned.moves.len()), (1, 2), "{planned:?}");
    assert!(planned.moves.iter().all(|one| one.to == name("c") && one.address != ip(101)), "{planned:?}");
    world.silent.insert(name("c"));
    assert_eq!(plan(&world).moves, [], "nobody else can announce them");
    world.silent.clear();
    world.silent.insert(name("a"));
    let planned = plan(&world);
    assert_eq!(
        (planned.unsettled, planned.moves.len()),
        (4, 0),
        "the failure of an owner is no matter of a plan"
    );
}

#[test]
fn f117_preferred_nodes_get_their_addresses_back() {
    let mut world = placed(&[0, 0, 1]);
    world.node("c", json!({ "rack": "r1" }), json!({}));
    let preferred = json!([{ "weight": 50, "preference": { "matchLabels": { "rack": "r1" } } }]);
    let spec = json!({ "preferredNodeSelectors": preferred });
    world.put(object(&of_kind("Advertisement", "all", json!({}), spec)));
    let planned = plan(&world);
    assert_eq!(loads(&planned), [(2, 0), (1, 0), (0, 3)], "{planned:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// After the moves, the numbers of addresses differ by one at most, and no smaller number of moves is sufficient.
    #[test]
    fn f117_a_plan_is_even_and_minimal(owners in prop::collection::vec(0..NODES.len(), 0..16)) {
        let planned = plan(&placed(&owners));
        let after: Vec<u64> = planned.nodes.iter().map(|load| load.after).collect();
        prop_assert!(after.iter().max().unwrap() - after.iter().min().unwrap() <= 1, "{planned:?}");
        let mut before = BTreeMap::from(NODES.map(|node| (host(&name(node)), 0)));
        owners.iter().for_each(|owner| *before.get_mut(&(owner + 1)).unwrap() += 1);
        let mut counts: Vec<usize> = before.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (share, rest) = (owners.len() / NODES.len(), owners.len() % NODES.len());
        let surplus = counts.iter().enumerate().map(|(at, count)| count.saturating_sub(share + usize::from(at < rest)));
        prop_assert_eq!(planned.moves.len(), surplus.sum::<usize>());
    }
}
