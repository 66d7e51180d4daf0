//! Raw TCP segments on the test bed: observes the segments that a host receives, and sends segments outside of
//! the window of a connection.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
};

use model::primitives::net::IpFamily;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, socket,
};

use super::{Hosts, Spot};

/// Distance of a segment from the window in bytes; larger than any window.
const ABOVE_WINDOW: u32 = 100_000_000;
const TCP: u8 = 6;
const HEADER_BYTES: usize = 20;

/// Observer of the TCP segments that a host receives.
pub struct Observer {
    socket: OwnedFd,
    own: IpAddr,
}

/// Last segment of a connection that a host received: the sender, and the sequence numbers of both sides.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    peer: SocketAddr,
    own: SocketAddr,
    /// Next sequence number of the peer.
    theirs: u32,
    /// Next sequence number of the host.
    ours: u32,
}

impl Observer {
    pub fn new(hosts: &Hosts, spot: Spot, family: IpFamily) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let open = || socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll).unwrap();
        Self { socket: hosts.at(spot).run(open), own: spot.address(family) }
    }

    /// Returns true if the host has received a segment to this address so far, such as one that it should forward.
    pub fn has_seen(&self, address: IpAddr) -> bool {
        let mut buffer = [0; 2048];
        let mut has_seen = false;
        while let Ok(length) = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            has_seen |= parse(&buffer[..length]).is_some_and(|it| it.own.ip() == address);
        }
        has_seen
    }

    /// Returns the last segment that the host received at this port so far.
    pub fn last(&self, port: u16) -> Option<Segment> {
        let mut buffer = [0; 2048];
        let mut last = None;
        while let Ok(length) = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            let segment = parse(&buffer[..length]);
            last = segment.filter(|it| it.own == SocketAddr::new(self.own, port)).or(last);
        }
        last
    }
}

fn parse(packet: &[u8]) -> Option<Segment> {
    let (source, destination, segment) = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&TCP) => {
            let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
            (address(12)?, address(16)?, packet.get(usize::from(packet[0] & 15) * 4..)?)
        }
        6 if packet.get(6) == Some(&TCP) => {
            let address =
                |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
            (address(8)?, address(24)?, packet.get(40..)?)
        }
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(segment.get(at..at + 2)?.try_into().ok()?));
    let number = |at: usize| Some(u32::from_be_bytes(segment.get(at..at + 4)?.try_into().ok()?));
    Some(Segment {
        peer: SocketAddr::new(source, port(0)?),
        own: SocketAddr::new(destination, port(2)?),
        theirs: number(4)?,
        ours: number(8)?,
    })
}

/// Sends a segment from a host to the peer of a connection, far above the window of the connection.
pub fn send_above_window(hosts: &Hosts, spot: Spot, last: &Segment) {
    let Segment { peer, own, theirs, ours } = *last;
    let mut segment = Vec::new();
    segment.extend(own.port().to_be_bytes());
    segment.extend(peer.port().to_be_bytes());
    segment.extend(ours.wrapping_add(ABOVE_WINDOW).to_be_bytes());
    segment.extend(theirs.to_be_bytes());
    // Header of five words; flags ACK and PSH; window; checksum; urgent pointer.
    segment.extend([5 << 4, 0x18, 1, 0, 0, 0, 0, 0]);
    assert_eq!(segment.len(), HEADER_BYTES);
    segment.extend(b"late");
    let sum = checksum(own.ip(), peer.ip(), &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let family = if peer.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    hosts.at(spot).run(|| {
        let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp).unwrap();
        // A raw socket takes the port for a protocol number.
        let to = SockaddrStorage::from(SocketAddr::new(peer.ip(), 0));
        sendto(socket.as_raw_fd(), &segment, &to, MsgFlags::empty()).unwrap();
    });
}

fn checksum(source: IpAddr, destination: IpAddr, segment: &[u8]) -> u16 {
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut bytes = [octets(source), octets(destination)].concat();
    bytes.extend([0, TCP]);
    bytes.extend(u16::try_from(segment.len()).unwrap().to_be_bytes());
    bytes.extend(segment);
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
