//! Agent start benchmark: time and memory of a start with an empty kernel, and of a restart with a kernel that is
//! already up to date. The journal is the last good state of the agent, which it saves on disk.
//!
//! ```text
//!   cold:     no journal, no rules ─▶ start ─▶ feed ─▶ kernel ─▶ read-back ─▶ reported as verified
//!   restart:  killed, rules in place ─▶ start ─▶ journal ─▶ read the kernel ─▶ nothing to write
//!   baseline: the same kernel state, saved as text and loaded into an empty network by the kernel's own tool
//! ```

mod bound;
mod measured;
mod render;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lab::{cluster::control::string, host::wait, processes::process::Process};

pub use self::measured::ColdPoint;
use crate::{
    fixture_cluster::{Estate, PATIENCE, Size},
    host::{self, LoadMeter},
    pages::record::Record,
    progress::Say,
    usage::Usage,
};

/// Proxy modes; `ipvs` only if the kernel supports it, such as in the guest of `lab/guest.sh`.
pub use lab::host::modes::ALL as MODES;
const NODE: &str = "node1";

/// Parameters of the agent start benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of starts of each kind per size.
    pub rounds: u16,
    /// Numbers of Services at which each mode is measured, ascending.
    pub sizes: Vec<u32>,
    /// Numbers of endpoints per Service, measured one after another.
    pub endpoints: Vec<u8>,
    /// Maximum number of endpoints of all Services together. Combinations of `sizes` and `endpoints` that
    /// exceed it are skipped.
    pub most: u32,
    /// Proxy modes to measure.
    pub modes: Vec<&'static str>,
}

/// Measures each proxy mode in `options` with each number of Services in `options`.
///
/// # Errors
/// Returns an error if the process is not root, a binary is not built, or an agent never converges.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<ColdPoint>> {
    let versions = vec![
        format!("tidegate {}", env!("CARGO_PKG_VERSION")),
        lab::host::shell::run("nft", &["--version"])?.trim().to_owned(),
        lab::host::shell::run("iptables", &["--version"])?.trim().to_owned(),
    ];
    let mut record = Record::begin(versions)?;
    let meter = LoadMeter::start()?;
    for &mode in &options.modes {
        ensure!(
            mode != "ipvs" || host::has_ipvs(),
            "this kernel has no IPVS; run the benchmark in the guest of `lab/guest.sh`"
        );
        for &endpoints in &options.endpoints {
            let mut estate = Estate::start(Size { mode, services: 0, endpoints, live: 0 })
                .with_context(|| format!("{mode} mode"))?;
            let fits = |services: &&u32| services.saturating_mul(endpoints.into()) <= options.most;
            for &services in options.sizes.iter().filter(fits) {
                estate.fill(services)?;
                record.points.push(measure(&mut estate, options.rounds, say)?);
            }
        }
    }
    record.load = Some(meter.load()?);
    Ok(record)
}

fn measure(estate: &mut Estate, rounds: u16, say: Say<'_>) -> Result<ColdPoint> {
    let mut point = ColdPoint::new(estate.size());
    for round in 0..rounds {
        // The order alternates between rounds.
        if round % 2 == 0 {
            point.bound_ms.extend(bound::load(estate)?);
        }
        cold(estate, &mut point)?;
        restart(estate, &mut point)?;
        if round % 2 == 1 {
            point.bound_ms.extend(bound::load(estate)?);
        }
        say(&format!("{}, round {}: {point}", point.mode, round + 1))?;
    }
    Ok(point)
}

/// Measures a start without journal and with an empty kernel.
fn cold(estate: &mut Estate, point: &mut ColdPoint) -> Result<()> {
    let expected = verified(estate)?;
    agent(estate)?.kill();
    clean(estate)?;
    let begun = Instant::now();
    agent(estate)?.start_again()?;
    wait_verified(estate, &expected)?;
    point.cold_ms.push(begun.elapsed().as_secs_f64() * 1e3);
    let usage = Usage::of(agent(estate)?)?;
    point.cold_processor_ms.push(usage.processor_ns as f64 / 1e6);
    point.messages = estate.cluster.agent_counter(NODE, "kernelMessages")?;
    point.transactions = estate.cluster.agent_counter(NODE, "kernelTransactions")?;
    point.resident_kib.push(Usage::resident_kib_at_rest(agent(estate)?)?);
    point.peak_kib.push(usage.resident_peak_kib);
    Ok(())
}

/// Measures a restart of the agent with its journal and rules in place, which must not write to the kernel.
fn restart(estate: &mut Estate, point: &mut ColdPoint) -> Result<()> {
    let expected = verified(estate)?;
    agent(estate)?.kill();
    let listened = bound::listen(estate)?;
    let begun = Instant::now();
    agent(estate)?.start_again()?;
    wait_verified(estate, &expected)?;
    point.restart_ms.push(begun.elapsed().as_secs_f64() * 1e3);
    let usage = Usage::of(agent(estate)?)?;
    point.restart_processor_ms.push(usage.processor_ns as f64 / 1e6);
    let heard = listened.events()?;
    point.restart_writes.push(heard + estate.cluster.agent_counter(NODE, "kernelTransactions")?);
    point.restart_resident_kib.push(Usage::resident_kib_at_rest(agent(estate)?)?);
    Ok(())
}

fn agent(estate: &mut Estate) -> Result<&mut Process> {
    estate.cluster.agents.get_mut(NODE).context("the fixture cluster has one node")
}

/// Removes Tidegate's kernel state and saved state from the node, as an operator would with `cleanup`.
fn clean(estate: &Estate) -> Result<()> {
    let program = lab::processes::binaries::find("tidegate-agent")?;
    let state = format!("--state-dir={}", estate.cluster.state_directory(NODE).display());
    let program = program.to_str().context("the path of the agent is valid UTF-8")?;
    estate.cluster.place(NODE)?.run(program, &["cleanup", &state])?;
    Ok(())
}

/// Returns the position up to which the agent reports its state as verified.
fn verified(estate: &Estate) -> Result<String> {
    string(&estate.cluster.agent_state(NODE)?, "/verified")
}

/// Waits until the restarted agent has verified the position of its predecessor.
fn wait_verified(estate: &Estate, expected: &str) -> Result<()> {
    wait::until_within(PATIENCE, "the agent to verify everything", || {
        let verified = verified(estate)?;
        ensure!(verified == expected, "verified {verified}, not {expected}");
        Ok(())
    })
}
