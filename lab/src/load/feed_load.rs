//! Load generator for feeds (streams of cluster state to agents): thousands of clients of a control server in
//! separate processes, so that their resource usage is not counted as that of the server.
//!
//! ```text
//! Fleet ── stdin: await, cut, join, take ──▶ process ── 500 followers, each with its own connections and an address range per process
//!       ◀── stdout: replies, observations ──┘
//! ```
//! A *follower* is a simulated client of one of three kinds. An *agent* uses the control API as a real agent
//! does: it reads its compressed feed, reports after every batch and every five seconds, one report at a
//! time, and reconnects after a cut. The simulated agent programs no kernel, so a batch of changes counts as
//! applied as soon as its last line, a `synced` frame, arrives. A *watcher* reads `GET /v1/watch`. A *socket*
//! reads the messages of a raw TCP sender; its results are the baseline for the others.
//!
//! The commands on stdin wait for a revision (`await`), close all connections (`cut`), reconnect (`join`), and
//! request the observations since the last request (`take`). A binary that starts such processes (a [`Fleet`]) has
//! a hidden subcommand that calls [`serve`].

mod agent;
mod serve;
mod socket;
mod tally;
mod watcher;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
pub use model::primitives::quantity::Position;

pub use self::serve::{Orders, serve};
use crate::host::{netns::Namespace, registry};

/// Maximum number of followers in one process. Each has up to two connections, so that they stay below the
/// usual file limit and the server's limit of connections per client address.
pub const FOLLOWERS_PER_PROCESS_MAX: u16 = 500;
/// Name of the hidden subcommand of the binary that runs followers.
pub const SUBCOMMAND: &str = "fleet";

/// Kind of a follower (simulated client), which determines the stream that the follower reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Simulated agent of a node.
    Agent,
    /// Client of `GET /v1/watch`.
    Watcher,
    /// Client of the raw TCP sender that serves as a baseline.
    Socket,
}

impl Role {
    /// Returns the spelling of the kind on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Watcher => "watcher",
            Self::Socket => "socket",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Agent, Self::Watcher, Self::Socket];
        all.into_iter().find(|role| role.word() == text).ok_or_else(|| format!("`{text}` is not a role"))
    }
}

/// Time at which one follower (client of the stream) reached one revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerProgress {
    /// Index of the follower in its fleet, from 0.
    pub follower: u16,
    /// Revision up to which the follower has received all changes.
    pub revision: u64,
    /// Nanoseconds since the Unix epoch on the clock of the machine, which all processes share.
    pub at_ns: u64,
}

/// Returns the current time in nanoseconds since the Unix epoch.
#[must_use]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the name of the Node of the simulated agent with this number.
#[must_use]
pub fn node(number: u16) -> String {
    format!("node-{number:04}")
}

/// Parameters of a fleet.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// Binary with the hidden subcommand.
    pub program: &'a Path,
    /// Kind of the followers (simulated clients).
    pub role: Role,
    /// Address of the server to which the followers connect.
    pub server: SocketAddr,
    /// Number of followers to start.
    pub count: u16,
    /// Position (epoch and revision) from which the followers resume; `None` starts with the full state.
    pub resume: Option<Position>,
}

/// Group of child processes with followers (simulated clients). Dropping the value ends the processes.
#[derive(Debug)]
pub struct Fleet {
    processes: Vec<Part>,
    count: u16,
}

impl Fleet {
    /// Starts the child processes in a namespace. Their followers (simulated clients) connect to the server
    /// at once.
    ///
    /// # Errors
    /// Returns an error if a process cannot be started.
    pub fn start(namespace: &Namespace, start: &Start<'_>) -> Result<Self> {
        let firsts = (0..start.count).step_by(usize::from(FOLLOWERS_PER_PROCESS_MAX));
        let part = |first| Part::start(namespace, start, first);
        Ok(Self { processes: firsts.map(part).collect::<Result<_>>()?, count: start.count })
    }

    /// Returns the number of followers (simulated clients) in all processes.
    #[must_use]
    pub const fn len(&self) -> u16 {
        self.count
    }

    /// Returns true if the fleet has no followers (simulated clients).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Waits until all followers have received everything up to a revision. Agents must also have sent a
    /// report with this revision that the control server has accepted.
    pub fn wait(&mut self, revision: u64) -> Result<()> {
        self.ask_all(&format!("await {revision}"))
    }

    /// Closes all connections of all followers, which stay disconnected until [`Self::join`].
    ///
    /// # Errors
    /// Returns an error if a process ended.
    pub fn cut(&mut self) -> Result<()> {
        self.ask_all("cut")
    }

    /// Lets all followers reconnect at once after [`Self::cut`].
    pub fn join(&mut self) -> Result<()> {
        self.ask_all("join")
    }

    /// Returns the progress of all followers since the last call.
    ///
    /// # Errors
    /// Returns an error if a process ended.
    pub fn take(&mut self) -> Result<Vec<FollowerProgress>> {
        let mut all = Vec::new();
        for part in &mut self.processes {
            part.say("take")?;
            let count: usize = part.answer("take")?.parse().context("a count")?;
            for _ in 0..count {
                all.push(parse_seen(&part.line()?)?);
            }
        }
        Ok(all)
    }

    fn ask_all(&mut self, order: &str) -> Result<()> {
        for part in &mut self.processes {
            part.say(order)?;
        }
        let word = order.split(' ').next().unwrap_or_default();
        self.processes.iter_mut().try_for_each(|part| part.answer(word).map(drop))
    }
}

/// Returns, for each of `revisions`, the times at which the followers first had all changes up to it, in
/// nanoseconds since the Unix epoch. Each follower contributes one time, or none if it never had the
/// revision.
#[must_use]
pub fn first_seen(seen: &[FollowerProgress], revisions: &[u64]) -> BTreeMap<u64, Vec<u64>> {
    let mut by_follower: BTreeMap<u16, Vec<(u64, u64)>> = BTreeMap::new();
    for FollowerProgress { follower, revision, at_ns } in seen {
        by_follower.entry(*follower).or_default().push((*at_ns, *revision));
    }
    let mut first: BTreeMap<u64, Vec<u64>> =
        revisions.iter().map(|revision| (*revision, Vec::new())).collect();
    for steps in by_follower.values_mut() {
        steps.sort_unstable();
        let mut steps = steps.iter().peekable();
        for (revision, times) in &mut first {
            while steps.next_if(|(_, has)| has < revision).is_some() {}
            let Some((at_ns, _)) = steps.peek() else { break };
            times.push(*at_ns);
        }
    }
    first
}

/// Child process that runs some of the followers (simulated clients).
#[derive(Debug)]
struct Part {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Part {
    fn start(namespace: &Namespace, start: &Start<'_>, first: u16) -> Result<Self> {
        let Start { program, role, server, count, resume } = start;
        let count = (count - first).min(FOLLOWERS_PER_PROCESS_MAX);
        let [high, low] = (first / FOLLOWERS_PER_PROCESS_MAX + 1).to_be_bytes();
        let from = Ipv4Addr::new(127, 1, high, low);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name()]).arg(program).arg(SUBCOMMAND);
        command.arg(format!("--role={}", role.word())).arg(format!("--server={server}"));
        command.arg(format!("--first={first}")).arg(format!("--count={count}")).arg(format!("--from={from}"));
        if let Some(resume) = resume {
            command.arg(format!("--resume={resume}"));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the follower process")?;
        registry::add_process(child.id());
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("the process has no stdout")?);
        Ok(Self { child, orders, answers })
    }

    fn say(&mut self, order: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("stdin of the followers is closed")?;
        writeln!(orders, "{order}").context("the follower process has ended")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(
            self.answers.read_line(&mut line).context("the follower process has ended")? > 0,
            "the follower process has ended"
        );
        Ok(line.trim_end().to_owned())
    }

    /// Reads a reply of the child process, which must start with `word`, and returns the rest of the line.
    fn answer(&mut self, word: &str) -> Result<String> {
        let line = self.line()?;
        match line.split_once(' ') {
            Some((head, rest)) if head == word => Ok(rest.to_owned()),
            Some(_) | None if line == word => Ok(String::new()),
            Some(_) | None => bail!("followers replied `{line}`, expected `{word}`"),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Followers end when stdin closes; a process that does not is killed.
        self.orders = None;
        let _already_gone = self.child.kill();
        let _ = self.child.wait();
        registry::forget_process(self.child.id());
    }
}

fn parse_seen(line: &str) -> Result<FollowerProgress> {
    let mut words = line.split(' ').map(str::parse::<u64>);
    let mut word = || words.next().context("a word is missing")?.with_context(|| format!("`{line}`"));
    Ok(FollowerProgress { follower: u16::try_from(word()?)?, revision: word()?, at_ns: word()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_has_a_revision_when_it_first_has_that_or_a_later_one() {
        let seen = |follower, revision, at_ns| FollowerProgress { follower, revision, at_ns };
        let all = [seen(0, 3, 10), seen(1, 5, 11), seen(0, 7, 20)];
        let first = first_seen(&all, &[2, 3, 4, 6]);
        let expected = [(2, vec![10, 11]), (3, vec![10, 11]), (4, vec![20, 11]), (6, vec![20])];
        assert_eq!(first, BTreeMap::from(expected));
        assert_eq!(parse_seen("3 17 99").unwrap(), seen(3, 17, 99));
        assert!(parse_seen("3 17").is_err() && parse_seen("70000 1 1").is_err());
    }
}
