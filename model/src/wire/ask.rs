//! Queries from a control server to one node, and their replies, for information that only the node has.
//!
//! A query is a frame of the feed, and a reply is a request of the agent (`PUT /v1/nodes/{node}/answers/{id}`).
//! The control server does not depend on a reply: the caller waits for a limited time and then reports a timeout.

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
/// Maximum size of a reply in bytes of JSON; sufficient for a plan with the maximum number of lines of ordinary
/// length.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Id of a query, unique until the control server restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct AskId(pub u64);

/// Query from a control server to an agent. The field `ask` selects the type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub enum Question {
    /// Query for the effect of the contained proposed state on the node.
    Plan(Box<Proposal>),
    /// Query for the differences between the two contained proposed states in the node's kernel and
    /// announcements.
    Compare(Box<Comparison>),
    /// Query for the treatment of the contained packet by the node's kernel.
    Trace(Packet),
    /// Query for findings about the machine, such as missing kernel modules.
    Doctor,
    /// Confirmation of a state that the node rejects because it would remove too much.
    Confirm {
        /// Epoch of the store to which the rejected state belongs.
        epoch: Epoch,
    },
    /// Request to apply fixes on the machine. An agent applies them only if its operator has permitted this.
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
    /// Reply to [`Question::Confirm`]: the state that was rejected before and is applied now.
    Confirmed(HeldState),
    /// The query failed on the node; contains the error.
    Failed {
        /// Reason of the failure for users, at most 1024 bytes.
        #[schema(max_length = 1024)]
        message: String,
    },
}
