//! Solicited-node multicast groups of the IPv6 addresses on one interface.
//!
//! Groups are joined on UDP sockets, so that the kernel accepts frames to these groups and reports the
//! memberships by MLD (RFC 3810). The sockets are never read. Closing a socket leaves its groups.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv6Addr, UdpSocket},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

use super::wire::solicited_node_group;

/// Maximum number of groups per socket. This number fits into the option memory of a socket on older kernels.
const GROUPS_PER_SOCKET_MAX: usize = 256;

/// Solicited-node multicast groups joined on one interface, with the sockets that hold the memberships.
#[derive(Debug, Default)]
pub(super) struct Groups {
    sockets: Vec<UdpSocket>,
    /// Addresses of each group, and the index of the socket that has joined the group; `None` if it is not
    /// joined.
    members: BTreeMap<Ipv6Addr, (BTreeSet<Ipv6Addr>, Option<usize>)>,
    /// Groups that have not been joined yet, or whose join failed.
    waiting: BTreeSet<Ipv6Addr>,
    filled: BTreeMap<usize, usize>,
}

impl Groups {
    /// Adds the solicited-node group of an address. [`Self::join`] then joins the group.
    pub(super) fn add(&mut self, address: Ipv6Addr) {
        let group = solicited_node_group(address);
        let (addresses, joined) = self.members.entry(group).or_default();
        addresses.insert(address);
        if joined.is_none() {
            self.waiting.insert(group);
        }
    }

    /// Leaves the group of an address unless another address shares it.
    pub(super) fn remove(&mut self, address: Ipv6Addr, index: u32) {
        let group = solicited_node_group(address);
        let Some((addresses, joined)) = self.members.get_mut(&group) else { return };
        addresses.remove(&address);
        if !addresses.is_empty() {
            return;
        }
        let joined = *joined;
        self.members.remove(&group);
        self.waiting.remove(&group);
        if let Some((number, socket)) = joined.and_then(|number| Some((number, self.sockets.get(number)?))) {
            // The interface may be gone, and its memberships with it.
            let _gone = socket.leave_multicast_v6(&group, index);
            if let Some(filled) = self.filled.get_mut(&number) {
                *filled -= 1;
            }
        }
    }

    /// Joins the groups that have not been joined yet. Failed joins are retried at the next call.
    pub(super) fn join(&mut self, index: u32) -> io::Result<()> {
        while let Some(group) = self.waiting.first().copied() {
            let number = self.socket_with_room()?;
            match self.sockets[number].join_multicast_v6(&group, index) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::EADDRINUSE as i32) => {}
                Err(error) => return Err(error),
            }
            *self.filled.entry(number).or_default() += 1;
            if let Some((_, joined)) = self.members.get_mut(&group) {
                *joined = Some(number);
            }
            self.waiting.remove(&group);
        }
        Ok(())
    }

    fn socket_with_room(&mut self) -> io::Result<usize> {
        let room = self.filled.iter().find(|(_, filled)| **filled < GROUPS_PER_SOCKET_MAX);
        if let Some((number, _)) = room {
            return Ok(*number);
        }
        let made = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        self.sockets.push(UdpSocket::from(made));
        let number = self.sockets.len() - 1;
        self.filled.insert(number, 0);
        Ok(number)
    }
}
