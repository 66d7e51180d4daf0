//! Original destination of connections that the capture rules redirected to a listener, from connection
//! tracking. Detects traffic that reached a listener without being redirected.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use kernel::netlink::socket::Netlink;
use model::{
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{Port, PortRange},
    },
    program::{Destination, Frontend},
};
use nix::{
    ifaddrs::getifaddrs,
    sys::socket::{getsockopt, sockopt},
};
use tokio::net::TcpStream;

use super::tracking::{self, FlowDirection, TrackedFlow};

/// UDP frontends, each with the ports of its listeners; the set is empty for a removed frontend.
pub(super) type Listeners = BTreeMap<Frontend, BTreeSet<Port>>;

/// Returns the destination of a TCP connection before it was redirected to a listener (`SO_ORIGINAL_DST`);
/// `None` if the kernel does not track the connection.
pub(super) fn of_stream(stream: &TcpStream) -> Option<SocketAddr> {
    if stream.local_addr().ok()?.is_ipv4() {
        let address = getsockopt(stream, sockopt::OriginalDst).ok()?;
        let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
        Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
    } else {
        let address = getsockopt(stream, sockopt::Ip6tOriginalDst).ok()?;
        let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
        Some(SocketAddrV6::new(ip, u16::from_be(address.sin6_port), 0, 0).into())
    }
}

/// Returns the original destination of the flow from `client` that arrives at `local`; `None` if the kernel
/// tracks no such flow.
pub(super) fn of_flow(
    netlink: &mut Netlink,
    local: SocketAddr,
    client: SocketAddr,
) -> io::Result<Option<SocketAddr>> {
    let mut original = None;
    let errnos = netlink.ask(&[tracking::get_by_reply(local, client)], |_, answer| {
        original = TrackedFlow::parse(answer)?.map(|entry| entry.original.destination);
        Ok(())
    })?;
    match errnos.first().copied().unwrap_or_default() {
        0 => Ok(original),
        errno => match io::Error::from_raw_os_error(errno) {
            error if error.kind() == io::ErrorKind::NotFound => Ok(None),
            error => Err(error),
        },
    }
}

/// Deletes the UDP flows of the frontends in `listeners` that the kernel sends to none of the frontend's
/// listeners: flows to a listener of an earlier process, or flows older than the rules. The next datagram of
/// such a flow is redirected to a current listener. Returns the number of deleted flows.
///
/// Costs one walk of the conntrack table, regardless of the number of listeners.
pub(super) fn forget_misled(netlink: &mut Netlink, listeners: &Listeners) -> io::Result<u64> {
    if listeners.is_empty() {
        return Ok(0);
    }
    let local = local_addresses();
    let misled = netlink.dump(&tracking::dump(), Vec::new, |misled, answer| {
        let Some(entry) = TrackedFlow::parse(answer)?.filter(TrackedFlow::is_udp) else { return Ok(()) };
        misled.extend(is_misled(&entry, listeners, &local).then(|| entry.deletion()));
        Ok(())
    })?;
    let errnos = netlink.ask(&misled, |_, _| Ok(()))?;
    // An entry that expired in the meantime yields an error, which is as good as a deletion.
    let deleted = errnos.iter().filter(|errno| **errno == 0).count();
    Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
}

fn is_misled(entry: &TrackedFlow<'_>, listeners: &Listeners, local: &BTreeSet<IpAddr>) -> bool {
    let FlowDirection { destination, .. } = entry.original;
    let (Some(port), Some(first)) = (Port::new(destination.port()), Port::new(1)) else { return false };
    let at = |destination, ports| Frontend { destination, protocol: Protocol::Udp, ports };
    let address = Destination::Address(destination.ip());
    let last = Port::new(u16::MAX).unwrap_or(port);
    let at_address = at(address, first.into())..=at(address, PortRange::new(port, last));
    let mut exact = listeners.range(at_address).filter(|(frontend, _)| frontend.ports.contains(port));
    let node_port = || {
        let family = IpFamily::of(destination.ip());
        let is_local = local.contains(&destination.ip());
        listeners.get(&at(Destination::AnyLocal(family), port.into())).filter(|_| is_local)
    };
    let ports = exact.next().map(|(_, ports)| ports).or_else(node_port);
    ports.is_some_and(|ports| !ports.iter().any(|listener| listener.get() == entry.reply.source.port()))
}

fn local_addresses() -> BTreeSet<IpAddr> {
    let v4 =
        |address: &nix::sys::socket::SockaddrStorage| address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    let v6 =
        |address: &nix::sys::socket::SockaddrStorage| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
    let interfaces = getifaddrs().into_iter().flatten().filter_map(|interface| interface.address);
    interfaces.filter_map(|address| v4(&address).or_else(|| v6(&address))).collect()
}
