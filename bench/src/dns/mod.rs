//! DNS benchmark: rate, CPU time and latency of questions to `tidegate-dns` and to other name servers, memory with many
//! Services, and the time until a changed endpoint is in an answer.
//!
//! ```text
//!   dnsperf ──UDP──▶ tidegate-dns ◀──watch── control server with all Services
//!                 ├─▶ Knot DNS, Unbound, dnsmasq: the same names from a zone file or a hosts file
//!                 └─▶ tidegate-dns, Unbound, dnsmasq: names of another zone, from their caches
//!   in a round, every server in turn:  as fast as possible (rate, CPU time) ─▶ at a fixed rate (latency)
//! ```
//! All servers and clients are in one network namespace and use the loopback interface.

mod change;
mod contestant;
mod data;
mod load;
mod measured;
mod render;

use std::time::Duration;

use anyhow::{Context, Result};
use lab::{
    cluster::deployment::{Cluster, Options as ClusterOptions},
    host::{netns::Namespace, scratch::Scratch},
};

use self::contestant::Servers;
pub use self::{
    data::{NameKind, NameSet},
    measured::{DnsResults, DnsRound, DnsSeries},
};
use crate::{
    host::{Host, LoadMeter},
    progress::Say,
    usage::Usage,
};

/// Parameters of the DNS benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of rounds. Each server is measured once per round and kind of names.
    pub rounds: u16,
    /// Duration of each of the two measurements in a round.
    pub slice: Duration,
    /// Numbers of names that are asked.
    pub names: NameSet,
    /// Questions per second in the latency measurement.
    pub per_second: u32,
    /// Number of changes of an endpoint.
    pub changes: u16,
}

/// Measures every server once per round, in an order that differs from round to round.
///
/// # Errors
/// Returns an error if the process is not root, software is missing, or a server gives a wrong answer.
pub fn run(options: &Options, say: Say<'_>) -> Result<DnsResults> {
    let mut measured = DnsResults::new(Host::ask()?, options, contestant::versions()?);
    let cluster = Cluster::start_control(&ClusterOptions { nodes: 1, ..ClusterOptions::default() })?;
    say(&format!("{} Services: filling", options.names.services))?;
    for batch in options.names.objects().chunks(BATCH) {
        cluster.apply_objects(batch).context("filling")?;
    }
    let place = cluster.place(NODE)?.clone();
    let scratch = Scratch::new("bench-dns")?;
    let servers = Servers::start(&place, &cluster, &options.names, scratch.path())?;
    measured.resident_kib = Usage::resident_kib_at_rest(servers.tidegate())?;
    say(&format!("tidegate-dns: {} KiB", measured.resident_kib))?;
    measured.changes_ms = change::measure(&cluster, &place, options)?;
    let load = load::QuestionSource::new(&place, &options.names, scratch.path())?;
    let mut contests = contestant::contests();
    for contest in &contests {
        measured.add_series(contest);
        // Fills the caches, and checks that every answer is complete.
        load.warm(contest).with_context(|| format!("{contest}: warm-up"))?;
    }
    let mut meter = LoadMeter::start()?;
    for round in 0..options.rounds {
        meter.pause()?;
        for contest in &contests {
            let turn = load.turn(contest, &servers, options);
            let turn = turn.with_context(|| format!("{contest}, round {}", round + 1))?;
            say(&format!("{:>4} {contest:<22} {turn}", round + 1))?;
            measured.enter(contest, turn);
        }
        // The first server differs from round to round.
        contests.rotate_left(1);
    }
    for contest in &contests {
        measured.set_resident(contest, Usage::of(servers.process(contest.server))?.resident_kib);
    }
    measured.load = Some(meter.load()?);
    Ok(measured)
}

/// Node in whose namespace everything except the control server runs.
const NODE: &str = "node1";
/// Number of objects per request.
const BATCH: usize = 1_000;

/// Runs a program in the namespace and returns its output.
fn run_in(place: &Namespace, program: &str, arguments: &[String]) -> Result<String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    place.run(program, &arguments)
}
