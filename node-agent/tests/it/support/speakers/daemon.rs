//! Daemon that runs in the foreground in a namespace, with a directory for its configuration, sockets and
//! log.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Maximum time for a daemon to start, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of log lines printed after a failed test.
const TAIL_LINES: usize = 60;

/// Temporary directory, removed when dropped.
pub struct Place(PathBuf);

impl Place {
    pub fn new(namespace: &str, program: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{namespace}-{program}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.file(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Running daemon, killed when dropped. If the test has failed, the tail of its log is printed.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` in a namespace, with the environment variables `variables`. The output of the daemon
    /// goes to a file in `place` that is named after `name`.
    pub fn start(
        namespace: &str,
        place: &Place,
        name: &str,
        command: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let log = place.path().join(format!("{name}.log"));
        let output = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        // `ip netns exec` execs the command, so both have the same process id.
        let child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .args(command)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn();
        Self { child: child.unwrap(), log }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `is_ready` returns true. Panics if the daemon ends before that. The first argument
    /// describes the condition in errors.
    pub fn wait(&mut self, what: &str, mut is_ready: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_ready() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{what} ended with {}:\n{}", ended.unwrap(), self.log());
            assert!(Instant::now() < end, "{what} is never ready:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
            let _ = writeln!(std::io::stderr(), "--- {} ---\n{tail}", self.log.display());
        }
    }
}

/// Runs a command in a namespace to completion and returns its standard output.
///
/// # Errors
/// Returns its standard error if the command fails.
pub fn try_run(namespace: &str, command: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(["netns", "exec", namespace]).args(command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs a command in a namespace to completion and returns its standard output. Panics on failure.
pub fn run(namespace: &str, command: &[&str]) -> String {
    try_run(namespace, command).unwrap_or_else(|error| panic!("{error}"))
}
