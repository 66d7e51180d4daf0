//! Bounded model checking of the ownership of addresses: all sequences of failures, returns, partitions and pauses, up
//! to a length, each followed by each of several times. Every sequence is executed in the simulation, whose nodes
//! run the state machines of the product; then no more events happen.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use node_agent::announce::machine::{LEAVE_TIME, RETURN_CHECK_TIME};
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{
    Event, carry_out,
    world::{BrokenRule, World},
};

/// Number of nodes, all of which are candidates.
const NODES: usize = 3;
/// Times after an event, in milliseconds: less than the detection time, more than it, and more than the lease of a
/// node.
const TIMES_MS: [u64; 3] = [200, 2_000, 17_000];
/// Time after the last event until the simulation must have settled, in milliseconds.
const SETTLE_MS: u64 = 200_000;

/// Longest time with two announcers in any sequence, in milliseconds.
static LONGEST_MS: AtomicU64 = AtomicU64::new(0);

const SETTLED: &str = "each part has one announcer in the end";
const LASTS: &str = "two announcers do not last";
const MOMENT: &str = "two nodes announce for a moment";

/// Sequence of events to explore.
#[derive(Debug, Clone)]
struct Ownerships {
    /// True if the control server is stopped at first.
    begins_alone: bool,
    /// Maximum number of further events.
    events_max: usize,
    broken: Option<BrokenRule>,
}

/// Events of a sequence, and their effects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Course {
    steps: Vec<(Event, u64)>,
    /// True if each part of the network has one owner in the end, if it has an eligible node.
    is_settled: bool,
    /// Longest time in which two running nodes of one part announced the same address, in milliseconds.
    overlap_ms: u64,
}

/// Returns the longest permitted time with two announcers in one part of the network. After a partition, sessions
/// must come up before an owner checks if another one exists; after a change of the order, the former owner leaves.
fn overlap_max() -> Duration {
    let session = Duration::from_millis(1_800);
    let probe = Duration::from_millis(300);
    (session + RETURN_CHECK_TIME + probe).max(LEAVE_TIME)
}

impl Ownerships {
    fn beginning(&self) -> Vec<(Event, u64)> {
        if self.begins_alone { vec![(Event::ControlStops, 200)] } else { Vec::new() }
    }

    /// Executes a sequence of events, with the same delays and random numbers each time.
    fn simulate(&self, steps: Vec<(Event, u64)>) -> Course {
        let mut world = World::new(NODES, 1);
        world.run(10_000);
        world.break_rule(self.broken);
        for (event, ms) in &steps {
            carry_out(&mut world, *event);
            world.run(*ms);
        }
        world.resume_all();
        world.run(SETTLE_MS);
        let overlap_ms = world.longest_overlap();
        if self.broken.is_none() {
            LONGEST_MS.fetch_max(overlap_ms, Ordering::Relaxed);
        }
        Course { steps, is_settled: world.unsettled().is_none(), overlap_ms }
    }
}

/// State of the cluster as far as it decides which events have an effect.
#[derive(Debug, Clone, Copy)]
struct Conditions {
    lives: [bool; NODES],
    is_paused: [bool; NODES],
    is_whole: bool,
    has_control: bool,
}

impl Conditions {
    fn after(steps: &[(Event, u64)]) -> Self {
        let (lives, is_paused) = ([true; NODES], [false; NODES]);
        let mut conditions = Self { lives, is_paused, is_whole: true, has_control: true };
        for (event, _) in steps {
            match *event {
                Event::Kill(node) | Event::HandOver(node) => conditions.lives[node] = false,
                Event::Return(node) => conditions.lives[node] = true,
                Event::Pause(node) => conditions.is_paused[node] = true,
                Event::Resume(node) => conditions.is_paused[node] = false,
                Event::Partition(_) => conditions.is_whole = false,
                Event::Heal => conditions.is_whole = true,
                Event::ControlStops => conditions.has_control = false,
                Event::ControlStarts => conditions.has_control = true,
                Event::Drain(_) | Event::Gate(_) => {}
            }
        }
        conditions
    }

    fn permits(&self, event: Event) -> bool {
        let runs = |node: usize| self.lives[node] && !self.is_paused[node];
        match event {
            Event::Kill(node) | Event::HandOver(node) | Event::Pause(node) => runs(node),
            Event::Return(node) => !self.lives[node],
            Event::Resume(node) => self.is_paused[node],
            Event::Heal => !self.is_whole,
            Event::ControlStops => self.has_control,
            Event::ControlStarts => !self.has_control,
            Event::Partition(_) | Event::Drain(_) | Event::Gate(_) => true,
        }
    }
}

impl Model for Ownerships {
    type State = Course;
    type Action = (Event, u64);

    fn init_states(&self) -> Vec<Course> {
        vec![self.simulate(self.beginning())]
    }

    fn actions(&self, state: &Course, actions: &mut Vec<Self::Action>) {
        if state.steps.len() >= self.beginning().len() + self.events_max {
            return;
        }
        let of_nodes = [Event::Kill, Event::Return, Event::HandOver, Event::Pause, Event::Resume];
        let nodes = (0..NODES).flat_map(|node| of_nodes.map(|event| event(node)));
        // Each node apart from the others; the control server is with the nodes whose bit is not set.
        let partitions = (0..NODES).flat_map(|node| {
            let alone = 1 << node;
            [Event::Partition(alone), Event::Partition(0b111 ^ alone)]
        });
        let others = [Event::Heal, Event::ControlStops, Event::ControlStarts];
        let conditions = Conditions::after(&state.steps);
        let events = nodes.chain(partitions).chain(others).filter(|event| conditions.permits(*event));
        actions.extend(events.flat_map(|event| TIMES_MS.map(|ms| (event, ms))));
    }

    fn next_state(&self, before: &Course, action: Self::Action) -> Option<Course> {
        let mut steps = before.steps.clone();
        steps.push(action);
        Some(self.simulate(steps))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SETTLED, |_, state: &Course| state.is_settled),
            Property::always(LASTS, |_, state: &Course| {
                Duration::from_millis(state.overlap_ms) <= overlap_max()
            }),
            Property::sometimes(MOMENT, |_, state: &Course| state.overlap_ms > 0),
        ]
    }
}

/// Explores the model. Returns the number of sequences, and the refuted properties with the shortest sequence of
/// events.
fn explore(model: Ownerships) -> (usize, Vec<String>) {
    let is_broken = model.broken.is_some();
    let mut builder = model.checker().threads(2);
    if is_broken {
        builder = builder.finish_when(HasDiscoveries::AnyFailures);
    }
    let checker = builder.spawn_bfs().join();
    let mut discoveries = checker.discoveries();
    let has_moment = discoveries.remove(MOMENT).is_some();
    assert!(is_broken || has_moment, "no sequence has two announcers");
    let describe =
        |(name, path): (_, stateright::Path<Course, _>)| format!("{name}: {:?}", path.last_state());
    (checker.unique_state_count(), discoveries.into_iter().map(describe).collect())
}

#[test]
fn f117_f132_every_sequence_of_events_ends_with_one_announcer() {
    let is_long = std::env::var_os("TIDEGATE_SOAK").is_some();
    let bounds: &[(bool, usize)] = if is_long { &[(false, 3), (true, 2)] } else { &[(false, 2), (true, 2)] };
    for (begins_alone, events_max) in bounds.iter().copied() {
        let (sequences, failures) = explore(Ownerships { begins_alone, events_max, broken: None });
        let longest_ms = LONGEST_MS.load(Ordering::Relaxed);
        println!(
            "{sequences} sequences of {events_max} events, without control: {begins_alone}, two announcers for \
             {longest_ms} ms at most"
        );
        assert_eq!(failures, [""; 0]);
    }
}

#[test]
fn f117_f132_each_broken_rule_is_found() {
    for (broken, expected) in [(BrokenRule::NothingIsHeard, LASTS), (BrokenRule::SessionsNeverFail, SETTLED)]
    {
        let begins_alone = broken == BrokenRule::NothingIsHeard;
        let (sequences, failures) = explore(Ownerships { begins_alone, events_max: 2, broken: Some(broken) });
        println!("{broken:?}: {sequences} sequences, {failures:?}");
        assert!(failures.iter().any(|failure| failure.starts_with(expected)), "{broken:?}");
    }
}
