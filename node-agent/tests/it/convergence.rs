//! Tests that the final kernel state depends only on the last state of the control server. Neither the
//! grouping of feed frames (messages of the control server) into batches, nor loop iterations, interruptions
//! and restarts of the agent may change the result.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use model::{
    cluster::compiled::CompiledService,
    kinds::node::ProxyOptions,
    program,
    wire::feed::{Frame, NetworkState, NodeState, StartMode},
};
use node_agent::{
    agent::Agent, dataplane::memory::MemoryKernel, feed::machine::Assembler, networks::networks, tally::Tally,
};
use proptest::prelude::*;

use crate::support::{
    agents::{Kernels, agent},
    dir::StateDir,
    states::*,
};

#[derive(Debug, Clone)]
enum Step {
    Set {
        number: u16,
        endpoints: u8,
    },
    Unsupported(u16),
    Remove(u16),
    Network(bool),
    MasqueradeAll(bool),
    Synced,
    Turn,
    /// Interruption of the feed, the stream of state to the agent. The control server resumes with the given
    /// start mode: the changes since the last `synced` frame, or a full state.
    Cut(StartMode),
    Restart,
    Disturb(u16),
    FailCalls(u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..6_u16, 0..4_u8).prop_map(|(number, endpoints)| Step::Set { number, endpoints }),
        1 => (1..6_u16).prop_map(Step::Unsupported),
        3 => (1..6_u16).prop_map(Step::Remove),
        1 => any::<bool>().prop_map(Step::Network),
        1 => any::<bool>().prop_map(Step::MasqueradeAll),
        4 => Just(Step::Synced),
        3 => Just(Step::Turn),
        1 => prop_oneof![Just(StartMode::Full), Just(StartMode::Delta)].prop_map(Step::Cut),
        1 => Just(Step::Restart),
        1 => (1..6_u16).prop_map(Step::Disturb),
        1 => (1..3_u32).prop_map(Step::FailCalls),
    ]
}

/// Current state of the control server, with the changes that are not delivered to the agent yet.
#[derive(Default)]
struct Truth {
    revision: u64,
    services: BTreeMap<u16, CompiledService>,
    network: NetworkState,
    node: NodeState,
    unsynced: Vec<Frame>,
}

impl Truth {
    fn position(&self) -> String {
        format!("7-{}", self.revision)
    }

    fn whole(&self) -> Vec<Frame> {
        let head = [Frame::Network(self.network.clone()), Frame::Node(self.node.clone())];
        head.into_iter().chain(self.services.values().cloned().map(set)).collect()
    }
}

struct World {
    truth: Truth,
    dir: StateDir,
    kernel: MemoryKernel,
    agent: Option<Agent>,
    assembler: Assembler,
    now: Instant,
}

static WORLDS: AtomicU64 = AtomicU64::new(0);

impl World {
    fn new() -> Self {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let mut world = Self {
            truth: Truth { revision: 1, ..Truth::default() },
            dir: StateDir::new(&format!("convergence-{number}")),
            kernel: MemoryKernel::default(),
            agent: None,
            assembler: Assembler::new(None),
            now: Instant::now(),
        };
        world.restart();
        world.cut(StartMode::Full);
        world.synced();
        world
    }

    fn restart(&mut self) {
        self.agent = None;
        let tally = Tally::default();
        self.agent = Some(agent(&self.dir, &Kernels::only(&self.kernel), &tally, self.now));
    }

    fn agent(&mut self) -> &mut Agent {
        self.agent.as_mut().unwrap()
    }

    fn push(&mut self, frame: Frame) {
        if let Some(batch) = self.assembler.push(frame).unwrap() {
            let now = self.now;
            self.agent().receive(batch, now);
        }
    }

    fn say(&mut self, frame: Frame) {
        self.truth.unsynced.push(frame.clone());
        self.push(frame);
    }

    fn cut(&mut self, mode: StartMode) {
        self.assembler = Assembler::new(self.agent().state().position());
        self.push(start(mode, &self.truth.position()));
        let frames = match mode {
            StartMode::Full => self.truth.whole(),
            StartMode::Delta => self.truth.unsynced.clone(),
        };
        for frame in frames {
            self.push(frame);
        }
    }

    fn synced(&mut self) {
        self.push(synced(&self.truth.position()));
        self.truth.unsynced.clear();
    }

    fn pass_time(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let now = self.now;
            self.agent().turn(now, 0);
            self.now = self.agent().next_turn(now);
        }
    }

    fn step(&mut self, step: Step) {
        self.truth.revision += 1;
        let revision = self.truth.revision;
        match step {
            Step::Set { number, endpoints } => self.put(number, service(number, endpoints, revision)),
            Step::Unsupported(number) => self.put(number, unsupported(number, revision)),
            Step::Remove(number) => {
                self.truth.services.remove(&number);
                self.say(removed(number, revision));
            }
            Step::Network(has) => {
                self.truth.network = if has { network(&["10.244.0.0/16"]) } else { NetworkState::default() };
                self.say(Frame::Network(self.truth.network.clone()));
            }
            Step::MasqueradeAll(masquerade_all) => {
                self.truth.node = NodeState {
                    proxy: ProxyOptions { masquerade_all, ..ProxyOptions::default() },
                    ..NodeState::default()
                };
                self.say(Frame::Node(self.truth.node.clone()));
            }
            Step::Synced => self.synced(),
            Step::Turn => self.pass_time(Duration::from_millis(300)),
            Step::Cut(mode) => self.cut(mode),
            Step::Restart => {
                self.restart();
                self.cut(StartMode::Delta);
            }
            Step::Disturb(number) => self.kernel.disturb(|contents| {
                contents.programs.remove(&service_key(number));
            }),
            Step::FailCalls(count) => self.kernel.fail_calls(count),
        }
    }

    fn put(&mut self, number: u16, service: CompiledService) {
        self.truth.services.insert(number, service.clone());
        self.say(set(service));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_way_to_a_state_leaves_the_kernel_as_that_state_at_once(
        steps in prop::collection::vec(any_step(), 0..60),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.truth.revision += 1;
        world.synced();
        world.pass_time(Duration::from_secs(60));

        let at_once = MemoryKernel::default();
        let dir = StateDir::new("convergence-at-once");
        let mut agent = agent(&dir, &Kernels::only(&at_once), &Tally::default(), world.now);
        let services = world.truth.services.values().cloned().collect();
        let mut batch = full("7-1000", services);
        batch.network = Some(world.truth.network.clone());
        batch.node = Some(world.truth.node.clone());
        agent.receive(batch, world.now);
        agent.turn(world.now, 0);
        prop_assert_eq!(world.kernel.contents(), at_once.contents());

        // Both equal the result of the model without a loop.
        let programs: BTreeMap<_, _> = world
            .truth
            .services
            .values()
            .filter_map(|service| Some((service.service.clone(), program::program(service, &place()).ok()?.into())))
            .collect();
        let contents = at_once.contents();
        prop_assert_eq!(contents.programs, programs);
        prop_assert_eq!(
            contents.networks,
            networks(&world.truth.network, &world.truth.node)
        );
    }
}
