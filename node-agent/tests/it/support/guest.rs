//! Runs test cases in the guest VM (`lab/guest.sh`), whose kernel has features that this machine's kernel may
//! lack.

#![allow(clippy::print_stdout, reason = "cases are listed as they end")]

use std::panic::{self, AssertUnwindSafe};

use super::isolated::{guest, rerun};

/// Test case to run in the guest VM: its claim as text, and the function that checks the claim.
pub type Case = (&'static str, fn());

/// Runs the cases in the guest VM, and fails at the end if any case failed. If called outside of the VM,
/// starts the VM and runs the calling test there, which has the full name `test` and calls this function
/// again.
pub fn run(test: &str, cases: &[Case]) {
    if std::env::var_os("TIDEGATE_GUEST").is_none() {
        rerun(&mut guest(), &[test]);
        return;
    }
    let only = std::env::var("TIDEGATE_CASE").ok();
    let mut failed = Vec::new();
    let mut ran = 0;
    for (claim, case) in cases {
        if only.as_ref().is_some_and(|only| !claim.contains(only.as_str())) {
            continue;
        }
        ran += 1;
        let outcome = panic::catch_unwind(AssertUnwindSafe(case));
        println!("{} {claim}", if outcome.is_ok() { "pass" } else { "FAIL" });
        if outcome.is_err() {
            failed.push(*claim);
        }
    }
    assert!(ran > 0, "no case of {test} is named {only:?}");
    assert!(failed.is_empty(), "failed in the guest: {failed:#?}");
}
