//! Failover benchmark: traffic interruption of an address when the node that announces it (the owner) fails.
//! A failover system (Tidegate or keepalived) is settled when one node announces the address and all others
//! can take it over. A probe sends a datagram to the address every 5 ms and records the replies.
//!
//! ```text
//!   for each round, failure, system:
//!   settled ─▶ probe ─▶ owner fails ─▶ steady replies through another node ─▶ owner repaired ─▶ (settled) end of the probe
//!                         └──────── time without replies ────────┘                  └─ time without replies ─┘
//! ```
//! While one system recovers, the others are measured. The probe of the recovering system keeps running to observe
//! the return of its node.

pub mod contestant;
pub mod keepalived;
mod measured;
pub mod probe;
mod render;
pub mod tidegate;

use std::{
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use lab::{host::wait, network::topology::Topology};

use self::{
    contestant::{FailoverContestant, Failure, TARGET},
    keepalived::KeepalivedCluster,
    probe::Probe,
    tidegate::TidegateCluster,
};
use crate::{
    host::{Host, LoadMeter},
    progress::Say,
};

pub use self::measured::{FailoverResults, FailoverSeries, Run};

/// Number of consecutive replies through the same node after which that node counts as the owner; equals half
/// a second of probes without loss.
const STEADY_REPLIES: usize = 100;
/// Duration of the probe before a failure is injected, so that neighbor caches are filled.
const WARM_UP: Duration = Duration::from_millis(300);
/// Step by which the delay before a failure grows from round to round, so that failures fall at different
/// points of the keepalive interval.
const STAGGER: Duration = Duration::from_millis(37);
const STAGGER_STEPS: u32 = 29;

/// Parameters of the failover benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of failures of each kind per failover system.
    pub rounds: u16,
    /// Words that select failover systems and failures by name. If no word matches any system, all systems run;
    /// likewise for failures.
    pub only: Vec<String>,
}

/// Failover system under test, with the last injected failure if the system has not recovered from it yet.
struct Lane {
    contestant: Box<dyn FailoverContestant>,
    open: Option<Open>,
}

/// Measured failure that has been repaired, while the node still recovers. The probe runs until the recovery.
struct Open {
    run: Run,
    failure: Failure,
    probe: Probe,
    repaired: Instant,
}

/// Measures the failover systems that match `options.only`, alternately.
///
/// # Errors
/// Returns an error if the process is not root, software is missing, or a system does not fail over or recover.
pub fn run(options: &Options, say: Say<'_>) -> Result<FailoverResults> {
    let host = Host::ask()?;
    let failures: Vec<_> = chosen(&options.only, Failure::ALL.map(|failure| (failure.name(), failure)));
    let mut lanes = Vec::new();
    for start in chosen(&options.only, STARTS) {
        let mut contestant = start()?;
        contestant.wait_settled().with_context(|| format!("starting {}", contestant.name()))?;
        say(&format!("{}: {}", contestant.name(), contestant.settings()))?;
        lanes.push(Lane { contestant, open: None });
    }
    let mut measured = FailoverResults::new(host, options.rounds, versions()?);
    for lane in &lanes {
        for &failure in &failures {
            measured.add_series(lane.contestant.name(), lane.contestant.settings(), failure);
        }
    }
    let meter = LoadMeter::start()?;
    for round in 0..options.rounds {
        for &failure in &failures {
            // The first system differs from round to round.
            let lanes_count = lanes.len();
            lanes.rotate_left(lanes_count.min(1));
            for lane in &mut lanes {
                close(lane, &mut measured)?;
                let open = fail_over(lane.contestant.as_mut(), failure, round)
                    .with_context(|| format!("{}, {}", lane.contestant.name(), failure.name()))?;
                say(&format!(
                    "{:>4} {:<18} {:<13} {}",
                    round + 1,
                    lane.contestant.name(),
                    failure.name(),
                    open.run
                ))?;
                lane.open = Some(open);
            }
        }
    }
    for lane in &mut lanes {
        close(lane, &mut measured)?;
    }
    measured.finish(meter.load()?);
    Ok(measured)
}

type Start = fn() -> Result<Box<dyn FailoverContestant>>;

const STARTS: [(&str, Start); 4] = [
    ("tidegate-default", || Ok(Box::new(TidegateCluster::start(tidegate::KeepaliveInterval::Default)?))),
    ("keepalived-default", || {
        Ok(Box::new(KeepalivedCluster::start(keepalived::AdvertisementInterval::Default)?))
    }),
    ("tidegate-tuned", || Ok(Box::new(TidegateCluster::start(tidegate::KeepaliveInterval::Tuned)?))),
    ("keepalived-fast", || Ok(Box::new(KeepalivedCluster::start(keepalived::AdvertisementInterval::Fast)?))),
];

/// Selects the items whose names contain one of the words in `only`; all items if no name contains any of
/// them.
fn chosen<T: Copy, const N: usize>(only: &[String], all: [(&str, T); N]) -> Vec<T> {
    let is_chosen = |name: &str| only.iter().any(|word| name.contains(word.as_str()));
    let any = all.iter().any(|(name, _)| is_chosen(name));
    all.into_iter().filter(|(name, _)| !any || is_chosen(name)).map(|(_, value)| value).collect()
}

fn versions() -> Result<Vec<String>> {
    Ok(vec![format!("tidegate {}", env!("CARGO_PKG_VERSION")), KeepalivedCluster::version()?])
}

/// Injects one failure into the node that owns the address, waits until another node carries the traffic
/// steadily, and repairs the failure. Returns the measured values with the probe, which keeps running.
fn fail_over(contestant: &mut dyn FailoverContestant, failure: Failure, round: u16) -> Result<Open> {
    let probe = Probe::start(&contestant.topology().client, TARGET)?;
    let begun = Instant::now();
    let owner = steady_owner(&probe, begun, |_| true).context("before the failure")?;
    let node = node_of(contestant.topology(), owner)?;
    thread::sleep(WARM_UP + STAGGER * (u32::from(round) % STAGGER_STEPS));

    let struck = Instant::now();
    failure.strike(contestant, &node)?;
    steady_owner(&probe, struck, |now| now != owner).context("after the failure")?;
    let seen = probe.seen();
    let moved =
        seen.moved_after(struck, owner).context("the traffic has moved, so there is a first reply")?;
    let steady = Instant::now();
    let run = Run {
        silence_ms: milliseconds(seen.silence(struck, steady)),
        moved_ms: milliseconds(moved),
        unanswered: seen.unanswered(struck, steady),
        return_silence_ms: 0.0,
    };
    let repaired = Instant::now();
    failure.repair(contestant, &node)?;
    Ok(Open { run, failure, probe, repaired })
}

/// Waits until the failed node and the failover system have recovered, and records the run. Does nothing if
/// no run of `lane` is open.
fn close(lane: &mut Lane, measured: &mut FailoverResults) -> Result<()> {
    let Some(Open { mut run, failure, probe, repaired }) = lane.open.take() else { return Ok(()) };
    let name = lane.contestant.name();
    lane.contestant.wait_settled().with_context(|| format!("{name} after {}", failure.name()))?;
    // The traffic must be steady before the end of its silence can be measured.
    steady_owner(&probe, Instant::now(), |_| true).with_context(|| {
        format!(
            "{name}: after the return of \
                                                                            the node"
        )
    })?;
    let seen = probe.seen();
    run.return_silence_ms = milliseconds(seen.silence(repaired, Instant::now()));
    measured.enter(name, failure, run, &seen.lateness);
    Ok(())
}

/// Waits until the last [`STEADY_REPLIES`] replies all arrived after `since` through one node for which
/// `is_right` returns true, and returns the address of that node.
fn steady_owner(probe: &Probe, since: Instant, is_right: impl Fn(IpAddr) -> bool) -> Result<IpAddr> {
    wait::until("steady replies through one node", || {
        let owner = probe.steady_owner(since, STEADY_REPLIES).filter(|&owner| is_right(owner));
        owner.ok_or_else(|| match probe.last_reply() {
            Some(reply) => anyhow!("the last reply came {:?} ago through {}", reply.at.elapsed(), reply.via),
            None => anyhow!("no reply so far"),
        })
    })
}

fn node_of(topology: &Topology, address: IpAddr) -> Result<String> {
    let mut nodes = topology.nodes.iter();
    let found =
        nodes.find(|(_, machine)| lab::network::topology::node_addresses(machine.index).contains(&address));
    found.map(|(name, _)| name.clone()).with_context(|| format!("no node has {address}"))
}

fn milliseconds(duration: Duration) -> f64 {
    // Microseconds are finer than any measurement here.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
