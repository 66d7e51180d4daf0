//! Connections that endpoints refuse, where the backend sees it and a Service wants it to count: brought to whoever checks.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use model::{cluster::compiled::CompiledService, kinds::resource::ServiceKey};
use tracing::debug;

use crate::{dataplane::Dataplane, health::Checking};

/// Time between two questions to the backend.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Which Services want it, and when the backend is asked next.
#[derive(Debug, Default)]
pub(super) struct Watch {
    services: BTreeSet<ServiceKey>,
    next_at: Option<Instant>,
}

impl Watch {
    /// Notes what a Service wants.
    pub(super) fn note(&mut self, key: &ServiceKey, service: Option<&CompiledService>) {
        if service.and_then(|service| service.health_check.as_ref()).is_some_and(|check| check.passive) {
            self.services.insert(key.clone());
        } else {
            self.services.remove(key);
        }
    }

    /// Asks, if somebody wants to know and it is time.
    pub(super) fn turn(&mut self, dataplane: &mut dyn Dataplane, checking: &Checking, now: Instant) {
        if self.services.is_empty()
            || !dataplane.sees_refusals()
            || self.next_at.is_some_and(|next_at| now < next_at)
        {
            return;
        }
        self.next_at = Some(now + ASK_INTERVAL);
        match dataplane.refusals() {
            Ok(mut refusals) => {
                refusals.retain(|row| self.services.contains(&row.service));
                checking.refuse(refusals);
            }
            // The checks go on without it.
            Err(error) => debug!(%error, "who refuses connections was not read"),
        }
    }

    /// What is asked for and not carried out, in words.
    pub(super) fn warning(&self, dataplane: &dyn Dataplane) -> Option<String> {
        let first = self.services.first().filter(|_| !dataplane.sees_refusals())?;
        let (count, mode) = (self.services.len(), dataplane.mode().as_str());
        Some(format!(
            "healthCheck.passive of {count} Services, such as {first}, is not carried out: in {mode} mode nobody sees that \
             endpoints refuse connections"
        ))
    }
}
