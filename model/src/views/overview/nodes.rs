//! Overview row of a Node, and the finding about the Node's worst deviation from the desired state.

use super::{
    BgpSessionTotals, Impact, NodeConvergence, NodeRow,
    affects::{self, Forms},
    memory::{Basis, StatusFinding},
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

/// Time in milliseconds for which a Node may lack a change before it counts as lagging. Changes normally
/// arrive much faster.
pub const LAGGING_MILLIS: u64 = 2000;
/// Time in seconds for which a Node counts as drifted after its agent repaired kernel objects that another
/// program had changed; long enough for an operator to notice.
pub const DRIFT_SHOWN_SECS: i64 = 600;
/// Maximum number of failed Services on a Node that are listed as problems of the Services. If more fail, the
/// overview lists one problem of the Node instead.
pub const SINGLE_FAILURES_MAX: u64 = 3;

/// Inputs for the entry (row) of a Node in the overview, and for its finding.
#[derive(Debug, Clone, Copy)]
pub struct NodeInput<'a> {
    /// Lease and last report of the Node.
    pub view: &'a NodeView<'a>,
    /// Status of the Node, as computed by [`crate::observed::rollup`].
    pub status: &'a NodeStatus,
    /// Zone of the Node, if the Node has one.
    pub zone: Option<&'a str>,
    /// Age of the oldest change that the Node has not verified, in milliseconds. `None` if there is none, or if
    /// the server no longer remembers the change.
    pub lag_millis: Option<u64>,
    /// Number of load balancer addresses that the Node announces by ARP or NDP.
    pub addresses: usize,
    /// Numbers of BGP sessions of the Node by state; `None` if it has none.
    pub sessions: Option<BgpSessionTotals>,
}

/// Returns true if the overview reports the failed Services of a Node as one problem of the Node, because
/// more than [`SINGLE_FAILURES_MAX`] failed.
#[must_use]
pub fn covers_failures(view: &NodeView<'_>) -> bool {
    view.report.is_some_and(|report| report.failures_total > SINGLE_FAILURES_MAX)
}

/// Returns the entry (row) of a Node in the overview. If the Node deviates from the desired state, adds a
/// finding for the worst deviation to `findings`.
pub fn judge(
    sight: &NodeInput<'_>,
    forms: &Forms<'_>,
    now: Timestamp,
    findings: &mut Vec<StatusFinding>,
) -> NodeRow {
    let NodeInput { view, status, zone, lag_millis, addresses, sessions } = *sight;
    let found = disconnected(sight, forms)
        .or_else(|| failing(sight, forms))
        .or_else(|| lagging(sight, forms))
        .or_else(|| drifted(sight, now));
    let mut row = NodeRow {
        name: view.name.clone(),
        zone: zone.map(str::to_owned),
        mode: status.mode,
        state: NodeConvergence::Converged,
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
        if state != NodeConvergence::Drifted {
            row.lag_millis = lag_millis.map(two_digits);
            (row.applied, row.verified) = (status.applied, status.verified);
        }
        findings.push(found);
    }
    row
}

/// Sets reason, message and start time of a Node's row from its worst finding.
pub fn explain(row: &mut NodeRow, worst: &StatusFinding) {
    row.reason = Some(worst.reason.clone());
    row.message = Some(worst.message.clone());
    row.since = worst.since;
}

/// Resets a Node's row to the state converged, because its finding has not lasted long enough to be shown.
pub fn reset(row: &mut NodeRow) {
    row.state = NodeConvergence::Converged;
    (row.lag_millis, row.applied, row.verified) = (None, None, None);
}

/// Rounds a number to two significant digits. Rounded times that grow steadily rarely change, so they cause
/// few updates for watchers.
#[must_use]
pub fn two_digits(number: u64) -> u64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    number / unit * unit
}

/// Returns the key of a Node.
#[must_use]
pub fn node_key(name: &Name) -> ObjectKey {
    ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() }
}

fn condition(status: &NodeStatus, wanted: ConditionType) -> Option<&Condition> {
    let found = status.conditions.iter().find(|one| one.condition_type == wanted);
    found.filter(|one| one.status != ConditionStatus::True)
}

fn finding(
    view: &NodeView<'_>,
    aspect: &'static str,
    impact: Impact,
    condition: &Condition,
) -> StatusFinding {
    let Condition { reason, message, hint, .. } = condition;
    let found = StatusFinding::new(node_key(view.name), aspect, impact, reason.as_str(), message.clone());
    StatusFinding { hint: hint.clone(), basis: Basis::Reports, ..found }
}

fn disconnected(sight: &NodeInput<'_>, forms: &Forms<'_>) -> Option<(NodeConvergence, StatusFinding)> {
    let NodeInput { view, status, .. } = sight;
    let condition = condition(status, ConditionType::Connected)?;
    let (affects, affects_more) = forms.beyond(status.verified);
    let found = finding(view, "Connected", Impact::Risk, condition);
    // Two agents that share a name do report.
    let (state, since) = if view.is_connected {
        (NodeConvergence::Failing, None)
    } else {
        (NodeConvergence::Disconnected, view.last_report)
    };
    Some((state, StatusFinding { since, affects, affects_more, ..found }))
}

fn failing(sight: &NodeInput<'_>, forms: &Forms<'_>) -> Option<(NodeConvergence, StatusFinding)> {
    let NodeInput { view, status, .. } = sight;
    let condition = condition(status, ConditionType::Converged)?;
    if let Some(held) = status.held {
        let (affects, affects_more) = forms.beyond(status.verified);
        let found = finding(view, "Converged", Impact::Risk, condition);
        return Some((
            NodeConvergence::Failing,
            StatusFinding { since: Some(held.since), affects, affects_more, ..found },
        ));
    }
    if condition.reason == ConditionReason::NetworkNotProgrammed {
        let found = finding(view, "WorkloadNetwork", Impact::Degraded, condition);
        return Some((NodeConvergence::Failing, found));
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
    // Few failures are findings of their Services.
    let impact = if covers_failures(view) { Impact::Degraded } else { Impact::Notice };
    let found = finding(view, "Converged", impact, condition);
    Some((NodeConvergence::Failing, StatusFinding { affects, affects_more, ..found }))
}

fn lagging(sight: &NodeInput<'_>, forms: &Forms<'_>) -> Option<(NodeConvergence, StatusFinding)> {
    let NodeInput { view, status, lag_millis, .. } = sight;
    let condition = condition(status, ConditionType::Converged)?;
    if condition.reason == ConditionReason::OtherMode {
        let found = finding(view, "Mode", Impact::Notice, condition);
        return Some((NodeConvergence::Lagging, StatusFinding { is_passing: true, ..found }));
    }
    if lag_millis.is_some_and(|lag| lag < LAGGING_MILLIS) {
        return None;
    }
    let (affects, affects_more) = forms.beyond(status.verified);
    let found = finding(view, "Converged", Impact::Risk, condition);
    Some((
        NodeConvergence::Lagging,
        StatusFinding { affects, affects_more, is_passing: lag_millis.is_none(), ..found },
    ))
}

fn drifted(sight: &NodeInput<'_>, now: Timestamp) -> Option<(NodeConvergence, StatusFinding)> {
    let view = sight.view;
    let event = view.report.and_then(|report| last_drift(report))?;
    if now.unix_seconds() - event.time.unix_seconds() > DRIFT_SHOWN_SECS {
        return None;
    }
    let about = node_key(view.name);
    let found = StatusFinding::new(about, "Drift", Impact::Notice, "DriftRepaired", event.message.clone());
    let hint =
        "find the program that changes the packet filter there; `tidegate doctor` checks the usual ones";
    let (hint, since) = (Some(hint.to_owned()), Some(event.time));
    Some((NodeConvergence::Drifted, StatusFinding { since, hint, basis: Basis::Reports, ..found }))
}

fn last_drift(report: &Report) -> Option<&Event> {
    report.events.iter().rev().find(|event| event.reason == EventReason::DriftRepaired)
}
