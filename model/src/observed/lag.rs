//! How long changes take until the nodes have them: by node, with the slowest and why. Of the last changes that the server
//! remembers; nothing rests on it.

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

/// Nodes listed in one answer; the slowest come first.
pub const NODES_LISTED_MAX: usize = 1000;

/// When a node was told to have come how far with one change, in milliseconds after the commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps {
    /// Until a report said that it has arrived.
    pub received: Option<u64>,
    /// Until a report said that it is programmed.
    pub applied: Option<u64>,
    /// Until a report said that it was read back.
    pub verified: Option<u64>,
    /// The first report of the node in this life of the server said so: when it came that far is not known.
    pub is_first_report: bool,
}

/// One change that concerns nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision that it made.
    pub revision: Revision,
    /// How long ago it was committed, in milliseconds.
    pub age_ms: u64,
    /// What the nodes have said of it.
    pub nodes: BTreeMap<Name, Steps>,
}

/// How long changes take until the nodes have them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LagOverview {
    /// Changes that this is about: the last ones that concern nodes, 256 at most, of this life of the server.
    pub changes: usize,
    /// The time within which half of all was verified, in milliseconds; nothing before anything was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The time within which 99 of 100 were verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// The node that waits longest or, when none waits, took longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<NodeLag>,
    /// Every node, the slowest first.
    #[schema(max_items = 1000)]
    pub nodes: Vec<NodeLag>,
    /// Nodes that are not listed, for want of room.
    pub nodes_omitted: usize,
}

/// How long changes take until one node has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLag {
    /// Which node.
    pub node: Name,
    /// Changes of which it is known when the node had them verified.
    pub measured: usize,
    /// The time within which half of them was, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// The time within which 99 of 100 were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// Changes that it does not have verified.
    pub waiting: usize,
    /// How long the oldest of them waits, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_ms: Option<u64>,
    /// What it waits for, or where most of the time went, as a machine word.
    pub reason: LagReason,
    /// The same in words.
    pub message: String,
}

/// What a node waits for, or where the time of its slowest change went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum LagReason {
    /// Its agent does not report.
    AgentSilent,
    /// Its agent has not received it.
    NotReceived,
    /// Its agent has received it, and not programmed it yet.
    NotApplied,
    /// Its agent has programmed it, and not read it back yet.
    NotVerified,
    /// Most of the time went until its agent said that it has received it.
    Delivery,
    /// Most of the time went into programming.
    Programming,
    /// Most of the time went into reading back.
    ReadingBack,
    /// Its agent told everything by one report: where the time went is not known.
    OneReport,
    /// Nothing was measured: no change came since it reports.
    NothingMeasured,
}

/// The value that a share of sorted values does not exceed, by the nearest rank; `None` of nothing.
#[must_use]
pub fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Sums up what is known of the last changes.
#[must_use]
pub fn overview(changes: &[Change], views: &[NodeView<'_>], epoch: Position) -> LagOverview {
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

/// One change that concerns nodes, where it is kept.
#[derive(Debug, Clone, Copy)]
pub struct ChangeView<'a> {
    /// The revision that it made.
    pub revision: Revision,
    /// How long ago it was committed, in milliseconds.
    pub age_ms: u64,
    /// What the nodes have said of it.
    pub nodes: &'a BTreeMap<Name, Steps>,
}

/// What fits into one line of the last changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LagBrief {
    /// The time within which half of all was verified, in milliseconds; nothing before anything was measured.
    pub p50_ms: Option<u64>,
    /// The time within which 99 of 100 were verified.
    pub p99_ms: Option<u64>,
    /// The node that waits longest or, when none waits, took longest, with that time and the reason.
    pub slowest: Option<(Name, u64, LagReason)>,
    /// How long the oldest change waits that each node lacks, in the order of the nodes.
    pub waiting_ms: Vec<Option<u64>>,
}

/// Sums up what is known of the last changes, the oldest first, in one walk over it. The nodes are in the order of names.
#[must_use]
pub fn brief(changes: &[ChangeView<'_>], views: &[NodeView<'_>], head: Position) -> LagBrief {
    let (mut all, mut longest) = (Vec::new(), None);
    for change in changes {
        let mut nodes = views.iter().peekable();
        for (name, steps) in change.nodes {
            while nodes.next_if(|view| view.name < name).is_some() {}
            let Some(view) = nodes.next_if(|view| view.name == name) else { continue };
            let Some(took) = steps.verified.filter(|_| !steps.is_first_report) else { continue };
            all.push(took);
            longest = longest.max(Some((took, Reverse(view.name))));
        }
    }
    all.sort_unstable();
    let waiting_ms: Vec<_> = views.iter().map(|view| oldest_lacking(changes, view, head)).collect();
    let waiting =
        waiting_ms.iter().zip(views).filter_map(|(waits, view)| Some(((*waits)?, Reverse(view.name))));
    let slowest = waiting.max().or(longest).and_then(|(took, Reverse(name))| {
        let of_node = |change: &ChangeView<'_>| Change {
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

fn node_lag(changes: &[Change], view: &NodeView<'_>, head: Position) -> NodeLag {
    let mut times: Vec<u64> = changes.iter().filter_map(|change| measured(change, view.name)).collect();
    times.sort_unstable();
    let lacks = |change: &&Change| {
        let verified = view.report.map(|report| report.verified);
        verified.is_none_or(|verified| verified < Position { revision: change.revision, ..head })
    };
    let waiting: Vec<_> = changes.iter().filter(lacks).collect();
    let oldest = waiting.iter().max_by_key(|change| change.age_ms);
    let (reason, message) = match oldest {
        Some(change) => waits_for(view, Position { revision: change.revision, ..head }),
        None => went_into(changes, view.name),
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

fn measured(change: &Change, node: &Name) -> Option<u64> {
    change.nodes.get(node).filter(|steps| !steps.is_first_report)?.verified
}

/// Why a node does not have a state verified.
fn waits_for(view: &NodeView<'_>, at: Position) -> (LagReason, String) {
    let Some(report) = view.report.filter(|_| view.is_connected) else {
        return (LagReason::AgentSilent, "its agent does not report".to_owned());
    };
    let (reason, words) = if report.received < at {
        (LagReason::NotReceived, "its agent has not received it")
    } else if report.applied < at {
        (LagReason::NotApplied, "its agent has received it, and not applied it yet")
    } else {
        (LagReason::NotVerified, "its agent has applied it, and not verified it yet")
    };
    let failures = match report.failures_total {
        0 => String::new(),
        count => format!("; {count} Services failed on the node"),
    };
    (reason, format!("{words}{failures}"))
}

/// Where the time of a node's slowest change went.
fn went_into(changes: &[Change], node: &Name) -> (LagReason, String) {
    let steps = changes.iter().filter(|change| measured(change, node).is_some());
    let slowest = steps.filter_map(|change| change.nodes.get(node)).max_by_key(|steps| steps.verified);
    let Some(Steps { received: Some(received), applied: Some(applied), verified: Some(verified), .. }) =
        slowest.copied()
    else {
        return (LagReason::NothingMeasured, "no change came since it reports".to_owned());
    };
    if received == verified {
        return (
            LagReason::OneReport,
            format!("one report told all of its slowest change after {verified} ms"),
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
