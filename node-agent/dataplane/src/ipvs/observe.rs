//! Reads the kernel objects of the ipvs backend into a mirror (copy in memory): sets, virtual servers, link,
//! addresses and rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use kernel::netlink::{socket::Netlink, wire::Message};
use model::primitives::net::IpFamily;

use super::{
    IpvsBackend, ipset, link,
    mirror::{DummyLink, IpvsMirror},
    parse, render, rules,
    server::{Destination, KernelDestination, Load, SchedulingParameters, Server, Socket},
    sets::{self, Set},
    uapi,
};

/// Destinations of a virtual server, each with its parameters and its current load.
pub(super) type Loads = BTreeMap<Destination, (KernelDestination, Load)>;

impl IpvsBackend {
    pub(super) fn read(&mut self) -> io::Result<IpvsMirror> {
        let mut mirror = IpvsMirror::default();
        self.read_addresses(&mut mirror)?;
        for set in Set::all() {
            self.read_set(set, &mut mirror)?;
        }
        for (socket, service) in self.read_servers()? {
            if !mirror.owns(&socket) {
                mirror.foreign.insert(socket);
                continue;
            }
            let destinations = self.read_loads(&socket)?;
            let destinations =
                destinations.into_iter().map(|(destination, (held, _))| (destination, held)).collect();
            mirror.servers.insert(socket, Server { service, destinations });
        }
        for family in IpFamily::ALL {
            mirror.rules.insert(family, self.are_rules_right(family)?);
        }
        Ok(mirror)
    }

    /// Reads the dummy link and the addresses of all links into the mirror.
    pub(super) fn read_addresses(&mut self, mirror: &mut IpvsMirror) -> io::Result<()> {
        let mut found = None;
        let request = link::get(sets::link(self.options.naming));
        let errnos = self.route.ask(&[request], |_, answer| {
            found = Some(link::index(answer)?);
            Ok(())
        })?;
        match errnos.first().copied().unwrap_or_default() {
            0 => {}
            errno if errno == nix::errno::Errno::ENODEV as i32 => found = None,
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        mirror.link = found.map(|(index, is_up)| DummyLink { index, is_up, addresses: BTreeSet::new() });
        mirror.other_addresses.clear();
        for (index, address) in self.read_all_addresses()? {
            match &mut mirror.link {
                Some(link) if link.index == index => {
                    // The kernel may assign a link-local address by itself.
                    if model::primitives::net::forbidden(address).is_none() {
                        link.addresses.insert(address);
                    }
                }
                Some(_) | None => {
                    mirror.other_addresses.insert(address);
                }
            }
        }
        Ok(())
    }

    pub(super) fn read_all_addresses(&mut self) -> io::Result<Vec<(u32, IpAddr)>> {
        self.route.dump(&link::dump_addresses(), Vec::new, |found, answer| {
            found.extend(link::address(answer)?);
            Ok(())
        })
    }

    fn read_set(&mut self, set: Set, mirror: &mut IpvsMirror) -> io::Result<()> {
        let naming = self.options.naming;
        let read = self.netfilter.dump(
            &ipset::dump(set, naming),
            || (None, Vec::new()),
            |(type_name, elements), answer| {
                let header = ipset::header(answer)?;
                if !header.type_name.is_empty() {
                    *type_name = Some(header.type_name);
                }
                ipset::elements(answer, set, elements)
            },
        );
        let (type_name, elements) = match read {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let wanted = set.kind.shape().type_name();
        if type_name.as_deref().is_some_and(|found| found != wanted) {
            let name = set.name(naming);
            return Err(io::Error::other(format!(
                "set {name} is not of type {wanted}: it belongs to another program"
            )));
        }
        let strays = elements.iter().filter(|element| element.is_none()).count();
        mirror.sets.insert(set, u32::try_from(strays).unwrap_or(u32::MAX));
        mirror.elements.extend(elements.into_iter().flatten());
        Ok(())
    }

    pub(super) fn read_servers(&mut self) -> io::Result<Vec<(Socket, SchedulingParameters)>> {
        self.generic.dump(&render::dump_servers(self.family), Vec::new, |found, answer| {
            found.extend(parse::server(answer)?);
            Ok(())
        })
    }

    /// Reads the destinations of a virtual server; empty if the server does not exist.
    pub(super) fn read_loads(&mut self, socket: &Socket) -> io::Result<Loads> {
        let family = u16::from(match socket.family() {
            IpFamily::V4 => uapi::AF_INET,
            IpFamily::V6 => uapi::AF_INET6,
        });
        let request = render::dump_destinations(self.family, socket);
        self.generic.dump(&request, Loads::new, |found, answer| {
            let read = parse::destination(answer, family)?;
            found.extend(read.map(|(destination, held, load)| (destination, (held, load))));
            Ok(())
        })
    }

    /// Reads the scheduling parameters of virtual servers, in the order of `sockets`; `None` for servers that
    /// do not exist.
    pub(super) fn read_some(&mut self, sockets: &[Socket]) -> io::Result<Vec<Option<SchedulingParameters>>> {
        let requests: Vec<_> = sockets.iter().map(|socket| render::get_server(self.family, socket)).collect();
        let mut found = vec![None; sockets.len()];
        self.generic.ask(&requests, |index, answer| {
            found[index] = parse::server(answer)?.map(|(_, service)| service);
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn are_rules_right(&self, family: IpFamily) -> io::Result<bool> {
        for table in rules::tables(family, self.rule_options()) {
            if !rules::is_right(&self.iptables.list(family, table.name)?, &table) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the global IPVS settings: timeouts, version and table size, synchronization daemons.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    pub fn settings(&mut self) -> io::Result<(render::Timeouts, parse::Info, Vec<render::Daemon>)> {
        let (mut timeouts, mut info) = (None, None);
        let requests = [render::get_timeouts(self.family), render::get_info(self.family)];
        self.generic.ask(&requests, |index, answer| {
            if index == 0 {
                timeouts = Some(parse::timeouts(answer)?);
            } else {
                info = Some(parse::info(answer)?);
            }
            Ok(())
        })?;
        let daemons = self.generic.dump(&render::dump_daemons(self.family), Vec::new, |found, answer| {
            found.extend(parse::daemon(answer)?);
            Ok(())
        })?;
        let (timeouts, info) = timeouts.zip(info).ok_or(io::ErrorKind::InvalidData)?;
        Ok((timeouts, info, daemons))
    }

    /// Reads the headers of all sets of the network namespace, by name.
    pub(super) fn read_headers(&mut self) -> io::Result<BTreeMap<String, ipset::Header>> {
        self.netfilter.dump(&ipset::dump_headers(), BTreeMap::new, |found, answer| {
            let header = ipset::header(answer)?;
            // In a multipart listing only the first part contains the header.
            if !header.type_name.is_empty() {
                found.insert(header.name.clone(), header);
            }
            Ok(())
        })
    }
}

/// Returns the number of the IPVS netlink family; `None` if the kernel has none.
pub(super) fn find_family(generic: &mut Netlink) -> io::Result<Option<u16>> {
    let request: Message = render::get_family(uapi::IPVS_GENL_NAME);
    let mut family = None;
    let errnos = generic.ask(&[request], |_, answer| {
        family = parse::family(answer)?;
        Ok(())
    })?;
    match errnos.first().copied().unwrap_or_default() {
        0 => Ok(family),
        errno if errno == nix::errno::Errno::ENOENT as i32 => Ok(None),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
