//! BGP benchmark: time until routers install and remove a route, and memory use of the BGP implementation under
//! test (the contestant).
//!
//! ```text
//!   write ─▶ contestant ─▶ UPDATE ─▶ FRR ──▶ its kernel ──▶ route observed
//!                              └───▶ BIRD ─▶ its kernel ──▶ route observed
//! ```
//! A route counts as installed from the moment at which the kernel of the router could forward by it. Each
//! contestant has its own pair of routers, FRR and BIRD, with the same configuration.

mod announcer;
mod gobgp;
mod measured;
mod mrt;
mod render;
mod routers;
mod tidegate;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

pub use self::measured::{BgpResults, BgpSeries};
use self::{
    announcer::{Announcer, prefix},
    gobgp::Gobgp,
    routers::PrefixState,
    tidegate::TidegateRouter,
};
use crate::{
    host::{Host, LoadMeter},
    progress::Say,
};

/// Default number of prefixes in the bulk run.
pub const BULK: u32 = 20_000;
/// Timeout for one prefix to appear in or disappear from a router's kernel.
const ONE_TIME_MAX: Duration = Duration::from_secs(60);
const BULK_TIME_MAX: Duration = Duration::from_secs(600);
/// Number that identifies the prefix announced while a node failure is measured.
const FAILING: u32 = 65_000;

/// Parameters of the BGP benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of prefixes that each implementation announces and withdraws one by one.
    pub rounds: u16,
    /// Number of node failures per implementation.
    pub failures: u16,
    /// Number of prefixes in the bulk run; 0 skips it.
    pub bulk: u32,
}

/// Measures all BGP implementations alternately.
///
/// # Errors
/// Returns an error if the process is not root, software is missing, or a route never arrives.
pub fn run(options: &Options, say: Say<'_>) -> Result<BgpResults> {
    let host = Host::ask()?;
    let mut contestants: Vec<Box<dyn Announcer>> =
        vec![Box::new(TidegateRouter::start()?), Box::new(Gobgp::start()?)];
    let mut measured = BgpResults::new(host, options.clone(), versions()?);
    let meter = LoadMeter::start()?;
    for contestant in &mut contestants {
        say(&format!("{}: {}", contestant.name(), contestant.settings()))?;
        measured.add(contestant.name(), contestant.settings(), contestant.memory_kib()?);
    }
    for round in 0..u32::from(options.rounds) {
        contestants.rotate_left(1);
        for contestant in &mut contestants {
            let line = one_prefix(contestant.as_mut(), round, &mut measured)?;
            say(&format!("{:>4} {:<9} {line}", round + 1, contestant.name()))?;
        }
    }
    for round in 0..options.failures {
        contestants.rotate_left(1);
        for contestant in &mut contestants {
            let line = failure(contestant.as_mut(), &mut measured)
                .with_context(|| format!("{}, failure {}", contestant.name(), round + 1))?;
            say(&format!("{:>4} {:<9} node cut off: {line}", round + 1, contestant.name()))?;
        }
    }
    if options.bulk > 0 {
        for contestant in &mut contestants {
            let line = bulk(contestant.as_mut(), options.bulk, &mut measured)
                .with_context(|| format!("{}, {} prefixes", contestant.name(), options.bulk))?;
            say(&format!("     {:<9} {} prefixes: {line}", contestant.name(), options.bulk))?;
        }
    }
    measured.load = Some(meter.load()?);
    Ok(measured)
}

fn versions() -> Result<Vec<String>> {
    let mut versions = vec![format!("tidegate {}", env!("CARGO_PKG_VERSION"))];
    for command in ["gobgpd --version", "/usr/lib/frr/bgpd --version | head -1", "bird --version 2>&1"] {
        versions.push(lab::host::shell::run("sh", &["-c", command])?.trim().to_owned());
    }
    Ok(versions)
}

/// Measures the announcement and the withdrawal of one prefix.
fn one_prefix(contestant: &mut dyn Announcer, round: u32, measured: &mut BgpResults) -> Result<String> {
    let (name, prefix) = (contestant.name(), prefix(round));
    let begun = Instant::now();
    contestant.announce(round)?;
    let command = begun.elapsed();
    let there = contestant.routers().wait(&prefix, PrefixState::There, begun, ONE_TIME_MAX)?;
    let begun = Instant::now();
    contestant.withdraw(round)?;
    let gone = contestant.routers().wait(&prefix, PrefixState::Gone, begun, ONE_TIME_MAX)?;
    measured.enter(name, |series| {
        series.command_ms.push(milliseconds(command));
        series.announced_ms.push(there.map(milliseconds));
        series.withdrawn_ms.push(gone.map(milliseconds));
    });
    Ok(format!("installed after {there:.1?}, removed after {gone:.1?}; the write took {command:.1?}"))
}

/// Measures a node failure: disconnects the announcing node until the routers have removed its route, then
/// reconnects it.
fn failure(contestant: &mut dyn Announcer, measured: &mut BgpResults) -> Result<String> {
    let prefix = prefix(FAILING);
    let begun = Instant::now();
    contestant.announce(FAILING)?;
    contestant.routers().wait(&prefix, PrefixState::There, begun, ONE_TIME_MAX)?;
    contestant.wait_settled()?;
    let cut = Instant::now();
    contestant.plug(false)?;
    let gone = contestant.routers().wait(&prefix, PrefixState::Gone, cut, ONE_TIME_MAX);
    let back = Instant::now();
    contestant.plug(true)?;
    let gone = gone?;
    contestant.routers().wait(&prefix, PrefixState::There, back, 3 * ONE_TIME_MAX)?;
    let begun = Instant::now();
    contestant.withdraw(FAILING)?;
    contestant.routers().wait(&prefix, PrefixState::Gone, begun, ONE_TIME_MAX)?;
    measured.enter(contestant.name(), |series| series.failed_ms.push(gone.map(milliseconds)));
    Ok(format!("removed after {gone:.1?}"))
}

/// Measures the bulk run: prepares many prefixes, opens the sessions, and waits until the routers have all
/// prefixes.
fn bulk(contestant: &mut dyn Announcer, count: u32, measured: &mut BgpResults) -> Result<String> {
    contestant.prepare(count)?;
    let before = contestant.memory_kib()?;
    let begun = Instant::now();
    contestant.open()?;
    let all = contestant.routers().wait_count(count as usize, begun, BULK_TIME_MAX)?;
    let after = contestant.memory_kib()?;
    measured.enter(contestant.name(), |series| {
        series.bulk_ms = Some(all.map(milliseconds));
        series.bulk_memory_kib = Some(after);
    });
    Ok(format!(
        "all installed after {all:.1?}; memory {before} KiB with all prepared, {after} KiB with all \
         announced"
    ))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
