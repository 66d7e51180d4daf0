//! Servers on the test bed. Each sends its name and the client address and port that it observes, and then
//! echoes.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn6, bind, listen, socket,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
};

use crate::support::Namespace;

/// Maximum size of an echoed datagram.
pub const DATAGRAM_BYTES_MAX: usize = 16 * 1024;

/// Size of the buffer of a connection in bytes, and its size as soon as a client has filled it. A long transfer in small
/// pieces takes most of its time for system calls, above all in a guest VM.
const BUFFER_BYTES: usize = 4 * 1024;
const LARGE_BUFFER_BYTES: usize = 256 * 1024;

pub struct Servers {
    runtime: Runtime,
}

/// Addresses on which a server listens.
#[derive(Clone, Copy)]
pub enum Listen {
    Anywhere,
    At(IpAddr),
}

impl Servers {
    pub fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { runtime }
    }

    /// Starts a server on these ports, for TCP, UDP and, if the kernel supports it, SCTP.
    pub fn serve(&self, namespace: &Namespace, name: &'static str, ports: &[u16], at: Listen) {
        let address = match at {
            Listen::Anywhere => Ipv6Addr::UNSPECIFIED.into(),
            Listen::At(address) => address,
        };
        let bound: Vec<_> = namespace.run(|| {
            let bind = |port: &u16| {
                let address = SocketAddr::new(address, *port);
                let tcp = TcpListener::bind(address).unwrap();
                let sctp = matches!(at, Listen::Anywhere).then(|| listen_sctp(*port)).flatten();
                (tcp, UdpSocket::bind(address).unwrap(), sctp)
            };
            ports.iter().map(bind).collect()
        });
        let _runtime = self.runtime.enter();
        for (tcp, udp, sctp) in bound {
            for listener in [Some(tcp), sctp].into_iter().flatten() {
                self.runtime.spawn(serve_streams(listener, name));
            }
            self.runtime.spawn(serve_datagrams(udp, name));
        }
    }
}

/// Returns true if this kernel supports SCTP sockets.
pub fn has_sctp() -> bool {
    sctp_socket(AddressFamily::Inet).is_some()
}

pub fn sctp_socket(family: AddressFamily) -> Option<OwnedFd> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp).ok()
}

fn listen_sctp(port: u16) -> Option<TcpListener> {
    // A kernel without the hash algorithms for cookies accepts none; a socket keeps the setting from its
    // creation.
    let _ = std::fs::write("/proc/sys/net/sctp/cookie_hmac_alg", "none");
    let socket = sctp_socket(AddressFamily::Inet6)?;
    let any = std::net::SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn6::from(any)).unwrap();
    listen(&socket, Backlog::new(16).unwrap()).expect("SCTP listens");
    Some(TcpListener::from(socket))
}

async fn serve_streams(listener: TcpListener, name: &'static str) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        if let Ok((stream, peer)) = listener.accept().await {
            tokio::spawn(serve_stream(stream, peer, name));
        }
    }
}

async fn serve_stream(mut stream: TcpStream, peer: SocketAddr, name: &'static str) {
    let Ok(own) = stream.local_addr() else { return };
    if stream.write_all(banner(name, peer, own.port()).as_bytes()).await.is_ok() {
        let _ = echo(&mut stream).await;
        let _ = stream.shutdown().await;
    }
}

async fn echo(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
        if length == BUFFER_BYTES {
            buffer.resize(LARGE_BUFFER_BYTES, 0);
        }
    }
}

async fn serve_datagrams(socket: UdpSocket, name: &'static str) {
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    let socket = tokio::net::UdpSocket::from_std(socket).unwrap();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        if let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let answer = [banner(name, peer, port).as_bytes(), &buffer[..length]].concat();
            let _ = socket.send_to(&answer, peer).await;
        }
    }
}

fn banner(name: &str, peer: SocketAddr, own_port: u16) -> String {
    format!("{name} {} {own_port}\n", peer.ip().to_canonical())
}
