//! A network namespace that goes away with its last owner, and a way to run code inside it.

use std::{
    fs::File,
    panic,
    path::Path,
    sync::{
        Arc, Once,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::host::{registry, shell};

/// Every namespace of this harness starts so; then comes the process id.
const PREFIX: &str = "tg-";
/// Where `ip netns` keeps its handles.
const HANDLES: &str = "/run/netns";

static SWEEP: Once = Once::new();
static SEQUENCE: AtomicU32 = AtomicU32::new(0);

/// A network namespace; clones are the same one. The last one to be dropped kills what still runs inside and deletes it.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    name: String,
}

impl Namespace {
    /// Makes a namespace with loopback up and duplicate address detection off, so that addresses work at once.
    ///
    /// # Errors
    /// Not root, or the kernel refuses.
    pub fn new(role: &str) -> Result<Self> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "network namespaces need root: run this as root or with sudo"
        );
        SWEEP.call_once(sweep);
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{sequence}-{role}", std::process::id());
        registry::add_namespace(&name);
        let namespace = Self(Arc::new(Owned { name }));
        shell::run("ip", &["netns", "add", namespace.name()])?;
        namespace.sysctl("net/ipv6/conf/all/accept_dad", "0")?;
        namespace.sysctl("net/ipv6/conf/default/accept_dad", "0")?;
        namespace.ip(&["link set lo up"])?;
        Ok(namespace)
    }

    /// Its name for `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs lines of `ip` inside, all in one process.
    ///
    /// # Errors
    /// The first line that fails.
    pub fn ip(&self, lines: &[impl AsRef<str>]) -> Result<()> {
        let batch: String = lines.iter().map(|line| format!("{}\n", line.as_ref())).collect();
        shell::run_with_input("ip", &["-n", self.name(), "-batch", "-"], &batch)
            .with_context(|| format!("in namespace {}, lines:\n{batch}", self.name()))?;
        Ok(())
    }

    /// Runs a tool inside and returns what it wrote to stdout.
    ///
    /// # Errors
    /// As [`shell::run`].
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_with_input(program, arguments, "")
    }

    /// As [`Self::run`], with text for stdin.
    ///
    /// # Errors
    /// As [`shell::run`].
    pub fn run_with_input(&self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let mut all = vec!["netns", "exec", self.name(), program];
        all.extend(arguments);
        shell::run_with_input("ip", &all, input)
    }

    /// Sets a kernel parameter of the namespace, named by its path below `/proc/sys`.
    ///
    /// # Errors
    /// The kernel does not have it or refuses the value.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<()> {
        self.inside(|| std::fs::write(Path::new("/proc/sys").join(path), value))
            .with_context(|| format!("cannot set {path} to {value} in namespace {}", self.name()))
    }

    /// Runs code on a thread inside the namespace and waits for it. Sockets made there stay there.
    ///
    /// # Panics
    /// The code panics, or the namespace is gone.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let name = self.name();
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                enter(name).expect("a namespace exists as long as its handle");
                work()
            });
            worker.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
    }

    /// Starts a thread inside the namespace that goes on by itself. It does not keep the namespace.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(&self, label: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let name = self.name().to_owned();
        let thread = thread::Builder::new().name(label.to_owned()).spawn(move || {
            enter(&name).expect("a namespace exists while threads are started in it");
            work();
        });
        thread.with_context(|| format!("cannot start thread {label}"))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        kill_processes_inside(&self.name);
        // Failing means that it is gone already, and there is nobody to tell.
        let _ = shell::run("ip", &["netns", "delete", &self.name]);
        registry::forget_namespace(&self.name);
    }
}

/// Joins two namespaces by a veth pair, with both ends up. Each end is given as namespace and interface name.
///
/// # Errors
/// A name is taken.
pub fn join(one: (&Namespace, &str), other: (&Namespace, &str)) -> Result<()> {
    let (here, here_name) = one;
    let (there, there_name) = other;
    here.ip(&[
        format!("link add {here_name} type veth peer name {there_name} netns {}", there.name()),
        format!("link set {here_name} up"),
    ])?;
    there.ip(&[format!("link set {there_name} up")])
}

fn enter(name: &str) -> Result<()> {
    let handle = File::open(Path::new(HANDLES).join(name))
        .with_context(|| format!("network namespace {name} does not exist"))?;
    setns(handle, CloneFlags::CLONE_NEWNET).with_context(|| format!("cannot enter network namespace {name}"))
}

/// Kills the processes in a namespace of ours. Threads of this process do not count as such.
pub(crate) fn kill_processes_inside(name: &str) {
    let Ok(listing) = shell::run("ip", &["netns", "pids", name]) else { return };
    let own = i32::try_from(std::process::id()).ok();
    for pid in listing.split_whitespace().filter_map(|text| text.parse::<i32>().ok()) {
        if Some(pid) != own {
            let _already_gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Removes what runs that were killed outright have left behind.
fn sweep() {
    let Ok(handles) = std::fs::read_dir(HANDLES) else { return };
    for handle in handles.flatten() {
        let Ok(name) = handle.file_name().into_string() else { continue };
        let Some(pid) = owner(&name) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            kill_processes_inside(&name);
            let _ = shell::run("ip", &["netns", "delete", &name]);
        }
    }
}

/// The process id in the name of a namespace of this harness.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_harness_have_an_owner() {
        assert_eq!(owner("tg-4711-0-node1"), Some(4711));
        for foreign in ["tgx", "tg-", "tg-x-1", "cni-4711", ""] {
            assert_eq!(owner(foreign), None, "{foreign}");
        }
    }
}
