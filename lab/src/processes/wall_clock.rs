//! System clock of a single process that differs from the clock of the machine.
//!
//! The library libfaketime answers the process's calls for CLOCK_REALTIME. Linux has no time namespace for this clock.

use std::{
    env::consts::ARCH,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// Directory in which the library creates shared memory for each process.
const SHARED_MEMORY: &str = "/dev/shm";

/// System clock of one dynamically linked process. Its monotonic clock is that of the machine.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// Creates a clock that shows the time of the machine. A file in `directory`, named after `label`, holds the
    /// offset.
    ///
    /// # Errors
    /// Returns an error if the library is not installed or the file cannot be written.
    pub fn new(directory: &Path, label: &str) -> Result<Self> {
        let library = PathBuf::from(format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketimeMT.so.1"));
        ensure!(library.exists(), "{} is missing: install the package libfaketime", library.display());
        let clock = Self { library, file: directory.join(format!("{label}.clock")) };
        clock.set(0)?;
        Ok(clock)
    }

    /// Returns the environment variables of the process.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            // Each call reads the file, so that a change takes effect at once.
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Moves the clock to the time of the machine plus `secs` seconds, also while the process runs.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn set(&self, secs: i64) -> Result<()> {
        // Replaced as a whole, because the process may read it at any time.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{secs:+}s\n")).context("cannot write the offset of a clock")?;
        fs::rename(&next, &self.file).context("cannot replace the offset of a clock")
    }
}

impl Drop for WallClock {
    /// Removes the shared memory of killed processes.
    fn drop(&mut self) {
        let Ok(entries) = fs::read_dir(SHARED_MEMORY) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let pid =
                ["faketime_shm_", "sem.faketime_sem_"].iter().find_map(|prefix| name.strip_prefix(prefix));
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _gone_already = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, time::SystemTime};

    use super::*;
    use crate::host::scratch::Scratch;

    /// Returns the difference between the clock of a process and that of the machine in seconds.
    fn offset(clock: &WallClock) -> i64 {
        let output = Command::new("date").arg("+%s").envs(clock.environment()).output().unwrap();
        let shown: i64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        shown - i64::try_from(now).unwrap()
    }

    #[test]
    fn a_process_has_the_clock_that_was_set() {
        let directory = Scratch::new("clock").unwrap();
        let clock = WallClock::new(directory.path(), "one").unwrap();
        for secs in [0, 3600, -7200] {
            clock.set(secs).unwrap();
            let seen = offset(&clock);
            assert!((seen - secs).abs() <= 5, "the clock is {seen} s away, not {secs} s");
        }
    }
}
