//! Questions of control to one node, and the answers: what only the node can know, asked when somebody wants to know it.
//!
//! A question is a frame of the feed, an answer a request of the agent (`PUT /v1/nodes/{node}/answers/{id}`). Nothing
//! rests on an answer: who asked waits a while, and else says that the node did not answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    hold::Held,
    name::Name,
    plan::{Preview, Proposal},
    quantity::Epoch,
    trace::{Packet, Traced},
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
    /// What the kernel would do with a packet.
    Trace(Packet),
    /// What is odd on the machine.
    Doctor,
    /// Take the state that is held back, if it is of this life of the store.
    Confirm {
        /// Which life.
        epoch: Epoch,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Reply {
    /// To [`Question::Plan`].
    Plan(Preview),
    /// To [`Question::Trace`].
    Trace(Traced),
    /// To [`Question::Doctor`].
    Doctor {
        /// What was looked at.
        #[schema(max_items = 256)]
        findings: Vec<Finding>,
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

/// What the agent of a node found on its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// The node.
    pub node: Name,
    /// What was looked at.
    #[schema(max_items = 256)]
    pub findings: Vec<Finding>,
}

/// Something that was looked at on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// What was looked at, as a stable word such as `forward-policy`.
    #[schema(max_length = 64)]
    pub check: String,
    /// How it is.
    pub state: FindingState,
    /// What was found, in words.
    #[schema(max_length = 1024)]
    pub message: String,
    /// What to do about it, when it is not well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub fix: Option<String>,
}

/// How something is that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum FindingState {
    /// As it should be.
    Fine,
    /// It may do harm.
    Warning,
    /// It does harm.
    Broken,
}
