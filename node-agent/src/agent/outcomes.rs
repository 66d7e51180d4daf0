//! Which Services are not as they should be: what the kernel refused, joined with what cannot be carried out.

use std::{collections::BTreeMap, sync::Arc};

use model::{
    kinds::resource::ServiceKey,
    wire::report::{FAILURES_MAX, Failure, FailureReason},
};
use tracing::{info, warn};

use crate::{
    dataplane::{Desired, Outcome, Scope},
    desired::{Derived, limit_message},
};

/// The failures that passes left behind.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    refused: BTreeMap<ServiceKey, Failure>,
    /// What the agent itself could not do; tried again by itself.
    aside: BTreeMap<ServiceKey, Failure>,
    /// What was shown last, kept while nothing changes so that a status costs nothing.
    shown: Option<Shown>,
}

#[derive(Debug)]
struct Shown {
    failures: Arc<BTreeMap<ServiceKey, Failure>>,
    unsupported_version: u64,
}

impl Outcomes {
    /// The Services that the kernel does not hold as it should; to be tried again.
    pub(super) fn refused(&self) -> impl Iterator<Item = &ServiceKey> {
        self.refused.keys()
    }

    /// Why the kernel does not hold a Service as it should, or the agent does not serve it.
    pub(super) fn failure(&self, service: &ServiceKey) -> Option<&Failure> {
        self.refused.get(service).or_else(|| self.aside.get(service))
    }

    /// Takes what came of a pass; says whether a Service failed that had not failed before.
    pub(super) fn take(
        &mut self,
        scope: &Scope,
        outcomes: BTreeMap<ServiceKey, Outcome>,
        desired: &Desired,
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
                    info!(%service, "the Service is as it should be again")
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

    /// Takes what the agent itself could not do for Services; it replaces what was said before.
    pub(super) fn set_aside<'a>(
        &mut self,
        failures: impl Iterator<Item = (&'a ServiceKey, &'a str)>,
        reason: FailureReason,
        desired: &Desired,
    ) {
        let failure = |(service, message): (&ServiceKey, &str)| {
            let revision = desired.programs.get(service).map(|desired| desired.revision).unwrap_or_default();
            (service.clone(), Failure { revision, reason, message: limit_message(message.to_owned()) })
        };
        self.aside = failures.map(failure).collect();
        self.shown = None;
    }

    /// All failures, at most as many as a report may list, and their number.
    pub(super) fn failures(&mut self, derived: &Derived) -> (Arc<BTreeMap<ServiceKey, Failure>>, u64) {
        let (unsupported, version) = (derived.unsupported(), derived.unsupported_version());
        // A Service whose rules fail, too, is said to fail for those.
        let aside = self.aside.iter().filter(|(service, _)| {
            !self.refused.contains_key(*service) && !unsupported.contains_key(*service)
        });
        let total = (self.refused.len() + aside.clone().count() + unsupported.len()) as u64;
        if let Some(shown) = self.shown.as_ref().filter(|shown| shown.unsupported_version == version) {
            return (Arc::clone(&shown.failures), total);
        }
        // What the kernel refused comes first: it is news, while an unsupported field is in the Service for all to see.
        let all = self.refused.iter().chain(aside).chain(unsupported).take(FAILURES_MAX);
        let failures = Arc::new(all.map(|(key, failure)| (key.clone(), failure.clone())).collect());
        self.shown = Some(Shown { failures: Arc::clone(&failures), unsupported_version: version });
        (failures, total)
    }
}
