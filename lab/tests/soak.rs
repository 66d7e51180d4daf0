//! Short soak test: changes, faults and traffic at once, without leftovers. `make soak` runs a long one.
//!
//! The test is a separate program, because it counts everything that the process leaves on the machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]
#![allow(
    clippy::print_stdout,
    reason = "the seed and how it went are printed, so that a soak can be repeated"
)]

use lab::{
    chaos::soak::{self, Options},
    host::random,
};

/// After a few seconds of all kinds of changes and random faults, every node has verified the state in its
/// kernel, every address leads to the backends that the API names, and a fault explains every lost
/// connection. Kernels and processes have the same contents as before the first object, and after `cleanup`
/// the same as before the agents started.
#[test]
fn after_changes_and_faults_every_node_is_right_and_nothing_is_left_behind() {
    let (seed, _) = random::seed().unwrap();
    println!("TIDEGATE_SEED={seed}");
    let outcome = soak::run(&Options::short(seed), &mut |line| {
        println!("{line}");
        Ok(())
    })
    .unwrap();
    println!("{outcome:#?}");
    assert_eq!(outcome.faults_found(), [""; 0], "TIDEGATE_SEED={seed}");
    assert!(outcome.requests > 50 && outcome.fates.answered > 50);
    assert_eq!(outcome.faults.len(), soak::kinds(0).len(), "{:?}", outcome.faults);
}
