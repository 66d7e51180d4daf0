//! Test that nftables mode starts no other program.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{fs, process::Command};

use node_agent::dataplane::{
    Dataplane, DesiredState, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};

use crate::support::{Namespace, isolated::rerun, programs::*};

/// Environment variable that is set in the process in which the test programs Services and counts child
/// processes.
const INSIDE: &str = "TIDEGATE_TEST_FORKS";
const NAME: &str = "nftables_forks::f083_programming_changing_and_removing_services_starts_no_process";

/// F083: a process that programs, changes and removes Services has no child process, according to the kernel.
#[test]
fn f083_programming_changing_and_removing_services_starts_no_process() {
    if std::env::var_os(INSIDE).is_some() {
        return program_and_count();
    }
    let namespace = Namespace::new("forks");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name(), "env", &format!("{INSIDE}=1")]);
    let printed = rerun(&mut command, &[NAME]);
    assert!(printed.contains("children: 0"), "{printed}");
}

fn program_and_count() {
    let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
    let mut desired = DesiredState::default();
    verified(&backend.apply(&desired, &Scope::Everything));
    for number in 1..20u16 {
        set(&mut desired, "web", simple("10.96.0.1", &[("10.1.1.2", 8080, number), ("10.1.2.2", 8080, 1)]));
        verified(&backend.apply(&desired, &only(&["web"])));
        assert!(!backend.is_disturbed().unwrap());
    }
    assert!(backend.traffic().unwrap().is_empty(), "nobody connected");
    assert!(backend.cleanup().unwrap() > 0);
    println!("children: {}", children());
}

/// Returns the number of page faults of ended child processes plus the number of running ones: 0 if there
/// never was a child.
fn children() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<u64> = fields.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    // `cminflt` and `cmajflt` are the 11th and 13th field of the line, two of which come before the bracket.
    let of_ended = fields[8] + fields[10];
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let running =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    of_ended + u64::try_from(running.map(|list| list.split_whitespace().count()).sum::<usize>()).unwrap()
}
