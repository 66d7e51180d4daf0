//! Selection of the addresses affected by a change, so that the cost of a decision is proportional to the
//! change.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Instant};

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

use super::{Assigner, Position, Published};
use crate::state::compiled_set::Delta;
use crate::state::pending_triggers::News;

impl Assigner {
    /// Processes new commits.
    pub(super) fn note_commits(&mut self) {
        let published = self.app.hub.load();
        let position = published.position();
        if position == self.seen {
            return;
        }
        if self.follow(&published).is_none() {
            self.begin_anew(&published);
        }
        self.seen = position;
    }

    /// Processes the commits since the last processed position. Returns `None` if they are no longer
    /// available.
    fn follow(&mut self, published: &Published) -> Option<()> {
        let Position { epoch, revision } = self.seen;
        if epoch != published.epoch {
            return None;
        }
        let commits: Vec<_> = published.recent.since(revision)?.map(Arc::clone).collect();
        let addresses: Vec<_> = published.addresses.since(revision)?.collect();
        let services: Vec<_> = published.compiled.since(revision)?.collect();
        for delta in addresses {
            match delta {
                Delta::Changed(entry) => self.note_order(entry.form.address, Some(&entry.form.announcement)),
                Delta::Removed(address, _) => self.note_order(address, None),
            }
        }
        for object in commits.iter().flat_map(|commit| &commit.changes).map(|change| &change.object) {
            self.concern_object(published, object);
        }
        for delta in services {
            if let Delta::Changed(entry) = delta {
                self.concern_form(published, &entry.form);
            }
        }
        Some(())
    }

    fn begin_anew(&mut self, published: &Published) {
        self.orders.clear();
        self.owned.clear();
        self.due.clear();
        self.waiting.clear();
        for (address, entry) in published.addresses.after(None) {
            self.note_order(*address, Some(&entry.form.announcement));
        }
    }

    /// Updates the counts of owned addresses for a recorded or removed announcement.
    fn note_order(&mut self, address: IpAddr, order: Option<&Announcement>) {
        let before = match order {
            Some(order) => self.orders.insert(address, order.clone()),
            None => self.orders.remove(&address),
        };
        let owner = |order: Option<&Announcement>| order?.candidates.first().map(|first| first.node.clone());
        count(&mut self.owned, owner(before.as_ref()).as_ref(), owner(order).as_ref());
        match order {
            Some(order) => {
                if before.is_some_and(|before| before.epoch != order.epoch) {
                    self.app.announcements().record_order(address);
                }
                self.concern(address);
            }
            None => {
                self.due.remove(&address);
            }
        }
    }

    fn concern_object(&mut self, published: &Published, object: &Object) {
        match &object.spec {
            Spec::Node(_) => self.concern_node(published, &object.metadata.name),
            Spec::Advertisement(_) => self.concern_all(),
            Spec::Service(_) => {
                if let Some(namespace) = object.metadata.namespace.clone() {
                    let key = ServiceKey { namespace, name: object.metadata.name.clone() };
                    self.concern_service(published, &key);
                }
            }
            // The Advertisements of an address depend on its pool, which the compiled form does not contain.
            Spec::Address(record) => self.concern(record.address),
            // Pool rules are applied at allocation time; peers concern nodes only.
            Spec::AddressPool(_)
            | Spec::BfdProfile(_)
            | Spec::BgpPeer(_)
            | Spec::Workload(_)
            | Spec::EndpointSet(_)
            | Spec::EndpointHealth(_) => {}
        }
    }

    /// Endpoint changes matter for Services with local traffic policy, and for addresses without a candidate.
    fn concern_form(&mut self, published: &Published, form: &CompiledService) {
        let is_local = form.external_traffic_policy == TrafficPolicy::Local;
        let addresses: Vec<_> = published.snapshot.addresses_of(&form.service).collect();
        for address in addresses {
            let has_nobody = self.orders.get(&address).is_some_and(|order| order.candidates.is_empty());
            if is_local || has_nobody {
                self.concern(address);
            }
        }
    }

    fn concern_service(&mut self, published: &Published, service: &ServiceKey) {
        let addresses: Vec<_> = published.snapshot.addresses_of(service).collect();
        addresses.into_iter().for_each(|address| self.concern(address));
    }

    /// Marks the addresses for which `node` is a candidate and the addresses in its subnets.
    pub(super) fn concern_node(&mut self, published: &Published, node: &Name) {
        let table = self.app.nodes.table(&published.snapshot, self.app.source.now());
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
        concerned.into_iter().for_each(|address| self.concern(address));
    }

    pub(super) fn concern_all(&mut self) {
        let addresses: Vec<_> = self.orders.keys().copied().collect();
        addresses.into_iter().for_each(|address| self.concern(address));
    }

    fn concern(&mut self, address: IpAddr) {
        if self.orders.contains_key(&address) {
            self.due.entry(address).or_insert_with(Instant::now);
        }
    }

    /// Processes the pending triggers from reports.
    pub(super) fn note_news(&mut self) {
        let News { nodes, verified, services, addresses } = self.app.newsroom.take();
        let published = self.app.hub.load();
        for node in &nodes {
            self.concern_node(&published, node);
        }
        for node in nodes.iter().chain(&verified) {
            for address in self.waiting.remove(node).unwrap_or_default() {
                self.concern(address);
            }
        }
        for service in &services {
            self.concern_service(&published, service);
        }
        for address in addresses {
            self.concern(address);
        }
    }
}

fn is_near(facts: &Facts, address: IpAddr) -> bool {
    let family = IpFamily::of(address);
    let networks = facts.subnets.values().flatten();
    networks
        .filter(|network| IpFamily::of(network.addr()) == family)
        .any(|network| network.contains(&address))
}

/// Moves one address from the count of one owner to another.
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
