//! Events: notable occurrences on a node that an agent reports to operators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::quantity::Timestamp;

/// Something that happened on a node and that an operator may want to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// When it happened, or happened last.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// The machine word.
    pub reason: EventReason,
    /// What happened, in words.
    #[schema(max_length = 1024)]
    pub message: String,
    /// How often it happened in a row.
    pub count: u64,
}

/// The machine word of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum EventReason {
    /// Somebody else had changed what the agent programmed; it was repaired.
    DriftRepaired,
    /// The kernel could not be read or programmed as a whole.
    PassFailed,
    /// Another proxy mode, or another way of programming the same, has taken over.
    ModeChanged,
    /// Another proxy mode was asked for and could not take over.
    ModeChangeFailed,
    /// What another proxy mode had left was removed.
    LeftoversRemoved,
    /// A port of the node that the agent serves itself could not be had.
    PortUnavailable,
    /// Stale entries of connection tracking could not be removed.
    ConntrackFailed,
    /// Control offers a state that would take away too much; it is held back.
    StateHeld,
    /// A state that was held back has been taken, or is not offered any longer.
    StateReleased,
    /// A BGP session is established.
    BgpSessionUp,
    /// A BGP session is not established any longer, or could not be for another reason than before.
    BgpSessionDown,
}
