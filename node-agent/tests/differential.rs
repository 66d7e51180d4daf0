//! Random Services, networks and connections: the oracle says what must become of each, a real kernel does it, and there
//! is no difference; in every proxy mode.
//!
//! The seeds are fixed. `TIDEGATE_SOAK=1` draws others and more; a failure shrinks to a small state, which is printed.
//! `DIFFERENTIAL_LANES=ipvs` chooses lanes. Lanes that need the second kernel run this same test in it.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "a test's helpers are tests"
)]

#[path = "bench/mod.rs"]
mod bench;
#[path = "differential/draw.rs"]
mod draw;
mod support;

use std::{cell::RefCell, env, panic, process::Command, sync::Mutex, thread};

use bench::{
    Bench, Lane,
    judge::{self, Expected},
    lane::family_word,
    node::{self, patience},
};
use draw::Drawn;
use model::net::IpFamily;
use node_agent::dataplane::{Outcome, Scope};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Connections judged at least, in each lane.
const CASES_MIN: usize = 500;
/// States drawn for each family.
const STATES: u32 = 13;
/// Connections made in each state.
const CONNECTIONS: usize = 20;
/// Steps towards a smaller failure; each is a pass and its connections.
const SHRINKS_MAX: u32 = 60;

const NAME: &str = "f053_no_mode_differs_from_the_oracle_in_random_states";

#[test]
fn f053_no_mode_differs_from_the_oracle_in_random_states() {
    let wanted = env::var("DIFFERENTIAL_LANES").ok();
    let is_wanted =
        |lane: &Lane| wanted.as_ref().is_none_or(|names| names.split(',').any(|name| name == lane.name()));
    let lanes: Vec<_> = Lane::ALL.into_iter().rev().filter(is_wanted).collect();
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

fn in_guest(lane: Lane) {
    let guest = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/guest.sh");
    let status = Command::new(guest)
        .arg(env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env("DIFFERENTIAL_LANES", lane.name())
        .status()
        .expect("lab/guest.sh starts");
    assert!(status.success(), "{}: the guest ended with {status}", lane.name());
}

/// Judges both families in one lane.
fn judge_lane(lane: Lane) {
    let soak = env::var_os("TIDEGATE_SOAK").is_some();
    let mut total = 0;
    for family in IpFamily::ALL {
        let seed = if soak { node_agent::entropy() } else { 42 };
        let states = env::var("PROPTEST_CASES")
            .ok()
            .map_or(STATES * if soak { 10 } else { 1 }, |n| n.parse().unwrap());
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
        let outcome = runner.run(&draw::state(family, CONNECTIONS), |drawn| {
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

/// Programs a state and makes its connections; answers how many were judged, or the first that differs.
fn judge_state(bench: &mut Bench, drawn: &Drawn) -> Result<usize, String> {
    if bench.lane == Lane::Ipvs {
        // What has connections would stay, and refuse new ones, into the next state.
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
    // Who asks for what another one has keeps the rest; who asks for what the mode cannot do has nothing.
    for (service, outcome) in &pass.outcomes {
        if let Outcome::Failed { message, .. } = outcome
            && !message.contains("already taken")
        {
            return Err(format!("{service}: {message}"));
        }
    }
    let expected: Vec<_> = drawn.asks.iter().map(|ask| judge::expected(&bench.lowered(*ask), *ask)).collect();
    let is_sound = |(ask, expected): &(&bench::Ask, &Expected)| draw::is_sound(**ask, expected);
    let asks: Vec<_> = drawn.asks.iter().zip(&expected).filter(is_sound).collect();
    let timed: Vec<_> = asks.iter().map(|(ask, expected)| (**ask, patience(expected))).collect();
    for ((ask, expected), heard) in asks.iter().zip(bench.hosts.ask(&timed)) {
        if !judge::agrees(expected, **ask, &heard) {
            return Err(format!("{ask:?}\n  must be {expected:?}\n  but was {heard:?}"));
        }
    }
    // And once it is programmed, nothing is left to be written.
    let again = node::verified_writes(&bench.apply(&Scope::Everything));
    if again != 0 {
        return Err(format!("a second pass wrote {again} objects"));
    }
    Ok(asks.len())
}
