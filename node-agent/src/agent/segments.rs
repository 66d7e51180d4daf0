//! Networks of the interfaces of this node, on which other nodes are reached without a router.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use kernel::links::local_networks;
use tracing::{info, warn};

use super::Agent;

/// Interval at which the networks are read: the maximum time for which a new interface goes unnoticed.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the networks of the interfaces; none if they cannot be read.
pub(super) fn read() -> BTreeSet<IpNet> {
    local_networks().unwrap_or_else(|error| {
        warn!(%error, "the networks of the interfaces could not be read");
        BTreeSet::new()
    })
}

impl Agent {
    /// Reads the networks if Services depend on them, and marks the Services whose programs have changed.
    pub(super) fn follow_segments(&mut self, now: Instant) {
        if now < self.segments_at || !self.derived.depends_on_networks() {
            return;
        }
        self.segments_at = now + READ_INTERVAL;
        let Ok(networks) = local_networks() else { return };
        let changed = self.derived.set_networks(networks, &self.state);
        if !changed.is_empty() {
            info!(services = changed.len(), "the networks of the interfaces have changed");
            self.dirty.extend(changed);
        }
    }
}
