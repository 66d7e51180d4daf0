//! Tests that run again in a place of their own: a process id namespace, or the second kernel of `lab/guest.sh`.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

/// Set where a test has a process id namespace to itself: to its process id outside.
const ALONE: &str = "TIDEGATE_TEST_ALONE";
/// Set by `lab/guest.sh`.
const GUEST: &str = "TIDEGATE_GUEST";
/// What the repeated test prints at its end: proof that it was found under its name and ran.
const DONE: &str = "the work was done";

/// Runs the work of a test in a process id namespace that nobody else starts processes in.
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

/// The id of this process to those outside its process id namespace: for names that all of the machine can see.
pub fn outer_id() -> String {
    env::var(ALONE).unwrap_or_else(|_| std::process::id().to_string())
}

/// Processes and threads that were started so far in the process id namespace of this process.
pub fn started() -> u64 {
    // The last field is the id given last (proc(5)).
    let line = fs::read_to_string("/proc/loadavg").unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// Does the work if this is already the place that a variable stands for; else runs the test once more, there.
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
