//! Differential tests with random Services, networks and connections. In every proxy mode, four sources must
//! agree on the result of each connection: the second oracle ([`crate::second_oracle`], which reads the objects of
//! the API), the oracle (pure interpreter of packet programs), a trace (simulated path of a packet through the
//! kernel state), and a real connection. If the kernel state was damaged, the trace must contain the place of the
//! damage and the actual result.
//!
//! Every state replaces the one before, as a change of the cluster does. In ipvs mode, the state before is programmed
//! without connections, because the kernel keeps destinations that have some.
//!
//! Each run draws the states of some fixed seeds and those of a fresh seed, which it prints. `TIDEGATE_SEED` selects
//! one seed, and `DIFFERENTIAL_LANES=ipvs` selects lanes (proxy mode variants). `TIDEGATE_SOAK=1` draws more states of
//! the fresh seed. A failing state is reduced to a small one, which is printed. For lanes that need the guest VM
//! (`lab/guest.sh`), this test runs again inside of the VM.

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
mod follow;
mod mix;
mod states;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env, panic,
    sync::{Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use mix::Mix;
use model::{kinds::service::Protocol, primitives::net::IpFamily, program::oracle::Fate};
use node_agent::dataplane::Scope;
use proptest::test_runner::{TestCaseError, TestError};

use crate::{
    second_oracle::draw::{self, DrawnState, Question},
    support::isolated::{guest, rerun},
    testbed::{
        Ask, Bench, Heard, Lane,
        ask::{PATIENCE, SILENCE},
        judge::{self, Expected},
        lane::family_word,
        node::{self, patience},
        servers::has_sctp,
    },
};

/// Minimum number of connections checked per lane (proxy mode variant).
const CASES_MIN: u64 = 450;
/// Minimum share of the connections of a lane that go to a frontend of a Service, in percent.
const FRONTENDS_PERCENT_MIN: u64 = 50;
/// Minimum number of connections of a lane that are forwarded to an endpoint.
const FORWARDED_MIN: u64 = 120;
/// Seeds that every run draws before its fresh one.
const FIXED_SEEDS: [u64; 2] = [5, 11];
/// Number of generated states for each seed and address family, and number of connections in each state.
const STATES: (u32, usize) = (5, 24);
/// Number of generated states for each seed and address family, and of connections per state, in the guest VM
/// (`lab/guest.sh`), where states are expensive.
const STATES_IN_GUEST: (u32, usize) = (2, 48);
/// Factor of the number of states that `TIDEGATE_SOAK=1` draws with the fresh seed.
const SOAK_FACTOR: u32 = 15;
/// Environment variable with the seeds that are drawn in the guest VM, separated by commas.
const SEEDS: &str = "DIFFERENTIAL_SEEDS";
/// Maximum number of connections to frontends with session affinity that are repeated in each state.
const REPEATED_MAX: usize = 8;
/// Number of repetitions that must meet the same endpoint.
const REPETITIONS: usize = 4;
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
        lanes.into_iter().for_each(|lane| println!("{}", judge_lane(lane).line()));
        return;
    }
    println!("seeds: {}", seeds_text());
    let (is_complete, count) = (wanted.is_none(), lanes.len());
    let left = Mutex::new(lanes);
    let next = || left.lock().unwrap().pop();
    let failed = Mutex::new(Vec::new());
    let total = Mutex::new(Mix::default());
    thread::scope(|scope| {
        // Two at a time: more would wait for each other.
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(lane) = next() {
                    let judge = || if lane.in_guest() { in_guest(lane) } else { judge_lane(lane) };
                    match panic::catch_unwind(judge) {
                        Ok(mix) => total.lock().unwrap().add(&mix),
                        Err(_) => failed.lock().unwrap().push(lane.name()),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "these lanes differ, see above: {failed:?}");
    if is_complete {
        total.into_inner().unwrap().publish(count, &seeds_text());
    }
}

/// Returns the seeds of the run, the same in all lanes. The last one is the fresh one.
fn seeds() -> &'static [u64] {
    static DRAWN: OnceLock<Vec<u64>> = OnceLock::new();
    DRAWN.get_or_init(|| match env::var(SEEDS) {
        Ok(text) => text.split(',').map(|seed| seed.parse().expect("a seed is a number")).collect(),
        Err(_) if env::var_os("TIDEGATE_SEED").is_some() => vec![draw::seed()],
        Err(_) => FIXED_SEEDS.into_iter().chain([draw::seed()]).collect(),
    })
}

fn seeds_text() -> String {
    seeds().iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// Runs the IPVS tests that need the guest VM (`lab/guest.sh`), all in one boot. Returns the mix of the random states.
fn in_guest_ipvs() -> Mix {
    static OUTPUT: OnceLock<Option<String>> = OnceLock::new();
    let run = || panic::catch_unwind(|| run_guest(Lane::Ipvs, &[NAME, BROKEN])).ok();
    let output = OUTPUT.get_or_init(run).as_ref().expect("ipvs failed in the guest, see above");
    Mix::parse(output)
}

fn in_guest(lane: Lane) -> Mix {
    if lane == Lane::Ipvs { in_guest_ipvs() } else { Mix::parse(&run_guest(lane, &[NAME])) }
}

fn run_guest(lane: Lane, tests: &[&str]) -> String {
    let mut guest = guest();
    rerun(guest.env("DIFFERENTIAL_LANES", lane.name()).env(SEEDS, seeds_text()), tests)
}

/// Node in one lane (proxy mode variant) with the state that it has.
struct Run {
    bench: Bench,
    previous: Option<DrawnState>,
    has_conflict: bool,
    mix: Mix,
}

/// Runs the differential test in one lane (proxy mode variant), for both address families.
fn judge_lane(lane: Lane) -> Mix {
    let (states, connections) = if lane.in_guest() { STATES_IN_GUEST } else { STATES };
    let fresh = if env::var_os("TIDEGATE_SOAK").is_some() { SOAK_FACTOR } else { 1 };
    let (last, fixed) = seeds().split_last().unwrap();
    let rounds: Vec<_> = fixed.iter().map(|seed| (*seed, states)).chain([(*last, states * fresh)]).collect();
    let mut total = Mix::default();
    for family in IpFamily::ALL {
        let begin = Instant::now();
        let bench = Bench::open("df", lane, family).unwrap();
        let run = RefCell::new(Run { bench, previous: None, has_conflict: false, mix: Mix::default() });
        let drawn = draw::state(states::options(lane, family, connections));
        let (lane, word) = (lane.name(), family_word(family));
        for &(seed, states) in &rounds {
            // Each family has states of its own.
            let own = seed.wrapping_add(u64::from(family == IpFamily::V6));
            let outcome = draw::runner(own, states, SHRINKS_MAX).run(&drawn, |drawn| {
                // Also shown if the test is ended while the state is reduced.
                let shown = |reason: &String| println!("{lane} {word}, seed {seed}: {reason}");
                judge_state(&mut run.borrow_mut(), &drawn).inspect_err(shown).map_err(TestCaseError::fail)
            });
            let place = format!("TIDEGATE_SEED={seed} DIFFERENTIAL_LANES={lane}, {word}");
            match outcome {
                Ok(()) => {}
                Err(TestError::Fail(reason, drawn)) => panic!("{place}: {reason}\nin {drawn:#?}"),
                Err(error @ TestError::Abort(_)) => panic!("{place}: {error}"),
            }
        }
        let mix = run.into_inner().mix;
        println!("{lane:15} {word}: {:.1} s, {mix:?}", begin.elapsed().as_secs_f64());
        total.add(&mix);
    }
    if !fixed.is_empty() {
        judge_mix(lane, &total);
    }
    total
}

/// Asserts that enough connections of a lane met Services.
fn judge_mix(lane: Lane, mix: &Mix) {
    let lane = lane.name();
    let [all, met, forwarded] = ["connections", "met a frontend", "forwarded"].map(|name| mix.of(name));
    assert!(all >= CASES_MIN, "{lane}: only {all} connections were judged");
    assert!(met * 100 >= all * FRONTENDS_PERCENT_MIN, "{lane}: only {met} of {all} met a frontend");
    assert!(forwarded >= FORWARDED_MIN, "{lane}: only {forwarded} of {all} were forwarded");
}

/// Programs a generated state in place of the previous one and opens its connections.
///
/// # Errors
/// Returns a description of the first difference between the oracles, trace and observed result.
fn judge_state(run: &mut Run, drawn: &DrawnState) -> Result<(), String> {
    let Run { bench, previous, has_conflict, mix } = run;
    if bench.lane == Lane::Ipvs {
        // Targets with connections would stay into the next state, and reject new ones.
        bench.begin_anew();
        if let Some(previous) = previous.as_ref() {
            *has_conflict = states::put(bench, &previous.estate, true)?.has_conflict;
        }
    }
    if bench.lane != Lane::Ipvs {
        // Client ports are drawn by the kernel, and a reused one would continue a flow of the state before.
        IpFamily::ALL.into_iter().for_each(|family| bench.forget_datagrams(family));
    }
    let change = states::put(bench, &drawn.estate, *has_conflict)?;
    *has_conflict = change.has_conflict;
    mix.count(if change.is_incremental { "incremental changes" } else { "complete changes" });
    *previous = Some(drawn.clone());
    let asks: Vec<_> = drawn.questions.iter().map(states::ask).collect();
    let fates = fates(bench, drawn, &asks)?;
    let traced = follow::all(bench, &asks)?;
    let has_sctp = has_sctp();
    let expected: Vec<_> = fates.iter().zip(&asks).map(|(fate, ask)| judge::expected(fate, *ask)).collect();
    let sound: Vec<_> =
        (0..asks.len()).filter(|&at| states::is_sound(asks[at], &expected[at], has_sctp)).collect();
    let timed: Vec<_> = sound.iter().map(|&at| (asks[at], waiting(asks[at], &expected[at]))).collect();
    for (&at, heard) in sound.iter().zip(bench.hosts.ask(&timed)) {
        let (ask, expected) = (asks[at], &expected[at]);
        if !judge::agrees(expected, ask, &heard) {
            return Err(format!("{ask:?}\n  must be {expected:?}\n  but was {heard:?}"));
        }
        follow::compare(ask, &traced[at], &heard)?;
        mix.count_connection(drawn, &drawn.questions[at], &fates[at]);
    }
    let candidates = sound.iter().map(|&at| (drawn.questions[at], &expected[at]));
    judge_affinity(bench, drawn, candidates, mix)?;
    // After a pass, nothing is left to be written.
    let again = node::verified_writes(&bench.apply(&Scope::Everything));
    if again != 0 {
        return Err(format!("a second pass wrote {again} objects"));
    }
    Ok(())
}

/// Returns the results according to the second oracle.
///
/// # Errors
/// Returns a description of the first connection for which the packet programs have another result.
fn fates(bench: &Bench, drawn: &DrawnState, asks: &[Ask]) -> Result<Vec<Fate>, String> {
    let mut fates = Vec::new();
    for (question, ask) in drawn.questions.iter().zip(asks) {
        if question.connection() != judge::connection(*ask) {
            return Err(format!("{ask:?}: the test bed differs from the generator"));
        }
        let stated = drawn.estate.fate(states::dialect(bench.lane), &question.connection());
        let programmed = bench.lowered(*ask);
        if stated != programmed {
            return Err(format!("{ask:?}\n  second oracle: {stated:?}\n  program:       {programmed:?}"));
        }
        fates.push(stated);
    }
    Ok(fates)
}

/// Returns the time to wait for the result of a connection. A client of SCTP does not hear of a rejection.
fn waiting(ask: Ask, expected: &Expected) -> Duration {
    if ask.protocol == Protocol::Sctp && *expected == Expected::Refused {
        SILENCE
    } else {
        patience(expected)
    }
}

/// Repeats connections to frontends with session affinity: each client must meet the same endpoint again. The first
/// repetition only ends the races of connections that were opened at the same time.
///
/// # Errors
/// Returns a description of the first client that met two endpoints.
fn judge_affinity<'a>(
    bench: &Bench,
    drawn: &DrawnState,
    candidates: impl Iterator<Item = (Question, &'a Expected)>,
    mix: &mut Mix,
) -> Result<(), String> {
    let is_sticky = |question: &Question| {
        let hit = drawn.estate.hit(&question.connection());
        hit.is_some_and(|hit| hit.service.spec.affinity_seconds().is_some())
    };
    let has_choice = |expected: &Expected| matches!(expected, Expected::Answer(targets) if targets.len() > 1);
    let sticky = candidates.filter(|(question, expected)| is_sticky(question) && has_choice(expected));
    let sticky: Vec<_> =
        sticky.map(|(question, _)| (states::ask(&question), PATIENCE)).take(REPEATED_MAX).collect();
    if sticky.is_empty() {
        return Ok(());
    }
    bench.hosts.ask(&sticky);
    let mut met: BTreeMap<usize, String> = BTreeMap::new();
    for _ in 0..REPETITIONS {
        for (at, heard) in bench.hosts.ask(&sticky).into_iter().enumerate() {
            let Heard::Answer { name, .. } = heard else {
                return Err(format!("{:?}: repeated, but was {heard:?}", sticky[at].0));
            };
            let first = met.entry(at).or_insert_with(|| name.clone());
            if *first != name {
                return Err(format!("{:?}: has affinity, but met {first}, then {name}", sticky[at].0));
            }
            mix.count("repeated with affinity");
        }
    }
    Ok(())
}
