//! Whether a node may announce an address, looked at node by node.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{Scene, Unfit};
use crate::{
    cluster::{
        compiled::{CompiledEndpoint, CompiledService},
        snapshot::Snapshot,
    },
    kinds::{
        address::{AddressSpec, Candidate},
        advertisement::{AdvertisementSpec, AdvertisementType, InterfaceName, WhenIsolated},
        metadata::Labels,
        node::NodeSpec,
        resource::{Kind, Object, ObjectKey, Spec},
        selector::Selector,
    },
    observed::{
        rollup::{NodeView, progress},
        status::Phase,
    },
    primitives::{name::Name, net::IpFamily, quantity::Position},
    wire::report::{Facts, Report},
};

/// What every node can do for one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Whether an Advertisement of type L2 covers the address.
    pub is_advertised: bool,
    /// Whether one of them lets the address be pinged.
    pub answer_ping: bool,
    /// What the strictest of them says.
    pub when_isolated: WhenIsolated,
    /// The Advertisements of type BGP that cover the address.
    pub by_bgp: BTreeSet<Name>,
    /// Every Node, in the order of the names.
    pub nodes: Vec<(Name, Standing)>,
}

/// What one node can do for one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It can announce it.
    Fit(Fit),
    /// It stays a candidate if it is one, and does not become one now.
    NotReady {
        /// What it would be, if that is known.
        fit: Option<Fit>,
        /// What is missing.
        why: Unfit,
    },
    /// It must not announce it.
    Unfit(Unfit),
}

/// A node that can announce an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The node with its place in the network.
    pub candidate: Candidate,
    /// How much Advertisements prefer it.
    pub weight: u32,
}

impl Judgement {
    /// What one node can do.
    #[must_use]
    pub fn standing(&self, node: &Name) -> Option<&Standing> {
        let at = self.nodes.binary_search_by(|(name, _)| name.cmp(node)).ok()?;
        self.nodes.get(at).map(|(_, standing)| standing)
    }

    /// The nodes that will be candidates once they have verified the Services of the address.
    pub fn not_ready(&self) -> impl Iterator<Item = &Name> {
        let is_catching_up =
            |standing: &Standing| matches!(standing, Standing::NotReady { why: Unfit::NotVerified(_), .. });
        self.nodes.iter().filter(move |(_, standing)| is_catching_up(standing)).map(|(name, _)| name)
    }
}

/// What holds for every node.
struct Case<'a> {
    scene: &'a Scene<'a>,
    record: &'a AddressSpec,
    advertisements: Vec<&'a AdvertisementSpec>,
    services: Vec<Arc<CompiledService>>,
}

/// Judges every node; `None` when there is no such record, or no Service has the address.
#[must_use]
pub fn judge(scene: &Scene<'_>, address: IpAddr) -> Option<Judgement> {
    let record =
        scene.snapshot.address(address)?.as_address().filter(|record| !record.services.is_empty())?;
    let covering = |how| covering(scene.snapshot, record, how);
    let advertisements: Vec<_> = covering(AdvertisementType::L2).map(|(_, spec)| spec).collect();
    let compiled = record.services.iter().filter_map(scene.compiled);
    let services = compiled
        .filter(|service| service.unsupported.is_empty() && service.load_balancer_ips.contains(&address));
    let case = Case { scene, record, services: services.collect(), advertisements };
    let asks_to_withdraw = |one: &&AdvertisementSpec| one.when_isolated == WhenIsolated::Withdraw;
    let mut nodes: Vec<_> = scene.nodes.iter().map(|view| (view.name.clone(), case.standing(view))).collect();
    nodes.sort_by(|a, b| a.0.cmp(&b.0));
    Some(Judgement {
        is_advertised: !case.advertisements.is_empty(),
        answer_ping: case.advertisements.iter().any(|one| one.answer_ping),
        when_isolated: case
            .advertisements
            .iter()
            .find(|one| asks_to_withdraw(one))
            .map_or(WhenIsolated::Keep, |one| one.when_isolated),
        by_bgp: covering(AdvertisementType::Bgp).map(|(name, _)| name.clone()).collect(),
        nodes,
    })
}

/// The Advertisements of a type that cover an address by its pool and Services.
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

impl Case<'_> {
    fn standing(&self, view: &NodeView<'_>) -> Standing {
        let key = ObjectKey { kind: Kind::Node, namespace: None, name: view.name.clone() };
        let Some((object, node)) = self.scene.snapshot.get(&key).and_then(of_node) else {
            return Standing::Unfit(Unfit::NoNode);
        };
        if !node.takes_announcements() {
            return Standing::Unfit(Unfit::Drained);
        }
        let selecting: Vec<_> = self.selecting(&object.metadata.labels).collect();
        if selecting.is_empty() {
            return Standing::Unfit(Unfit::NotSelected);
        }
        if view.is_lost {
            return Standing::Unfit(Unfit::Silent(view.last_report));
        }
        let silent = match view.last_report {
            Some(at) => Unfit::Silent(Some(at)),
            None => Unfit::NeverReported,
        };
        let Some(report) = view.report else { return Standing::NotReady { fit: None, why: silent } };
        let candidate = match self.place(view.name, node, &report.facts, &selecting) {
            Ok(candidate) => candidate,
            Err(why) => return Standing::Unfit(why),
        };
        let weight = selecting.iter().map(|one| weight(one, &object.metadata.labels)).sum();
        let fit = Fit { candidate, weight };
        match self.obstacle(view, report) {
            Some(why @ Unfit::NotVerified(_)) => Standing::NotReady { fit: Some(fit), why },
            Some(why) => Standing::Unfit(why),
            None if !view.is_connected => Standing::NotReady { fit: Some(fit), why: silent },
            None => Standing::Fit(fit),
        }
    }

    fn selecting(&self, labels: &Labels) -> impl Iterator<Item = &AdvertisementSpec> {
        let selects = |one: &&AdvertisementSpec| Selector::any_matches(&one.node_selectors, labels);
        self.advertisements.iter().copied().filter(selects)
    }

    /// Where the node is in the network of the address.
    fn place(
        &self,
        name: &Name,
        node: &NodeSpec,
        facts: &Facts,
        selecting: &[&AdvertisementSpec],
    ) -> Result<Candidate, Unfit> {
        let address = self.record.address;
        let holding: Vec<(&String, &IpNet)> = facts
            .subnets
            .iter()
            .flat_map(|(interface, networks)| networks.iter().map(move |network| (interface, network)))
            .filter(|(_, network)| is_link(network) && network.contains(&address))
            .collect();
        if holding.is_empty() {
            return Err(Unfit::NoSubnet(address));
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
            return Err(Unfit::NoInterface);
        }
        let own = self.own_address(name, node, facts, &networks).ok_or(Unfit::NoOwnAddress)?;
        Ok(Candidate { node: name.clone(), address: own, interfaces })
    }

    /// The node's own address in one of these networks: the one it is known by already, else the first stated.
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
        // In ipvs mode the virtual addresses are on the machine as well; they say nothing about it.
        let is_own = |address: &IpAddr| {
            networks.iter().any(|network| network.contains(address))
                && self.scene.snapshot.address(*address).is_none()
        };
        known.into_iter().chain(stated).chain(facts.addresses.iter().copied()).find(is_own)
    }

    /// What keeps a node in the network from announcing.
    fn obstacle(&self, view: &NodeView<'_>, report: &Report) -> Option<Unfit> {
        if self.services.is_empty() {
            return Some(Unfit::NothingExposed);
        }
        let mut unverified = None;
        for service in &self.services {
            let wanted = Position { epoch: self.scene.epoch, revision: service.revision };
            let key = service.service.clone();
            // A failure of an older form counts until a newer form is known to have succeeded.
            let verified = matches!(progress(view, &key, wanted).0, Phase::Verified);
            match report.failures.get(&key) {
                Some(failure) if !verified => return Some(Unfit::Failed(key, failure.message.clone())),
                Some(_) | None => {}
            }
            if !has_endpoint_for(service, view.name, self.record.address) {
                return Some(Unfit::NoLocalEndpoint(key));
            }
            if !verified {
                unverified.get_or_insert(Unfit::NotVerified(key));
            }
        }
        unverified
    }
}

/// A network with neighbours: those of a single address only hold that address.
fn is_link(network: &IpNet) -> bool {
    network.prefix_len() < network.max_prefix_len()
}

fn of_node(object: &Arc<Object>) -> Option<(&Object, &NodeSpec)> {
    if let Spec::Node(spec) = &object.spec { Some((object, spec)) } else { None }
}

fn weight(advertisement: &AdvertisementSpec, labels: &Labels) -> u32 {
    let preferred = advertisement.preferred_node_selectors.iter();
    preferred.filter(|one| one.preference.matches(labels)).map(|one| u32::from(one.weight)).sum()
}

/// Whether a node may take traffic for a Service: with the policy Local only with an endpoint of its own, one that still
/// serves while it terminates included (KEP-1669).
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
