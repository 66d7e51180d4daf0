//! Number of connections that a target of a Service has refused. The relay of the userspace mode counts them,
//! and health checks evaluate the counts.

use model::{kinds::resource::ServiceKey, program::Target};
use serde::{Deserialize, Serialize};

/// Count of the connections that one target of a Service has refused since it last accepted one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// Service through which the clients connected.
    pub service: ServiceKey,
    /// Target that refused the connections.
    pub target: Target,
    /// Number of consecutive refused connections; at least 1.
    pub in_a_row: u64,
}
