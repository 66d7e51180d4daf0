//! Evaluation of all nodes as candidates for announcing one address.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{ClusterView, IneligibleReason};
use crate::{
    cluster::{
        compiled::{CompiledEndpoint, CompiledService},
        snapshot::Snapshot,
    },
    kinds::{
        address::{AddressSpec, Candidate},
        advertisement::{AdvertisementSpec, AdvertisementType, InterfaceName, WhenIsolated},
        metadata::Labels,
        node::{NodeSpec, ProxyMode},
        resource::{Kind, Object, ObjectKey},
        selector::Selector,
    },
    observed::rollup::{NodeView, is_served},
    primitives::{name::Name, net::IpFamily, quantity::Position},
    wire::report::{Facts, Report},
};

/// Result of the evaluation of all nodes as candidates for one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressEvaluation {
    /// True if an Advertisement of type L2 covers the address.
    pub is_advertised: bool,
    /// True if one of the covering Advertisements enables replies to pings of the address.
    pub answer_ping: bool,
    /// Strictest value of `whenIsolated` among the covering Advertisements: `Withdraw` if at least one
    /// requires it.
    pub when_isolated: WhenIsolated,
    /// Advertisements of type BGP that cover the address.
    pub by_bgp: BTreeSet<Name>,
    /// Result for each Node, ordered by name.
    pub nodes: Vec<(Name, Eligibility)>,
}

/// Result of the evaluation of one node as a candidate for announcing one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eligibility {
    /// The node may announce the address. Contains its properties as a candidate.
    Eligible(EligibleNode),
    /// The node may remain a candidate but must not become one now, because its agent is silent or has not
    /// verified the Services that have the address.
    NotReady {
        /// Properties of the node as a candidate; `None` before the first report of its agent.
        fit: Option<EligibleNode>,
        /// Reason why the node may not become a new candidate now.
        reason: IneligibleReason,
    },
    /// The node must not announce the address, for this reason.
    Ineligible(IneligibleReason),
}

/// Properties of a node as a candidate for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EligibleNode {
    /// Candidate entry for the address record: node name, node address and interfaces.
    pub candidate: Candidate,
    /// Sum of the weights of the node preferences (`preferredNodeSelectors`) that match the node.
    pub weight: u32,
}

impl AddressEvaluation {
    /// Returns the result for one node, or `None` if the node does not exist.
    #[must_use]
    pub fn eligibility(&self, node: &Name) -> Option<&Eligibility> {
        let at = self.nodes.binary_search_by(|(name, _)| name.cmp(node)).ok()?;
        self.nodes.get(at).map(|(_, eligibility)| eligibility)
    }

    /// Returns the nodes that will be candidates after they have verified the Services of the address.
    pub fn not_ready(&self) -> impl Iterator<Item = &Name> {
        let is_catching_up = |eligibility: &Eligibility| {
            matches!(eligibility, Eligibility::NotReady { reason: IneligibleReason::NotVerified(_), .. })
        };
        self.nodes.iter().filter(move |(_, eligibility)| is_catching_up(eligibility)).map(|(name, _)| name)
    }
}

/// Inputs of the evaluation of one address that are the same for all nodes.
struct EvaluationContext<'a> {
    view: &'a ClusterView<'a>,
    record: &'a AddressSpec,
    advertisements: Vec<&'a AdvertisementSpec>,
    services: Vec<Arc<CompiledService>>,
}

/// Evaluates for each node whether it may announce an address. Returns `None` if there is no Address object
/// for the address, or no Service has the address.
#[must_use]
pub fn evaluate(view: &ClusterView<'_>, address: IpAddr) -> Option<AddressEvaluation> {
    let record = view.snapshot.address(address)?.as_address().filter(|record| !record.services.is_empty())?;
    let covering = |how| covering(view.snapshot, record, how);
    let advertisements: Vec<_> = covering(AdvertisementType::L2).map(|(_, spec)| spec).collect();
    let compiled = record.services.iter().filter_map(view.compiled);
    let services = compiled
        .filter(|service| service.unsupported.is_empty() && service.load_balancer_ips.contains(&address));
    let context = EvaluationContext { view, record, services: services.collect(), advertisements };
    let asks_to_withdraw = |one: &&AdvertisementSpec| one.when_isolated == WhenIsolated::Withdraw;
    let mut nodes: Vec<_> =
        view.nodes.iter().map(|view| (view.name.clone(), context.eligibility(view))).collect();
    nodes.sort_by(|a, b| a.0.cmp(&b.0));
    Some(AddressEvaluation {
        is_advertised: !context.advertisements.is_empty(),
        answer_ping: context.advertisements.iter().any(|one| one.answer_ping),
        when_isolated: context
            .advertisements
            .iter()
            .find(|one| asks_to_withdraw(one))
            .map_or(WhenIsolated::Keep, |one| one.when_isolated),
        by_bgp: covering(AdvertisementType::Bgp).map(|(name, _)| name.clone()).collect(),
        nodes,
    })
}

/// Returns the Advertisements of a type that cover an address: those that select the pool of the address and
/// the labels of a Service that has the address.
pub(crate) fn covering<'a>(
    snapshot: &'a Snapshot,
    record: &'a AddressSpec,
    how: AdvertisementType,
) -> impl Iterator<Item = (&'a Name, &'a AdvertisementSpec)> {
    let labels: Vec<&Labels> = record
        .services
        .iter()
        .filter_map(|key| snapshot.service(key))
        .map(|object| &object.metadata.labels)
        .collect();
    let all = snapshot.list(Kind::Advertisement, None, None);
    let all = all.filter_map(|object| Some((&object.metadata.name, object.as_advertisement()?)));
    all.filter(move |(_, spec)| {
        let of_service = spec.service_selectors.is_empty()
            || labels.iter().any(|labels| Selector::any_matches(&spec.service_selectors, labels));
        spec.advertisement_type == how && spec.covers_pool(record.pool.as_ref()) && of_service
    })
}

impl EvaluationContext<'_> {
    fn eligibility(&self, view: &NodeView<'_>) -> Eligibility {
        let key = ObjectKey { kind: Kind::Node, namespace: None, name: view.name.clone() };
        let Some((object, node)) = self.view.snapshot.get(&key).and_then(of_node) else {
            return Eligibility::Ineligible(IneligibleReason::NoNode);
        };
        if !node.takes_announcements() {
            return Eligibility::Ineligible(IneligibleReason::Drained);
        }
        let selecting: Vec<_> = self.selecting(&object.metadata.labels).collect();
        if selecting.is_empty() {
            return Eligibility::Ineligible(IneligibleReason::NotSelected);
        }
        if view.is_lost {
            return Eligibility::Ineligible(IneligibleReason::Silent(view.last_report));
        }
        let silent = match view.last_report {
            Some(at) => IneligibleReason::Silent(Some(at)),
            None => IneligibleReason::NeverReported,
        };
        let Some(report) = view.report else { return Eligibility::NotReady { fit: None, reason: silent } };
        if self.is_on_interface(view.name, report) {
            return Eligibility::Ineligible(IneligibleReason::OnInterface(self.record.address));
        }
        let candidate = match self.place(view.name, node, &report.facts, &selecting) {
            Ok(candidate) => candidate,
            Err(reason) => return Eligibility::Ineligible(reason),
        };
        let weight = selecting.iter().map(|one| weight(one, &object.metadata.labels)).sum();
        let fit = EligibleNode { candidate, weight };
        match self.obstacle(view, report) {
            Some(reason @ IneligibleReason::NotVerified(_)) => {
                Eligibility::NotReady { fit: Some(fit), reason }
            }
            Some(reason) => Eligibility::Ineligible(reason),
            None if !view.is_connected => Eligibility::NotReady { fit: Some(fit), reason: silent },
            None => Eligibility::Eligible(fit),
        }
    }

    /// Returns true if a node that is no candidate yet has the address on an interface, for another purpose than
    /// this product. In ipvs mode the virtual addresses are on an interface. A candidate is not examined, because it
    /// may have left ipvs mode a moment ago.
    fn is_on_interface(&self, name: &Name, report: &Report) -> bool {
        let is_candidate = self.record.announcement.candidates.iter().any(|one| one.node == *name);
        !is_candidate && has_on_interface(report, self.record.address)
    }

    fn selecting(&self, labels: &Labels) -> impl Iterator<Item = &AdvertisementSpec> {
        let selects = |one: &&AdvertisementSpec| Selector::any_matches(&one.node_selectors, labels);
        self.advertisements.iter().copied().filter(selects)
    }

    /// Returns the candidate entry of a node: its interfaces in the network of the load balancer address, and
    /// its own address in this network. Fails with the reason if the node lacks one of them.
    fn place(
        &self,
        name: &Name,
        node: &NodeSpec,
        facts: &Facts,
        selecting: &[&AdvertisementSpec],
    ) -> Result<Candidate, IneligibleReason> {
        let address = self.record.address;
        let holding: Vec<(&String, &IpNet)> = facts
            .subnets
            .iter()
            .flat_map(|(interface, networks)| networks.iter().map(move |network| (interface, network)))
            .filter(|(_, network)| is_link(network) && network.contains(&address))
            .collect();
        if holding.is_empty() {
            return Err(IneligibleReason::NoSubnet(address));
        }
        let allowed = |interface: &InterfaceName| {
            selecting.iter().any(|one| one.interfaces.is_empty() || one.interfaces.contains(interface))
        };
        let named = holding.into_iter().filter_map(|(interface, network)| {
            let interface = InterfaceName::try_from(interface.clone()).ok()?;
            allowed(&interface).then_some((interface, network))
        });
        let (interfaces, networks): (BTreeSet<_>, Vec<_>) = named.unzip();
        if interfaces.is_empty() {
            return Err(IneligibleReason::NoInterface);
        }
        let own = self.own_address(name, node, facts, &networks).ok_or(IneligibleReason::NoOwnAddress)?;
        let peer_public_key = facts.peer_public_key;
        Ok(Candidate { node: name.clone(), address: own, interfaces, peer_public_key })
    }

    /// Returns an address of the node itself in one of the networks, if any. In order of preference: the
    /// address in the present record, an address in the spec of the Node, any reported address.
    fn own_address(
        &self,
        name: &Name,
        node: &NodeSpec,
        facts: &Facts,
        networks: &[&IpNet],
    ) -> Option<IpAddr> {
        let known = self.record.announcement.candidates.iter().find(|candidate| candidate.node == *name);
        let known = known.map(|candidate| candidate.address).filter(|known| facts.addresses.contains(known));
        let stated = node.addresses.iter().copied().filter(|stated| facts.addresses.contains(stated));
        // In ipvs mode the virtual addresses are local too, but do not identify the machine.
        let is_own = |address: &IpAddr| {
            networks.iter().any(|network| network.contains(address))
                && self.view.snapshot.address(*address).is_none()
        };
        known.into_iter().chain(stated).chain(facts.addresses.iter().copied()).find(is_own)
    }

    /// Returns the reason why a node cannot currently serve all Services that have the address; `None` if it
    /// can.
    fn obstacle(&self, view: &NodeView<'_>, report: &Report) -> Option<IneligibleReason> {
        if self.services.is_empty() {
            return Some(IneligibleReason::NothingExposed);
        }
        let mut unverified = None;
        for service in &self.services {
            let wanted = Position { epoch: self.view.epoch, revision: service.revision };
            let key = service.service.clone();
            // A failure of an older form counts until a newer form is known to have succeeded.
            let verified = is_served(view, &key, wanted);
            match report.failures.get(&key) {
                Some(failure) if !verified && !failure.reason.is_served() => {
                    return Some(IneligibleReason::Failed(key, failure.message.clone()));
                }
                Some(_) | None => {}
            }
            if !has_endpoint_for(service, view.name, self.record.address) {
                return Some(IneligibleReason::NoLocalEndpoint(key));
            }
            if !verified {
                unverified.get_or_insert(IneligibleReason::NotVerified(key));
            }
        }
        unverified
    }
}

/// Returns true if a node reports an address as its own. False in ipvs mode, in which the virtual addresses are
/// addresses of the node as well.
pub(crate) fn has_on_interface(report: &Report, address: IpAddr) -> bool {
    report.mode != ProxyMode::Ipvs && report.facts.addresses.contains(&address)
}

/// Returns true if a network can contain neighbors: it is not a single address (/32 or /128).
fn is_link(network: &IpNet) -> bool {
    network.prefix_len() < network.max_prefix_len()
}

fn of_node(object: &Arc<Object>) -> Option<(&Object, &NodeSpec)> {
    Some((object, object.as_node()?))
}

fn weight(advertisement: &AdvertisementSpec, labels: &Labels) -> u32 {
    let preferred = advertisement.preferred_node_selectors.iter();
    preferred.filter(|one| one.preference.matches(labels)).map(|one| u32::from(one.weight)).sum()
}

/// Returns true if a node may accept traffic for a Service at `address`. With external traffic policy Local,
/// the node needs a local endpoint of the same IP family that is ready, or that still serves while it
/// terminates (KEP-1669).
fn has_endpoint_for(service: &CompiledService, node: &Name, address: IpAddr) -> bool {
    let is_usable = |endpoint: &CompiledEndpoint| {
        endpoint.node.as_ref() == Some(node)
            && endpoint.weight.0 > 0
            && IpFamily::of(endpoint.address) == IpFamily::of(address)
            && (endpoint.ready || (endpoint.serving && endpoint.terminating))
    };
    service.external_traffic_policy != crate::kinds::service::TrafficPolicy::Local
        || service.ports.iter().flat_map(|port| &port.endpoints).any(is_usable)
}
