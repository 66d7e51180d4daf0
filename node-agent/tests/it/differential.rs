//! Differential tests with random Services, networks and connections. In every proxy mode, three sources must
//! agree on the result of each connection: the oracle (pure interpreter of packet programs), a trace
//! (simulated path of a packet through the kernel state), and a real connection. If the kernel state was
//! damaged, the trace must contain the place of the damage and the actual result.
//!
//! The seeds are fixed. `TIDEGATE_SOAK=1` uses other and more seeds; a failing state is reduced to a small
//! one, which is printed. `DIFFERENTIAL_LANES=ipvs` selects lanes (proxy mode variants). For lanes that need
//! the guest VM (`lab/guest.sh`), this test runs again inside of the VM.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "a test's helpers are tests"
)]

mod broken;
mod draw;
mod follow;

use std::{
    cell::RefCell,
    env, panic,
    sync::{Mutex, OnceLock},
    thread,
};

use draw::Drawn;
use model::{primitives::net::IpFamily, wire::trace::PacketTrace};
use node_agent::dataplane::{Outcome, Scope};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::{
    support::isolated::{guest, rerun},
    testbed::{
        self, Bench, Lane,
        judge::{self, Expected},
        lane::family_word,
        node::{self, patience},
    },
};

/// Minimum number of connections checked per lane (proxy mode variant).
const CASES_MIN: usize = 500;
/// Number of generated states for each address family, and number of connections in each state.
const DRAWN: (u32, usize) = (13, 20);
/// Number of generated states per address family, and of connections per state, in the guest VM
/// (`lab/guest.sh`), where states are expensive.
const DRAWN_IN_GUEST: (u32, usize) = (6, 45);
/// Maximum number of attempts to reduce a failing state to a smaller one. Each attempt programs a state and
/// opens its connections.
const SHRINKS_MAX: u32 = 60;

const NAME: &str = "differential::f053_f166_no_mode_differs_from_the_oracle_and_its_trace_in_random_states";
/// Name of the test in [`broken`] that runs in the guest VM (`lab/guest.sh`).
const BROKEN: &str = "differential::broken::f166_a_virtual_server_or_destination_that_somebody_deleted_is_where_the_trace_differs";

#[test]
fn f053_f166_no_mode_differs_from_the_oracle_and_its_trace_in_random_states() {
    let wanted = env::var("DIFFERENTIAL_LANES").ok();
    let is_wanted =
        |lane: &Lane| wanted.as_ref().is_none_or(|names| names.split(',').any(|name| name == lane.name()));
    let mut lanes: Vec<_> = Lane::ALL.into_iter().filter(is_wanted).collect();
    // The last one starts first: those that take longest.
    lanes.sort_by_key(|lane| (lane.in_guest(), *lane == Lane::Ipvs));
    if env::var_os("TIDEGATE_GUEST").is_some() {
        lanes.into_iter().for_each(judge_lane);
        return;
    }
    let left = Mutex::new(lanes);
    let next = || left.lock().unwrap().pop();
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        // Two at a time: more would wait for each other.
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(lane) = next() {
                    let judged =
                        panic::catch_unwind(
                            || if lane.in_guest() { in_guest(lane) } else { judge_lane(lane) },
                        );
                    if judged.is_err() {
                        failed.lock().unwrap().push(lane.name());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "these lanes differ from the oracle, see above: {failed:?}");
}

/// Runs the IPVS tests that need the guest VM (`lab/guest.sh`), all in one boot.
fn in_guest_ipvs() {
    static IS_GOOD: OnceLock<bool> = OnceLock::new();
    let run = || panic::catch_unwind(|| run_guest(Lane::Ipvs, &[NAME, BROKEN])).is_ok();
    assert!(*IS_GOOD.get_or_init(run), "ipvs failed in the guest, see above");
}

fn in_guest(lane: Lane) {
    if lane == Lane::Ipvs { in_guest_ipvs() } else { run_guest(lane, &[NAME]) }
}

fn run_guest(lane: Lane, tests: &[&str]) {
    rerun(guest().env("DIFFERENTIAL_LANES", lane.name()), tests);
}

/// Runs the differential test in one lane (proxy mode variant), for both address families.
fn judge_lane(lane: Lane) {
    let soak = env::var_os("TIDEGATE_SOAK").is_some();
    let (states, connections) = if lane.in_guest() { DRAWN_IN_GUEST } else { DRAWN };
    let mut total = 0;
    for family in IpFamily::ALL {
        let seed = if soak { node_agent::entropy() } else { 42 };
        let states = env::var("PROPTEST_CASES")
            .ok()
            .map_or(states * if soak { 10 } else { 1 }, |n| n.parse().unwrap());
        let config = Config {
            cases: states,
            max_shrink_iters: SHRINKS_MAX,
            failure_persistence: None,
            ..Config::default()
        };
        let mut seed_bytes = [0; 32];
        seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let bench = RefCell::new(Bench::open("df", lane, family).unwrap());
        let count = RefCell::new(0);
        let outcome = runner.run(&draw::state(family, connections), |drawn| {
            let judged = judge_state(&mut bench.borrow_mut(), &drawn).map_err(TestCaseError::fail)?;
            *count.borrow_mut() += judged;
            Ok(())
        });
        let (lane, family) = (lane.name(), family_word(family));
        println!("{lane:15} {family}: {} connections judged in {states} states, seed {seed}", count.borrow());
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, drawn)) => panic!("{lane} {family}: {reason}\nin {drawn:#?}"),
            Err(error @ TestError::Abort(_)) => panic!("{lane} {family}: {error}"),
        }
        total += count.into_inner();
    }
    assert!(total >= CASES_MIN, "{}: only {total} connections were judged", lane.name());
}

/// Programs a generated state and opens its connections. Returns the number of checked connections.
///
/// # Errors
/// Returns a description of the first difference between oracle, trace and observed result.
fn judge_state(bench: &mut Bench, drawn: &Drawn) -> Result<usize, String> {
    if bench.lane == Lane::Ipvs {
        // Targets with connections would stay into the next state, and reject new ones.
        bench.begin_anew();
    }
    bench.networks(&drawn.node, &drawn.workloads);
    bench.desired.programs.clear();
    for build in &drawn.services {
        bench.want(build);
    }
    let pass = bench.apply(&Scope::Everything);
    if let Some(error) = pass.failed {
        return Err(format!("the pass failed: {error:?}"));
    }
    // A Service in conflict keeps its other frontends; one with unsupported features is not programmed.
    for (service, outcome) in &pass.outcomes {
        if let Outcome::Failed { message, .. } = outcome
            && !message.contains("already taken")
        {
            return Err(format!("{service}: {message}"));
        }
    }
    let traced = follow::all(bench, &drawn.asks)?;
    let expected: Vec<_> = drawn.asks.iter().map(|ask| judge::expected(&bench.lowered(*ask), *ask)).collect();
    let is_sound =
        |((ask, expected), _): &((&testbed::Ask, &Expected), &PacketTrace)| draw::is_sound(**ask, expected);
    let asks: Vec<_> = drawn.asks.iter().zip(&expected).zip(&traced).filter(is_sound).collect();
    let timed: Vec<_> = asks.iter().map(|((ask, expected), _)| (**ask, patience(expected))).collect();
    for (((ask, expected), traced), heard) in asks.iter().zip(bench.hosts.ask(&timed)) {
        if !judge::agrees(expected, **ask, &heard) {
            return Err(format!("{ask:?}\n  must be {expected:?}\n  but was {heard:?}"));
        }
        follow::compare(**ask, traced, &heard)?;
    }
    // After a pass, nothing is left to be written.
    let again = node::verified_writes(&bench.apply(&Scope::Everything));
    if again != 0 {
        return Err(format!("a second pass wrote {again} objects"));
    }
    Ok(asks.len())
}
