//! The roll-up of announcements: of an address, of a Service with addresses, of a pool and of an Advertisement.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use super::{NodeView, bgp::reaches_peers, condition, no, yes};
use crate::{
    bgp::book::BgpBook,
    kinds::{
        address::AddressSpec,
        address_pool::{AddressPoolSpec, AddressRange},
        advertisement::{AdvertisementSpec, AdvertisementType},
        resource::{Kind, ObjectKey, ServiceKey, Spec},
        selector::Selector,
    },
    observed::{
        announcements::AnnouncementBook,
        assign::{Scene, Why, covering, judge},
        status::{AddressStatus, AdvertisementStatus, Condition, ConditionStatus, ConditionType},
    },
    primitives::name::Name,
    wire::report::{AddressReport, AnnouncementRole},
};

/// The rung that all of this is about.
const AT: ConditionType = ConditionType::Announced;

/// What the roll-up of announcements rests on.
#[derive(Clone, Copy)]
pub struct Announcing<'a> {
    /// The state and the nodes.
    pub scene: Scene<'a>,
    /// What the agents say of their parts.
    pub book: &'a AnnouncementBook,
    /// What the agents say of sessions and routes.
    pub bgp: &'a BgpBook,
}

/// Rolls up the status of an address.
#[must_use]
pub fn address_status(of: &Announcing<'_>, record: &AddressSpec) -> AddressStatus {
    let judgement = judge(&of.scene, record.address);
    let owner = of.owner(record);
    let is_candidate =
        |node: &Name| record.announcement.candidates.iter().any(|candidate| candidate.node == *node);
    // Where routers are told, nobody answers: there is nothing to be a candidate for.
    let judgement = judgement.filter(|judgement| judgement.is_advertised || judgement.by_bgp.is_empty());
    let mut not_candidates = judgement.map(|judgement| judgement.not_candidates()).unwrap_or_default();
    not_candidates.retain(|node, _| !is_candidate(node));
    AddressStatus {
        conditions: vec![of.address(record)],
        owner: owner.map(|(node, _)| node.clone()),
        since: owner.map(|(_, announced)| announced.since),
        nodes: of.book.said(record.address).map(|(node, said)| (node.clone(), said.clone())).collect(),
        not_candidates,
        by_bgp: of.shown_by_bgp(record),
    }
}

/// Whether all addresses that a Service has by records are announced; `None` when it has none.
#[must_use]
pub fn service_announced(of: &Announcing<'_>, service: &ServiceKey) -> Option<Condition> {
    let snapshot = of.scene.snapshot;
    let records = snapshot.addresses_of(service).filter_map(|address| snapshot.address(address));
    let conditions: Vec<_> =
        records.filter_map(|object| object.as_address()).map(|record| of.address(record)).collect();
    let worst = conditions.iter().find(|one| one.status != ConditionStatus::True);
    if let Some(worst) = worst {
        return Some(worst.clone());
    }
    let messages: Vec<_> = conditions.iter().map(|one| one.message.as_str()).collect();
    (!conditions.is_empty()).then(|| Condition { message: messages.join("; "), ..yes(AT, "Announced") })
}

/// Whether an address is announced, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressStanding {
    /// By a node, in one way at least.
    Announced,
    /// By nobody.
    Waiting,
    /// Somebody else was heard to announce it.
    Conflicting,
}

/// Says whether an address is announced, and the node that does by ARP or NDP; why not costs more to say.
#[must_use]
pub fn address_standing<'a>(
    of: &'a Announcing<'_>,
    record: &AddressSpec,
) -> (AddressStanding, Option<&'a Name>) {
    let owner = of.owner(record).map(|(node, _)| node).filter(|node| of.is_reporting(node));
    let standing = if of.conflict(record.address).is_some() {
        AddressStanding::Conflicting
    } else if owner.is_some() || of.is_told_by_bgp(record) {
        AddressStanding::Announced
    } else {
        AddressStanding::Waiting
    };
    (standing, owner)
}

impl Announcing<'_> {
    fn view(&self, node: &Name) -> Option<&NodeView<'_>> {
        let at = self.scene.nodes.binary_search_by(|view| view.name.cmp(node)).ok()?;
        self.scene.nodes.get(at)
    }

    /// Whether the agent of a node reports.
    pub(super) fn is_reporting(&self, node: &Name) -> bool {
        self.view(node).is_some_and(|view| view.is_connected)
    }

    /// The node that says it owns the address; the first in rank when several do, and rather one that is heard of.
    fn owner(&self, record: &AddressSpec) -> Option<(&Name, &AddressReport)> {
        let rank = |node: &Name| {
            let place = record.announcement.candidates.iter().position(|candidate| candidate.node == *node);
            (!self.is_reporting(node), place.unwrap_or(usize::MAX))
        };
        let said =
            self.book.said(record.address).filter(|(_, announced)| announced.role == AnnouncementRole::Owner);
        said.min_by_key(|(node, _)| rank(node))
    }

    fn address(&self, record: &AddressSpec) -> Condition {
        let address = record.address;
        if record.services.is_empty() {
            return no(AT, "InQuarantine", format!("no Service has {address}"));
        }
        if let Some(conflict) = self.conflict(address) {
            return conflict;
        }
        match (self.by_l2(record), self.by_bgp(record)) {
            (Some(l2), Some(bgp)) => both(l2, bgp),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => self.nobody(address),
        }
    }

    /// Whether the address is announced by ARP or NDP; nothing where nobody is meant to.
    fn by_l2(&self, record: &AddressSpec) -> Option<Condition> {
        let AddressSpec { address, announcement, .. } = record;
        let owner = self.owner(record);
        if let Some((node, announced)) = owner
            && self.is_reporting(node)
        {
            let on = if announced.interfaces.is_empty() { "" } else { " on " };
            let message = format!("{node} announces {address}{on}{}", announced.interfaces.join(", "));
            return Some(Condition { message, ..yes(AT, "Announced") });
        }
        let Some(first) = announcement.candidates.first() else {
            let is_wanted = announcement.advertisements.is_empty()
                || covering(self.scene.snapshot, record, AdvertisementType::L2).next().is_some();
            return is_wanted.then(|| self.nobody(*address));
        };
        if let Some((node, _)) = owner {
            let message = format!("{node} announced {address} when it last reported, and is silent");
            let silent = condition(AT, ConditionStatus::Unknown, "OwnerSilent", message);
            return Some(
                silent.hint(
                    "the other candidates take the address over by themselves; see whether they report",
                ),
            );
        }
        let said = self.book.said(*address).find(|(node, _)| **node == first.node);
        let reason =
            said.map_or_else(|| "it has not said so yet".to_owned(), |(_, said)| said.reason.clone());
        let message = format!("{} is to announce {address}: {reason}", first.node);
        Some(
            no(AT, "NotYetAnnounced", message)
                .hint("see whether tidegate-agent runs on that node and what its status says of the address"),
        )
    }

    fn conflict(&self, address: IpAddr) -> Option<Condition> {
        let heard = |(node, said): (&Name, &AddressReport)| Some((node.clone(), said.conflict.clone()?));
        let (node, conflict) = self.book.said(address).find_map(heard)?;
        let message = format!(
            "{node} hears {} announce {address} too, on {}, last at {}",
            conflict.mac, conflict.interface, conflict.at
        );
        Some(
            no(AT, "Conflict", message)
                .hint("find the machine with that link-layer address and take the address from it, or reserve it in the pool"),
        )
    }

    fn nobody(&self, address: IpAddr) -> Condition {
        let record = self.scene.snapshot.address(address).and_then(|object| object.as_address());
        let is_covered = |record: &AddressSpec| {
            [AdvertisementType::L2, AdvertisementType::Bgp]
                .into_iter()
                .any(|how| covering(self.scene.snapshot, record, how).next().is_some())
        };
        if record.is_some_and(|record| !record.services.is_empty() && !is_covered(record)) {
            // Without a look at the nodes: it may be so of thousands of addresses.
            let Why { reason, message, hint } = Why::no_advertisement(address);
            return no(AT, reason, message).hint(hint);
        }
        let Some(judgement) = judge(&self.scene, address) else {
            return no(AT, "InQuarantine", format!("no Service has {address}"));
        };
        let is_possible = judgement.nodes.iter().any(|(_, standing)| standing.why().is_none());
        if !judgement.is_advertised && !judgement.by_bgp.is_empty() {
            let message = format!("the Advertisements that cover {address} are being recorded");
            return no(AT, "NotYetAnnounced", message);
        }
        if judgement.is_advertised && is_possible {
            return no(AT, "NotYetAnnounced", format!("the candidates for {address} are being chosen"));
        }
        let why = judgement.why(address);
        no(AT, why.reason, why.message).hint(why.hint)
    }
}

/// What holds of an address that is announced in both ways: both are asked for.
fn both(l2: Condition, bgp: Condition) -> Condition {
    let is_bgp_first = l2.status == ConditionStatus::True && bgp.status != ConditionStatus::True;
    let (first, other) = if is_bgp_first { (bgp, l2) } else { (l2, bgp) };
    Condition { message: format!("{}; {}", first.message, other.message), ..first }
}

/// Whether the addresses of a pool can be announced: an Advertisement covers it, and all of its ranges meet a network of
/// a node.
#[must_use]
pub fn pool_announced(scene: &Scene<'_>, name: &Name, spec: &AddressPoolSpec) -> Condition {
    let advertisements =
        scene.snapshot.list(Kind::Advertisement, None, None).filter_map(|object| object.as_advertisement());
    let covers = |one: &&AdvertisementSpec| one.address_pools.is_empty() || one.address_pools.contains(name);
    let covering: Vec<_> = advertisements.filter(covers).collect();
    if covering.is_empty() {
        return no(AT, "NoAdvertisement", format!("no Advertisement covers pool {name}"))
            .hint("create an Advertisement for it; until then nothing announces its addresses");
    }
    if covering.iter().any(|one| one.advertisement_type == AdvertisementType::Bgp) {
        // Routers may be told of any address; whether they are is a matter of the Advertisement.
        return yes(AT, "Announceable");
    }
    if scene.nodes.iter().all(|view| view.report.is_none()) {
        let message = "no node has said which networks it is in".to_owned();
        return condition(AT, ConditionStatus::Unknown, "NoNodes", message)
            .hint("start tidegate-agent on a machine");
    }
    let networks = || {
        let facts = scene.nodes.iter().filter_map(|view| view.report).map(|report| &report.facts);
        facts.flat_map(|facts| facts.subnets.values().flatten())
    };
    let is_outside = |range: &&AddressRange| !networks().any(|network| meets(range, network));
    let outside: Vec<_> = spec.addresses.iter().filter(is_outside).map(ToString::to_string).collect();
    if outside.is_empty() {
        return yes(AT, "Announceable");
    }
    no(AT, "NoNodeInSubnet", format!("{} of pool {name} lies in no network of a node", outside.join(", ")))
        .hint("an address is announced by ARP or NDP only inside a network of the node; choose ranges there")
}

fn meets(range: &AddressRange, network: &IpNet) -> bool {
    network.prefix_len() < network.max_prefix_len() && range.overlaps(&AddressRange::Net(network.trunc()))
}

/// Rolls up the status of an Advertisement.
#[must_use]
pub fn advertisement_status(scene: &Scene<'_>, spec: &AdvertisementSpec) -> AdvertisementStatus {
    AdvertisementStatus { conditions: vec![yes(ConditionType::Accepted, "Valid"), advertised(scene, spec)] }
}

fn advertised(scene: &Scene<'_>, spec: &AdvertisementSpec) -> Condition {
    let selected: Vec<_> = scene.nodes.iter().filter(|view| selects(scene, spec, view.name)).collect();
    if selected.is_empty() {
        let message = "no Node has labels that spec.nodeSelectors ask for".to_owned();
        return match scene.nodes {
            [] => condition(AT, ConditionStatus::Unknown, "NoNodes", "there are no Nodes".to_owned())
                .hint("start tidegate-agent on a machine"),
            [..] => no(AT, "NoMatchingNode", message)
                .hint("compare the labels of the Nodes (--label of the agent)"),
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
        return no(AT, "NoMatchingInterface", message)
            .hint("compare spec.interfaces with status.facts of the Nodes");
    }
    yes(AT, "NodesFound")
}

fn selects(scene: &Scene<'_>, spec: &AdvertisementSpec, node: &Name) -> bool {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    let object = scene.snapshot.get(&key).filter(|object| matches!(object.spec, Spec::Node(_)));
    object.is_some_and(|object| Selector::any_matches(&spec.node_selectors, &object.metadata.labels))
}
