//! BFD sockets (RFC 5881 §4, §5): one listening socket per local address and one sending socket per session.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, recvmsg,
        setsockopt, socket, sockopt,
    },
};

use super::peers::HOP_LIMIT;

/// Bits set in all allowed source ports, which are 49152 to 65535 (RFC 5881 §4).
const SOURCE_PORT_BITS: u16 = 0xc000;
/// Number of random source ports tried before opening the socket fails.
const SOURCE_PORT_TRIES: u32 = 64;
/// Traffic class of sent packets: DSCP CS6 (network control), which routers drop last.
const CLASS_SELECTOR_6: i32 = 0xc0;
/// Size of the kernel's receive buffer in bytes, enough for some seconds of packets of all peers, so that a
/// busy machine loses none.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
/// Size of the buffer for one received packet, in bytes. A longer packet is truncated and invalid.
pub(super) const BUFFER_BYTES: usize = 256;

/// Local address and port of a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Door {
    pub(super) local: IpAddr,
    pub(super) port: u16,
}

/// Address and metadata of a received packet.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) source: IpAddr,
    /// Hop limit, or 0 if the kernel did not report one.
    pub(super) hop_limit: u8,
    pub(super) length: usize,
}

/// Opens a listening socket. A different process, such as an earlier agent that is about to exit, may have a
/// socket open at the same address.
pub(super) fn listen(door: Door) -> io::Result<UdpSocket> {
    let socket = open(door.local)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
    match door.local {
        IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?,
        IpAddr::V6(_) => {
            setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        }
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(door.local, door.port)))?;
    Ok(UdpSocket::from(socket))
}

/// Opens the sending socket of a session, on a random source port that no other socket of this node uses.
/// `random` returns random numbers for the choice of the port.
pub(super) fn sender(local: IpAddr, mut random: impl FnMut() -> u16) -> io::Result<UdpSocket> {
    let socket = open(local)?;
    // The socket is never read, so packets from strangers must not use memory.
    setsockopt(&socket, sockopt::RcvBuf, &0)?;
    match local {
        IpAddr::V4(_) => {
            setsockopt(&socket, sockopt::Ipv4Ttl, &HOP_LIMIT.into())?;
            setsockopt(&socket, sockopt::Ipv4Tos, &CLASS_SELECTOR_6)?;
        }
        IpAddr::V6(_) => {
            setsockopt(&socket, sockopt::Ipv6Ttl, &HOP_LIMIT.into())?;
            setsockopt(&socket, sockopt::Ipv6TClass, &CLASS_SELECTOR_6)?;
        }
    }
    let mut tries = 0;
    loop {
        let address = SocketAddr::new(local, SOURCE_PORT_BITS | random());
        tries += 1;
        match bind(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
            Ok(()) => return Ok(UdpSocket::from(socket)),
            Err(Errno::EADDRINUSE) if tries < SOURCE_PORT_TRIES => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one packet, or returns `None` if none is waiting.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
    let mut control = nix::cmsg_space!(libc::c_int, libc::c_int);
    let mut slices = [IoSliceMut::new(buffer)];
    let received = match recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    ) {
        Ok(received) => received,
        Err(Errno::EAGAIN) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut hop_limit = 0;
    for message in received.cmsgs()? {
        // The enum of control messages is open-ended.
        #[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
        match message {
            ControlMessageOwned::Ipv4Ttl(value) | ControlMessageOwned::Ipv6HopLimit(value) => {
                hop_limit = u8::try_from(value).unwrap_or_default();
            }
            _ => {}
        }
    }
    let source = received.address.as_ref().and_then(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))
    });
    // A packet without a source address matches no peer.
    let source = source.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    Ok(Some(Arrival { source, hop_limit, length: received.bytes }))
}

fn open(local: IpAddr) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    Ok(socket(family, SockType::Datagram, flags, None)?)
}
