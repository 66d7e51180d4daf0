//! Execution of the iptables programs, in either the nft or the legacy flavor. Contains no decisions about
//! rules.
//!
//! Each flavor keeps its rules in a different part of the kernel (`nft` in nf_tables, `legacy` in tables of
//! its own). The flavor that already holds rules must be used: a packet traverses both, but each tool lists
//! only its own.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    process::{Command, Output, Stdio},
};

use model::primitives::net::IpFamily;
use nix::sched::{CloneFlags, setns};

use super::{
    layout::{ChainId, NamingLayout},
    parse,
};

/// Time in seconds that a program waits for the xtables lock. If it does not obtain the lock in time, the
/// whole update of the kernel fails and is retried.
const LOCK_WAIT_SECS: u32 = 5;
/// Exit status of iptables programs without a required resource: the xtables lock, or privileges.
const EXIT_RESOURCE: i32 = 4;
/// Directories in which the programs are searched after those of `PATH`.
const MORE_PATHS: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";
/// Maximum length in characters of a program's error message in a failure; the rest is cut off.
const SAID_LENGTH_MAX: usize = 400;

/// Flavor of the iptables programs, which determines the part of the kernel that holds their rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavour {
    /// Programs such as `iptables-nft`, which store rules in nf_tables.
    Nft,
    /// Programs such as `iptables-legacy`, which store rules in ip_tables and ip6_tables.
    Legacy,
}

impl Flavour {
    /// Every flavor, in probing order.
    pub const ALL: [Self; 2] = [Self::Nft, Self::Legacy];

    /// Returns the suffix that selects the flavor in program names, such as `nft` in `iptables-nft`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        }
    }
}

/// iptables command-line programs of one flavor (nft or legacy), such as `iptables-nft-restore`. The programs
/// are run in one network namespace.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) flavour: Flavour,
    /// Address families for which the programs work in this network namespace.
    pub(super) families: Vec<IpFamily>,
    namespace: Namespace,
}

/// Usability of one flavor, and the number of rules that it holds.
#[derive(Debug, Clone, Copy, Default)]
struct ProbeResult {
    is_usable: bool,
    rules: usize,
    ours: usize,
}

impl Tools {
    /// Selects the requested flavor. Without a request, prefers the flavor with chains of the agent, then the one
    /// with more rules; without any rules, selects the flavor of the program named `iptables`.
    pub(super) fn find(layout: &NamingLayout, asked: Option<Flavour>) -> io::Result<Self> {
        let namespace = Namespace::current()?;
        let found = Flavour::ALL.map(|flavour| (flavour, look(&namespace, layout, flavour)));
        let usable: Vec<_> = found.into_iter().filter(|(_, found)| found.is_usable).collect();
        let default = default_flavour(&namespace);
        let rank =
            |(flavour, found): &&(Flavour, ProbeResult)| (found.ours, found.rules, default == Some(*flavour));
        let chosen = match asked {
            Some(asked) => usable.iter().find(|(flavour, _)| *flavour == asked),
            None => usable.iter().max_by_key(rank),
        };
        let Some((flavour, found)) = chosen else {
            let asked = asked.map_or("", Flavour::as_str);
            let message = format!("no usable {asked} iptables-restore and iptables-save were found");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        };
        let mut tools = Self { flavour: *flavour, families: IpFamily::ALL.to_vec(), namespace };
        tools.families = IpFamily::ALL.into_iter().filter(|family| tools.works_for(*family)).collect();
        tracing::info!(
            flavour = flavour.as_str(), rules = found.rules, own_chains = found.ours, families = ?tools.families,
            "iptables flavour chosen"
        );
        Ok(tools)
    }

    /// Returns a second handle of the same programs in the same network namespace.
    pub(super) fn again(&self) -> io::Result<Self> {
        let namespace = self.namespace.again()?;
        Ok(Self { flavour: self.flavour, families: self.families.clone(), namespace })
    }

    /// Returns the programs of the other flavor if its tables contain chains of the agent, which must then be
    /// removed; otherwise `None`.
    pub(super) fn other_with_ours(&self, layout: &NamingLayout) -> io::Result<Option<Self>> {
        let others = Flavour::ALL.into_iter().filter(|flavour| *flavour != self.flavour);
        for flavour in others {
            let namespace = self.namespace.again()?;
            if look(&namespace, layout, flavour).ours > 0 {
                return Ok(Some(Self { flavour, families: self.families.clone(), namespace }));
            }
        }
        Ok(None)
    }

    fn works_for(&self, family: IpFamily) -> bool {
        match family {
            IpFamily::V4 => true,
            IpFamily::V6 => self.save(family, false).is_ok(),
        }
    }

    /// Returns all rules of a family in all tables, with counters if requested.
    pub(super) fn save(&self, family: IpFamily, with_counters: bool) -> io::Result<String> {
        let arguments: &[&str] = if with_counters { &["-c"] } else { &[] };
        let output = self.namespace.run(&program(family, self.flavour, "-save"), arguments, "")?;
        said(output)?.map_err(io::Error::other)
    }

    /// Returns the `iptables -S` listing of one chain; `None` if the chain does not exist.
    pub(super) fn list(&self, family: IpFamily, chain: &ChainId) -> io::Result<Option<String>> {
        let wait = LOCK_WAIT_SECS.to_string();
        let arguments = ["-w", &wait, "-t", chain.table.as_str(), "-S", &chain.name];
        let output = self.namespace.run(&program(family, self.flavour, ""), &arguments, "")?;
        Ok(said(output)?.ok())
    }

    /// Runs `iptables-restore`. If the kernel rejects the script, the table is unchanged and the error
    /// message is returned.
    pub(super) fn restore(&self, family: IpFamily, script: &str) -> io::Result<Result<(), String>> {
        let wait = format!("--wait={LOCK_WAIT_SECS}");
        let restore = program(family, self.flavour, "-restore");
        let output = self.namespace.run(&restore, &["--noflush", &wait], script)?;
        Ok(said(output)?.map(|_| ()))
    }
}

/// Probes one flavor: runs its programs, and counts existing rules and the agent's chains. Creates no table.
fn look(namespace: &Namespace, layout: &NamingLayout, flavour: Flavour) -> ProbeResult {
    let mut found = ProbeResult::default();
    for family in IpFamily::ALL {
        let save = program(family, flavour, "-save");
        let Ok(Ok(text)) = namespace.run(&save, &[], "").and_then(said) else { continue };
        let (rules, ours) = parse::weigh(layout, &text);
        found.is_usable |= family == IpFamily::V4;
        found.rules += rules;
        found.ours += ours;
    }
    found
}

fn default_flavour(namespace: &Namespace) -> Option<Flavour> {
    let version = namespace.run("iptables", &["--version"], "").and_then(said).ok()?.ok()?;
    Some(if version.contains("nf_tables") { Flavour::Nft } else { Flavour::Legacy })
}

fn program(family: IpFamily, flavour: Flavour, what: &str) -> String {
    let family = match family {
        IpFamily::V4 => "iptables",
        IpFamily::V6 => "ip6tables",
    };
    format!("{family}-{}{what}", flavour.as_str())
}

/// Returns the standard output of a program, or the text of its error if it failed.
fn said(output: Output) -> io::Result<Result<String, String>> {
    if output.status.success() {
        let text = String::from_utf8(output.stdout);
        return text.map(Ok).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text: String = text.trim().replace('\n', "; ").chars().take(SAID_LENGTH_MAX).collect();
    match output.status.code() {
        Some(EXIT_RESOURCE) => Err(io::Error::new(io::ErrorKind::ResourceBusy, text)),
        Some(_) => Ok(Err(text)),
        None => Err(io::Error::other(format!("{}: {text}", output.status))),
    }
}

/// Network namespace in which the programs run: the one of the thread that opened the backend.
#[derive(Debug)]
struct Namespace {
    file: File,
    inode: u64,
}

/// Path of the calling thread's network namespace.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

impl Namespace {
    fn current() -> io::Result<Self> {
        let file = File::open(OWN_NAMESPACE)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode })
    }

    /// Returns a second handle of the same namespace.
    fn again(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, inode: self.inode })
    }

    /// Runs a program to completion. A child process is in the namespace of the thread that starts it.
    fn run(&self, program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
        if std::fs::metadata(OWN_NAMESPACE)?.ino() == self.inode {
            return run(program, arguments, input);
        }
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET)?;
                run(program, arguments, input)
            });
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that ran iptables panicked")))
        })
    }
}

fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", format!("{path}:{MORE_PATHS}")).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pipe = child.stdin.take();
    if let Some(Err(error)) = pipe.map(|mut pipe| pipe.write_all(input.as_bytes()))
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // Without its full input the program exits and writes nothing.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    child.wait_with_output()
}
