//! Changes between two versions of the overview, which a watcher receives and applies to its copy.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{ConvergenceBrief, NodeRow, Overview, Problem, Replica, ServiceRow, Totals};
use crate::primitives::{
    name::{Name, Namespace},
    quantity::{Position, Timestamp},
};

/// Line of the overview watch stream (NDJSON).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum OverviewFrame {
    /// Whole overview; always the first line.
    Overview(Box<Overview>),
    /// Changes since the previous line.
    Change(Box<OverviewChange>),
    /// Heartbeat line without changes; a line is sent at least every 2 seconds.
    Heartbeat(OverviewHeartbeat),
    /// Error that ends the watch; always the last line.
    Error(OverviewError),
}

/// Heartbeat of the overview watch: the overview has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverviewHeartbeat {
    /// Position (epoch and revision) of the state that the overview describes.
    pub position: Position,
    /// Time of the heartbeat.
    pub at: Timestamp,
}

/// Error that ends the watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverviewError {
    /// Problem details (RFC 9457).
    #[schema(value_type = Object)]
    pub problem: Value,
}

/// Changes of the overview since the previous line. Absent fields are unchanged; present ones replace the
/// former value, or are merged into the former list (`services`, `nodes` and `problems`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverviewChange {
    /// Position (epoch and revision) of the state that the overview describes.
    pub position: Position,
    /// Time at which the overview was computed.
    pub at: Timestamp,
    /// New value of `replica`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<Replica>,
    /// New value of `isWhole`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_whole: Option<bool>,
    /// New value of `totals`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// New value of `convergence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<ConvergenceBrief>,
    /// New value of `problemsTotal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems_total: Option<usize>,
    /// Changes of the list of Services (`services`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceChanges>,
    /// Changes of the list of Nodes (`nodes`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeChanges>,
    /// New and changed problems, and the order of all problems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<ProblemChanges>,
}

/// Changes of the list of Services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewServiceChanges)]
#[serde(rename_all = "camelCase")]
pub struct ServiceChanges {
    /// New and changed entries of the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<ServiceRow>)]
    pub changed: Vec<Arc<ServiceRow>>,
    /// Keys of Services that are no longer in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<ServiceName>,
}

/// Namespace and name of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewServiceName)]
#[serde(rename_all = "camelCase")]
pub struct ServiceName {
    /// Namespace of the Service.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Name of the Service.
    pub name: Name,
}

/// Changes of the list of Nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewNodeChanges)]
#[serde(rename_all = "camelCase")]
pub struct NodeChanges {
    /// New and changed entries of the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<NodeRow>,
    /// Names of Nodes that are no longer in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Name>,
}

/// Changes of the list of problems.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverviewProblemChanges)]
#[serde(rename_all = "camelCase")]
pub struct ProblemChanges {
    /// New or changed problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Problem>,
    /// Identifiers of all listed problems in their new order. A problem whose identifier is absent must be
    /// removed.
    pub order: Vec<String>,
}

/// Returns the changes from `old` to `new`, or `None` if at most the time of computation differs.
#[must_use]
pub fn between(old: &Overview, new: &Overview) -> Option<OverviewChange> {
    let Overview {
        position,
        at,
        // Constant while a server runs.
        version: _,
        insecure: _,
        read_only: _,
        replica,
        is_whole,
        totals,
        convergence,
        services: _,
        nodes: _,
        problems: _,
        problems_total,
    } = new;
    let change = OverviewChange {
        position: *position,
        at: *at,
        replica: (old.replica != *replica).then(|| replica.clone()),
        is_whole: (old.is_whole != *is_whole).then_some(*is_whole),
        totals: (old.totals != *totals).then_some(*totals),
        convergence: (old.convergence != *convergence).then(|| convergence.clone()),
        problems_total: (old.problems_total != *problems_total).then_some(*problems_total),
        services: services(old, new),
        nodes: nodes(old, new),
        problems: problems(old, new),
    };
    let is_empty = OverviewChange { position: old.position, at: old.at, ..change.clone() } == nothing(old);
    (!is_empty || old.position != *position).then_some(change)
}

/// Returns a change without differences to the overview `old`, in which the caller then sets the fields that
/// differ.
fn nothing(old: &Overview) -> OverviewChange {
    OverviewChange {
        position: old.position,
        at: old.at,
        replica: None,
        is_whole: None,
        totals: None,
        convergence: None,
        problems_total: None,
        services: None,
        nodes: None,
        problems: None,
    }
}

fn services(old: &Overview, new: &Overview) -> Option<ServiceChanges> {
    let key =
        |row: &Arc<ServiceRow>| ServiceName { namespace: row.namespace.clone(), name: row.name.clone() };
    let compare = |a: &Arc<ServiceRow>, b: &Arc<ServiceRow>| {
        // Shared rows have equal names.
        if Arc::ptr_eq(a, b) {
            Ordering::Equal
        } else {
            (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name))
        }
    };
    let (changed, removed) = rows(&old.services, &new.services, compare);
    let changes = ServiceChanges { changed, removed: removed.into_iter().map(key).collect() };
    (changes != ServiceChanges::default()).then_some(changes)
}

fn nodes(old: &Overview, new: &Overview) -> Option<NodeChanges> {
    let (changed, removed) = rows(&old.nodes, &new.nodes, |a, b| a.name.cmp(&b.name));
    let changes = NodeChanges { changed, removed: removed.into_iter().map(|row| row.name.clone()).collect() };
    (changes != NodeChanges::default()).then_some(changes)
}

/// Compares two lists of rows that are sorted by `compare`. Returns the new and changed rows, and the rows
/// that were removed.
fn rows<'a, Row: Clone + PartialEq>(
    old: &'a [Row],
    new: &[Row],
    compare: impl Fn(&Row, &Row) -> Ordering,
) -> (Vec<Row>, Vec<&'a Row>) {
    let (mut changed, mut removed) = (Vec::new(), Vec::new());
    let mut before = old.iter().peekable();
    for row in new {
        while let Some(gone) = before.next_if(|before| compare(before, row) == Ordering::Less) {
            removed.push(gone);
        }
        match before.next_if(|before| compare(before, row) == Ordering::Equal) {
            Some(same) if same == row => {}
            Some(_) | None => changed.push(row.clone()),
        }
    }
    removed.extend(before);
    (changed, removed)
}

fn problems(old: &Overview, new: &Overview) -> Option<ProblemChanges> {
    if old.problems == new.problems {
        return None;
    }
    let before: BTreeMap<&str, &Problem> = old.problems.iter().map(|one| (one.id.as_str(), one)).collect();
    let is_new = |one: &&Problem| before.get(one.id.as_str()).is_none_or(|before| *before != *one);
    Some(ProblemChanges {
        changed: new.problems.iter().filter(is_new).cloned().collect(),
        order: new.problems.iter().map(|one| one.id.clone()).collect(),
    })
}

impl Overview {
    /// Applies a change to the overview.
    pub fn apply(&mut self, change: OverviewChange) {
        let OverviewChange {
            position,
            at,
            replica,
            is_whole,
            totals,
            convergence,
            problems_total,
            services,
            nodes,
            problems,
        } = change;
        (self.position, self.at) = (position, at);
        replace(&mut self.replica, replica);
        replace(&mut self.is_whole, is_whole);
        replace(&mut self.totals, totals);
        replace(&mut self.convergence, convergence);
        replace(&mut self.problems_total, problems_total);
        if let Some(ServiceChanges { changed, removed }) = services {
            let key = |row: &Arc<ServiceRow>| ServiceName {
                namespace: row.namespace.clone(),
                name: row.name.clone(),
            };
            merge(&mut self.services, changed, &removed, key);
        }
        if let Some(NodeChanges { changed, removed }) = nodes {
            merge(&mut self.nodes, changed, &removed, |row| row.name.clone());
        }
        if let Some(ProblemChanges { changed, order }) = problems {
            let mut known: BTreeMap<String, Problem> =
                self.problems.drain(..).map(|one| (one.id.clone(), one)).collect();
            known.extend(changed.into_iter().map(|one| (one.id.clone(), one)));
            self.problems = order.iter().filter_map(|id| known.remove(id)).collect();
        }
    }
}

fn replace<T>(field: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *field = new;
    }
}

fn merge<Row, Key: Ord>(rows: &mut Vec<Row>, changed: Vec<Row>, removed: &[Key], key: impl Fn(&Row) -> Key) {
    let mut known: BTreeMap<Key, Row> = rows.drain(..).map(|row| (key(&row), row)).collect();
    for gone in removed {
        known.remove(gone);
    }
    known.extend(changed.into_iter().map(|row| (key(&row), row)));
    rows.extend(known.into_values());
}
