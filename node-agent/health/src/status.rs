//! Check results at one moment, read by reports and metrics. Cheap to clone.

use imbl::OrdMap;
use model::{
    kinds::{endpoint_health::CheckKey, resource::ServiceKey},
    wire::report::{CheckReport, CheckState},
};

/// Endpoints checked by this node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckedEndpoints {
    /// Result of each endpoint, by Service.
    pub services: OrdMap<ServiceKey, OrdMap<CheckKey, CheckReport>>,
    /// Problem of health checking itself.
    pub warning: Option<String>,
}

/// Numbers of endpoints by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Not decided yet.
    pub pending: u64,
    /// Healthy.
    pub healthy: u64,
    /// Unhealthy.
    pub unhealthy: u64,
}

impl CheckedEndpoints {
    /// Counts all endpoints.
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
