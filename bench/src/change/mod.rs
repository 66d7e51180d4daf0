//! Latency and cost of one endpoint change, and of one Service created and deleted, with few and with many
//! Services.
//!
//! ```text
//!   PATCH ─▶ control: admit, commit (fsync), compile ─▶ feed ─▶ agent: plan, commit to the kernel
//!     │                                                                     │
//!     └──────────────── from the write to the first reply ──────────────────┘◀─ a client that connects in a loop
//! ```
//! Latency is measured per change. Cost is measured over many changes at a constant rate: CPU time of the
//! control server and the agent, feed bytes and kernel messages, each minus the cost that arises in the same
//! time without the changes.
//!
//! If the kernel has no IPVS, ipvs mode is measured in the guest VM (`lab/guest.sh`), for its counters only.

mod ask;
mod comings;
mod guest;
mod measured;
mod render;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use lab::{host::wait, load::keep_alive::KeepAlive};
use serde_json::json;

pub use self::measured::{ChangePoint, Cost};
use crate::{
    fixture_cluster::{CLIENT, Estate, Size},
    host::{self, LoadMeter},
    pages::record::Record,
    progress::Say,
    usage::Usage,
};

/// Proxy modes; `ipvs` is measured in the guest VM (`lab/guest.sh`) if this kernel does not support it.
pub use lab::host::modes::ALL as MODES;
/// Number of Services whose endpoints change, in rotation.
const LIVE: u32 = 20;
/// Store revision at which measurements begin, so that all revisions in feed frames have the same number of digits
/// and all sizes are comparable.
const REVISION: u64 = 200;
/// Minimum time between changes while costs are measured, so that changes are not coalesced.
const PACE_MIN: Duration = Duration::from_millis(20);
/// Default time for which the control server and the agent must be idle before a measurement.
pub const QUIET: Duration = Duration::from_millis(1_500);
/// Default maximum CPU share of the control server and the agent together while they count as idle.
pub const QUIET_SHARE: f64 = 0.06;
/// Duration of the idle measurement in the guest VM, as a multiple of [`Options::quiet`].
const IDLE_QUIETS: u32 = 16;
/// Timeout for the control server and the agent to become idle.
const QUIET_PATIENCE: Duration = Duration::from_secs(120);

/// Parameters of the change benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of changes per size whose latency is measured.
    pub rounds: u16,
    /// Number of groups of changes by which the cost is measured. Each group gives one point of the
    /// straight-line fit.
    pub groups: u16,
    /// Number of changes in each group.
    pub changes: u16,
    /// Numbers of Services at which each mode is measured, ascending.
    pub sizes: Vec<u32>,
    /// Number of endpoints of each Service.
    pub endpoints: u8,
    /// Time for which the control server and the agent must be idle before a measurement.
    pub quiet: Duration,
    /// Maximum CPU share of the control server and the agent together while they count as idle; 0–2, because
    /// two processes can use two CPUs.
    pub quiet_share: f64,
    /// Proxy modes to measure.
    pub modes: Vec<&'static str>,
}

impl Options {
    fn quiet(&self) -> Quiet {
        Quiet { time: self.quiet, share: self.quiet_share }
    }
}

/// Measures each proxy mode in `options` with each number of Services in `options`.
///
/// # Errors
/// Returns an error if the process is not root, a binary is not built, or a change never takes effect.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<ChangePoint>> {
    let mut record = Record::begin(vec![format!("tidegate {}", env!("CARGO_PKG_VERSION"))])?;
    let is_elsewhere = |mode: &&str| **mode == *guest::MODE && !host::has_ipvs();
    // First, because counters need no idle machine.
    let mut counted = Vec::new();
    if options.modes.iter().any(is_elsewhere) {
        let measured = guest::measure(options, say).context("on the second kernel")?;
        record.versions.push(format!(
            "{} mode on kernel {}, in user space",
            guest::MODE,
            measured.host.kernel
        ));
        counted = measured.points;
    }
    let meter = LoadMeter::start()?;
    for &mode in options.modes.iter().filter(|mode| !is_elsewhere(mode)) {
        let mut served = Vec::new();
        for &services in &options.sizes {
            let size = Size { mode, services, endpoints: options.endpoints, live: LIVE };
            let begun = Instant::now();
            let estate = MeasuredNode::begin(size, options)
                .with_context(|| format!("{mode} mode, {services} Services"))?;
            say(&format!("{mode}: {services} Services created after {:.1?}", begun.elapsed()))?;
            say(&format!("{mode}: {}", estate.point))?;
            served.push(estate);
        }
        for group in 0..options.groups {
            for estate in &mut served {
                let services = estate.point.services;
                estate
                    .group(group, options, say)
                    .with_context(|| format!("{mode} mode, {services} Services"))?;
            }
        }
        for estate in served {
            record.points.push(estate.end()?);
        }
    }
    record.points.extend(counted);
    record.load = Some(meter.load()?);
    Ok(record)
}

/// Node with a number of Services, and its measurements. Nodes of all sizes run at the same time and are
/// measured alternately, so that varying machine speed affects all of them.
struct MeasuredNode {
    estate: Estate,
    client: KeepAlive,
    comings: comings::Comings,
    /// Resources used in a period without changes; measured only in the guest VM.
    idle: Option<measured::Spent>,
    point: ChangePoint,
}

impl MeasuredNode {
    /// Starts the node and measures the latency of changes.
    fn begin(size: Size, options: &Options) -> Result<Self> {
        let estate = Estate::start(size)?;
        let client = KeepAlive::new(estate.cluster.place("control")?, estate.cluster.api.url())?;
        advance(&client)?;
        let mut point = ChangePoint::new(estate.size());
        wait_quiet(&estate, options.quiet())?;
        for round in 0..options.rounds {
            latency(&estate, &client, u32::from(round) % LIVE, &mut point)?;
        }
        // From here on every live Service has its endpoints, and loses and regains one.
        for number in 0..LIVE {
            client.merge_patch(&Estate::live_path(number), &Estate::live_patch(options.endpoints))?;
        }
        let comings = comings::Comings::begin(&estate)?;
        estate.wait_converged()?;
        for round in 0..options.rounds {
            let first_ms = comings.latency(&estate, &client, u32::from(round) % LIVE)?;
            point.service_first_ms.push(first_ms);
        }
        let mut idle = None;
        if lab::host::guest::is_inside() {
            estate.wait_converged()?;
            wait_quiet(&estate, options.quiet())?;
            idle = Some(spend(&estate, || {
                thread::sleep(options.quiet * IDLE_QUIETS);
                Ok(())
            })?);
        }
        Ok(Self { estate, client, comings, idle, point })
    }

    /// Measures the cost of one group of changes.
    fn group(&mut self, group: u16, options: &Options, say: Say<'_>) -> Result<()> {
        let Self { estate, client, comings, idle, point } = self;
        let typical = point.typical_ms().map_or(PACE_MIN, |ms| Duration::from_secs_f64(ms * 1.5 / 1e3));
        let pace = ChangePace {
            each: typical.max(PACE_MIN),
            changes: options.changes.into(),
            quiet: options.quiet(),
        };
        let first = u32::from(group) * (pace.changes + 1);
        let spent = cost(estate, idle.as_ref(), pace, 1, |change| {
            move_endpoint(client, options.endpoints, first + change)
        })?;
        let label = format!("  group {}, {} Services", group + 1, point.services);
        say(&format!("{label}: an endpoint change costs {spent}"))?;
        point.costs.push(spent);
        // Writes alternate between adding and removing.
        let pace = ChangePace { changes: pace.changes / 2 * 2, ..pace };
        let spent = cost(estate, idle.as_ref(), pace, 2, |change| comings.come_or_go(client, change))?;
        say(&format!("{label}: deleting and recreating a Service costs {spent}"))?;
        point.service_costs.push(spent);
        Ok(())
    }

    fn end(self) -> Result<ChangePoint> {
        let Self { estate, mut point, .. } = self;
        let (control, agent) = (Usage::of(&estate.cluster.server)?, Usage::of(agent(&estate)?)?);
        (point.control_kib, point.agent_kib) = (control.resident_kib, agent.resident_kib);
        Ok(point)
    }
}

/// Sends writes that change nothing for agents until the store reaches [`REVISION`].
fn advance(client: &KeepAlive) -> Result<()> {
    for turn in 0..=REVISION {
        let patch = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
        let timed = client.merge_patch(&Estate::live_path(0), &patch)?;
        if timed.revision.context("a write returns its revision")? >= REVISION {
            return Ok(());
        }
    }
    bail!("the writes did not bring the store to revision {REVISION}")
}

/// Adds endpoints to a live Service, measures the time until the first reply, and removes the endpoints
/// again.
fn latency(estate: &Estate, client: &KeepAlive, number: u32, point: &mut ChangePoint) -> Result<()> {
    let frontend = estate.live_frontend(number)?;
    let asking = ask::until_answered(estate.cluster.place(CLIENT)?, frontend)?;
    let path = Estate::live_path(number);
    let timed = client.merge_patch(&path, &Estate::live_patch(point.endpoints))?;
    let answered = asking.answered()?;
    point.write_ms.push(milliseconds(timed.answered - timed.begun));
    point.first_ms.push(milliseconds(answered.saturating_duration_since(timed.begun)));
    client.merge_patch(&path, &Estate::live_patch(0))?;
    let place = estate.cluster.place(CLIENT)?;
    wait::until_true("the Service without endpoints to refuse", || ask::is_refused(place, frontend))
}

/// Sends request number `change` of a series over the live Services: the first rotation removes an endpoint from
/// each of these Services, the next one restores the endpoint, and so on.
fn move_endpoint(client: &KeepAlive, endpoints: u8, change: u32) -> Result<()> {
    let endpoints = endpoints - u8::from((change / LIVE).is_multiple_of(2));
    client.merge_patch(&Estate::live_path(change % LIVE), &Estate::live_patch(endpoints)).map(drop)
}

/// Number and interval of changes sent at a constant rate.
#[derive(Debug, Clone, Copy)]
struct ChangePace {
    each: Duration,
    changes: u32,
    /// Condition that the control server and the agent must satisfy before the changes begin.
    quiet: Quiet,
}

/// Condition under which the control server and the agent count as idle: a duration, and the maximum CPU
/// share of both together during it.
#[derive(Debug, Clone, Copy)]
struct Quiet {
    time: Duration,
    share: f64,
}

impl ChangePace {
    fn keep(self, mut change: impl FnMut(u32) -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        for done in 0..self.changes {
            change(done)?;
            let next = begun + self.each * (done + 1);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

/// Returns the cost of one change, which consists of `writes` requests. Sends many changes at a constant
/// rate, and subtracts the cost of the same time with a single change. Periodic work that follows any change,
/// such as a full check, is therefore not counted.
///
/// In the guest VM the benchmark waits until each change is complete, and subtracts the cost of idle time
/// (`idle`) instead. `idle` is `None` on the host.
fn cost(
    estate: &Estate,
    idle: Option<&measured::Spent>,
    pace: ChangePace,
    writes: u32,
    mut write: impl FnMut(u32) -> Result<()>,
) -> Result<Cost> {
    estate.wait_converged()?;
    wait_quiet(estate, pace.quiet)?;
    let things = f64::from(pace.changes / writes);
    if let Some(idle) = idle {
        // There, counters must be complete and no two changes coalesced; time does not matter.
        let busy = spend(estate, || {
            pace.keep(|number| write(number).and_then(|()| estate.wait_converged()))?;
            wait_quiet(estate, pace.quiet)
        })?;
        return Ok(busy.less(idle, things));
    }
    let single = spend(estate, || pace.keep(|number| if number < writes { write(number) } else { Ok(()) }))?;
    let busy = spend(estate, || pace.keep(|number| write(writes + number)))?;
    Ok(busy.less(&single, things - 1.0))
}

/// Returns the resources that the control server and the agent use during an operation.
fn spend(estate: &Estate, what: impl FnOnce() -> Result<()>) -> Result<measured::Spent> {
    let before = spent(estate)?;
    what()?;
    Ok(spent(estate)?.since(&before))
}

fn spent(estate: &Estate) -> Result<measured::Spent> {
    // Counters first: reading them costs CPU time, equally before and after.
    let counter = |name| estate.cluster.agent_counter("node1", name);
    let (feed_bytes, kernel_messages) = (counter("feedBytes")?, counter("kernelMessages")?);
    let (kernel_bytes, kernel_transactions) = (counter("kernelBytes")?, counter("kernelTransactions")?);
    Ok(measured::Spent {
        time: estate.begun.elapsed(),
        control_ns: Usage::of(&estate.cluster.server)?.processor_ns,
        agent_ns: Usage::of(agent(estate)?)?.processor_ns,
        feed_bytes,
        kernel_messages,
        kernel_bytes,
        kernel_transactions,
    })
}

fn agent(estate: &Estate) -> Result<&lab::processes::process::Process> {
    estate.cluster.agents.get("node1").context("the fixture cluster has one node")
}

/// Waits until the control server and the agent have finished the work of earlier changes.
fn wait_quiet(estate: &Estate, quiet: Quiet) -> Result<()> {
    wait::until_within(QUIET_PATIENCE, "control and agent to be idle", || {
        let before = spent(estate)?;
        thread::sleep(quiet.time);
        let since = spent(estate)?.since(&before);
        // In the guest VM times are not measured, and waiting for idle takes too long.
        let share = (since.control_ns + since.agent_ns) as f64 / quiet.time.as_nanos() as f64;
        ensure!(
            share < quiet.share || lab::host::guest::is_inside(),
            "CPU utilization is {:.0} %",
            share * 100.0
        );
        ensure!(since.kernel_messages == 0, "the agent still writes to the kernel");
        Ok(())
    })
}

fn milliseconds(duration: Duration) -> f64 {
    // Microseconds are finer than any measurement here.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
