//! Start of a relay process that outlives the agent.

use std::{
    io::{self, ErrorKind, Read as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tracing::{debug, warn};

use super::Relays;

/// Name of a relay process in its command line.
pub(super) const PROGRAM_NAME: &str = "tidegate-agent";
/// Line that a relay process prints on standard output once agents can connect.
pub const READY: &str = "relay ready";
/// Timeout for a started relay process to print [`READY`].
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum number of bytes read from a relay's standard output, which serve as failure message if they are
/// not [`READY`].
const FAILURE_BYTES_MAX: u64 = 4 << 10;
/// Prefix of environment variables with settings of the agent, which are not passed to a relay process.
const VARIABLE_PREFIX: &str = "TIDEGATE_";

/// Starts a relay process in the network namespace of the calling thread, and waits until agents can connect.
/// Returns its process id. The process inherits the agent's log output.
pub(super) fn start(relays: &Relays, mark: u32, is_successor: bool) -> io::Result<u32> {
    let Relays { program, state_dir, log_arguments } = relays;
    let state_dir = state_dir.canonicalize()?;
    let (mut heard, said) = UnixStream::pair()?;
    heard.set_read_timeout(Some(START_TIME_MAX))?;
    let mut command = Command::new(program);
    command
        .arg0(PROGRAM_NAME)
        .args(["relay", "--mark", &mark.to_string()])
        .arg("--state-dir")
        .arg(&state_dir)
        .args(log_arguments)
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(said));
    if is_successor {
        command.arg("--successor");
    }
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(VARIABLE_PREFIX))) {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(|error| shown(program, &error))?;
    // End of file is only received if no other copy of the write end is open.
    drop(command);
    let pid = child.id();
    let mut text = String::new();
    let mut line = [0; 1];
    let heard_all = loop {
        match heard.read(&mut line) {
            Ok(0) => break Ok(()),
            Ok(_) if line == *b"\n" && text == READY => break Ok(()),
            Ok(_) if text.len() as u64 >= FAILURE_BYTES_MAX => break Ok(()),
            Ok(_) => text.push(char::from(line[0])),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    if text != READY {
        let _may_have_ended = child.kill();
        let status = child.wait()?;
        let text = text.trim();
        return Err(match heard_all {
            Err(error) => io::Error::new(error.kind(), format!("it was not ready within {START_TIME_MAX:?}")),
            Ok(()) if text.is_empty() => io::Error::other(format!("it exited at once with {status}")),
            Ok(()) => io::Error::other(text.to_owned()),
        });
    }
    // An exited relay is reaped by this thread or, after the end of the agent, by the init process.
    let reap = move || match child.wait() {
        Ok(status) if status.success() => debug!(pid, "a relay process has ended"),
        Ok(status) => warn!(pid, %status, "a relay process has ended"),
        Err(error) => warn!(pid, %error, "cannot wait for a relay process"),
    };
    thread::Builder::new().name("reaper".to_owned()).spawn(reap)?;
    Ok(pid)
}

fn shown(program: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}
