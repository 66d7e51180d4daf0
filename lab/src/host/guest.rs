//! The second kernel (`lab/guest.sh`), which has what the machine's own may lack: a test runs itself again there.

use std::{
    path::Path,
    process::Command,
    sync::{Mutex, PoisonError},
};

/// Whether this process runs on the second kernel.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os("TIDEGATE_GUEST").is_some()
}

/// A command that runs a program on the second kernel, with the arguments that are added to it.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("guest.sh"));
    command.arg(program);
    command
}

/// Does the work of a test on the second kernel, where the test of this name, of the same program, starts again.
///
/// # Panics
/// It fails there.
pub fn run(test: &str, work: impl FnOnce()) {
    // Each guest keeps a processor busy; one after the other they are soonest done.
    static ONE: Mutex<()> = Mutex::new(());
    if is_inside() {
        return work();
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let executable = std::env::current_exe().expect("a process on Linux can name its program");
    let status = command(&executable).args([test, "--exact", "--nocapture"]).status();
    let status = status.expect("lab/guest.sh is there and can be started");
    assert!(status.success(), "{test} failed in the guest: {status}");
}
