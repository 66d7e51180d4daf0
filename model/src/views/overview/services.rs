//! How a Service goes for its users.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    ServiceRow, ServiceState, affects,
    memory::{Basis, Finding},
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

/// Nodes of endpoints out of service whose writes are looked at.
const NODES_LOOKED_AT_MAX: usize = 10;

/// What is known of a Service.
#[derive(Debug, Clone, Copy)]
pub struct ServiceView<'a> {
    /// Its name.
    pub key: &'a ServiceKey,
    /// The object.
    pub object: &'a Object,
    /// Its spec.
    pub spec: &'a ServiceSpec,
    /// What the roll-up says.
    pub status: &'a ServiceStatus,
    /// What nodes are told of it.
    pub compiled: Option<&'a CompiledService>,
    /// What is on record of the health of its endpoints.
    pub health: Option<&'a EndpointHealthSpec>,
    /// How many of its load balancer addresses somebody announces.
    pub announced: usize,
}

/// Makes the row of a Service, and adds what is wrong with it. `is_said_of_node`: whether so much failed on a node that
/// the node's problem says it for all.
pub fn judge(
    view: &ServiceView<'_>,
    is_said_of_node: &dyn Fn(&Name) -> bool,
    findings: &mut Vec<Finding>,
) -> ServiceRow {
    if !view.spec.disabled {
        let conditions = &view.status.conditions;
        for condition in conditions {
            let finding = match condition.condition_type {
                ConditionType::Accepted => accepted(view, condition),
                ConditionType::AddressAssigned => address_assigned(view, condition),
                ConditionType::EndpointsAvailable => endpoints_available(view, condition),
                ConditionType::Programmed => programmed(view, condition, is_said_of_node),
                ConditionType::Announced => announced(view, condition),
                // The sum of the others; and those of other kinds.
                ConditionType::Ready
                | ConditionType::Connected
                | ConditionType::Converged
                | ConditionType::Used
                | ConditionType::HasRoom => None,
            };
            findings.extend(finding);
        }
    }
    row(view)
}

/// Says in the row what is wrong; of several findings the worst counts, of equals the first.
pub fn explain(row: &mut ServiceRow, worst: &Finding) {
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

fn row(view: &ServiceView<'_>) -> ServiceRow {
    let ServiceView { key, object, spec, status, compiled, .. } = view;
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
        nodes_verified: status.nodes.verified,
        nodes_total: status.nodes.total,
        revision: programmable.map_or_else(|| object.metadata.revision(), |compiled| compiled.revision),
    }
}

fn is_true(condition: &Condition) -> bool {
    condition.status == ConditionStatus::True
}

fn finding(view: &ServiceView<'_>, impact: super::Impact, condition: &Condition) -> Finding {
    let Condition { condition_type, status: _, reason, message, hint } = condition;
    let aspect = match condition_type {
        ConditionType::Accepted => "Accepted",
        ConditionType::AddressAssigned => "AddressAssigned",
        ConditionType::EndpointsAvailable => "EndpointsAvailable",
        ConditionType::Programmed => "Programmed",
        ConditionType::Announced => "Announced",
        ConditionType::Ready
        | ConditionType::Connected
        | ConditionType::Converged
        | ConditionType::Used
        | ConditionType::HasRoom => "Ready",
    };
    let about = view.key.object_key();
    Finding { hint: hint.clone(), ..Finding::new(about, aspect, impact, reason.as_str(), message.clone()) }
}

fn accepted(view: &ServiceView<'_>, condition: &Condition) -> Option<Finding> {
    (!is_true(condition)).then(|| finding(view, Unreachable, condition))
}

fn address_assigned(view: &ServiceView<'_>, condition: &Condition) -> Option<Finding> {
    let has_one = !view.status.load_balancer.ingress.is_empty();
    let impact = match (is_true(condition), has_one, condition.hint.is_some()) {
        (true, _, false) => return None,
        // It takes what there is, and would take more.
        (true, _, true) => Notice,
        (false, true, _) => Degraded,
        (false, false, _) => Unreachable,
    };
    let mut found = finding(view, impact, condition);
    found.concerns.kinds = &[Kind::AddressPool];
    Some(found)
}

fn endpoints_available(view: &ServiceView<'_>, condition: &Condition) -> Option<Finding> {
    let ServiceView { spec, status, compiled, health, .. } = view;
    if spec.is_external_name() {
        return None;
    }
    let verdicts = || health.iter().flat_map(|health| health.endpoints.values()).filter(|one| one.is_out());
    let with_nodes = |mut found: Finding| {
        found.concerns.keys.extend(nodes_of_absent(*compiled));
        Some(found)
    };
    if !is_true(condition) {
        // Of a headless Service names are resolved; there is no address that refuses connections.
        let impact = if spec.is_headless() { Notice } else { Unreachable };
        let since = (condition.reason == ConditionReason::NoHealthyEndpoints)
            .then(|| verdicts().map(|one| one.since).max())
            .flatten();
        return with_nodes(Finding { since, ..finding(view, impact, condition) });
    }
    let counts = status.endpoints;
    let lost = compiled.map(lost).unwrap_or_default();
    let families = families_without(*compiled);
    if counts.unhealthy > 0 {
        let reason = match condition.reason {
            ConditionReason::EndpointsReady => "EndpointsUnhealthy",
            other => other.as_str(),
        };
        let found = finding(view, Degraded, condition);
        let since = verdicts().map(|one| one.since).min();
        return with_nodes(Finding { reason: reason.to_owned(), since, ..found });
    }
    if !families.is_empty() {
        let found = finding(view, Degraded, condition);
        return Some(Finding { reason: "FamilyWithoutEndpoint".to_owned(), message: families, ..found });
    }
    if lost > 0 {
        let found = finding(view, Degraded, condition);
        let message = format!("{lost} of {} endpoints are not ready", counts.total);
        return with_nodes(Finding { reason: "EndpointsNotReady".to_owned(), message, ..found });
    }
    if counts.ready == 1 && counts.total > 1 {
        let found = finding(view, Risk, condition);
        let message = format!("one of {} endpoints takes connections", counts.total);
        return with_nodes(Finding { reason: "OneEndpointLeft".to_owned(), message, ..found });
    }
    if counts.unknown > 0 {
        let found = finding(view, Risk, condition);
        let basis = Basis::Reports;
        return with_nodes(Finding { reason: "HealthUnknown".to_owned(), basis, ..found });
    }
    None
}

fn endpoints(compiled: &CompiledService) -> impl Iterator<Item = &CompiledEndpoint> {
    compiled.ports.iter().flat_map(|port| &port.endpoints)
}

/// Addresses that take no connections although nobody took them out of service and they are not on their way out.
fn lost(compiled: &CompiledService) -> usize {
    let is_lost = |one: &&CompiledEndpoint| !one.ready && !one.terminating && one.maintenance.is_none();
    if !endpoints(compiled).any(|one| is_lost(&one)) {
        return 0;
    }
    let ready: BTreeSet<_> = endpoints(compiled).filter(|one| one.ready).map(|one| one.address).collect();
    let lost = endpoints(compiled).filter(is_lost).map(|one| one.address);
    lost.filter(|address| !ready.contains(address)).collect::<BTreeSet<_>>().len()
}

/// The Nodes of endpoints that take no connections: a drain of one is a write to it.
fn nodes_of_absent(compiled: Option<&CompiledService>) -> Vec<ObjectKey> {
    let absent = compiled.into_iter().flat_map(endpoints).filter(|one| !one.ready || one.weight.0 == 0);
    let nodes: BTreeSet<_> = absent.filter_map(|one| one.node.as_ref()).collect();
    nodes.into_iter().take(NODES_LOOKED_AT_MAX).map(node_key).collect()
}

fn node_key(name: &Name) -> ObjectKey {
    ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() }
}

fn programmed(
    view: &ServiceView<'_>,
    condition: &Condition,
    is_said_of_node: &dyn Fn(&Name) -> bool,
) -> Option<Finding> {
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
    if !is_nowhere && failed.iter().all(|node| is_said_of_node(node)) {
        return None;
    }
    let mut found = finding(view, if is_nowhere { Unreachable } else { Degraded }, condition);
    (found.affects, found.affects_more) = affects::listed(failed.iter().map(|node| node_key(node)));
    found.concerns.keys.extend(failed.into_iter().map(node_key));
    found.basis = Basis::Reports;
    Some(found)
}

/// What no node has yet is a problem of the Service only when there was nothing before it: else what was before goes on, and
/// the nodes are behind.
fn first_form_nowhere(view: &ServiceView<'_>, condition: &Condition) -> Option<Finding> {
    let metadata = &view.object.metadata;
    let is_first = metadata.generation == Some(1)
        && view.compiled.is_some_and(|compiled| compiled.revision == metadata.revision());
    let counts = &view.status.nodes;
    let is_nowhere = counts.applied == 0 && condition.reason == ConditionReason::CatchingUp;
    (is_first && is_nowhere).then(|| {
        let mut found = finding(view, Unreachable, condition);
        found.concerns.kinds = &[Kind::Node];
        Finding { basis: Basis::Reports, is_passing: true, ..found }
    })
}

fn announced(view: &ServiceView<'_>, condition: &Condition) -> Option<Finding> {
    let addresses = view.status.load_balancer.ingress.len();
    if is_true(condition) || addresses == 0 {
        return None;
    }
    let impact = match (condition.status, condition.reason, view.announced) {
        (ConditionStatus::Unknown, ConditionReason::OwnerSilent, _) => Risk,
        (ConditionStatus::Unknown, _, _) => Notice,
        (_, ConditionReason::Conflict, _) | (_, _, 1..) => Degraded,
        (_, _, 0) => Unreachable,
    };
    let is_passing = condition.reason == ConditionReason::NotYetAnnounced;
    let mut found = finding(view, impact, condition);
    found.concerns.kinds =
        &[Kind::AddressPool, Kind::Advertisement, Kind::BgpPeer, Kind::BfdProfile, Kind::Node];
    Some(Finding { basis: Basis::Reports, is_passing, ..found })
}
