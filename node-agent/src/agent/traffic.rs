//! What went through each Service, read when there is nothing else to do.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{report::TargetTraffic, resource::ServiceKey};
use tracing::debug;

use crate::dataplane::{Dataplane, Traffic};

/// Time between two readings.
const TRAFFIC_INTERVAL: Duration = Duration::from_secs(10);
/// A reading may take at most one part in this many of the time.
const TRAFFIC_SHARE: u32 = 100;

/// The traffic of each Service, by target.
pub type TrafficByService = BTreeMap<ServiceKey, Vec<TargetTraffic>>;

/// The last reading, and when the next one is due.
#[derive(Debug)]
pub(super) struct Readings {
    last: Arc<TrafficByService>,
    next_at: Instant,
}

impl Readings {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: Arc::default(), next_at: now + TRAFFIC_INTERVAL }
    }

    /// When the next reading is due.
    pub(super) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// The last reading.
    pub(super) fn last(&self) -> Arc<TrafficByService> {
        Arc::clone(&self.last)
    }

    /// Reads what the backend counts, if it is time.
    pub(super) fn read(&mut self, dataplane: &mut dyn Dataplane, now: Instant) {
        if now < self.next_at {
            return;
        }
        let begun = Instant::now();
        match dataplane.traffic() {
            Ok(rows) => {
                let read = by_service(rows);
                if read != *self.last {
                    self.last = Arc::new(read);
                }
            }
            // The figures stay as they were; nobody's traffic depends on them.
            Err(error) => debug!(%error, "the traffic counters were not read"),
        }
        self.next_at = now + TRAFFIC_INTERVAL.max(begun.elapsed() * TRAFFIC_SHARE);
    }
}

fn by_service(rows: Vec<Traffic>) -> TrafficByService {
    let mut traffic = TrafficByService::new();
    for row in rows {
        let Traffic { service, protocol, target, connections, packets, bytes, active, inactive } = row;
        traffic.entry(service).or_default().push(TargetTraffic {
            protocol,
            address: target.address,
            port: target.port,
            connections,
            packets,
            bytes,
            active,
            inactive,
        });
    }
    for rows in traffic.values_mut() {
        rows.sort_by_key(|row| (row.protocol, row.address, row.port));
    }
    traffic
}
