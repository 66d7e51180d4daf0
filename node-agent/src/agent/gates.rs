//! Notifications from the agent loop to the announcers of load balancer addresses and to the health checker.
//! Before a pass (an update of the kernel), announcers receive the Services that the kernel is about to lose;
//! after a pass, those that the kernel serves. Health checks follow the received state directly, because they
//! do not depend on the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use announce::{Announcing, Following};
use base::Gate;
use dataplane::Scope;
use health::{Checking, plan::Changes};
use model::{
    bgp::settings::BgpState,
    cluster::compiled::CompiledService,
    kinds::resource::ServiceKey,
    observed::health::{may_have_default_check, with_default_check},
    wire::feed::AddressState,
};
use speaker::routing::{
    self, Routing,
    endpoints::{Endpoints, Standing},
};

use super::Agent;
use crate::state::ChangedObjects;

impl Agent {
    /// Attaches the ARP and NDP announcer. Addresses are announced once the kernel serves their Services.
    pub fn announce_by(&mut self, announcing: Announcing) {
        self.announcing = announcing;
        let addresses = self.all_addresses();
        let key = self.state.network().peer_key.clone();
        self.announcing.follow(Following { addresses, is_old: true, key, ..Following::default() });
    }

    /// Attaches BGP routing. Prefixes are advertised once the kernel serves their Services.
    pub fn route_by(&mut self, mut routing: Routing) {
        let (bgp, addresses) = (Some(self.bgp()), self.all_addresses());
        routing.follow(routing::Following { bgp, addresses, ..routing::Following::default() });
        self.routing = Some(routing);
    }

    /// Attaches the health checker, which checks the endpoints of the received state.
    pub fn check_by(&mut self, checking: Checking) {
        self.checking = checking;
        let is_on = self.state.network().default_check;
        self.has_default_checks = is_on;
        let is_checked = |service: &CompiledService| {
            service.health_check.is_some() || (is_on && may_have_default_check(service))
        };
        let services = self.state.services().iter().filter(|(_, service)| is_checked(service));
        let services: BTreeMap<_, _> = services
            .map(|(key, service)| (key.clone(), Some(with_default_check(Arc::clone(service), is_on))))
            .collect();
        for (key, service) in &services {
            self.refusals.note(key, service.as_deref());
        }
        let checkers = Some(self.state.network().checkers.clone());
        self.checking.follow(Changes { services, checkers });
    }

    /// Sends state changes that were received from the control server to the health checker. Does not wait
    /// until they are applied.
    pub(super) fn check_changes(&mut self, touched: &ChangedObjects) {
        let ChangedObjects {
            services,
            addresses: _,
            workload_networks: _,
            blocks: _,
            policy_sets: _,
            policy_workloads: _,
            network,
            node: _,
            bgp: _,
            interfaces: _,
        } = touched;
        let is_on = self.state.network().default_check;
        let mut keys: BTreeSet<_> = services.iter().cloned().collect();
        if is_on != self.has_default_checks {
            self.has_default_checks = is_on;
            let all = self.state.services().iter().filter(|(_, service)| may_have_default_check(service));
            keys.extend(all.map(|(key, _)| key.clone()));
        }
        let service = |key: ServiceKey| {
            let service = self.state.services().get(&key).cloned();
            (key, service.map(|service| with_default_check(service, is_on)))
        };
        let services: BTreeMap<_, _> = keys.into_iter().map(service).collect();
        for (key, service) in &services {
            self.refusals.note(key, service.as_deref());
        }
        let checkers = network.then(|| self.state.network().checkers.clone());
        self.checking.follow(Changes { services, checkers });
    }

    /// Sends state changes that were received from the control server to the announcers. When this function
    /// returns, Services that the kernel is about to lose are no longer announced.
    pub(super) fn announce_changes(&mut self, touched: &ChangedObjects) {
        let ChangedObjects {
            services,
            addresses,
            workload_networks: _,
            blocks: _,
            policy_sets: _,
            policy_workloads: _,
            network,
            node: _,
            bgp,
            interfaces: _,
        } = touched;
        let (changing, closing): (BTreeSet<_>, BTreeSet<_>) = services
            .iter()
            .cloned()
            .partition(|service| self.derived.desired().programs.contains_key(service));
        let state = |address| self.state.addresses().get(address).cloned();
        let addresses: Vec<_> = addresses.iter().map(|address| (*address, state(address))).collect();
        let bgp = bgp.then(|| self.bgp());
        if let Some(routing) = &mut self.routing {
            let endpoints = |service: &ServiceKey| {
                let compiled = self.state.services().get(service)?;
                let has_address = !compiled.load_balancer_ips.is_empty();
                has_address.then(|| (service.clone(), Endpoints::of(compiled, self.derived.node())))
            };
            let changing = changing.iter().filter_map(endpoints).collect();
            let (addresses, closing) = (addresses.clone(), closing.clone());
            routing.follow(routing::Following { bgp, addresses, closing, changing });
        }
        if addresses.is_empty() && closing.is_empty() && !network {
            return;
        }
        let key = self.state.network().peer_key.clone();
        self.announcing.follow(Following { addresses, is_old: false, closing, changing, key });
    }

    /// Notifies the announcers after an update of the kernel: sends the Services in `scope` that have load
    /// balancer addresses, each with a gate that is open if the kernel serves the Service.
    pub(super) fn announce_outcomes(&mut self, scope: &Scope) {
        let gates = |services: &mut dyn Iterator<Item = &ServiceKey>| -> Vec<_> {
            services.filter_map(|service| Some((service.clone(), self.gate(service)?))).collect()
        };
        let gates = match scope {
            Scope::Everything => gates(&mut self.state.services().keys()),
            Scope::Services(services) => gates(&mut services.iter()),
        };
        if let Some(routing) = &mut self.routing {
            let standing = |(service, gate): &(ServiceKey, Gate)| {
                let compiled = self.state.services().get(service)?;
                let endpoints = Endpoints::of(compiled, self.derived.node());
                Some((service.clone(), Standing { programmed: gate.clone(), endpoints }))
            };
            routing.programmed(gates.iter().filter_map(standing).collect(), *scope == Scope::Everything);
        }
        self.announcing.programmed(gates);
    }

    pub(super) fn gate(&self, service: &ServiceKey) -> Option<Gate> {
        let compiled = self.state.services().get(service)?;
        if compiled.load_balancer_ips.is_empty() {
            return None;
        }
        let failure = self.derived.unsupported().get(service).or_else(|| self.outcomes.failure(service));
        // The kernel serves the other ports at the addresses.
        let failure = failure.filter(|failure| !failure.reason.is_served());
        Some(failure.map_or(Gate::Open, |failure| Gate::Closed(failure.message.clone())))
    }

    fn all_addresses(&self) -> Vec<(IpAddr, Option<Arc<AddressState>>)> {
        let addresses = self.state.addresses().iter();
        addresses.map(|(address, state)| (*address, Some(state.clone()))).collect()
    }

    fn bgp(&self) -> Option<Arc<BgpState>> {
        self.state.node().bgp.as_deref().cloned().map(Arc::new)
    }
}
