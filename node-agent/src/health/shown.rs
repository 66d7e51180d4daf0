//! What the checks have found at one moment: read by the report and the metrics. A copy costs nothing.

use imbl::OrdMap;
use model::{
    kinds::{endpoint_health::CheckKey, resource::ServiceKey},
    wire::report::{CheckReport, CheckState},
};

/// The endpoints that this node checks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checked {
    /// What it holds of each, by Service.
    pub services: OrdMap<ServiceKey, OrdMap<CheckKey, CheckReport>>,
    /// What goes wrong with checking as such.
    pub warning: Option<String>,
}

/// How many endpoints are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Not decided yet.
    pub pending: u64,
    /// In order.
    pub healthy: u64,
    /// Not in order.
    pub unhealthy: u64,
}

impl Checked {
    /// Counts; walks all endpoints.
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
