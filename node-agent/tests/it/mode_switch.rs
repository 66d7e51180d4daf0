//! Tests of a change of the proxy mode on a running node, with the agent loop and an in-memory kernel per
//! mode.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::time::{Duration, Instant};

use model::{
    kinds::{
        event::EventReason,
        node::{ProxyMode, ProxyOptions},
    },
    program,
    wire::feed::NodeState,
};
use node_agent::{
    agent::Agent, dataplane::memory::MemoryKernel, feed::machine::Batch, status::Status, tally::Tally,
};

use crate::support::{
    agents::{Kernels, agent},
    dir::StateDir,
    states::*,
};

const NFTABLES: ProxyMode = ProxyMode::Nftables;
const IPTABLES: ProxyMode = ProxyMode::Iptables;
const USERSPACE: ProxyMode = ProxyMode::Userspace;

struct Node {
    agent: Agent,
    kernels: Kernels,
    tally: Tally,
    now: Instant,
    revision: u64,
}

impl Node {
    fn start(dir: &StateDir, kernels: &Kernels) -> Self {
        let (tally, now) = (Tally::default(), Instant::now());
        let agent = agent(dir, kernels, &tally, now);
        let mut node = Self { agent, kernels: kernels.clone(), tally, now, revision: 10 };
        node.agent.turn(node.now, 0);
        node
    }

    fn take(&mut self, batch: Batch) {
        self.agent.receive(batch, self.now);
        self.agent.turn(self.now, 0);
    }

    fn change(&mut self, services: Vec<model::cluster::compiled::CompiledService>) {
        self.revision += 1;
        self.take(delta(&format!("7-{}", self.revision), services));
    }

    /// Delivers a Node object with the given proxy mode to the agent; `None` leaves the mode unset.
    fn ask(&mut self, mode: Option<ProxyMode>) {
        self.ask_with(mode, ProxyOptions::default());
    }

    fn ask_with(&mut self, mode: Option<ProxyMode>, proxy: ProxyOptions) {
        self.revision += 1;
        let mut batch = delta(&format!("7-{}", self.revision), Vec::new());
        batch.node = Some(NodeState { mode, proxy, ..NodeState::default() });
        self.take(batch);
    }

    fn pass_time(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            let next = self.agent.next_turn(self.now);
            assert!(next > self.now, "a turn that does not wait would spin");
            self.now = next.min(end);
            self.agent.turn(self.now, 0);
        }
    }

    fn status(&mut self) -> Status {
        self.agent.status()
    }

    fn kernel(&self, mode: ProxyMode) -> &MemoryKernel {
        &self.kernels.by_mode[&mode]
    }

    /// Returns the number of Services that the in-memory kernel of each mode contains.
    fn held(&self) -> Vec<usize> {
        self.kernels.by_mode.values().map(|kernel| kernel.contents().programs.len()).collect()
    }

    fn reasons(&mut self) -> Vec<EventReason> {
        self.status().events.iter().map(|event| event.reason).collect()
    }
}

fn running(test: &str, modes: &[ProxyMode]) -> (StateDir, Node) {
    let dir = StateDir::new(&format!("mode-{test}"));
    let mut node = Node::start(&dir, &Kernels::of(modes));
    node.take(full("7-10", (1..=3).map(|n| service(n, 1, 9)).collect()));
    (dir, node)
}

/// F013, F053: the old mode is removed only after the new mode has programmed all Services and the
/// connections of the old mode have ended.
#[test]
fn f013_f053_the_old_mode_leaves_only_after_the_new_one_holds_everything() {
    let (_dir, mut node) = running("order", &[NFTABLES, IPTABLES]);
    node.kernel(NFTABLES).retire_after(3);
    node.ask(Some(IPTABLES));
    assert_eq!(node.status().mode, IPTABLES);
    assert_eq!(node.held(), [3, 3], "both for a while");
    node.pass_time(2);
    assert_eq!(node.held(), [3, 3]);
    node.change(vec![service(4, 1, 12)]);
    assert_eq!(node.held(), [3, 4], "changes go to the one that runs");
    node.pass_time(2);
    assert_eq!(node.held(), [0, 4]);
    let status = node.status();
    assert!(status.is_healthy() && status.warnings.is_empty());
    assert_eq!(status.verified, Some(position("7-12")));
    assert_eq!(node.reasons(), [EventReason::ModeChanged]);
    assert_eq!(status.events[0].message, "iptables has taken over from nftables");
    // The agent's own mode applies if the Node names none.
    node.ask(None);
    assert_eq!(node.status().mode, NFTABLES);
    node.pass_time(2);
    assert_eq!(node.held(), [4, 0]);
    assert_eq!(node.tally.mode_changes.get(), 2);
}

/// If the new mode is unavailable, fails as a whole, or fails for one Service, the old mode stays in force,
/// and the agent retries the change until it succeeds.
#[test]
fn a_mode_that_fails_leaves_the_old_one_and_is_tried_again() {
    let (_dir, mut node) = running("fails", &[NFTABLES, IPTABLES]);
    node.kernel(IPTABLES).fail_calls(2);
    node.ask(Some(IPTABLES));
    let status = node.status();
    assert_eq!((status.mode, node.held()), (NFTABLES, vec![3, 0]));
    assert!(status.is_healthy(), "traffic goes on");
    let warning = &status.warnings[0];
    assert!(warning.contains("asks for iptables") && warning.contains("told to fail"), "{warning}");
    node.change(vec![service(4, 1, 12)]);
    assert_eq!(node.held(), [4, 0], "changes go on meanwhile");
    node.kernel(IPTABLES).refuse(&service_key(2), Some("no room"));
    node.pass_time(30);
    let status = node.status();
    assert!(status.warnings[0].contains("default/s2: no room"), "{:?}", status.warnings);
    assert_eq!(node.held(), [4, 0], "what it had written is removed");
    node.kernel(IPTABLES).refuse(&service_key(2), None);
    node.pass_time(120);
    assert_eq!((node.status().mode, node.held()), (IPTABLES, vec![0, 4]));
    assert_eq!(node.status().warnings, [""; 0]);
    assert!(node.tally.mode_change_failures.get() >= 3);
    assert_eq!(*node.reasons().last().unwrap(), EventReason::ModeChanged);
}

#[test]
fn a_mode_that_the_machine_lacks_is_said_and_given_up_when_nobody_asks_any_more() {
    let (_dir, mut node) = running("lacks", &[NFTABLES]);
    node.ask(Some(ProxyMode::Ipvs));
    assert!(node.status().warnings[0].contains("the Node asks for ipvs"), "{:?}", node.status().warnings);
    node.ask(None);
    assert_eq!(node.status().warnings, [""; 0]);
    let failures = node.tally.mode_change_failures.get();
    node.pass_time(600);
    assert_eq!(node.tally.mode_change_failures.get(), failures, "nothing is tried any more");
}

/// A Service that the old mode already rejected does not prevent the change to a new mode.
#[test]
fn a_service_that_failed_before_does_not_stop_the_change() {
    let (_dir, mut node) = running("bad", &[NFTABLES, IPTABLES]);
    for mode in [NFTABLES, IPTABLES] {
        node.kernel(mode).refuse(&service_key(2), Some("no room"));
    }
    node.change(vec![service(2, 2, 11)]);
    node.ask(Some(IPTABLES));
    assert_eq!(node.status().mode, IPTABLES);
    assert_eq!(node.status().failures_total, 1);
}

/// If the Node returns to its first mode before the removal of that mode has ended, the agent adopts and keeps the
/// kernel objects of the mode.
#[test]
fn a_mode_that_comes_back_while_it_leaves_keeps_its_rules() {
    let (_dir, mut node) = running("back", &[NFTABLES, IPTABLES]);
    node.kernel(NFTABLES).retire_after(1000);
    node.ask(Some(IPTABLES));
    node.pass_time(3);
    node.ask(Some(NFTABLES));
    node.kernel(NFTABLES).retire_after(0);
    node.pass_time(10);
    assert_eq!((node.status().mode, node.held()), (NFTABLES, vec![3, 0]));
}

#[test]
fn a_restart_runs_the_mode_of_the_node_and_writes_nothing() {
    let (dir, mut node) = running("restart", &[NFTABLES, IPTABLES, USERSPACE]);
    for mode in [IPTABLES, USERSPACE, NFTABLES] {
        node.ask(Some(mode));
        node.pass_time(5);
        let (kernels, revision) = (node.kernels.clone(), node.revision);
        let before: Vec<_> = kernels.by_mode.values().map(MemoryKernel::contents).collect();
        drop(node.agent);
        node = Node::start(&dir, &kernels);
        node.revision = revision;
        node.pass_time(60);
        assert_eq!((node.status().mode, node.tally.kernel_writes.get()), (mode, 0));
        let after: Vec<_> = kernels.by_mode.values().map(MemoryKernel::contents).collect();
        assert_eq!(after, before);
    }
}

/// If an agent is killed while both modes are programmed, the next agent removes the mode that the Node no longer
/// has, but only after it has successfully programmed the other one.
#[test]
fn what_a_killed_agent_left_of_another_mode_is_removed() {
    let (dir, mut node) = running("killed", &[NFTABLES, IPTABLES]);
    node.ask(Some(IPTABLES));
    node.pass_time(5);
    let kernels = node.kernels.clone();
    drop(node.agent);
    kernels.by_mode[&NFTABLES].disturb(|contents| {
        let program = program::program(&service(1, 1, 9), &place()).unwrap();
        contents.programs.insert(service_key(1), program.into());
    });
    kernels.by_mode[&IPTABLES].fail_calls(1);
    let mut node = Node::start(&dir, &kernels);
    assert_eq!(node.held(), [1, 3], "not before the first good pass");
    node.pass_time(5);
    assert_eq!(node.held(), [0, 3]);
    assert!(node.reasons().contains(&EventReason::LeftoversRemoved), "{:?}", node.reasons());
}

/// If the machine does not support the Node's mode at the start, the agent runs its own default mode, with a
/// warning.
#[test]
fn an_agent_whose_mode_cannot_be_opened_at_start_falls_back_to_its_own() {
    let (dir, mut node) = running("fallback", &[NFTABLES, IPTABLES]);
    node.ask(Some(IPTABLES));
    let mut kernels = node.kernels.clone();
    drop(node.agent);
    let iptables = kernels.by_mode.remove(&IPTABLES).unwrap();
    let mut node = Node::start(&dir, &kernels);
    let status = node.status();
    assert_eq!((status.mode, status.is_healthy()), (NFTABLES, true));
    assert!(status.warnings[0].contains("the Node asks for iptables"), "{:?}", status.warnings);
    drop(node.agent);
    kernels.by_mode.insert(IPTABLES, iptables);
    let mut node = Node::start(&dir, &kernels);
    assert_eq!(node.status().mode, IPTABLES);
}

/// A change of the packet mark in the same mode changes the existing table in place and never removes it.
#[test]
fn another_option_of_the_same_mode_is_taken_over_in_place() {
    let (_dir, mut node) = running("option", &[NFTABLES]);
    node.ask_with(None, ProxyOptions { masquerade_bit: Some(20), ..ProxyOptions::default() });
    assert_eq!(node.reasons(), [EventReason::ModeChanged]);
    let message = node.status().events[0].message.clone();
    assert_eq!(message, "nftables, mark 0x100000 has taken over from nftables");
    node.pass_time(5);
    assert_eq!(node.held(), [3], "what both share is not removed with the old one");
    // An option without effect in this mode changes nothing.
    let proxy = ProxyOptions { masquerade_bit: Some(20), strict_arp: false, ..ProxyOptions::default() };
    node.ask_with(None, proxy);
    assert_eq!(node.tally.mode_changes.get(), 1);
    // A change in place that fails half way is repaired by the old one.
    node.kernel(NFTABLES).fail_calls(1);
    node.ask_with(None, ProxyOptions::default());
    assert!(node.status().warnings[0].contains("told to fail"), "{:?}", node.status().warnings);
    node.pass_time(60);
    assert_eq!((node.tally.mode_changes.get(), node.held()), (2, vec![3]));
}
