//! Snapshot of the health of the checked endpoints, for reports and metrics. Cheap to clone.

use imbl::OrdMap;
use model::{
    kinds::{endpoint_health::CheckKey, resource::ServiceKey},
    wire::report::{CheckReport, CheckState},
};

/// Health of the endpoints that this node checks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckedEndpoints {
    /// Latest result of each endpoint, by Service.
    pub services: OrdMap<ServiceKey, OrdMap<CheckKey, CheckReport>>,
    /// Problem that affects the checks of this node as a whole, such as skipped endpoints; `None` if there is
    /// none.
    pub warning: Option<String>,
}

/// Number of checked endpoints in each health state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of endpoints without enough results to be healthy or unhealthy.
    pub pending: u64,
    /// Number of healthy endpoints.
    pub healthy: u64,
    /// Number of unhealthy endpoints.
    pub unhealthy: u64,
}

impl CheckedEndpoints {
    /// Returns the number of endpoints in each health state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for report in self.services.values().flat_map(OrdMap::values) {
            match report.state {
                CheckState::Pending => counts.pending += 1,
                CheckState::Healthy => counts.healthy += 1,
                CheckState::Unhealthy => counts.unhealthy += 1,
            }
        }
        counts
    }
}
