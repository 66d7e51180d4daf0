//! Failed Services with the cause: rejected by the kernel, an error in the agent itself, or an unsupported
//! feature.

use std::{collections::BTreeMap, sync::Arc};

use base::limit_message;
use dataplane::{DesiredState, Outcome, Scope};
use model::{
    kinds::resource::ServiceKey,
    wire::report::{FAILURES_MAX, Failure, FailureReason},
};
use tracing::{info, warn};

use crate::state::desired::DesiredBuilder;

/// Current failures of Services: those rejected by the kernel, and those that failed in the agent itself.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    refused: BTreeMap<ServiceKey, Failure>,
    /// Failures in the agent itself, such as a health check port in use. They are retried independently of
    /// kernel updates.
    aside: BTreeMap<ServiceKey, Failure>,
    /// Cached result of [`Self::failures`]; `None` after a change.
    shown: Option<FailureCache>,
}

#[derive(Debug)]
struct FailureCache {
    failures: Arc<BTreeMap<ServiceKey, Failure>>,
    unsupported_version: u64,
}

impl Outcomes {
    /// Returns the Services whose kernel objects differ from the desired state; they are retried.
    pub(super) fn refused(&self) -> impl Iterator<Item = &ServiceKey> {
        self.refused.keys()
    }

    /// Returns the failure of a Service that the kernel rejected or that failed in the agent itself; `None`
    /// for other Services.
    pub(super) fn failure(&self, service: &ServiceKey) -> Option<&Failure> {
        self.refused.get(service).or_else(|| self.aside.get(service))
    }

    /// Records the Services that failed in a pass (update of the kernel), and clears the failures of the
    /// other Services in `scope`. Returns true if a Service failed that had not failed before.
    pub(super) fn take(
        &mut self,
        scope: &Scope,
        outcomes: BTreeMap<ServiceKey, Outcome>,
        desired: &DesiredState,
    ) -> bool {
        let mut before = match scope {
            Scope::Everything => std::mem::take(&mut self.refused),
            Scope::Services(keys) => {
                keys.iter().filter_map(|key| self.refused.remove_entry(key)).collect::<BTreeMap<_, _>>()
            }
        };
        let mut has_new = false;
        let had_any = !before.is_empty();
        for (service, outcome) in outcomes {
            let previous = before.remove(&service);
            match outcome {
                Outcome::Verified if previous.is_some() => {
                    info!(%service, "the Service is programmed as desired again")
                }
                Outcome::Verified => {}
                Outcome::Failed { reason, message } => {
                    let revision =
                        desired.programs.get(&service).map(|desired| desired.revision).unwrap_or_default();
                    let failure = Failure { revision, reason, message: limit_message(message) };
                    if previous.as_ref() != Some(&failure) {
                        warn!(%service, ?reason, message = failure.message, "the Service cannot be programmed");
                    }
                    has_new |= previous.is_none();
                    self.refused.insert(service, failure);
                }
            }
        }
        if had_any || !self.refused.is_empty() {
            self.shown = None;
        }
        has_new
    }

    /// Replaces the recorded failures of the agent itself (as opposed to rejections by the kernel) by
    /// `failures`: pairs of a Service and a message, all with the same `reason`.
    pub(super) fn set_aside<'a>(
        &mut self,
        failures: impl Iterator<Item = (&'a ServiceKey, &'a str)>,
        reason: FailureReason,
        desired: &DesiredState,
    ) {
        let failure = |(service, message): (&ServiceKey, &str)| {
            let revision = desired.programs.get(service).map(|desired| desired.revision).unwrap_or_default();
            (service.clone(), Failure { revision, reason, message: limit_message(message.to_owned()) })
        };
        self.aside = failures.map(failure).collect();
        self.shown = None;
    }

    /// Returns the failures by Service, at most as many as a report may list, and the total number of
    /// failures.
    pub(super) fn failures(&mut self, derived: &DesiredBuilder) -> (Arc<BTreeMap<ServiceKey, Failure>>, u64) {
        let (unsupported, version) = (derived.unsupported(), derived.unsupported_version());
        // A Service listed here that also has a failure in the rules is reported with that one.
        let aside = self.aside.iter().filter(|(service, _)| {
            !self.refused.contains_key(*service) && !unsupported.contains_key(*service)
        });
        let severable = derived.severable().iter().filter(|(service, _)| {
            !self.refused.contains_key(*service) && !self.aside.contains_key(*service)
        });
        let total =
            (self.refused.len() + aside.clone().count() + unsupported.len() + severable.clone().count())
                as u64;
        if let Some(shown) = self.shown.as_ref().filter(|shown| shown.unsupported_version == version) {
            return (Arc::clone(&shown.failures), total);
        }
        // Kernel rejections come first: they are news, while an unsupported field is visible in the Service.
        let all = self.refused.iter().chain(aside).chain(unsupported).chain(severable).take(FAILURES_MAX);
        let failures = Arc::new(all.map(|(key, failure)| (key.clone(), failure.clone())).collect());
        self.shown = Some(FailureCache { failures: Arc::clone(&failures), unsupported_version: version });
        (failures, total)
    }
}
