//! Queries of control to one node and their replies, for information that only the node has.
//!
//! A query is a frame of the feed, and a reply is a request of the agent
//! (`PUT /v1/nodes/{node}/answers/{id}`). Control does not depend on a reply: the caller waits for a limited
//! time and reports a timeout.

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
/// Maximum size of a reply in bytes of JSON: the maximum number of lines of a plan with ordinary lengths.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Id of a query, unique within a run of a control server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct AskId(pub u64);

/// Query of control to an agent, distinguished by `ask`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub enum Question {
    /// Effect of a proposed state on the node.
    Plan(Box<Proposal>),
    /// Difference of the listings between two proposed states.
    Compare(Box<Comparison>),
    /// Effect of the kernel on a packet.
    Trace(Packet),
    /// Findings about the machine.
    Doctor,
    /// Confirmation of a rejected state of an epoch of the store.
    Confirm {
        /// Epoch of the rejected state.
        epoch: Epoch,
    },
    /// Fixes to apply on the machine. An agent applies them only if its operator has permitted this.
    Fix {
        /// Fixes to apply, from a fixed list.
        #[schema(max_items = 8)]
        fixes: BTreeSet<SafeFix>,
    },
}

/// Reply of an agent to a query, distinguished by `answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Reply {
    /// Reply to [`Question::Plan`] and [`Question::Compare`]: the difference between the states.
    Plan(Preview),
    /// Reply to [`Question::Trace`].
    Trace(PacketTrace),
    /// Reply to [`Question::Doctor`].
    Doctor {
        /// Findings about the machine, at most 256.
        #[schema(max_items = 256)]
        findings: Vec<Finding>,
        /// Time of the node after the examination (RFC 3339, UTC). Absent if the agent does not report it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        clock: Option<Timestamp>,
    },
    /// Reply to [`Question::Fix`].
    Fix {
        /// Results of the fixes, at most 8.
        #[schema(max_items = 8)]
        fixes: Vec<FixResult>,
    },
    /// Reply to [`Question::Confirm`]: the state that was rejected before and is applied now.
    Confirmed(HeldState),
    /// The query failed on the node.
    Failed {
        /// Reason for users, at most 1024 bytes.
        #[schema(max_length = 1024)]
        message: String,
    },
}
