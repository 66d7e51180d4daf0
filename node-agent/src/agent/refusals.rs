//! Passive health checks: forwards reports of refused connections from the backend to the health checker, for
//! Services that enable such checks.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use dataplane::Dataplane;
use health::Checking;
use model::{
    cluster::compiled::CompiledService, kinds::resource::ServiceKey, observed::health::has_default_check,
};
use tracing::debug;

/// Interval at which the backend is queried for refused connections.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Services with passive health checks, and the time of the next query to the backend.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Services whose health check is passive.
    services: BTreeSet<ServiceKey>,
    /// Services with the health check by default, which is passive where the backend sees refused connections.
    by_default: BTreeSet<ServiceKey>,
    next_at: Option<Instant>,
}

impl Watch {
    /// Adds the Service `key` to the watched Services if it enables passive health checks or has the check by default,
    /// otherwise removes it. `service` is the Service as the health checker receives it.
    pub(super) fn note(&mut self, key: &ServiceKey, service: Option<&CompiledService>) {
        let check = service.and_then(|service| service.health_check.as_ref());
        follow(&mut self.services, key, check.is_some_and(|check| check.passive));
        follow(&mut self.by_default, key, service.is_some_and(has_default_check));
    }

    /// Queries the backend for refused connections if a Service has passive health checks and the time of
    /// the next query has come.
    pub(super) fn turn(&mut self, dataplane: &mut dyn Dataplane, checking: &Checking, now: Instant) {
        if self.is_empty() || !dataplane.sees_refusals() || self.next_at.is_some_and(|next_at| now < next_at)
        {
            return;
        }
        self.next_at = Some(now + ASK_INTERVAL);
        match dataplane.refusals() {
            Ok(mut refusals) => {
                refusals.retain(|row| self.contains(&row.service));
                checking.refuse(refusals);
            }
            // Active checks continue without this data.
            Err(error) => debug!(%error, "refused connections could not be read"),
        }
    }

    fn is_empty(&self) -> bool {
        self.services.is_empty() && self.by_default.is_empty()
    }

    fn contains(&self, service: &ServiceKey) -> bool {
        self.services.contains(service) || self.by_default.contains(service)
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

/// Adds a Service to a set or removes it.
fn follow(set: &mut BTreeSet<ServiceKey>, key: &ServiceKey, is_member: bool) {
    if is_member {
        set.insert(key.clone());
    } else {
        set.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use dataplane::memory::MemoryKernel;
    use model::{cluster::compiled::DefaultCheck, kinds::node::ProxyMode};
    use serde_json::json;

    use super::*;

    /// A Service without a check of its own is watched while it is checked by default. A mode that does not see refused
    /// connections is a warning only for a Service that asks for them.
    #[test]
    fn services_with_a_passive_check_or_the_check_by_default_are_watched() {
        let endpoint = json!({ "address": "10.1.0.1", "port": 80, "weight": 1, "ready": true, "serving": true,
            "terminating": false });
        let port = json!({ "protocol": "TCP", "port": 80, "endpoints": [endpoint] });
        let key = ServiceKey::try_from("default/web".to_owned()).unwrap();
        let mut service = CompiledService::new(key.clone());
        service.ports = vec![serde_json::from_value(port).unwrap()];
        let dataplane = MemoryKernel::default().open_as(ProxyMode::Nftables);
        let mut watch = Watch::default();
        let mut watched = |service: Option<&CompiledService>| {
            watch.note(&key, service);
            (watch.contains(&key), watch.warning(&dataplane).is_some())
        };
        assert_eq!(watched(Some(&service)), (false, false), "checks by default are off");
        service.default_check = DefaultCheck::On;
        assert_eq!(watched(Some(&service)), (true, false));
        service.default_check = DefaultCheck::Exempt;
        assert_eq!(watched(Some(&service)), (false, false));
        let check = json!({ "type": "Tcp", "passive": true });
        service.health_check = Some(Box::new(serde_json::from_value(check).unwrap()));
        assert_eq!(watched(Some(&service)), (true, true));
        assert_eq!(watched(None), (false, false));
        assert!(watch.is_empty());
    }
}
