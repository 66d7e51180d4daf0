//! Runs tests again in isolation: in a separate process or PID namespace, or in the guest VM
//! (`lab/guest.sh`).
//!
//! Tests are given by their full names, as `--list` prints them: `module::name`.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

/// Environment variable that is set inside a separate PID namespace; its value is the process ID outside.
const ALONE: &str = "TIDEGATE_TEST_ALONE";
/// Environment variable that `lab/guest.sh` sets in the guest VM.
const GUEST: &str = "TIDEGATE_GUEST";

/// Runs `work` in a separate PID namespace. `test` is the full name of the calling test, which is started
/// again there.
pub fn alone(test: &str, work: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return work();
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    rerun(unshare.env(ALONE, std::process::id().to_string()), &[test]);
}

/// Runs `work` in the guest VM (`lab/guest.sh`). `test` is the full name of the calling test, which is
/// started again there.
pub fn in_guest(test: &str, work: impl FnOnce()) {
    if env::var_os(GUEST).is_some() {
        return work();
    }
    rerun(&mut guest(), &[test]);
}

/// Returns a command that runs a program in the guest VM (`lab/guest.sh`).
pub fn guest() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/guest.sh"))
}

/// Returns the ID of this process outside of the PID namespace, for names that must be unique on the machine.
pub fn outer_id() -> String {
    env::var(ALONE).unwrap_or_else(|_| std::process::id().to_string())
}

/// Returns the number of processes and threads started so far in the PID namespace of this process.
pub fn started() -> u64 {
    // The last field is the most recent process id (proc(5)).
    let line = fs::read_to_string("/proc/loadavg").unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// Runs the given tests of this program again, one after another, and returns their output. `command` starts
/// a program, given as its last argument, in the desired environment.
///
/// # Panics
/// Panics if a test is not found or fails.
pub fn rerun(command: &mut Command, tests: &[&str]) -> String {
    command.arg(env::current_exe().unwrap()).args(tests);
    command.args(["--exact", "--nocapture", "--test-threads=1"]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    // The result of this run follows those of reruns inside.
    let result = text.lines().rfind(|line| line.starts_with("test result: ")).unwrap_or_default();
    let passed = format!("test result: ok. {} passed; ", tests.len());
    assert!(result.starts_with(&passed), "{command:?} did not run {} tests: {result}", tests.len());
    text
}

/// A rerun of a test that does not exist fails, although the test program itself succeeds without any test.
#[test]
#[should_panic(expected = "did not run 1 tests")]
fn a_rerun_without_the_named_test_fails() {
    rerun(&mut Command::new("env"), &["support::isolated::no_such_test"]);
}
