//! What one change of endpoints, and one Service that comes and goes, take and cost, with few and with many Services.
//!
//! ```text
//!   PATCH ─▶ control: admit, commit (fsync), compile ─▶ feed ─▶ agent: plan, commit to the kernel
//!     │                                                                     │
//!     └──────────────── from the write to the first answer ─────────────────┘◀─ a client that connects again and again
//! ```
//! Latency is measured change by change. What a change costs is measured over many of them at a steady pace: processor time of
//! both processes, bytes of the feed, messages to the kernel, each less what the same time costs without changes.
//!
//! Where the kernel has no IPVS, that mode is measured on the second kernel (`lab/guest.sh`), for what is counted.

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

pub use self::measured::{Cost, Point};
use crate::{
    fixture_cluster::{CLIENT, Estate, Size},
    host::{self, LoadMeter},
    pages::record::Record,
    progress::Say,
    usage::Usage,
};

/// The modes that a node can be in; `ipvs` on the second kernel where this one does not have it.
pub const MODES: [&str; 4] = ["nftables", "iptables", "ipvs", "userspace"];
/// Services whose endpoints are changed, by turns.
const LIVE: u32 = 20;
/// Where every store begins, however many writes its filling took: the number is in what agents are told, and a longer one is a byte more.
const REVISION: u64 = 200;
/// The least time from change to change while costs are measured, so that changes are not carried out together.
const PACE_MIN: Duration = Duration::from_millis(20);
/// How long both processes have to be idle before anything is measured, unless another time is asked for.
pub const QUIET: Duration = Duration::from_millis(1_500);
/// What share of a processor may be used meanwhile, unless another one is asked for.
pub const QUIET_SHARE: f64 = 0.06;
/// How many times as long the second kernel is watched without changes, for what comes by time.
const IDLE_QUIETS: u32 = 16;
/// How long they may take to be so.
const QUIET_PATIENCE: Duration = Duration::from_secs(120);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Changes at each size whose latency is measured.
    pub rounds: u16,
    /// Groups of changes whose cost is measured, each a point of the fit.
    pub groups: u16,
    /// Changes in each group.
    pub changes: u16,
    /// Numbers of Services, ascending.
    pub sizes: Vec<u32>,
    /// Endpoints of each Service.
    pub endpoints: u8,
    /// How long both processes have to be idle before anything is measured.
    pub quiet: Duration,
    /// What share of a processor they may use meanwhile, 0–2.
    pub quiet_share: f64,
    /// Proxy modes.
    pub modes: Vec<&'static str>,
}

impl Options {
    fn quiet(&self) -> Quiet {
        Quiet { time: self.quiet, share: self.quiet_share }
    }
}

/// Measures all modes at all sizes.
///
/// # Errors
/// Not root, something is not built, or a change never takes effect.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<Point>> {
    let mut record = Record::begin(vec![format!("tidegate {}", env!("CARGO_PKG_VERSION"))])?;
    let is_elsewhere = |mode: &&str| **mode == *guest::MODE && !host::has_ipvs();
    // First, because nobody has to be quiet for what is only counted.
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
            let estate =
                Served::begin(size, options).with_context(|| format!("{mode} mode, {services} Services"))?;
            say(&format!("{mode}: {services} Services are there after {:.1?}", begun.elapsed()))?;
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

/// A node that serves so many Services, and what was measured of it. All sizes are there at once, and have their turns: what the
/// machine does otherwise, or does slower than before, meets all of them.
struct Served {
    estate: Estate,
    client: KeepAlive,
    comings: comings::Comings,
    /// What some time without changes costs, on the second kernel.
    idle: Option<measured::Spent>,
    point: Point,
}

impl Served {
    /// Brings it up, and measures latencies.
    fn begin(size: Size, options: &Options) -> Result<Self> {
        let estate = Estate::start(size)?;
        let client = KeepAlive::new(estate.cluster.place("control")?, estate.cluster.api.url())?;
        advance(&client)?;
        let mut point = Point::new(estate.size());
        wait_quiet(&estate, options.quiet())?;
        for round in 0..options.rounds {
            latency(&estate, &client, u32::from(round) % LIVE, &mut point)?;
        }
        // Every live Service has its endpoints from now on, and loses and gets one.
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

    /// Measures what changes cost, in a group of them.
    fn group(&mut self, group: u16, options: &Options, say: Say<'_>) -> Result<()> {
        let Self { estate, client, comings, idle, point } = self;
        let typical = point.typical_ms().map_or(PACE_MIN, |ms| Duration::from_secs_f64(ms * 1.5 / 1e3));
        let pace =
            Pace { each: typical.max(PACE_MIN), changes: options.changes.into(), quiet: options.quiet() };
        let first = u32::from(group) * (pace.changes + 1);
        let spent = cost(estate, idle.as_ref(), pace, 1, |change| {
            move_endpoint(client, options.endpoints, first + change)
        })?;
        let label = format!("  group {}, {} Services", group + 1, point.services);
        say(&format!("{label}: a change of endpoints costs {spent}"))?;
        point.costs.push(spent);
        // One of two writes adds, the other one removes.
        let pace = Pace { changes: pace.changes / 2 * 2, ..pace };
        let spent = cost(estate, idle.as_ref(), pace, 2, |change| comings.come_or_go(client, change))?;
        say(&format!("{label}: a Service that comes and goes costs {spent}"))?;
        point.service_costs.push(spent);
        Ok(())
    }

    fn end(self) -> Result<Point> {
        let Self { estate, mut point, .. } = self;
        let (control, agent) = (Usage::of(&estate.cluster.server)?, Usage::of(agent(&estate)?)?);
        (point.control_kib, point.agent_kib) = (control.resident_kib, agent.resident_kib);
        Ok(point)
    }
}

/// Writes what no agent is told of, until the store is at [`REVISION`].
fn advance(client: &KeepAlive) -> Result<()> {
    for turn in 0..=REVISION {
        let patch = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
        let timed = client.merge_patch(&Estate::live_path(0), &patch)?;
        if timed.revision.context("a write says its revision")? >= REVISION {
            return Ok(());
        }
    }
    bail!("no write brought the store to revision {REVISION}")
}

/// One live Service gets its endpoints, is asked until it answers, and loses them again.
fn latency(estate: &Estate, client: &KeepAlive, number: u32, point: &mut Point) -> Result<()> {
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

/// Takes an endpoint away from live Services and gives it back, by turns.
fn move_endpoint(client: &KeepAlive, endpoints: u8, change: u32) -> Result<()> {
    let endpoints = endpoints - u8::from((change / LIVE).is_multiple_of(2));
    client.merge_patch(&Estate::live_path(change % LIVE), &Estate::live_patch(endpoints)).map(drop)
}

/// So many changes, and the time from one to the next.
#[derive(Debug, Clone, Copy)]
struct Pace {
    each: Duration,
    changes: u32,
    /// How long it has to be quiet before.
    quiet: Quiet,
}

/// What counts as quiet: for how long, and what share of a processor.
#[derive(Debug, Clone, Copy)]
struct Quiet {
    time: Duration,
    share: f64,
}

impl Pace {
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

/// What one of equal things costs that take so many writes each and are done at a pace, less what the same time costs with a single
/// one: work that comes by time when anything has changed, such as a look at everything, is in both.
///
/// On the second kernel everything is waited for, which takes long: `idle` is what a time without changes costs there.
fn cost(
    estate: &Estate,
    idle: Option<&measured::Spent>,
    pace: Pace,
    writes: u32,
    mut write: impl FnMut(u32) -> Result<()>,
) -> Result<Cost> {
    estate.wait_converged()?;
    wait_quiet(estate, pace.quiet)?;
    let things = f64::from(pace.changes / writes);
    if let Some(idle) = idle {
        // What is counted there must be complete, and no two changes in one; time does not matter.
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

/// What the processes spend while something is done.
fn spend(estate: &Estate, what: impl FnOnce() -> Result<()>) -> Result<measured::Spent> {
    let before = spent(estate)?;
    what()?;
    Ok(spent(estate)?.since(&before))
}

fn spent(estate: &Estate) -> Result<measured::Spent> {
    // The counters first: asking for them costs processor time, at both ends alike.
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
    estate.cluster.agents.get("node1").context("the estate has one node")
}

/// Waits until control and agent have done what follows from earlier changes.
fn wait_quiet(estate: &Estate, quiet: Quiet) -> Result<()> {
    wait::until_within(QUIET_PATIENCE, "control and agent to be idle", || {
        let before = spent(estate)?;
        thread::sleep(quiet.time);
        let since = spent(estate)?.since(&before);
        // On the second kernel time is not what is measured, and idling costs much of it.
        let share = (since.control_ns + since.agent_ns) as f64 / quiet.time.as_nanos() as f64;
        ensure!(
            share < quiet.share || lab::host::guest::is_inside(),
            "they use {:.0} % of a processor",
            share * 100.0
        );
        ensure!(since.kernel_messages == 0, "the agent writes to the kernel");
        Ok(())
    })
}

fn milliseconds(duration: Duration) -> f64 {
    // Microseconds are finer than anything that was measured.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
