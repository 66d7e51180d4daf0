//! Distributes changes of reflected routes to the neighbors, and delays the End-of-RIB marker of a route reflector.

use std::time::Duration;

use model::bgp::settings::BgpState;

use super::{super::settings::Settings, Hub};

/// Time after the start of the agent for which a route reflector with graceful restart delays the End-of-RIB marker
/// (RFC 4724 §4.1, selection deferral). Its neighbors connect again in this time, and clients keep the routes of each
/// other until then.
pub(super) const DEFERRAL_TIME: Duration = Duration::from_secs(30);
/// Maximum number of changed prefixes that are distributed at once, so that the hub has time for other events.
const CHANGES_PER_TURN_MAX: usize = 1024;

impl Hub {
    /// Informs the neighbors that take part in route reflection of prefixes whose best route has changed.
    pub(super) fn reflect(&mut self) {
        let mut table = self.table.lock();
        let changed = table.take_changed(CHANGES_PER_TURN_MAX);
        let is_more = table.has_changed();
        let lacking = table.take_lacking();
        drop(table);
        for running in self.running.values().filter(|running| running.settings.reflection.is_some()) {
            running.inbox.put(|inbox| inbox.reflected.extend(&changed));
        }
        for key in lacking {
            if let Some(running) = self.running.get(&key) {
                running.inbox.put(|inbox| inbox.is_refresh_due = true);
            }
        }
        if is_more {
            self.table.ring();
        }
    }

    /// Returns true if the End-of-RIB marker must not be sent yet to a neighbor. Neighbors that receive no reflected routes,
    /// such as external ones, do not wait for those of restarting clients.
    pub(super) fn is_end_held(&self, neighbor: &Settings) -> bool {
        let is_deferred = neighbor.reflection.is_some()
            && self.deferred_until.is_some()
            && self.state.as_ref().is_some_and(has_restarting_clients);
        self.is_end_held || is_deferred
    }

    pub(super) fn tell_end_held(&self) {
        for running in self.running.values() {
            let is_held = self.is_end_held(&running.settings);
            running.inbox.put(|inbox| inbox.is_end_held = Some(is_held));
        }
    }

    pub(super) fn end_deferral(&mut self) {
        self.deferred_until = None;
        self.tell_end_held();
    }
}

/// Returns true if the node reflects routes to clients that keep them during a restart of the agent.
fn has_restarting_clients(state: &BgpState) -> bool {
    state.peers.values().any(|peer| peer.route_reflector_client && peer.graceful_restart.is_some())
}
