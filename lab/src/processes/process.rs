//! A binary under test, running in a namespace, that ends with its guard.

use std::{
    fs::{self, OpenOptions},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};

use crate::host::{netns::Namespace, registry, wait};

/// What to start, and where; kept so that the same can be started again.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What messages call it.
    pub label: String,
    /// Where it runs.
    pub namespace: Namespace,
    /// The binary.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables added to the environment.
    pub environment: Vec<(String, String)>,
    /// Where its output goes; appended to by every start.
    pub log: PathBuf,
}

/// A process that is killed when its guard is dropped.
#[derive(Debug)]
pub struct Process {
    plan: Plan,
    child: Option<Child>,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// The binary or the log file is not there.
    pub fn start(plan: Plan) -> Result<Self> {
        let mut process = Self { plan, child: None };
        process.start_again()?;
        Ok(process)
    }

    /// Starts it after [`Self::kill`] or [`Self::terminate`].
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_again(&mut self) -> Result<()> {
        let Plan { label, namespace, program, arguments, environment, log } = &self.plan;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        // `ip netns exec` becomes the program, so the process id is that of the program.
        let child = Command::new("ip")
            .args(["netns", "exec", namespace.name()])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            // A group of its own: Ctrl-C reaches the harness, which then ends what it started in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {label}"))?;
        registry::add_process(child.id());
        self.child = Some(child);
        Ok(())
    }

    /// Its process id while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// What it has written so far, over all starts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.plan.log).unwrap_or_default()
    }

    /// Changes arguments before the next start.
    pub fn arguments_mut(&mut self) -> &mut Vec<String> {
        &mut self.plan.arguments
    }

    /// Waits until `ready` answers `Ok`; notices when the process ends instead.
    ///
    /// # Errors
    /// It ended, or `ready` never answered `Ok`. The end of the log is in the error.
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
            (Ok(None), None) => Err(anyhow!("{label} has neither ended nor become ready")),
            (Err(error), None) => {
                Err(error.context(format!("the log of {label} ends:\n{}", self.log_tail())))
            }
        }
    }

    /// Ends it without any warning (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _already_gone = child.kill();
            let _ = child.wait();
            registry::forget_process(child.id());
        }
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// It does not run, or does not end in time; then it is killed.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let pid = self.pid().ok_or_else(|| anyhow!("{} does not run", self.plan.label))?;
        kill(registry::as_pid(pid), Signal::SIGTERM).context("cannot send SIGTERM")?;
        let ended = wait::until(&format!("{} to end after SIGTERM", self.plan.label), || {
            self.exit_status().ok_or_else(|| anyhow!("it still runs"))
        });
        self.kill();
        ended
    }

    /// Stops it where it is (SIGSTOP), until [`Self::go_on`].
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on after [`Self::pause`].
    ///
    /// # Errors
    /// It does not run.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let label = &self.plan.label;
        let pid = self.pid().ok_or_else(|| anyhow!("{label} does not run"))?;
        kill(registry::as_pid(pid), signal).with_context(|| format!("cannot send {signal} to {label}"))
    }

    /// How it ended, if it has.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        match self.child.as_mut() {
            Some(child) => child.try_wait().ok().flatten(),
            None => Some(ExitStatus::from_raw(Signal::SIGKILL as i32)),
        }
    }

    /// The last lines of its log.
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
