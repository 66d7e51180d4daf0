//! Planner of the ipvs backend: computes the changes that lead from the mirror (the kernel objects as last
//! read or written) to the desired state. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{
        net::IpFamily,
        quantity::{Port, Timestamp},
    },
    program::Removal,
};

use super::{
    desired::{DirtyObjects, Owner, SocketObjects, Wants},
    mirror::IpvsMirror,
    render::IpvsCommand,
    server::{Destination, KernelDestination, Server, Socket},
    sets::{IpsetElement, Set, SetKind, Value},
};

/// Planned changes of kernel objects, with fields in order of execution.
#[derive(Debug, Default)]
pub struct Plan {
    /// Set elements to add before anything is served, so that no packet bypasses a missing filter.
    pub additions: Vec<(Owner, IpsetElement)>,
    /// Virtual addresses to add to the dummy link.
    pub addresses_added: Vec<(Owner, IpAddr)>,
    /// Commands that create, change or remove virtual servers and destinations.
    pub commands: Vec<(Owner, IpvsCommand)>,
    /// Set elements to remove, after the virtual servers that needed them.
    pub removals: Vec<(Owner, IpsetElement)>,
    /// Virtual servers with destinations to drain, each with the removal policy for their connections.
    pub draining: Vec<(Socket, Removal)>,
    /// Services that cannot have a virtual server because another program has one at the same address and
    /// port.
    pub foreign: Vec<(Arc<ServiceKey>, Socket)>,
}

/// Plans the changes of the objects in `touched` and of the set elements that represent networks.
#[must_use]
pub fn plan(mirror: &IpvsMirror, wants: &Wants, touched: &DirtyObjects) -> Plan {
    let mut plan = Plan::default();
    for (socket, (owner, removal)) in &touched.sockets {
        let entry = wants.entry(socket);
        let owner = entry.owner.clone().or_else(|| owner.clone());
        if entry.server.is_some() && mirror.foreign.contains(socket) {
            plan.foreign.extend(owner.map(|owner| (owner, *socket)));
            continue;
        }
        let fate = Fate { removal: *removal, leaving: wants.leaving(socket) };
        plan_socket(mirror, socket, &owner, entry, &fate, &mut plan);
    }
    for (&(family, protocol, port), owner) in &touched.node_ports {
        let wanted = wants.node_port_kind(family, protocol, port);
        let kinds = match protocol {
            Protocol::Tcp => &SetKind::OF_NODE_PORT[..2],
            Protocol::Udp => &SetKind::OF_NODE_PORT[2..],
            Protocol::Sctp => &[],
        };
        for &kind in kinds {
            let element = IpsetElement::of_port(kind, family, port);
            plan.presence(mirror, owner, element, wanted == Some(kind));
        }
    }
    for (socket, owner) in &touched.loops {
        plan.presence(mirror, owner, IpsetElement::of_loop(*socket), wants.wants_loop(socket));
    }
    for (&address, owner) in &touched.addresses {
        let is_elsewhere = mirror.other_addresses.contains(&address);
        let is_bound = wants.wants_address(address) && !is_elsewhere;
        let is_here = mirror.link.as_ref().is_some_and(|link| link.addresses.contains(&address));
        if is_bound && !is_here {
            plan.addresses_added.push((owner.clone(), address));
        }
        let is_closed = is_bound || wants.claims.wants_virtual_address(address);
        plan.presence(mirror, owner, IpsetElement::of_address(address), is_closed);
    }
    for &port in &touched.health_checks {
        for family in IpFamily::ALL {
            let element = IpsetElement::of_port(SetKind::HealthCheck, family, port);
            plan.presence(mirror, &None, element, wants.wants_health_check(port));
        }
    }
    plan_networks(mirror, &wants.networks(), &mut plan);
    plan
}

/// Treatment of the destinations that a virtual server no longer needs: the removal policy of the Service,
/// and the draining destinations with their deadlines.
struct Fate {
    removal: Removal,
    leaving: BTreeMap<Destination, Option<Timestamp>>,
}

/// Adds all kernel objects in `mirror` (as last read or written) to `touched`, so that all are planned again
/// and those without an owner are removed.
pub fn touch_all(mirror: &IpvsMirror, touched: &mut DirtyObjects) {
    for socket in mirror.servers.keys() {
        touched.sockets.entry(*socket).or_default();
    }
    for element in &mirror.elements {
        match (element.set.kind, element.value) {
            (SetKind::Sysctls, _) => {}
            (SetKind::LoopBack, Value::SocketAddress(socket, _)) => {
                touched.loops.entry(socket).or_default();
            }
            (_, Value::Socket(socket) | Value::SocketNet(socket, _)) => {
                touched.sockets.entry(socket).or_default();
            }
            (kind, Value::Port(number)) => touch_port(element.set, kind, number, touched),
            (_, Value::Address(address)) => {
                touched.addresses.entry(address).or_default();
            }
            (_, Value::Net(_) | Value::SocketAddress(..)) => {}
        }
    }
    for address in mirror.link.iter().flat_map(|link| &link.addresses) {
        touched.addresses.entry(*address).or_default();
    }
}

fn touch_port(set: Set, kind: SetKind, number: u16, touched: &mut DirtyObjects) {
    let Some(port) = Port::new(number) else { return };
    if kind == SetKind::HealthCheck {
        touched.health_checks.insert(port);
        return;
    }
    let is_tcp = [SetKind::NodePortTcp, SetKind::NodePortLocalTcp].contains(&kind);
    let protocol = if is_tcp { Protocol::Tcp } else { Protocol::Udp };
    touched.node_ports.entry((set.family, protocol, port)).or_default();
}

/// Returns the given addresses that are on the dummy link although no Service needs them and no virtual
/// server of the backend uses them.
#[must_use]
pub fn idle_addresses(
    mirror: &IpvsMirror,
    wants: &Wants,
    addresses: impl Iterator<Item = IpAddr>,
) -> BTreeSet<IpAddr> {
    let Some(link) = &mirror.link else { return BTreeSet::new() };
    let is_idle = |address: &IpAddr| {
        link.addresses.contains(address) && !wants.wants_address(*address) && !mirror.serves(*address)
    };
    addresses.filter(is_idle).collect()
}

impl Plan {
    fn presence(&mut self, mirror: &IpvsMirror, owner: &Owner, element: IpsetElement, should: bool) {
        match (mirror.elements.contains(&element), should) {
            (false, true) => self.additions.push((owner.clone(), element)),
            (true, false) => self.removals.push((owner.clone(), element)),
            (true, true) | (false, false) => {}
        }
    }

    fn command(&mut self, owner: &Owner, command: IpvsCommand) {
        self.commands.push((owner.clone(), command));
    }

    /// Returns true if the plan contains no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.additions.is_empty()
            && self.addresses_added.is_empty()
            && self.commands.is_empty()
            && self.removals.is_empty()
    }
}

fn plan_socket(
    mirror: &IpvsMirror,
    socket: &Socket,
    owner: &Owner,
    entry: SocketObjects,
    fate: &Fate,
    plan: &mut Plan,
) {
    let SocketObjects { owner: _, server, elements } = entry;
    let held_elements = mirror.elements_of(socket);
    plan.additions.extend(elements.difference(&held_elements).map(|element| (owner.clone(), *element)));
    plan.removals.extend(held_elements.difference(&elements).map(|element| (owner.clone(), *element)));
    let held = mirror.servers.get(socket);
    let stays = plan_server(held, server.as_ref(), socket, owner, fate, plan);
    // The set entry is added before the virtual server and removed after it, so that the server is always
    // recognizable as the backend's.
    plan.presence(mirror, owner, IpsetElement::of_socket(SetKind::Servers, *socket), stays);
}

/// Plans the changes of one virtual server. Returns true if the server exists afterwards.
fn plan_server(
    held: Option<&Server>,
    wanted: Option<&Server>,
    socket: &Socket,
    owner: &Owner,
    fate: &Fate,
    plan: &mut Plan,
) -> bool {
    let Fate { removal, leaving } = fate;
    let waits = socket.protocol == Protocol::Tcp && *removal != Removal::Reset;
    let drains =
        |destination: &Destination| socket.protocol == Protocol::Tcp && leaving.contains_key(destination);
    match (held, wanted) {
        (None, None) => return false,
        (Some(held), None) if !waits && !held.destinations.keys().any(drains) => {
            plan.command(owner, IpvsCommand::RemoveServer(*socket));
            return false;
        }
        (None, Some(wanted)) => plan.command(owner, IpvsCommand::AddServer(*socket, wanted.service.clone())),
        (Some(held), Some(wanted)) if held.service != wanted.service => {
            plan.command(owner, IpvsCommand::EditServer(*socket, wanted.service.clone()));
        }
        (Some(_), Some(_) | None) => {}
    }
    for (&destination, &should) in wanted.iter().flat_map(|wanted| &wanted.destinations) {
        match held.and_then(|held| held.destinations.get(&destination)) {
            None => plan.command(owner, IpvsCommand::AddDestination(*socket, destination, should)),
            Some(is) if *is != should => {
                plan.command(owner, IpvsCommand::EditDestination(*socket, destination, should));
            }
            Some(_) => {}
        }
    }
    let mut has_waiting = wanted.is_none();
    let is_wanted = |destination: &Destination| {
        wanted.is_some_and(|wanted| wanted.destinations.contains_key(destination))
    };
    for (&destination, &is) in held.iter().flat_map(|held| &held.destinations) {
        if is_wanted(&destination) {
            continue;
        }
        if !waits && !drains(&destination) {
            plan.command(owner, IpvsCommand::RemoveDestination(*socket, destination));
            continue;
        }
        has_waiting = true;
        if is.weight > 0 {
            let quiet = KernelDestination { weight: 0, ..is };
            plan.command(owner, IpvsCommand::EditDestination(*socket, destination, quiet));
        }
    }
    if has_waiting {
        plan.draining.push((*socket, *removal));
    }
    true
}

fn plan_networks(mirror: &IpvsMirror, wanted: &BTreeSet<IpsetElement>, plan: &mut Plan) {
    let is_network = |element: &&IpsetElement| matches!(element.value, Value::Net(_));
    for kind in [SetKind::Workloads, SetKind::MasqueradeSources, SetKind::ServiceRanges] {
        for family in IpFamily::ALL {
            let set = Set { kind, family };
            let lowest = match family {
                IpFamily::V4 => ipnet::IpNet::V4(ipnet::Ipv4Net::default()),
                IpFamily::V6 => ipnet::IpNet::V6(ipnet::Ipv6Net::default()),
            };
            let first = IpsetElement { set, value: Value::Net(lowest) };
            let held = mirror.elements.range(first..).take_while(|element| element.set == set);
            let gone = held.filter(is_network).filter(|element| !wanted.contains(element));
            plan.removals.extend(gone.map(|element| (None, *element)));
        }
    }
    let missing = wanted.iter().filter(|element| !mirror.elements.contains(element));
    plan.additions.extend(missing.map(|element| (None, *element)));
}
