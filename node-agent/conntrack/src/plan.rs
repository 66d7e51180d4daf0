//! Decides which flows are stale. Does no I/O.
//!
//! A flow belongs to the most specific matching frontend: an address before a node port, a single port before a
//! range. The target of the flow is compared with the programmed state at the time of the decision, not at the
//! time of the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use kernel::conntrack::{Filter, Flow};
use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{
        net::IpFamily,
        quantity::{Port, Timestamp},
    },
    program::{Destination, Frontend, Program, Removal, Route, Target, Verdict},
};
use smallvec::SmallVec;

/// Packet programs (frontends with their targets) that the kernel has, indexed by Service and by frontend.
#[derive(Debug, Default)]
pub struct ProgrammedState {
    programs: BTreeMap<ServiceKey, Arc<Program>>,
    /// Services that claim each frontend, in key order; the first one is the owner.
    owners: BTreeMap<Frontend, SmallVec<[ServiceKey; 1]>>,
    ranges: BTreeSet<Frontend>,
    /// Targets that the user drains, by Service.
    leaving: BTreeMap<ServiceKey, BTreeSet<(Protocol, Target)>>,
    /// Version that increases whenever a drain may have begun or ended.
    leaving_version: u64,
}

/// Time at which the connections of a removed target are terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Delay in seconds after the removal of the target, unless an earlier deadline is already set.
    After(u32),
    /// Wall-clock time, which replaces any previous deadline.
    At(Timestamp),
    /// No termination; any previous deadline is dropped.
    Never,
}

/// Pending work: frontends whose flows must be checked in the next walk of the table.
#[derive(Debug, Default)]
pub struct Dues {
    frontends: BTreeMap<Frontend, Due>,
    ranges: BTreeSet<Frontend>,
    /// Targets that were removed, or whose drain has begun or ended, in the order of these events, each with the
    /// time at which its connections are terminated.
    pub drains: Vec<(Frontend, Target, When)>,
}

/// Pending work for the flows of one frontend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Due {
    /// Targets whose flows are deleted, unless the target has been added again by then.
    gone: BTreeSet<Target>,
    /// Removal policy for flows to any target that is not current; `None` if only the flows in `gone` are
    /// affected.
    strays: Option<Removal>,
    /// True if the frontend is new. TCP connections without an answer that began before are then deleted, so that
    /// the client's next SYN segment is translated.
    is_new: bool,
}

/// Addresses of the node, against which the destinations and targets of flows are compared.
#[derive(Debug, Default)]
pub struct LocalAddresses {
    /// All addresses of the node except loopback addresses.
    pub all: BTreeSet<IpAddr>,
    /// Addresses on which node ports are served.
    pub node_ports: BTreeSet<IpAddr>,
    /// True if a userspace relay on the node accepts all new connections to Services, so that conntrack entries
    /// have an address of the node as destination instead of an endpoint.
    pub have_relays: bool,
}

impl LocalAddresses {
    fn has(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.all.contains(&address)
    }
}

/// Extent of the search for stale flows after a pass (update of the kernel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Search limited to flows that a change in the last kernel update can have made stale.
    Changes,
    /// Search of all flows, because changes before the last kernel update are unknown, as after a start of
    /// the agent.
    Everything,
}

/// Decision whether a flow stays in the conntrack table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Decision to leave the flow unchanged.
    Keep,
    /// Decision to delete the flow in this walk.
    Delete,
    /// Decision to delete the flows to this target of this frontend after this number of seconds.
    DeleteLater(Frontend, Target, u32),
}

impl ProgrammedState {
    /// Iterates over the Services that have a packet program (frontends with their targets) in the kernel.
    pub fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.programs.keys()
    }

    /// Replaces the packet program of a Service, and adds the frontends whose flows may now be stale to `dues`.
    pub fn replace(
        &mut self,
        service: &ServiceKey,
        program: Option<Arc<Program>>,
        depth: Depth,
        dues: &mut Dues,
    ) {
        let old = self.programs.get(service).cloned();
        let is_same = match (&old, &program) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_same && depth == Depth::Changes {
            return;
        }
        let nothing = Program::default();
        let before = old.as_deref().unwrap_or(&nothing);
        let after = program.as_deref().unwrap_or(&nothing);
        for (frontend, route) in &before.frontends {
            dues.compare(*frontend, Some(route), after.frontends.get(frontend), depth);
        }
        for (frontend, route) in &after.frontends {
            if !before.frontends.contains_key(frontend) {
                dues.compare(*frontend, None, Some(route), depth);
            }
        }
        if !is_same {
            self.forget(service, before);
            self.remember(service, program);
        }
    }

    fn forget(&mut self, service: &ServiceKey, program: &Program) {
        self.programs.remove(service);
        self.leaving_version += u64::from(self.leaving.remove(service).is_some());
        for frontend in program.frontends.keys() {
            let Some(owners) = self.owners.get_mut(frontend) else { continue };
            owners.retain(|owner| owner != service);
            if owners.is_empty() {
                self.owners.remove(frontend);
                self.ranges.remove(frontend);
            }
        }
    }

    fn remember(&mut self, service: &ServiceKey, program: Option<Arc<Program>>) {
        let Some(program) = program else { return };
        for frontend in program.frontends.keys() {
            let owners = self.owners.entry(*frontend).or_default();
            if let Err(position) = owners.binary_search(service) {
                owners.insert(position, service.clone());
            }
            if frontend.ports.single().is_none() {
                self.ranges.insert(*frontend);
            }
        }
        let leaving = program.frontends.iter().flat_map(|(frontend, route)| {
            route.leaving.keys().map(move |target| (frontend.protocol, *target))
        });
        let leaving: BTreeSet<_> = leaving.collect();
        if !leaving.is_empty() {
            self.leaving.insert(service.clone(), leaving);
            self.leaving_version += 1;
        }
        self.programs.insert(service.clone(), program);
    }

    /// Returns a version that increases whenever a drain may have begun or ended.
    #[must_use]
    pub const fn leaving_version(&self) -> u64 {
        self.leaving_version
    }

    /// Returns true if the user drains this target of the Service.
    #[must_use]
    pub fn is_leaving(&self, service: &ServiceKey, protocol: Protocol, target: &Target) -> bool {
        self.leaving.get(service).is_some_and(|leaving| leaving.contains(&(protocol, *target)))
    }

    /// Returns the Service that owns a frontend, or `None` if no Service in the kernel has this frontend.
    #[must_use]
    pub fn owner(&self, frontend: &Frontend) -> Option<&ServiceKey> {
        self.owners.get(frontend)?.first()
    }

    /// Returns the frontend and target of a flow, or `None` if the flow belongs to no frontend.
    #[must_use]
    pub fn attribute(&self, flow: &Flow, local: &LocalAddresses) -> Option<(Frontend, Target)> {
        let frontend = self.owned(flow, local)?;
        let target = target(frontend, flow);
        let route = self.route(&frontend)?;
        // A flow that ends on the node itself, without such a target, was relayed there by another mode.
        let is_ours =
            !local.has(flow.target) || has_target(route, &target) || route.leaving.contains_key(&target);
        is_ours.then_some((frontend, target))
    }

    fn owned(&self, flow: &Flow, local: &LocalAddresses) -> Option<Frontend> {
        candidates(flow, local)
            .into_iter()
            .find_map(|(destination, is_range)| find(&self.owners, &self.ranges, destination, is_range, flow))
    }

    /// Returns true if new connections of the frontend may go to the target.
    #[must_use]
    pub fn is_current(&self, frontend: &Frontend, target: &Target) -> bool {
        self.route(frontend).is_some_and(|route| has_target(route, target))
    }

    fn route(&self, frontend: &Frontend) -> Option<&Route> {
        let owner = self.owners.get(frontend)?.first()?;
        self.programs.get(owner)?.frontends.get(frontend)
    }

    /// Decides if a flow is kept, deleted now or deleted later, according to the pending work for its frontend and
    /// the current targets.
    #[must_use]
    pub fn judge(&self, dues: &Dues, flow: &Flow, local: &LocalAddresses) -> Judgement {
        // Uses the most specific frontend. If no work is pending for it (it is not due), its flows are left
        // alone.
        let due = candidates(flow, local).into_iter().find_map(|(destination, is_range)| {
            let due = find(&dues.frontends, &dues.ranges, destination, is_range, flow);
            due.or_else(|| find(&self.owners, &self.ranges, destination, is_range, flow))
        });
        let Some((frontend, due)) = due.and_then(|frontend| Some((frontend, dues.frontends.get(&frontend)?)))
        else {
            return Judgement::Keep;
        };
        if due.is_new && flow.is_unanswered {
            return Judgement::Delete;
        }
        if local.have_relays {
            let moves = flow.protocol != Protocol::Tcp && !local.has(flow.target);
            return if moves { Judgement::Delete } else { Judgement::Keep };
        }
        let owned = self.owned(flow, local);
        if owned.is_some_and(|owned| self.is_current(&owned, &target(owned, flow))) {
            return Judgement::Keep;
        }
        let drains =
            |owned| self.route(&owned).is_some_and(|it| it.leaving.contains_key(&target(owned, flow)));
        let target = target(frontend, flow);
        if due.gone.contains(&target) {
            return Judgement::Delete;
        }
        match due.strays {
            None | Some(Removal::Keep) => Judgement::Keep,
            Some(Removal::Reset | Removal::Drain(_))
                if flow.protocol == Protocol::Tcp && owned.is_some_and(drains) =>
            {
                Judgement::Keep
            }
            // A connection that ends on the node itself may be relayed there by another mode.
            Some(Removal::Reset | Removal::Drain(_))
                if flow.protocol == Protocol::Tcp && local.has(flow.target) =>
            {
                Judgement::Keep
            }
            Some(Removal::Reset) => Judgement::Delete,
            Some(Removal::Drain(seconds)) => Judgement::DeleteLater(frontend, target, seconds),
        }
    }
}

/// Returns the destinations of frontends that can match the flow, most specific first. The flag is true for
/// frontends with a port range.
fn candidates(flow: &Flow, local: &LocalAddresses) -> Vec<(Destination, bool)> {
    let node_port = Destination::AnyLocal(IpFamily::of(flow.destination));
    let node_port = local.node_ports.contains(&flow.destination).then_some(node_port);
    [Some(Destination::Address(flow.destination)), node_port]
        .into_iter()
        .flatten()
        .flat_map(|destination| [(destination, false), (destination, true)])
        .collect()
}

/// Returns the target of a flow in the form that the routes of `frontend` use. The target has no port if the
/// frontend has a port range and the flow keeps the port that the client used.
fn target(frontend: Frontend, flow: &Flow) -> Target {
    let keeps_port = frontend.ports.single().is_none() && flow.target_port == flow.port;
    Target { address: flow.target, port: (!keeps_port).then_some(flow.target_port) }
}

fn has_target(route: &Route, target: &Target) -> bool {
    let mut targets = route.verdicts().into_iter().filter_map(Verdict::targets);
    targets.any(|targets| targets.contains_key(target))
}

/// Returns the most specific frontend in `frontends` that matches the flow: one with a port range if
/// `is_range` is true, otherwise one with a single port. `ranges` are all frontends with a port range.
fn find<V>(
    frontends: &BTreeMap<Frontend, V>,
    ranges: &BTreeSet<Frontend>,
    destination: Destination,
    is_range: bool,
    flow: &Flow,
) -> Option<Frontend> {
    let protocol = flow.protocol;
    let at = |ports| Frontend { destination, protocol, ports };
    if !is_range {
        return Some(at(flow.port.into())).filter(|frontend| frontends.contains_key(frontend));
    }
    // Only the port ranges are scanned; there are few per address.
    let same = ranges.range(at(PORT_MIN.into())..).take_while(|frontend| {
        frontend.destination == destination
            && frontend.protocol == protocol
            && frontend.ports.first() <= flow.port
    });
    same.copied().find(|frontend| frontend.ports.contains(flow.port))
}

const PORT_MIN: Port = Port::new(1).expect("1 is not 0");

impl Dues {
    /// Returns true if no flow has to be checked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// Returns the number of frontends whose flows must be checked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frontends.len()
    }

    /// Keeps only the work for new frontends. The other work is dropped.
    pub fn keep_new(&mut self) {
        self.drains.clear();
        self.frontends.retain(|_, due| due.is_new);
        for due in self.frontends.values_mut() {
            *due = Due { is_new: true, ..Due::default() };
        }
        self.ranges.retain(|frontend| self.frontends.contains_key(frontend));
    }

    /// Adds a removed target, so that the next walk deletes the flows to it.
    pub fn add_gone(&mut self, frontend: Frontend, target: Target) {
        self.due(frontend).gone.insert(target);
    }

    /// Returns the criteria that all flows to be checked fulfill, which limit the kernel's dump.
    #[must_use]
    pub fn filter(&self) -> Filter {
        let mut frontends = self.frontends.keys();
        let Some(first) = frontends.next() else { return Filter::default() };
        let mut filter = Filter {
            family: Some(first.destination.family()),
            protocol: Some(first.protocol),
            destination: exact(first.destination),
            port: first.ports.single(),
        };
        for frontend in frontends {
            filter.family = filter.family.filter(|family| *family == frontend.destination.family());
            filter.protocol = filter.protocol.filter(|protocol| *protocol == frontend.protocol);
            filter.destination =
                filter.destination.filter(|address| Some(*address) == exact(frontend.destination));
            filter.port = filter.port.filter(|port| Some(*port) == frontend.ports.single());
        }
        filter
    }

    /// Compares the old and the new route of a frontend, and adds the resulting work: UDP and SCTP flows to
    /// check, TCP connections without an answer that are older than the frontend, and TCP connections of removed
    /// targets to terminate now or at a deadline.
    fn compare(&mut self, frontend: Frontend, old: Option<&Route>, new: Option<&Route>, depth: Depth) {
        let drains = |route: Option<&Route>, target: &Target| {
            route.is_some_and(|route| route.leaving.contains_key(target))
        };
        let lost = || {
            let mut targets = old.map(Route::all_targets).unwrap_or_default();
            targets.extend(old.iter().flat_map(|old| old.leaving.keys()));
            targets.into_iter().filter(|target| !new.is_some_and(|new| has_target(new, target)))
        };
        match frontend.protocol {
            Protocol::Udp | Protocol::Sctp => {
                let begins_or_ends = old.is_some_and(has_any) != new.is_some_and(has_any);
                let is_same = old.is_some() == new.is_some() && !begins_or_ends;
                if depth == Depth::Everything || !is_same || lost().next().is_some() {
                    self.due(frontend).strays = Some(Removal::Reset);
                }
            }
            Protocol::Tcp => {
                if old.is_none() && new.is_some() {
                    self.due(frontend).is_new = true;
                }
                let ended = old.into_iter().flat_map(|old| old.leaving.keys());
                let ended = ended.filter(|target| !drains(new, target));
                self.drains.extend(ended.map(|target| (frontend, *target, When::Never)));
                let lost = || lost().filter(|target| !drains(new, target));
                match old.map(|old| old.removal) {
                    None | Some(Removal::Keep) => {}
                    Some(Removal::Reset) => lost().for_each(|target| self.add_gone(frontend, target)),
                    Some(Removal::Drain(seconds)) => {
                        self.drains.extend(lost().map(|target| (frontend, target, When::After(seconds))));
                    }
                }
                for (target, until) in new.into_iter().flat_map(|new| &*new.leaving) {
                    let said = old.and_then(|old| old.leaving.get(target));
                    if depth == Depth::Everything || said != Some(until) {
                        let when = until.map_or(When::Never, When::At);
                        self.drains.push((frontend, *target, when));
                    }
                }
                let removal = new.map_or(Removal::Keep, |new| new.removal);
                if depth == Depth::Everything && removal != Removal::Keep {
                    self.due(frontend).strays = Some(removal);
                }
            }
        }
    }

    fn due(&mut self, frontend: Frontend) -> &mut Due {
        if frontend.ports.single().is_none() {
            self.ranges.insert(frontend);
        }
        self.frontends.entry(frontend).or_default()
    }
}

fn has_any(route: &Route) -> bool {
    route.verdicts().into_iter().any(|verdict| verdict.targets().is_some())
}

const fn exact(destination: Destination) -> Option<IpAddr> {
    match destination {
        Destination::Address(address) => Some(address),
        Destination::AnyLocal(_) => None,
    }
}
