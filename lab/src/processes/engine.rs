//! Docker engine in a network namespace, which contains the engine's bridges and published ports. The engine
//! stores its files in its own directory and has only the images that a test builds. Dropping the engine
//! removes its containers, images and files.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::host::{netns::Namespace, registry, wait};

/// Mount point of the control group hierarchies.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Running Docker engine with its own data directory.
#[derive(Debug)]
pub struct Engine {
    namespace: Namespace,
    daemon: Child,
    control_group: String,
    directory: TempDir,
}

impl Engine {
    /// Starts an engine and waits until it responds.
    ///
    /// # Errors
    /// Returns the tail of its log if Docker is not installed or does not start.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        Self::start_with(namespace, &[])
    }

    /// Starts an engine for containers in the host network: like [`Self::start`], but without a bridge and
    /// without iptables rules.
    ///
    /// # Errors
    /// Same as [`Self::start`].
    pub fn start_without_network(namespace: &Namespace) -> Result<Self> {
        Self::start_with(namespace, &["--bridge=none", "--iptables=false", "--ip-forward=false"])
    }

    fn start_with(namespace: &Namespace, arguments: &[&str]) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("tidegate-engine-").tempdir()?;
        fs::create_dir(directory.path().join("client"))?;
        fs::write(directory.path().join("daemon.json"), "{}")?;
        let control_group = namespace.name().to_owned();
        let daemon = spawn(namespace, directory.path(), &control_group, arguments)?;
        registry::add_process(daemon.id());
        let engine = Self { namespace: namespace.clone(), daemon, control_group, directory };
        wait::until("the engine to respond", || engine.docker(&["version"]))
            .with_context(|| fs::read_to_string(engine.path("log")).unwrap_or_default())?;
        Ok(engine)
    }

    /// Runs `docker` to completion and returns its stdout.
    ///
    /// # Errors Returns the stderr of `docker` if the command fails.
    pub fn docker(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("docker");
        command.args(arguments);
        let output = self.output(command)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "docker {}: {}", arguments.join(" "), stderr.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command in the namespace, with this engine as its Docker host, until it ends. A non-zero exit
    /// status is not an error here, but a part of the returned output.
    ///
    /// # Errors
    /// Returns an error if the command cannot be started.
    pub fn output(&self, mut command: Command) -> Result<Output> {
        command
            .env("DOCKER_HOST", format!("unix://{}", self.path("socket").display()))
            .env("DOCKER_SOCKET", self.path("socket"))
            .env("DOCKER_CONFIG", self.path("client"))
            .stdin(Stdio::null());
        let label = format!("{command:?}");
        self.namespace.inside(move || command.output()).with_context(|| format!("cannot start {label}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the engine with SIGTERM, as a service manager does, so that it first stops its containers.
    fn stop(&mut self) {
        let _already_gone = kill(registry::as_pid(self.daemon.id()), Signal::SIGTERM);
        let ended = wait::until("the engine to end", || {
            self.daemon.try_wait()?.context("still running")?;
            Ok(())
        });
        if ended.is_err() {
            let _already_gone = self.daemon.kill();
            let _ = self.daemon.wait();
        }
        registry::forget_process(self.daemon.id());
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let containers = self.docker(&["ps", "--all", "--quiet"]).unwrap_or_default();
        let containers: Vec<_> = containers.split_whitespace().collect();
        if !containers.is_empty() {
            let _engine_is_ill = self.docker(&[&["rm", "--force"], containers.as_slice()].concat());
        }
        self.stop();
        // Empty control groups remain: one tree, or one per controller.
        let root = Path::new(CONTROL_GROUPS);
        let _not_there = fs::remove_dir(root.join(&self.control_group));
        for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
            let _not_there = fs::remove_dir(hierarchy.path().join(&self.control_group));
        }
    }
}

/// Starts the engine from a thread inside the namespace, because `ip netns exec` mounts its own `/sys`, which
/// would hide the control groups. The engine has a private mount namespace, so that no mount is left when it
/// is killed.
fn spawn(namespace: &Namespace, directory: &Path, control_group: &str, arguments: &[&str]) -> Result<Child> {
    let place = |name: &str| directory.join(name).display().to_string();
    let log = File::create(directory.join("log"))?;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "dockerd"])
        .args(["--config-file", &place("daemon.json"), "--host", &format!("unix://{}", place("socket"))])
        .args(["--data-root", &place("data"), "--exec-root", &place("exec"), "--pidfile", &place("pid")])
        // Published ports use rules only: the userland proxy would respond even with broken rules.
        .args(["--userland-proxy=false", "--exec-opt=native.cgroupdriver=cgroupfs"])
        .arg(format!("--cgroup-parent=/{control_group}"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    namespace.inside(move || command.spawn()).context("cannot start dockerd (Debian package docker.io)")
}
