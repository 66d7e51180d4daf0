//! A binary under test that runs in a namespace and ends when its handle is dropped.

use std::{
    fs::{self, OpenOptions},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};

use crate::host::{netns::Namespace, registry, wait};

/// Start parameters of a process, kept so that it can be restarted.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the process in messages and of its log file.
    pub label: String,
    /// Network namespace in which the process runs.
    pub namespace: Namespace,
    /// Path of the binary.
    pub program: PathBuf,
    /// Command-line arguments of the next start.
    pub arguments: Vec<String>,
    /// Environment variables in addition to the inherited ones.
    pub environment: Vec<(String, String)>,
    /// Log file; each start appends to it.
    pub log: PathBuf,
}

/// Process under test that is killed when dropped.
#[derive(Debug)]
pub struct Process {
    plan: Plan,
    child: Option<Child>,
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// Returns an error if the binary does not exist or the log file cannot be opened.
    pub fn start(plan: Plan) -> Result<Self> {
        let mut process = Self { plan, child: None };
        process.start_again()?;
        Ok(process)
    }

    /// Restarts the process after [`Self::kill`] or [`Self::terminate`].
    ///
    /// # Errors
    /// Same as [`Self::start`].
    pub fn start_again(&mut self) -> Result<()> {
        let Plan { label, namespace, program, arguments, environment, log } = &self.plan;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        // `ip netns exec` execs the program, so both have the same process id.
        let child = Command::new("ip")
            .args(["netns", "exec", namespace.name()])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            // A separate process group: Ctrl-C reaches only the harness, which then ends its processes in
            // order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {label}"))?;
        registry::add_process(child.id());
        self.child = Some(child);
        Ok(())
    }

    /// Returns the process id while the process runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the log of all starts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.plan.log).unwrap_or_default()
    }

    /// Returns a mutable reference to the arguments of the next start.
    pub fn arguments_mut(&mut self) -> &mut Vec<String> {
        &mut self.plan.arguments
    }

    /// Sets the binary of the next start, such as one of another version.
    pub fn set_program(&mut self, program: PathBuf) {
        self.plan.program = program;
    }

    /// Calls `ready` repeatedly until it returns `Ok`, and returns its value.
    ///
    /// # Errors
    /// Returns the tail of the log if the process ended or `ready` never returned `Ok`.
    pub fn wait_ready<T>(&mut self, mut ready: impl FnMut() -> Result<T>) -> Result<T> {
        let label = self.plan.label.clone();
        let mut ended = None;
        let outcome = wait::until(&format!("{label} to be ready"), || {
            if let Some(status) = self.exit_status() {
                ended = Some(status);
                return Ok(None);
            }
            ready().map(Some)
        });
        match (outcome, ended) {
            (Ok(Some(seen)), _) => Ok(seen),
            (_, Some(status)) => bail!("{label} ended with {status}; its log ends:\n{}", self.log_tail()),
            (Ok(None), None) => Err(anyhow!("{label} has neither exited nor become ready")),
            (Err(error), None) => {
                Err(error.context(format!("the log of {label} ends:\n{}", self.log_tail())))
            }
        }
    }

    /// Kills the process without a chance to clean up (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _already_gone = child.kill();
            let _ = child.wait();
            registry::forget_process(child.id());
        }
    }

    /// Terminates the process (SIGTERM) and waits for its exit.
    ///
    /// # Errors
    /// Returns an error if the process does not run, or does not end in time and is killed.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let pid = self.pid().ok_or_else(|| anyhow!("{} is not running", self.plan.label))?;
        kill(registry::as_pid(pid), Signal::SIGTERM).context("cannot send SIGTERM")?;
        let ended = wait::until(&format!("{} to end after SIGTERM", self.plan.label), || {
            self.exit_status().ok_or_else(|| anyhow!("still running"))
        });
        self.kill();
        ended
    }

    /// Suspends the process (SIGSTOP) until [`Self::go_on`].
    ///
    /// # Errors
    /// Returns an error if the process does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes the process after [`Self::pause`].
    ///
    /// # Errors
    /// Returns an error if the process does not run.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let label = &self.plan.label;
        let pid = self.pid().ok_or_else(|| anyhow!("{label} is not running"))?;
        kill(registry::as_pid(pid), signal).with_context(|| format!("cannot send {signal} to {label}"))
    }

    /// Returns the exit status if the process has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        match self.child.as_mut() {
            Some(child) => child.try_wait().ok().flatten(),
            None => Some(ExitStatus::from_raw(Signal::SIGKILL as i32)),
        }
    }

    /// Returns the last lines of the log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        const LINES: usize = 40;
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
