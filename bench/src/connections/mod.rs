//! Connection benchmark: cost of a new connection through a virtual address, and throughput of a long-lived
//! stream, in every proxy mode, with few and many Services. For comparison, the same is measured on paths
//! without Tidegate: a direct connection over a router without rules, and the proxies HAProxy and nginx.
//!
//! ```text
//!   client ──▶ node1 ──▶ backend        the same three machines for each path, each in its own network
//!               │
//!               ├─ tidegate: Services of the fixture cluster, one of which leads to the backend
//!               ├─ direct: routes only
//!               └─ haproxy, nginx: a process that accepts, connects and copies
//!   in a round, every path in turn:
//!     one client in a closed loop (latency) ─▶ many clients (rate, CPU time) ─▶ one long stream (bytes)
//! ```
//! If the kernel has no IPVS, ipvs mode and the other paths are measured in the guest VM (`lab/guest.sh`), and
//! only their ratios are compared.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod contestant;
mod guest;
mod measured;
mod render;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use self::measured::{ConnectionResults, ConnectionSeries, Round};
use self::{
    client::Slice,
    contestant::{ConnectionPath, Relay},
};
use crate::{
    host::{self, Host, LoadMeter, ProcessorTimes},
    progress::Say,
};

/// Proxy modes; ipvs is not supported by every kernel.
pub use lab::host::modes::ALL as MODES;
/// Contestants without Tidegate, measured for comparison.
pub const PEERS: [&str; 3] = ["direct", "haproxy", "nginx"];

/// Parameters of the connection benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of rounds. Each path (a proxy mode, or a compared path without Tidegate) is measured once per
    /// round.
    pub rounds: u16,
    /// Duration of each of the three measurements in a round.
    pub slice: Duration,
    /// Numbers of Services at which each mode is measured, ascending.
    pub sizes: Vec<u32>,
    /// Proxy modes to measure; ipvs is measured in the guest VM if this kernel does not support it.
    pub modes: Vec<&'static str>,
    /// Number of concurrent clients in the rate measurement.
    pub clients: u16,
}

/// Measures every path once per round, in an order that differs from round to round.
///
/// # Errors
/// Returns an error if the process is not root, software is missing, or a path carries no connection.
pub fn run(options: &Options, say: Say<'_>) -> Result<ConnectionResults> {
    let mut measured = ConnectionResults::new(Host::ask()?, options.clone(), contestant::versions()?);
    let mut contestants = start(options, &mut measured, say)?;
    let mut meter = LoadMeter::start()?;
    for round in 0..options.rounds {
        meter.pause()?;
        for contestant in &contestants {
            let turn = turn(contestant, options)
                .with_context(|| format!("{}, round {}", contestant.name, round + 1))?;
            say(&format!(
                "{:>4} {:<18} {:>6} Services  {}",
                round + 1,
                contestant.name,
                contestant.services,
                turn.0
            ))?;
            measured.enter(&contestant.name, contestant.services, turn);
        }
        // The first path differs from round to round.
        contestants.rotate_left(1);
    }
    measured.finish(meter.load()?);
    drop(contestants);
    if is_for_guest(options) {
        let written = guest::measure(options, say).context("on the second kernel")?;
        measured.versions.push(format!(
            "{} mode on kernel {}, in user space",
            guest::MODE,
            written.host.kernel
        ));
        measured.series.extend(written.points);
    }
    Ok(measured)
}

fn start(options: &Options, measured: &mut ConnectionResults, say: Say<'_>) -> Result<Vec<ConnectionPath>> {
    ensure!(
        options.sizes.iter().all(|&size| size > 0),
        "a size is a number of Services and must be at \
                                                         least 1"
    );
    let mut contestants =
        vec![contestant::direct()?, contestant::relay(Relay::Haproxy)?, contestant::relay(Relay::Nginx)?];
    for &mode in &options.modes {
        if mode == guest::MODE && is_for_guest(options) {
            continue;
        }
        for &services in &options.sizes {
            say(&format!("{mode} mode, {services} Services: filling"))?;
            let filled = contestant::tidegate(mode, services);
            contestants.push(filled.with_context(|| format!("{mode} mode, {services} Services"))?);
        }
    }
    for contestant in &contestants {
        say(&format!("{}, {} Services: {}", contestant.name, contestant.services, contestant.settings))?;
        measured.add_series(&contestant.name, contestant.services, contestant.settings.clone());
        // Fills route and neighbor caches and checks that the path works.
        let warm = client::connect(&contestant.client, contestant.target, 1, options.slice.min(WARM_UP))?;
        ensure!(!warm.latencies_us.is_empty(), "{}: {:?}", contestant.name, warm.first_failure);
    }
    Ok(contestants)
}

/// Returns true if a requested proxy mode requires the guest VM.
fn is_for_guest(options: &Options) -> bool {
    options.modes.contains(&guest::MODE) && !host::has_ipvs()
}

/// Time for which connections are opened through a path before it is measured.
const WARM_UP: Duration = Duration::from_millis(200);

/// Measures one path for one round. Returns the results, and the latency in microseconds of each connection
/// of the single client.
fn turn(contestant: &ConnectionPath, options: &Options) -> Result<(Round, Vec<f64>)> {
    let ConnectionPath { client: from, target, .. } = contestant;
    let alone = client::connect(from, *target, 1, options.slice)?;
    let before = ProcessorTimes::read()?;
    let crowd = client::connect(from, *target, options.clients, options.slice)?;
    let processor = ProcessorTimes::read()?.busy_seconds_since(&before);
    let bytes = client::receive(from, *target, options.slice)?;
    for slice in [&alone, &crowd] {
        ensure!(!slice.latencies_us.is_empty(), "no connection succeeded: {:?}", slice.first_failure);
    }
    let made = crowd.latencies_us.len() as f64;
    let round = Round {
        latency_us: summary(&alone)?,
        per_second: made / crowd.elapsed.as_secs_f64(),
        crowd_latency_us: summary(&crowd)?,
        processor_us: processor * 1e6 / made,
        failed: alone.failed + crowd.failed,
        flow_gbit_per_second: bytes.per_second() * 8.0 / 1e9,
    };
    Ok((round, alone.latencies_us))
}

fn summary(slice: &Slice) -> Result<crate::statistics::figures::Summary> {
    crate::statistics::figures::Summary::of(slice.latencies_us.iter().copied())
        .context("no connection succeeded")
}
