//! Overview row of a Service, and the findings (deviations from the desired state) of the Service.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    ServiceRow, ServiceState, affects,
    memory::{Basis, StatusFinding},
};
use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledService},
    kinds::{
        condition_reason::ConditionReason,
        endpoint_health::EndpointHealthSpec,
        resource::{Kind, Object, ObjectKey, ServiceKey},
        service::ServiceSpec,
    },
    observed::{
        rollup::families_without,
        status::{Condition, ConditionStatus, ConditionType, Phase, ServiceStatus},
    },
    primitives::name::Name,
};

use super::Impact::{Degraded, Notice, Risk, Unreachable};

/// Maximum number of Nodes with unavailable endpoints of which a write may be shown as the cause of a
/// problem.
const NODES_LOOKED_AT_MAX: usize = 10;

/// Inputs for the entry (row) of a Service in the overview, and for its findings.
#[derive(Debug, Clone, Copy)]
pub struct ServiceInput<'a> {
    /// Key of the Service.
    pub key: &'a ServiceKey,
    /// Stored object of the Service.
    pub object: &'a Object,
    /// Spec of the Service.
    pub spec: &'a ServiceSpec,
    /// Status of the Service, as computed by [`crate::observed::rollup`].
    pub status: &'a ServiceStatus,
    /// Compiled form that nodes receive; `None` if the Service has none.
    pub compiled: Option<&'a CompiledService>,
    /// Health record of the Service, which lists its unhealthy endpoints; `None` if there is none.
    pub health: Option<&'a EndpointHealthSpec>,
    /// Number of the Service's load balancer addresses that are announced.
    pub announced: usize,
}

/// Returns the entry (row) of a Service in the overview, and adds the Service's findings to `findings`.
/// `is_covered_by_node` returns true for a Node with so many failed Services that a finding of the Node
/// replaces those of the Services.
pub fn judge(
    view: &ServiceInput<'_>,
    is_covered_by_node: &dyn Fn(&Name) -> bool,
    findings: &mut Vec<StatusFinding>,
) -> ServiceRow {
    if !view.spec.disabled {
        let conditions = &view.status.conditions;
        for condition in conditions {
            let finding = match condition.condition_type {
                ConditionType::Accepted => accepted(view, condition),
                ConditionType::AddressAssigned => address_assigned(view, condition),
                ConditionType::EndpointsAvailable => endpoints_available(view, condition),
                ConditionType::Programmed => programmed(view, condition, is_covered_by_node),
                ConditionType::Announced => announced(view, condition),
                ConditionType::Resolvable => resolvable(view, condition),
                // `Ready` summarizes the others; the rest belongs to other kinds.
                ConditionType::Ready
                | ConditionType::Connected
                | ConditionType::Converged
                | ConditionType::Used
                | ConditionType::Enforced
                | ConditionType::HasRoom
                | ConditionType::ResolvedRefs
                | ConditionType::Issued => None,
            };
            findings.extend(finding);
        }
    }
    row(view)
}

/// Sets the state, reason, message and start time of a Service's row from the worst finding of the Service.
pub fn explain(row: &mut ServiceRow, worst: &StatusFinding) {
    row.state = match worst.impact {
        Unreachable => ServiceState::Unreachable,
        Degraded => ServiceState::Degraded,
        Risk => ServiceState::AtRisk,
        Notice => ServiceState::Ok,
    };
    row.reason = Some(worst.reason.clone());
    row.message = Some(worst.message.clone());
    row.since = worst.since;
}

fn row(view: &ServiceInput<'_>) -> ServiceRow {
    let ServiceInput { key, object, spec, status, compiled, .. } = view;
    let mut addresses: Vec<IpAddr> = status.load_balancer.ingress.iter().map(|one| one.ip).collect();
    addresses.extend(&spec.external_ips);
    addresses.extend(spec.cluster_addresses());
    let port =
        |port: &crate::kinds::service::ServicePort| format!("{}/{}", port.range(), port.protocol.as_str());
    let programmable = compiled.filter(|compiled| compiled.is_programmable());
    ServiceRow {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        service_type: spec.service_type,
        state: if spec.disabled { ServiceState::Disabled } else { ServiceState::Ok },
        reason: None,
        message: None,
        since: None,
        addresses,
        ports: spec.ports.iter().map(port).collect(),
        endpoints_ready: status.endpoints.ready,
        endpoints_total: status.endpoints.total,
        endpoints_not_checked: status.endpoints.not_checked,
        nodes_verified: status.nodes.verified,
        nodes_total: status.nodes.total,
        revision: programmable.map_or_else(|| object.metadata.revision(), |compiled| compiled.revision),
    }
}

fn is_true(condition: &Condition) -> bool {
    condition.status == ConditionStatus::True
}

fn finding(view: &ServiceInput<'_>, impact: super::Impact, condition: &Condition) -> StatusFinding {
    let Condition { condition_type, status: _, reason, message, hint } = condition;
    let aspect = match condition_type {
        ConditionType::Accepted => "Accepted",
        ConditionType::AddressAssigned => "AddressAssigned",
        ConditionType::EndpointsAvailable => "EndpointsAvailable",
        ConditionType::Programmed => "Programmed",
        ConditionType::Announced => "Announced",
        ConditionType::Resolvable => "Resolvable",
        ConditionType::Ready
        | ConditionType::Connected
        | ConditionType::Converged
        | ConditionType::Used
        | ConditionType::Enforced
        | ConditionType::HasRoom
        | ConditionType::ResolvedRefs
        | ConditionType::Issued => "Ready",
    };
    let about = view.key.object_key();
    StatusFinding {
        hint: hint.clone(),
        ..StatusFinding::new(about, aspect, impact, reason.as_str(), message.clone())
    }
}

fn accepted(view: &ServiceInput<'_>, condition: &Condition) -> Option<StatusFinding> {
    (!is_true(condition)).then(|| finding(view, Unreachable, condition))
}

fn address_assigned(view: &ServiceInput<'_>, condition: &Condition) -> Option<StatusFinding> {
    let has_one = !view.status.load_balancer.ingress.is_empty();
    let impact = match (is_true(condition), has_one, condition.hint.is_some()) {
        (true, _, false) => return None,
        // The Service has the available addresses and would use more.
        (true, _, true) => Notice,
        (false, true, _) => Degraded,
        (false, false, _) => Unreachable,
    };
    let mut found = finding(view, impact, condition);
    found.concerns.kinds = &[Kind::AddressPool];
    Some(found)
}

/// Returns the finding for host names that the Service does not get although a DnsZone contains them. Without a DnsZone, another name
/// server may have the names; without an address in service, other conditions say the cause.
fn resolvable(view: &ServiceInput<'_>, condition: &Condition) -> Option<StatusFinding> {
    let is_refused =
        [ConditionReason::NamespaceNotAllowed, ConditionReason::NameTaken, ConditionReason::NameReserved]
            .contains(&condition.reason);
    (!is_true(condition) && is_refused).then(|| {
        let mut found = finding(view, Degraded, condition);
        found.concerns.kinds = &[Kind::DnsZone];
        found
    })
}

fn endpoints_available(view: &ServiceInput<'_>, condition: &Condition) -> Option<StatusFinding> {
    let ServiceInput { spec, status, compiled, health, .. } = view;
    if spec.is_external_name() {
        return None;
    }
    let verdicts = || health.iter().flat_map(|health| health.endpoints.values()).filter(|one| one.is_out());
    let with_nodes = |mut found: StatusFinding| {
        found.concerns.keys.extend(nodes_of_absent(*compiled));
        Some(found)
    };
    if !is_true(condition) {
        // A headless Service has no address that refuses connections, and may have no endpoints yet. If all are unhealthy, its
        // names do not resolve.
        let is_unused = spec.is_headless() && status.endpoints.total == 0;
        let impact = if is_unused { Notice } else { Unreachable };
        let since = (condition.reason == ConditionReason::NoHealthyEndpoints)
            .then(|| verdicts().map(|one| one.since).max())
            .flatten();
        return with_nodes(StatusFinding { since, ..finding(view, impact, condition) });
    }
    let counts = status.endpoints;
    let lost = compiled.map(lost).unwrap_or_default();
    let families = families_without(*compiled);
    if counts.unhealthy > 0 {
        let is_ready = condition.reason == ConditionReason::EndpointsReady;
        let reason = if is_ready { "EndpointsUnhealthy" } else { condition.reason.as_str() };
        let found = finding(view, Degraded, condition);
        let since = verdicts().map(|one| one.since).min();
        return with_nodes(StatusFinding { reason: reason.to_owned(), since, ..found });
    }
    if !families.is_empty() {
        let found = finding(view, Degraded, condition);
        return Some(StatusFinding {
            reason: "FamilyWithoutEndpoint".to_owned(),
            message: families,
            ..found
        });
    }
    if lost > 0 {
        let found = finding(view, Degraded, condition);
        let message = format!("{lost} of {} endpoints are not ready", counts.total);
        return with_nodes(StatusFinding { reason: "EndpointsNotReady".to_owned(), message, ..found });
    }
    if counts.ready == 1 && counts.total > 1 {
        let found = finding(view, Risk, condition);
        let message = format!("one of {} endpoints accepts connections", counts.total);
        return with_nodes(StatusFinding { reason: "OneEndpointLeft".to_owned(), message, ..found });
    }
    if counts.unknown > 0 {
        let found = finding(view, Risk, condition);
        let basis = Basis::Reports;
        return with_nodes(StatusFinding { reason: "HealthUnknown".to_owned(), basis, ..found });
    }
    None
}

fn endpoints(compiled: &CompiledService) -> impl Iterator<Item = &CompiledEndpoint> {
    compiled.ports.iter().flat_map(|port| &port.endpoints)
}

/// Returns the number of failed endpoints: addresses that accept no connections on any port, although they
/// neither terminate nor are in drain or maintenance.
fn lost(compiled: &CompiledService) -> usize {
    let is_lost = |one: &&CompiledEndpoint| !one.ready && !one.terminating && one.maintenance.is_none();
    if !endpoints(compiled).any(|one| is_lost(&one)) {
        return 0;
    }
    let ready: BTreeSet<_> = endpoints(compiled).filter(|one| one.ready).map(|one| one.address).collect();
    let lost = endpoints(compiled).filter(is_lost).map(|one| one.address);
    lost.filter(|address| !ready.contains(address)).collect::<BTreeSet<_>>().len()
}

/// Returns the Nodes of endpoints that accept no new connections. A write to such a Node, such as a drain,
/// may be the reason.
fn nodes_of_absent(compiled: Option<&CompiledService>) -> Vec<ObjectKey> {
    let absent = compiled.into_iter().flat_map(endpoints).filter(|one| !one.ready || one.weight.0 == 0);
    let nodes: BTreeSet<_> = absent.filter_map(|one| one.node.as_ref()).collect();
    nodes.into_iter().take(NODES_LOOKED_AT_MAX).map(node_key).collect()
}

fn node_key(name: &Name) -> ObjectKey {
    ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() }
}

fn programmed(
    view: &ServiceInput<'_>,
    condition: &Condition,
    is_covered_by_node: &dyn Fn(&Name) -> bool,
) -> Option<StatusFinding> {
    let counts = &view.status.nodes;
    match condition.status {
        ConditionStatus::True => return None,
        ConditionStatus::Unknown => {
            let mut found = finding(view, Unreachable, condition);
            found.concerns.kinds = &[Kind::Node];
            return Some(found);
        }
        ConditionStatus::False => {}
    }
    let failed = counts.not_verified.iter().filter(|(_, problem)| problem.phase == Phase::Failed);
    let failed: Vec<&Name> = failed.map(|(name, _)| name).collect();
    if failed.is_empty() {
        return first_form_nowhere(view, condition);
    }
    let is_nowhere = counts.applied == 0;
    if !is_nowhere && failed.iter().all(|node| is_covered_by_node(node)) {
        return None;
    }
    let mut found = finding(view, if is_nowhere { Unreachable } else { Degraded }, condition);
    (found.affects, found.affects_more) = affects::listed(failed.iter().map(|node| node_key(node)));
    found.concerns.keys.extend(failed.into_iter().map(node_key));
    found.basis = Basis::Reports;
    Some(found)
}

/// Returns a finding if no node has programmed a new Service yet. There is no such finding for a changed
/// Service, because its former version still works; instead, the nodes count as lagging.
fn first_form_nowhere(view: &ServiceInput<'_>, condition: &Condition) -> Option<StatusFinding> {
    let metadata = &view.object.metadata;
    let is_first = metadata.generation == Some(1)
        && view.compiled.is_some_and(|compiled| compiled.revision == metadata.revision());
    let counts = &view.status.nodes;
    let is_nowhere = counts.applied == 0 && condition.reason == ConditionReason::CatchingUp;
    (is_first && is_nowhere).then(|| {
        let mut found = finding(view, Unreachable, condition);
        found.concerns.kinds = &[Kind::Node];
        StatusFinding { basis: Basis::Reports, is_passing: true, ..found }
    })
}

fn announced(view: &ServiceInput<'_>, condition: &Condition) -> Option<StatusFinding> {
    let addresses = view.status.load_balancer.ingress.len();
    if is_true(condition) || addresses == 0 {
        return None;
    }
    let impact = match (condition.status, condition.reason, view.announced) {
        (ConditionStatus::Unknown, ConditionReason::OwnerSilent, _) => Risk,
        (ConditionStatus::Unknown, _, _) => Notice,
        (_, ConditionReason::Conflict | ConditionReason::TwoOwners, _) | (_, _, 1..) => Degraded,
        (_, _, 0) => Unreachable,
    };
    let is_passing = condition.reason == ConditionReason::NotYetAnnounced;
    let mut found = finding(view, impact, condition);
    found.concerns.kinds =
        &[Kind::AddressPool, Kind::Advertisement, Kind::BgpPeer, Kind::BfdProfile, Kind::Node];
    Some(StatusFinding { basis: Basis::Reports, is_passing, ..found })
}
