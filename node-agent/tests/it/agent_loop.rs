//! Tests of the agent loop, which applies states to the kernel, with an in-memory kernel and a clock that the
//! test controls.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use model::{
    kinds::{event::EventReason, node::ProxyOptions, service::Protocol},
    program,
    wire::{
        feed::NodeState,
        report::{FAILURES_MAX, FailureReason},
        traffic_counts::Rate,
    },
};
use node_agent::{
    agent::{Agent, Beginning},
    dataplane::{Traffic, memory::MemoryKernel},
    defaults::ProxyDefaults,
    feed::machine::Batch,
    status::Status,
    tally::Tally,
};

use crate::support::{
    agents::{Kernels, agent},
    dir::StateDir,
    states::*,
};

/// Node with an agent. The in-memory kernel and the state directory outlive the agent.
struct Node {
    agent: Agent,
    kernel: MemoryKernel,
    tally: Tally,
    now: Instant,
}

impl Node {
    fn start(dir: &StateDir, kernel: &MemoryKernel) -> Self {
        let (tally, now) = (Tally::default(), Instant::now());
        let agent = agent(dir, &Kernels::only(kernel), &tally, now);
        Self { agent, kernel: kernel.clone(), tally, now }
    }

    /// Delivers batches of state changes to the agent, and runs the agent until it has no more work to do at
    /// the current time. Returns the number of kernel writes that this took.
    fn take(&mut self, batches: impl IntoIterator<Item = Batch>) -> u64 {
        for batch in batches {
            self.agent.receive(batch, self.now);
        }
        self.turn()
    }

    fn turn(&mut self) -> u64 {
        let before = self.tally.kernel_writes.get();
        self.agent.turn(self.now, 0);
        self.tally.kernel_writes.get() - before
    }

    /// Advances the clock to each time at which the agent has work to do, by `seconds` in total. Returns the
    /// number of kernel writes that this took.
    fn pass_time(&mut self, seconds: u64) -> u64 {
        let (end, before) = (self.now + Duration::from_secs(seconds), self.tally.kernel_writes.get());
        while self.now < end {
            let next = self.agent.next_turn(self.now);
            assert!(next > self.now, "a turn that does not wait would spin");
            self.now = next.min(end);
            self.turn();
        }
        self.tally.kernel_writes.get() - before
    }

    fn status(&mut self) -> Status {
        self.agent.status()
    }

    /// Returns the names of the Services that are programmed in the in-memory kernel.
    fn programmed(&self) -> Vec<String> {
        self.kernel.contents().programs.keys().map(ToString::to_string).collect()
    }

    fn failures(&mut self) -> Vec<(String, FailureReason)> {
        let failures = self.status().failures;
        failures.iter().map(|(key, failure)| (key.to_string(), failure.reason)).collect()
    }
}

fn fresh(test: &str) -> (StateDir, Node) {
    let dir = StateDir::new(&format!("loop-{test}"));
    let node = Node::start(&dir, &MemoryKernel::default());
    (dir, node)
}

#[test]
fn the_kernel_is_not_touched_before_a_complete_state_is_held() {
    let (_dir, mut node) = fresh("first");
    node.kernel.disturb(|contents| {
        contents
            .programs
            .insert(service_key(9), program::program(&service(9, 1, 1), &place()).unwrap().into());
    });
    assert_eq!(node.pass_time(60), 0);
    assert_eq!(node.programmed(), ["default/s9"], "left over from an earlier life, and it still works");
    assert_eq!(node.tally.passes.get(), 0);
    let status = node.status();
    assert!(!status.is_healthy() && status.problems[0].contains("control has not been heard"));
    assert_eq!((status.received, status.verified), (None, None));

    assert_eq!(node.take([full("7-10", vec![service(1, 1, 9)])]), 2, "one put, the old one removed");
    assert_eq!(node.programmed(), ["default/s1"]);
    let status = node.status();
    assert!(status.is_healthy());
    assert_eq!((status.received, status.verified), (Some(position("7-10")), Some(position("7-10"))));
}

#[test]
fn a_restart_replays_the_journal_and_writes_nothing_when_the_kernel_is_right() {
    let (dir, mut node) = fresh("restart");
    assert_eq!(node.take([full("7-10", (1..=50).map(|n| service(n, 2, 9)).collect())]), 50);
    node.take([delta("7-11", vec![service(3, 1, 11)]), without("7-12", &[4])]);
    let (kernel, before) = (node.kernel.clone(), node.kernel.contents());
    drop(node.agent);

    let mut node = Node::start(&dir, &kernel);
    assert_eq!(node.turn(), 0);
    assert_eq!(kernel.contents(), before);
    let status = node.status();
    assert_eq!((status.verified, status.services), (Some(position("7-12")), 49));
    assert_eq!(status.kernel.transactions, 0);
    assert_eq!(node.pass_time(60), 0);
    // Control sends the same again, as after its own restart.
    let mut again: Vec<_> = (1..=50).filter(|n| *n != 3 && *n != 4).map(|n| service(n, 2, 9)).collect();
    again.push(service(3, 1, 11));
    assert_eq!(node.take([full("7-12", again)]), 0);
}

#[test]
fn the_saved_state_programs_an_empty_kernel_without_control() {
    let (dir, mut node) = fresh("replay");
    node.take([full("7-10", vec![service(1, 2, 9), service(2, 0, 9)])]);
    let wanted = node.kernel.contents();
    drop(node.agent);
    // The machine was rebooted: its kernel is empty.
    let mut node = Node::start(&dir, &MemoryKernel::default());
    assert_eq!(node.turn(), 2);
    assert_eq!(node.kernel.contents(), wanted);
    assert!(node.status().is_healthy());
}

#[test]
fn a_change_costs_one_write_and_one_pass_over_one_service() {
    let (_dir, mut node) = fresh("change");
    node.take([full("7-10", (1..=1000).map(|n| service(n, 2, 9)).collect())]);
    let passes = node.tally.passes.get();
    assert_eq!(node.take([delta("7-11", vec![service(500, 1, 11)])]), 1);
    assert_eq!(node.tally.passes.get(), passes + 1);
    assert_eq!(node.take([delta("7-12", vec![service(500, 1, 11)])]), 0, "said again");
    assert_eq!(node.tally.passes.get(), passes + 1, "nothing to look at");
    assert_eq!(node.status().verified, Some(position("7-12")));
}

#[test]
fn a_removed_service_leaves_the_kernel() {
    let (_dir, mut node) = fresh("remove");
    node.take([full("7-10", vec![service(1, 1, 9), service(2, 1, 9)])]);
    assert_eq!(node.take([without("7-11", &[1, 77])]), 1, "one that was never there is no work");
    assert_eq!(node.programmed(), ["default/s2"]);
    assert_eq!(node.take([full("7-12", Vec::new())]), 1, "what a full state does not name is gone");
    assert_eq!(node.programmed(), [""; 0]);
}

/// If another program removes one Service from the kernel, changes a second and adds a third, the agent
/// repairs the kernel state within a second.
#[test]
fn drift_is_seen_within_a_second_repaired_and_counted() {
    let (_dir, mut node) = fresh("drift");
    node.take([full("7-10", (1..=3).map(|n| service(n, 2, 9)).collect())]);
    node.pass_time(30);
    assert_eq!(node.tally.drift_repairs.get(), 0);
    let good = node.kernel.contents();
    node.kernel.disturb(|contents| {
        let other = contents.programs.remove(&service_key(1)).unwrap();
        contents.programs.insert(service_key(2), other.clone());
        contents.programs.insert(service_key(8), other);
        contents.networks.masquerade_sources = BTreeSet::from(["10.0.0.0/8".parse().unwrap()]);
    });
    assert_eq!(node.pass_time(1), 4);
    assert_eq!(node.kernel.contents(), good);
    assert_eq!(node.tally.drift_repairs.get(), 1);
    // A change of foreign state only triggers a check and is not drift.
    node.kernel.disturb(|_| {});
    let passes = node.tally.passes.get();
    assert_eq!(node.pass_time(5), 0);
    assert_eq!((node.tally.drift_repairs.get(), node.tally.passes.get()), (1, passes + 1));
}

#[test]
fn a_kernel_that_fails_is_tried_again_with_growing_waits_and_then_looked_at_as_a_whole() {
    let (_dir, mut node) = fresh("failure");
    node.take([full("7-10", vec![service(1, 1, 9), service(2, 1, 9)])]);
    node.kernel.fail_calls(8);
    assert_eq!(node.take([delta("7-11", vec![service(1, 2, 11)])]), 0);
    let status = node.status();
    assert!(!status.is_healthy() && status.problems[0].contains("told to fail"), "{:?}", status.problems);
    assert_eq!((status.received, status.verified), (Some(position("7-11")), Some(position("7-10"))));
    let failures = node.tally.pass_failures.get();
    assert_eq!(node.turn(), 0);
    assert_eq!(node.tally.pass_failures.get(), failures, "not tried again at once");

    // Meanwhile more changes arrive and the kernel is flushed; the recovery covers both.
    node.take([delta("7-12", vec![service(3, 1, 12)])]);
    node.kernel.disturb(|contents| contents.programs.clear());
    node.pass_time(120);
    assert_eq!(node.tally.pass_failures.get(), 8);
    assert_eq!(node.programmed(), ["default/s1", "default/s2", "default/s3"]);
    assert_eq!(node.tally.drift_repairs.get(), 1);
    let status = node.status();
    assert!(status.is_healthy());
    assert_eq!(status.verified, Some(position("7-12")));
    assert_eq!(node.pass_time(60), 0, "and then it is quiet");
}

/// If every kernel update fails, the delay between attempts doubles up to half a minute, here with the
/// maximum jitter.
#[test]
fn waits_after_failures_grow_to_a_bound() {
    let (_dir, mut node) = fresh("backoff");
    node.kernel.fail_calls(u32::MAX);
    node.agent.receive(full("7-10", vec![service(1, 1, 9)]), node.now);
    let mut waits = Vec::new();
    let mut failed_at = node.now;
    for _ in 0..2_000 {
        let failures = node.tally.pass_failures.get();
        node.agent.turn(node.now, u64::MAX);
        if node.tally.pass_failures.get() > failures {
            waits.push((node.now - failed_at).as_millis());
            failed_at = node.now;
        }
        node.now = node.agent.next_turn(node.now);
    }
    assert_eq!(waits[..5], [0, 199, 399, 799, 1599]);
    assert!(waits[10..].iter().all(|wait| (29_900..=30_000).contains(wait)), "{waits:?}");
}

/// A Service whose connections should survive, but whose endpoint has no node, is served and reported.
#[test]
fn a_service_whose_connections_cannot_survive_is_served_and_reported() {
    let (_dir, mut node) = fresh("severable");
    let mut wanted = service(1, 1, 9);
    wanted.load_balancer_ips = vec!["192.0.2.100".parse().unwrap()];
    wanted.survival = Some(Box::default());
    node.take([full("7-10", vec![wanted])]);
    assert_eq!(node.programmed(), ["default/s1"]);
    assert_eq!(node.failures(), [("default/s1".to_owned(), FailureReason::SurvivalUnavailable)]);
    let failure = &node.status().failures[&service_key(1)];
    assert!(failure.message.ends_with(": the endpoint 10.244.1.1 has no node"), "{}", failure.message);
    node.take([delta("7-11", vec![service(1, 1, 11)])]);
    assert_eq!(node.failures(), []);
}

#[test]
fn a_service_that_asks_for_what_is_not_carried_out_fails_alone() {
    let (_dir, mut node) = fresh("unsupported");
    node.take([full("7-10", vec![service(1, 1, 9), service(2, 1, 9)])]);
    node.take([delta("7-11", vec![unsupported(1, 11), service(3, 1, 11)])]);
    assert_eq!(node.programmed(), ["default/s2", "default/s3"], "nothing else is done instead of it");
    assert_eq!(node.failures(), [("default/s1".to_owned(), FailureReason::Unsupported)]);
    let status = node.status();
    assert_eq!((status.failures_total, status.verified), (1, Some(position("7-11"))));
    assert!(status.is_healthy(), "a Service's fault is not the agent's");
    let failure = &status.failures[&service_key(1)];
    assert_eq!(failure.message, "spec.sessionAffinity: ClientIP is not built yet");
    assert_eq!(failure.revision.0, 11);
    node.take([delta("7-12", vec![service(1, 1, 12)])]);
    assert_eq!(node.failures(), []);
    assert_eq!(node.programmed().len(), 3);
}

#[test]
fn a_service_that_the_kernel_refuses_fails_alone_and_is_tried_again() {
    let (_dir, mut node) = fresh("refused");
    node.kernel.refuse(&service_key(2), Some("no room"));
    node.take([full("7-10", (1..=3).map(|n| service(n, 1, 9)).collect())]);
    assert_eq!(node.programmed(), ["default/s1", "default/s3"]);
    assert_eq!(node.failures(), [("default/s2".to_owned(), FailureReason::KernelRefused)]);
    assert_eq!(node.status().failures[&service_key(2)].message, "no room");

    let passes = node.tally.passes.get();
    node.pass_time(600);
    let retries = node.tally.passes.get() - passes;
    assert!((8..=600).contains(&retries), "{retries} retries in ten minutes");
    node.kernel.refuse(&service_key(2), None);
    assert_eq!(node.pass_time(120), 1);
    assert_eq!(node.failures(), []);
    assert_eq!(node.programmed().len(), 3);
    let passes = node.tally.passes.get();
    node.pass_time(600);
    assert_eq!(node.tally.passes.get(), passes, "nothing is left to retry");
}

#[test]
fn a_refused_service_that_is_removed_is_forgotten() {
    let (_dir, mut node) = fresh("forgotten");
    node.kernel.refuse(&service_key(2), Some("no room"));
    node.take([full("7-10", vec![service(2, 1, 9)])]);
    node.take([without("7-11", &[2])]);
    assert_eq!(node.failures(), []);
    let passes = node.tally.passes.get();
    node.pass_time(300);
    assert_eq!(node.tally.passes.get(), passes);
}

#[test]
fn masquerade_sources_follow_the_workload_networks_and_the_nodes_settings() {
    let (_dir, mut node) = fresh("masquerade");
    node.take([full("7-10", vec![service(1, 1, 9)])]);
    assert!(node.kernel.contents().networks.masquerade_sources.is_empty());
    let sources = |node: &Node| -> Vec<String> {
        node.kernel.contents().networks.masquerade_sources.iter().map(ToString::to_string).collect()
    };
    let mut networks = delta("7-11", Vec::new());
    networks.network = Some(network(&["128.0.0.0/1"]));
    assert_eq!(node.take([networks]), 1);
    assert_eq!(sources(&node), ["0.0.0.0/1"]);
    let mut settings = delta("7-12", Vec::new());
    settings.node = Some(NodeState {
        proxy: ProxyOptions { masquerade_all: true, ..ProxyOptions::default() },
        ..NodeState::default()
    });
    assert_eq!(node.take([settings]), 1);
    assert_eq!(sources(&node), ["0.0.0.0/0", "::/0"]);
    let mut settings = delta("7-13", Vec::new());
    settings.node = Some(NodeState::default());
    node.kernel.fail_calls(1);
    assert_eq!(node.take([settings]), 0);
    assert_eq!(node.pass_time(5), 1, "also after a failure");
    assert_eq!(sources(&node), ["0.0.0.0/1"]);
}

#[test]
fn an_older_batch_is_refused_and_the_last_state_stays() {
    let (_dir, mut node) = fresh("older");
    node.take([full("7-10", vec![service(1, 1, 9)])]);
    let before = node.kernel.contents();
    for older in ["7-9", "6-900"] {
        assert_eq!(node.take([full(older, Vec::new())]), 0);
        assert_eq!(node.take([without(older, &[1])]), 0);
    }
    assert_eq!(node.take([without("8-1", &[1])]), 0, "a difference to a history that is not held");
    assert_eq!(node.kernel.contents(), before);
    assert_eq!(node.tally.feed_refusals.get(), 5);
    assert_eq!(node.agent.state().position(), Some(position("7-10")));
}

#[test]
fn more_failures_than_a_report_may_list_are_counted_and_the_kernels_come_first() {
    let (_dir, mut node) = fresh("many");
    let count = u16::try_from(FAILURES_MAX).unwrap() + 7;
    node.kernel.refuse(&service_key(9999), Some("no room"));
    let mut services: Vec<_> = (1..=count).map(|n| unsupported(n, 9)).collect();
    services.push(service(9999, 1, 9));
    node.take([full("7-10", services)]);
    let status = node.status();
    assert_eq!((status.failures.len(), status.failures_total), (FAILURES_MAX, u64::from(count) + 1));
    assert_eq!(status.failures[&service_key(9999)].reason, FailureReason::KernelRefused);
}

/// F078: the agent counts failed kernel updates and repairs of changes by other programs, and reports each as
/// an event with a message.
#[test]
fn f078_repairs_and_failures_are_events() {
    let (_dir, mut node) = fresh("events");
    node.take([full("7-10", vec![service(1, 1, 9)])]);
    assert!(node.status().events.is_empty());
    node.kernel.disturb(|contents| contents.programs.clear());
    node.pass_time(3);
    let events = node.status().events;
    assert_eq!((events[0].reason, events[0].count), (EventReason::DriftRepaired, 1));
    assert!(events[0].message.contains("1 objects were put right"), "{events:?}");
    node.kernel.disturb(|_| ());
    node.pass_time(3);
    assert_eq!(node.status().events.len(), 1, "strangers may change what is theirs");
    node.kernel.fail_calls(5);
    node.take([delta("7-11", vec![service(1, 2, 11)])]);
    node.pass_time(60);
    let events = node.status().events;
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!((events[1].reason, events[2].reason), (EventReason::PassFailed, EventReason::PassFailed));
    assert_eq!(events[1].count + events[2].count, 5, "the same in a row only counts");
}

/// F086: the agent reads traffic counters every ten seconds, but only while it has no other work, and stores
/// them for each Service.
#[test]
fn f086_traffic_is_read_every_ten_seconds_and_kept_by_service() {
    let (_dir, mut node) = fresh("traffic");
    node.take([full("7-10", vec![service(1, 1, 9)])]);
    let row = |connections| Traffic {
        service: service_key(1),
        protocol: Protocol::Tcp,
        target: program::Target { address: "10.244.1.1".parse().unwrap(), port: None },
        connections,
        packets: Some(7),
        bytes: None,
        active: None,
        inactive: None,
        failed: None,
    };
    node.kernel.set_traffic(vec![row(5)]);
    node.take([delta("7-11", vec![service(1, 2, 11)])]);
    assert!(node.status().traffic.is_empty());
    node.pass_time(10);
    let read = node.status().traffic;
    assert_eq!(read[&service_key(1)][0].connections, 5);
    node.kernel.set_traffic(vec![row(6)]);
    node.pass_time(10);
    let read = node.status().traffic;
    assert_eq!(read[&service_key(1)][0].connections, 6);
    let rates = read[&service_key(1)][0].per_second.expect("two readings were taken");
    assert_eq!((rates.connections, rates.packets), (Rate::of(1, 10_000), Some(Rate::of(0, 1))));
    node.kernel.set_traffic(Vec::new());
    node.pass_time(10);
    assert!(node.status().traffic.is_empty());
}

/// If another program listens on a health check node port, the Service is reported as failed, but still
/// programmed.
#[test]
fn a_health_check_port_that_is_taken_is_that_services_failure() {
    let (_dir, mut node) = fresh("health");
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let number = taken.local_addr().unwrap().port();
    let mut local = service(1, 1, 9);
    local.health_check_node_port = model::primitives::quantity::Port::new(number);
    node.take([full("7-10", vec![local, service(2, 1, 9)])]);
    assert_eq!(node.programmed(), ["default/s1", "default/s2"]);
    assert_eq!(node.failures(), [("default/s1".to_owned(), FailureReason::PortUnavailable)]);
    let status = node.status();
    assert_eq!((status.failures_total, status.is_healthy()), (1, true));
    assert_eq!(status.events[0].reason, EventReason::PortUnavailable);
    drop(taken);
    node.pass_time(10);
    assert_eq!(node.failures(), []);
}

/// The agent's own proxy settings (cluster networks and masquerading) apply as long as the Node object has
/// none.
#[test]
fn masquerading_follows_the_agents_own_cluster_networks_unless_the_node_names_some() {
    let dir = StateDir::new("loop-defaults");
    let kernel = MemoryKernel::default();
    let (journal, state) = dir.open();
    let nets = |text: &str| vec![text.parse().unwrap()];
    let beginning = Beginning {
        node: node_name(),
        kernel: Kernels::only(&kernel).ways(),
        defaults: ProxyDefaults { cluster_cidrs: nets("128.0.0.0/1"), ..ProxyDefaults::default() },
        journal,
        state,
        tally: Tally::default(),
    };
    let now = Instant::now();
    let mut agent = Agent::new(beginning, now).unwrap();
    agent.receive(full("7-10", vec![service(1, 1, 9)]), now);
    agent.turn(now, 0);
    let workloads =
        || -> Vec<String> { kernel.contents().networks.workloads.iter().map(ToString::to_string).collect() };
    assert_eq!(workloads(), ["128.0.0.0/1"]);
    let mut settings = delta("7-11", Vec::new());
    let proxy = ProxyOptions { cluster_cidrs: nets("10.0.0.0/8"), ..ProxyOptions::default() };
    settings.node = Some(NodeState { proxy, ..NodeState::default() });
    agent.receive(settings, now);
    agent.turn(now, 0);
    assert_eq!(workloads(), ["10.0.0.0/8"]);
}
