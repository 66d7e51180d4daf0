//! Mirror of the IPVS servers, ipsets, addresses and rules in the kernel, as last read or written.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
};

use super::{
    render::IpvsCommand,
    server::{Server, Socket},
    sets::{IpsetElement, Set, SetKind, Value},
};

/// Kernel objects of the backend, and objects of other programs that affect planning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpvsMirror {
    /// Existing sets of the backend, each with the number of elements that this program would not have
    /// written.
    pub sets: BTreeMap<Set, u32>,
    /// Elements of the backend's sets.
    pub elements: BTreeSet<IpsetElement>,
    /// Virtual servers of the backend, with their destinations.
    pub servers: BTreeMap<Socket, Server>,
    /// Virtual servers of other programs, which are never changed.
    pub foreign: BTreeSet<Socket>,
    /// Dummy link with the virtual addresses; `None` if it does not exist.
    pub link: Option<DummyLink>,
    /// Addresses on all other links of the node.
    pub other_addresses: BTreeSet<IpAddr>,
    /// Address families read so far, each with a flag that is true if its iptables rules are as desired.
    pub rules: BTreeMap<IpFamily, bool>,
}

/// Dummy link that holds the virtual addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DummyLink {
    /// Index by which rtnetlink messages identify the link.
    pub index: u32,
    /// True if the link is up.
    pub is_up: bool,
    /// Addresses of the link, without link-local ones.
    pub addresses: BTreeSet<IpAddr>,
}

impl IpvsMirror {
    /// Returns the set elements for one address and port, except the element that marks the virtual server as the
    /// backend's.
    #[must_use]
    pub fn elements_of(&self, socket: &Socket) -> BTreeSet<IpsetElement> {
        let plain = SetKind::OF_FRONTEND.into_iter().map(|kind| IpsetElement::of_socket(kind, *socket));
        let plain = plain.filter(|element| self.elements.contains(element));
        let set = Set { kind: SetKind::SourceCidr, family: socket.family() };
        let lowest = |family| match family {
            IpFamily::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            IpFamily::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        };
        let first = IpsetElement { set, value: Value::SocketNet(*socket, lowest(socket.family())) };
        let is_of_socket =
            |element: &&IpsetElement| matches!(element.value, Value::SocketNet(of, _) if of == *socket);
        let ranges = self.elements.range(first..).take_while(is_of_socket);
        plain.chain(ranges.copied()).collect()
    }

    /// Returns true if the virtual server at this address and port belongs to the backend: the server is in the
    /// set of the backend's servers, or its address is on the dummy link.
    #[must_use]
    pub fn owns(&self, socket: &Socket) -> bool {
        let is_listed = self.elements.contains(&IpsetElement::of_socket(SetKind::Servers, *socket));
        let is_at_ours = self.link.as_ref().is_some_and(|link| link.addresses.contains(&socket.address));
        is_listed || is_at_ours
    }

    /// Returns true if a virtual server of the backend has this address.
    #[must_use]
    pub fn serves(&self, address: IpAddr) -> bool {
        let Some(port) = Port::new(1) else { return false };
        let first = Socket { address, protocol: Protocol::Tcp, port };
        self.servers.range(first..).next().is_some_and(|(socket, _)| socket.address == address)
    }

    /// Updates the mirror (copy in memory) after a command was executed.
    pub fn absorb(&mut self, command: &IpvsCommand) {
        match command {
            IpvsCommand::AddServer(socket, service) => {
                let server = Server { service: service.clone(), destinations: BTreeMap::new() };
                self.servers.insert(*socket, server);
            }
            IpvsCommand::EditServer(socket, service) => {
                if let Some(server) = self.servers.get_mut(socket) {
                    server.service.clone_from(service);
                }
            }
            IpvsCommand::RemoveServer(socket) => {
                self.servers.remove(socket);
            }
            IpvsCommand::AddDestination(socket, destination, held)
            | IpvsCommand::EditDestination(socket, destination, held) => {
                if let Some(server) = self.servers.get_mut(socket) {
                    server.destinations.insert(*destination, *held);
                }
            }
            IpvsCommand::RemoveDestination(socket, destination) => {
                if let Some(server) = self.servers.get_mut(socket) {
                    server.destinations.remove(destination);
                }
            }
            IpvsCommand::Zero(_)
            | IpvsCommand::Flush
            | IpvsCommand::SetTimeouts(_)
            | IpvsCommand::AddDaemon(_)
            | IpvsCommand::RemoveDaemon(_) => {}
        }
    }

    /// Returns the number of kernel objects of the backend: sets, elements, virtual servers, destinations,
    /// the dummy link and its addresses.
    #[must_use]
    pub fn objects(&self) -> u64 {
        let servers: usize = self.servers.values().map(|server| 1 + server.destinations.len()).sum();
        let addresses = self.link.as_ref().map_or(0, |link| 1 + link.addresses.len());
        u64::try_from(servers + addresses + self.sets.len() + self.elements.len()).unwrap_or(u64::MAX)
    }
}
