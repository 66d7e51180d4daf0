//! Recomputed effect of a past write on the rulesets of the nodes. The states before and after the write are
//! derived from the newest state by undoing writes.
//!
//! ```text
//! newest state ─ undo later writes ─▶ state after the write ──┬─▶ each connected node: Question::Compare
//!                                          │                  │
//!                                    undo the write           │
//!                                          ▼                  │
//!                                 state before the write ─────┘
//! ```
//! The result may differ from the rulesets that the nodes had at the time: each node computes the difference
//! for its current proxy mode.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use model::{
    admission::rollback::{self, FormerStates},
    cluster::change::Commit,
    primitives::name::Name,
    wire::{
        ask::Question,
        plan::{Comparison, NodePlan, Preview},
    },
};
use tokio::time::Instant;

use super::{NODES_AT_ONCE, NODES_PATIENCE, ask, limit_lines, proposals};
use crate::{
    context::server_state::ServerState,
    state::published::{Published, Step},
};

/// Objects before and after a past write.
pub(crate) struct Past {
    /// States before the write, of all objects that the write or a later one has changed.
    pub(crate) before: FormerStates,
    /// States after the write, of all objects that a later write has changed.
    pub(crate) after: FormerStates,
}

/// Queries the nodes for the difference that a past write made to their rulesets, and returns it by node. A
/// node whose data the write did not change is not queried.
pub(crate) async fn compare(
    app: &ServerState,
    published: &Published,
    past: &Past,
) -> BTreeMap<Name, NodePlan> {
    let now = app.source.now();
    let of = |former: &FormerStates| {
        let (after, changes) = rollback::state(&published.snapshot, former);
        if changes.is_empty() {
            return published.clone();
        }
        let commit = Commit { revision: after.revision(), at: now, changes };
        published.advance(vec![Step { before: published.snapshot.clone(), after, commit }])
    };
    let mut from = proposals(published, &of(&past.before));
    let to = proposals(published, &of(&past.after));
    let deadline = Instant::now() + NODES_PATIENCE;
    let questions = to.into_iter().map(|(node, to)| {
        let comparison = Comparison { from: from.remove(&node).unwrap_or_default(), to };
        async move {
            let plan = if comparison.from == comparison.to {
                NodePlan { preview: Some(Preview::default()), error: None }
            } else {
                ask(app, &node, Question::Compare(Box::new(comparison)), deadline).await
            };
            (node, plan)
        }
    });
    let mut plans = futures::stream::iter(questions).buffer_unordered(NODES_AT_ONCE).collect().await;
    limit_lines(&mut plans);
    plans
}
