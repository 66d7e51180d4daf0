//! TCP and UDP clients inside a namespace, which understand the answers of [`crate::echo`].

use std::{
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::host::netns::Namespace;

/// How long a client waits for an answer. A refused connection is told at once; only silence takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// Which backend answered, and as whom it saw the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The backend's name.
    pub backend: String,
    /// The port on which the backend was reached.
    pub port: u16,
    /// The client's address as the backend saw it.
    pub peer: SocketAddr,
}

impl Reply {
    /// Reads the line of an answer.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(line: &str) -> Result<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["backend", backend, "port", port, "saw", peer] = words[..] else {
            bail!("no answer of a backend: {line:?}");
        };
        Ok(Self { backend: backend.to_owned(), port: port.parse()?, peer: peer.parse()? })
    }
}

/// Connects, reads who answered, and closes.
///
/// # Errors
/// Refused, no answer in time, or not a backend.
pub fn tcp(from: &Namespace, to: SocketAddr) -> Result<Reply> {
    Connection::open(from, to).map(|connection| connection.reply)
}

/// An established TCP connection to a backend.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
    /// Who answered.
    pub reply: Reply,
}

impl Connection {
    /// Connects and reads who answered.
    ///
    /// # Errors
    /// As [`tcp`].
    pub fn open(from: &Namespace, to: SocketAddr) -> Result<Self> {
        let stream = from.inside(|| TcpStream::connect_timeout(&to, TIMEOUT));
        let stream = stream.with_context(|| format!("TCP to {to} from {}", from.name()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).with_context(|| format!("TCP to {to}: connected, but no answer"))?;
        Ok(Self { reply: Reply::parse(&line)?, reader })
    }

    /// Sends a line and demands it back.
    ///
    /// # Errors
    /// The connection does not live.
    pub fn exchange(&mut self, text: &str) -> Result<()> {
        writeln!(self.reader.get_mut(), "{text}").context("cannot send on the established connection")?;
        let mut line = String::new();
        self.reader.read_line(&mut line).context("no answer on the established connection")?;
        ensure!(line.trim_end() == text, "sent {text:?} on the established connection and got {line:?} back");
        Ok(())
    }
}

/// A UDP client that keeps its port, so that the kernel takes all its datagrams for one flow.
#[derive(Debug)]
pub struct UdpClient {
    socket: UdpSocket,
    to: SocketAddr,
}

impl UdpClient {
    /// Opens a socket.
    ///
    /// # Errors
    /// There is no way to the address.
    pub fn open(from: &Namespace, to: SocketAddr) -> Result<Self> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = from.inside(|| {
            let socket = UdpSocket::bind(any)?;
            socket.connect(to)?;
            Ok::<_, std::io::Error>(socket)
        });
        let socket = socket.with_context(|| format!("UDP to {to} from {}", from.name()))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { socket, to })
    }

    /// Sends a datagram and waits for who answers.
    ///
    /// # Errors
    /// Refused (ICMP), or no answer in time.
    pub fn ask(&self) -> Result<Reply> {
        self.socket.send(b"who?\n").with_context(|| format!("UDP to {}", self.to))?;
        let mut datagram = [0; 1500];
        let bytes = self.socket.recv(&mut datagram).with_context(|| format!("UDP to {}", self.to))?;
        Reply::parse(&String::from_utf8_lossy(&datagram[..bytes]))
    }
}

/// Sends one datagram from a fresh port and waits for who answers.
///
/// # Errors
/// As [`UdpClient::ask`].
pub fn udp(from: &Namespace, to: SocketAddr) -> Result<Reply> {
    UdpClient::open(from, to)?.ask()
}

/// Whether an error is a refusal (TCP reset, ICMP port unreachable), as opposed to silence. A datagram that is rejected on
/// the sender's own machine is refused by `EPERM` of the system call.
#[must_use]
pub fn is_refusal(error: &anyhow::Error) -> bool {
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    let refusals = [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::PermissionDenied];
    cause.is_some_and(|cause| refusals.contains(&cause.kind()))
}

/// Reads `address:port` or `[address]:port`.
///
/// # Errors
/// It is not one.
pub fn socket_address(text: &str) -> Result<SocketAddr> {
    text.parse().map_err(|_| anyhow!("`{text}` is not an address with a port"))
}

/// The address and port at which something is reached.
#[must_use]
pub fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}
