//! Status of announcements: computes the condition Announced of addresses, Services, pools and
//! Advertisements.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use super::{NodeView, bgp::reaches_peers, condition, no, yes};
use crate::{
    bgp::book::BgpBook,
    kinds::{
        address::AddressSpec,
        address_pool::{AddressPoolSpec, AddressRange},
        advertisement::{AdvertisementSpec, AdvertisementType},
        condition_reason::ConditionReason,
        resource::{Kind, ObjectKey, ServiceKey, Spec},
        selector::Selector,
    },
    observed::{
        announcements::AnnouncementBook,
        assign::{ClusterView, NoCandidateReason, covering, evaluate, has_on_interface},
        status::{AddressStatus, AdvertisementStatus, Condition, ConditionStatus, ConditionType},
    },
    primitives::name::Name,
    wire::report::{AddressReport, AnnouncementRole},
};

/// Type of all conditions that this module returns.
const AT: ConditionType = ConditionType::Announced;

/// Inputs for the status of announcements.
#[derive(Clone, Copy)]
pub struct AnnouncementInputs<'a> {
    /// Objects of the cluster, and the lease state and last report of each node.
    pub scene: ClusterView<'a>,
    /// Announcement states reported by the agents.
    pub book: &'a AnnouncementBook,
    /// BGP sessions and routes that the agents report.
    pub bgp: &'a BgpBook,
}

/// Computes the status of an Address from its record and the reports of the agents.
#[must_use]
pub fn address_status(of: &AnnouncementInputs<'_>, record: &AddressSpec) -> AddressStatus {
    let evaluation = evaluate(&of.scene, record.address);
    let owner = of.owner(record);
    let is_candidate =
        |node: &Name| record.announcement.candidates.iter().any(|candidate| candidate.node == *node);
    // An address announced only by BGP needs no node that answers ARP or NDP, so it has no candidates.
    let evaluation = evaluation.filter(|evaluation| evaluation.is_advertised || evaluation.by_bgp.is_empty());
    let mut not_candidates = evaluation.map(|evaluation| evaluation.not_candidates()).unwrap_or_default();
    not_candidates.retain(|node, _| !is_candidate(node));
    AddressStatus {
        conditions: vec![of.address(record)],
        owner: owner.map(|(node, _)| node.clone()),
        since: owner.map(|(_, announced)| announced.since),
        nodes: of
            .book
            .reported(record.address)
            .map(|(node, said)| (node.clone(), of.shown(record, node, said)))
            .collect(),
        not_candidates,
        by_bgp: of.status_by_bgp(record),
    }
}

/// Returns the condition Announced of a Service, which is true if all its load balancer addresses are announced;
/// `None` if it has none.
#[must_use]
pub fn service_announced(of: &AnnouncementInputs<'_>, service: &ServiceKey) -> Option<Condition> {
    let snapshot = of.scene.snapshot;
    let records = snapshot.addresses_of(service).filter_map(|address| snapshot.address(address));
    let conditions: Vec<_> =
        records.filter_map(|object| object.as_address()).map(|record| of.address(record)).collect();
    let worst = conditions.iter().find(|one| one.status != ConditionStatus::True);
    if let Some(worst) = worst {
        return Some(worst.clone());
    }
    let messages: Vec<_> = conditions.iter().map(|one| one.message.as_str()).collect();
    let is_external = |one: &Condition| one.reason == ConditionReason::RoutedExternally;
    let is_external = conditions.iter().all(is_external);
    let reason = if is_external { ConditionReason::RoutedExternally } else { ConditionReason::Announced };
    (!conditions.is_empty()).then(|| Condition { message: messages.join("; "), ..yes(AT, reason) })
}

/// Announcement state of a load balancer address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressStanding {
    /// At least one node announces the address, or another system routes it to the nodes.
    Announced,
    /// No node announces the address, although a node should.
    Waiting,
    /// Another machine or node also announces the address.
    Conflicting,
}

/// Returns the announcement state of an address, and the node that announces it by ARP or NDP. Unlike
/// [`address_status`], the function does not compute the reason of a missing announcement, because that is
/// expensive.
#[must_use]
pub fn address_standing<'a>(
    of: &'a AnnouncementInputs<'_>,
    record: &AddressSpec,
) -> (AddressStanding, Option<&'a Name>) {
    let owner = of.owner(record).map(|(node, _)| node).filter(|node| of.is_reporting(node));
    let standing = if of.conflict(record).is_some() {
        AddressStanding::Conflicting
    } else if owner.is_some() || of.is_announced_by_bgp(record) || of.external_route(record).is_some() {
        AddressStanding::Announced
    } else {
        AddressStanding::Waiting
    };
    (standing, owner)
}

impl AnnouncementInputs<'_> {
    pub(super) fn view(&self, node: &Name) -> Option<&NodeView<'_>> {
        let at = self.scene.nodes.binary_search_by(|view| view.name.cmp(node)).ok()?;
        self.scene.nodes.get(at)
    }

    /// Returns true if the agent of a node currently reports.
    pub(super) fn is_reporting(&self, node: &Name) -> bool {
        self.view(node).is_some_and(NodeView::is_reporting)
    }

    /// Returns true if the DNS server may answer with the address: a node announces it, or another system routes it to
    /// the nodes. A conflict with another announcer alone does not remove the address, because it may still reach the
    /// Service for a part of the clients.
    #[must_use]
    pub fn is_in_dns(&self, record: &AddressSpec) -> bool {
        let (standing, owner) = address_standing(self, record);
        match standing {
            AddressStanding::Announced => true,
            AddressStanding::Conflicting => owner.is_some() || self.is_announced_by_bgp(record),
            AddressStanding::Waiting => false,
        }
    }

    /// Returns the node that owns (announces) the address according to its own report. If there are several,
    /// prefers nodes whose agents currently report, then nodes without a successor, then candidates of a higher rank.
    fn owner(&self, record: &AddressSpec) -> Option<(&Name, &AddressReport)> {
        let rank = |node: &Name| {
            let place = record.announcement.candidates.iter().position(|candidate| candidate.node == *node);
            let has_successor = self.successor(record, node).is_some();
            (!self.is_reporting(node), has_successor, place.unwrap_or(usize::MAX))
        };
        let said = self
            .book
            .reported(record.address)
            .filter(|(_, announced)| announced.role == AnnouncementRole::Owner);
        said.min_by_key(|(node, _)| rank(node))
    }

    /// Returns the reported state of a node for an address as the status contains it.
    fn shown(&self, record: &AddressSpec, node: &Name, said: &AddressReport) -> AddressReport {
        let conflict = self.actual_conflict(record, node, said);
        let is_owner = said.role == AnnouncementRole::Owner;
        let successor = self.successor(record, node).filter(|_| is_owner);
        let reason = successor.map_or_else(
            || said.reason.clone(),
            |successor| format!("last report before {successor} took over: {}", said.reason),
        );
        AddressReport { conflict, reason, ..said.clone() }
    }

    /// Returns the candidate that has taken an address over from a node since the last report of that node, which
    /// is out of date therefore; `None` if there is none.
    pub(super) fn successor<'a>(&self, record: &'a AddressSpec, node: &Name) -> Option<&'a Name> {
        let candidates = record.announcement.candidates.iter().map(|candidate| &candidate.node);
        let has_succeeded = |successor: &&Name| {
            self.is_reporting(successor) && self.book.has_succeeded(record.address, successor, node)
        };
        candidates.into_iter().find(has_succeeded)
    }

    fn address(&self, record: &AddressSpec) -> Condition {
        let address = record.address;
        if record.services.is_empty() {
            return no(AT, ConditionReason::InQuarantine, format!("no Service has {address}"));
        }
        if let Some(conflict) = self.conflict(record) {
            return conflict;
        }
        match (self.by_l2(record), self.by_bgp(record)) {
            (Some(l2), Some(bgp)) => both(l2, bgp),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => self.nobody(address),
        }
    }

    /// Returns the condition Announced of an address for ARP and NDP; `None` if no Advertisement of type L2
    /// covers the address.
    fn by_l2(&self, record: &AddressSpec) -> Option<Condition> {
        let AddressSpec { address, announcement, .. } = record;
        let owner = self.owner(record);
        if let Some((node, announced)) = owner
            && self.is_reporting(node)
        {
            let on = if announced.interfaces.is_empty() { "" } else { " on " };
            let message = format!("{node} announces {address}{on}{}", announced.interfaces.join(", "));
            return Some(Condition { message, ..yes(AT, ConditionReason::Announced) });
        }
        let Some(first) = announcement.candidates.first() else {
            let is_wanted = announcement.advertisements.is_empty()
                || covering(self.scene.snapshot, record, AdvertisementType::L2).next().is_some();
            return is_wanted.then(|| self.nobody(*address));
        };
        if let Some((node, _)) = owner {
            let message = format!("{node} announced {address} in its last report, and is silent");
            let silent = condition(AT, ConditionStatus::Unknown, ConditionReason::OwnerSilent, message);
            return Some(
                silent.hint(
                    "the other candidates take the address over without control; check that they report",
                ),
            );
        }
        let said = self.book.reported(*address).find(|(node, _)| **node == first.node);
        let reason =
            said.map_or_else(|| "it has not reported it yet".to_owned(), |(_, said)| said.reason.clone());
        let message = format!("{} is assigned to announce {address}: {reason}", first.node);
        Some(
            no(AT, ConditionReason::NotYetAnnounced, message)
                .hint("check that tidegate-agent runs on that node, and its status of the address"),
        )
    }

    /// Returns true if an Advertisement covers the address.
    fn is_covered(&self, record: &AddressSpec) -> bool {
        let covering = |how| covering(self.scene.snapshot, record, how).next().is_some();
        covering(AdvertisementType::L2) || covering(AdvertisementType::Bgp)
    }

    /// Returns a message if another system routes the address to the nodes, as stated by the pool or, for an
    /// address outside of all pools, by `--allow-external-ip` of the control server; `None` if an Advertisement
    /// covers the address, or nodes should announce it.
    fn external_route(&self, record: &AddressSpec) -> Option<String> {
        let basis = match &record.pool {
            Some(name) => {
                self.scene.snapshot.pool(name).filter(|pool| pool.routed_externally)?;
                format!("AddressPool {name} has routedExternally")
            }
            None => "it is outside of all pools, in a range of --allow-external-ip".to_owned(),
        };
        let address = record.address;
        let is_external = !record.services.is_empty() && !self.is_covered(record);
        is_external.then(|| format!("another system routes {address} to the nodes: {basis}"))
    }

    fn nobody(&self, address: IpAddr) -> Condition {
        let record = self.scene.snapshot.address(address).and_then(|object| object.as_address());
        if let Some(message) = record.and_then(|record| self.external_route(record)) {
            return Condition { message, ..yes(AT, ConditionReason::RoutedExternally) };
        }
        if record.is_some_and(|record| !record.services.is_empty() && !self.is_covered(record)) {
            // Returned without an evaluation of the nodes, because thousands of addresses may be in this state.
            let NoCandidateReason { reason, message, hint } = NoCandidateReason::no_advertisement(address);
            return no(AT, reason, message).hint(hint);
        }
        let Some(evaluation) = evaluate(&self.scene, address) else {
            return no(AT, ConditionReason::InQuarantine, format!("no Service has {address}"));
        };
        let is_possible = evaluation.nodes.iter().any(|(_, eligibility)| eligibility.reason().is_none());
        if !evaluation.is_advertised && !evaluation.by_bgp.is_empty() {
            let message = format!("the Advertisements that cover {address} are being recorded");
            return no(AT, ConditionReason::NotYetAnnounced, message);
        }
        if evaluation.is_advertised && is_possible {
            return no(
                AT,
                ConditionReason::NotYetAnnounced,
                format!("the candidates for {address} are being chosen"),
            );
        }
        let found = evaluation.reason(address);
        no(AT, found.reason, found.message).hint(found.hint)
    }
}

/// Combines the two conditions of an address that must be announced both by ARP or NDP (`l2`) and by BGP
/// (`bgp`). If both are true, so is the result; otherwise, the result has the status and reason of a
/// condition that is not true. The message of the result contains both messages.
fn both(l2: Condition, bgp: Condition) -> Condition {
    let is_bgp_first = l2.status == ConditionStatus::True && bgp.status != ConditionStatus::True;
    let (first, other) = if is_bgp_first { (bgp, l2) } else { (l2, bgp) };
    Condition { message: format!("{}; {}", first.message, other.message), ..first }
}

/// Returns the condition Announced of a pool, which is true if the addresses of the pool can be announced: an
/// Advertisement covers the pool and, for ARP and NDP, each range of the pool overlaps a network of a node.
#[must_use]
pub fn pool_announced(scene: &ClusterView<'_>, name: &Name, spec: &AddressPoolSpec) -> Condition {
    let advertisements =
        scene.snapshot.list(Kind::Advertisement, None, None).filter_map(|object| object.as_advertisement());
    let covers = |one: &&AdvertisementSpec| one.covers_pool(Some(name));
    let covering: Vec<_> = advertisements.filter(covers).collect();
    if covering.is_empty() && spec.routed_externally {
        let message = "another system routes its addresses to the nodes".to_owned();
        return Condition { message, ..yes(AT, ConditionReason::RoutedExternally) };
    }
    if covering.is_empty() {
        return no(AT, ConditionReason::NoAdvertisement, format!("no Advertisement covers pool {name}"))
            .hint("create an Advertisement for it, or set spec.routedExternally if another system routes its addresses");
    }
    if covering.iter().any(|one| one.advertisement_type == AdvertisementType::Bgp) {
        // BGP can announce any address; the Advertisement's status shows its peers.
        return yes(AT, ConditionReason::Announceable);
    }
    if scene.nodes.iter().all(|view| view.report.is_none()) {
        let message = "no node has reported its networks".to_owned();
        return condition(AT, ConditionStatus::Unknown, ConditionReason::NoNodes, message)
            .hint("start tidegate-agent on a machine");
    }
    let networks = || {
        let facts = scene.nodes.iter().filter_map(|view| view.report).map(|report| &report.facts);
        facts.flat_map(|facts| facts.subnets.values().flatten())
    };
    let is_outside = |range: &&AddressRange| !networks().any(|network| meets(range, network));
    let outside: Vec<_> = spec.addresses.iter().filter(is_outside).map(ToString::to_string).collect();
    if outside.is_empty() {
        let message = addresses_of_nodes(scene, spec);
        return Condition { message, ..yes(AT, ConditionReason::Announceable) };
    }
    no(
        AT,
        ConditionReason::NoNodeInSubnet,
        format!("{} of pool {name} is in no network of a node", outside.join(", ")),
    )
    .hint("an address is announced by ARP or NDP only inside a network of the node; choose ranges there")
}

/// Maximum number of addresses of nodes that the status of a pool names.
const NODE_ADDRESSES_NAMED_MAX: usize = 10;

/// Returns a message that names the addresses of a pool that are configured on interfaces of nodes, so that these
/// nodes do not announce them; empty if there are none.
fn addresses_of_nodes(scene: &ClusterView<'_>, spec: &AddressPoolSpec) -> String {
    let reports = scene.nodes.iter().filter_map(|view| Some((view.name, view.report?)));
    let own = reports.flat_map(|(name, report)| {
        let addresses = report.facts.addresses.iter().filter(|address| has_on_interface(report, **address));
        addresses.map(move |address| (name, *address))
    });
    let inside: Vec<_> = own
        .filter(|(_, address)| spec.contains(*address))
        .take(NODE_ADDRESSES_NAMED_MAX)
        .map(|(name, address)| format!("{address} is configured on an interface of node {name}"))
        .collect();
    inside.join("; ")
}

fn meets(range: &AddressRange, network: &IpNet) -> bool {
    network.prefix_len() < network.max_prefix_len() && range.overlaps(&AddressRange::Net(network.trunc()))
}

/// Computes the status of an Advertisement from the cluster objects and the reports of the agents.
#[must_use]
pub fn advertisement_status(scene: &ClusterView<'_>, spec: &AdvertisementSpec) -> AdvertisementStatus {
    AdvertisementStatus {
        conditions: vec![yes(ConditionType::Accepted, ConditionReason::Valid), advertised(scene, spec)],
    }
}

fn advertised(scene: &ClusterView<'_>, spec: &AdvertisementSpec) -> Condition {
    let selected: Vec<_> = scene.nodes.iter().filter(|view| selects(scene, spec, view.name)).collect();
    if selected.is_empty() {
        let message = "no Node has labels that match spec.nodeSelectors".to_owned();
        return match scene.nodes {
            [] => condition(
                AT,
                ConditionStatus::Unknown,
                ConditionReason::NoNodes,
                "there are no Nodes".to_owned(),
            )
            .hint("start tidegate-agent on a machine"),
            [..] => no(AT, ConditionReason::NoMatchingNode, message)
                .hint("compare them with metadata.labels of the Nodes"),
        };
    }
    if spec.advertisement_type == AdvertisementType::Bgp {
        let names: BTreeSet<&Name> = selected.iter().map(|view| view.name).collect();
        return reaches_peers(scene.snapshot, spec, &names);
    }
    let facts: Vec<_> = selected.iter().filter_map(|view| view.report).map(|report| &report.facts).collect();
    let has_interface = |name: &str| facts.iter().any(|facts| facts.subnets.contains_key(name));
    if !facts.is_empty()
        && !spec.interfaces.is_empty()
        && !spec.interfaces.iter().any(|name| has_interface(name.as_str()))
    {
        let names: Vec<_> = spec.interfaces.iter().map(ToString::to_string).collect();
        let message = format!("no Node that it selects has an interface {} with a network", names.join(", "));
        return no(AT, ConditionReason::NoMatchingInterface, message)
            .hint("compare spec.interfaces with status.facts of the Nodes");
    }
    yes(AT, ConditionReason::NodesFound)
}

fn selects(scene: &ClusterView<'_>, spec: &AdvertisementSpec, node: &Name) -> bool {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    let object = scene.snapshot.get(&key).filter(|object| matches!(object.spec, Spec::Node(_)));
    object.is_some_and(|object| Selector::any_matches(&spec.node_selectors, &object.metadata.labels))
}
