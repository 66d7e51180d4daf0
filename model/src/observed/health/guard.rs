//! Health guard: limits how many endpoints health checks remove from service within a minute. Many endpoints that
//! fail together indicate a fault of the checks, of the network or of a recent change rather than of the
//! endpoints.
//!
//! If the limit is exceeded, further unhealthy endpoints are held: they stay in service, and the API lists
//! them, until an operator confirms their removal or fewer endpoints are unhealthy.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::endpoint_health::CheckKey;
use crate::{kinds::resource::ServiceKey, primitives::quantity::Timestamp};

/// Default share of all checked endpoints that may leave service within [`GUARD_WINDOW_SECS`], in percent.
pub const GUARD_PERCENT_DEFAULT: u8 = 33;
/// Minimum number of removals at which the health guard acts. Without it, the guard would block the removal
/// of a single endpoint in a cluster of two or three endpoints.
pub const GUARD_ENDPOINTS_MIN: usize = 3;
/// Time in seconds within which removals are counted together. Health checks detect the same fault at
/// different times, usually within `fall × interval` of each other; this time is longer, so that all of these
/// removals count.
pub const GUARD_WINDOW_SECS: i64 = 60;

/// Unhealthy endpoint that the guard keeps in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldEndpoint {
    /// Time since which the guard keeps the endpoint in service.
    pub since: Timestamp,
    /// Result of the failed health check that would have removed the endpoint.
    pub message: String,
}

/// Health guard: counts recent removals of endpoints from service. If there are too many, the guard keeps
/// further unhealthy endpoints in service until an operator confirms their removal or fewer are unhealthy.
#[derive(Debug, Default)]
pub struct Guard {
    /// Share of the checked endpoints that may be removed from service within [`GUARD_WINDOW_SECS`], in percent;
    /// 100 disables the limit.
    percent: u8,
    checked: BTreeMap<ServiceKey, usize>,
    checked_total: usize,
    left: BTreeMap<ServiceKey, BTreeMap<CheckKey, Timestamp>>,
    held: BTreeMap<ServiceKey, BTreeMap<CheckKey, HeldEndpoint>>,
    /// Endpoints whose removal an operator has confirmed, until they are removed or healthy again.
    confirmed: BTreeMap<ServiceKey, BTreeSet<CheckKey>>,
}

impl Guard {
    /// Creates a guard that limits removals within [`GUARD_WINDOW_SECS`] to `percent` of all checked
    /// endpoints.
    #[must_use]
    pub fn new(percent: u8) -> Self {
        Self { percent, ..Self::default() }
    }

    /// Returns the share of the checked endpoints that may be removed from service within [`GUARD_WINDOW_SECS`],
    /// in percent.
    #[must_use]
    pub const fn percent(&self) -> u8 {
        self.percent
    }

    /// Returns the number of checked endpoints. An endpoint of several Services counts for each of them.
    #[must_use]
    pub const fn checked(&self) -> usize {
        self.checked_total
    }

    /// Returns the Services that have checked endpoints.
    pub fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.checked.keys()
    }

    /// Sets the number of checked endpoints of a Service.
    pub fn record_checked(&mut self, service: &ServiceKey, endpoints: usize) {
        let before = if endpoints == 0 {
            self.checked.remove(service)
        } else {
            self.checked.insert(service.clone(), endpoints)
        };
        self.checked_total = self.checked_total - before.unwrap_or(0) + endpoints;
    }

    /// Removes all data about a Service, for example after its deletion.
    pub fn forget(&mut self, service: &ServiceKey) {
        self.record_checked(service, 0);
        self.left.remove(service);
        self.held.remove(service);
        self.confirmed.remove(service);
    }

    /// Sets the endpoints of a Service that are out of service, with the time of each removal.
    pub fn record_out(&mut self, service: &ServiceKey, out: BTreeMap<CheckKey, Timestamp>) {
        if out.is_empty() {
            self.left.remove(service);
        } else {
            self.left.insert(service.clone(), out);
        }
    }

    /// Decides the removal of the unhealthy endpoints of a Service (`leaving`, with failure messages).
    /// Returns those that the guard keeps in service; all others may be removed, and count as removed at
    /// `now`.
    pub fn weigh(
        &mut self,
        service: &ServiceKey,
        leaving: BTreeMap<CheckKey, String>,
        now: Timestamp,
    ) -> BTreeSet<CheckKey> {
        let mut held = self.held.remove(service).unwrap_or_default();
        held.retain(|key, _| leaving.contains_key(key));
        let mut confirmed = self.confirmed.remove(service).unwrap_or_default();
        confirmed.retain(|key| leaving.contains_key(key));
        // A removal that was allowed but not written yet is requested again.
        let left = self.left.get(service);
        let is_free =
            |key: &CheckKey| confirmed.contains(key) || left.is_some_and(|left| left.contains_key(key));
        let (free, asked): (BTreeMap<_, _>, BTreeMap<_, _>) =
            leaving.into_iter().partition(|(key, _)| is_free(key));
        let total = self.held_count() + self.left_count(now) + asked.len();
        let is_too_many = !asked.is_empty() && self.is_too_many(total);
        let let_go = free.keys().chain(asked.keys().filter(|_| !is_too_many)).copied();
        let let_go: Vec<_> = let_go.collect();
        if is_too_many {
            for (key, message) in asked {
                held.entry(key).or_insert(HeldEndpoint { since: now, message });
            }
            self.held.insert(service.clone(), held);
        }
        for key in let_go {
            self.left.entry(service.clone()).or_default().entry(key).or_insert(now);
        }
        if !confirmed.is_empty() {
            self.confirmed.insert(service.clone(), confirmed);
        }
        self.held.get(service).into_iter().flat_map(BTreeMap::keys).copied().collect()
    }

    fn is_too_many(&self, endpoints: usize) -> bool {
        let allowed = self.checked_total * usize::from(self.percent);
        endpoints >= GUARD_ENDPOINTS_MIN && endpoints * 100 > allowed
    }

    fn left_count(&self, now: Timestamp) -> usize {
        let begin = now.unix_seconds() - GUARD_WINDOW_SECS;
        let times = self.left.values().flat_map(BTreeMap::values);
        times.filter(|since| since.unix_seconds() > begin).count()
    }

    /// Returns the number of endpoints that the guard keeps in service.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.values().map(BTreeMap::len).sum()
    }

    /// Returns the number of endpoints removed from service within [`GUARD_WINDOW_SECS`].
    #[must_use]
    pub fn left_lately(&self, now: Timestamp) -> usize {
        self.left_count(now)
    }

    /// Returns the endpoints that the guard keeps in service, each with its Service.
    pub fn held(&self) -> impl Iterator<Item = (&ServiceKey, &CheckKey, &HeldEndpoint)> {
        self.held.iter().flat_map(|(service, held)| held.iter().map(move |(key, held)| (service, key, held)))
    }

    /// Returns the endpoints of a Service that the guard keeps in service.
    pub fn held_of(&self, service: &ServiceKey) -> impl Iterator<Item = (&CheckKey, &HeldEndpoint)> {
        self.held.get(service).into_iter().flatten()
    }

    /// Returns the Services with endpoints that the guard keeps in service.
    pub fn holding(&self) -> impl Iterator<Item = &ServiceKey> {
        self.held.keys()
    }

    /// Permits the removal of all endpoints that the guard keeps in service. Returns the Services of these
    /// endpoints.
    pub fn confirm(&mut self) -> BTreeSet<ServiceKey> {
        let held = std::mem::take(&mut self.held);
        for (service, held) in &held {
            self.confirmed.entry(service.clone()).or_default().extend(held.keys());
        }
        held.into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::quantity::Port;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_unix_seconds(1_771_000_000 + secs)
    }

    fn service(name: &str) -> ServiceKey {
        ServiceKey::try_from(format!("default/{name}")).unwrap()
    }

    fn keys(numbers: &[u8]) -> BTreeMap<CheckKey, String> {
        let key =
            |number: &u8| CheckKey { address: [10, 0, 0, *number].into(), port: Port::new(80).unwrap() };
        numbers.iter().map(|number| (key(number), "connection refused".to_owned())).collect()
    }

    /// Creates a guard with Services `a` and `b` of six endpoints each.
    fn guard(percent: u8) -> Guard {
        let mut guard = Guard::new(percent);
        for name in ["a", "b"] {
            guard.record_checked(&service(name), 6);
        }
        guard
    }

    #[test]
    fn f148_more_than_a_third_within_the_window_is_held_even_if_it_leaves_in_parts() {
        let mut guard = guard(33);
        assert!(guard.weigh(&service("a"), keys(&[1, 2, 3]), at(0)).is_empty(), "3 of 12");
        assert_eq!(guard.weigh(&service("b"), keys(&[1]), at(30)).len(), 1, "4 of 12 is more than 33 %");
        assert_eq!((guard.held_count(), guard.left_lately(at(30))), (1, 3));
        assert!(guard.weigh(&service("b"), keys(&[1]), at(61)).is_empty(), "the others left long ago");
    }

    #[test]
    fn f148_held_endpoints_remain_until_confirmation_or_recovery() {
        let mut guard = guard(33);
        let all = [1, 2, 3, 4, 5, 6];
        assert_eq!(guard.weigh(&service("a"), keys(&all), at(0)).len(), 6);
        assert_eq!(guard.weigh(&service("b"), keys(&[1]), at(500)).len(), 1, "added to the held ones");
        assert_eq!(guard.weigh(&service("a"), keys(&all), at(500)).len(), 6, "time alone lets nothing go");
        assert!(guard.weigh(&service("a"), keys(&[1, 2]), at(501)).is_empty(), "four are back: 3 of 12");
        assert_eq!(guard.weigh(&service("a"), keys(&all), at(502)).len(), 4, "and gone again");
        assert_eq!(guard.confirm(), BTreeSet::from([service("a"), service("b")]));
        assert!(guard.weigh(&service("a"), keys(&all), at(503)).is_empty());
        assert!(guard.weigh(&service("b"), keys(&[1]), at(503)).is_empty());
        assert_eq!(guard.weigh(&service("b"), keys(&[1, 2]), at(504)).len(), 1, "the next was not confirmed");
    }

    #[test]
    fn f148_few_endpoints_are_never_held_and_100_percent_holds_nothing() {
        let mut small = Guard::new(33);
        small.record_checked(&service("a"), 2);
        assert!(small.weigh(&service("a"), keys(&[1, 2]), at(0)).is_empty());
        assert!(guard(100).weigh(&service("a"), keys(&[1, 2, 3, 4, 5, 6]), at(0)).is_empty());
        let mut gone = guard(33);
        gone.weigh(&service("a"), keys(&[1, 2, 3, 4, 5, 6]), at(0));
        gone.forget(&service("a"));
        assert_eq!((gone.held_count(), gone.checked()), (0, 6));
    }
}
