//! Tests of the state guard: if an agent receives a state from a different store epoch that lacks much of the
//! previous state, the agent does not apply it until it is confirmed.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::time::{Duration, Instant};

use model::{
    cluster::compiled::CompiledService,
    kinds::event::EventReason,
    primitives::quantity::{Epoch, Weight},
    wire::{
        ask::{Question, Reply},
        hold::{HeldReason, HeldState, Loss},
    },
};
use node_agent::{
    agent::Agent,
    dataplane::memory::MemoryKernel,
    feed::machine::Batch,
    hold::{self, FeedEnd, Guard, consent},
    tally::Tally,
};

use crate::support::{
    agents::{Kernels, agent},
    dir::StateDir,
    states::*,
};

struct Node {
    agent: Agent,
    kernel: MemoryKernel,
    tally: Tally,
    feed: FeedEnd,
    now: Instant,
}

impl Node {
    fn start(dir: &StateDir, kernel: &MemoryKernel, limit_percent: u8) -> Self {
        let (tally, now) = (Tally::default(), Instant::now());
        let mut agent = agent(dir, &Kernels::only(kernel), &tally, now);
        let (loop_end, feed) = hold::link();
        agent.guard_by(Guard::new(limit_percent, loop_end));
        Self { agent, kernel: kernel.clone(), tally, feed, now }
    }

    /// Delivers a batch of state changes to the agent, and runs the agent until it has no more work to do at
    /// the current time. Returns the number of kernel writes that this took.
    fn take(&mut self, batch: Batch) -> u64 {
        self.agent.receive(batch, self.now);
        self.turn()
    }

    fn turn(&mut self) -> u64 {
        let before = self.tally.kernel_writes.get();
        self.now += Duration::from_secs(1);
        self.agent.turn(self.now, 0);
        self.tally.kernel_writes.get() - before
    }

    fn held(&mut self) -> Option<HeldState> {
        self.agent.status().held
    }

    fn programmed(&self) -> usize {
        self.kernel.contents().programs.len()
    }

    fn confirm(&mut self, epoch: u64) -> Reply {
        self.agent.answer(Question::Confirm { epoch: Epoch(epoch) })
    }

    fn events(&mut self) -> Vec<EventReason> {
        self.agent.status().events.iter().map(|event| event.reason).collect()
    }
}

/// Starts an agent that serves `services` Services, of two endpoints each, at position 7-10 (epoch 7,
/// revision 10).
fn serving(test: &str, services: u16) -> (StateDir, Node) {
    let dir = StateDir::new(&format!("guard-{test}"));
    let mut node = Node::start(&dir, &MemoryKernel::default(), 50);
    assert!(node.take(full("7-10", some(1..=services))) > 0);
    (dir, node)
}

fn some(numbers: std::ops::RangeInclusive<u16>) -> Vec<CompiledService> {
    numbers.map(|number| service(number, 2, 9)).collect()
}

#[test]
fn an_empty_database_takes_nothing_away_until_it_is_confirmed_by_its_epoch() {
    let (_dir, mut node) = serving("empty", 4);
    assert_eq!(node.take(full("9-1", Vec::new())), 0);
    assert_eq!(node.programmed(), 4);
    let held = node.held().unwrap();
    assert_eq!((held.offered, held.in_force), (position("9-1"), position("7-10")));
    assert_eq!(held.reason, HeldReason::MuchLost);
    assert_eq!((held.vips, held.endpoints), (Loss { lost: 4, total: 4 }, Loss { lost: 8, total: 8 }));
    let status = node.agent.status();
    assert!(status.is_healthy(), "what it holds is served: {:?}", status.problems);
    assert!(
        status.warnings.iter().any(|warning| warning.contains("rejects the state")),
        "{:?}",
        status.warnings
    );
    assert_eq!(status.received, Some(position("7-10")));
    assert_eq!(*node.feed.in_force.borrow(), Some(position("7-10")));

    for other in [7, 8, 10] {
        let Reply::Failed { message } = node.confirm(other) else { panic!("{other} is not what is held") };
        assert!(message.contains("epoch 9"), "{message}");
        assert_eq!((node.turn(), node.programmed()), (0, 4));
    }
    assert_eq!(node.confirm(9), Reply::Confirmed(held));
    assert_eq!((node.turn(), node.programmed()), (4, 0));
    assert_eq!((node.held(), *node.feed.in_force.borrow()), (None, None));
    assert_eq!(node.events(), [EventReason::StateHeld, EventReason::StateReleased]);
    assert!(matches!(node.confirm(9), Reply::Failed { .. }), "once");
    assert_eq!(node.tally.states_held.get(), 1);
}

#[test]
fn what_is_held_follows_control_and_is_taken_when_it_takes_away_less() {
    let (_dir, mut node) = serving("follows", 8);
    assert_eq!(node.take(full("9-1", Vec::new())), 0);
    assert_eq!(node.take(delta("9-2", some(1..=3))), 0);
    assert_eq!(node.held().unwrap().offered, position("9-2"));
    assert_eq!(node.held().unwrap().vips, Loss { lost: 5, total: 8 });
    assert_eq!(node.take(delta("9-3", some(4..=4))), 4, "half is not more than half: the other half goes");
    assert_eq!((node.held(), node.programmed()), (None, 4));
    assert_eq!(node.agent.state().position(), Some(position("9-3")));
    // From here on the new epoch is treated normally.
    assert_eq!(node.take(delta("9-4", some(1..=1))), 0);
    assert_eq!(node.take(full("9-5", Vec::new())), 4, "within one life what is removed was meant");
}

#[test]
fn the_same_content_in_another_life_is_taken_without_a_kernel_write() {
    let (_dir, mut node) = serving("restored", 4);
    assert_eq!(node.take(full("9-10", some(1..=4))), 0);
    assert_eq!((node.held(), node.agent.state().position()), (None, Some(position("9-10"))));
}

#[test]
fn control_may_return_to_the_life_in_force_while_another_is_held() {
    let (_dir, mut node) = serving("returns", 4);
    assert_eq!(node.take(full("9-1", Vec::new())), 0);
    assert!(node.held().is_some());
    assert_eq!(node.take(full("7-11", some(1..=4))), 0);
    assert_eq!((node.held(), node.agent.state().position()), (None, Some(position("7-11"))));
    assert_eq!(node.take(full("7-9", some(1..=4))), 0, "and not further back");
    assert_eq!(node.agent.state().position(), Some(position("7-11")));
}

#[test]
fn an_agent_that_starts_again_holds_again_and_takes_consent_of_its_machine() {
    let (dir, mut node) = serving("again", 4);
    assert_eq!(node.take(full("9-1", Vec::new())), 0);
    let kernel = node.kernel.clone();
    node.agent.stop().unwrap();

    let mut node = Node::start(&dir, &kernel, 50);
    assert_eq!(node.turn(), 0);
    assert_eq!(node.agent.state().position(), Some(position("7-10")), "the journal has what is in force");
    assert_eq!(node.take(full("9-2", Vec::new())), 0);
    assert!(node.held().is_some());

    consent::give(dir.path(), Epoch(8)).unwrap();
    assert_eq!(node.turn(), 0, "consent to another epoch");
    assert_eq!(consent::given(dir.path()), Some(Epoch(8)));
    consent::give(dir.path(), Epoch(9)).unwrap();
    assert_eq!((node.turn(), node.programmed()), (4, 0));
    assert_eq!(consent::given(dir.path()), None, "used once");
    let kernel = node.kernel.clone();
    node.agent.stop().unwrap();

    let mut node = Node::start(&dir, &kernel, 50);
    assert_eq!((node.turn(), node.agent.state().position()), (0, Some(position("9-2"))));
}

#[test]
fn the_share_decides_for_addresses_and_endpoints_alone_and_a_few_may_always_go() {
    // Held state, offered state, limit, and expected rejection.
    let drained = |numbers| {
        let mut services = some(numbers);
        services
            .iter_mut()
            .flat_map(|it| &mut it.ports)
            .flat_map(|it| &mut it.endpoints)
            .for_each(|it| it.weight = Weight(0));
        services
    };
    let table = [
        ("all of two", some(1..=2), some(9..=9), 50, true),
        ("all of one", some(1..=1), Vec::new(), 50, false),
        ("more than half", some(1..=7), some(1..=3), 50, true),
        ("half", some(1..=6), some(1..=3), 50, false),
        ("no addresses, all endpoints", some(1..=4), drained(1..=4), 50, true),
        ("all, without a guard", some(1..=4), Vec::new(), 100, false),
        ("nearly all, nearly without a guard", some(1..=4), some(1..=1), 99, false),
        ("all, nearly without a guard", some(1..=4), Vec::new(), 99, true),
        ("one of many, with the strictest", some(1..=9), some(1..=8), 0, false),
        ("three of many, with the strictest", some(1..=9), some(1..=6), 0, true),
    ];
    for (case, before, after, limit_percent, is_held) in table {
        let dir = StateDir::new("guard-table");
        let mut node = Node::start(&dir, &MemoryKernel::default(), limit_percent);
        node.take(full("7-10", before));
        node.take(full("9-1", after));
        assert_eq!(node.held().is_some(), is_held, "{case}");
    }
}

#[test]
fn a_control_server_that_is_behind_is_told_of() {
    let (_dir, mut node) = serving("behind", 4);
    node.feed.behind.send_replace(Some(position("7-9")));
    let held = node.held().unwrap();
    assert_eq!(
        (held.reason, held.offered, held.in_force),
        (HeldReason::ControlBehind, position("7-9"), position("7-10"))
    );
    assert_eq!(node.held(), Some(held), "since the first time");
    assert!(matches!(node.confirm(7), Reply::Failed { .. }), "never backwards");
    node.feed.behind.send_replace(None);
    assert_eq!(node.held(), None);
}
