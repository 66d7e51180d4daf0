//! Trace of a packet through rules, sets and virtual servers as read back. Does no I/O.
//!
//! The rules are fixed and were compared with the wanted ones when they were read. So the order of the rules
//! is known, and the contents of the sets that they match are in the mirror (copy in memory).

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use model::{
    kinds::{node::Naming, service::Protocol},
    primitives::net::IpFamily,
    wire::trace::{End, Packet, VisibleSource},
};

use super::{
    mirror::IpvsMirror,
    server::{Destination, Server, Socket},
    sets::{IpsetElement, Set, SetKind, Value, link},
};
use crate::trace::{Recorder, Subject};

/// Kernel state read for a trace, and the expected state to compare with.
#[derive(Clone, Copy)]
pub(super) struct TraceState<'a> {
    /// Kernel state, read for this trace.
    pub(super) mirror: &'a IpvsMirror,
    /// Mirror of the kernel objects (as last read or written); `None` if the state is unknown. Differences
    /// from it are recorded as unexpected steps of the trace.
    pub(super) known: Option<&'a IpvsMirror>,
}

/// Traces a packet through rules, sets and virtual servers. Records the matching elements and the possible
/// outcomes, such as an endpoint or a drop.
pub(super) fn trace(held: TraceState<'_>, naming: Naming, subject: &Subject<'_>) -> Recorder {
    let TraceState { mirror, known } = held;
    let Packet { source: _, destination: address, protocol, port } = *subject.packet;
    let socket = Socket { address, protocol, port };
    let mut walk = ServerWalk { mirror, known, naming, subject, socket, recorder: Recorder::default() };
    walk.begin();
    walk.recorder
}

struct ServerWalk<'a> {
    mirror: &'a IpvsMirror,
    known: Option<&'a IpvsMirror>,
    naming: Naming,
    subject: &'a Subject<'a>,
    socket: Socket,
    recorder: Recorder,
}

impl ServerWalk<'_> {
    fn begin(&mut self) {
        let family = self.socket.family();
        if self.mirror.rules.get(&family) != Some(&true) {
            let what = format!("our {} rules are not as they were made", family.as_str());
            self.recorder.odd("iptables", "", &*what);
            return self.recorder.end(End::Unknown(what));
        }
        if self.is_in(SetKind::Servers) && !self.subject.is_local(self.socket.address) {
            let what = "the address is not on our link: packets from outside are not taken in";
            self.recorder.odd(format!("link {}", link(self.naming)), self.socket.address.to_string(), what);
        }
        // Packets from the node itself reach IPVS before any filter.
        if self.subject.is_from_node() && self.server().is_some_and(takes_connections) {
            return self.serve();
        }
        if !self.subject.is_local(self.socket.address) {
            self.recorder.step("routing", "", "the address is not one of the node");
            if self.is_in_service_ranges() {
                self.recorder.step("filter IPVS-UNASSIGNED", "-j DROP", "no Service has the address");
                return self.recorder.end(End::Dropped);
            }
            return self.recorder.end(End::Untouched);
        }
        self.filter();
    }

    /// Evaluates the filter rules that precede IPVS: source ranges, drops and rejects, in rule order. A
    /// packet that passes continues at its virtual server.
    fn filter(&mut self) {
        if self.asks(SetKind::Firewall, "only some sources may connect") {
            if let Some(element) = self.allowance() {
                self.note(element, "the source may connect");
            } else if self.subject.is_from_node() {
                self.recorder.step(
                    "filter SOURCE-RANGES",
                    "-m addrtype --src-type LOCAL",
                    "the node itself may connect",
                );
            } else {
                self.recorder.step("filter SOURCE-RANGES", "-j DROP", "the source may not connect");
                return self.recorder.end(End::Dropped);
            }
        }
        if self.asks(SetKind::Drop, "it is dropped") {
            return self.recorder.end(End::Dropped);
        }
        if self.asks(SetKind::DropOutside, "it is for workloads and the node only")
            && !self.comes_from(SetKind::Workloads)
            && !self.subject.is_from_node()
        {
            self.recorder.step("filter IPVS-OUTSIDE", "-j DROP", "it comes from elsewhere and is dropped");
            return self.recorder.end(End::Dropped);
        }
        if self.asks(SetKind::Reject, "it is refused") {
            return self.recorder.end(End::Refused);
        }
        if !self.asks(SetKind::Servers, "it goes on to IPVS") {
            let closed = IpsetElement::of_address(self.socket.address);
            if self.mirror.elements.contains(&closed) {
                self.note(closed, "no port of this address: refused");
                return self.recorder.end(End::Refused);
            }
        }
        self.serve();
    }

    fn serve(&mut self) {
        let at = format!("virtual server {}", self.socket);
        let Some(server) = self.mirror.servers.get(&self.socket) else {
            let is_known = self.known.is_some_and(|known| known.servers.contains_key(&self.socket));
            if is_known || self.is_in(SetKind::Servers) {
                self.recorder.odd(at, "", "there is no such virtual server");
            } else if self.mirror.foreign.contains(&self.socket) {
                self.recorder.odd(at.clone(), "", "it is somebody else's");
                return self.recorder.end(End::Unknown(format!("{at} is somebody else's")));
            } else {
                self.recorder.step(at, "", "there is none, and none is wanted");
            }
            return self.recorder.end(End::Untouched);
        };
        let is_marked = self.masquerade();
        let scheduler = format!("scheduler {}", server.service.scheduler);
        self.expect_destinations(server);
        if !takes_connections(server) {
            self.recorder.odd(at, scheduler, "it has no destination that takes connections: refused");
            return self.recorder.end(End::Refused);
        }
        self.recorder.step(at.clone(), scheduler, "it chooses a destination");
        let sum: u64 = server.destinations.values().map(|held| u64::from(held.weight)).sum();
        for (destination, held) in server.destinations.iter().filter(|(_, held)| held.weight > 0) {
            let to = SocketAddr::new(destination.address, destination.port.get());
            self.recorder.step(at.clone(), to.to_string(), format!("weight {} of {sum}", held.weight));
            let is_itself = self.is_itself(destination);
            let sees = self.subject.seen(is_marked || is_itself, destination.address);
            self.recorder.end(End::Reaches { address: destination.address, port: destination.port, sees });
            if sees == VisibleSource::Node && is_itself {
                self.recorder.step(
                    "nat POSTROUTING",
                    "-j MASQUERADE",
                    "an endpoint that reaches itself is masqueraded",
                );
            }
        }
    }

    /// Records unexpected steps of the trace if a virtual server has missing or different destinations.
    fn expect_destinations(&mut self, server: &Server) {
        let known = self.known.and_then(|known| known.servers.get(&self.socket));
        let Some(known) = known.filter(|known| known.destinations != server.destinations) else { return };
        let all = known.destinations.keys().chain(server.destinations.keys());
        for destination in all.collect::<BTreeSet<_>>() {
            let what = match (known.destinations.get(destination), server.destinations.get(destination)) {
                (Some(wanted), Some(held)) if wanted == held => continue,
                (Some(wanted), Some(_)) => format!("it is changed: its weight was {}", wanted.weight),
                (Some(_), None) => "this destination is missing".to_owned(),
                (None, _) => "this destination is somebody else's".to_owned(),
            };
            let Destination { address, port } = *destination;
            let to = SocketAddr::new(address, port.get());
            self.recorder.odd(format!("virtual server {}", self.socket), to.to_string(), what);
        }
    }

    /// Returns true if the rules, evaluated in order, mark the packet for masquerading.
    fn masquerade(&mut self) -> bool {
        let source = self.subject.packet.source;
        if source.is_loopback() {
            return false;
        }
        let is_virtual = self.mirror.elements.contains(&IpsetElement::of_address(source));
        let mut is_marked = is_virtual && self.is_in(SetKind::Servers);
        if self.asks(SetKind::ClusterIp, "masqueraded by source") {
            is_marked |= self.comes_from(SetKind::MasqueradeSources);
        } else if self.asks(SetKind::LoadBalancerLocal, "only the node is masqueraded") {
            is_marked |= self.is_node_only();
        } else if self.asks(SetKind::LoadBalancer, "masqueraded") {
            is_marked = true;
        } else if self.asks(SetKind::ExternalIpLocal, "only the node is masqueraded") {
            is_marked |= self.is_node_only();
        } else {
            is_marked |= self.asks(SetKind::ExternalIp, "masqueraded");
            let (local, always) = match self.socket.protocol {
                Protocol::Tcp => (SetKind::NodePortLocalTcp, SetKind::NodePortTcp),
                Protocol::Udp => (SetKind::NodePortLocalUdp, SetKind::NodePortUdp),
                Protocol::Sctp => (SetKind::NodePortLocalSctp, SetKind::NodePortSctp),
            };
            if self.asks(local, "a node port: only the node is masqueraded") {
                is_marked |= self.is_node_only();
            } else {
                is_marked |= self.asks(always, "a node port: masqueraded");
            }
        }
        if is_marked {
            self.recorder.step("nat POSTROUTING", "-j MASQUERADE", "the endpoint sees the node");
        }
        is_marked
    }

    fn is_node_only(&self) -> bool {
        !self.comes_from(SetKind::Workloads) && self.subject.is_from_node()
    }

    fn is_itself(&self, destination: &Destination) -> bool {
        let Destination { address, port } = *destination;
        let socket = Socket { address, port, ..self.socket };
        address == self.subject.packet.source && self.mirror.elements.contains(&IpsetElement::of_loop(socket))
    }

    fn is_in_service_ranges(&self) -> bool {
        let address = self.socket.address;
        let of_ranges = |element: &&IpsetElement| element.set.kind == SetKind::ServiceRanges;
        let mut ranges = self.mirror.elements.iter().filter(of_ranges);
        ranges.any(|element| matches!(element.value, Value::Net(net) if net.contains(&address)))
    }

    fn server(&self) -> Option<&Server> {
        self.mirror.servers.get(&self.socket)
    }

    /// Returns the element that a set of this kind must contain to match the packet's destination.
    fn element(&self, kind: SetKind) -> IpsetElement {
        let Socket { port, .. } = self.socket;
        match kind {
            SetKind::NodePortTcp
            | SetKind::NodePortLocalTcp
            | SetKind::NodePortUdp
            | SetKind::NodePortLocalUdp => IpsetElement::of_port(kind, self.socket.family(), port),
            SetKind::Servers
            | SetKind::Addresses
            | SetKind::ClusterIp
            | SetKind::LoopBack
            | SetKind::ExternalIp
            | SetKind::ExternalIpLocal
            | SetKind::LoadBalancer
            | SetKind::LoadBalancerLocal
            | SetKind::Firewall
            | SetKind::SourceCidr
            | SetKind::NodePortSctp
            | SetKind::NodePortLocalSctp
            | SetKind::HealthCheck
            | SetKind::Reject
            | SetKind::Drop
            | SetKind::DropOutside
            | SetKind::Workloads
            | SetKind::MasqueradeSources
            | SetKind::ServiceRanges
            | SetKind::Sysctls => IpsetElement::of_socket(kind, self.socket),
        }
    }

    fn is_in(&self, kind: SetKind) -> bool {
        self.mirror.elements.contains(&self.element(kind))
    }

    /// Returns true if a set of this kind contains the packet's destination. In that case, records a step of
    /// the trace with `result`.
    fn asks(&mut self, kind: SetKind, result: &str) -> bool {
        let (is_in, element) = (self.is_in(kind), self.element(kind));
        match self.known.map(|known| known.elements.contains(&element)) {
            Some(true) if !is_in => self.odd(element, "this entry is missing"),
            Some(false) if is_in => self.odd(element, "this entry is somebody else's"),
            _ if is_in => self.note(element, result),
            _ => {}
        }
        is_in
    }

    /// Returns the element of the source range set that allows the packet's source; `None` if no range
    /// contains it.
    fn allowance(&self) -> Option<IpsetElement> {
        let source = self.subject.packet.source;
        let elements = self.mirror.elements_of(&self.socket);
        elements.into_iter().find(|element| {
            matches!(element.value, Value::SocketNet(_, net) if net.contains(&source))
                && element.set.kind == SetKind::SourceCidr
        })
    }

    fn comes_from(&self, kind: SetKind) -> bool {
        let source = self.subject.packet.source;
        let set = Set { kind, family: IpFamily::of(source) };
        let of_set = self.mirror.elements.iter().filter(|element| element.set == set);
        of_set.into_iter().any(|element| matches!(element.value, Value::Net(net) if net.contains(&source)))
    }

    fn note(&mut self, element: IpsetElement, result: &str) {
        let at = format!("ipset {}", element.set.name(self.naming));
        self.recorder.step(at, text(&element.value), result);
    }

    fn odd(&mut self, element: IpsetElement, result: &str) {
        let at = format!("ipset {}", element.set.name(self.naming));
        self.recorder.odd(at, text(&element.value), result);
    }
}

fn takes_connections(server: &Server) -> bool {
    server.destinations.values().any(|held| held.weight > 0)
}

/// Formats the value of an element as `ipset list` prints it.
fn text(value: &Value) -> String {
    let socket = |socket: &Socket| {
        let protocol = socket.protocol.as_str().to_lowercase();
        format!("{},{protocol}:{}", socket.address, socket.port)
    };
    let host = |address: &IpAddr| address.to_string();
    match value {
        Value::Address(address) => host(address),
        Value::Net(net) => net.to_string(),
        Value::Socket(at) => socket(at),
        Value::SocketAddress(at, from) => format!("{},{}", socket(at), host(from)),
        Value::SocketNet(at, net) => format!("{},{net}", socket(at)),
        Value::Port(port) => port.to_string(),
    }
}
