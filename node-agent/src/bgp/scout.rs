//! Finds the router at the other end of an interface: by its router advertisements (RFC 4861 §4.2), as routers with
//! unnumbered sessions send them. Ours say that we are no default router, and let the other side find us.

use std::{
    io::{self, IoSliceMut},
    net::{Ipv6Addr, SocketAddrV6},
    os::fd::{AsFd as _, AsRawFd as _},
    time::{Duration, Instant},
};

use model::kinds::advertisement::InterfaceName;
use nix::{
    libc,
    sys::socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, recvmsg,
        sendto, setsockopt, socket, sockopt,
    },
};
use tokio::{
    io::Interest,
    net::UdpSocket,
    sync::watch,
    time::{Instant as TokioInstant, sleep_until},
};
use tracing::debug;

use crate::{links::Links, socket_option};

/// Time between our advertisements: what routers with unnumbered sessions use.
const ADVERTISE_INTERVAL: Duration = Duration::from_secs(10);
/// Time between an advertisement and the next one that somebody asks for (RFC 4861 §10, `MIN_DELAY_BETWEEN_RAS`).
const ANSWER_INTERVAL: Duration = Duration::from_secs(3);
/// Pause after something could not be sent, as while the address of a new interface is being checked.
const SEND_RETRY: Duration = Duration::from_millis(500);
/// A router that was not heard for so long gives way to another one.
const SILENCE_MAX: Duration = Duration::from_secs(35);
/// Neighbour discovery never crosses a router (RFC 4861 §6.1.2).
const HOP_LIMIT: i32 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// The fixed part of an advertisement, in bytes. Ours is nothing else: no lifetime as a default router, nothing specified.
const ADVERTISEMENT_BYTES: usize = 16;
const SOLICITATION_BYTES: usize = 8;
/// `ICMP6_FILTER` (`linux/icmpv6.h`).
const ICMP6_FILTER: libc::c_int = 1;
/// Advertisements are shorter, and only their beginning is read.
const BUFFER_BYTES: usize = 256;

/// Looks for the router of one interface.
#[derive(Debug)]
pub(super) struct Scout {
    interface: InterfaceName,
    links: watch::Receiver<Links>,
    /// The interface by its number, and the socket on it.
    post: Option<(u32, UdpSocket)>,
    advertise_at: Instant,
    advertised_at: Option<Instant>,
    /// The router, and when it was heard last.
    router: Option<(SocketAddrV6, Instant)>,
}

impl Scout {
    pub(super) fn new(interface: InterfaceName, links: watch::Receiver<Links>) -> Self {
        Self { interface, links, post: None, advertise_at: Instant::now(), advertised_at: None, router: None }
    }

    /// Waits until a router is found, or another one than before. May be given up and called again at any time.
    pub(super) async fn found(&mut self) -> SocketAddrV6 {
        loop {
            self.take_post();
            let at = TokioInstant::from_std(self.advertise_at);
            let heard = async {
                match &self.post {
                    Some((_, socket)) => {
                        let ready = socket.readable().await;
                        ready.and_then(|()| socket.try_io(Interest::READABLE, || receive(socket)))
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // A fault is one of the network that an earlier message met.
                heard = heard => if let Some(found) = heard.ok().flatten().and_then(|heard| self.note(heard)) {
                    return found;
                },
                () = sleep_until(at) => self.advertise(),
                changed = self.links.changed() => if changed.is_err() {
                    // Nobody says any longer which interfaces there are.
                    std::future::pending::<()>().await;
                },
            }
        }
    }

    /// Opens the socket on the interface as it is.
    fn take_post(&mut self) {
        let links = self.links.borrow_and_update();
        let link = links.by_index.iter().find(|(_, link)| link.name == self.interface.as_str() && link.is_up);
        let index = link.map(|(index, _)| *index);
        drop(links);
        if index == self.post.as_ref().map(|(index, _)| *index) {
            return;
        }
        self.router = None;
        self.post = index.and_then(|index| match open(&self.interface) {
            Ok(socket) => Some((index, socket)),
            Err(error) => {
                debug!(interface = %self.interface, %error, "routers cannot be listened for");
                None
            }
        });
        self.advertise_at = Instant::now();
    }

    /// Says that we are here, and asks who else is while that is not known.
    fn advertise(&mut self) {
        let now = Instant::now();
        self.advertise_at = now + ADVERTISE_INTERVAL;
        let Some((index, socket)) = &self.post else { return };
        let mut advertisement = [0; ADVERTISEMENT_BYTES];
        advertisement[0] = ROUTER_ADVERTISEMENT;
        let mut outcome = send(socket, &advertisement, ALL_NODES, *index);
        if self.router.is_none() {
            let mut solicitation = [0; SOLICITATION_BYTES];
            solicitation[0] = ROUTER_SOLICITATION;
            outcome = outcome.and(send(socket, &solicitation, ALL_ROUTERS, *index));
        }
        match outcome {
            Ok(()) => self.advertised_at = Some(now),
            Err(error) => {
                debug!(interface = %self.interface, %error, "a router advertisement was not sent");
                self.advertise_at = now + SEND_RETRY;
            }
        }
    }

    /// Somebody was heard. A router that is known stays until it falls silent.
    fn note(&mut self, heard: Heard) -> Option<SocketAddrV6> {
        let (index, _) = self.post.as_ref()?;
        let now = Instant::now();
        let Heard::Router(source) = heard else {
            let at = self.advertised_at.map_or(now, |at| at + ANSWER_INTERVAL);
            self.advertise_at = self.advertise_at.min(at);
            return None;
        };
        let heard = SocketAddrV6::new(source, 0, 0, *index);
        match &mut self.router {
            Some((router, at)) if *router == heard => {
                *at = now;
                None
            }
            Some((_, at)) if now.saturating_duration_since(*at) < SILENCE_MAX => None,
            Some(_) | None => {
                self.router = Some((heard, now));
                Some(heard)
            }
        }
    }
}

/// Who was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// A router.
    Router(Ipv6Addr),
    /// Somebody who asks for routers.
    Asking,
}

/// A socket for ICMPv6; the runtime has no type of its own for such datagrams.
fn open(interface: &InterfaceName) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
    setsockopt(&socket, sockopt::BindToDevice, &interface.as_str().into())?;
    setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
    setsockopt(&socket, sockopt::Ipv6Ttl, &HOP_LIMIT)?;
    socket_option::set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &HOP_LIMIT)?;
    socket_option::set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, &0)?;
    // A bit that is set blocks a type.
    let mut filter = [u32::MAX; 8];
    for kind in [ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT] {
        filter[usize::from(kind >> 5)] &= !(1 << (kind & 31));
    }
    socket_option::set(socket.as_fd(), libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter)?;
    UdpSocket::from_std(socket.into())
}

/// Sends, with the checksum that the kernel computes.
fn send(socket: &UdpSocket, message: &[u8], to: Ipv6Addr, index: u32) -> io::Result<()> {
    let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, index));
    sendto(socket.as_raw_fd(), message, &to, MsgFlags::MSG_DONTWAIT)?;
    Ok(())
}

/// Takes one message; answers who is heard by it, if it is worth anything.
fn receive(socket: &UdpSocket) -> io::Result<Option<Heard>> {
    let mut buffer = [0; BUFFER_BYTES];
    let mut control = nix::cmsg_space!(libc::c_int);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let source = received.address.map_or(Ipv6Addr::UNSPECIFIED, |address| address.ip());
    let (bytes, mut hop_limit) = (received.bytes, None);
    for message in received.cmsgs()? {
        if let ControlMessageOwned::Ipv6HopLimit(value) = message {
            hop_limit = Some(value);
        }
    }
    Ok(judge(&buffer[..bytes.min(BUFFER_BYTES)], hop_limit, source))
}

/// What a message says (RFC 4861 §6.1).
fn judge(message: &[u8], hop_limit: Option<i32>, source: Ipv6Addr) -> Option<Heard> {
    let kind = *message.first().filter(|_| hop_limit == Some(HOP_LIMIT))?;
    match kind {
        ROUTER_SOLICITATION if message.len() >= SOLICITATION_BYTES => Some(Heard::Asking),
        ROUTER_ADVERTISEMENT if message.len() >= ADVERTISEMENT_BYTES && source.is_unicast_link_local() => {
            Some(Heard::Router(source))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_messages_from_the_link_are_heard() {
        let (near, far) = ("fe80::1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let mut advertisement = [0; ADVERTISEMENT_BYTES];
        advertisement[0] = ROUTER_ADVERTISEMENT;
        assert_eq!(judge(&advertisement, Some(255), near), Some(Heard::Router(near)));
        assert_eq!(judge(&advertisement, Some(254), near), None);
        assert_eq!(judge(&advertisement, None, near), None);
        assert_eq!(judge(&advertisement, Some(255), far), None);
        assert_eq!(judge(&advertisement[..15], Some(255), near), None);
        assert_eq!(judge(&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0], Some(255), far), Some(Heard::Asking));
        assert_eq!(judge(&[], Some(255), near), None);
    }
}
