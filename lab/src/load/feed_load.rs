//! Followers of a control server by the thousand, in processes of their own, so that what they use is not what the server uses.
//!
//! ```text
//! Fleet ── stdin: await, cut, join, take ──▶ process ── 500 followers, each with connections and an address range of its own
//!       ◀─ stdout: answers, and what was seen when ─┘
//! ```
//! An *agent* does what a real one does towards control: follows its feed packed, reports at once after every step and every five
//! seconds, never two reports at a time, and comes back by itself after a cut. It programs nothing, so it takes a batch as soon as
//! it has its `synced`. A *watcher* follows `GET /v1/watch`. A *socket* takes what a sender of the benchmark sends, for comparison.
//!
//! A binary that starts fleets has a hidden subcommand that calls [`serve`].

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

/// Followers in one process: with two connections each, below the usual limit of files, and below what a server takes from one
/// address.
pub const FOLLOWERS_PER_PROCESS_MAX: u16 = 500;
/// The subcommand of the binary.
pub const SUBCOMMAND: &str = "fleet";

/// What a follower is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An agent of a node.
    Agent,
    /// A client of `GET /v1/watch`.
    Watcher,
    /// A client of a sender that knows nothing.
    Socket,
}

impl Role {
    /// The word in arguments.
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
        all.into_iter().find(|role| role.word() == text).ok_or_else(|| format!("`{text}` is no role"))
    }
}

/// Something that a follower had, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Which follower, from 0.
    pub follower: u16,
    /// It had everything up to this revision.
    pub revision: u64,
    /// Nanoseconds since 1970 on the clock of the machine, which all processes share.
    pub at_ns: u64,
}

/// This moment, in nanoseconds since 1970.
#[must_use]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The name of the Node of an agent.
#[must_use]
pub fn node(number: u16) -> String {
    format!("node-{number:04}")
}

/// Where followers begin.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The binary with the subcommand.
    pub program: &'a Path,
    /// What they are.
    pub role: Role,
    /// Whom they follow.
    pub server: SocketAddr,
    /// How many.
    pub count: u16,
    /// What they have already; nothing when left out.
    pub resume: Option<Position>,
}

/// Followers that run until this is dropped.
#[derive(Debug)]
pub struct Fleet {
    processes: Vec<Part>,
    count: u16,
}

impl Fleet {
    /// Starts the processes; the followers connect at once.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn start(namespace: &Namespace, start: &Start<'_>) -> Result<Self> {
        let firsts = (0..start.count).step_by(usize::from(FOLLOWERS_PER_PROCESS_MAX));
        let part = |first| Part::start(namespace, start, first);
        Ok(Self { processes: firsts.map(part).collect::<Result<_>>()?, count: start.count })
    }

    /// How many followers there are.
    #[must_use]
    pub const fn len(&self) -> u16 {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Waits until all have everything up to a revision; agents, until control has taken a report that says so.
    ///
    /// # Errors
    /// They never have, or a process ended.
    pub fn wait(&mut self, revision: u64) -> Result<()> {
        self.ask_all(&format!("await {revision}"))
    }

    /// Closes all connections of all followers, who stay away until [`Self::join`].
    ///
    /// # Errors
    /// A process ended.
    pub fn cut(&mut self) -> Result<()> {
        self.ask_all("cut")
    }

    /// Lets all come back at once.
    ///
    /// # Errors
    /// A process ended.
    pub fn join(&mut self) -> Result<()> {
        self.ask_all("join")
    }

    /// What was seen since this was asked last.
    ///
    /// # Errors
    /// A process ended.
    pub fn take(&mut self) -> Result<Vec<Seen>> {
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

/// For each of these revisions, when each follower first had it: nanoseconds, as in [`Seen`]. Followers that never had it are missing.
#[must_use]
pub fn first_seen(seen: &[Seen], revisions: &[u64]) -> BTreeMap<u64, Vec<u64>> {
    let mut by_follower: BTreeMap<u16, Vec<(u64, u64)>> = BTreeMap::new();
    for Seen { follower, revision, at_ns } in seen {
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

/// One process.
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
            .context("followers cannot be started")?;
        registry::add_process(child.id());
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a process without an output")?);
        Ok(Self { child, orders, answers })
    }

    fn say(&mut self, order: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("the orders are closed")?;
        writeln!(orders, "{order}").context("followers have ended")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(
            self.answers.read_line(&mut line).context("followers have ended")? > 0,
            "followers have ended"
        );
        Ok(line.trim_end().to_owned())
    }

    /// What stands behind the word of an answer.
    fn answer(&mut self, word: &str) -> Result<String> {
        let line = self.line()?;
        match line.split_once(' ') {
            Some((head, rest)) if head == word => Ok(rest.to_owned()),
            Some(_) | None if line == word => Ok(String::new()),
            Some(_) | None => bail!("followers said `{line}`, not `{word}`"),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // They end when nobody can give them orders; whoever does not is ended.
        self.orders = None;
        let _already_gone = self.child.kill();
        let _ = self.child.wait();
        registry::forget_process(self.child.id());
    }
}

fn parse_seen(line: &str) -> Result<Seen> {
    let mut words = line.split(' ').map(str::parse::<u64>);
    let mut word = || words.next().context("a word is missing")?.with_context(|| format!("`{line}`"));
    Ok(Seen { follower: u16::try_from(word()?)?, revision: word()?, at_ns: word()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_has_a_revision_when_it_first_has_that_or_a_later_one() {
        let seen = |follower, revision, at_ns| Seen { follower, revision, at_ns };
        let all = [seen(0, 3, 10), seen(1, 5, 11), seen(0, 7, 20)];
        let first = first_seen(&all, &[2, 3, 4, 6]);
        let expected = [(2, vec![10, 11]), (3, vec![10, 11]), (4, vec![20, 11]), (6, vec![20])];
        assert_eq!(first, BTreeMap::from(expected));
        assert_eq!(parse_seen("3 17 99").unwrap(), seen(3, 17, 99));
        assert!(parse_seen("3 17").is_err() && parse_seen("70000 1 1").is_err());
    }
}
