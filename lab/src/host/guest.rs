//! Guest VM (`lab/guest.sh`) with a different kernel, which has features that the kernel of the host may lack. A
//! test starts itself again inside the VM.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// Returns true if this process runs in the guest VM.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os("TIDEGATE_GUEST").is_some()
}

/// Returns a command that runs a program in the guest VM (`lab/guest.sh`). Arguments added to the command are
/// passed to the program.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("guest.sh"));
    command.arg(program);
    command
}

/// Runs `work` in the guest VM (`lab/guest.sh`). Outside of the VM, starts the VM and runs in it only the
/// test with the full name `test` (`module::name`) of this test program, which then calls this function
/// again.
///
/// # Panics
/// Panics if the program has no such test, or if the test does not pass in the VM.
#[allow(
    clippy::print_stdout,
    reason = "the output of the test in the VM is part of that of the calling test"
)]
pub fn run(test: &str, work: impl FnOnce()) {
    // Each guest uses a full CPU, so running them one after another is fastest.
    static ONE: Mutex<()> = Mutex::new(());
    if is_inside() {
        return work();
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let executable = std::env::current_exe().expect("a process on Linux can read its executable path");
    let listed = Command::new(&executable).args([test, "--exact", "--list"]).output();
    let listed = listed.expect("a test program can be started").stdout;
    assert!(String::from_utf8_lossy(&listed).contains(&format!("{test}: test")), "no test is named {test}");
    let output =
        command(&executable).args([test, "--exact", "--nocapture"]).stderr(Stdio::inherit()).output();
    let output = output.expect("lab/guest.sh exists and can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success(), "{test} failed in the guest: {}", output.status);
    assert_eq!(passed(&text), 1, "{test} did not run in the guest");
}

/// Returns the number of passed tests in the last result line of a test program's output; 0 if a test failed
/// or the output has no such line.
fn passed(output: &str) -> usize {
    let count = |line: &str| line.strip_prefix("test result: ok. ")?.split_once(' ')?.0.parse().ok();
    output.lines().rfind(|line| line.starts_with("test result: ")).and_then(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_ran_and_passed_are_counted() {
        let of = |result: &str| passed(&format!("running\ntest result: {result}; 0 failed\n"));
        assert_eq!(
            [of("ok. 1 passed"), of("ok. 0 passed"), of("FAILED. 1 passed"), passed("")],
            [1, 0, 0, 0]
        );
    }

    #[test]
    fn a_guest_run_of_a_test_that_does_not_exist_fails() {
        let executable = std::env::current_exe().unwrap();
        let output = command(&executable).args(["no::such_test", "--exact"]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("no test passed"), "{output:?}");
    }
}
