//! Computes the addresses and endpoints that are lost if one state replaces another. Does no I/O.

use std::{collections::BTreeSet, net::IpAddr};

use model::{cluster::compiled::CompiledService, wire::hold::Loss};

use crate::state::State;

/// Numbers of addresses and endpoints that are lost if one state replaces another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Virtual addresses that would no longer be served or announced.
    pub vips: Loss,
    /// Endpoints that would no longer receive connections, counted per Service.
    pub endpoints: Loss,
}

impl Losses {
    /// Returns the losses of replacing `before` by `after`. The cost is proportional to the size of both
    /// states, so this is used only for states of another epoch, which are rare.
    #[must_use]
    pub fn between(before: &State, after: &State) -> Self {
        Self { vips: vips(before, after), endpoints: endpoints(before, after) }
    }

    /// Returns true if the losses exceed this percentage of the addresses or of the endpoints.
    #[must_use]
    pub fn exceed(&self, limit_percent: u8) -> bool {
        let Self { vips, endpoints } = self;
        vips.exceeds(limit_percent) || endpoints.exceeds(limit_percent)
    }
}

fn vips(before: &State, after: &State) -> Loss {
    let (served, still_served) = (served(before), served(after));
    let is_withdrawn =
        |vip: &IpAddr| before.addresses().contains_key(vip) && !after.addresses().contains_key(vip);
    let all: BTreeSet<_> = served.iter().chain(before.addresses().keys()).copied().collect();
    let lost =
        all.iter().filter(|vip| served.contains(*vip) && !still_served.contains(*vip) || is_withdrawn(vip));
    loss(lost.count(), all.len())
}

fn served(state: &State) -> BTreeSet<IpAddr> {
    let vips = |service: &CompiledService| {
        let lists = [&service.cluster_ips, &service.external_ips, &service.load_balancer_ips];
        lists.into_iter().flatten().copied().collect::<Vec<_>>()
    };
    state.services().values().flat_map(|service| vips(service)).collect()
}

fn endpoints(before: &State, after: &State) -> Loss {
    let (mut lost, mut total) = (0, 0);
    for (key, service) in before.services() {
        let held = taking_connections(service);
        total += held.len();
        let offered = after.services().get(key).map(|service| taking_connections(service));
        lost += held.difference(&offered.unwrap_or_default()).count();
    }
    loss(lost, total)
}

fn taking_connections(service: &CompiledService) -> BTreeSet<IpAddr> {
    let all = service.ports.iter().flat_map(|port| &port.endpoints);
    all.filter(|endpoint| endpoint.ready && endpoint.weight.0 > 0).map(|endpoint| endpoint.address).collect()
}

fn loss(lost: usize, total: usize) -> Loss {
    let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
    Loss { lost: number(lost), total: number(total) }
}
