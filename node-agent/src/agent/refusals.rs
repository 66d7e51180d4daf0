//! Passive health checks: forwards reports of refused connections from the backend to the health checker, for
//! Services that enable such checks.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use dataplane::Dataplane;
use health::Checking;
use model::{
    cluster::compiled::CompiledService, kinds::resource::ServiceKey, observed::health::may_have_default_check,
};
use tracing::debug;

/// Interval at which the backend is queried for refused connections.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Services with passive health checks, and the time of the next query to the backend.
#[derive(Debug, Default)]
pub(super) struct Watch {
    services: BTreeSet<ServiceKey>,
    /// Services with endpoints that qualify for the health check by default, which is passive where possible.
    by_default: BTreeSet<ServiceKey>,
    next_at: Option<Instant>,
}

impl Watch {
    /// Adds the Service `key` to the watched Services if it enables passive health checks, or may have the check by
    /// default, otherwise removes it.
    pub(super) fn note(&mut self, key: &ServiceKey, service: Option<&CompiledService>) {
        if service.and_then(|service| service.health_check.as_ref()).is_some_and(|check| check.passive) {
            self.services.insert(key.clone());
        } else {
            self.services.remove(key);
        }
        if service.is_some_and(may_have_default_check) {
            self.by_default.insert(key.clone());
        } else {
            self.by_default.remove(key);
        }
    }

    /// Queries the backend for refused connections if a Service has passive health checks and the time of
    /// the next query has come.
    pub(super) fn turn(&mut self, dataplane: &mut dyn Dataplane, checking: &Checking, now: Instant) {
        if (self.services.is_empty() && self.by_default.is_empty())
            || !dataplane.sees_refusals()
            || self.next_at.is_some_and(|next_at| now < next_at)
        {
            return;
        }
        self.next_at = Some(now + ASK_INTERVAL);
        match dataplane.refusals() {
            Ok(mut refusals) => {
                refusals.retain(|row| {
                    self.services.contains(&row.service) || self.by_default.contains(&row.service)
                });
                checking.refuse(refusals);
            }
            // Active checks continue without this data.
            Err(error) => debug!(%error, "refused connections could not be read"),
        }
    }

    /// Returns a warning if Services enable passive health checks and the backend does not support them,
    /// otherwise `None`.
    pub(super) fn warning(&self, dataplane: &dyn Dataplane) -> Option<String> {
        let first = self.services.first().filter(|_| !dataplane.sees_refusals())?;
        let (count, mode) = (self.services.len(), dataplane.mode().as_str());
        Some(format!(
            "healthCheck.passive of {count} Services, such as {first}, has no effect: {mode} mode cannot \
             detect that endpoints refuse connections"
        ))
    }
}
