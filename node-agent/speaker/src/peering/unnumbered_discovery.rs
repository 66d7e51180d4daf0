//! Discovery of the router at the other end of an interface by Router Advertisements (RFC 4861 §4.2), as is
//! usual for unnumbered BGP sessions. This node also sends Router Advertisements, with a Router Lifetime of 0
//! (no default router), so that the other side discovers this node.

use std::{
    io::{self, IoSliceMut},
    net::{Ipv6Addr, SocketAddrV6},
    os::fd::{AsFd as _, AsRawFd as _},
    time::{Duration, Instant},
};

use kernel::{links::Links, socket_option};
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

/// Interval at which this node sends Router Advertisements, the usual value of routers with unnumbered
/// sessions.
const ADVERTISE_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two Router Advertisements if one of them responds to a solicitation (RFC 4861 §10,
/// `MIN_DELAY_BETWEEN_RAS`).
const ANSWER_INTERVAL: Duration = Duration::from_secs(3);
/// Delay after a failed attempt to send, for example during duplicate address detection on a new interface.
const SEND_RETRY: Duration = Duration::from_millis(500);
/// Time without a Router Advertisement after which a discovered router may be replaced by a different one.
const SILENCE_MAX: Duration = Duration::from_secs(35);
/// Hop limit of valid NDP messages; a router that forwards a message decreases it (RFC 4861 §6.1.2).
const HOP_LIMIT: u8 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Length in bytes of the fixed part of a Router Advertisement. Sent advertisements have only this part, with
/// a Router Lifetime of 0 and all values unspecified.
const ADVERTISEMENT_BYTES: usize = 16;
const SOLICITATION_BYTES: usize = 8;
/// Size of the receive buffer in bytes. Only the beginning of an advertisement is read.
const BUFFER_BYTES: usize = 256;

/// Discovery of the router on one interface.
#[derive(Debug)]
pub(super) struct UnnumberedDiscovery {
    interface: InterfaceName,
    links: watch::Receiver<Links>,
    /// Index of the interface and the ICMPv6 socket bound to it; `None` if there is no such interface.
    post: Option<(u32, UdpSocket)>,
    advertise_at: Instant,
    advertised_at: Option<Instant>,
    /// Current router and the time of its last advertisement; `None` before the discovery.
    router: Option<(SocketAddrV6, Instant)>,
}

impl UnnumberedDiscovery {
    pub(super) fn new(interface: InterfaceName, links: watch::Receiver<Links>) -> Self {
        Self { interface, links, post: None, advertise_at: Instant::now(), advertised_at: None, router: None }
    }

    /// Waits until a router is discovered, or a different router replaces the known one. Cancel-safe.
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
                // An error concerns an earlier message.
                heard = heard => if let Some(found) = heard.ok().flatten().and_then(|heard| self.note(heard)) {
                    return found;
                },
                () = sleep_until(at) => self.advertise(),
                changed = self.links.changed() => if changed.is_err() {
                    // The sender of interface updates is gone.
                    std::future::pending::<()>().await;
                },
            }
        }
    }

    /// Opens the socket for the interface, or replaces it if the interface has a new index.
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
                debug!(interface = %self.interface, %error, "cannot listen for router advertisements");
                None
            }
        });
        self.advertise_at = Instant::now();
    }

    /// Sends a Router Advertisement and, while no router is known, a Router Solicitation.
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
                debug!(interface = %self.interface, %error, "cannot send a router advertisement");
                self.advertise_at = now + SEND_RETRY;
            }
        }
    }

    /// Processes a received message. Returns the sending router if it becomes the current router, otherwise
    /// `None`. A known router is replaced only after it has been silent for [`SILENCE_MAX`].
    fn note(&mut self, heard: ReceivedAdvertisement) -> Option<SocketAddrV6> {
        let (index, _) = self.post.as_ref()?;
        let now = Instant::now();
        let ReceivedAdvertisement::Router(source) = heard else {
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

/// Valid NDP message received on the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceivedAdvertisement {
    /// Router Advertisement from a router with this link-local address.
    Router(Ipv6Addr),
    /// Router Solicitation, to which this node responds with a Router Advertisement.
    Asking,
}

/// Opens an ICMPv6 socket. The type is `UdpSocket` because tokio has no type for raw sockets.
fn open(interface: &InterfaceName) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
    setsockopt(&socket, sockopt::BindToDevice, &interface.as_str().into())?;
    setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
    setsockopt(&socket, sockopt::Ipv6Ttl, &HOP_LIMIT.into())?;
    socket_option::set_multicast_hop_limit(socket.as_fd(), HOP_LIMIT)?;
    socket_option::disable_multicast_loop(socket.as_fd())?;
    socket_option::receive_icmpv6_types(socket.as_fd(), &[ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT])?;
    UdpSocket::from_std(socket.into())
}

/// Sends an ICMPv6 message on an interface; the kernel computes the checksum.
fn send(socket: &UdpSocket, message: &[u8], to: Ipv6Addr, index: u32) -> io::Result<()> {
    let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, index));
    sendto(socket.as_raw_fd(), message, &to, MsgFlags::MSG_DONTWAIT)?;
    Ok(())
}

/// Receives one message, or returns `None` if it is invalid or irrelevant.
fn receive(socket: &UdpSocket) -> io::Result<Option<ReceivedAdvertisement>> {
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

/// Validates an NDP message (RFC 4861 §6.1) and returns its kind, or `None` if it is invalid or irrelevant.
fn judge(message: &[u8], hop_limit: Option<i32>, source: Ipv6Addr) -> Option<ReceivedAdvertisement> {
    let kind = *message.first().filter(|_| hop_limit == Some(HOP_LIMIT.into()))?;
    match kind {
        ROUTER_SOLICITATION if message.len() >= SOLICITATION_BYTES => Some(ReceivedAdvertisement::Asking),
        ROUTER_ADVERTISEMENT if message.len() >= ADVERTISEMENT_BYTES && source.is_unicast_link_local() => {
            Some(ReceivedAdvertisement::Router(source))
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
        assert_eq!(judge(&advertisement, Some(255), near), Some(ReceivedAdvertisement::Router(near)));
        assert_eq!(judge(&advertisement, Some(254), near), None);
        assert_eq!(judge(&advertisement, None, near), None);
        assert_eq!(judge(&advertisement, Some(255), far), None);
        assert_eq!(judge(&advertisement[..15], Some(255), near), None);
        assert_eq!(
            judge(&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0], Some(255), far),
            Some(ReceivedAdvertisement::Asking)
        );
        assert_eq!(judge(&[], Some(255), near), None);
    }
}
