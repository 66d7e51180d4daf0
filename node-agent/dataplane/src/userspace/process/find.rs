//! Search for relay processes on the machine, independent of state directories.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::unistd::geteuid;

use super::{place::namespace, start::PROGRAM_NAME};

/// Maximum time until an ended process has disappeared.
const END_TIME_MAX: Duration = Duration::from_secs(2);
/// Interval between two searches for an ended process.
const POLL: Duration = Duration::from_millis(20);

/// Returns the ids of the relay processes in the network namespace of the calling thread, by state directory. Only
/// processes of the calling user count. Processes that end during the search are left out.
///
/// # Errors
/// Returns an error if `/proc` or the network namespace cannot be read.
pub fn relays_of_namespace() -> io::Result<BTreeMap<PathBuf, BTreeSet<u32>>> {
    let namespace = namespace()?;
    let mut found = BTreeMap::<PathBuf, BTreeSet<u32>>::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let path = entry.path();
        let is_own = fs::metadata(&path).is_ok_and(|process| process.uid() == geteuid().as_raw());
        let is_here = fs::metadata(path.join("ns/net")).is_ok_and(|other| other.ino() == namespace);
        if is_own
            && is_here
            && let Ok(command) = fs::read(path.join("cmdline"))
            && let Some(state_dir) = state_dir_of(&command)
        {
            found.entry(state_dir.to_owned()).or_default().insert(pid);
        }
    }
    Ok(found)
}

/// Returns the relay processes among `pids` that still run after a while in which ended processes disappear.
#[must_use]
pub fn remaining(pids: &BTreeSet<u32>) -> BTreeSet<u32> {
    let until = Instant::now() + END_TIME_MAX;
    loop {
        let running = relays_of_namespace().unwrap_or_default();
        let running: BTreeSet<u32> =
            running.into_values().flatten().filter(|pid| pids.contains(pid)).collect();
        if running.is_empty() || Instant::now() >= until {
            return running;
        }
        thread::sleep(POLL);
    }
}

/// Returns the state directory in the command line of a relay process; `None` for other command lines. Words are
/// separated by zero bytes.
fn state_dir_of(command: &[u8]) -> Option<&Path> {
    let mut words = command.split(|byte| *byte == 0);
    if words.next()? != PROGRAM_NAME.as_bytes() || words.next()? != b"relay" {
        return None;
    }
    words.find(|word| *word == b"--state-dir")?;
    let state_dir = words.next().filter(|word| !word.is_empty())?;
    Some(Path::new(OsStr::from_bytes(state_dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_command_lines_of_relays_have_a_state_directory() {
        let relay = b"tidegate-agent\0relay\0--mark\x001\0--state-dir\0/var/lib/t\0--log=warn\0";
        assert_eq!(state_dir_of(relay), Some(Path::new("/var/lib/t")));
        for other in [
            &b""[..],
            b"tidegate-agent\0--state-dir\0/var/lib/t\0",
            b"tidegate-agent\0relay\0--state-dir\0",
            b"tidegate-agent\0relay\0--mark\x001\0",
            b"sh\0relay\0--state-dir\0/var/lib/t\0",
        ] {
            assert_eq!(state_dir_of(other), None);
        }
    }
}
