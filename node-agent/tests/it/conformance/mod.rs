//! Conformance suite of the proxy modes: checks the behavior of Services on a node with real clients and
//! servers. A lane is a variant of a proxy mode, such as iptables with its legacy tools.
//!
//! For lanes that need the guest VM (`lab/guest.sh`), this test runs again inside of the VM, which is booted once
//! per lane and address family, and writes the results to a file.
//!
//! In the lane `iptables-legacy`, whose rules are those of `iptables`, the scenarios are run in IPv4 and IPv6 in turn,
//! because the VM takes minutes of processor time; `TIDEGATE_SOAK=1` (`make soak`) runs all in both.
//!
//! `CONFORMANCE_LANES=nftables,ipvs` selects lanes, and `CONFORMANCE_ONLY=text` selects the scenarios whose
//! names contain the text. In both cases the page of results is not written.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "a test's helpers are tests"
)]

mod affinity;
mod change;
mod cluster;
mod datagrams;
mod exposed;
mod flows;
mod kernel;
mod policy;
mod scenario;
mod table;
mod upstream;

use std::{env, fs, path::PathBuf, process::Command, sync::Mutex, thread, time::Instant};

use model::primitives::net::IpFamily;
use scenario::{Outcome, Scenario};
use table::Results;

use crate::testbed::{Bench, Lane, lane::family_word};

/// Maximum number of lanes (proxy mode variants) that run at the same time.
const AT_ONCE: usize = 2;

fn scenarios() -> Vec<Scenario> {
    [
        cluster::SCENARIOS,
        exposed::SCENARIOS,
        policy::SCENARIOS,
        affinity::SCENARIOS,
        change::SCENARIOS,
        datagrams::SCENARIOS,
        flows::SCENARIOS,
        kernel::SCENARIOS,
    ]
    .concat()
}

#[test]
fn every_upstream_test_has_a_scenario_or_a_reason() {
    assert_eq!(table::uncovered(&scenarios()), Vec::<String>::new());
    assert!(scenarios().len() >= 60);
}

/// F044, F051: scenarios of load balancer addresses include TCP and UDP.
#[test]
fn f032_f045_f046_f047_f048_f049_f053_every_mode_does_what_the_packet_program_says() {
    if env::var_os("TIDEGATE_GUEST").is_some() {
        let lane = Lane::parse(&env::var("CONFORMANCE_LANES").expect("the guest is told its lane"));
        let word = env::var("CONFORMANCE_FAMILY").expect("and its family");
        IpFamily::ALL.into_iter().filter(|family| family_word(*family) == word).for_each(|it| run(lane, it));
        return;
    }
    let lanes = env::var("CONFORMANCE_LANES");
    let wanted =
        |lane: &Lane| lanes.as_ref().is_ok_and(|names| names.split(',').any(|name| name == lane.name()));
    let lanes: Vec<_> = Lane::ALL.into_iter().filter(|lane| lanes.is_err() || wanted(lane)).collect();
    let results = run_all(&lanes);
    if lanes.len() < Lane::ALL.len() || env::var_os("CONFORMANCE_ONLY").is_some() {
        if env::var_os("UPDATE_GOLDEN").is_some() {
            // Includes the results of earlier runs for the other lanes.
            let all = Lane::ALL.iter().flat_map(|lane| IpFamily::ALL.map(|family| read(*lane, family)));
            check_page(&table::render(&scenarios(), &all.flatten().collect())).unwrap();
        }
        let bad = results.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        let bad: Vec<_> = bad.collect();
        assert!(bad.is_empty(), "{bad:#?}");
        return;
    }
    let faults = table::faults(&scenarios(), &results);
    let page = check_page(&table::render(&scenarios(), &results));
    assert!(faults.is_empty(), "{} cells:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(page, Ok(()));
}

/// Runs all scenarios in the given lanes (proxy mode variants), several at a time and slow ones first, and
/// returns their results.
fn run_all(lanes: &[Lane]) -> Results {
    let mut slow_last = lanes.to_vec();
    // The last one starts first.
    slow_last.sort_by_key(|lane| (lane.in_guest(), *lane == Lane::IptablesLegacy));
    let jobs: Vec<_> =
        slow_last.iter().flat_map(|lane| IpFamily::ALL.map(|family| (*lane, family))).collect();
    for (lane, family) in &jobs {
        let _ = fs::remove_file(results_path(*lane, *family));
    }
    let jobs = Mutex::new(jobs);
    let next = || jobs.lock().unwrap().pop();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((lane, family)) = next() {
                    if lane.in_guest() { run_in_guest(lane, family) } else { run(lane, family) }
                }
            });
        }
    });
    lanes.iter().flat_map(|lane| IpFamily::ALL.map(|family| read(*lane, family))).flatten().collect()
}

fn run_in_guest(lane: Lane, family: IpFamily) {
    let guest = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/guest.sh");
    let name = "conformance::f032_f045_f046_f047_f048_f049_f053_every_mode_does_what_the_packet_program_says";
    let status = Command::new(guest)
        .arg(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env("CONFORMANCE_LANES", lane.name())
        .env("CONFORMANCE_FAMILY", family_word(family))
        .status()
        .expect("lab/guest.sh starts");
    println!("{} {}: the guest ended with {status}", lane.name(), family_word(family));
}

/// Runs all scenarios in one lane (proxy mode variant) and address family. Writes the results to a file after
/// each scenario.
fn run(lane: Lane, family: IpFamily) {
    let only = env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let word = family_word(family);
    let mut lines = String::new();
    let mut bench = None;
    for (serial, scenario) in (1..).zip(scenarios()) {
        if !scenario.name.contains(&only) || !is_due(lane, family, usize::from(serial)) {
            continue;
        }
        let begin = Instant::now();
        let outcome = match bench.take().map_or_else(|| Bench::open("cf", lane, family), Ok) {
            Ok(mut opened) => {
                let outcome = scenario.run(&mut opened, serial);
                // After a failure the state of the hosts is unknown: the next scenario gets new ones.
                bench = Some(opened).filter(|_| !matches!(outcome, Outcome::Failed(_)));
                outcome
            }
            Err(error) => Outcome::Failed(format!("{error:?}")),
        };
        let spent = begin.elapsed().as_millis();
        println!("{:15} {word} {spent:6} ms  {}: {outcome}", lane.name(), scenario.name);
        lines += &format!("{}\t{outcome}\n", scenario.name);
        fs::write(results_path(lane, family), &lines).unwrap();
    }
}

/// Returns true if the scenario with this number, counted from 1, is run in a lane and family.
fn is_due(lane: Lane, family: IpFamily, serial: usize) -> bool {
    lane != Lane::IptablesLegacy
        || env::var_os("TIDEGATE_SOAK").is_some()
        || (family == IpFamily::V4) == (serial % 2 == 1)
}

fn results_path(lane: Lane, family: IpFamily) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("conformance");
    fs::create_dir_all(&directory).unwrap();
    directory.join(format!("{}-{}.tsv", lane.name(), family_word(family)))
}

fn read(lane: Lane, family: IpFamily) -> Results {
    let text = fs::read_to_string(results_path(lane, family)).unwrap_or_default();
    let entry = |line: &str| {
        let (name, outcome) = line.split_once('\t').unwrap();
        ((lane, name.to_owned(), family_word(family)), Outcome::parse(outcome))
    };
    text.lines().map(entry).collect()
}

/// Returns an error if the rendered page of results differs from the checked-in page. If `UPDATE_GOLDEN` is
/// set, first writes `page` to that file.
fn check_page(page: &str) -> Result<(), &'static str> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/conformance.md");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, page).unwrap();
    }
    let is_current = fs::read_to_string(path).unwrap_or_default() == page;
    is_current.then_some(()).ok_or(
        "docs/reference/conformance.md is not current: UPDATE_GOLDEN=1 writes it, and the diff shows it",
    )
}
