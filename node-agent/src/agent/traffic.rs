//! Traffic per Service, sampled while the loop is otherwise idle. For backends that count connections only,
//! bytes and packets come from connection tracking.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use conntrack::Cleaner;
use dataplane::{Dataplane, Traffic};
use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::quantity::Position,
    program::{Target, oracle::Networks},
    wire::{
        report::TargetTraffic,
        traffic_counts::{Counts, TargetFailures},
    },
};
use tracing::debug;

use super::rates::Meter;
pub use crate::status::TrafficByService;

/// Interval between traffic samples while no target drains.
const TRAFFIC_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between samples while a target drains, so that the end of its connections is noticed soon.
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);
/// Time after a target starts to drain during which samples are frequent even without open connections.
const DRAIN_WATCH: Duration = Duration::from_secs(15);
/// Divisor that limits the share of time spent on samples to 1/100.
const TRAFFIC_SHARE: u32 = 100;
/// Divisor that limits the share of time spent on samples to 1/20 while a target drains.
const DRAIN_SHARE: u32 = 20;

/// Key of a traffic counter: Service, protocol and target.
type Row = (ServiceKey, Protocol, Target);

/// Inputs of a traffic sample in addition to the backend.
pub(super) struct SampleInputs<'a> {
    /// Conntrack reader, which provides the connections and their bytes.
    pub(super) cleaner: &'a mut Cleaner,
    /// Cluster networks, which determine the addresses at which node ports are reachable.
    pub(super) networks: &'a Networks,
    /// Position (epoch and revision) that the node has verified; `None` before the first one.
    pub(super) position: Option<Position>,
}

/// Latest sample and the schedule of the next one.
#[derive(Debug)]
pub(super) struct Readings {
    last: Arc<TrafficByService>,
    /// Traffic counters of the backend, as read for the latest sample.
    rows: Vec<Traffic>,
    meter: Meter<Row>,
    position: Option<Position>,
    next_at: Instant,
    /// Time of the next sample during a drain.
    next_drain_at: Instant,
    has_read_flows: bool,
    /// Version of the set of draining targets at the last check.
    drains_known: u64,
    watch_until: Instant,
    /// True if a draining target still has an open connection.
    is_draining: bool,
}

impl Readings {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: Arc::default(),
            rows: Vec::new(),
            meter: Meter::default(),
            position: None,
            next_at: now + TRAFFIC_INTERVAL,
            next_drain_at: now,
            has_read_flows: false,
            drains_known: 0,
            watch_until: now,
            is_draining: false,
        }
    }

    /// Returns the time of the next sample.
    pub(super) fn next_at(&self, cleaner: &Cleaner, now: Instant) -> Instant {
        if self.is_hurried(cleaner, now) { self.next_drain_at.min(self.next_at) } else { self.next_at }
    }

    /// Returns the latest sample.
    pub(super) fn last(&self) -> Arc<TrafficByService> {
        Arc::clone(&self.last)
    }

    /// Returns the position (epoch and revision) that was verified at the time of the sample; `None` if
    /// there was none.
    pub(super) const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Samples the traffic if the sampling interval has passed.
    pub(super) fn read(&mut self, dataplane: &mut dyn Dataplane, counted: SampleInputs<'_>, now: Instant) {
        let SampleInputs { cleaner, networks, position } = counted;
        let begun = Instant::now();
        let by_flows = dataplane.is_counted_by_flows();
        if by_flows && !self.has_read_flows {
            // The first reading sets the baseline: bytes that flows carried earlier are not counted.
            self.has_read_flows = cleaner.read_flows(networks).is_ok();
        }
        let is_hurried = self.is_hurried(cleaner, now);
        if self.drains_known != cleaner.programmed().leaving_version() {
            self.drains_known = cleaner.programmed().leaving_version();
            self.watch_until = now + DRAIN_WATCH;
        }
        let is_due = now >= self.next_at;
        let is_drain_due = is_hurried && now >= self.next_drain_at;
        if !is_due && !is_drain_due {
            return;
        }
        // A backend that counts by flows has no data about ending connections in its rules.
        let read = if is_due || !by_flows { dataplane.traffic().map(Some) } else { Ok(None) };
        match read {
            Ok(Some(rows)) => self.rows = rows.into_iter().filter(is_used).collect(),
            Ok(None) => {}
            // The previous figures stay; no traffic depends on them.
            Err(error) => return self.give_up(&error, now),
        }
        let flows = if by_flows {
            match cleaner.read_flows(networks) {
                Ok(is_counted) => Some(is_counted),
                Err(error) => return self.give_up(&error, now),
            }
        } else {
            None
        };
        self.take(cleaner, flows, is_due.then_some(now));
        self.position = position;
        let took = begun.elapsed();
        if is_due {
            self.next_at = now + TRAFFIC_INTERVAL.max(took * TRAFFIC_SHARE);
        }
        self.next_drain_at = now + DRAIN_INTERVAL.max(took * DRAIN_SHARE);
    }

    fn is_hurried(&self, cleaner: &Cleaner, now: Instant) -> bool {
        self.is_draining
            || now < self.watch_until
            || self.drains_known != cleaner.programmed().leaving_version()
    }

    fn give_up(&mut self, error: &dyn std::error::Error, now: Instant) {
        debug!(%error, "the traffic counters were not read");
        self.next_at = now + TRAFFIC_INTERVAL;
        self.next_drain_at = self.next_at;
    }

    /// Combines backend counters and conntrack flows into a sample. `flows` is `None` if conntrack was not
    /// read; otherwise it is true if the kernel counts the bytes of flows. `whole_at` is the time of a
    /// regular sample, which updates the rates, or `None` for an additional sample during a drain.
    fn take(&mut self, cleaner: &Cleaner, flows: Option<bool>, whole_at: Option<Instant>) {
        let mut rows: BTreeMap<Row, Traffic> = BTreeMap::new();
        for row in &self.rows {
            let at = (row.service.clone(), row.protocol, row.target);
            let row = match flows {
                None => row.clone(),
                Some(is_counted) => Traffic {
                    packets: is_counted.then_some(0),
                    bytes: is_counted.then_some(0),
                    active: Some(0),
                    inactive: Some(0),
                    ..row.clone()
                },
            };
            rows.insert(at, row);
        }
        if let Some(is_counted) = flows {
            self.add_flows(cleaner, is_counted, &mut rows);
        }
        let is_open = |row: &Traffic| row.active.is_some_and(|active| active > 0);
        let drains = |row: &Traffic| {
            is_open(row) && cleaner.programmed().is_leaving(&row.service, row.protocol, &row.target)
        };
        self.is_draining = rows.values().any(drains);
        if let Some(now) = whole_at {
            self.meter.read(now, rows.iter().map(|(at, row)| (at.clone(), counts(row))).collect());
        }
        let read = by_service(rows, &self.meter);
        if read != *self.last {
            self.last = Arc::new(read);
        }
    }

    fn add_flows(&self, cleaner: &Cleaner, is_counted: bool, rows: &mut BTreeMap<Row, Traffic>) {
        for (service, frontend, target, flows) in cleaner.flows() {
            let protocol = frontend.protocol;
            let row = rows.entry((service.clone(), protocol, *target)).or_insert_with(|| Traffic {
                service: service.clone(),
                protocol,
                target: *target,
                // A draining target is in no rule any more, so its connection count is the previous one.
                connections: self.connections_before(service, protocol, target),
                packets: is_counted.then_some(0),
                bytes: is_counted.then_some(0),
                active: Some(0),
                inactive: Some(0),
                failed: None,
            });
            let add = |sum: &mut Option<u64>, more: u64| {
                *sum = sum.map(|sum| sum.saturating_add(more));
            };
            add(&mut row.packets, flows.carried.packets);
            add(&mut row.bytes, flows.carried.bytes);
            add(&mut row.active, flows.active);
            add(&mut row.inactive, flows.inactive);
        }
    }

    fn connections_before(&self, service: &ServiceKey, protocol: Protocol, target: &Target) -> u64 {
        let rows = self.last.get(service).into_iter().flatten();
        let mut same = rows
            .filter(|row| (row.protocol, row.address, row.port) == (protocol, target.address, target.port));
        same.next().map_or(0, |row| row.connections)
    }
}

fn by_service(rows: BTreeMap<Row, Traffic>, meter: &Meter<Row>) -> TrafficByService {
    let mut traffic = TrafficByService::new();
    for (at, row) in rows {
        let Traffic { service, protocol, target, connections, packets, bytes, active, inactive, failed } =
            row;
        traffic.entry(service).or_default().push(TargetTraffic {
            protocol,
            address: target.address,
            port: target.port,
            connections,
            packets,
            bytes,
            active,
            inactive,
            per_second: meter.rates(&at),
            failed,
        });
    }
    for rows in traffic.values_mut() {
        rows.sort_by_key(|row| (row.protocol, row.address, row.port));
    }
    traffic
}

/// Returns true if any traffic counter of a target is above zero. Other targets are not reported.
fn is_used(row: &Traffic) -> bool {
    let any = |figure: Option<u64>| figure.is_some_and(|figure| figure > 0);
    row.connections > 0
        || any(row.packets)
        || any(row.bytes)
        || any(row.active)
        || any(row.inactive)
        || row.failed.is_some_and(|failed| failed != TargetFailures::default())
}

/// Returns the cumulative counters of a target's traffic, without the number of open connections.
fn counts(row: &Traffic) -> Counts {
    let Traffic {
        service: _,
        protocol: _,
        target: _,
        connections,
        packets,
        bytes,
        active: _,
        inactive: _,
        failed: _,
    } = row;
    Counts { connections: *connections, packets: *packets, bytes: *bytes, ..Counts::default() }
}
