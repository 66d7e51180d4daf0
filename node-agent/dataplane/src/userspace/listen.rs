//! Creation of listeners, each with a port that the kernel selects and a task that serves the listener.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
};

use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
    program::Frontend,
};
use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt},
};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

use super::{
    relay::{Relay, RelayShared},
    tcp, udp,
};

/// Opens a listener on a free port of the unspecified address and serves it. Must be called within the
/// relay's runtime.
pub(super) fn open(frontend: Frontend, shared: Arc<RelayShared>) -> io::Result<Arc<Relay>> {
    let family = frontend.destination.family();
    match frontend.protocol {
        Protocol::Tcp => {
            let listener = bind_tcp(family)?;
            let relay = relay(frontend, listener.local_addr()?, shared)?;
            tokio::spawn(tcp::accept(Arc::clone(&relay), listener));
            Ok(relay)
        }
        Protocol::Udp => {
            let socket = bind_udp(family)?;
            let relay = relay(frontend, socket.local_addr()?, shared)?;
            tokio::spawn(udp::receive(Arc::clone(&relay), socket));
            Ok(relay)
        }
        Protocol::Sctp => Err(io::Error::new(io::ErrorKind::Unsupported, "SCTP is not relayed")),
    }
}

fn relay(frontend: Frontend, local: SocketAddr, shared: Arc<RelayShared>) -> io::Result<Arc<Relay>> {
    let port = Port::new(local.port()).ok_or_else(|| io::Error::other("the kernel gave no port"))?;
    Ok(Arc::new(Relay::new(frontend, port, shared)))
}

fn bind_tcp(family: IpFamily) -> io::Result<TcpListener> {
    let socket = match family {
        IpFamily::V4 => TcpSocket::new_v4()?,
        IpFamily::V6 => {
            let socket = TcpSocket::new_v6()?;
            setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
            socket
        }
    };
    tcp::prepare(&socket)?;
    socket.bind(any(family))?;
    socket.listen(tcp::BACKLOG)
}

/// Binds a UDP socket that reports the local address to which each datagram was sent.
fn bind_udp(family: IpFamily) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let open = |family| socket(family, SockType::Datagram, flags, None);
    let prepare = |socket: &OwnedFd| -> Result<(), Errno> {
        match family {
            IpFamily::V4 => setsockopt(socket, sockopt::Ipv4PacketInfo, &true),
            IpFamily::V6 => {
                setsockopt(socket, sockopt::Ipv6V6Only, &true)?;
                setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)
            }
        }
    };
    let socket = open(match family {
        IpFamily::V4 => AddressFamily::Inet,
        IpFamily::V6 => AddressFamily::Inet6,
    })?;
    prepare(&socket)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(any(family)))?;
    UdpSocket::from_std(socket.into())
}

fn any(family: IpFamily) -> SocketAddr {
    match family {
        IpFamily::V4 => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpFamily::V6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
