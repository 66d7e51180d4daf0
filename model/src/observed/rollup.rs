//! Computation (roll-up) of status: derives the conditions of objects, with reasons, from specs, compiled
//! Services and agent reports.

mod announced;
mod assigned;
mod bgp;
mod bgp_peer;
mod by_bgp;
mod certificate;
mod conflict;
mod health;
mod http;
mod names;
mod networks;
mod node;
mod policy;
pub mod rebalance;
mod sources;
pub mod what_if;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    cluster::{
        compiled::{CompiledEndpoint, CompiledService},
        snapshot::Snapshot,
        unsupported,
    },
    kinds::{
        condition_reason::ConditionReason,
        maintenance::MaintenanceMode,
        resource::ServiceKey,
        service::{ServiceSpec, ServiceType},
    },
    observed::{
        health::addresses_not_checked,
        service_health::ServiceHealth,
        status::{
            Condition, ConditionStatus, ConditionType, EndpointCounts, Ingress, LoadBalancerStatus,
            NodeCounts, NodeProblem, Phase, ServiceStatus,
        },
    },
    primitives::{
        name::Name,
        net::IpFamily,
        quantity::{Epoch, Position, Timestamp},
    },
    wire::{
        hold::{HeldReason, HeldState},
        report::{Failure, FailureReason, Report},
    },
};

pub use self::announced::{
    AddressStanding, AnnouncementInputs, address_standing, address_status, advertisement_status,
    pool_announced, service_announced,
};
pub use self::assigned::address_pool_status;
pub use self::bgp::{bfd_profile_status, bgp_peer_status, node_bgp_status};
pub use self::bgp_peer::with_sessions;
pub use self::certificate::{certificate_status, changes_after};
pub use self::health::{add_not_checked, service_health};
pub use self::http::{
    gateway_status, gateway_status_among, http_route_status, listener_uses, route_conditions,
    tls_route_status, with_gateways,
};
pub use self::names::{dns_zone_status, route_resolvable, service_resolvable};
pub use self::networks::{
    NetworkRoom, attachment_status, block_status, network_room, workload_network_status,
};
pub use self::node::node_status;
pub use self::policy::network_policy_status;
pub use self::sources::{endpoint_set_status, verdict_of_others, workload_status};

/// Maximum number of Nodes listed in the status of a Service; the counts include all Nodes.
const NOT_VERIFIED_LISTED_MAX: usize = 10;

/// Maximum number of lagging Nodes that are selected from the indices. If more Nodes lag, an iteration over
/// all Nodes finds the ten to list faster.
const FEW_NODES: usize = 64;

/// Lease state and last report of one Node, from which status is computed.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    /// Name of the Node.
    pub name: &'a Name,
    /// True if the agent currently reports: the last report is not older than the lease.
    pub is_connected: bool,
    /// True if the agent has closed its feed (state stream) or its process has ended, and the agent has neither
    /// reported nor opened a feed since.
    pub has_left: bool,
    /// True if two agents report under the name of this Node.
    pub is_contested: bool,
    /// True if the Node has not reported for so long (announcement lease) that it is no candidate for
    /// addresses.
    pub is_lost: bool,
    /// Time of the last report, even if it was before a restart of the control server.
    pub last_report: Option<Timestamp>,
    /// Last report of the agent; `None` if it has not reported to this server yet.
    pub report: Option<&'a Report>,
}

impl NodeView<'_> {
    /// Returns true if the last report describes the present state of the Node: the report is not older than the
    /// lease, and the agent has not closed its connection since.
    #[must_use]
    pub const fn is_reporting(&self) -> bool {
        self.is_connected && !self.has_left
    }

    /// Returns true if an agent has ever reported for the Node. A Node without an agent programs nothing, and the status of
    /// Services does not wait for it.
    #[must_use]
    pub const fn has_agent(&self) -> bool {
        self.report.is_some() || self.last_report.is_some()
    }
}

/// Views (lease state and last report) of all Nodes, with indices. With these, the time to compute the status
/// of a Service without problems does not grow linearly with the number of Nodes.
#[derive(Debug, Default)]
pub struct NodeViews<'a> {
    views: Vec<NodeView<'a>>,
    /// Position up to which each Node has received changes, sorted; `applied` and `verified` contain the same
    /// for programmed and verified changes. The lists are sorted so that a binary search can count the Nodes
    /// that have reached a position.
    received: Vec<Position>,
    applied: Vec<Position>,
    verified: Vec<Position>,
    /// Indices into `views` of the Nodes with an agent, ordered by the position that the Node has verified, oldest first.
    by_verified: Vec<usize>,
    /// Indices into `views` of the Nodes on which each Service failed.
    failing: BTreeMap<&'a ServiceKey, Vec<usize>>,
}

impl<'a> NodeViews<'a> {
    /// Builds the indices of the views of all Nodes.
    #[must_use]
    pub fn new(views: Vec<NodeView<'a>>) -> Self {
        let sorted = |rung: &dyn Fn(&Report) -> Position| {
            let reports = views.iter().filter_map(|view| view.report).filter(|report| follows(report));
            let mut all: Vec<_> = reports.map(rung).collect();
            all.sort_unstable();
            all
        };
        // Positions that were not received cannot be programmed, so other claims of a report are limited by it.
        let received = sorted(&|report| report.received);
        let applied = sorted(&|report| report.received.min(report.applied.max(report.verified)));
        let verified = sorted(&|report| report.received.min(report.verified));
        let mut by_verified: Vec<_> =
            views.iter().enumerate().filter(|(_, view)| view.has_agent()).map(|(at, _)| at).collect();
        by_verified.sort_by_cached_key(|at| {
            let report = views.get(*at).and_then(|view| view.report).filter(|report| follows(report));
            report.map(|report| report.received.min(report.verified))
        });
        let mut failing: BTreeMap<&ServiceKey, Vec<usize>> = BTreeMap::new();
        for (at, report) in views.iter().enumerate().filter_map(|(at, view)| Some((at, view.report?))) {
            for key in report.failures.keys() {
                failing.entry(key).or_default().push(at);
            }
        }
        Self { views, received, applied, verified, by_verified, failing }
    }

    /// Returns the views of all Nodes, ordered by name.
    #[must_use]
    pub fn all(&self) -> &[NodeView<'a>] {
        &self.views
    }

    /// Returns the view of a Node; `None` if there is no such Node.
    #[must_use]
    pub fn get(&self, name: &Name) -> Option<&NodeView<'a>> {
        let at = self.views.binary_search_by(|view| view.name.cmp(name)).ok()?;
        self.views.get(at)
    }

    /// Counts the Nodes that have received, programmed and verified a Service. `wanted` is the position of
    /// the last change of the Service. Nodes for which no agent has ever reported are not counted.
    #[must_use]
    pub fn count(&self, key: &ServiceKey, wanted: Position) -> NodeCounts {
        let total = saturating(self.by_verified.len());
        let reached =
            |rung: &[Position]| saturating(rung.len() - rung.partition_point(|position| *position < wanted));
        let mut counts = NodeCounts {
            total,
            received: reached(&self.received),
            applied: reached(&self.applied),
            verified: reached(&self.verified),
            not_verified: BTreeMap::new(),
        };
        let failing = self.failing.get(key).map(Vec::as_slice).unwrap_or_default();
        for view in failing.iter().filter_map(|at| self.views.get(*at)) {
            let (phase, _) = progress(view, key, wanted);
            let without_failure = match phase {
                Phase::Failed => view.report.map(|report| reached_phase(report, wanted)),
                Phase::Pending | Phase::Received | Phase::Applied | Phase::Verified => None,
            };
            counts.applied -= u32::from(matches!(without_failure, Some(Phase::Applied | Phase::Verified)));
            counts.verified -= u32::from(without_failure == Some(Phase::Verified));
        }
        if counts.verified < total {
            let behind =
                self.by_verified.len().saturating_sub(usize::try_from(reached(&self.verified)).unwrap_or(0));
            counts.not_verified = self.not_verified(key, wanted, behind, failing);
        }
        counts
    }

    /// Returns at most [`NOT_VERIFIED_LISTED_MAX`] Nodes, in the order of names, that have not verified a
    /// Service, each with the reason. `wanted` is the position of the last change of the Service, `behind`
    /// the number of Nodes that have not verified this position; `failing` are indices of Nodes on which the
    /// Service failed.
    fn not_verified(
        &self,
        key: &ServiceKey,
        wanted: Position,
        behind: usize,
        failing: &[usize],
    ) -> BTreeMap<Name, NodeProblem> {
        let mut candidates: Vec<usize> = if behind > FEW_NODES {
            // With so many lagging Nodes, the first ten are found quickly.
            self.by_verified.clone()
        } else {
            self.by_verified.iter().take(behind).chain(failing).copied().collect()
        };
        candidates.sort_unstable();
        candidates.dedup();
        let views = candidates.into_iter().filter_map(|at| self.views.get(at));
        let looked_at = views.map(|view| (view, progress(view, key, wanted)));
        let lacking = looked_at.filter(|(_, (phase, _))| *phase != Phase::Verified);
        lacking
            .take(NOT_VERIFIED_LISTED_MAX)
            .map(|(view, (phase, failure))| (view.name.clone(), problem(view, phase, failure)))
            .collect()
    }
}

/// Returns true if a Node has verified a Service as of the position `wanted`, except ports with settings that the
/// Node does not support.
pub(crate) fn is_served(view: &NodeView<'_>, key: &ServiceKey, wanted: Position) -> bool {
    match progress(view, key, wanted) {
        (Phase::Verified, _) => true,
        (Phase::Failed, Some(failure)) if failure.reason.is_served() => {
            view.report.is_some_and(|report| reached_phase(report, wanted) == Phase::Verified)
        }
        (Phase::Pending | Phase::Received | Phase::Applied | Phase::Failed, _) => false,
    }
}

pub(crate) fn progress<'a>(
    view: &NodeView<'a>,
    key: &ServiceKey,
    wanted: Position,
) -> (Phase, Option<&'a Failure>) {
    let Some(report) = view.report else { return (Phase::Pending, None) };
    // A failure of an older form does not apply to the wanted one. After the agent has applied the wanted form,
    // reported failures belong to it regardless of their revision, because control servers with different starts
    // number forms differently.
    let is_of_wanted = |failure: &&Failure| failure.revision >= wanted.revision || report.applied >= wanted;
    let failure = report.failures.get(key).filter(is_of_wanted);
    let reached = reached_phase(report, wanted);
    let has_failed = reached != Phase::Pending && failure.is_some();
    let phase = if has_failed { Phase::Failed } else { reached };
    (phase, failure)
}

/// Returns true if the positions of a report are those of this history. A Node that rejects the state because its own is newer
/// has positions of another history, in which the same revision is another change.
fn follows(report: &Report) -> bool {
    !matches!(report.held, Some(HeldState { reason: HeldReason::ControlBehind, .. }))
}

/// Returns the step (such as programmed or verified) that a Node has reached with the change at the position
/// `wanted`. Failures are not considered.
fn reached_phase(report: &Report, wanted: Position) -> Phase {
    if report.received < wanted || !follows(report) {
        Phase::Pending
    } else if report.verified >= wanted {
        Phase::Verified
    } else if report.applied >= wanted {
        Phase::Applied
    } else {
        Phase::Received
    }
}

fn problem(view: &NodeView<'_>, phase: Phase, failure: Option<&Failure>) -> NodeProblem {
    let message = match (failure, view.is_connected, view.last_report) {
        (Some(failure), _, _) => failure.message.clone(),
        (None, true, _) => match view.report.and_then(|report| report.held) {
            Some(held) => held.message(),
            None => "it has not caught up yet".to_owned(),
        },
        (None, false, Some(at)) => format!("its agent has not reported since {at}"),
        (None, false, None) => "it has not reported to this control server yet".to_owned(),
    };
    NodeProblem { phase, reason: failure.map(|failure| failure.reason), message }
}

/// Inputs for the status of a Service besides the progress of Nodes: announcement of its addresses, and
/// health of its endpoints.
#[derive(Debug, Default)]
pub struct ServiceObservations {
    /// Condition Announced of the Service's load balancer addresses; `None` if the Service has no such
    /// address.
    pub announced_on_record: Option<Condition>,
    /// Health of the Service's endpoints; `None` if they are not checked.
    pub health: Option<ServiceHealth>,
    /// Condition Resolvable of the Service's host names; `None` if the Service has none.
    pub resolvable: Option<Condition>,
}

/// Computes the status of a Service from the cluster state and the reports of the agents. `compiled` is the
/// compiled form of the Service, if any; `epoch` is the epoch of the store.
#[must_use]
pub fn service_status(
    snapshot: &Snapshot,
    key: &ServiceKey,
    spec: &ServiceSpec,
    compiled: Option<&CompiledService>,
    epoch: Epoch,
    nodes: &NodeViews<'_>,
    observed: ServiceObservations,
) -> ServiceStatus {
    let ServiceObservations { announced_on_record, health, resolvable } = observed;
    let mut endpoints = compiled.map(count_endpoints).unwrap_or_default();
    if spec.disabled {
        endpoints.not_checked = 0;
    }
    if let Some(health) = &health {
        health::count(health, &mut endpoints);
    }
    let by_health = health.and_then(|health| health::endpoints_available(&health, endpoints));
    let programmable = compiled.filter(|compiled| compiled.is_programmable());
    let counts =
        programmable.map(|compiled| nodes.count(key, Position { epoch, revision: compiled.revision }));
    let addresses: Vec<_> = snapshot.addresses_of(key).collect();
    let mut conditions = vec![
        accepted(spec),
        assigned::address_assigned(snapshot, key, spec, &addresses),
        by_health.unwrap_or_else(|| endpoints_available(spec, endpoints, compiled)),
        programmed(spec, counts.as_ref(), snapshot.is_routed(key)),
        announced_on_record.unwrap_or_else(|| announced(spec, &addresses)),
    ];
    conditions.push(ready(&conditions));
    conditions.extend(resolvable);
    let unsupported = unsupported::blocking(spec);
    let ingress = addresses.iter().map(|ip| Ingress { ip: *ip }).collect();
    ServiceStatus {
        conditions,
        load_balancer: LoadBalancerStatus { ingress },
        endpoints,
        nodes: counts.unwrap_or_default(),
        unsupported,
    }
}

/// Counts the endpoints of a Service by state.
#[must_use]
pub fn count_endpoints(compiled: &CompiledService) -> EndpointCounts {
    let all = compiled.ports.iter().flat_map(|port| &port.endpoints);
    let total: BTreeSet<_> = all.clone().map(|endpoint| endpoint.address).collect();
    let takes_connections = |endpoint: &&CompiledEndpoint| endpoint.ready && endpoint.weight.0 > 0;
    let ready: BTreeSet<_> = all.clone().filter(takes_connections).map(|endpoint| endpoint.address).collect();
    let in_mode = |mode| {
        let asked = all.clone().filter(|one| one.maintenance.as_ref().is_some_and(|it| it.mode == mode));
        // An address that accepts connections at another port is in service.
        let addresses = asked.map(|one| one.address).filter(|address| !ready.contains(address));
        saturating(addresses.collect::<BTreeSet<_>>().len())
    };
    EndpointCounts {
        total: saturating(total.len()),
        ready: saturating(ready.len()),
        draining: in_mode(MaintenanceMode::Drain),
        maintenance: in_mode(MaintenanceMode::Maintenance),
        not_checked: saturating(addresses_not_checked(compiled).len()),
        ..EndpointCounts::default()
    }
}

fn all_endpoints(compiled: &CompiledService) -> impl Iterator<Item = &CompiledEndpoint> {
    compiled.ports.iter().flat_map(|port| &port.endpoints)
}

/// Returns a text for a message about the cluster IPs that reject connections, because no endpoint has their
/// IP family; an empty text if there are none.
pub(crate) fn families_without(compiled: Option<&CompiledService>) -> String {
    let Some(compiled) = compiled else { return String::new() };
    let has_endpoint = |family| all_endpoints(compiled).any(|one| IpFamily::of(one.address) == family);
    let refusing = compiled.cluster_ips.iter().filter(|address| !has_endpoint(IpFamily::of(**address)));
    let refusing: Vec<_> = refusing.map(ToString::to_string).collect();
    if refusing.is_empty() {
        return String::new();
    }
    format!("connections to {} are refused: no endpoint has that IP family", refusing.join(", "))
}

fn accepted(spec: &ServiceSpec) -> Condition {
    let blocking = unsupported::blocking(spec);
    if blocking.is_empty() {
        return yes(ConditionType::Accepted, ConditionReason::Valid);
    }
    let fields: Vec<_> = blocking.iter().map(|field| format!("{}: {}", field.field, field.message)).collect();
    no(ConditionType::Accepted, ConditionReason::Unsupported, fields.join("; "))
        .hint("the Service is not programmed with these settings: remove them")
}

fn endpoints_available(
    spec: &ServiceSpec,
    endpoints: EndpointCounts,
    compiled: Option<&CompiledService>,
) -> Condition {
    let at = ConditionType::EndpointsAvailable;
    if spec.is_external_name() {
        return yes(at, ConditionReason::ExternalName);
    }
    match (endpoints.ready, endpoints.total) {
        (1.., _) => {
            Condition { message: families_without(compiled), ..yes(at, ConditionReason::EndpointsReady) }
        }
        (0, 1..) if endpoints.draining + endpoints.maintenance >= endpoints.total => {
            let EndpointCounts { draining, maintenance, .. } = endpoints;
            let message = format!(
                "connections are refused: {draining} endpoints are draining, {maintenance} are in maintenance"
            );
            no(at, ConditionReason::OutOfService, message)
                .hint("`tidegate undrain` returns endpoints, Workloads, Nodes and Services to service")
        }
        (0, 1..) if compiled.is_some_and(|compiled| all_endpoints(compiled).any(|one| one.ready)) => {
            let message = format!("none of {} endpoints has a weight", endpoints.total);
            no(at, ConditionReason::NoWeight, message)
                .hint("connections are refused; give an endpoint a weight above 0, or end its drain")
        }
        (0, 1..) => no(
            at,
            ConditionReason::NoReadyEndpoints,
            format!("none of {} endpoints is ready", endpoints.total),
        )
        .hint("connections are refused unless a terminating endpoint still serves"),
        (0, 0) if spec.selector.is_empty() => {
            no(at, ConditionReason::NoEndpoints, "the Service has no endpoints".to_owned())
                .hint("set a selector that matches Workloads, or create an EndpointSet for the Service")
        }
        (0, 0) => no(
            at,
            ConditionReason::NoWorkloadMatches,
            "no Workload with a usable port matches the selector".to_owned(),
        )
        .hint("compare the selector with the labels, phases and named ports of the namespace's Workloads"),
    }
}

fn programmed(spec: &ServiceSpec, counts: Option<&NodeCounts>, is_routed: bool) -> Condition {
    let at = ConditionType::Programmed;
    if !unsupported::blocking(spec).is_empty() {
        return no(
            at,
            ConditionReason::Unsupported,
            "the Service has settings that no node implements".to_owned(),
        );
    }
    if spec.disabled {
        return no(at, ConditionReason::Disabled, "the Service is disabled".to_owned())
            .hint("set spec.disabled to false");
    }
    let Some(counts) = counts else { return yes(at, ConditionReason::NothingToProgram) };
    if counts.total == 0 {
        if is_routed && spec.service_type == ServiceType::ClusterIP {
            // Gateways connect to the endpoints and do not need nodes.
            return yes(at, ConditionReason::NothingToProgram);
        }
        return condition(
            at,
            ConditionStatus::Unknown,
            ConditionReason::NoNodes,
            "no agent has reported for a Node yet".to_owned(),
        )
        .hint("start tidegate-agent on a machine");
    }
    if counts.verified == counts.total {
        return yes(at, ConditionReason::VerifiedOnAllNodes);
    }
    let names: Vec<_> =
        counts.not_verified.iter().map(|(name, problem)| format!("{name}: {}", problem.message)).collect();
    let message = format!("verified on {} of {} nodes; {}", counts.verified, counts.total, names.join("; "));
    let mut failures =
        counts.not_verified.values().filter(|problem| problem.phase == Phase::Failed).peekable();
    if failures.peek().is_none() {
        no(at, ConditionReason::CatchingUp, message)
    } else if failures.all(|problem| problem.reason.is_some_and(FailureReason::is_unsupported)) {
        no(at, ConditionReason::UnsupportedOnNodes, message)
            .hint("change the setting, or select a proxy mode that implements it on these Nodes (spec.mode)")
    } else {
        no(at, ConditionReason::FailedOnNodes, message)
    }
}

fn announced(spec: &ServiceSpec, addresses: &[IpAddr]) -> Condition {
    let at = ConditionType::Announced;
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    match (spec.service_type, addresses.is_empty()) {
        (ServiceType::LoadBalancer, true) => {
            no(at, ConditionReason::NoAddress, "there is no load balancer address to announce".to_owned())
        }
        (ServiceType::LoadBalancer, false) => {
            let message = format!("nothing announces {} to the network yet", addresses.join(", "));
            no(at, ConditionReason::NoAnnouncer, message)
                .hint("route it to the nodes by other means; every node accepts connections to it already")
        }
        (ServiceType::ClusterIP | ServiceType::NodePort | ServiceType::ExternalName, _) => {
            yes(at, ConditionReason::NothingToAnnounce)
        }
    }
}

/// Returns the condition Ready, which is true if all other conditions are true. Otherwise its reason names the
/// first condition that is not true.
fn ready(conditions: &[Condition]) -> Condition {
    let mut unmet = conditions.iter().filter(|condition| condition.status != ConditionStatus::True);
    let first = unmet.find_map(|condition| Some((condition, reason_not_ready(condition.condition_type)?)));
    match first {
        None => yes(ConditionType::Ready, ConditionReason::Ready),
        Some((first, reason)) => condition(ConditionType::Ready, first.status, reason, first.message.clone()),
    }
}

/// Returns the reason that condition Ready has if the condition `unmet` is the first that is not true; `None`
/// if Ready does not depend on this condition.
const fn reason_not_ready(unmet: ConditionType) -> Option<ConditionReason> {
    match unmet {
        ConditionType::Accepted => Some(ConditionReason::NotAccepted),
        ConditionType::AddressAssigned => Some(ConditionReason::NotAddressAssigned),
        ConditionType::EndpointsAvailable => Some(ConditionReason::NotEndpointsAvailable),
        ConditionType::Programmed => Some(ConditionReason::NotProgrammed),
        ConditionType::Announced => Some(ConditionReason::NotAnnounced),
        ConditionType::Connected => Some(ConditionReason::NotConnected),
        ConditionType::Converged => Some(ConditionReason::NotConverged),
        ConditionType::Ready
        | ConditionType::Used
        | ConditionType::Enforced
        | ConditionType::HasRoom
        | ConditionType::Resolvable
        | ConditionType::ResolvedRefs
        | ConditionType::Issued => None,
    }
}

fn condition(
    condition_type: ConditionType,
    status: ConditionStatus,
    reason: ConditionReason,
    message: String,
) -> Condition {
    Condition { condition_type, status, reason, message, hint: None }
}

fn yes(condition_type: ConditionType, reason: ConditionReason) -> Condition {
    condition(condition_type, ConditionStatus::True, reason, String::new())
}

fn no(condition_type: ConditionType, reason: ConditionReason, message: String) -> Condition {
    condition(condition_type, ConditionStatus::False, reason, message)
}

impl Condition {
    fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

fn saturating(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
