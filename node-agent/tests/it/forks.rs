//! Tests of the number of processes that an endpoint change starts, as counted by the kernel in a separate
//! PID namespace.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{process::Command, thread};

use model::kinds::node::ProxyMode;
use node_agent::dataplane::{self, BackendOptions, Scope};

use crate::support::{
    Namespace,
    isolated::{alone, in_guest, outer_id, started},
    many::{many, numbered},
    programs::*,
};

const SERVICES: u32 = 50;
const ENDPOINTS: u32 = 10;
const CHANGES: u32 = 100;

#[test]
fn the_count_sees_every_process_and_thread() {
    alone("forks::the_count_sees_every_process_and_thread", || {
        let before = started();
        assert!(Command::new("true").status().unwrap().success());
        assert_eq!(started(), before + 1);
        thread::spawn(|| ()).join().unwrap();
        assert_eq!(started(), before + 2);
    });
}

#[test]
fn f083_nftables_starts_no_process_for_an_endpoint_change() {
    alone("forks::f083_nftables_starts_no_process_for_an_endpoint_change", || {
        assert_eq!(started_by_changes(ProxyMode::Nftables), 0);
    });
}

#[test]
fn f083_ipvs_starts_no_process_for_an_endpoint_change() {
    const NAME: &str = "forks::f083_ipvs_starts_no_process_for_an_endpoint_change";
    in_guest(NAME, || alone(NAME, || assert_eq!(started_by_changes(ProxyMode::Ipvs), 0)));
}

#[test]
fn userspace_starts_no_process_for_an_endpoint_change() {
    alone("forks::userspace_starts_no_process_for_an_endpoint_change", || {
        assert_eq!(started_by_changes(ProxyMode::Userspace), 0);
    });
}

/// F083: in iptables mode an endpoint change starts some tool processes, but no more than ten.
#[test]
fn f083_iptables_starts_a_bounded_number_of_processes_for_an_endpoint_change() {
    alone("forks::f083_iptables_starts_a_bounded_number_of_processes_for_an_endpoint_change", || {
        let started = started_by_changes(ProxyMode::Iptables);
        assert!(started >= u64::from(CHANGES), "the count sees them");
        assert!(started <= u64::from(CHANGES * 10), "{started}");
    });
}

/// Makes a hundred endpoint changes in a proxy mode. Returns the number of processes and threads that were
/// started for them. The number of those started by drift checks is only printed, because it depends on time
/// and not on changes.
fn started_by_changes(mode: ProxyMode) -> u64 {
    let namespace = Namespace::new(&format!("forks-{}-{}", mode.as_str(), outer_id()));
    namespace.run(|| {
        let mut desired = many(SERVICES, ENDPOINTS);
        let mut backend = dataplane::open(mode, &BackendOptions::default()).unwrap();
        verified(&backend.apply(&desired, &Scope::Everything));
        let (mut by_changes, mut by_watching) = (0, 0);
        for change in 1..=CHANGES {
            set(&mut desired, "s7", numbered(7, ENDPOINTS, 100_000 + change));
            let before = started();
            let writes = verified(&backend.apply(&desired, &only(&["s7"])));
            let after = started();
            // The relay keeps its targets to itself.
            assert!(writes > 0 || mode == ProxyMode::Userspace, "there was something to do");
            assert!(!backend.is_disturbed().unwrap());
            backend.upkeep().unwrap();
            by_changes += after - before;
            by_watching += started() - after;
        }
        println!(
            "{}: {by_changes} processes and threads for {CHANGES} endpoint changes, {by_watching} for watching",
            mode.as_str()
        );
        by_changes
    })
}
