//! Two-stage path, on which established connections to a load balancer address survive the loss of the node that
//! announces the address.
//!
//! ```text
//! client ─▶ announcing node ─ hash of the client ─▶ slot ─▶ owner: the node of the slot's target
//!              no connection tracking, no translation           │ translates, without masquerading
//! client ◀──────────────── reply from the address ──────────────┘
//! ```
//! All nodes derive the same [`super::table`] from the targets, so another announcing node selects the same owner,
//! which alone has state. The path needs an agent at the node of each target, and all of these nodes on a network of
//! this node. Where it is not possible, the frontend keeps its usual, masqueraded path.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use super::{Destination, Masquerade, Owners, Program, Role, Route, Target, Targets, Verdict};
use crate::{
    cluster::compiled::{CompiledService, Survival},
    kinds::service::{Scheduler, SchedulerFlag},
    primitives::{
        name::{Label, Name},
        net::IpFamily,
        quantity::Weight,
    },
};

/// Number of slots of the table of a frontend on the two-stage path. The number does not depend on the targets, so
/// that a slot keeps its meaning when targets are added.
pub const SLOTS: u32 = 4093;

/// Changes the frontends of load balancer addresses to the two-stage path, if connections of the Service must survive.
/// `networks` are the networks of the node's interfaces. Returns why frontends could not be changed, without
/// duplicates; empty if the Service does not ask for survival, or if all frontends were changed.
pub fn divide(
    program: &mut Program,
    service: &CompiledService,
    node: &Name,
    networks: &BTreeSet<IpNet>,
) -> BTreeSet<String> {
    let mut obstacles = BTreeSet::new();
    let Some(survival) = &service.survival else { return obstacles };
    let nodes = nodes(service);
    for (frontend, route) in program.frontends.iter_mut() {
        if route.role != Role::LoadBalancer {
            continue;
        }
        let Destination::Address(address) = frontend.destination else { continue };
        let Some(targets) = slot_targets(route) else { continue };
        let family = IpFamily::of(address);
        match owners(targets.keys(), &nodes, survival, node, family, networks) {
            Ok(owners) => set_path(route, owners),
            Err(obstacle) => {
                obstacles.insert(obstacle);
            }
        }
    }
    obstacles
}

/// Returns the targets to whose nodes the slots of a frontend on the two-stage path belong, with their weights. If all
/// targets are in drain, they keep the slots: their nodes refuse new connections, and established ones continue.
/// `None` if there are no targets.
#[must_use]
pub fn slot_targets(route: &Route) -> Option<Targets> {
    match &route.from_elsewhere {
        Verdict::Forward { targets, .. } => Some(Arc::clone(targets)),
        Verdict::Reject if !route.leaving.is_empty() => {
            let targets: BTreeMap<_, _> = route.leaving.keys().map(|target| (*target, Weight(1))).collect();
            Some(Arc::new(targets))
        }
        Verdict::Reject | Verdict::Drop | Verdict::Relay { .. } => None,
    }
}

/// Returns the node of each endpoint address; `None` for an address without a node, or with several.
fn nodes(service: &CompiledService) -> BTreeMap<IpAddr, Option<&Name>> {
    let mut nodes = BTreeMap::new();
    for endpoint in service.ports.iter().flat_map(|port| &port.endpoints) {
        let node = endpoint.node.as_ref();
        let known = nodes.entry(endpoint.address).or_insert(node);
        if *known != node {
            *known = None;
        }
    }
    nodes
}

fn owners<'a>(
    targets: impl Iterator<Item = &'a Target>,
    nodes: &BTreeMap<IpAddr, Option<&Name>>,
    survival: &Survival,
    here: &Name,
    family: IpFamily,
    networks: &BTreeSet<IpNet>,
) -> Result<BTreeMap<IpAddr, IpAddr>, String> {
    let mut owners = BTreeMap::new();
    let mut count = 0u32;
    for Target { address, .. } in targets {
        count += 1;
        let Some(node) = nodes.get(address).copied().flatten() else {
            return Err(format!("the endpoint {address} has no node"));
        };
        if node == here {
            continue;
        }
        let mut addresses = survival.node_addresses.get(node).into_iter().flatten().copied();
        let is_near = |hop: &IpAddr| IpFamily::of(*hop) == family && is_in(networks, *hop);
        let Some(hop) = addresses.find(is_near) else {
            return Err(format!(
                "the node {node} of the endpoint {address} has no {} address on a network of this node",
                family.as_str()
            ));
        };
        owners.insert(*address, hop);
    }
    if count > SLOTS {
        return Err(format!("a port has {count} endpoints; at most {SLOTS} are possible"));
    }
    Ok(owners)
}

fn is_in(networks: &BTreeSet<IpNet>, address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

fn set_path(route: &mut Route, owners: BTreeMap<IpAddr, IpAddr>) {
    if let Verdict::Forward { masquerade, .. } = &mut route.from_elsewhere {
        *masquerade = Masquerade::Never;
    }
    if route.scheduler.is_none() {
        route.scheduler = Label::parse("mh").ok().map(Scheduler);
        route.scheduler_flags = BTreeSet::from([SchedulerFlag::Port]);
    }
    route.owners = Some(Owners(Arc::new(owners)));
}
