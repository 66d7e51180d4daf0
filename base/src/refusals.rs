//! Refused connections per target, as a relay counts them and health checks evaluate them.

use model::{kinds::resource::ServiceKey, program::Target};
use serde::{Deserialize, Serialize};

/// Connections that one target of a Service has refused since the last connection that it accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// Service through which the clients connected.
    pub service: ServiceKey,
    /// Target that refused the connections.
    pub target: Target,
    /// Number of consecutive refused connections; at least 1.
    pub in_a_row: u64,
}
