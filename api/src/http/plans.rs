//! Plans. A plan is the effect of a write, computed without a commit. The server keeps the plan for one hour,
//! in which exactly this write can be applied. The write is validated (admitted) on the newest state. The
//! candidate state is the state that would result, including the nodes that would announce each address.
//!
//! ```text
//! request ─▶ admit on the newest state ─▶ assign announcing nodes ─▶ candidate state
//!                                                                       │ changes of the data of each node
//!                               each connected node: Question::Plan ◀───┘
//! ```
//! The connected nodes compute the changes to their kernels. The server waits for their replies for a limited
//! time.

mod candidate;
mod past;

pub(crate) use self::past::{Past, compare};
pub(crate) use crate::state::plan_cache::CachedPlan;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use futures::StreamExt as _;
use model::{
    admission::admit::{Outcome, Request},
    cluster::{change::Action, history},
    kinds::resource::{Kind, Object},
    primitives::name::Name,
    wire::{
        ask::{Question, Reply},
        feed::AddressState,
        plan::{AddressPlan, AddressUse, NodePlan, ObjectPlan, Plan, Preview, Proposal},
    },
};
use tokio::time::Instant;

use self::candidate::Candidate;
use crate::{
    base::error::Problem,
    context::server_state::ServerState,
    security::{Caller, Verb},
    state::{compiled_set::Delta, published::Published},
};

/// Lifetime of a plan in seconds: long enough for a review.
const LIFE_SECS: i64 = 60 * 60;
/// Maximum time for one node to preview a plan. A preview takes milliseconds.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time for all nodes to preview a plan; shorter than the timeout of a request.
const NODES_PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of nodes queried at the same time, which limits the memory of pending queries.
const NODES_AT_ONCE: usize = 16;
/// Maximum number of lines (changes to kernels and announcements) of all nodes together in one plan; further
/// lines are only counted.
const LINES_MAX: usize = 100_000;

/// Parameters of a plan request.
pub(crate) struct PlanRequest {
    /// Write to simulate.
    pub(crate) request: Request,
    /// Size of the request body in bytes.
    pub(crate) bytes: usize,
    /// True if the nodes are queried for the kernel changes that the write would cause.
    pub(crate) asks_nodes: bool,
}

/// Simulates a write and returns its effect on objects, addresses and, if `wish.asks_nodes` is set, on the
/// nodes. Keeps the write, so that it can be applied later.
pub(crate) async fn make(app: &ServerState, caller: &Caller, wish: PlanRequest) -> Result<Plan, Problem> {
    let PlanRequest { request, bytes, asks_nodes } = wish;
    let published = app.hub.load();
    let access = caller.access();
    access.check_write(&published.snapshot, &request, Some(Verb::Plan))?;
    let candidate = candidate::of(app, access, &published, &request)?;
    access.check_outcomes(&candidate.outcomes)?;
    let id = format!("{:016x}", app.source.seed());
    let now = app.source.now();
    let expires = model::primitives::quantity::Timestamp::from_unix_seconds(
        now.unix_seconds().saturating_add(LIFE_SECS),
    );
    let objects = candidate.outcomes.iter().filter_map(|outcome| object_plan(&published, outcome)).collect();
    let addresses = address_plans(&published, &candidate.published);
    let nodes = if asks_nodes {
        ask_all(app, proposals(&published, &candidate.published)).await
    } else {
        BTreeMap::new()
    };
    let Candidate { outcomes, guards, .. } = candidate;
    let plan = CachedPlan::of(request, bytes, &outcomes, &published);
    app.plans.keep(&access.key(), &id, plan, expires, now);
    Ok(Plan { id, position: published.position(), expires, objects, addresses, guards, nodes })
}

fn object_plan(before: &Published, outcome: &Outcome) -> Option<ObjectPlan> {
    let key = outcome.object.key();
    let old = before.snapshot.get(&key);
    let new: Option<&Object> = match outcome.action {
        Action::Unchanged => return None,
        Action::Created | Action::Updated => Some(&outcome.object),
        Action::Deleted | Action::Pruned => None,
    };
    let (fields, omitted) = history::differences(old.map(AsRef::as_ref), new);
    Some(ObjectPlan { object: key.to_string(), action: outcome.action, fields, omitted })
}

fn address_plans(before: &Published, after: &Published) -> Vec<AddressPlan> {
    let usage = |published: &Published, address: &IpAddr| {
        let state: &AddressState = &published.addresses.get(address)?.form;
        Some(AddressUse::of(state)).filter(|usage| !usage.services.is_empty())
    };
    let plan = |address: IpAddr| {
        let (before, after) = (usage(before, &address), usage(after, &address));
        (before != after).then_some(AddressPlan { address, before, after })
    };
    let deltas = after.addresses.since(before.snapshot.revision()).into_iter().flatten();
    let mut plans: Vec<_> = deltas
        .filter_map(|delta| match delta {
            Delta::Changed(entry) => plan(entry.form.address),
            Delta::Removed(address, _) => plan(address),
        })
        .collect();
    plans.sort_by_key(|plan| plan.address);
    plans
}

/// Returns for each node of the state `before` the changes that it would receive if `after` replaced this
/// state.
fn proposals(before: &Published, after: &Published) -> BTreeMap<Name, Proposal> {
    let mut common = Proposal::default();
    let since = before.snapshot.revision();
    for delta in after.compiled.since(since).into_iter().flatten() {
        match delta {
            Delta::Changed(entry) => common.services.push(Arc::clone(&entry.form)),
            Delta::Removed(service, _) => {
                common.removed.insert(service);
            }
        }
    }
    for delta in after.addresses.since(since).into_iter().flatten() {
        match delta {
            Delta::Changed(entry) => common.addresses.push(Arc::clone(&entry.form)),
            Delta::Removed(address, _) => {
                common.addresses_removed.insert(address);
            }
        }
    }
    common.network = (before.network != after.network).then(|| (*after.network).clone());
    let nodes = before.snapshot.list(Kind::Node, None, None).map(|node| &node.metadata.name);
    nodes
        .map(|name| {
            let state = after.node_state(name);
            let node = (before.node_state(name) != state).then_some(state);
            (name.clone(), Proposal { node, ..common.clone() })
        })
        .collect()
}

async fn ask_all(app: &ServerState, proposals: BTreeMap<Name, Proposal>) -> BTreeMap<Name, NodePlan> {
    let deadline = Instant::now() + NODES_PATIENCE;
    let questions = proposals.into_iter().map(|(node, proposal)| async move {
        let plan = if proposal.is_empty() {
            NodePlan { preview: Some(Preview::default()), error: None }
        } else {
            ask(app, &node, Question::Plan(Box::new(proposal)), deadline).await
        };
        (node, plan)
    });
    let mut plans: BTreeMap<_, _> =
        futures::stream::iter(questions).buffer_unordered(NODES_AT_ONCE).collect().await;
    limit_lines(&mut plans);
    plans
}

/// Truncates the lists of announcement changes and kernel changes of all nodes to [`LINES_MAX`] lines in
/// total, and adds the number of omitted lines to the preview of each node.
fn limit_lines(plans: &mut BTreeMap<Name, NodePlan>) {
    let mut room = LINES_MAX;
    for preview in plans.values_mut().filter_map(|plan: &mut NodePlan| plan.preview.as_mut()) {
        for lines in [&mut preview.announcements, &mut preview.kernel] {
            let kept = lines.len().min(room);
            preview.omitted += u64::try_from(lines.len() - kept).unwrap_or(u64::MAX);
            lines.truncate(kept);
            room -= kept;
        }
    }
}

async fn ask(app: &ServerState, node: &Name, question: Question, deadline: Instant) -> NodePlan {
    let error = |error: String| NodePlan { preview: None, error: Some(error) };
    let patience = NODE_PATIENCE.min(deadline.saturating_duration_since(Instant::now()));
    if patience.is_zero() {
        return error("the time limit was reached before the agent could be queried".to_owned());
    }
    match app.queries.ask(node, question, patience).await {
        Ok(Reply::Plan(preview)) => NodePlan { preview: Some(preview), error: None },
        Ok(Reply::Failed { message }) => error(message),
        Ok(Reply::Trace(_) | Reply::Doctor { .. } | Reply::Fix { .. } | Reply::Confirmed(_)) => {
            error("the agent sent a reply of another type".to_owned())
        }
        Err(reason) => error(reason.to_string()),
    }
}
