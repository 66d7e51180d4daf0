//! Refused connections, as a proxy mode counts them and health checks use them.

use model::{kinds::resource::ServiceKey, program::Target};
use serde::{Deserialize, Serialize};

/// Connections that a target of a Service has refused since the last one that it accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// The Service.
    pub service: ServiceKey,
    /// The target.
    pub target: Target,
    /// Number of refused connections in a row; at least 1.
    pub in_a_row: u64,
}
