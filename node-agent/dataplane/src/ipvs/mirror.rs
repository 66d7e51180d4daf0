//! Mirror of the kernel state as last read or written.

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

/// Our kernel objects, and relevant foreign objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpvsMirror {
    /// Our existing sets, each with the number of elements that we would not have written.
    pub sets: BTreeMap<Set, u32>,
    /// Elements of these sets.
    pub elements: BTreeSet<IpsetElement>,
    /// Our virtual servers.
    pub servers: BTreeMap<Socket, Server>,
    /// Foreign virtual servers.
    pub foreign: BTreeSet<Socket>,
    /// Our dummy link.
    pub link: Option<DummyLink>,
    /// Addresses on other links.
    pub other_addresses: BTreeSet<IpAddr>,
    /// True for each family whose rules are as desired.
    pub rules: BTreeMap<IpFamily, bool>,
}

/// Our dummy link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DummyLink {
    /// Interface index.
    pub index: u32,
    /// True if the link is up.
    pub is_up: bool,
    /// Addresses of the link.
    pub addresses: BTreeSet<IpAddr>,
}

impl IpvsMirror {
    /// Returns the elements for one socket, except the one that marks the virtual server as ours.
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

    /// Returns true if a virtual server is ours.
    #[must_use]
    pub fn owns(&self, socket: &Socket) -> bool {
        let is_listed = self.elements.contains(&IpsetElement::of_socket(SetKind::Servers, *socket));
        let is_at_ours = self.link.as_ref().is_some_and(|link| link.addresses.contains(&socket.address));
        is_listed || is_at_ours
    }

    /// Returns true if we have a virtual server at the address.
    #[must_use]
    pub fn serves(&self, address: IpAddr) -> bool {
        let Some(port) = Port::new(1) else { return false };
        let first = Socket { address, protocol: Protocol::Tcp, port };
        self.servers.range(first..).next().is_some_and(|(socket, _)| socket.address == address)
    }

    /// Updates the mirror after a command was executed.
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

    /// Returns the number of kernel objects.
    #[must_use]
    pub fn objects(&self) -> u64 {
        let servers: usize = self.servers.values().map(|server| 1 + server.destinations.len()).sum();
        let addresses = self.link.as_ref().map_or(0, |link| 1 + link.addresses.len());
        u64::try_from(servers + addresses + self.sets.len() + self.elements.len()).unwrap_or(u64::MAX)
    }
}
