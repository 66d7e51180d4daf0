//! Creates BGP sockets for connecting and listening, with their socket options.

use std::{
    ffi::OsString,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};

use ipnet::IpNet;
use kernel::socket_option;
use model::{
    kinds::advertisement::InterfaceName,
    primitives::{net::IpFamily, secret::Secret},
};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, listen, setsockopt,
    socket, sockopt,
};
use tokio::net::{TcpListener, TcpSocket};

use super::key;

/// Hop limit of packets sent to neighbors with GTSM (RFC 5082 §3).
const HOP_LIMIT_MAX: u8 = 255;
/// Traffic class of sent packets: DSCP CS6 (network control), which routers drop last.
const CLASS_SELECTOR_6: i32 = 0xc0;
/// Limit of unsent bytes in the kernel's send buffer (`TCP_NOTSENT_LOWAT`). Above it the kernel accepts no
/// more. Further routes wait in this process, so that several changes of a route are sent as one.
const NOT_SENT_BYTES_MAX: i32 = 128 << 10;
/// Maximum number of connections in the accept queue of a listening socket.
const BACKLOG: i32 = 128;

/// Transport settings of the TCP connection with a neighbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// Local address from which to connect; `None` lets the kernel choose.
    pub(super) source: Option<IpAddr>,
    /// Interface that packets must use (`SO_BINDTODEVICE`), for unnumbered and link-local neighbors; `None`
    /// for any interface.
    pub(super) device: Option<InterfaceName>,
    /// Hop limit (TTL) of sent packets.
    pub(super) hop_limit: u8,
    /// Minimum hop limit of received packets (GTSM, RFC 5082); `None` accepts any.
    pub(super) hop_limit_min: Option<u8>,
    /// Password of the TCP MD5 signature (RFC 2385), for sent and received segments; `None` without
    /// signatures.
    pub(super) password: Option<Secret>,
    /// Maximum time for which sent data may stay unacknowledged (`TCP_USER_TIMEOUT`); `None` for the
    /// kernel's default.
    pub(super) silence_max: Option<Duration>,
}

/// Creates a socket with the transport settings for connecting to a neighbor.
pub(super) fn connector(remote: SocketAddr, way: &Way) -> io::Result<TcpSocket> {
    let socket = open(remote.ip())?;
    if let Some(device) = &way.device {
        setsockopt(&socket, sockopt::BindToDevice, &OsString::from(device.as_str()))?;
    }
    if let Some(source) = way.source {
        let scope = if let SocketAddr::V6(v6) = remote { v6.scope_id() } else { 0 };
        bind(socket.as_raw_fd(), &SockaddrStorage::from(scoped(source, 0, scope)))?;
    }
    travel(socket.as_fd(), remote.is_ipv4(), way)?;
    if let Some(password) = &way.password {
        key::set(socket.as_fd(), &IpNet::from(remote.ip()), Some(password))?;
    }
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Replaces the MD5 key of an open connection.
pub(super) fn rekey(connection: BorrowedFd<'_>, remote: IpAddr, password: &Secret) -> io::Result<()> {
    key::set(connection, &IpNet::from(remote), Some(password))
}

/// Creates a listening socket. `prepare` sets the MD5 keys before the first connection can arrive.
pub(super) fn listener(
    local: SocketAddr,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<TcpListener> {
    let socket = open(local.ip())?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    // SYN-ACKs are sent before the peer is known; peers without GTSM do not mind a hop limit of 255.
    mark(socket.as_fd(), local.is_ipv4(), HOP_LIMIT_MAX)?;
    if local.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    prepare(socket.as_fd())?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(local))?;
    listen(&socket, Backlog::new(BACKLOG)?)?;
    TcpListener::from_std(socket.into())
}

/// Sets the minimum hop limit of received packets (GTSM); 0 allows any hop limit.
pub(super) fn set_hop_limit_min(socket: BorrowedFd<'_>, is_ipv4: bool, hop_limit_min: u8) -> io::Result<()> {
    let family = if is_ipv4 { IpFamily::V4 } else { IpFamily::V6 };
    socket_option::set_hop_limit_min(socket, family, hop_limit_min)
}

/// Returns a socket address; `scope` is the interface index for a link-local address and is otherwise
/// ignored.
pub(super) fn scoped(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    let mut socket_address = SocketAddr::new(address, port);
    if let SocketAddr::V6(v6) = &mut socket_address
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(scope);
    }
    socket_address
}

/// Applies transport settings to a connection, except for the MD5 key. An accepted connection has inherited
/// its key from the listening socket.
pub(super) fn travel(socket: BorrowedFd<'_>, is_ipv4: bool, way: &Way) -> io::Result<()> {
    let hop_limit = if way.hop_limit_min.is_some() { HOP_LIMIT_MAX } else { way.hop_limit };
    mark(socket, is_ipv4, hop_limit)?;
    set_hop_limit_min(socket, is_ipv4, way.hop_limit_min.unwrap_or_default())?;
    setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
    socket_option::set_not_sent_max(socket, NOT_SENT_BYTES_MAX)?;
    if let Some(silence_max) = way.silence_max {
        let millis = u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX);
        setsockopt(&socket, sockopt::TcpUserTimeout, &millis)?;
    }
    Ok(())
}

fn mark(socket: BorrowedFd<'_>, is_ipv4: bool, hop_limit: u8) -> io::Result<()> {
    if is_ipv4 {
        setsockopt(&socket, sockopt::Ipv4Ttl, &hop_limit.into())?;
        setsockopt(&socket, sockopt::Ipv4Tos, &CLASS_SELECTOR_6)?;
    } else {
        setsockopt(&socket, sockopt::Ipv6Ttl, &hop_limit.into())?;
        setsockopt(&socket, sockopt::Ipv6TClass, &CLASS_SELECTOR_6)?;
    }
    Ok(())
}

fn open(address: IpAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    Ok(socket(family, SockType::Stream, flags, SockProtocol::Tcp)?)
}
