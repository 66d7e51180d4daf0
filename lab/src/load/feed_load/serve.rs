//! Child process of the load generator: runs a group of followers (simulated clients of a feed, a watch or a
//! TCP stream) and executes commands that it reads from stdin.

use std::{
    io::{Write, stdout},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use model::primitives::quantity::Position;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use super::{Role, agent, socket, tally::Tally, watcher};

/// Timeout for all followers to reach a revision; long, because the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(240);
/// Reconnect delay after a cut, in milliseconds: the first backoff step of a real agent.
const PAUSE_MS: std::ops::Range<u64> = 100..200;

/// Command-line parameters of a child process with followers (simulated clients).
#[derive(Debug, Clone)]
pub struct Orders {
    /// Kind of the followers.
    pub role: Role,
    /// Address of the server to which the followers connect.
    pub server: SocketAddr,
    /// Index of the process's first follower in the fleet.
    pub first: u16,
    /// Number of followers in the process.
    pub count: u16,
    /// Source address of the followers.
    pub from: IpAddr,
    /// Position (epoch and revision) from which feeds and watches resume; `None` starts with the full state.
    pub resume: Option<Position>,
}

/// Simulated client of a feed, watch or TCP stream, with its parameters.
#[derive(Debug, Clone)]
pub(super) struct Follower {
    pub(super) number: u16,
    pub(super) server: SocketAddr,
    pub(super) from: IpAddr,
    pub(super) tally: Tally,
}

/// Runs the followers and executes the commands on stdin until stdin is closed.
///
/// # Errors
/// Returns an error if a command is unknown or times out, or if a follower ends.
pub fn serve(orders: &Orders) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot read the limit of open files")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let outcome = runtime.block_on(run(orders));
    // A runtime thread may be blocked on a stdin read that never returns.
    runtime.shutdown_background();
    outcome
}

async fn run(orders: &Orders) -> Result<()> {
    let Orders { role, server, first, count, from, resume } = orders.clone();
    let tally = Tally::new(first, count);
    let (is_joined, joined) = watch::channel(true);
    let mut tasks = JoinSet::new();
    for number in first..first + count {
        let follower = Follower { number, server, from, tally: tally.clone() };
        tasks.spawn(live(role, follower, resume, joined.clone()));
    }
    drop(joined);
    let mut lines = BufReader::new(stdin()).lines();
    loop {
        tokio::select! {
            line = next(&mut lines) => {
                let Some(line) = line? else { return Ok(()) };
                obey(&line, &tally, &is_joined).await?;
            }
            Some(ended) = tasks.join_next() => bail!("a follower task ended: {ended:?}"),
        }
    }
}

async fn next(lines: &mut Lines<BufReader<Stdin>>) -> Result<Option<String>> {
    lines.next_line().await.context("stdin cannot be read")
}

async fn obey(order: &str, tally: &Tally, is_joined: &watch::Sender<bool>) -> Result<()> {
    let mut out = String::new();
    match order.split_once(' ').unwrap_or((order, "")) {
        ("await", revision) => {
            let revision = revision.parse().with_context(|| format!("`{order}`"))?;
            timeout(PATIENCE, tally.reach(revision))
                .await
                .with_context(|| format!("not all followers reached {revision}"))?;
            out.push_str("await\n");
        }
        ("cut", _) => {
            is_joined.send_replace(false);
            out.push_str("cut\n");
        }
        ("join", _) => {
            is_joined.send_replace(true);
            out.push_str("join\n");
        }
        ("take", _) => {
            let seen = tally.take();
            out = format!("take {}\n", seen.len());
            for one in seen {
                out.push_str(&format!("{} {} {}\n", one.follower, one.revision, one.at_ns));
            }
        }
        _ => bail!("unknown order `{order}`"),
    }
    let mut stdout = stdout().lock();
    stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()).context("stdout is closed")
}

/// Runs a follower until the process ends. After each error, and after each disconnection that `joined`
/// requests, the follower reconnects.
async fn live(role: Role, follower: Follower, resume: Option<Position>, mut joined: watch::Receiver<bool>) {
    let mut held = resume;
    let mut random = u64::from(follower.number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    loop {
        if joined.wait_for(|is_joined| *is_joined).await.is_err() {
            return;
        }
        tokio::select! {
            () = follow(role, &follower, &mut held) => {}
            _ = joined.changed() => {}
        }
        // Random delay, like that of independent agents.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pause = PAUSE_MS.start + (random >> 33) % (PAUSE_MS.end - PAUSE_MS.start);
        if joined.wait_for(|is_joined| *is_joined).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

async fn follow(role: Role, follower: &Follower, held: &mut Option<Position>) {
    let ended = match role {
        Role::Agent => agent::follow(follower, held).await,
        Role::Watcher => watcher::follow(follower, held).await,
        Role::Socket => socket::follow(follower).await,
    };
    if let Err(error) = ended {
        // To stderr, apart from the replies on stdout, as a diagnosis of failures.
        let _ = writeln!(std::io::stderr(), "follower {}: {error:#}", follower.number);
    }
}
