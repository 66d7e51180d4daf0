//! Guest VM (`lab/guest.sh`) with a different kernel, which has features that the kernel of the host may lack. A
//! test starts itself again inside the VM.

use std::{
    path::Path,
    process::Command,
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
/// Panics if the program has no such test, or if the test fails in the VM.
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
    let status = command(&executable).args([test, "--exact", "--nocapture"]).status();
    let status = status.expect("lab/guest.sh exists and can be started");
    assert!(status.success(), "{test} failed in the guest: {status}");
}
