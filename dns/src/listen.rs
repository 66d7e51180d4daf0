//! Sockets of the server: UDP and TCP at each address, and TLS at others.

mod error_limit;
mod peer;
mod tcp;
mod tls;
mod udp;

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    num::NonZeroUsize,
    sync::Arc,
    thread,
};

use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use socket2::{Domain, Protocol, Socket, Type};
use tokio_util::sync::CancellationToken;

pub(crate) use self::tls::{Certificate, CertificateFiles, PROTOCOL as TLS_PROTOCOL};
use self::udp::UdpThreads;
use crate::responder::Responder;

/// Maximum number of UDP sockets for one address.
const SOCKETS_MAX: usize = 8;
/// Size of the kernel's buffer for questions of one UDP socket in bytes: for about 10,000 questions, of which each takes 768 bytes
/// of twice this size. A busy machine may run no thread of the server while so many arrive.
const UDP_BUFFER_BYTES: usize = 4 << 20;
/// Length of the network of an IPv6 source, which may use any address of it.
const IPV6_SOURCE_PREFIX: u32 = 64;
/// Length of the queue of connections that have not been accepted.
const BACKLOG: i32 = 128;

/// Bound sockets, not yet served.
#[derive(Debug)]
pub(crate) struct Sockets {
    udp: Vec<UdpSocket>,
    tcp: Vec<tokio::net::TcpListener>,
    tls: Vec<tokio::net::TcpListener>,
}

impl Sockets {
    /// Binds the sockets of all addresses, and those of the addresses for DNS over TLS. Several UDP sockets share each address, so that the processors share the
    /// load.
    ///
    /// # Errors
    /// Returns the address that cannot be bound, with the error.
    pub(crate) fn bind(
        addresses: &[SocketAddr],
        tls_addresses: &[SocketAddr],
    ) -> Result<Self, (SocketAddr, io::Error)> {
        let count = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(SOCKETS_MAX);
        let (mut udp, mut tcp) = (Vec::new(), Vec::new());
        for address in addresses {
            for _ in 0..count {
                udp.push(bind_udp(*address).map_err(|error| (*address, error))?);
            }
            tcp.push(bind_tcp(*address).map_err(|error| (*address, error))?);
        }
        let listen = |address: &SocketAddr| bind_tcp(*address).map_err(|error| (*address, error));
        let tls = tls_addresses.iter().map(listen).collect::<Result<_, _>>()?;
        Ok(Self { udp, tcp, tls })
    }

    /// Answers questions until stopped. The certificate is that of DNS over TLS.
    ///
    /// # Errors
    /// Returns an error if the operating system cannot start the threads.
    pub(crate) async fn serve(
        self,
        responder: Arc<Responder>,
        certificate: Option<Certificate>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let mut tasks = tokio::task::JoinSet::new();
        let connections = Arc::new(tcp::ConnectionLimit::default());
        let _threads = UdpThreads::start(self.udp, &responder)?;
        for listener in self.tcp {
            tasks.spawn(tcp::serve(listener, Arc::clone(&responder), Arc::clone(&connections), None));
        }
        if let Some(certificate) = certificate {
            for listener in self.tls {
                let settings = Some(certificate.settings());
                tasks.spawn(tcp::serve(listener, Arc::clone(&responder), Arc::clone(&connections), settings));
            }
            tasks.spawn(certificate.follow());
        }
        stop.cancelled().await;
        Ok(())
    }
}

/// Returns the source to which the limits apply: the address, or the network of an IPv6 address.
fn source_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - IPV6_SOURCE_PREFIX);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

fn bind_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    // Without CAP_NET_ADMIN, the kernel limits the size to net.core.rmem_max.
    if setsockopt(&socket, RcvBufForce, &UDP_BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(UDP_BUFFER_BYTES)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn bind_tcp(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections of an earlier process may still be closing.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    tokio::net::TcpListener::from_std(socket.into())
}
