//! Propagation time of changes to the nodes: percentiles for each node, and the slowest node with the reason.
//!
//! The figures cover only the last changes, which the server keeps in memory. No decision depends on them.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    observed::rollup::NodeView,
    primitives::{
        name::Name,
        quantity::{Position, Revision},
    },
};

/// Maximum number of nodes listed in one response, slowest first.
pub const NODES_LISTED_MAX: usize = 1000;

/// Times in milliseconds from the commit of a change until reports of one node confirmed that the node
/// received, programmed and verified the change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps {
    /// Time until a report confirmed that the node received the change; `None` if not yet.
    pub received: Option<u64>,
    /// Time until a report confirmed that the node programmed the change in its kernel; `None` if not yet.
    pub applied: Option<u64>,
    /// Time until a report confirmed that the node verified the change by reading its kernel; `None` if not yet.
    pub verified: Option<u64>,
    /// True if already the first report of the node to this server confirmed the change, or if the node was
    /// disconnected after the commit. The times then say nothing about the time that changes take.
    pub is_after_silence: bool,
}

/// Progress of all nodes with one change that affects nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeProgress {
    /// Revision of the change.
    pub revision: Revision,
    /// Time since the commit of the change, in milliseconds.
    pub age_ms: u64,
    /// Confirmation times by node.
    pub nodes: BTreeMap<Name, Steps>,
}

/// Progress of one node with a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NodeConvergence)]
pub struct NodeProgress {
    /// Name of the Node.
    #[schema(value_type = String)]
    pub node: Name,
    /// Time in milliseconds from the commit until a report confirmed that the node received the write. Absent
    /// until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_ms: Option<u64>,
    /// Time in milliseconds from the commit until a report confirmed that the node programmed the write in
    /// its kernel. Absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_ms: Option<u64>,
    /// Time in milliseconds from the commit until a report confirmed that the node verified the write by
    /// reading its kernel. Absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_ms: Option<u64>,
    /// Reason why the node has not verified the write. Absent if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Progress of all nodes with a write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ConvergenceAnswer)]
pub struct ChangeConvergence {
    /// Revision created by the write.
    pub revision: Revision,
    /// True if the write changes data that nodes receive.
    pub concerns_nodes: bool,
    /// Time since the commit in milliseconds.
    pub age_ms: u64,
    /// Number of nodes that have verified the write.
    pub verified: u64,
    /// Number of nodes that have to verify the write.
    pub total: u64,
    /// Time in milliseconds from the commit until 50 % of the nodes counted in `verified` had verified the
    /// write. Absent if `verified` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// Time in milliseconds from the commit until 99 % of the nodes counted in `verified` had verified the
    /// write. Absent if `verified` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// Time in milliseconds from the commit until all nodes counted in `verified` had verified the write.
    /// Absent if `verified` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// Progress of each node: pending nodes first, then the slowest.
    pub nodes: Vec<NodeProgress>,
}

/// Propagation time of changes to the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LagOverview {
    /// Number of changes from which the times are computed: at most the last 256 changes that affect nodes,
    /// since the start of the server.
    pub changes: usize,
    /// Median time from a commit until a node has verified the change, in milliseconds. Absent before the first
    /// measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// 99th percentile of the time from a commit until a node has verified the change, in milliseconds. Changes that
    /// were committed while the node was disconnected do not count. Absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// Slowest node: the node that has lacked a change for longest or, if no node lacks one, the node with
    /// the longest measured propagation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<NodeLag>,
    /// Nodes, slowest first; at most 1000.
    #[schema(max_items = 1000)]
    pub nodes: Vec<NodeLag>,
    /// Number of nodes beyond the limit of `nodes`.
    pub nodes_omitted: usize,
}

/// Propagation time of changes to one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLag {
    /// Name of the node.
    pub node: Name,
    /// Number of changes with a measured time until the node verified them.
    pub measured: usize,
    /// Median time until the node has verified a change, in milliseconds. Absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// 99th percentile of the time until the node has verified a change, in milliseconds. Absent before the first
    /// measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// Number of changes that the node has not verified yet.
    pub waiting: usize,
    /// Age of the oldest change that the node has not verified, in milliseconds. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_ms: Option<u64>,
    /// Machine-readable reason of the delay: the step that the oldest unverified change still lacks or, if
    /// all changes are verified, the slowest step of the slowest change.
    pub reason: LagReason,
    /// Description of the delay for users. The text may change between releases.
    pub message: String,
}

/// Reason of a node's delay: the step that the oldest unverified change still lacks or, if all changes are
/// verified, the slowest step of the slowest change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum LagReason {
    /// The agent does not report.
    AgentSilent,
    /// The agent has not received the change.
    NotReceived,
    /// The agent has received the change but not programmed it in the kernel.
    NotApplied,
    /// The agent has programmed the change but not verified it by reading the kernel.
    NotVerified,
    /// The slowest step of the slowest change was its delivery to the agent.
    Delivery,
    /// The slowest step of the slowest change was its programming in the kernel.
    Programming,
    /// The slowest step of the slowest change was its verification by reading the kernel.
    ReadingBack,
    /// One report confirmed all steps of the slowest change, so the times of the single steps are unknown.
    OneReport,
    /// No propagation time has been measured yet, because no change was committed since the first report of
    /// the node.
    NothingMeasured,
}

/// Returns the given percentile of values in ascending order, by the nearest-rank method; `None` if there are
/// no values.
#[must_use]
pub fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Computes the propagation times of the last changes, for all nodes together and for each node. `epoch` is
/// any position in the store's epoch; its revision is ignored.
#[must_use]
pub fn overview(changes: &[ChangeProgress], views: &[NodeView<'_>], epoch: Position) -> LagOverview {
    let mut nodes: Vec<_> = views.iter().map(|view| node_lag(changes, view, epoch)).collect();
    nodes.sort_by_cached_key(|lag| (Reverse((lag.waiting_ms, lag.p99_ms)), lag.node.clone()));
    let known =
        |view: &NodeView<'_>| changes.iter().filter_map(|change| measured(change, view.name)).collect();
    let mut all: Vec<u64> = views.iter().flat_map(|view| -> Vec<u64> { known(view) }).collect();
    all.sort_unstable();
    let slowest = nodes.first().filter(|lag| lag.waiting > 0 || lag.measured > 0).cloned();
    let nodes_omitted = nodes.len().saturating_sub(NODES_LISTED_MAX);
    nodes.truncate(NODES_LISTED_MAX);
    LagOverview {
        changes: changes.len(),
        p50_ms: percentile(&all, 50),
        p99_ms: percentile(&all, 99),
        slowest,
        nodes,
        nodes_omitted,
    }
}

/// Progress of all nodes with one change, as in [`ChangeProgress`] but with a reference to the times.
#[derive(Debug, Clone, Copy)]
pub struct ChangeView<'a> {
    /// Revision of the change.
    pub revision: Revision,
    /// Time since the commit of the change, in milliseconds.
    pub age_ms: u64,
    /// Confirmation times by node.
    pub nodes: &'a BTreeMap<Name, Steps>,
}

/// Propagation times of the last changes over all nodes, short enough for one line of output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LagBrief {
    /// Median time from a commit until a node has verified the change, in milliseconds; `None` before the first
    /// measurement.
    pub p50_ms: Option<u64>,
    /// 99th percentile of the time from a commit until a node has verified the change, in milliseconds; `None`
    /// before the first measurement.
    pub p99_ms: Option<u64>,
    /// Slowest node, with a time in milliseconds and the reason: the node that has lacked a change for
    /// longest (time: age of this change) or, if no node lacks one, the node with the longest measured
    /// propagation time.
    pub slowest: Option<(Name, u64, LagReason)>,
    /// For each node, in the order of names: age in milliseconds of the oldest change that the node has not
    /// verified, `None` if it has verified all changes.
    pub waiting_ms: Vec<Option<u64>>,
}

/// Computes a short summary of the propagation times over all nodes. `changes` must be sorted by age, oldest
/// first, and `views` by name. `head` is any position in the store's epoch; its revision is ignored.
#[must_use]
pub fn brief(changes: &[ChangeView<'_>], views: &[NodeView<'_>], head: Position) -> LagBrief {
    let (mut all, mut longest) = (Vec::new(), None);
    for change in changes {
        let mut nodes = views.iter().peekable();
        for (name, steps) in change.nodes {
            while nodes.next_if(|view| view.name < name).is_some() {}
            let Some(view) = nodes.next_if(|view| view.name == name) else { continue };
            let Some(took) = steps.verified.filter(|_| !steps.is_after_silence) else { continue };
            all.push(took);
            longest = longest.max(Some((took, Reverse(view.name))));
        }
    }
    all.sort_unstable();
    let waiting_ms: Vec<_> = views.iter().map(|view| oldest_lacking(changes, view, head)).collect();
    let waiting =
        waiting_ms.iter().zip(views).filter_map(|(waits, view)| Some(((*waits)?, Reverse(view.name))));
    let slowest = waiting.max().or(longest).and_then(|(took, Reverse(name))| {
        let of_node = |change: &ChangeView<'_>| ChangeProgress {
            revision: change.revision,
            age_ms: change.age_ms,
            nodes: change
                .nodes
                .get_key_value(name)
                .map(|(name, steps)| (name.clone(), *steps))
                .into_iter()
                .collect(),
        };
        let own: Vec<_> = changes.iter().map(of_node).collect();
        let view = views.iter().find(|view| view.name == name)?;
        Some((name.clone(), took, node_lag(&own, view, head).reason))
    });
    LagBrief { p50_ms: percentile(&all, 50), p99_ms: percentile(&all, 99), slowest, waiting_ms }
}

fn oldest_lacking(changes: &[ChangeView<'_>], view: &NodeView<'_>, head: Position) -> Option<u64> {
    let verified = view.report.map(|report| report.verified);
    let has = |change: &ChangeView<'_>| {
        verified.is_some_and(|verified| verified >= Position { revision: change.revision, ..head })
    };
    changes.get(changes.partition_point(has)).map(|change| change.age_ms)
}

fn node_lag(changes: &[ChangeProgress], view: &NodeView<'_>, head: Position) -> NodeLag {
    let mut times: Vec<u64> = changes.iter().filter_map(|change| measured(change, view.name)).collect();
    times.sort_unstable();
    let lacks = |change: &&ChangeProgress| {
        let verified = view.report.map(|report| report.verified);
        verified.is_none_or(|verified| verified < Position { revision: change.revision, ..head })
    };
    let waiting: Vec<_> = changes.iter().filter(lacks).collect();
    let oldest = waiting.iter().max_by_key(|change| change.age_ms);
    let (reason, message) = match oldest {
        Some(change) => missing_step(view, Position { revision: change.revision, ..head }),
        None => slowest_step(changes, view.name),
    };
    NodeLag {
        node: view.name.clone(),
        measured: times.len(),
        p50_ms: percentile(&times, 50),
        p99_ms: percentile(&times, 99),
        waiting: waiting.len(),
        waiting_ms: oldest.map(|change| change.age_ms),
        reason,
        message,
    }
}

fn measured(change: &ChangeProgress, node: &Name) -> Option<u64> {
    change.nodes.get(node).filter(|steps| !steps.is_after_silence)?.verified
}

/// Returns the first step (receiving, programming or verifying) that a node has not completed for the change
/// at position `at`, as a reason and a message.
fn missing_step(view: &NodeView<'_>, at: Position) -> (LagReason, String) {
    let Some(report) = view.report.filter(|_| view.is_connected) else {
        return (LagReason::AgentSilent, "its agent does not report".to_owned());
    };
    let (reason, words) = if report.received < at {
        (LagReason::NotReceived, "its agent has not received it")
    } else if report.applied < at {
        (LagReason::NotApplied, "its agent has received it but not applied it yet")
    } else {
        (LagReason::NotVerified, "its agent has applied it but not verified it yet")
    };
    let failures = match report.failures_total {
        0 => String::new(),
        count => format!("; {count} Services failed on the node"),
    };
    (reason, format!("{words}{failures}"))
}

/// Returns the slowest step (receiving, programming or verifying) of the change that took longest on a node,
/// as a reason and a message.
fn slowest_step(changes: &[ChangeProgress], node: &Name) -> (LagReason, String) {
    let steps = changes.iter().filter(|change| measured(change, node).is_some());
    let slowest = steps.filter_map(|change| change.nodes.get(node)).max_by_key(|steps| steps.verified);
    let Some(Steps { received: Some(received), applied: Some(applied), verified: Some(verified), .. }) =
        slowest.copied()
    else {
        return (LagReason::NothingMeasured, "no change was committed since it reports".to_owned());
    };
    if received == verified {
        return (
            LagReason::OneReport,
            format!("one report confirmed all steps of its slowest change after {verified} ms"),
        );
    }
    let (programming, reading) = (applied.saturating_sub(received), verified.saturating_sub(applied));
    let reason = if received >= programming.max(reading) {
        LagReason::Delivery
    } else if programming >= reading {
        LagReason::Programming
    } else {
        LagReason::ReadingBack
    };
    let words = format!(
        "its slowest change was received after {received} ms, applied after {applied} ms and verified after {verified} ms"
    );
    (reason, words)
}
