//! Questions of control to one node, and the answers: what only the node can know, asked when somebody wants to know it.
//!
//! A question is a frame of the feed, an answer a request of the agent (`PUT /v1/nodes/{node}/answers/{id}`). Nothing
//! rests on an answer: who asked waits a while, and else says that the node did not answer.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    primitives::quantity::{Epoch, Timestamp},
    wire::{
        doctor::{Finding, FixDone, SafeFix},
        hold::Held,
        plan::{Comparison, Preview, Proposal},
        trace::{Packet, Traced},
    },
};

/// Findings in one answer.
pub const FINDINGS_MAX: usize = 256;
/// Bytes of an answer as JSON: the most lines that a plan lists, of a usual length.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Which question; unique in the life of a control server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct AskId(pub u64);

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub enum Question {
    /// What a change would do.
    Plan(Box<Proposal>),
    /// How the listings would differ between two states that may come.
    Compare(Box<Comparison>),
    /// What the kernel would do with a packet.
    Trace(Packet),
    /// What is odd on the machine.
    Doctor,
    /// Take the state that is held back, if it is of this life of the store.
    Confirm {
        /// Which life.
        epoch: Epoch,
    },
    /// To put right what is odd on the machine; an agent does so only where its operator has allowed it.
    Fix {
        /// What to do, of the closed list.
        #[schema(max_items = 8)]
        fixes: BTreeSet<SafeFix>,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Reply {
    /// To [`Question::Plan`], and to [`Question::Compare`]: what leads from the one state to the other.
    Plan(Preview),
    /// To [`Question::Trace`].
    Trace(Traced),
    /// To [`Question::Doctor`].
    Doctor {
        /// What was looked at.
        #[schema(max_items = 256)]
        findings: Vec<Finding>,
        /// What the node's clock showed after the look.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        clock: Option<Timestamp>,
    },
    /// To [`Question::Fix`].
    Fix {
        /// What came of each fix.
        #[schema(max_items = 8)]
        fixes: Vec<FixDone>,
    },
    /// To [`Question::Confirm`]: this was held, and is taken now.
    Confirmed(Held),
    /// The node cannot say.
    Failed {
        /// Why, in words.
        #[schema(max_length = 1024)]
        message: String,
    },
}
