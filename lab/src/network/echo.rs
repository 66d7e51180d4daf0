//! A backend that identifies itself: a TCP and UDP server on one port inside a namespace, without external tools.
//!
//! On accept and for every datagram the server sends `backend NAME port PORT saw PEER`. On TCP it then echoes each
//! line, so that a test can check that an established connection still works.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, IoSlice, IoSliceMut, Write},
    net::{Ipv6Addr, Shutdown, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
};

use anyhow::{Context, Result, anyhow};
use nix::{
    cmsg_space, libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sendmsg, setsockopt,
        sockopt::Ipv6RecvPacketInfo,
    },
};

use crate::host::netns::Namespace;

/// Maximum size in bytes of a datagram that is answered. Larger ones do not fit into an Ethernet frame.
const DATAGRAM_BYTES_MAX: usize = 1500;

/// Running echo server. Dropping it closes the port and every connection, as if a server process were killed.
#[derive(Debug)]
pub struct EchoServer {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
    connections: Connections,
}

/// Open connections by a number that the server assigns.
type Connections = Arc<Mutex<BTreeMap<u64, TcpStream>>>;

impl EchoServer {
    /// Listens on every address of the namespace for IPv4 and IPv6, TCP and UDP.
    ///
    /// # Errors
    /// Returns an error if the port is in use.
    pub fn start(namespace: &Namespace, name: &str, port: u16) -> Result<Self> {
        let (stop, stopped) = UnixStream::pair().context("cannot make a pair of sockets")?;
        let connections = Connections::default();
        let (report, started) = mpsc::channel();
        let backend = Backend { name: name.to_owned(), port, connections: Arc::clone(&connections) };
        let thread = namespace.spawn(&format!("echo-{name}"), move || match backend.bind() {
            Ok((tcp, udp)) => {
                let _ = report.send(Ok(()));
                backend.serve(&tcp, &udp, &stopped);
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        })?;
        started
            .recv()
            .map_err(|_| anyhow!("the server of {name} did not start"))?
            .with_context(|| format!("backend {name}"))?;
        Ok(Self { stop, thread: Some(thread), connections })
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for (_, connection) in std::mem::take(&mut *lock(&self.connections)) {
            let _already_closed = connection.shutdown(Shutdown::Both);
        }
    }
}

struct Backend {
    name: String,
    port: u16,
    connections: Connections,
}

impl Backend {
    fn bind(&self) -> Result<(TcpListener, UdpSocket)> {
        let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port));
        let tcp = TcpListener::bind(everywhere)
            .with_context(|| format!("cannot listen on TCP port {}", self.port))?;
        let udp = UdpSocket::bind(everywhere)
            .with_context(|| format!("cannot listen on UDP port {}", self.port))?;
        setsockopt(&udp, Ipv6RecvPacketInfo, &true).context("cannot enable IPV6_RECVPKTINFO")?;
        Ok((tcp, udp))
    }

    fn serve(&self, tcp: &TcpListener, udp: &UdpSocket, stopped: &UnixStream) {
        for number in 0.. {
            let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut waiting = [readable(tcp.as_fd()), readable(udp.as_fd()), readable(stopped.as_fd())];
            if poll(&mut waiting, PollTimeout::NONE).is_err() {
                continue;
            }
            let [on_tcp, on_udp, on_stop] = waiting.map(|fd| fd.any().unwrap_or(false));
            if on_stop {
                return;
            }
            if on_tcp {
                self.accept(tcp, number);
            }
            if on_udp {
                self.answer(udp);
            }
        }
    }

    fn line(&self, peer: SocketAddr) -> String {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        format!("backend {} port {} saw {peer}\n", self.name, self.port)
    }

    fn accept(&self, tcp: &TcpListener, number: u64) {
        let Ok((mut connection, peer)) = tcp.accept() else { return };
        let Ok(handle) = connection.try_clone() else { return };
        lock(&self.connections).insert(number, handle);
        let (line, connections) = (self.line(peer), Arc::clone(&self.connections));
        // The thread ends with the connection, which this server closes at shutdown at the latest.
        let thread = std::thread::Builder::new().name(format!("echo-{}", self.name)).spawn(move || {
            if connection.write_all(line.as_bytes()).is_ok() {
                repeat(&connection);
            }
            // A kept handle would hold the file of the connection open, and clients may connect for hours.
            lock(&connections).remove(&number);
        });
        if thread.is_err() {
            lock(&self.connections).remove(&number);
        }
    }

    /// Receives a datagram and replies from the address to which it was sent, because a backend may have many
    /// addresses.
    fn answer(&self, udp: &UdpSocket) {
        let Some((peer, asked)) = receive(udp) else { return };
        let line = self.line(SocketAddr::V6(peer));
        let asked = asked.map(|address| libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
            // 0: any interface with a route to the client.
            ipi6_ifindex: 0,
        });
        let from: Vec<_> = asked.iter().map(ControlMessage::Ipv6PacketInfo).collect();
        let (to, line) = (SockaddrIn6::from(peer), [IoSlice::new(line.as_bytes())]);
        let _client_may_be_gone = sendmsg(udp.as_raw_fd(), &line, &from, MsgFlags::empty(), Some(&to));
    }
}

/// Receives a datagram and returns its source address and, if the kernel reports it, its destination address.
fn receive(udp: &UdpSocket) -> Option<(SocketAddrV6, Option<Ipv6Addr>)> {
    let (mut datagram, mut space) = ([0; DATAGRAM_BYTES_MAX], cmsg_space!(libc::in6_pktinfo));
    let mut into = [IoSliceMut::new(&mut datagram)];
    let received =
        recvmsg::<SockaddrIn6>(udp.as_raw_fd(), &mut into, Some(&mut space), MsgFlags::empty()).ok()?;
    let asked = received.cmsgs().ok()?.find_map(|message| {
        let ControlMessageOwned::Ipv6PacketInfo(info) = message else { return None };
        Some(Ipv6Addr::from(info.ipi6_addr.s6_addr))
    });
    Some((SocketAddrV6::from(received.address?), asked))
}

fn lock(connections: &Connections) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

fn repeat(connection: &TcpStream) {
    let mut reader = BufReader::new(connection);
    let mut writer = connection;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0)
        && writer.write_all(line.as_bytes()).is_ok()
    {
        line.clear();
    }
    let _ = connection.shutdown(Shutdown::Both);
}
