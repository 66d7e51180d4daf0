//! What it takes an agent to begin: with an empty kernel, and with a kernel in which everything is right already.
//!
//! ```text
//!   cold:    no journal, no rules ─▶ start ─▶ feed ─▶ kernel ─▶ read back ─▶ control knows that all is verified
//!   restart: killed, rules in place ─▶ start ─▶ journal ─▶ read the kernel ─▶ nothing to write
//!   bound:   what the agent had put into the kernel, saved as text, loaded into an empty network by the kernel's own tool
//! ```

mod bound;
mod measured;
mod render;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lab::{cluster::control::string, host::wait, processes::process::Process};

pub use self::measured::Point;
use crate::{
    fixture_cluster::{Estate, PATIENCE, Size},
    host::{self, LoadMeter},
    pages::record::Record,
    progress::Say,
    usage::Usage,
};

/// The modes; `ipvs` where the kernel has it, such as in the guest of `lab/guest.sh`.
pub const MODES: [&str; 4] = ["nftables", "iptables", "userspace", "ipvs"];
const NODE: &str = "node1";

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Starts of each kind at each size.
    pub rounds: u16,
    /// Numbers of Services, ascending.
    pub sizes: Vec<u32>,
    /// Endpoints of each Service, one after the other.
    pub endpoints: Vec<u8>,
    /// Endpoints of all Services together: what is larger is left out.
    pub most: u32,
    /// Proxy modes.
    pub modes: Vec<&'static str>,
}

/// Measures all modes at all sizes.
///
/// # Errors
/// Not root, something is not built, or an agent never has everything.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<Point>> {
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
            "this kernel has no IPVS; run it in the guest of `lab/guest.sh`"
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

fn measure(estate: &mut Estate, rounds: u16, say: Say<'_>) -> Result<Point> {
    let mut point = Point::new(estate.size());
    for round in 0..rounds {
        // Whoever begins differs from round to round.
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

/// A start with no journal and an empty kernel.
fn cold(estate: &mut Estate, point: &mut Point) -> Result<()> {
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

/// A start with everything in place: nothing may be written.
fn restart(estate: &mut Estate, point: &mut Point) -> Result<()> {
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
    estate.cluster.agents.get_mut(NODE).context("the estate has one node")
}

/// Removes everything of ours from the node, kernel and saved state, as an operator would.
fn clean(estate: &Estate) -> Result<()> {
    let program = lab::processes::binaries::find("tidegate-agent")?;
    let state = format!("--state-dir={}", estate.cluster.state_directory(NODE).display());
    let program = program.to_str().context("the path of the agent is text")?;
    estate.cluster.place(NODE)?.run(program, &["cleanup", &state])?;
    Ok(())
}

/// How far the agent says that it has verified.
fn verified(estate: &Estate) -> Result<String> {
    string(&estate.cluster.agent_state(NODE)?, "/verified")
}

/// Waits until the agent that runs now says that it has verified what the one before it had.
fn wait_verified(estate: &Estate, expected: &str) -> Result<()> {
    wait::until_within(PATIENCE, "the agent to have verified everything", || {
        let verified = verified(estate)?;
        ensure!(verified == expected, "verified {verified}, not {expected}");
        Ok(())
    })
}
