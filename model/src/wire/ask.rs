//! Queries from a control server to one node, and their replies, for information that only the node has.
//!
//! The server sends a query as a frame of the feed (the stream of state to the agent, see [`super::feed`]).
//! The agent sends the reply in an HTTP request: `PUT /v1/nodes/{node}/answers/{id}`. If no reply arrives in
//! time, the caller reports a timeout.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    primitives::quantity::{Epoch, Timestamp},
    wire::{
        doctor::{Finding, FixResult, SafeFix},
        hold::HeldState,
        plan::{Comparison, Preview, Proposal},
        trace::{Packet, PacketTrace},
    },
};

/// Maximum number of findings in the reply to a diagnosis.
pub const FINDINGS_MAX: usize = 256;
/// Maximum size of a reply in bytes of JSON; sufficient for the preview of a write with the maximum number of
/// changed lines, if these have ordinary lengths.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Id of a query, unique until the control server restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct AskId(pub u64);

/// Query from a control server to an agent. The field `ask` selects the type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub enum Question {
    /// Query for the effect that the contained proposed state would have on the node.
    Plan(Box<Proposal>),
    /// Query for the differences in the node's kernel and announcements between the two contained proposed
    /// states.
    Compare(Box<Comparison>),
    /// Query for the treatment of the contained packet by the node's kernel.
    Trace(Packet),
    /// Query for findings about the machine, such as missing kernel modules.
    Doctor,
    /// Request to apply a state that the node rejects, because this state would remove too much.
    Confirm {
        /// Epoch (identity) of the store to which the rejected state belongs.
        epoch: Epoch,
    },
    /// Request to apply fixes on the machine. An agent applies fixes only if an option of the agent permits
    /// this.
    Fix {
        /// Fixes to apply, at most 8.
        #[schema(max_items = 8)]
        fixes: BTreeSet<SafeFix>,
    },
}

/// Reply of an agent to a query. The field `answer` selects the type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Reply {
    /// Reply to [`Question::Plan`] and [`Question::Compare`]: the differences in the node's kernel and
    /// announcements.
    Plan(Preview),
    /// Reply to [`Question::Trace`]: the result for the packet according to the kernel.
    Trace(PacketTrace),
    /// Reply to [`Question::Doctor`]: findings about the machine.
    Doctor {
        /// Findings about the machine, at most 256.
        #[schema(max_items = 256)]
        findings: Vec<Finding>,
        /// Time of the node's clock after the examination (RFC 3339, UTC). Absent if the agent does not report it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        clock: Option<Timestamp>,
    },
    /// Reply to [`Question::Fix`]: results of the fixes.
    Fix {
        /// Result of each fix, at most 8.
        #[schema(max_items = 8)]
        fixes: Vec<FixResult>,
    },
    /// Reply to [`Question::Confirm`]: the state that the node rejected before and applies now.
    Confirmed(HeldState),
    /// The query failed on the node; contains the error.
    Failed {
        /// Reason of the failure for users, at most 1024 bytes.
        #[schema(max_length = 1024)]
        message: String,
    },
}
