//! Desired kernel objects: packet programs (frontends with their verdicts) expanded into virtual servers, set
//! elements and addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use model::{
    kinds::{
        resource::ServiceKey,
        service::{Protocol, SchedulerFlag},
    },
    primitives::{
        net::IpFamily,
        quantity::{Port, PortRange, Timestamp},
    },
    program::{
        Destination as Place, Frontend, Program, Removal, Role, Route, Target, Targets, Verdict,
        oracle::Networks,
    },
};

use super::{
    lower::{self, Profile},
    server::{Destination, Forwarding, KernelDestination, SchedulingParameters, Server, Socket},
    sets::{IpsetElement, Set, SetKind, Value, halves},
    uapi,
};
use crate::claims;

/// Frontends that the Services claim, and the kernel objects that follow from them.
#[derive(Debug, Clone, Default)]
pub struct Wants {
    /// Packet programs in the form that IPVS supports, and the owner of each frontend.
    pub claims: claims::Claims,
    /// Addresses of the node on which node ports are served.
    pub node_addresses: BTreeSet<IpAddr>,
    /// Workload networks and masqueraded sources, which the set elements contain.
    pub networks: Networks,
    /// Frontends with more than one port; they need a virtual server per port.
    ranges: ReferenceCounts<Frontend>,
    /// Frontends served on every node port address.
    anywhere: ReferenceCounts<Frontend>,
    /// Local endpoints that may connect to themselves (hairpin), by the address and port of the endpoint.
    loops: ReferenceCounts<Socket>,
    /// Addresses of frontends and virtual addresses, which the dummy link must have unless another link has
    /// them.
    addresses: ReferenceCounts<IpAddr>,
    /// Ports at which the agent serves health checks of Services.
    health_checks: ReferenceCounts<Port>,
}

/// Service that caused a change; `None` for objects that belong to no single Service.
pub type Owner = Option<Arc<ServiceKey>>;

/// Objects to plan again, each with the Service that caused the change.
#[derive(Debug, Default)]
pub struct DirtyObjects {
    /// Virtual servers, with the removal policy for connections of targets that are no longer wanted.
    pub sockets: BTreeMap<Socket, (Owner, Removal)>,
    /// Node ports whose set elements may have changed.
    pub node_ports: BTreeMap<(IpFamily, Protocol, Port), Owner>,
    /// Hairpin elements that may have changed, by address and port of the endpoint.
    pub loops: BTreeMap<Socket, Owner>,
    /// Addresses that may have to be added to or removed from the dummy link.
    pub addresses: BTreeMap<IpAddr, Owner>,
    /// Health check ports whose set elements may have changed.
    pub health_checks: BTreeSet<Port>,
}

/// Objects that the kernel must hold for one address, protocol and port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketObjects {
    /// Service that owns the matching frontend; `None` if there is no frontend.
    pub owner: Owner,
    /// Virtual server with its destinations; `None` if connections are not forwarded.
    pub server: Option<Server>,
    /// Elements of the sets that contain this address and port.
    pub elements: BTreeSet<IpsetElement>,
}

/// Number of references to each value. Values without references are not in the map.
#[derive(Debug, Clone)]
struct ReferenceCounts<T>(BTreeMap<T, u32>);

impl<T> Default for ReferenceCounts<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> ReferenceCounts<T> {
    fn take(&mut self, value: T) {
        *self.0.entry(value).or_default() += 1;
    }

    fn release(&mut self, value: &T) {
        if let Some(count) = self.0.get_mut(value) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(value);
            }
        }
    }
}

/// Iterates over all ports of a range, first and last included.
pub fn ports(range: PortRange) -> impl Iterator<Item = Port> {
    (range.first().get()..=range.last().get()).filter_map(Port::new)
}

impl Wants {
    /// Replaces the packet program of a Service (its frontends with their verdicts), which must use only
    /// features of IPVS. Adds the affected kernel objects to `touched`, so that they are planned again.
    pub fn replace(
        &mut self,
        service: &ServiceKey,
        program: Option<Arc<Program>>,
        touched: &mut DirtyObjects,
    ) {
        let owner: Owner = Some(Arc::new(service.clone()));
        if let Some(old) = self.claims.program(service).cloned() {
            self.note(&old, &owner, touched);
            for_each_part(&old, |part| match part {
                SharedPart::Range(frontend) => self.ranges.release(&frontend),
                SharedPart::Anywhere(frontend) => self.anywhere.release(&frontend),
                SharedPart::Loop(socket) => self.loops.release(&socket),
                SharedPart::Address(address) => self.addresses.release(&address),
                SharedPart::HealthCheck(port) => self.health_checks.release(&port),
            });
        }
        if let Some(new) = &program {
            for_each_part(new, |part| match part {
                SharedPart::Range(frontend) => self.ranges.take(frontend),
                SharedPart::Anywhere(frontend) => self.anywhere.take(frontend),
                SharedPart::Loop(socket) => self.loops.take(socket),
                SharedPart::Address(address) => self.addresses.take(address),
                SharedPart::HealthCheck(port) => self.health_checks.take(port),
            });
            self.note(new, &owner, touched);
        }
        let mut rivals = claims::TouchedObjects::default();
        self.claims.replace(service, program, &mut rivals);
        for (frontend, owner) in rivals.frontends {
            self.touch(&frontend, &owner, Removal::Keep, touched);
        }
    }

    fn note(&self, program: &Program, owner: &Owner, touched: &mut DirtyObjects) {
        for (frontend, route) in &program.frontends {
            for socket in self.sockets(frontend) {
                touched.sockets.insert(socket, (owner.clone(), route.removal));
            }
            self.touch(frontend, owner, route.removal, touched);
        }
        for_each_part(program, |part| match part {
            SharedPart::Range(_) | SharedPart::Anywhere(_) => {}
            SharedPart::Loop(socket) => {
                touched.loops.insert(socket, owner.clone());
            }
            SharedPart::Address(address) => {
                touched.addresses.insert(address, owner.clone());
            }
            SharedPart::HealthCheck(port) => {
                touched.health_checks.insert(port);
            }
        });
    }

    fn touch(&self, frontend: &Frontend, owner: &Owner, removal: Removal, touched: &mut DirtyObjects) {
        for socket in self.sockets(frontend) {
            touched.sockets.entry(socket).or_insert_with(|| (owner.clone(), removal));
        }
        if let Place::AnyLocal(family) = frontend.destination {
            for port in ports(frontend.ports) {
                let key = (family, frontend.protocol, port);
                touched.node_ports.entry(key).or_insert_with(|| owner.clone());
            }
        }
    }

    /// Adds the kernel objects that depend on the addresses of the node to `touched`, so that they are
    /// planned again.
    pub fn touch_node_ports(&self, touched: &mut DirtyObjects) {
        for frontend in self.anywhere.0.keys() {
            self.touch(frontend, &self.claims.owner(frontend).cloned(), Removal::Keep, touched);
        }
    }

    /// Returns the keys of the virtual servers that a frontend needs: one per port, and for node ports one
    /// per node address.
    pub fn sockets(&self, frontend: &Frontend) -> Vec<Socket> {
        let addresses: Vec<_> = match frontend.destination {
            Place::Address(address) => vec![address],
            Place::AnyLocal(family) => self
                .node_addresses
                .iter()
                .copied()
                .filter(|address| IpFamily::of(*address) == family)
                .collect(),
        };
        let protocol = frontend.protocol;
        let at = |address| ports(frontend.ports).map(move |port| Socket { address, protocol, port });
        addresses.into_iter().flat_map(at).collect()
    }

    /// Returns the frontend that matches a socket: exact addresses before node ports, single ports before
    /// ranges.
    #[must_use]
    pub fn resolve(&self, socket: &Socket) -> Option<(Frontend, &Arc<ServiceKey>, &Route)> {
        let exact = self.resolve_at(Place::Address(socket.address), socket.protocol, socket.port);
        let is_node = self.node_addresses.contains(&socket.address);
        let anywhere = || self.resolve_at(Place::AnyLocal(socket.family()), socket.protocol, socket.port);
        exact.or_else(|| if is_node { anywhere() } else { None })
    }

    fn resolve_at(
        &self,
        destination: Place,
        protocol: Protocol,
        port: Port,
    ) -> Option<(Frontend, &Arc<ServiceKey>, &Route)> {
        let found = |frontend: Frontend| {
            let owner = self.claims.owner(&frontend)?;
            Some((frontend, owner, self.claims.route(&frontend)?))
        };
        let single = Frontend { destination, protocol, ports: port.into() };
        let first = Frontend { destination, protocol, ports: Port::new(1)?.into() };
        let ranges = self.ranges.0.range(first..).map(|(frontend, _)| *frontend);
        let mut ranges = ranges
            .take_while(move |range| range.destination == destination && range.protocol == protocol)
            .filter(move |range| range.ports.contains(port));
        found(single).or_else(|| ranges.find_map(found))
    }

    /// Returns the draining destinations of a virtual server, each with the deadline of its connections.
    #[must_use]
    pub fn leaving(&self, socket: &Socket) -> BTreeMap<Destination, Option<Timestamp>> {
        let Some((_, _, route)) = self.resolve(socket) else { return BTreeMap::new() };
        let destination = |target: &Target| Destination {
            address: target.address,
            port: target.port.unwrap_or(socket.port),
        };
        route.leaving.iter().map(|(target, until)| (destination(target), *until)).collect()
    }

    /// Returns the objects that the kernel must hold for one address, protocol and port.
    #[must_use]
    pub fn entry(&self, socket: &Socket) -> SocketObjects {
        let Some((frontend, owner, route)) = self.resolve(socket) else { return SocketObjects::default() };
        let mut elements = BTreeSet::new();
        let mut add = |kind| elements.insert(IpsetElement::of_socket(kind, *socket));
        if let Some(kind) = masquerade_kind(&frontend, route) {
            add(kind);
        }
        if is_load_balancer(&frontend, route) {
            add(SetKind::LoadBalancer);
        }
        if route.from_elsewhere == Verdict::Drop {
            add(if route.from_node == Verdict::Drop { SetKind::Drop } else { SetKind::DropOutside });
        }
        if route.from_node == Verdict::Reject {
            add(SetKind::Reject);
        }
        if let Some(allowed) = &route.allowed_sources {
            add(SetKind::Firewall);
            let set = Set { kind: SetKind::SourceCidr, family: socket.family() };
            let nets = allowed.iter().flat_map(|net| halves(*net));
            let of_family = nets.filter(|net| IpFamily::of_net(net) == socket.family());
            elements.extend(of_family.map(|net| IpsetElement { set, value: Value::SocketNet(*socket, net) }));
        }
        let server = lower::shared_targets(route).map(|targets| server(route, &targets, socket.port));
        SocketObjects { owner: Some(Arc::clone(owner)), server, elements }
    }

    /// Returns the kind of set that must contain a node port. `None` if the protocol is SCTP, if its
    /// connections are never masqueraded, or if masquerading depends on the source network.
    #[must_use]
    pub fn node_port_kind(&self, family: IpFamily, protocol: Protocol, port: Port) -> Option<SetKind> {
        let (_, _, route) = self.resolve_at(Place::AnyLocal(family), protocol, port)?;
        match (protocol, lower::profile(route)?) {
            (Protocol::Tcp, Profile::Always) => Some(SetKind::NodePortTcp),
            (Protocol::Tcp, Profile::NodeOnly) => Some(SetKind::NodePortLocalTcp),
            (Protocol::Udp, Profile::Always) => Some(SetKind::NodePortUdp),
            (Protocol::Udp, Profile::NodeOnly) => Some(SetKind::NodePortLocalUdp),
            (Protocol::Sctp, _) | (_, Profile::Never | Profile::BySource) => None,
        }
    }

    /// Returns true if a local endpoint at this address and port may connect to itself through a Service.
    #[must_use]
    pub fn wants_loop(&self, socket: &Socket) -> bool {
        self.loops.0.contains_key(socket)
    }

    /// Returns true if any Service needs this address to be assigned to an interface of the node: the dummy link
    /// or a different interface.
    #[must_use]
    pub fn wants_address(&self, address: IpAddr) -> bool {
        self.addresses.0.contains_key(&address)
    }

    /// Returns true if the agent serves health checks on the port.
    #[must_use]
    pub fn wants_health_check(&self, port: Port) -> bool {
        self.health_checks.0.contains_key(&port)
    }

    /// Returns the set elements that represent the workload networks, the masqueraded sources and the Service ranges.
    #[must_use]
    pub fn networks(&self) -> BTreeSet<IpsetElement> {
        let elements = |kind, nets: &BTreeSet<IpNet>| {
            let element = move |net: IpNet| IpsetElement {
                set: Set { kind, family: IpFamily::of_net(&net) },
                value: Value::Net(net),
            };
            nets.iter().flat_map(|net| halves(*net)).map(element).collect::<Vec<_>>()
        };
        let workloads = elements(SetKind::Workloads, &self.networks.workloads);
        let sources = elements(SetKind::MasqueradeSources, &self.networks.masquerade_sources);
        let services = elements(SetKind::ServiceRanges, &self.networks.services);
        workloads.into_iter().chain(sources).chain(services).collect()
    }
}

/// Part of a packet program that several Services can have in common, so that its uses are counted.
enum SharedPart {
    Range(Frontend),
    Anywhere(Frontend),
    Loop(Socket),
    Address(IpAddr),
    HealthCheck(Port),
}

fn for_each_part(program: &Program, mut each: impl FnMut(SharedPart)) {
    for (frontend, route) in &program.frontends {
        if frontend.ports.single().is_none() {
            each(SharedPart::Range(*frontend));
        }
        if matches!(frontend.destination, Place::AnyLocal(_)) {
            each(SharedPart::Anywhere(*frontend));
        }
        let protocol = frontend.protocol;
        for target in lower::shared_targets(route).iter().flat_map(|targets| targets.keys()) {
            if program.hairpins.contains(&target.address) {
                for port in ports(target.port.map_or(frontend.ports, PortRange::from)) {
                    each(SharedPart::Loop(Socket { address: target.address, protocol, port }));
                }
            }
        }
    }
    let addresses = lower::exact_addresses(program);
    addresses.union(&program.virtual_addresses).copied().map(SharedPart::Address).for_each(&mut each);
    if let Some(health_check) = program.health_check {
        each(SharedPart::HealthCheck(health_check.port));
    }
}

/// Returns the kind of set by which the rules decide if connections of a frontend are masqueraded; `None` if
/// the frontend is in no such set. TCP and UDP node ports are in sets of ports instead.
fn masquerade_kind(frontend: &Frontend, route: &Route) -> Option<SetKind> {
    let is_node_port = matches!(frontend.destination, Place::AnyLocal(_));
    match lower::profile(route)? {
        // Rejected for all sources, or never masqueraded; a cluster IP is listed nevertheless.
        Profile::Never => (route.role == Role::ClusterIp && lower::shared_targets(route).is_none())
            .then_some(SetKind::ClusterIp),
        Profile::BySource => Some(SetKind::ClusterIp),
        Profile::Always if is_node_port => {
            (frontend.protocol == Protocol::Sctp).then_some(SetKind::NodePortSctp)
        }
        Profile::NodeOnly if is_node_port => {
            (frontend.protocol == Protocol::Sctp).then_some(SetKind::NodePortLocalSctp)
        }
        Profile::Always => (route.role != Role::LoadBalancer).then_some(SetKind::ExternalIp),
        Profile::NodeOnly if route.role == Role::LoadBalancer => Some(SetKind::LoadBalancerLocal),
        Profile::NodeOnly => Some(SetKind::ExternalIpLocal),
    }
}

fn is_load_balancer(frontend: &Frontend, route: &Route) -> bool {
    route.role == Role::LoadBalancer
        && matches!(frontend.destination, Place::Address(_))
        && matches!(lower::profile(route), Some(Profile::Always | Profile::NodeOnly))
}

fn server(route: &Route, targets: &Targets, port: Port) -> Server {
    let mut weights = targets.values();
    let first = weights.next();
    let plain = if weights.all(|weight| Some(weight) == first) { "rr" } else { "wrr" };
    let scheduler = route.scheduler.as_ref().map_or(plain, |scheduler| scheduler.0.as_str()).to_owned();
    let mut flags = 0;
    for flag in &route.scheduler_flags {
        flags |= match flag {
            SchedulerFlag::Fallback => uapi::IP_VS_SVC_F_SCHED1,
            SchedulerFlag::Port => uapi::IP_VS_SVC_F_SCHED2,
            SchedulerFlag::OnePacket => uapi::IP_VS_SVC_F_ONEPACKET,
        };
    }
    if route.affinity_seconds.is_some() {
        flags |= uapi::IP_VS_SVC_F_PERSISTENT;
    }
    let timeout_secs = route.affinity_seconds.unwrap_or(0);
    let destination = |target: &model::program::Target| Destination {
        address: target.address,
        port: target.port.unwrap_or(port),
    };
    let held = |weight: model::primitives::quantity::Weight| KernelDestination {
        forwarding: Forwarding::Masquerade,
        weight: u32::from(weight.0),
    };
    let destinations = targets.iter().map(|(target, weight)| (destination(target), held(*weight))).collect();
    Server { service: SchedulingParameters { scheduler, flags, timeout_secs }, destinations }
}
