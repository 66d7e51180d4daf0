//! Endpoint health as reported by agents. The handlers of reports write it; the health judge task, which decides
//! about endpoints, reads it.

use model::{
    kinds::resource::ServiceKey,
    observed::health::{Guard, HealthBook, HealthUpdate},
    primitives::name::Name,
};
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// Reported health check results, and the health guard, which limits the number of endpoints taken out of
/// service at once. Also contains the Services whose changed results wake the health judge task.
#[derive(Debug)]
pub(crate) struct HealthState {
    book: Mutex<HealthBook>,
    guard: Mutex<Guard>,
    news: Mutex<BTreeSet<ServiceKey>>,
    pub(crate) bell: Notify,
}

impl HealthState {
    /// Creates a state without results. `guard_percent` is the percentage of checked endpoints that may become
    /// unhealthy at once.
    pub(crate) fn new(guard_percent: u8) -> Self {
        Self {
            book: Mutex::default(),
            guard: Mutex::new(Guard::new(guard_percent)),
            news: Mutex::default(),
            bell: Notify::new(),
        }
    }

    /// Locks the reported health check results. A caller that also needs [`Self::guard`] must lock the results
    /// first.
    pub(crate) fn book(&self) -> MutexGuard<'_, HealthBook> {
        // A panic in the middle of a report leaves results that the next full report corrects.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the health guard, which contains the recent removals from service and the unhealthy endpoints kept in
    /// service.
    pub(crate) fn guard(&self) -> MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the health part of a node's report, and triggers a health decision for the affected Services.
    pub(crate) fn report(&self, node: &Name, news: HealthUpdate) {
        if news.services.is_empty() && !news.is_complete {
            return;
        }
        let passed: Vec<_> = news.passed().collect();
        let changed = self.book().apply(node, news);
        if !passed.is_empty() {
            let mut guard = self.guard();
            passed.into_iter().for_each(|(service, endpoints)| guard.record_passed(&service, endpoints));
        }
        self.ring(changed);
    }

    /// Permits the removal from service of all unhealthy endpoints that the guard keeps in service, and
    /// triggers a decision about their Services. Before that, calls `look` with the guard. Returns the result
    /// of `look`.
    pub(crate) fn confirm<T>(&self, look: impl FnOnce(&Guard) -> T) -> T {
        let mut guard = self.guard();
        let seen = look(&guard);
        let concerned = guard.confirm();
        drop(guard);
        self.ring(concerned);
        seen
    }

    fn ring(&self, services: BTreeSet<ServiceKey>) {
        if !services.is_empty() {
            self.news.lock().unwrap_or_else(PoisonError::into_inner).extend(services);
            self.bell.notify_one();
        }
    }

    pub(crate) fn drain_triggers(&self) -> BTreeSet<ServiceKey> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
