//! Health guard: limits how many endpoints health checks remove from service within a minute. Many endpoints that
//! fail together indicate a fault of the checks, of the network or of a recent change rather than of the
//! endpoints.
//!
//! If the limit is exceeded, further unhealthy endpoints are held: they stay in service, and the API lists
//! them, until an operator confirms their removal or fewer endpoints are unhealthy.
//!
//! The budget is divided, so that the failures of one namespace do not hold the endpoints of another one:
//!
//! 1. Each namespace may lose `percent` of its own checked endpoints, whatever other namespaces lose.
//! 2. Beyond this share, a namespace draws from the budget of the cluster, `percent` of all checked endpoints. One
//!    namespace can use half of this budget at most.
//!
//! Shares, budgets and losses are numbers of distinct addresses: a machine that serves several ports or Services fails
//! once. Endpoints that have never passed a check are not counted and not held, because they never served: they neither
//! use a budget nor increase it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    kinds::{endpoint_health::CheckKey, resource::ServiceKey},
    primitives::{name::Namespace, quantity::Timestamp},
};

/// Default share of the addresses of all checked endpoints that may leave service within [`GUARD_WINDOW_SECS`], in percent.
pub const GUARD_PERCENT_DEFAULT: u8 = 33;
/// Minimum number of removed addresses at which the health guard acts. Without it, the guard would block the removal
/// of a single endpoint in a cluster of two or three endpoints.
pub const GUARD_ENDPOINTS_MIN: usize = 3;
/// Time in seconds within which removals are counted together. Health checks detect the same fault at
/// different times, usually within `fall × interval` of each other; this time is longer, so that all of these
/// removals count.
pub const GUARD_WINDOW_SECS: i64 = 60;
/// Divisor of the cluster's budget that yields the part that one namespace can use.
const CLUSTER_BUDGET_DIVISOR: usize = 2;

/// Unhealthy endpoint that the guard keeps in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldEndpoint {
    /// Time since which the guard keeps the endpoint in service.
    pub since: Timestamp,
    /// Result of the failed health check that would have removed the endpoint.
    pub message: String,
}

/// Checked endpoints of one Service.
#[derive(Debug, Default)]
struct CheckedEndpoints {
    all: BTreeSet<CheckKey>,
    /// Endpoints of `all` that have never passed a check.
    unproven: BTreeSet<CheckKey>,
}

impl CheckedEndpoints {
    /// Returns the addresses of endpoints that have passed a check, with repetitions.
    fn proven(&self) -> impl Iterator<Item = IpAddr> {
        self.all.difference(&self.unproven).map(|key| key.address)
    }
}

/// Addresses of endpoints, each with the number of its endpoints.
#[derive(Debug, Clone, Default)]
struct AddressCounts(BTreeMap<Namespace, BTreeMap<IpAddr, usize>>);

impl AddressCounts {
    fn add(&mut self, namespace: &Namespace, addresses: impl Iterator<Item = IpAddr>) {
        for address in addresses {
            *self.0.entry(namespace.clone()).or_default().entry(address).or_default() += 1;
        }
    }

    fn subtract(&mut self, namespace: &Namespace, addresses: impl Iterator<Item = IpAddr>) {
        let Some(counts) = self.0.get_mut(namespace) else { return };
        for address in addresses {
            if let Some(count) = counts.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&address);
                }
            }
        }
        if counts.is_empty() {
            self.0.remove(namespace);
        }
    }

    /// Returns the number of distinct addresses of a namespace.
    fn of(&self, namespace: &Namespace) -> usize {
        self.0.get(namespace).map_or(0, BTreeMap::len)
    }

    fn contains(&self, namespace: &Namespace, address: IpAddr) -> bool {
        self.0.get(namespace).is_some_and(|counts| counts.contains_key(&address))
    }
}

/// Health guard: counts recent removals of endpoints from service. If there are too many, the guard keeps
/// further unhealthy endpoints in service until an operator confirms their removal or fewer are unhealthy.
#[derive(Debug, Default)]
pub struct Guard {
    /// Share of the checked endpoints that may be removed from service within [`GUARD_WINDOW_SECS`], in percent;
    /// 100 disables the limit.
    percent: u8,
    checked: BTreeMap<ServiceKey, CheckedEndpoints>,
    /// Number of checked endpoints, including those that have never passed a check.
    checked_total: usize,
    /// Addresses of checked endpoints that have passed a check.
    proven: AddressCounts,
    left: BTreeMap<ServiceKey, BTreeMap<CheckKey, Timestamp>>,
    held: BTreeMap<ServiceKey, BTreeMap<CheckKey, HeldEndpoint>>,
    /// Endpoints whose removal an operator has confirmed, until they are removed or healthy again.
    confirmed: BTreeMap<ServiceKey, BTreeSet<CheckKey>>,
    /// Addresses of the endpoints that are held or have left within the window before a time; `None` after a change
    /// of the other fields. All held endpoints are decided again each second, so their number must not make each
    /// decision expensive.
    losses: Option<(Timestamp, AddressCounts)>,
}

impl Guard {
    /// Creates a guard that limits removals within [`GUARD_WINDOW_SECS`] to `percent` of the checked
    /// endpoints of a namespace and of the cluster.
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

    /// Returns the Services that have health checks.
    pub fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.checked.keys()
    }

    /// True if the guard has data about the checked endpoints of a Service.
    #[must_use]
    pub fn has_service(&self, service: &ServiceKey) -> bool {
        self.checked.contains_key(service)
    }

    /// Sets the checked endpoints of a Service. Endpoints that are new to the guard count as never having passed
    /// a check, except those in `passed`.
    pub fn record_checked(
        &mut self,
        service: &ServiceKey,
        endpoints: BTreeSet<CheckKey>,
        passed: &BTreeSet<CheckKey>,
    ) {
        let before = self.forget_checked(service);
        let is_unproven = |key: &&CheckKey| {
            let was_known = before.all.contains(key);
            !passed.contains(key) && (!was_known || before.unproven.contains(key))
        };
        let unproven = endpoints.iter().filter(is_unproven).copied().collect();
        let checked = CheckedEndpoints { all: endpoints, unproven };
        self.checked_total += checked.all.len();
        self.proven.add(&service.namespace, checked.proven());
        self.checked.insert(service.clone(), checked);
    }

    /// Records that endpoints of a Service have passed a check. Endpoints that are not checked are ignored.
    pub fn record_passed(&mut self, service: &ServiceKey, endpoints: impl IntoIterator<Item = CheckKey>) {
        let Some(checked) = self.checked.get_mut(service) else { return };
        let passed: Vec<_> = endpoints.into_iter().filter(|key| checked.unproven.remove(key)).collect();
        if !passed.is_empty() {
            self.losses = None;
            self.proven.add(&service.namespace, passed.into_iter().map(|key| key.address));
        }
    }

    /// Removes all data about a Service, for example after its deletion.
    pub fn forget(&mut self, service: &ServiceKey) {
        self.forget_checked(service);
        self.losses = None;
        self.left.remove(service);
        self.held.remove(service);
        self.confirmed.remove(service);
    }

    /// Removes and returns the checked endpoints of a Service.
    fn forget_checked(&mut self, service: &ServiceKey) -> CheckedEndpoints {
        let Some(before) = self.checked.remove(service) else { return CheckedEndpoints::default() };
        self.losses = None;
        self.checked_total -= before.all.len();
        self.proven.subtract(&service.namespace, before.proven());
        before
    }

    /// Sets the endpoints of a Service that are out of service, with the time of each removal.
    pub fn record_out(&mut self, service: &ServiceKey, out: BTreeMap<CheckKey, Timestamp>) {
        self.losses = None;
        if out.is_empty() {
            self.left.remove(service);
        } else {
            self.left.insert(service.clone(), out);
        }
    }

    /// Decides the removal of the unhealthy endpoints of a Service (`leaving`, with failure messages).
    /// Returns those that the guard keeps in service; all others may be removed, and count as removed at
    /// `now` unless they have never passed a check.
    pub fn weigh(
        &mut self,
        service: &ServiceKey,
        leaving: BTreeMap<CheckKey, String>,
        now: Timestamp,
    ) -> BTreeSet<CheckKey> {
        let mut losses = self.losses_at(now);
        losses.subtract(&service.namespace, self.losses_of(service, now));
        let mut held = self.held.remove(service).unwrap_or_default();
        held.retain(|key, _| leaving.contains_key(key));
        let mut confirmed = self.confirmed.remove(service).unwrap_or_default();
        confirmed.retain(|key| leaving.contains_key(key));
        // A removal that was allowed but not written yet is requested again.
        let left = self.left.get(service);
        let is_free = |key: &CheckKey| {
            confirmed.contains(key)
                || left.is_some_and(|left| left.contains_key(key))
                || self.is_unproven(service, key)
        };
        let (free, asked): (BTreeMap<_, _>, BTreeMap<_, _>) =
            leaving.into_iter().partition(|(key, _)| is_free(key));
        let is_too_many = !asked.is_empty() && {
            let own = asked.keys().map(|key| key.address).chain(self.losses_of(service, now));
            self.is_too_many(&losses, &service.namespace, own.collect())
        };
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
        losses.add(&service.namespace, self.losses_of(service, now));
        self.losses = Some((now, losses));
        self.held.get(service).into_iter().flat_map(BTreeMap::keys).copied().collect()
    }

    /// True if the losses of a namespace, which are the `losses` of its other Services and `own` of one Service, exceed
    /// both its own share and the part of the cluster's budget that is left to it.
    fn is_too_many(&self, losses: &AddressCounts, namespace: &Namespace, own: BTreeSet<IpAddr>) -> bool {
        let further = own.into_iter().filter(|address| !losses.contains(namespace, *address));
        let own = losses.of(namespace) + further.count();
        let share = self.share(namespace);
        if own <= share {
            return false;
        }
        let budget = self.budget_of(self.proven.0.values().map(BTreeMap::len).sum());
        let part = budget / CLUSTER_BUDGET_DIVISOR;
        if own >= GUARD_ENDPOINTS_MIN && own > share.max(part) {
            return true;
        }
        let others = losses.0.iter().filter(|(other, _)| *other != namespace);
        let total = own + others.map(|(_, lost)| lost.len().min(part)).sum::<usize>();
        total >= GUARD_ENDPOINTS_MIN && total > budget
    }

    /// Returns the number of addresses that a namespace may lose whatever other namespaces lose: at least one, if it
    /// has several.
    fn share(&self, namespace: &Namespace) -> usize {
        let proven = self.proven.of(namespace);
        self.budget_of(proven).max(usize::from(proven > 1))
    }

    const fn budget_of(&self, addresses: usize) -> usize {
        addresses * self.percent as usize / 100
    }

    /// Takes the cached losses at `now`, or computes them.
    fn losses_at(&mut self, now: Timestamp) -> AddressCounts {
        if let Some((at, losses)) = self.losses.take()
            && at == now
        {
            return losses;
        }
        let mut losses = AddressCounts::default();
        let services: BTreeSet<_> = self.held.keys().chain(self.left.keys()).collect();
        for service in services {
            losses.add(&service.namespace, self.losses_of(service, now));
        }
        losses
    }

    /// Returns the addresses of the endpoints of a Service that are held, or have passed a check before and were
    /// removed from service within [`GUARD_WINDOW_SECS`].
    fn losses_of(&self, service: &ServiceKey, now: Timestamp) -> impl Iterator<Item = IpAddr> {
        let held = self.held.get(service).into_iter().flat_map(BTreeMap::keys);
        held.chain(self.left_of(service, now)).map(|key| key.address)
    }

    fn left_of(&self, service: &ServiceKey, now: Timestamp) -> impl Iterator<Item = &CheckKey> {
        let begin = now.unix_seconds() - GUARD_WINDOW_SECS;
        let unproven = self.checked.get(service).map(|checked| &checked.unproven);
        let left = self.left.get(service).into_iter().flatten();
        let counts = move |(key, since): &(&CheckKey, &Timestamp)| {
            since.unix_seconds() > begin && !unproven.is_some_and(|unproven| unproven.contains(key))
        };
        left.filter(counts).map(|(key, _)| key)
    }

    fn is_unproven(&self, service: &ServiceKey, key: &CheckKey) -> bool {
        self.checked.get(service).is_some_and(|checked| checked.unproven.contains(key))
    }

    /// Returns the number of endpoints that the guard keeps in service.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.values().map(BTreeMap::len).sum()
    }

    /// Returns the number of endpoints removed from service within [`GUARD_WINDOW_SECS`], without those that have
    /// never passed a check.
    #[must_use]
    pub fn left_lately(&self, now: Timestamp) -> usize {
        self.left.keys().map(|service| self.left_of(service, now).count()).sum()
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
        self.losses = None;
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

    /// Records endpoints that are checked and have passed.
    fn check(guard: &mut Guard, service: &ServiceKey, numbers: &[u8]) {
        let all: BTreeSet<_> = keys(numbers).into_keys().collect();
        guard.record_checked(service, all.clone(), &all);
    }

    /// Creates a guard with Services `a` and `b` of six endpoints each, on twelve machines.
    fn guard(percent: u8) -> Guard {
        let mut guard = Guard::new(percent);
        check(&mut guard, &service("a"), &[1, 2, 3, 4, 5, 6]);
        check(&mut guard, &service("b"), &[11, 12, 13, 14, 15, 16]);
        guard
    }

    #[test]
    fn f148_more_than_a_third_within_the_window_is_held_even_if_it_leaves_in_parts() {
        let mut guard = guard(33);
        assert!(guard.weigh(&service("a"), keys(&[1, 2, 3]), at(0)).is_empty(), "3 of 12");
        assert_eq!(guard.weigh(&service("b"), keys(&[11]), at(30)).len(), 1, "4 of 12 is more than 33 %");
        assert_eq!((guard.held_count(), guard.left_lately(at(30))), (1, 3));
        assert!(guard.weigh(&service("b"), keys(&[11]), at(61)).is_empty(), "the others left long ago");
    }

    #[test]
    fn f148_held_endpoints_remain_until_confirmation_or_recovery() {
        let mut guard = guard(33);
        let all = [1, 2, 3, 4, 5, 6];
        assert_eq!(guard.weigh(&service("a"), keys(&all), at(0)).len(), 6);
        assert_eq!(guard.weigh(&service("b"), keys(&[11]), at(500)).len(), 1, "added to the held ones");
        assert_eq!(guard.weigh(&service("a"), keys(&all), at(500)).len(), 6, "time alone lets nothing go");
        assert!(guard.weigh(&service("a"), keys(&[1, 2]), at(501)).is_empty(), "four are back: 3 of 12");
        assert_eq!(guard.weigh(&service("a"), keys(&all), at(502)).len(), 4, "and gone again");
        assert_eq!(guard.confirm(), BTreeSet::from([service("a"), service("b")]));
        assert!(guard.weigh(&service("a"), keys(&all), at(503)).is_empty());
        assert!(guard.weigh(&service("b"), keys(&[11]), at(503)).is_empty());
        assert_eq!(
            guard.weigh(&service("b"), keys(&[11, 12]), at(504)).len(),
            1,
            "the next was not confirmed"
        );
    }

    /// A machine that serves many Services fails once: its endpoints leave, although they are half of all endpoints. The
    /// third of four machines is held.
    #[test]
    fn f148_a_machine_of_several_services_counts_once() {
        let mut guard = Guard::new(33);
        let names: Vec<_> = (0..6).map(|number| format!("s{number}")).collect();
        for name in &names {
            check(&mut guard, &service(name), &[1, 2, 3, 4]);
        }
        for name in &names {
            assert!(guard.weigh(&service(name), keys(&[1]), at(0)).is_empty(), "{name}");
        }
        for name in &names {
            assert!(guard.weigh(&service(name), keys(&[1, 2]), at(1)).is_empty(), "{name}");
        }
        for name in &names {
            assert_eq!(guard.weigh(&service(name), keys(&[1, 2, 3]), at(1)).len(), 1, "{name}");
        }
        assert_eq!((guard.held_count(), guard.left_lately(at(1))), (6, 12));
    }

    #[test]
    fn f148_few_endpoints_are_never_held_and_100_percent_holds_nothing() {
        let mut small = Guard::new(33);
        check(&mut small, &service("a"), &[1, 2]);
        assert!(small.weigh(&service("a"), keys(&[1, 2]), at(0)).is_empty());
        assert!(guard(100).weigh(&service("a"), keys(&[1, 2, 3, 4, 5, 6]), at(0)).is_empty());
        let mut gone = guard(33);
        gone.weigh(&service("a"), keys(&[1, 2, 3, 4, 5, 6]), at(0));
        gone.forget(&service("a"));
        assert_eq!((gone.held_count(), gone.checked()), (0, 6));
    }
}
