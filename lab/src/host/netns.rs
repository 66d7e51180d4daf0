//! Network namespaces that are deleted when their last handle is dropped, and execution of code and tools
//! inside them.

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

/// Name prefix of every namespace of this harness, followed by the process id.
const PREFIX: &str = "tg-";
/// Directory of the `ip netns` handles.
const HANDLES: &str = "/run/netns";

static SWEEP: Once = Once::new();
static SEQUENCE: AtomicU32 = AtomicU32::new(0);

/// Handle of a network namespace. Clones share the namespace; dropping the last clone kills the processes
/// inside and deletes the namespace.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<OwnedNamespace>);

#[derive(Debug)]
struct OwnedNamespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace with loopback up and duplicate address detection disabled, so that addresses are
    /// usable at once.
    ///
    /// # Errors
    /// Returns an error if the process is not root or the kernel rejects the request.
    pub fn new(role: &str) -> Result<Self> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "network namespaces need root: run this as root or with sudo"
        );
        SWEEP.call_once(sweep);
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{sequence}-{role}", std::process::id());
        registry::add_namespace(&name);
        let namespace = Self(Arc::new(OwnedNamespace { name }));
        shell::run("ip", &["netns", "add", namespace.name()])?;
        namespace.sysctl("net/ipv6/conf/all/accept_dad", "0")?;
        namespace.sysctl("net/ipv6/conf/default/accept_dad", "0")?;
        namespace.ip(&["link set lo up"])?;
        Ok(namespace)
    }

    /// Returns the name of the namespace, as used by `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs several `ip` commands in one process inside the namespace, one per line.
    ///
    /// # Errors
    /// Returns an error for the first line that fails.
    pub fn ip(&self, lines: &[impl AsRef<str>]) -> Result<()> {
        let batch: String = lines.iter().map(|line| format!("{}\n", line.as_ref())).collect();
        shell::run_with_input("ip", &["-n", self.name(), "-batch", "-"], &batch)
            .with_context(|| format!("in namespace {}, lines:\n{batch}", self.name()))?;
        Ok(())
    }

    /// Runs a tool inside the namespace and returns its stdout.
    ///
    /// # Errors
    /// Same as [`shell::run`].
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_with_input(program, arguments, "")
    }

    /// Runs a tool like [`Self::run`], with text for its stdin.
    ///
    /// # Errors
    /// Same as [`shell::run`].
    pub fn run_with_input(&self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        // `ip netns exec` would also mount `/sys` of the namespace, which takes longer than most tools.
        self.inside(|| shell::run_with_input(program, arguments, input))
    }

    /// Returns the MAC address of an interface as text.
    ///
    /// # Errors
    /// Returns an error if the interface does not exist or has no such address.
    pub fn mac(&self, interface: &str) -> Result<String> {
        let link = self.run("ip", &["-o", "link", "show", "dev", interface])?;
        let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).map(str::to_owned).with_context(|| format!("no link of Ethernet: {link}"))
    }

    /// Sets a kernel parameter of the namespace by its path below `/proc/sys`.
    ///
    /// # Errors
    /// Returns an error if the parameter does not exist or the kernel rejects the value.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<()> {
        self.inside(|| std::fs::write(Path::new("/proc/sys").join(path), value))
            .with_context(|| format!("cannot set {path} to {value} in namespace {}", self.name()))
    }

    /// Runs code on a thread inside the namespace and waits for it. Sockets created there stay in the
    /// namespace.
    ///
    /// # Panics
    /// Panics if the code panics or the namespace no longer exists.
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

    /// Starts a detached thread inside the namespace. The thread does not keep the namespace alive.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn spawn(&self, label: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let name = self.name().to_owned();
        let thread = thread::Builder::new().name(label.to_owned()).spawn(move || {
            enter(&name).expect("a namespace exists while threads are started in it");
            work();
        });
        thread.with_context(|| format!("cannot start thread {label}"))
    }
}

impl Drop for OwnedNamespace {
    fn drop(&mut self) {
        kill_processes_inside(&self.name);
        // An error means that the namespace is gone already.
        let _ = shell::run("ip", &["netns", "delete", &self.name]);
        registry::forget_namespace(&self.name);
    }
}

/// Connects two namespaces with a veth pair and sets both ends up. Each argument is a namespace and the name
/// of the interface in it.
///
/// # Errors
/// Returns an error if a name is in use.
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

/// Kills all processes in the namespace with this name, except the calling process.
pub(crate) fn kill_processes_inside(name: &str) {
    let Ok(listing) = shell::run("ip", &["netns", "pids", name]) else { return };
    let own = i32::try_from(std::process::id()).ok();
    for pid in listing.split_whitespace().filter_map(|text| text.parse::<i32>().ok()) {
        if Some(pid) != own {
            let _already_gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Removes the namespaces of earlier test runs that were killed: those whose name contains the ID of a
/// process that no longer exists.
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

/// Returns the ID of the process that created a namespace, parsed from the name. Returns `None` for names
/// with a different format.
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
