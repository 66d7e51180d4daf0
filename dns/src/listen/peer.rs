//! Addresses of a question over UDP: the client and, on a socket for all addresses, the address that was asked.
//!
//! Without the second one, the kernel would choose the source of the response by its routes. Clients and connection tracking reject a response from
//! another address than the one that was asked.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::fd::AsRawFd as _,
};

use nix::{
    cmsg_space, libc,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, sendmsg, setsockopt, sockopt,
    },
};
use rustix::net::{SendFlags, sendto};

/// Client that gets no response.
const UNKNOWN_CLIENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Addresses of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UdpPeer {
    pub(super) client: SocketAddr,
    /// Address that was asked. `None` on a socket with one address.
    pub(super) local: Option<IpAddr>,
}

impl UdpPeer {
    /// Returns the addresses of a received message.
    pub(super) fn of(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Self {
        // Sockets have addresses of the two families only.
        let client = message.address.as_ref().and_then(address_of).unwrap_or(UNKNOWN_CLIENT);
        let local = message.cmsgs().ok().and_then(|mut controls| controls.find_map(|it| local_address(&it)));
        Self { client, local }
    }

    /// Sends a response to the client. Never waits for room in the buffer of the socket.
    ///
    /// # Errors
    /// Returns an error if the response cannot be sent now.
    pub(super) fn send(self, socket: &UdpSocket, response: &[u8]) -> io::Result<()> {
        let Some(local) = self.local else {
            sendto(socket, response, SendFlags::DONTWAIT, &self.client)?;
            return Ok(());
        };
        let (slices, client) = ([IoSlice::new(response)], SockaddrStorage::from(self.client));
        let send =
            |control| sendmsg(socket.as_raw_fd(), &slices, &[control], MsgFlags::MSG_DONTWAIT, Some(&client));
        // The routes decide on the interface; a client with a link-local address has its interface.
        match local {
            IpAddr::V4(address) => send(ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            }))?,
            IpAddr::V6(address) => send(ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                ipi6_ifindex: 0,
            }))?,
        };
        Ok(())
    }
}

/// Requests the address that was asked with each message, if a socket has all addresses. Returns true if so.
///
/// # Errors
/// Returns the error of the operating system.
pub(super) fn request_local_addresses(socket: &UdpSocket) -> io::Result<bool> {
    let address = socket.local_addr()?;
    if !address.ip().is_unspecified() {
        return Ok(false);
    }
    match address {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?,
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?,
    }
    Ok(true)
}

/// Returns a buffer for the address that was asked.
pub(super) fn control_buffer() -> Vec<u8> {
    cmsg_space!(libc::in6_pktinfo)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "an enum of nix with a variant for each protocol")]
fn local_address(control: &ControlMessageOwned) -> Option<IpAddr> {
    match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into())
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into()),
        _ => None,
    }
}

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| SocketAddrV4::from(*address).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddrV6::from(*address).into()))
}
