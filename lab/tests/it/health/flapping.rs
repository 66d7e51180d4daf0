//! Test of a flapping endpoint, whose check results change all the time: clients are always served. The test
//! does not depend on times: check results follow a script, and each part of the script ends when the agent
//! has counted enough results. In the diagram, the endpoint starts in service (left) and then is out of
//! service (right); three equal results in a row change its state.
//!
//! ```text
//!  in service                                    out of service
//!  bad bad good │ bad bad good │ …   stays       good good bad │ good good bad │ …   stays
//!       │                                             │
//!       └ bad bad bad: leaves, and flapping           └ good good good: comes back, and flapping
//!         after it changes nothing                      after it changes nothing
//! ```
//! On a busy machine the agent may receive a result too late, which counts as bad. The agent reports this, and the
//! affected part of the script is repeated.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::ensure;
use lab::{host::wait, network::client::at};
use serde_json::json;

use super::{
    answering::{Answering, Behaviour, CHECK_PATH},
    clients::{Client, Clock, Phase},
    stage::{self, Stage, UNWATCHED, wait_for, wait_verified},
};

/// Number of consecutive results that changes the state of an endpoint.
const ROW: usize = 3;
/// Number of repetitions of the flapping sequence, none of which may change the state.
const ROUNDS: usize = 3;
/// Maximum number of times that a part of the script is repeated because a result was late.
const TRIES_MAX: usize = 10;
/// Interval and timeout of health checks in milliseconds.
const INTERVAL_MS: u64 = 500;
/// Number of connections of each client that must have an acceptable result. The probability that none of
/// them reaches one of two endpoints that are in service is 1e-6.
const SETTLED: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

const SERVICE: &str = "flaps";
const STEADY: &str = "steady";
const VICTIM: &str = "victim";
const STEADY_PORT: u16 = 8080;
const VICTIM_PORT: u16 = 9000;

/// Service state of the endpoint: in or out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    In,
    Out,
}

impl Side {
    const fn state(self) -> (&'static str, u64) {
        match self {
            Self::In => ("Healthy", 100),
            Self::Out => ("Unhealthy", 0),
        }
    }

    /// Returns true if good check results, and not bad ones, lead to this state.
    const fn is_good(self) -> bool {
        matches!(self, Self::In)
    }

    const fn other(self) -> Self {
        match self {
            Self::In => Self::Out,
            Self::Out => Self::In,
        }
    }

    /// Returns a sequence of check results that must not change this state: one result less than needed for a
    /// change, then one that confirms the state.
    fn flapping(self) -> [bool; ROW] {
        let mut round = [!self.is_good(); ROW];
        round[ROW - 1] = self.is_good();
        round
    }
}

/// Counters of the agent that checks the endpoint, and changes of the endpoint's health that the control
/// server has decided.
#[derive(Debug)]
struct Seen {
    answers: u64,
    late: u64,
    /// Revisions at which the EndpointHealth object changed.
    decisions: Vec<u64>,
}

struct Flapping {
    stage: Stage,
    victim: Answering,
    victim_at: SocketAddr,
    checker: String,
    clock: Arc<Clock>,
    clients: Vec<Client>,
    _steady: Answering,
}

/// Checks that a flapping endpoint stays in service, leaves after the configured number of bad results in a
/// row, stays out while it flaps, and comes back after the same number of good results: the control server
/// changes its state twice in total. No client fails, and none reaches it while it is out.
pub(crate) fn flap_and_stay(modes: &[&'static str]) {
    let story = Flapping::start(modes);
    story.stay(Side::In);
    story.wait_met(Phase::Whole);
    story.cross_to(Side::Out);
    story.clock.turn(Phase::Out);
    story.stay(Side::Out);
    story.wait_clients("connections", |client| client.answers(Phase::Out).len() >= SETTLED);
    story.clock.turn(Phase::Back);
    story.cross_to(Side::In);
    story.stay(Side::In);
    story.wait_met(Phase::Back);
    for (mode, client) in modes.iter().zip(story.clients) {
        let made = client.finish();
        let wrong = made.iter().find(|one| one.is_wrong(VICTIM));
        assert!(wrong.is_none(), "{mode}: {wrong:?}");
    }
}

impl Flapping {
    fn start(modes: &[&'static str]) -> Self {
        let stage = Stage::new(modes, 2);
        let [at_steady, at_victim] = [&stage.workloads[0], &stage.workloads[1]];
        let steady = Answering::start(&at_steady.namespace, STEADY, STEADY_PORT, None);
        let mut victim = Answering::start(&at_victim.namespace, VICTIM, VICTIM_PORT, None);
        victim.behave(Behaviour::Plays);
        let check = json!({
            "type": "Http", "http": { "path": CHECK_PATH }, "rise": ROW, "fall": ROW,
            "intervalMs": INTERVAL_MS, "timeoutMs": INTERVAL_MS,
        });
        // The other endpoint is not checked, so that all counters of the agent are about this one.
        let mut unwatched = at_steady.clone();
        UNWATCHED.clone_into(&mut unwatched.node);
        let objects = [
            json!({ "kind": "Node", "metadata": { "name": UNWATCHED }, "spec": {} }),
            stage::service(SERVICE, &check),
            stage::endpoints(STEADY, SERVICE, &[unwatched], STEADY_PORT),
            stage::endpoints(VICTIM, SERVICE, std::slice::from_ref(at_victim), VICTIM_PORT),
        ];
        stage.cluster.apply_objects(&objects).unwrap();
        let victim_at = at(at_victim.address, VICTIM_PORT);
        wait_for(&stage.cluster, SERVICE, victim_at, "Healthy", 100);
        wait_verified(&stage.cluster, SERVICE);
        let (clock, to) = (Arc::<Clock>::default(), stage.virtual_address(SERVICE));
        let start = |turn| Client::start(stage.inside(turn), to, None, PAUSE, &clock);
        let clients = (0..modes.len()).map(start).collect();
        let checker = at_victim.node.clone();
        Self { victim, victim_at, checker, clock, clients, _steady: steady, stage }
    }

    /// Repeats check results that flap within the state `side`, and asserts that the state does not change.
    fn stay(&self, side: Side) {
        for _ in 0..TRIES_MAX {
            self.settle(side);
            let (before, destinations) = (self.look(), self.destinations());
            self.victim.play(&[], &side.flapping());
            let after = self.wait_answers(&before, ROUNDS * ROW);
            if after.late > before.late {
                continue;
            }
            assert_eq!(after.decisions, before.decisions, "nothing is decided while it flaps, {side:?}");
            let (state, share) = side.state();
            stage::endpoint_in(&self.stage.cluster, SERVICE, self.victim_at, state, share).unwrap();
            assert_eq!(self.destinations(), destinations);
            return;
        }
        panic!("in each of {TRIES_MAX} tries an answer was late");
    }

    /// Plays exactly as many results in a row as a change to the state `side` needs. Asserts that the state
    /// changes and that flapping afterwards does not change it back.
    fn cross_to(&self, side: Side) {
        for _ in 0..TRIES_MAX {
            self.settle(side.other());
            let before = self.look();
            self.victim.play(&[side.is_good(); ROW], &side.flapping());
            let after = self.wait_answers(&before, 2 * ROW);
            // A late result is bad: it leads out as well, but not back.
            if side == Side::In && after.late > before.late {
                continue;
            }
            self.wait(side);
            let decisions = self.look().decisions;
            assert_eq!(decisions.len(), before.decisions.len() + 1, "one decision: {decisions:?}");
            if let Some(weights) = self.destinations() {
                let carries = weights.get(&self.victim_at).is_some_and(|weight| *weight > 0);
                assert_eq!(carries, side == Side::In, "{weights:?}");
            }
            return;
        }
        panic!("in each of {TRIES_MAX} tries an answer was late");
    }

    /// Lets every check of the endpoint return the result that leads to the state `side`, until the endpoint is in
    /// this state and the agent received the last two results before the timeout of the check.
    fn settle(&self, side: Side) {
        self.victim.play(&[], &[side.is_good()]);
        self.wait(side);
        for _ in 0..TRIES_MAX {
            let before = self.look();
            let after = self.wait_answers(&before, 2);
            if after.late == before.late {
                return self.wait(side);
            }
        }
        panic!("in each of {TRIES_MAX} tries an answer was late");
    }

    /// Waits until the control server and the kernels of all nodes have the endpoint in the state `side`.
    fn wait(&self, side: Side) {
        let (state, share) = side.state();
        wait_for(&self.stage.cluster, SERVICE, self.victim_at, state, share);
        wait_verified(&self.stage.cluster, SERVICE);
    }

    fn look(&self) -> Seen {
        let metrics = self.stage.cluster.agent(&self.checker).unwrap().get("/metrics").unwrap().text;
        let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let checks = metrics.lines().filter(|line| line.starts_with("tidegate_agent_health_checks_total{"));
        let (late, told): (Vec<_>, Vec<_>) = checks
            .filter(|line| !line.contains("\"not_asked\""))
            .partition(|line| !line.contains("\"good\"") && !line.contains("\"wrong_answer\""));
        let sum = |lines: &[&str]| lines.iter().copied().map(count).sum();
        let path = format!("/v1/history?kind=EndpointHealth&namespace=default&name={SERVICE}");
        let history = self.stage.cluster.api.get_json(&path).unwrap();
        let items = history["items"].as_array().unwrap();
        let decisions = items.iter().map(|one| one["revision"].as_u64().unwrap()).collect();
        Seen { answers: sum(&told), late: sum(&late), decisions }
    }

    /// Waits until the agent has counted `more` check results since `before`, and returns the new counters.
    fn wait_answers(&self, before: &Seen, more: usize) -> Seen {
        let begun = self.victim.checks();
        // Polling the endpoint is free; polling the agent takes time from a slow machine.
        wait::until_true("checks", || self.victim.checks() >= begun + more).unwrap();
        wait::until("the agent to count answers", || {
            let seen = self.look();
            ensure!(seen.answers + seen.late >= before.answers + before.late + more as u64, "{seen:?}");
            Ok(seen)
        })
        .unwrap()
    }

    /// Returns the weight of each IPVS real server of the Service on the node in ipvs mode, or `None` if no node
    /// is in this mode.
    fn destinations(&self) -> Option<BTreeMap<SocketAddr, u32>> {
        let turn = self.stage.modes.iter().position(|mode| *mode == "ipvs")?;
        let node = self.stage.cluster.place(&format!("node{}", turn + 1)).unwrap();
        let service = self.stage.virtual_address(SERVICE).to_string();
        let listing = node.run("ipvsadm", &["-S", "-n"]).unwrap();
        let destination = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let after = |flag| words.iter().skip_while(|word| **word != flag).nth(1).copied();
            if words.first() != Some(&"-a") || after("-t") != Some(service.as_str()) {
                return None;
            }
            Some((after("-r")?.parse().unwrap(), after("-w")?.parse().unwrap()))
        };
        Some(listing.lines().filter_map(destination).collect())
    }

    fn wait_clients(&self, what: &str, enough: impl Fn(&Client) -> bool) {
        wait::until_true(what, || self.clients.iter().all(&enough)).unwrap();
    }

    fn wait_met(&self, phase: Phase) {
        self.wait_clients("the endpoint to be met", |client| {
            client.answers(phase).iter().any(|name| name == VICTIM)
        });
    }
}
