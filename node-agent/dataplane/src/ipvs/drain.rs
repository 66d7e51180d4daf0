//! Draining destinations: they receive no new connection, and are removed after their last connection ends or
//! at their deadline.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use base::clock::moment_of;
use model::{
    kinds::service::Protocol,
    primitives::quantity::Timestamp,
    program::{Frontend, Removal, Target},
};

use super::{
    IpvsBackend,
    commit::failed,
    cut::Ends,
    desired::Owner,
    observe::Loads,
    plan::Plan,
    render::IpvsCommand,
    rules,
    server::{Destination, KernelDestination, Server, Socket},
    sets::{IpsetElement, SetKind},
};
use crate::{KernelError, Pass, RejectedServices, Traffic};

impl IpvsBackend {
    /// Removes draining destinations that have no connection left or whose deadline has passed, and virtual
    /// servers that are then no longer wanted. `waiting` are the virtual servers to check, with their removal
    /// policies.
    pub(super) fn settle(
        &mut self,
        waiting: &[(Socket, Removal)],
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let now = Instant::now();
        let (mut commands, mut ends, mut over) = (Vec::new(), Ends::new(), Vec::new());
        for (socket, removal) in waiting {
            let loads = self.read_loads(socket).map_err(failed("reading destinations"))?;
            let wanted = self.wants.entry(socket).server;
            let deadlines =
                Deadlines { of_all: deadline(*removal, now), of_each: self.wants.leaving(socket) };
            let (due, waits) = due(&mut self.draining, socket, wanted.as_ref(), &loads, &deadlines, now);
            for destination in due {
                if loads.get(&destination).is_some_and(|(_, load)| !load.is_empty()) {
                    ends.insert((*socket, destination));
                }
                commands.push((None, IpvsCommand::RemoveDestination(*socket, destination)));
            }
            if wanted.is_none() && !waits {
                over.push(*socket);
            }
        }
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let named = |socket: &Socket| (None, IpsetElement::of_socket(SetKind::Servers, *socket));
        let is_there = |socket: &&Socket| mirror.servers.contains_key(*socket);
        commands
            .extend(over.iter().filter(is_there).map(|socket| (None, IpvsCommand::RemoveServer(*socket))));
        let is_named = |element: &(Owner, IpsetElement)| mirror.elements.contains(&element.1);
        let names: Vec<_> = over.iter().map(named).filter(is_named).collect();
        self.note_clients(&ends);
        self.change_servers(&commands, &mut RejectedServices::new(), pass)?;
        self.change_elements(&names, false, &mut RejectedServices::new(), pass)?;
        self.release_addresses(over.iter().map(|socket| socket.address), pass)
    }

    /// Ends the drain of destinations that the plan wants again, so that they receive new connections.
    pub(super) fn recall(&mut self, plan: &Plan) {
        for (_, command) in &plan.commands {
            if let IpvsCommand::EditDestination(socket, destination, KernelDestination { weight: 1.., .. }) =
                command
            {
                self.draining.remove(&(*socket, *destination));
            }
        }
    }

    /// Stops new connections to all virtual servers of the backend: removes the rules, sets the weights of
    /// all TCP destinations to 0, and removes virtual servers of other protocols.
    pub(super) fn quiesce(&mut self) -> Result<(), KernelError> {
        use crate::Dataplane as _;
        if self.mirror.is_none() {
            self.observe()?;
        }
        for family in model::primitives::net::IpFamily::ALL {
            self.write_rules(family, rules::retire).map_err(failed("removing rules"))?;
        }
        let mirror = self.mirror.get_or_insert_default();
        mirror.rules.clear();
        let mut commands = Vec::new();
        for (socket, server) in &mirror.servers {
            if socket.protocol != Protocol::Tcp {
                commands.push((None, IpvsCommand::RemoveServer(*socket)));
                continue;
            }
            for (destination, held) in server.destinations.iter().filter(|(_, held)| held.weight > 0) {
                let quiet = KernelDestination { weight: 0, ..*held };
                commands.push((None, IpvsCommand::EditDestination(*socket, *destination, quiet)));
            }
        }
        self.change_servers(&commands, &mut RejectedServices::new(), &mut Pass::default())
    }

    /// Returns true if any destination of the backend's virtual servers still has a connection.
    pub(super) fn has_connections(&mut self) -> Result<bool, KernelError> {
        let sockets: Vec<_> = self.mirror.iter().flat_map(|mirror| mirror.servers.keys().copied()).collect();
        for socket in sockets {
            let loads = self.read_loads(&socket).map_err(failed("reading destinations"))?;
            if loads.values().any(|(_, load)| !load.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the connections, packets and bytes per target, from the counters of the destinations.
    pub(super) fn read_traffic(&mut self) -> io::Result<Vec<Traffic>> {
        let sockets: Vec<_> = self.mirror.iter().flat_map(|mirror| mirror.servers.keys().copied()).collect();
        let mut found: BTreeMap<_, Traffic> = BTreeMap::new();
        for socket in sockets {
            let loads = self.read_loads(&socket)?;
            let Some((frontend, service, _)) = self.wants.resolve(&socket) else { continue };
            let protocol = socket.protocol;
            for (destination, (_, load)) in loads {
                let target = target_of(&frontend, &socket, destination);
                let entry = found.entry((service.clone(), protocol, target)).or_insert_with(|| Traffic {
                    service: model::kinds::resource::ServiceKey::clone(service),
                    protocol,
                    target,
                    connections: 0,
                    packets: Some(0),
                    bytes: Some(0),
                    active: Some(0),
                    inactive: Some(0),
                    failed: None,
                });
                let add = |sum: Option<u64>, more: u64| sum.map(|sum| sum.saturating_add(more));
                entry.connections = entry.connections.saturating_add(load.connections);
                entry.packets = add(entry.packets, load.packets);
                entry.bytes = add(entry.bytes, load.bytes);
                entry.active = add(entry.active, u64::from(load.active));
                entry.inactive = add(entry.inactive, u64::from(load.inactive));
            }
        }
        Ok(found.into_values().collect())
    }
}

/// Returns the time until which connections of a removed target may continue; `None` for no limit.
pub(super) fn deadline(removal: Removal, now: Instant) -> Option<Instant> {
    match removal {
        Removal::Keep => None,
        Removal::Drain(seconds) => Some(now + Duration::from_secs(u64::from(seconds))),
        Removal::Reset => Some(now),
    }
}

/// Deadlines for the connections of destinations that are no longer wanted.
pub(super) struct Deadlines {
    /// Deadline by the Service's removal policy, for every destination without one of its own; `None` for no
    /// limit.
    pub(super) of_all: Option<Instant>,
    /// Wall-clock deadline set by the user for single destinations; `None` for no limit.
    pub(super) of_each: BTreeMap<Destination, Option<Timestamp>>,
}

/// Returns the destinations of a virtual server to remove now: those not in `wanted` that have no connection
/// left or whose deadline has passed. The flag is true if other destinations are still draining.
pub(super) fn due(
    draining: &mut BTreeMap<(Socket, Destination), Option<Instant>>,
    socket: &Socket,
    wanted: Option<&Server>,
    loads: &Loads,
    deadlines: &Deadlines,
    now: Instant,
) -> (Vec<Destination>, bool) {
    let is_wanted = |destination: &Destination| {
        wanted.is_some_and(|server| server.destinations.contains_key(destination))
    };
    draining.retain(|(at, name), _| at != socket || (loads.contains_key(name) && !is_wanted(name)));
    let (mut due, mut waits) = (Vec::new(), false);
    for (destination, (_, load)) in loads.iter().filter(|(destination, _)| !is_wanted(destination)) {
        let until = draining.entry((*socket, *destination)).or_insert(deadlines.of_all);
        // The earliest deadline wins: a later pass may add one, but does not postpone it.
        *until = [*until, deadlines.of_all].into_iter().flatten().min();
        if let Some(asked) = deadlines.of_each.get(destination) {
            // A deadline set by the user may also be postponed.
            *until = asked.map(|asked| moment_of(asked, now));
        }
        let until = *until;
        if load.is_empty() || until.is_some_and(|until| until <= now) {
            draining.remove(&(*socket, *destination));
            due.push(*destination);
        } else {
            waits = true;
        }
    }
    (due, waits)
}

/// Returns the target as named in the packet program: without a port for frontends with several ports.
fn target_of(frontend: &Frontend, socket: &Socket, destination: Destination) -> Target {
    let is_range = frontend.ports.single().is_none() && destination.port == socket.port;
    Target { address: destination.address, port: (!is_range).then_some(destination.port) }
}
