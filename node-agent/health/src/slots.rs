//! Limits the number of running checks. Namespaces start their waiting checks in turn (round robin), and the Services
//! of a namespace do so among themselves. Does no I/O.
//!
//! Checks of unresponsive endpoints run until their timeout. They do not block other checks:
//!
//! - A part of the slots is not available to a single namespace, nor a part of these to a single Service.
//! - If no slot is free, a namespace with fewer running checks gets a slot of the namespace with most of them, as soon
//!   as a check of the latter has run for [`EVICTION_AGE`]. The same holds for the Services of a namespace.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use model::{
    kinds::{endpoint_health::CheckKey, resource::ServiceKey},
    primitives::name::{Name, Namespace},
};

/// Maximum number of checks that run at the same time. Each check has a socket, and a process may have 1024
/// open files by default. Further checks wait.
pub const CHECKS_IN_FLIGHT_MAX: usize = 512;
/// Maximum number of checks of one namespace that run at the same time. Further checks of the namespace wait.
pub const CHECKS_IN_FLIGHT_PER_NAMESPACE_MAX: usize = 384;
/// Maximum number of checks of one Service that run at the same time. Further checks of the Service wait.
pub const CHECKS_IN_FLIGHT_PER_SERVICE_MAX: usize = 256;
/// Time for which every check may run, equal to the default timeout. Afterwards it is ended if its slot is due to
/// another namespace or Service.
pub(super) const EVICTION_AGE: Duration = Duration::from_secs(2);

/// Numbers of running checks, and the queues of waiting checks of each Service.
#[derive(Debug, Default)]
pub(super) struct Slots {
    running: usize,
    waiting: usize,
    lanes: BTreeMap<Namespace, NamespaceLane>,
    /// Namespaces with waiting checks that may start, in round-robin order and without duplicates.
    turns: VecDeque<Namespace>,
}

#[derive(Debug, Default)]
struct NamespaceLane {
    running: usize,
    services: BTreeMap<Name, ServiceLane>,
    /// Services with waiting checks that may start, in round-robin order and without duplicates.
    turns: VecDeque<Name>,
    has_turn: bool,
}

#[derive(Debug, Default)]
struct ServiceLane {
    /// Start times of the running checks.
    running: BTreeMap<CheckKey, Instant>,
    waiting: VecDeque<CheckKey>,
    has_turn: bool,
}

impl Slots {
    /// Adds a check that should start to the queue of its Service.
    pub(super) fn ask(&mut self, service: &ServiceKey, key: CheckKey) {
        let lane = self.lanes.entry(service.namespace.clone()).or_default();
        lane.services.entry(service.name.clone()).or_default().waiting.push_back(key);
        self.waiting += 1;
        self.take_turn(service);
    }

    /// Removes a check from the queue. Called when the endpoint is no longer checked.
    pub(super) fn withdraw(&mut self, service: &ServiceKey, key: CheckKey) {
        let Some(lane) = self.service_lane(service) else { return };
        let before = lane.waiting.len();
        lane.waiting.retain(|waiting| *waiting != key);
        let removed = before - lane.waiting.len();
        self.waiting -= removed;
        self.tidy(service);
    }

    /// Takes the next check out of the queue and counts it as running since `now`. Returns `None` if no check waits,
    /// or the limits in total, per namespace and per Service allow no further check.
    pub(super) fn next(&mut self, now: Instant) -> Option<(ServiceKey, CheckKey)> {
        while self.running < CHECKS_IN_FLIGHT_MAX {
            let namespace = self.turns.pop_front()?;
            // All checks of the namespace were removed.
            let Some(lane) = self.lanes.get_mut(&namespace) else { continue };
            lane.has_turn = false;
            let Some(name) = lane.turns.pop_front() else { continue };
            let service = ServiceKey { namespace, name };
            let key = lane.services.get_mut(&service.name).and_then(|service| {
                service.has_turn = false;
                service.waiting.pop_front()
            });
            if let Some(key) = key {
                lane.start(&service.name, key, now);
                (self.running, self.waiting) = (self.running + 1, self.waiting - 1);
            }
            self.take_turn(&service);
            self.tidy(&service);
            if let Some(key) = key {
                return Some((service, key));
            }
        }
        None
    }

    /// Counts a check as finished, so that a waiting one can start. Ignores a check that is not running.
    pub(super) fn leave(&mut self, service: &ServiceKey, key: CheckKey) {
        let Some(lane) = self.lanes.get_mut(&service.namespace) else { return };
        let of_service = lane.services.get_mut(&service.name);
        if of_service.is_some_and(|lane| lane.running.remove(&key).is_some()) {
            lane.running -= 1;
            self.running -= 1;
        }
        self.take_turn(service);
        self.tidy(service);
    }

    /// Ends the oldest running check of the namespace or Service that must give up a slot to another one, and returns
    /// this check. Returns `None` if there is none that has run for [`EVICTION_AGE`].
    pub(super) fn evict(&mut self, now: Instant) -> Option<(ServiceKey, CheckKey)> {
        let (since, service, key) = self.candidate()?;
        if now < since + EVICTION_AGE {
            return None;
        }
        self.leave(&service, key);
        Some((service, key))
    }

    /// Returns the time at which [`Self::evict`] returns a check if the present checks still run and wait.
    pub(super) fn next_eviction(&self) -> Option<Instant> {
        self.candidate().map(|(since, ..)| since + EVICTION_AGE)
    }

    /// Returns the number of checks in the queue.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the check that must give up its slot first, with its start time.
    fn candidate(&self) -> Option<(Instant, ServiceKey, CheckKey)> {
        let is_full = self.running == CHECKS_IN_FLIGHT_MAX;
        if self.waiting == 0 || !is_full && self.running < CHECKS_IN_FLIGHT_PER_NAMESPACE_MAX {
            return None;
        }
        let (namespace, largest) = self.lanes.iter().max_by_key(|(_, lane)| lane.running)?;
        let fewest = self.turns.iter().filter_map(|name| Some(self.lanes.get(name)?.running)).min();
        let has_poorer_namespace = is_full && fewest.is_some_and(|fewest| fewest + 1 < largest.running);
        let is_limited = is_full || largest.running == CHECKS_IN_FLIGHT_PER_NAMESPACE_MAX;
        let is_unfair = has_poorer_namespace || is_limited && largest.has_poorer_service();
        if !is_unfair {
            return None;
        }
        let (name, service) = largest.services.iter().max_by_key(|(_, lane)| lane.running.len())?;
        let (key, since) = service.running.iter().min_by_key(|(_, since)| **since)?;
        Some((*since, ServiceKey { namespace: namespace.clone(), name: name.clone() }, *key))
    }

    fn service_lane(&mut self, service: &ServiceKey) -> Option<&mut ServiceLane> {
        self.lanes.get_mut(&service.namespace)?.services.get_mut(&service.name)
    }

    fn take_turn(&mut self, service: &ServiceKey) {
        let Some(lane) = self.lanes.get_mut(&service.namespace) else { return };
        lane.take_service_turn(&service.name);
        let may_run = !lane.turns.is_empty() && lane.running < CHECKS_IN_FLIGHT_PER_NAMESPACE_MAX;
        if may_run && !lane.has_turn {
            lane.has_turn = true;
            self.turns.push_back(service.namespace.clone());
        }
    }

    fn tidy(&mut self, service: &ServiceKey) {
        let Some(lane) = self.lanes.get_mut(&service.namespace) else { return };
        if lane.services.get(&service.name).is_some_and(ServiceLane::is_idle) {
            lane.services.remove(&service.name);
        }
        if lane.services.is_empty() && !lane.has_turn {
            self.lanes.remove(&service.namespace);
        }
    }
}

impl NamespaceLane {
    fn start(&mut self, name: &Name, key: CheckKey, now: Instant) {
        if let Some(service) = self.services.get_mut(name) {
            service.running.insert(key, now);
            self.running += 1;
        }
    }

    fn take_service_turn(&mut self, name: &Name) {
        let Some(service) = self.services.get_mut(name) else { return };
        let may_run = !service.waiting.is_empty() && service.running.len() < CHECKS_IN_FLIGHT_PER_SERVICE_MAX;
        if may_run && !service.has_turn {
            service.has_turn = true;
            self.turns.push_back(name.clone());
        }
    }

    /// True if a Service with waiting checks has fewer running checks than another Service.
    fn has_poorer_service(&self) -> bool {
        let most = self.services.values().map(|lane| lane.running.len()).max().unwrap_or(0);
        self.services.values().any(|lane| !lane.waiting.is_empty() && lane.running.len() + 1 < most)
    }
}

impl ServiceLane {
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && !self.has_turn
    }
}

#[cfg(test)]
mod tests;
