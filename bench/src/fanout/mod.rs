//! Fan-out benchmark: time and cost of delivering each change to all receivers, with a thousand agents, a
//! thousand watchers, ten thousand Services and a hundred changes per second. An agent receives changes in
//! its feed (the stream of state from the control server) and reports each back; a watcher is a client of
//! `GET /v1/watch`.
//!
//! ```text
//!   100 PATCH/s ─▶ tidegate-api ─▶ SQLite (a file)
//!                       │ ├─▶ feed ─▶ agents, 500 per process ─▶ report ─▶ accepted
//!                       │ └─▶ watch ─▶ watchers, 500 per process
//!   baseline: a sender of the same bytes ─▶ sockets, 500 per process
//! ```

mod bound;
mod measured;
mod render;
mod scene;

use std::path::PathBuf;

use anyhow::{Context, Result};
use lab::load::{
    feed_load::{Fleet, Role, Start},
    http_load as crowd,
};

pub use self::measured::{FanoutPoint, ReceiverKind};
use self::{
    measured::RoundResults,
    scene::{CONTROL, Scene},
};
use crate::{host::LoadMeter, pages::record::Record, progress::Say, usage::Usage};

/// Parameters of the fan-out benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of this binary, which also runs the receivers ([`lab::load::feed_load::SUBCOMMAND`]).
    pub program: PathBuf,
    /// Number of rounds per number of receivers.
    pub rounds: u16,
    /// Numbers of agents to measure.
    pub agents: Vec<u16>,
    /// Numbers of watchers to measure.
    pub watchers: Vec<u16>,
    /// Number of Services in the store.
    pub services: u32,
    /// Number of endpoints of each Service.
    pub endpoints: u8,
    /// Number of changes per second during the measurement.
    pub per_second: u32,
    /// Number of changes per round.
    pub changes: u32,
    /// Number of mass reconnects per round.
    pub herds: u16,
}

/// Measures agents, watchers and the baseline sender alternately.
///
/// # Errors
/// Returns an error if the process is not root, a binary is not built, or a write is rejected.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<FanoutPoint>> {
    let mut record = Record::begin(vec![format!("tidegate {}", env!("CARGO_PKG_VERSION"))])?;
    let mut meter = LoadMeter::start()?;
    for _ in 0..options.rounds {
        for (told, counts) in
            [(ReceiverKind::Agents, &options.agents), (ReceiverKind::Watchers, &options.watchers)]
        {
            for &count in counts {
                meter.pause()?;
                let bytes = turn(options, told, count, record.point(options, told, count))?;
                say(&render::line(record.point(options, told, count)))?;
                if told == ReceiverKind::Agents {
                    let sent = bound::measure(options, count, bytes)?;
                    record.point(options, ReceiverKind::Sockets, count).enter(sent);
                    say(&render::line(record.point(options, ReceiverKind::Sockets, count)))?;
                }
            }
        }
    }
    record.load = Some(meter.load()?);
    Ok(record)
}

impl Record<FanoutPoint> {
    fn point(&mut self, options: &Options, told: ReceiverKind, count: u16) -> &mut FanoutPoint {
        let at = self.points.iter().position(|point| point.told == told && point.count == count);
        let at = at.unwrap_or_else(|| {
            self.points.push(FanoutPoint::new(told, count, options.services, options.per_second));
            self.points.len() - 1
        });
        &mut self.points[at]
    }
}

/// Runs one round with a new server and `count` receivers of the kind `told` (agents or watchers), and adds
/// the results to `point`. Returns the number of bytes sent per change and receiver.
fn turn(options: &Options, told: ReceiverKind, count: u16, point: &mut FanoutPoint) -> Result<usize> {
    let (role, nodes) = match told {
        ReceiverKind::Agents => (Role::Agent, count),
        ReceiverKind::Watchers | ReceiverKind::Sockets => (Role::Watcher, 0),
    };
    let scene = Scene::start(options.services, options.endpoints, nodes)?;
    let resume = Some(scene.position);
    let start = Start { program: &options.program, role, server: CONTROL, count, resume };
    let mut fleet = Fleet::start(&scene.namespace, &start)?;
    let outcome = changes(options, &scene, &mut fleet, point)
        .and_then(|bytes| herds(options, &scene, &mut fleet, point).map(|()| bytes));
    outcome.with_context(|| {
        format!("{count} {}; the server log ends:\n{}", told.word(), scene.server.log_tail())
    })
}

/// Sends the changes of a round at their configured rate, and records the deliveries.
fn changes(options: &Options, scene: &Scene, fleet: &mut Fleet, point: &mut FanoutPoint) -> Result<usize> {
    fleet.wait(scene.position.revision.0)?;
    fleet.take()?;
    scene.forget_peak()?;
    let (before, bytes_before) = (Usage::of(&scene.server)?, scene.counter("feed_wire_bytes")?);
    let written =
        crowd::pace(&scene.namespace, scene.api.url(), options.per_second, options.changes, |number| {
            scene.change(number)
        })?;
    fleet.wait(last_revision(&written))?;
    let (after, bytes_after) = (Usage::of(&scene.server)?, scene.counter("feed_wire_bytes")?);
    let measured = RoundResults::of(&written, &fleet.take()?);
    let server_us = after.processor_ns.saturating_sub(before.processor_ns) as f64 / 1e3;
    point.server_us_per_change.push(server_us / f64::from(options.changes));
    point.server_us_per_delivery.push(server_us / measured.deliveries.max(1) as f64);
    let bytes = (bytes_after - bytes_before) as f64 / f64::from(options.changes) / f64::from(fleet.len());
    point.resident_kib.push(after.resident_kib);
    point.peak_kib.push(after.resident_peak_kib);
    point.enter(measured);
    if point.told == ReceiverKind::Agents {
        point.bytes_per_change.push(bytes);
    }
    Ok(bytes as usize)
}

/// Measures mass reconnects: disconnects all receivers, makes a change, and reconnects them at once.
fn herds(options: &Options, scene: &Scene, fleet: &mut Fleet, point: &mut FanoutPoint) -> Result<()> {
    for herd in 0..options.herds {
        fleet.cut()?;
        let number = options.changes + u32::from(herd);
        let missed =
            crowd::pace(&scene.namespace, scene.api.url(), options.per_second, 1, |_| scene.change(number))?;
        scene.forget_peak()?;
        fleet.take()?;
        let begun_ns = lab::load::feed_load::now_ns();
        fleet.join()?;
        let revision = last_revision(&missed);
        fleet.wait(revision)?;
        let had = fleet.take()?.into_iter().filter(|seen| seen.revision >= revision).map(|seen| seen.at_ns);
        let last_ns = had.max().context("no receiver reconnected")?;
        point.herd_ms.push(last_ns.saturating_sub(begun_ns) as f64 / 1e6);
        point.herd_peak_kib.push(Usage::of(&scene.server)?.resident_peak_kib);
    }
    Ok(())
}

fn last_revision(written: &[crowd::CompletedWrite]) -> u64 {
    written.iter().map(|one| one.revision).max().unwrap_or(0)
}
