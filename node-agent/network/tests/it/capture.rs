//! Capture of the packets that pass a namespace.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};

use crate::support::Namespace;

/// Addresses and protocol of the outer header of a packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    /// Destination port of UDP, otherwise 0.
    pub(crate) port: u16,
    /// Length of the packet with its header; 0 for IPv6.
    pub(crate) length: u16,
    /// True for a fragment of IPv4.
    pub(crate) is_fragment: bool,
}

/// Socket that receives all frames of a namespace.
pub(crate) struct Capture(OwnedFd);

impl Capture {
    pub(crate) fn open(namespace: &Namespace) -> Self {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let open = || socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
        Self(namespace.inside(open))
    }

    /// Returns the packets since the capture was opened, without those of ICMPv6.
    pub(crate) fn packets(&self) -> BTreeSet<Seen> {
        let mut frame = [0; 2048];
        let mut seen = BTreeSet::new();
        while let Ok(length) = recv(self.0.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            seen.extend(parse(&frame[..length]).filter(|packet| packet.protocol != 58));
        }
        seen
    }
}

fn parse(frame: &[u8]) -> Option<Seen> {
    let (ethernet, packet) = frame.split_at_checked(14)?;
    let (source, destination, protocol, rest): (IpAddr, IpAddr, u8, &[u8]) = match ethernet[12..] {
        [8, 0] => {
            let address =
                |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap()).into();
            (address(12), address(16), packet[9], packet.get(20..)?)
        }
        [0x86, 0xdd] => {
            let address =
                |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap()).into();
            (address(8), address(24), packet[6], packet.get(40..)?)
        }
        _ => return None,
    };
    let port = if protocol == 17 { u16::from_be_bytes([rest[2], rest[3]]) } else { 0 };
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (length, is_fragment) = if source.is_ipv4() { (word(2), word(6) & 0x3fff != 0) } else { (0, false) };
    Some(Seen { source, destination, protocol, port, length, is_fragment })
}
