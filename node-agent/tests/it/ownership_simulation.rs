//! Simulation of agents on one link and a control server, in virtual time. After any sequence of failures,
//! partitions, returns and drains, each connected part of the network that has an eligible node has exactly
//! one owner of the address, and conflicts are short.

mod model_check;
mod world;

use proptest::prelude::*;
use world::{DETECTION_MS, World};

/// Event in the simulated cluster, such as a failure or a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Event {
    Kill(usize),
    Return(usize),
    /// Partition of the link. The nodes whose bit is set in the mask are separated from the other nodes.
    Partition(u8),
    Heal,
    ControlStops,
    ControlStarts,
    /// Start or end of a drain of the node with this index.
    Drain(usize),
    /// Handover by the node with this index: other nodes take over its addresses, then its agent ends.
    HandOver(usize),
    /// Change of the gate (true if the node can serve the Service) of the node with this index.
    Gate(usize),
    /// Pause of the agent process of the node with this index.
    Pause(usize),
    Resume(usize),
}

fn events() -> impl Strategy<Value = Vec<(Event, u64)>> {
    let node = 0usize..4;
    let event = prop_oneof![
        3 => node.clone().prop_map(Event::Kill),
        3 => node.clone().prop_map(Event::Return),
        2 => any::<u8>().prop_map(Event::Partition),
        2 => Just(Event::Heal),
        1 => Just(Event::ControlStops),
        1 => Just(Event::ControlStarts),
        1 => node.clone().prop_map(Event::Drain),
        1 => node.clone().prop_map(Event::HandOver),
        1 => node.clone().prop_map(Event::Gate),
        2 => node.clone().prop_map(Event::Pause),
        2 => node.prop_map(Event::Resume),
    ];
    let pause = prop_oneof![Just(0u64), 1u64..2000, Just(30_000u64)];
    prop::collection::vec((event, pause), 1..9)
}

/// Lengths of interruptions that do not end within the last 100 ms before a takeover, in which it cannot be
/// prevented.
fn cut() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![300, 1200, 1700, 2600, 4000, 7000, 8000, 12_000])
}

fn carry_out(world: &mut World, event: Event) {
    match event {
        Event::Kill(node) => world.kill(node),
        Event::Return(node) => world.start(node),
        Event::Partition(side) => world.partition(side),
        Event::Heal => world.partition(0),
        Event::ControlStops => world.stop_control(),
        Event::ControlStarts => world.start_control(),
        Event::Drain(node) => world.drain(node),
        Event::HandOver(node) => world.hand_over(node),
        Event::Gate(node) => world.toggle_gate(node),
        Event::Pause(node) => world.pause(node),
        Event::Resume(node) => world.resume(node),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Once no more events happen, each connected part of the network has at most one owner, and exactly one
    /// if it has a live eligible candidate. Each event causes a limited number of announcements.
    #[test]
    fn f117_f132_every_part_has_one_owner_in_the_end(events in events(), seed in any::<u64>()) {
        let mut world = World::new(4, seed);
        world.run(10_000);
        world.assert_settled();
        for (event, pause) in events {
            carry_out(&mut world, event);
            world.run(pause);
        }
        world.resume_all();
        world.run(200_000);
        world.assert_settled();
        // No announcements without events.
        let before = (world.owners(), world.bursts());
        world.run(120_000);
        prop_assert_eq!((world.owners(), world.bursts()), before);
        prop_assert!(world.bursts() <= 200, "{} bursts", world.bursts());
    }

    /// A node that returns does not take the address from a live owner, with or without a control server.
    #[test]
    fn f117_whoever_returns_steals_nothing(first in 0usize..4, has_control in any::<bool>(), seed in any::<u64>()) {
        let mut world = World::new(4, seed);
        world.run(10_000);
        if !has_control {
            world.stop_control();
        }
        world.kill(first);
        world.run(30_000);
        let owners = world.owners();
        world.start(first);
        world.run(60_000);
        prop_assert_eq!(world.owners(), owners);
        world.assert_settled();
    }

    /// If the owner of an address fails, another node takes over within the detection time plus a short delay.
    #[test]
    fn f132_an_address_is_without_an_owner_for_no_longer_than_detection_takes(
        has_control in any::<bool>(), hands_over in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut world = World::new(4, seed);
        world.run(10_000);
        if !has_control {
            world.stop_control();
        }
        world.run(5_000);
        let owner = world.owner_of_first();
        world.forget_gaps();
        if hands_over {
            world.hand_over(owner);
        } else {
            world.kill(owner);
        }
        world.run(30_000);
        let gap = world.longest_gap();
        let bound = if hands_over { 10 } else { DETECTION_MS + 50 };
        prop_assert!(gap <= bound, "{gap} ms without an owner");
    }

    /// A move on request moves each client once: the previous owner does not take the address back if it
    /// receives the announcement of the new one before the order.
    #[test]
    fn f117_a_move_moves_the_client_once(moves in prop::collection::vec(0usize..4, 1..6), seed in any::<u64>()) {
        let mut world = World::new(4, seed);
        world.delay_orders(150);
        world.run(10_000);
        for to in moves {
            let expected = u64::from(world.client_at() != to);
            world.take_moves_of_first();
            world.move_first_to(to);
            world.run(8_000);
            prop_assert_eq!((world.take_moves_of_first(), world.client_at()), (expected, to));
        }
        world.assert_settled();
    }

    /// A standby whose link fails, once or repeatedly, takes no client from the owner, although its reports
    /// still reach the control server.
    #[test]
    fn f117_an_isolated_standby_moves_no_client(
        standby in 1usize..4, cuts in prop::collection::vec((cut(), 4_000u64..12_000), 1..8),
        has_management in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut world = World::new(4, seed);
        if has_management {
            world.separate_management();
        }
        world.run(10_000);
        let owner = world.owner_of_first();
        let standby = (owner + standby) % 4;
        world.take_moves_of_first();
        for (cut, pause) in cuts {
            world.partition(1 << standby);
            world.run(cut);
            world.partition(0);
            world.run(pause);
            prop_assert_eq!(world.take_moves_of_first(), 0);
        }
        world.run(60_000);
        prop_assert_eq!((world.take_moves_of_first(), world.first_in_order()), (0, owner));
        world.assert_settled();
    }

    /// The client leaves an isolated or paused owner once, and is not moved back when the owner returns.
    #[test]
    fn f117_f132_a_paused_or_isolated_owner_takes_no_client_back(
        is_paused in any::<bool>(), ms in 1_500u64..40_000, has_control in any::<bool>(),
        has_management in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut world = World::new(4, seed);
        if has_management {
            world.separate_management();
        }
        world.run(10_000);
        if !has_control {
            world.stop_control();
        }
        let owner = world.owner_of_first();
        world.take_moves_of_first();
        if is_paused {
            world.pause(owner);
        } else {
            world.partition(1 << owner);
        }
        world.run(ms);
        prop_assert_eq!(world.take_moves_of_first(), 1);
        world.resume(owner);
        world.partition(0);
        world.run(60_000);
        prop_assert_eq!(world.take_moves_of_first(), 0);
        world.assert_settled();
    }
}

/// F132: while BFD packets are lost and sessions fail again and again, the hold-down of unsteady candidates limits the
/// moves of clients. The limits apply to the sum over 100 runs of 40 s with three nodes. With 20 % loss there were 292
/// moves, and 429 without the hold-down.
#[test]
fn f132_while_bfd_packets_are_lost_the_hold_down_limits_the_moves_of_clients() {
    let moves_with = |percent: u64| {
        let in_run = |seed: u64| {
            let mut world = World::new(3, seed);
            world.run(10_000);
            world.take_moves_of_first();
            world.run_with_bfd_loss(40_000, percent);
            let moves = world.take_moves_of_first();
            world.run(200_000);
            world.assert_settled();
            moves
        };
        (0..100).map(in_run).sum::<u64>()
    };
    for (percent, most) in [(5, 10), (20, 350)] {
        let moves = moves_with(percent);
        assert!(moves <= most, "{percent} %: {moves} moves");
    }
}
