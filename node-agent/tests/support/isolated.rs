//! Tests that re-run in isolation: in a separate PID namespace, or on the second kernel of `lab/guest.sh`.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

/// Environment variable inside a separate PID namespace, with the process id outside.
const ALONE: &str = "TIDEGATE_TEST_ALONE";
/// Set by `lab/guest.sh`.
const GUEST: &str = "TIDEGATE_GUEST";
/// Final output of the re-run test: proof that it was found by name and ran.
const DONE: &str = "the work was done";

/// Runs the work of a test in a separate PID namespace.
pub fn alone(test: &str, work: impl FnOnce()) {
    let executable = env::current_exe().unwrap();
    let unshare = ["--pid", "--fork", "--kill-child", "--mount-proc", executable.to_str().unwrap()];
    elsewhere(
        ALONE,
        Command::new("unshare").args(unshare).env(ALONE, std::process::id().to_string()),
        test,
        work,
    );
}

/// Runs the work of a test in the guest.
pub fn in_guest(test: &str, work: impl FnOnce()) {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/guest.sh");
    elsewhere(GUEST, Command::new(guest).arg(env::current_exe().unwrap()), test, work);
}

/// Returns the process id outside the PID namespace, for machine-wide names.
pub fn outer_id() -> String {
    env::var(ALONE).unwrap_or_else(|_| std::process::id().to_string())
}

/// Returns the number of processes and threads started so far in the PID namespace of this process.
pub fn started() -> u64 {
    // The last field is the most recent process id (proc(5)).
    let line = fs::read_to_string("/proc/loadavg").unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// Runs the work if the variable is set, or else re-runs the test there.
fn elsewhere(variable: &str, command: &mut Command, test: &str, work: impl FnOnce()) {
    if env::var_os(variable).is_some() {
        work();
        println!("{DONE}");
        return;
    }
    let output = command.args([test, "--exact", "--nocapture"]).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    assert!(text.contains(DONE), "{command:?} found no test of this name");
}
