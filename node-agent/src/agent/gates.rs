//! Tells those who announce addresses what the kernel holds: before a pass what it will hold no longer, after it what it
//! holds.

use std::collections::BTreeSet;

use model::resource::ServiceKey;

use super::Agent;
use crate::{
    announce::{Announcing, Following, machine::Gate},
    dataplane::Scope,
    state::Touched,
};

impl Agent {
    /// Lets the addresses of the state be announced, as soon as the kernel holds what they lead to.
    pub fn announce_by(&mut self, announcing: Announcing) {
        self.announcing = announcing;
        let addresses = self.state.addresses().iter();
        let addresses = addresses.map(|(address, state)| (*address, Some(state.clone()))).collect();
        let key = self.state.network().peer_key.clone();
        self.announcing.follow(Following { addresses, is_old: true, key, ..Following::default() });
    }

    /// Brings what a batch has changed; when it returns, what the kernel is about to lose is not announced any longer.
    pub(super) fn announce_changes(&self, touched: &Touched) {
        let Touched { services, addresses, network, node: _, bgp: _ } = touched;
        let (changing, closing): (BTreeSet<_>, BTreeSet<_>) = services
            .iter()
            .cloned()
            .partition(|service| self.derived.desired().programs.contains_key(service));
        if addresses.is_empty() && closing.is_empty() && !network {
            return;
        }
        let state = |address| self.state.addresses().get(address).cloned();
        let addresses = addresses.iter().map(|address| (*address, state(address))).collect();
        let key = self.state.network().peer_key.clone();
        self.announcing.follow(Following { addresses, is_old: false, closing, changing, key });
    }

    /// Says which Services with load balancer addresses the kernel holds after a pass, as far as the pass looked.
    pub(super) fn announce_outcomes(&self, scope: &Scope) {
        let gates = |services: &mut dyn Iterator<Item = &ServiceKey>| {
            services.filter_map(|service| Some((service.clone(), self.gate(service)?))).collect()
        };
        self.announcing.programmed(match scope {
            Scope::Everything => gates(&mut self.state.services().keys()),
            Scope::Services(services) => gates(&mut services.iter()),
        });
    }

    fn gate(&self, service: &ServiceKey) -> Option<Gate> {
        let compiled = self.state.services().get(service)?;
        if compiled.load_balancer_ips.is_empty() {
            return None;
        }
        let failure = self.derived.unsupported().get(service).or_else(|| self.outcomes.failure(service));
        Some(failure.map_or(Gate::Open, |failure| Gate::Closed(failure.message.clone())))
    }
}
