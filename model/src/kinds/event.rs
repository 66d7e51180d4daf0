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
    /// Another program changed kernel objects of the agent; the agent repaired them.
    DriftRepaired,
    /// The kernel could not be read or programmed at all.
    PassFailed,
    /// The agent changed to another proxy mode or variant of a mode.
    ModeChanged,
    /// The agent could not change to the requested proxy mode.
    ModeChangeFailed,
    /// Objects of another proxy mode were removed.
    LeftoversRemoved,
    /// A port that the agent serves on the node could not be opened.
    PortUnavailable,
    /// Stale conntrack entries could not be removed.
    ConntrackFailed,
    /// The state guard rejected a state from control that would remove too much.
    StateHeld,
    /// A rejected state was applied, or control no longer sends it.
    StateReleased,
    /// A BGP session is established.
    BgpSessionUp,
    /// A BGP session is no longer established, or failed for another reason than before.
    BgpSessionDown,
}
