//! Helpers for backend tests (network namespaces, echo servers, packet programs) and for tests of the agent
//! loop (states, state directories, a simulated control server).
//!
//! All resources are named after the test and the process, are in separate namespaces, and are removed when
//! their guard is dropped.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses its part of the support")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "long measurements say how far they are")]

pub mod agents;
pub mod bfd;
pub mod bgp;
pub mod change;
pub mod changes;
pub mod control;
pub mod cost;
pub mod counters;
pub mod dir;
pub mod docker;
pub mod drain;
pub mod guest;
pub mod interop;
pub mod iptables;
pub mod isolated;
pub mod listings;
pub mod load;
pub mod many;
pub mod net;
pub mod ping;
pub mod process;
pub mod programs;
pub mod relay;
pub mod segment;
pub mod speakers;
pub mod states;

use std::{
    fs::File,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use nix::sched::{CloneFlags, setns};

/// Network namespace with a unique name, deleted when dropped.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a network namespace whose loopback interface is up.
    pub fn new(test: &str) -> Self {
        let name = unique(test);
        run("ip", &["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    /// Creates several network namespaces in one process, because a process takes tens of milliseconds in a guest VM.
    /// Their loopback interfaces are down.
    pub fn several<const N: usize>(tests: [String; N]) -> [Self; N] {
        let namespaces = tests.map(|test| Self { name: unique(&test) });
        let lines = namespaces.iter().map(|namespace| format!("netns add {}\n", namespace.name));
        batch(&[], &lines.collect::<String>());
        namespaces
    }

    /// Deletes several network namespaces in one process.
    pub fn delete_several<const N: usize>(namespaces: [&mut Self; N]) {
        let names = namespaces.map(|namespace| std::mem::take(&mut namespace.name));
        let lines = names.iter().map(|name| format!("netns del {name}\n"));
        // A failure must not hide the message of a test that panics.
        let _deleted = try_batch(&["-force"], &lines.collect::<String>());
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a script of `ip` commands in the namespace, one per line, in a single process.
    pub fn batch(&self, script: &str) {
        batch(&["-n", &self.name], script);
    }

    /// Runs `ip` with arguments in the namespace.
    pub fn ip(&self, arguments: &[&str]) {
        run("ip", &[&["-n", &self.name], arguments].concat());
    }

    /// Runs a command in the namespace and returns its standard output. `ip netns exec` would also mount `/sys` of the
    /// namespace, which takes longer than most commands, above all in a guest VM.
    pub fn exec(&self, command: &[&str]) -> String {
        let (program, arguments) = command.split_first().expect("a command has a name");
        self.run(|| run(program, arguments))
    }

    /// Returns the words with which `ip` shows an interface, in one line.
    fn link(&self, interface: &str) -> String {
        self.exec(&["ip", "-o", "link", "show", "dev", interface])
    }

    /// Returns the MAC address of an interface as text.
    pub fn mac(&self, interface: &str) -> String {
        let link = self.link(interface);
        let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).expect("a link of Ethernet").to_owned()
    }

    /// Returns the index of an interface.
    pub fn index(&self, interface: &str) -> u32 {
        let link = self.link(interface);
        link.split(':').next().unwrap().parse().unwrap()
    }

    /// Passes a script to `nft -f` in the namespace.
    pub fn nft(&self, script: &str) {
        let mut nft = Command::new("nft");
        nft.args(["-f", "-"]).stdin(Stdio::piped());
        let mut child = self.run(|| nft.spawn().expect("nft starts"));
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "nft refused: {script}");
    }

    pub fn list_table(&self, table: &str) -> String {
        self.exec(&["nft", "-n", "-s", "list", "table", "inet", table])
    }

    pub fn has_table(&self, table: &str) -> bool {
        self.exec(&["nft", "list", "tables"]).lines().any(|line| line.trim() == format!("table inet {table}"))
    }

    /// Runs a closure on a thread inside the namespace.
    pub fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(&self.name);
                closure()
            });
            match thread.join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        }
    }
}

/// Runs a script of `ip` commands, one per line, in a single process.
fn batch(options: &[&str], script: &str) {
    assert!(try_batch(options, script), "ip refused: {script}");
}

/// Runs a script of `ip` commands. Returns true if all succeeded.
fn try_batch(options: &[&str], script: &str) -> bool {
    let mut ip = Command::new("ip");
    let mut child = ip.args(options).args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip starts");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

/// Returns a name for a namespace that no other test on this machine uses at the same time.
pub fn unique(test: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("tg-{test}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Moves the calling thread into a network namespace.
pub fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).expect("the namespace exists");
    setns(file, CloneFlags::CLONE_NEWNET).expect("we may enter a namespace: these tests run as root");
}

/// Runs a command to completion and returns its output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
