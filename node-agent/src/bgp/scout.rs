//! Finds the router at the other end of an interface: by its router advertisements (RFC 4861 §4.2), as routers with
//! unnumbered sessions send them. Ours say that we are no default router, and let the other side find us.

use std::{
    io::{self, IoSliceMut},
    net::{Ipv6Addr, SocketAddrV6},
    os::fd::{AsFd as _, AsRawFd as _},
    time::{Duration, Instant},
};

use model::advertisement::InterfaceName;
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
    /// The router, and when it was heard last.
    router: Option<(SocketAddrV6, Instant)>,
}

impl Scout {
    pub(super) fn new(interface: InterfaceName, links: watch::Receiver<Links>) -> Self {
        Self { interface, links, post: None, advertise_at: Instant::now(), router: None }
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
                heard = heard => if let Some(found) = heard.ok().flatten().and_then(|router| self.note(router)) {
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
        if let Some((index, socket)) = &self.post {
            let mut solicitation = [0; SOLICITATION_BYTES];
            solicitation[0] = ROUTER_SOLICITATION;
            send(socket, &solicitation, ALL_ROUTERS, *index);
            self.advertise_at = Instant::now();
        }
    }

    fn advertise(&mut self) {
        self.advertise_at = Instant::now() + ADVERTISE_INTERVAL;
        let Some((index, socket)) = &self.post else { return };
        let mut advertisement = [0; ADVERTISEMENT_BYTES];
        advertisement[0] = ROUTER_ADVERTISEMENT;
        send(socket, &advertisement, ALL_NODES, *index);
    }

    /// A router was heard. The one that is known stays until it falls silent.
    fn note(&mut self, source: Ipv6Addr) -> Option<SocketAddrV6> {
        let (index, _) = self.post.as_ref()?;
        let (now, heard) = (Instant::now(), SocketAddrV6::new(source, 0, 0, *index));
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
    filter[usize::from(ROUTER_ADVERTISEMENT >> 5)] &= !(1 << (ROUTER_ADVERTISEMENT & 31));
    socket_option::set(socket.as_fd(), libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter)?;
    UdpSocket::from_std(socket.into())
}

/// Sends, with the checksum that the kernel computes. What is lost is sent again soon.
fn send(socket: &UdpSocket, message: &[u8], to: Ipv6Addr, index: u32) {
    let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, index));
    if let Err(error) = sendto(socket.as_raw_fd(), message, &to, MsgFlags::MSG_DONTWAIT) {
        debug!(%error, "a router advertisement was not sent");
    }
}

/// Takes one message; answers the router that it is from, if it is an advertisement.
fn receive(socket: &UdpSocket) -> io::Result<Option<Ipv6Addr>> {
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
    // RFC 4861 §6.1.2.
    let is_valid =
        bytes >= ADVERTISEMENT_BYTES && hop_limit == Some(HOP_LIMIT) && source.is_unicast_link_local();
    Ok(Some(source).filter(|_| is_valid && buffer[0] == ROUTER_ADVERTISEMENT))
}
