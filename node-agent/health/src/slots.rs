//! Limits the number of running checks. Services start their waiting checks in turn (round robin), so that a
//! Service with unresponsive endpoints does not block the others. Does no I/O.

use std::collections::{BTreeMap, VecDeque};

use model::kinds::{endpoint_health::CheckKey, resource::ServiceKey};

/// Maximum number of checks that run at the same time. Each check has a socket, and a process may have 1024
/// open files by default. Further checks wait.
pub const CHECKS_IN_FLIGHT_MAX: usize = 512;
/// Maximum number of checks of one Service that run at the same time. Further checks of the Service wait.
pub const CHECKS_IN_FLIGHT_PER_SERVICE_MAX: usize = 256;

/// Numbers of running checks, and the queue of waiting checks of each Service.
#[derive(Debug, Default)]
pub(super) struct Slots {
    running: usize,
    waiting: usize,
    lanes: BTreeMap<ServiceKey, Lane>,
    /// Services with waiting checks that may start, in round-robin order and without duplicates.
    turns: VecDeque<ServiceKey>,
}

#[derive(Debug, Default)]
struct Lane {
    running: usize,
    waiting: VecDeque<CheckKey>,
    has_turn: bool,
}

impl Slots {
    /// Adds a check that should start to the queue of its Service.
    pub(super) fn ask(&mut self, service: &ServiceKey, key: CheckKey) {
        let lane = self.lanes.entry(service.clone()).or_default();
        lane.waiting.push_back(key);
        self.waiting += 1;
        lane.take_turn(service, &mut self.turns);
    }

    /// Removes a check from the queue. Called when the endpoint is no longer checked.
    pub(super) fn withdraw(&mut self, service: &ServiceKey, key: CheckKey) {
        let Some(lane) = self.lanes.get_mut(service) else { return };
        let before = lane.waiting.len();
        lane.waiting.retain(|waiting| *waiting != key);
        self.waiting -= before - lane.waiting.len();
        self.tidy(service);
    }

    /// Takes the next check out of the queue and counts it as running. Returns `None` if no check waits, or
    /// the limits in total and per Service allow no further check.
    pub(super) fn next(&mut self) -> Option<(ServiceKey, CheckKey)> {
        while self.running < CHECKS_IN_FLIGHT_MAX {
            let service = self.turns.pop_front()?;
            // All checks of the Service were removed.
            let Some(lane) = self.lanes.get_mut(&service) else { continue };
            lane.has_turn = false;
            let Some(key) = lane.waiting.pop_front() else {
                self.tidy(&service);
                continue;
            };
            lane.running += 1;
            (self.running, self.waiting) = (self.running + 1, self.waiting - 1);
            lane.take_turn(&service, &mut self.turns);
            return Some((service, key));
        }
        None
    }

    /// Counts a check as finished, so that a waiting one can start.
    pub(super) fn leave(&mut self, service: &ServiceKey) {
        let Some(lane) = self.lanes.get_mut(service) else { return };
        lane.running -= 1;
        self.running -= 1;
        lane.take_turn(service, &mut self.turns);
        self.tidy(service);
    }

    /// Returns the number of checks in the queue.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    fn tidy(&mut self, service: &ServiceKey) {
        let is_idle = |lane: &Lane| lane.running == 0 && lane.waiting.is_empty() && !lane.has_turn;
        if self.lanes.get(service).is_some_and(is_idle) {
            self.lanes.remove(service);
        }
    }
}

impl Lane {
    fn take_turn(&mut self, service: &ServiceKey, turns: &mut VecDeque<ServiceKey>) {
        let may_run = !self.waiting.is_empty() && self.running < CHECKS_IN_FLIGHT_PER_SERVICE_MAX;
        if may_run && !self.has_turn {
            self.has_turn = true;
            turns.push_back(service.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use model::primitives::quantity::Port;

    use super::*;

    fn service(text: &str) -> ServiceKey {
        serde_json::from_value(text.into()).unwrap()
    }

    fn key(number: u32) -> CheckKey {
        CheckKey { address: std::net::IpAddr::V4(number.into()), port: Port::new(80).unwrap() }
    }

    #[test]
    fn a_service_with_many_checks_leaves_room_for_others() {
        let (many, few) = (service("default/many"), service("default/few"));
        let mut slots = Slots::default();
        (0..2000).for_each(|number| slots.ask(&many, key(number)));
        let running = std::iter::from_fn(|| slots.next()).count();
        assert_eq!((running, slots.waiting()), (CHECKS_IN_FLIGHT_PER_SERVICE_MAX, 1744));
        slots.ask(&few, key(1));
        assert_eq!(slots.next(), Some((few.clone(), key(1))));
        assert_eq!(slots.next(), None);
        slots.leave(&few);
        slots.leave(&many);
        // The oldest waiting check.
        assert_eq!(slots.next(), Some((many, key(256))));
        assert_eq!(slots.next(), None);
    }

    #[test]
    fn services_take_turns_and_nothing_stays_behind() {
        let services: Vec<_> = (0..5).map(|number| service(&format!("default/s{number}"))).collect();
        let mut slots = Slots::default();
        for service in &services {
            (0..400).for_each(|number| slots.ask(service, key(number)));
        }
        let mut running = Vec::new();
        let mut done = 0;
        loop {
            running.extend(std::iter::from_fn(|| slots.next()).map(|(service, _)| service));
            assert!(running.len() <= CHECKS_IN_FLIGHT_MAX);
            let counts = services.iter().map(|one| running.iter().filter(|other| *other == one).count());
            assert!(done > 0 || counts.max() <= Some(103));
            let Some(service) = running.pop() else { break };
            slots.leave(&service);
            done += 1;
        }
        assert_eq!((done, slots.waiting(), slots.running), (2000, 0, 0));
        assert!(slots.lanes.is_empty() && slots.turns.is_empty());
    }

    #[test]
    fn what_is_withdrawn_does_not_run() {
        let web = service("default/web");
        let mut slots = Slots::default();
        slots.ask(&web, key(1));
        slots.ask(&web, key(2));
        slots.withdraw(&web, key(1));
        assert_eq!((slots.next(), slots.next()), (Some((web.clone(), key(2))), None));
        slots.ask(&web, key(3));
        slots.withdraw(&web, key(3));
        slots.leave(&web);
        assert_eq!(slots.next(), None);
        assert!(slots.lanes.is_empty());
    }
}
