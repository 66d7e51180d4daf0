//! Findings (deviations from the desired state) of pools, Advertisements and BgpPeers, and findings about
//! silent Nodes or unhealthy endpoints that remain in service, because too many failed at once.

use super::{
    AffectedObject, Impact, Subject, affects,
    memory::{Basis, StatusFinding},
    nodes::node_key,
};
use crate::{
    bgp::report::BgpSessionState,
    kinds::{
        condition_reason::ConditionReason,
        endpoint_health::CheckKey,
        resource::{Kind, Object, ServiceKey},
    },
    observed::{
        dns_servers::DnsServerProblem,
        health::HeldEndpoint,
        policy_status::NetworkPolicyStatus,
        rollup::{NetworkRoom, NodeView},
        status::{
            AddressPoolStatus, BgpPeerStatus, Condition, ConditionStatus, ConditionType, NodeBgpSession,
            PoolUsage,
        },
    },
    primitives::{name::Name, quantity::Timestamp},
    wire::report::PolicyEnforcement,
};

/// Maximum share of free addresses, in percent, with which a pool counts as nearly full.
pub const NEARLY_FULL_PERCENT: u64 = 10;
/// Maximum number of objects named in one message.
const NAMES_MAX: usize = 10;

/// True if a pool is nearly full in one of its IP families.
#[must_use]
pub fn is_nearly_full(status: &AddressPoolStatus) -> bool {
    let is_near = |usage: &PoolUsage| {
        usage.total > 0
            && u128::from(usage.available) * 100 <= u128::from(usage.total) * u128::from(NEARLY_FULL_PERCENT)
    };
    is_near(&status.v4) || is_near(&status.v6)
}

/// Returns the finding of an AddressPool from its status, or `None` if the pool has no problem.
#[must_use]
pub fn pool(object: &Object, status: &AddressPoolStatus) -> Option<StatusFinding> {
    let room = status.conditions.iter().find(|one| one.condition_type == ConditionType::HasRoom);
    let is_full = room.is_some_and(|room| room.reason == ConditionReason::Full);
    if !is_full && is_nearly_full(status) && room.is_some_and(|room| room.status == ConditionStatus::True) {
        let word = |(family, usage): (&str, &PoolUsage)| {
            (usage.total > 0).then(|| format!("{} of {} {family} addresses", usage.available, usage.total))
        };
        let free: Vec<_> =
            [("IPv4", &status.v4), ("IPv6", &status.v6)].into_iter().filter_map(word).collect();
        let message = format!("free: {}", free.join(", "));
        let found = StatusFinding::new(object.key(), "HasRoom", Impact::Risk, "NearlyFull", message);
        let hint = "add a range to spec.addresses before Services wait for addresses";
        return Some(StatusFinding { hint: Some(hint.to_owned()), ..found });
    }
    first(object, &status.conditions, if is_full { Impact::Risk } else { Impact::Notice })
}

/// Returns the finding of a WorkloadNetwork from its blocks, or `None` if each selected Node has a block and more blocks are free.
#[must_use]
pub fn workload_network(object: &Object, room: &NetworkRoom) -> Option<StatusFinding> {
    let untrue = |wanted: ConditionType| {
        let mut conditions = room.conditions.iter();
        conditions.find(|one| one.condition_type == wanted && one.status != ConditionStatus::True)
    };
    let impact = match (room.without.is_empty(), untrue(ConditionType::HasRoom)) {
        (false, _) => Impact::Degraded,
        (true, Some(_)) => Impact::Risk,
        (true, None) => Impact::Notice,
    };
    let mut found = first(object, &room.conditions, impact)?;
    if let Some(ready) = untrue(ConditionType::Ready).filter(|ready| ready.message != found.message) {
        found.message = format!("{}; {}", ready.message, found.message);
    }
    found.concerns.kinds = &[Kind::WorkloadNetwork, Kind::Node];
    let (affects, affects_more) = affects::listed(room.without.iter().map(node_key));
    Some(StatusFinding { affects, affects_more, basis: Basis::Intent, ..found })
}

/// Returns the finding of a NetworkPolicy that nodes do not enforce; `None` if they enforce it or have not caught up yet.
#[must_use]
pub fn network_policy(object: &Object, status: &NetworkPolicyStatus) -> Option<StatusFinding> {
    let is_lacking = |one: &&Condition| one.reason == ConditionReason::NotEnforcedOnNodes;
    let lacking = status.conditions.iter().find(is_lacking)?;
    let mut found = first(object, std::slice::from_ref(lacking), Impact::Degraded)?;
    found.concerns.kinds = &[Kind::NetworkPolicy, Kind::Workload, Kind::Node];
    Some(found)
}

/// Returns true if a node does not enforce network policy for all connections, so that the policies of its Workloads have to be
/// judged one by one.
#[must_use]
pub fn lacks_policy(view: &NodeView<'_>) -> bool {
    let policy = view.report.and_then(|report| report.policy.as_ref());
    policy.is_none_or(|policy| policy.enforcement != PolicyEnforcement::Full)
}

/// Returns the finding of a BgpPeer from its status, or `None` if the peer has no problem. The impact is
/// [`Impact::Risk`], because a missing session reduces redundancy, or [`Impact::Notice`] if no Node uses the
/// BgpPeer.
#[must_use]
pub fn bgp_peer(object: &Object, status: &BgpPeerStatus) -> Option<StatusFinding> {
    let ready = status.conditions.iter().find(|one| one.condition_type == ConditionType::Ready);
    let is_unused = ready.is_some_and(|ready| ready.reason == ConditionReason::NotUsed);
    let found = first(object, &status.conditions, if is_unused { Impact::Notice } else { Impact::Risk })?;
    let is_down = |one: &&NodeBgpSession| one.state != BgpSessionState::Established;
    let down = status.sessions.by_node.iter().filter(|(_, all)| all.iter().any(|one| is_down(&one)));
    let (affects, affects_more) = affects::listed(down.map(|(node, _)| node_key(node)));
    // Agents report their sessions shortly after a peer is written.
    let is_passing = found.reason == "NoSession";
    Some(StatusFinding { affects, affects_more, is_passing, basis: Basis::Reports, ..found })
}

/// Returns a finding for the first condition in the list that is not true, or `None` if all are true. Further
/// untrue conditions are usually consequences of the first.
#[must_use]
pub fn first(object: &Object, conditions: &[Condition], impact: Impact) -> Option<StatusFinding> {
    let Condition { condition_type, status: _, reason, message, hint } =
        conditions.iter().find(|one| one.status != ConditionStatus::True)?;
    let aspect = match condition_type {
        ConditionType::HasRoom => "HasRoom",
        ConditionType::Announced => "Announced",
        ConditionType::Used => "Used",
        ConditionType::Enforced => "Enforced",
        ConditionType::Accepted
        | ConditionType::AddressAssigned
        | ConditionType::EndpointsAvailable
        | ConditionType::Programmed
        | ConditionType::Ready
        | ConditionType::Connected
        | ConditionType::Converged
        | ConditionType::Resolvable
        | ConditionType::ResolvedRefs
        | ConditionType::Issued => "Ready",
    };
    let mut found = StatusFinding::new(object.key(), aspect, impact, reason.as_str(), message.clone());
    found.concerns.kinds = &[Kind::Advertisement, Kind::Node];
    Some(StatusFinding { hint: hint.clone(), basis: Basis::Reports, ..found })
}

/// Returns the finding for Nodes that do not report but do not count as lost, because too many Nodes are
/// silent at once; `None` if there are none. `held` are the names of these Nodes.
#[must_use]
pub fn too_many_silent(held: &[Name]) -> Option<StatusFinding> {
    let names: Vec<_> = held.iter().take(NAMES_MAX).map(ToString::to_string).collect();
    let message = format!(
        "{} silent Nodes are not taken out of service, because so many are silent at once: {}",
        held.len(),
        names.join(", ")
    );
    let found =
        StatusFinding::new(node_key(held.first()?), "Silence", Impact::Risk, "TooManySilent", message);
    let (affects, affects_more) = affects::listed(held.iter().map(node_key));
    let hint = "see whether this server is cut off; delete the Nodes that are really gone";
    Some(StatusFinding { hint: Some(hint.to_owned()), affects, affects_more, basis: Basis::Reports, ..found })
}

/// Returns the finding for unhealthy endpoints that the health guard keeps in service. One of these endpoints
/// is given as an example: `service`, `key` and `first` are its Service, address and state. `affected` are
/// the other Services with such endpoints; `counts` are the number of these endpoints and of all checked
/// endpoints.
#[must_use]
pub fn health_held(
    service: &ServiceKey,
    key: &CheckKey,
    first: &HeldEndpoint,
    counts: (usize, usize),
    affected: impl Iterator<Item = ServiceKey>,
) -> StatusFinding {
    let (held, checked) = counts;
    let message = format!(
        "{held} of {checked} checked endpoints stay in service although they are unhealthy, because so many became so at \
         once; the first is {key}: {}",
        first.message
    );
    let about = service.object_key();
    let found = StatusFinding::new(about, "HealthGuard", Impact::Degraded, "HealthGuardHeld", message);
    let hint = "find out whether the checks or the network are at fault; `tidegate health --confirm` removes them from service";
    let affected = affected.map(|key| AffectedObject::from(key.object_key()));
    let (affects, affects_more) = affects::listed(affected);
    let since: Option<Timestamp> = Some(first.since);
    StatusFinding { hint: Some(hint.to_owned()), since, affects, affects_more, ..found }
}

/// Returns the finding for a DNS server with problems; `None` if it has none. The reason and the impact are those of the worst
/// problem.
#[must_use]
pub fn dns_server(name: &Name, problems: &[DnsServerProblem]) -> Option<StatusFinding> {
    let rank = |problem: &&DnsServerProblem| impact_of(problem);
    let worst = problems.iter().min_by_key(rank)?;
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let about = Subject::dns_server(name.clone());
    let found = StatusFinding::new(about, "Answers", impact_of(worst), worst.reason(), texts.join("; "));
    let hint = match worst {
        DnsServerProblem::Silent { .. } => {
            "start tidegate-dns on the machine, with a token of the role dns-server; a server that is gone is forgotten after an hour"
        }
        DnsServerProblem::Contested => "give each DNS server its own --name",
        DnsServerProblem::NoState | DnsServerProblem::NotConnected | DnsServerProblem::Behind(_) => {
            "see the log of tidegate-dns: its --api must reach a control server, with a token of the role dns-server"
        }
        DnsServerProblem::ZoneShadowed(_) => {
            "choose a zone outside of the names of Services and pods, or another --domain of tidegate-dns"
        }
        DnsServerProblem::UpstreamFailing(_)
        | DnsServerProblem::UpstreamLooping(_)
        | DnsServerProblem::Failures { .. } => {
            "see `tidegate dns servers`, and `tidegate dns top --failures` on the machine for the names"
        }
    };
    Some(StatusFinding { hint: Some(hint.to_owned()), basis: Basis::Reports, ..found })
}

/// Returns the impact of a problem of a DNS server on clients, which may use other DNS servers.
const fn impact_of(problem: &DnsServerProblem) -> Impact {
    match problem {
        DnsServerProblem::NoState | DnsServerProblem::Failures { .. } => Impact::Degraded,
        DnsServerProblem::Silent { .. }
        | DnsServerProblem::Contested
        | DnsServerProblem::Behind(_)
        | DnsServerProblem::NotConnected
        | DnsServerProblem::UpstreamFailing(_)
        | DnsServerProblem::UpstreamLooping(_) => Impact::Risk,
        DnsServerProblem::ZoneShadowed(_) => Impact::Degraded,
    }
}
