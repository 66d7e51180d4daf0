//! Selection of the addresses that a change affects, so that the cost of decisions is proportional to the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use model::{
    cluster::compiled::CompiledService,
    kinds::{
        address::Announcement,
        resource::{Object, ServiceKey, Spec},
        service::TrafficPolicy,
    },
    primitives::{name::Name, net::IpFamily},
    wire::report::Facts,
};

use super::{Assigner, Published};
use crate::state::pending_triggers::Triggers;

impl Assigner {
    /// Records the announcement of an address (`None` if the address was removed), and updates the number of
    /// addresses for which each node is the first candidate.
    pub(super) fn apply_order(&mut self, address: IpAddr, order: Option<&Announcement>) {
        let before = match order {
            Some(order) => self.orders.insert(address, order.clone()),
            None => self.orders.remove(&address),
        };
        let owner = |order: Option<&Announcement>| order?.candidates.first().map(|first| first.node.clone());
        let (from, to) = (owner(before.as_ref()), owner(order));
        if from.is_some() && to.is_some() && from != to {
            self.app.metrics.address_owner_changes.inc();
        }
        count(&mut self.owned, from.as_ref(), to.as_ref());
        match order {
            Some(order) => {
                if before.is_some_and(|before| before.epoch != order.epoch) {
                    let now = self.app.source.now();
                    self.app.observations.announcements().record_order(address, from.as_ref(), now);
                }
                self.mark(address);
            }
            None => {
                self.due.remove(&address);
            }
        }
    }

    pub(super) fn mark_object(&mut self, published: &Published, object: &Object) {
        match &object.spec {
            Spec::Node(_) => self.mark_node(published, &object.metadata.name),
            Spec::Advertisement(_) => self.mark_all(),
            Spec::Service(_) => {
                if let Some(namespace) = object.metadata.namespace.clone() {
                    let key = ServiceKey { namespace, name: object.metadata.name.clone() };
                    self.mark_service(published, &key);
                }
            }
            // The Advertisements of an address depend on its pool, which the compiled form does not contain.
            Spec::Address(record) => self.mark(record.address),
            // Pool rules are applied at allocation time; peers concern nodes only.
            Spec::AddressPool(_)
            | Spec::BfdProfile(_)
            | Spec::DnsZone(_)
            | Spec::Certificate(_)
            | Spec::WorkloadNetwork(_)
            | Spec::NetworkPolicy(_)
            | Spec::Block(_)
            | Spec::Attachment(_)
            | Spec::Gateway(_)
            | Spec::HttpRoute(_)
            | Spec::TlsRoute(_)
            | Spec::BgpPeer(_)
            | Spec::Workload(_)
            | Spec::EndpointSet(_)
            | Spec::EndpointHealth(_) => {}
        }
    }

    /// Marks addresses of a Service whose compiled form (the data that agents receive) has changed, so that
    /// their announcer is selected again: all of them if the external traffic policy is `Local`, otherwise
    /// the ones without a candidate.
    pub(super) fn mark_form(&mut self, published: &Published, form: &CompiledService) {
        let is_local = form.external_traffic_policy == TrafficPolicy::Local;
        let addresses: Vec<_> = published.snapshot.addresses_of(&form.service).collect();
        for address in addresses {
            let has_nobody = self.orders.get(&address).is_some_and(|order| order.candidates.is_empty());
            if is_local || has_nobody {
                self.mark(address);
            }
        }
    }

    fn mark_service(&mut self, published: &Published, service: &ServiceKey) {
        let addresses: Vec<_> = published.snapshot.addresses_of(service).collect();
        addresses.into_iter().for_each(|address| self.mark(address));
    }

    /// Marks addresses so that their announcer is selected again: the ones that have the node as a candidate,
    /// and the ones in the node's networks.
    pub(super) fn mark_node(&mut self, published: &Published, node: &Name) {
        let table = self.app.observations.nodes.table(&published.snapshot, self.app.source.now());
        let facts = table.view(node).and_then(|view| view.report).map(|report| &report.facts);
        let is_candidate = |order: &Announcement| order.candidates.iter().any(|one| one.node == *node);
        let concerned: Vec<IpAddr> = self
            .orders
            .iter()
            .filter(|(address, order)| {
                is_candidate(order) || facts.is_some_and(|facts| is_near(facts, **address))
            })
            .map(|(address, _)| *address)
            .collect();
        concerned.into_iter().for_each(|address| self.mark(address));
    }

    pub(super) fn mark_all(&mut self) {
        let addresses: Vec<_> = self.orders.keys().copied().collect();
        addresses.into_iter().for_each(|address| self.mark(address));
    }

    fn mark(&mut self, address: IpAddr) {
        if self.orders.contains_key(&address) {
            self.due.entry(address).or_insert_with(Instant::now);
        }
    }

    /// Removes the collected triggers from reports, and marks the addresses concerned, so that their
    /// announcer is selected again.
    pub(super) fn mark_triggered(&mut self) {
        let Triggers { nodes, verified, services, monitored, addresses } =
            self.app.observations.triggers.drain();
        let published = self.app.hub.load();
        for node in &nodes {
            self.mark_node(&published, node);
        }
        for node in nodes.iter().chain(&verified) {
            for address in self.waiting.remove(node).unwrap_or_default() {
                self.mark(address);
            }
        }
        for service in &services {
            self.mark_service(&published, service);
        }
        if !monitored.is_empty() {
            self.mark_candidates(&monitored);
        }
        for address in addresses {
            self.mark(address);
        }
    }

    /// Marks addresses for which one of the nodes is a candidate, so that their announcer is selected again.
    fn mark_candidates(&mut self, nodes: &BTreeSet<Name>) {
        let is_concerned =
            |order: &Announcement| order.candidates.iter().any(|candidate| nodes.contains(&candidate.node));
        let concerned: Vec<IpAddr> = self
            .orders
            .iter()
            .filter(|(_, order)| is_concerned(order))
            .map(|(address, _)| *address)
            .collect();
        concerned.into_iter().for_each(|address| self.mark(address));
    }
}

fn is_near(facts: &Facts, address: IpAddr) -> bool {
    let family = IpFamily::of(address);
    let networks = facts.subnets.values().flatten();
    networks
        .filter(|network| IpFamily::of(network.addr()) == family)
        .any(|network| network.contains(&address))
}

/// Updates the number of addresses per node after the first candidate of an address has changed. `None`
/// stands for no candidate.
pub(super) fn count(owned: &mut BTreeMap<Name, usize>, from: Option<&Name>, to: Option<&Name>) {
    if from == to {
        return;
    }
    if let Some(from) = from
        && let Some(count) = owned.get_mut(from)
    {
        *count = count.saturating_sub(1);
        if *count == 0 {
            owned.remove(from);
        }
    }
    if let Some(to) = to {
        *owned.entry(to.clone()).or_insert(0) += 1;
    }
}
