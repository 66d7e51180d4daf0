//! Health checks by default: setting of the control server, and the Services that are exempt from it.

use std::sync::Arc;

use super::{
    compiled::DefaultCheck,
    quota::{QuotaResource, Quotas},
};
use crate::kinds::{
    metadata::{DEFAULT_HEALTH_CHECK, Metadata, NO_DEFAULT_CHECK},
    service::ServiceSpec,
};

/// Setting of the control server for health checks by default; off unless it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultChecks {
    is_on: bool,
    quotas: Arc<Quotas>,
}

impl DefaultChecks {
    /// Creates the setting. Namespaces with a quota on checked endpoints are exempt, because checks that nobody
    /// configured would use it up.
    #[must_use]
    pub fn new(is_on: bool, quotas: Quotas) -> Self {
        Self { is_on, quotas: Arc::new(quotas) }
    }

    /// Returns true if endpoints that nobody checks are checked by default.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the use of checks by default for a Service. Exempt are Services with the annotation
    /// [`DEFAULT_HEALTH_CHECK`], with `publishNotReadyAddresses`, without a virtual address, and in namespaces with a
    /// quota on checked endpoints.
    #[must_use]
    pub fn of(&self, metadata: &Metadata, spec: &ServiceSpec) -> DefaultCheck {
        let annotation = metadata.annotations.get(DEFAULT_HEALTH_CHECK);
        let has_quota = metadata
            .namespace
            .as_ref()
            .is_some_and(|namespace| self.quotas.limit(namespace, QuotaResource::CheckedEndpoints).is_some());
        let is_exempt = annotation.is_some_and(|value| value == NO_DEFAULT_CHECK)
            || spec.publish_not_ready_addresses
            || spec.is_headless()
            || has_quota;
        match (is_exempt, self.is_on) {
            (true, _) => DefaultCheck::Exempt,
            (false, true) => DefaultCheck::On,
            (false, false) => DefaultCheck::Off,
        }
    }
}
