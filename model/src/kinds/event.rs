//! Events: notable occurrences on a node that its agent reports to operators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::quantity::Timestamp;

/// Notable occurrence on a node, reported by its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// Time of the last occurrence (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// Reason of the event, as a stable identifier.
    pub reason: EventReason,
    /// Description of the event for users, at most 1024 bytes. The text may change between releases.
    #[schema(max_length = 1024)]
    pub message: String,
    /// Number of consecutive occurrences of the same event, at least 1.
    pub count: u64,
}

/// Reason of an event: `DriftRepaired`, `PassFailed`, `ModeChanged`, `ModeChangeFailed`, `LeftoversRemoved`,
/// `PortUnavailable`, `ConntrackFailed`, `StateHeld`, `StateReleased`, `BgpSessionUp` or `BgpSessionDown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum EventReason {
    /// Another program had changed kernel objects of the agent, and the agent restored them.
    DriftRepaired,
    /// The agent could not read or program the kernel at all.
    PassFailed,
    /// The agent changed to another proxy mode, or to other options of the present mode, such as the naming
    /// of chains.
    ModeChanged,
    /// The agent could not change to the requested proxy mode.
    ModeChangeFailed,
    /// Kernel objects of another proxy mode were removed.
    LeftoversRemoved,
    /// The agent could not open a port at which it accepts connections on the node.
    PortUnavailable,
    /// Connection tracking entries of removed endpoints could not be deleted.
    ConntrackFailed,
    /// The agent rejected a state from the control server that would remove too much.
    StateHeld,
    /// The agent applied a state that it had rejected before, or the control server no longer sends this
    /// state.
    StateReleased,
    /// A BGP session is established.
    BgpSessionUp,
    /// A BGP session is no longer established, or a new attempt failed for a different reason.
    BgpSessionDown,
}
