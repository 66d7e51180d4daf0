//! What went through each Service, read when there is nothing else to do: what the backend counts, and where that is
//! connections only, what connection tracking knows of them beside.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

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
use crate::{
    conntrack::Cleaner,
    dataplane::{Dataplane, Traffic},
};

/// Time between two readings.
const TRAFFIC_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two readings while somebody may wait for connections to end.
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);
/// How long after something began to drain it is read that often, even if nothing is open.
const DRAIN_WATCH: Duration = Duration::from_secs(15);
/// A reading may take at most one part in this many of the time.
const TRAFFIC_SHARE: u32 = 100;
/// The same while something drains.
const DRAIN_SHARE: u32 = 20;

/// The traffic of each Service, by target. What was never used has no row: most targets of a large cluster are given nothing
/// by most nodes, and neither they nor control should keep noughts of them.
pub type TrafficByService = BTreeMap<ServiceKey, Vec<TargetTraffic>>;

/// A target of a Service.
type Row = (ServiceKey, Protocol, Target);

/// What is read beside the backend.
pub(super) struct Counted<'a> {
    /// Knows the flows.
    pub(super) cleaner: &'a mut Cleaner,
    /// The networks that tell which addresses node ports answer at.
    pub(super) networks: &'a Networks,
    /// How far the node is.
    pub(super) position: Option<Position>,
}

/// The last reading, and when the next one is due.
#[derive(Debug)]
pub(super) struct Readings {
    last: Arc<TrafficByService>,
    /// What the backend counted last.
    rows: Vec<Traffic>,
    meter: Meter<Row>,
    position: Option<Position>,
    next_at: Instant,
    /// When the next reading is due if something drains.
    next_drain_at: Instant,
    has_read_flows: bool,
    /// How often something had begun or ended to drain when it was last looked at, and until when it is watched.
    drains_known: u64,
    watch_until: Instant,
    /// Whether a target that drains has a connection.
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

    /// When the next reading is due.
    pub(super) fn next_at(&self, cleaner: &Cleaner, now: Instant) -> Instant {
        if self.is_hurried(cleaner, now) { self.next_drain_at.min(self.next_at) } else { self.next_at }
    }

    /// The last reading.
    pub(super) fn last(&self) -> Arc<TrafficByService> {
        Arc::clone(&self.last)
    }

    /// How far the node was when it was taken.
    pub(super) const fn position(&self) -> Option<Position> {
        self.position
    }

    /// Reads what is counted, if it is time.
    pub(super) fn read(&mut self, dataplane: &mut dyn Dataplane, counted: Counted<'_>, now: Instant) {
        let Counted { cleaner, networks, position } = counted;
        let begun = Instant::now();
        let by_flows = dataplane.is_counted_by_flows();
        if by_flows && !self.has_read_flows {
            // What flows carried before is not this agent's to count; from here on it is.
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
        // The rules of a backend that counts by flows say nothing about connections that end.
        let read = if is_due || !by_flows { dataplane.traffic().map(Some) } else { Ok(None) };
        match read {
            Ok(Some(rows)) => self.rows = rows.into_iter().filter(is_used).collect(),
            Ok(None) => {}
            // The figures stay as they were; nobody's traffic depends on them.
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

    /// Makes one picture of what was read. `flows` says whether what flows carry is counted, where they were read, and
    /// `whole_at` when everything was read, connections as well.
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
                // A target that goes is in no rule any more, but its connections were given to it.
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

/// Whether anything was counted.
fn is_used(row: &Traffic) -> bool {
    let any = |figure: Option<u64>| figure.is_some_and(|figure| figure > 0);
    row.connections > 0
        || any(row.packets)
        || any(row.bytes)
        || any(row.active)
        || any(row.inactive)
        || row.failed.is_some_and(|failed| failed != TargetFailures::default())
}

/// What of a row is counted, and not of the moment.
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
