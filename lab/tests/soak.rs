//! A short soak: changes, faults and traffic at once, and nothing is left behind. `make soak` runs the long one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]
#![allow(
    clippy::print_stdout,
    reason = "the seed and how it went are printed, so that a soak can be repeated"
)]

use lab::{
    chaos::soak::{self, Options},
    host::random,
};

/// A few seconds of changes of all kinds and of random faults: in the end every node has verified everything, every address leads where
/// the API says, no connection was lost without a reason, and kernels and processes hold what they held before the first object, and
/// after `cleanup` what they held before the agents.
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
