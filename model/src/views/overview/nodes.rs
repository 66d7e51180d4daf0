//! How far a Node is.

use super::{
    BgpSessionTotals, Impact, NodeRow, NodeState,
    affects::{self, Forms},
    memory::{Basis, Finding},
};
use crate::{
    kinds::{
        condition_reason::ConditionReason,
        event::{Event, EventReason},
        resource::{Kind, ObjectKey, ServiceKey},
    },
    observed::{
        rollup::NodeView,
        status::{Condition, ConditionStatus, ConditionType, NodeStatus},
    },
    primitives::{name::Name, quantity::Timestamp},
    wire::report::Report,
};

/// How long a change may take before the node counts as behind, in milliseconds: far more than a change takes, and less than
/// anybody waits without asking.
pub const LAGGING_MILLIS: u64 = 2000;
/// How long a repaired drift is shown, in seconds: whoever is called because of it has opened the page by then.
pub const DRIFT_SHOWN_SECS: i64 = 600;
/// Services that failed on one node and are problems of their own; of more, the node is the problem.
pub const FAILURES_SAID_ALONE_MAX: u64 = 3;

/// What is known of a Node.
#[derive(Debug, Clone, Copy)]
pub struct NodeSight<'a> {
    /// What its agent says.
    pub view: &'a NodeView<'a>,
    /// What the roll-up says.
    pub status: &'a NodeStatus,
    /// Its zone.
    pub zone: Option<&'a str>,
    /// How long the oldest change waits that it lacks, in milliseconds; nothing when it lacks none, or none that is remembered.
    pub lag_millis: Option<u64>,
    /// Load balancer addresses that it announces by ARP or NDP.
    pub addresses: usize,
    /// Its sessions with routers.
    pub sessions: Option<BgpSessionTotals>,
}

/// Whether so much failed on a node that its own problem says it for all Services.
#[must_use]
pub fn says_failures(view: &NodeView<'_>) -> bool {
    view.report.is_some_and(|report| report.failures_total > FAILURES_SAID_ALONE_MAX)
}

/// Makes the row of a Node, and adds what is wrong with it.
pub fn judge(
    sight: &NodeSight<'_>,
    forms: &Forms<'_>,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) -> NodeRow {
    let NodeSight { view, status, zone, lag_millis, addresses, sessions } = *sight;
    let found = disconnected(sight, forms)
        .or_else(|| failing(sight, forms))
        .or_else(|| lagging(sight, forms))
        .or_else(|| drifted(sight, now));
    let mut row = NodeRow {
        name: view.name.clone(),
        zone: zone.map(str::to_owned),
        mode: status.mode,
        state: NodeState::Converged,
        reason: None,
        message: None,
        since: None,
        lag_millis: None,
        applied: None,
        verified: None,
        addresses,
        sessions,
    };
    if let Some((state, found)) = found {
        row.state = state;
        if state != NodeState::Drifted {
            row.lag_millis = lag_millis.map(two_digits);
            (row.applied, row.verified) = (status.applied, status.verified);
        }
        findings.push(found);
    }
    row
}

/// Says in the row what is wrong.
pub fn explain(row: &mut NodeRow, worst: &Finding) {
    row.reason = Some(worst.reason.clone());
    row.message = Some(worst.message.clone());
    row.since = worst.since;
}

/// Says that nothing is wrong for long enough to be said.
pub fn calm(row: &mut NodeRow) {
    row.state = NodeState::Converged;
    (row.lag_millis, row.applied, row.verified) = (None, None, None);
}

/// A number to two digits, so that what grows by the millisecond is news now and then only.
#[must_use]
pub fn two_digits(number: u64) -> u64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    number / unit * unit
}

/// The key of a Node.
#[must_use]
pub fn node_key(name: &Name) -> ObjectKey {
    ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() }
}

fn condition(status: &NodeStatus, wanted: ConditionType) -> Option<&Condition> {
    let found = status.conditions.iter().find(|one| one.condition_type == wanted);
    found.filter(|one| one.status != ConditionStatus::True)
}

fn finding(view: &NodeView<'_>, aspect: &'static str, impact: Impact, condition: &Condition) -> Finding {
    let Condition { reason, message, hint, .. } = condition;
    let found = Finding::new(node_key(view.name), aspect, impact, reason.as_str(), message.clone());
    Finding { hint: hint.clone(), basis: Basis::Reports, ..found }
}

fn disconnected(sight: &NodeSight<'_>, forms: &Forms<'_>) -> Option<(NodeState, Finding)> {
    let NodeSight { view, status, .. } = sight;
    let condition = condition(status, ConditionType::Connected)?;
    let (affects, affects_more) = forms.beyond(status.verified);
    let found = finding(view, "Connected", Impact::Risk, condition);
    // Two agents under one name do report.
    let (state, since) = if view.is_connected {
        (NodeState::Failing, None)
    } else {
        (NodeState::Disconnected, view.last_report)
    };
    Some((state, Finding { since, affects, affects_more, ..found }))
}

fn failing(sight: &NodeSight<'_>, forms: &Forms<'_>) -> Option<(NodeState, Finding)> {
    let NodeSight { view, status, .. } = sight;
    let condition = condition(status, ConditionType::Converged)?;
    if let Some(held) = status.held {
        let (affects, affects_more) = forms.beyond(status.verified);
        let found = finding(view, "Converged", Impact::Risk, condition);
        return Some((
            NodeState::Failing,
            Finding { since: Some(held.since), affects, affects_more, ..found },
        ));
    }
    if status.failures == 0 {
        return None;
    }
    let failures = view.report.map(|report| &report.failures);
    let (affects, listed_more) = affects::listed(
        failures.into_iter().flat_map(|failures| failures.keys()).map(ServiceKey::object_key),
    );
    let total = usize::try_from(status.failures).unwrap_or(usize::MAX);
    let affects_more = listed_more.max(total.saturating_sub(affects.len()));
    // Few failures are problems of their Services.
    let impact = if says_failures(view) { Impact::Degraded } else { Impact::Notice };
    let found = finding(view, "Converged", impact, condition);
    Some((NodeState::Failing, Finding { affects, affects_more, ..found }))
}

fn lagging(sight: &NodeSight<'_>, forms: &Forms<'_>) -> Option<(NodeState, Finding)> {
    let NodeSight { view, status, lag_millis, .. } = sight;
    let condition = condition(status, ConditionType::Converged)?;
    if condition.reason == ConditionReason::OtherMode {
        let found = finding(view, "Mode", Impact::Notice, condition);
        return Some((NodeState::Lagging, Finding { is_passing: true, ..found }));
    }
    if lag_millis.is_some_and(|lag| lag < LAGGING_MILLIS) {
        return None;
    }
    let (affects, affects_more) = forms.beyond(status.verified);
    let found = finding(view, "Converged", Impact::Risk, condition);
    Some((NodeState::Lagging, Finding { affects, affects_more, is_passing: lag_millis.is_none(), ..found }))
}

fn drifted(sight: &NodeSight<'_>, now: Timestamp) -> Option<(NodeState, Finding)> {
    let view = sight.view;
    let event = view.report.and_then(|report| last_drift(report))?;
    if now.unix_seconds() - event.time.unix_seconds() > DRIFT_SHOWN_SECS {
        return None;
    }
    let about = node_key(view.name);
    let found = Finding::new(about, "Drift", Impact::Notice, "DriftRepaired", event.message.clone());
    let hint =
        "find out what else changes the packet filter there; `tidegate doctor` looks for the usual ones";
    let (hint, since) = (Some(hint.to_owned()), Some(event.time));
    Some((NodeState::Drifted, Finding { since, hint, basis: Basis::Reports, ..found }))
}

fn last_drift(report: &Report) -> Option<&Event> {
    report.events.iter().rev().find(|event| event.reason == EventReason::DriftRepaired)
}
