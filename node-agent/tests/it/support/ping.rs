//! Sender of ICMP and ICMPv6 echo requests, as the `ping` tool sends them. The tests of the crate `lab` use
//! this file as well.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part of the support")]

use std::{
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage,
        recvfrom, sendto, setsockopt, socket, sockopt,
    },
    time::TimeVal,
};

/// Maximum time to wait for a reply, even on a busy machine.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Series of echo requests with one identifier, so that conntrack treats them as one connection.
pub struct Pinger {
    descriptor: OwnedFd,
    to: IpAddr,
    identifier: [u8; 2],
    sequence: u16,
    /// Number of ICMP redirects received.
    pub redirects: u32,
}

impl Pinger {
    /// Starts a series of echo requests to an address, in the network namespace of the calling thread.
    pub fn new(to: IpAddr) -> Self {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let descriptor = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap();
        setsockopt(&descriptor, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).unwrap();
        let [_, _, high, low] = descriptor.as_raw_fd().to_be_bytes();
        Self { descriptor, to, identifier: [high, low], sequence: 0, redirects: 0 }
    }

    /// Sends one echo request. Returns true if a reply arrives from the pinged address.
    pub fn asks(&mut self) -> bool {
        self.sequence += 1;
        let request = match self.to {
            IpAddr::V4(_) => 8,
            IpAddr::V6(_) => 128,
        };
        let sent = self.send(&with_checksum(request, self.identifier, self.sequence));
        // An unresolvable neighbor is reported as unreachable after a while.
        let end = Instant::now() + ANSWER_TIME;
        while sent && Instant::now() < end {
            if self.is_answered() {
                return true;
            }
        }
        false
    }

    fn send(&self, message: &[u8]) -> bool {
        let descriptor = self.descriptor.as_raw_fd();
        match self.to {
            IpAddr::V4(to) => {
                let to = SockaddrIn::from(std::net::SocketAddrV4::new(to, 0));
                sendto(descriptor, message, &to, MsgFlags::empty()).is_ok()
            }
            IpAddr::V6(to) => {
                let to = SockaddrIn6::from(std::net::SocketAddrV6::new(to, 0, 0, 0));
                sendto(descriptor, message, &to, MsgFlags::empty()).is_ok()
            }
        }
    }

    /// Receives the next message, if there is one. Returns true if it is the reply to the last echo request.
    fn is_answered(&mut self) -> bool {
        let mut buffer = [0; 2048];
        let received = recvfrom::<SockaddrStorage>(self.descriptor.as_raw_fd(), &mut buffer);
        let Ok((bytes, Some(from))) = received else { return false };
        let (from, message) = match self.to {
            // A raw IPv4 socket includes the IP header.
            IpAddr::V4(_) => {
                let header = usize::from(buffer[0] & 0xf) * 4;
                (from.as_sockaddr_in().map(|from| IpAddr::V4(from.ip())), &buffer[header..bytes])
            }
            IpAddr::V6(_) => (from.as_sockaddr_in6().map(|from| IpAddr::V6(from.ip())), &buffer[..bytes]),
        };
        let (reply, redirect) = match self.to {
            IpAddr::V4(_) => (0, 5),
            IpAddr::V6(_) => (129, 137),
        };
        self.redirects += u32::from(message[0] == redirect);
        let ([id_high, id_low], [high, low]) = (self.identifier, self.sequence.to_be_bytes());
        from == Some(self.to) && message[0] == reply && message[4..8] == [id_high, id_low, high, low]
    }
}

/// Builds an echo request; for ICMPv6 the kernel sets the checksum.
fn with_checksum(request: u8, identifier: [u8; 2], sequence: u16) -> [u8; 8] {
    let [high, low] = sequence.to_be_bytes();
    let mut message = [request, 0, 0, 0, identifier[0], identifier[1], high, low];
    let words = message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    [message[2], message[3]] = (!u16::try_from(folded).unwrap()).to_be_bytes();
    message
}
