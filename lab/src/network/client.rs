//! TCP and UDP clients inside a namespace that parse the replies of [`crate::network::echo`].

use std::{
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::host::netns::Namespace;

/// Connect timeout of a client, and the time for a reply by UDP. A refused connection fails at once; only a missing
/// response takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// Time for the reply on a TCP connection that is established. On a loaded machine the process of the backend may wait longer for
/// a processor than the kernel takes to connect. A connection that leads nowhere fails after this time.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reply of an echo server: the server's name, and the client address that the server observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Name of the backend.
    pub backend: String,
    /// Port at which the backend was reached.
    pub port: u16,
    /// Client address as observed by the backend.
    pub peer: SocketAddr,
}

impl Reply {
    /// Parses a reply line.
    ///
    /// # Errors
    /// Returns an error if the line is not a reply.
    pub fn parse(line: &str) -> Result<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["backend", backend, "port", port, "saw", peer] = words[..] else {
            bail!("not a reply of a backend: {line:?}");
        };
        Ok(Self { backend: backend.to_owned(), port: port.parse()?, peer: peer.parse()? })
    }
}

/// Connects from a namespace by TCP, reads the reply of the echo server, and closes the connection.
///
/// # Errors
/// Returns an error if the connection is refused, times out, or the peer is not a backend.
pub fn tcp(from: &Namespace, to: SocketAddr) -> Result<Reply> {
    Connection::open(from, to).map(|connection| connection.reply)
}

/// An established TCP connection to a backend.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
    /// Reply that the backend sent when it accepted the connection.
    pub reply: Reply,
}

impl Connection {
    /// Connects and reads the reply of the echo server. The connection stays open.
    ///
    /// # Errors
    /// Same as [`tcp`].
    pub fn open(from: &Namespace, to: SocketAddr) -> Result<Self> {
        Self::open_within(from, to, TIMEOUT)
    }

    /// Same as [`Self::open`] with another connect timeout.
    ///
    /// # Errors
    /// Same as [`tcp`].
    pub fn open_within(from: &Namespace, to: SocketAddr, timeout: Duration) -> Result<Self> {
        let stream = from.inside(|| TcpStream::connect_timeout(&to, timeout));
        let stream = stream.with_context(|| format!("TCP to {to} from {}", from.name()))?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).with_context(|| format!("TCP to {to}: connected, but no reply"))?;
        Ok(Self { reply: Reply::parse(&line)?, reader })
    }

    /// Sends a line and checks that the backend sends the same line back.
    ///
    /// # Errors
    /// Returns an error if the connection no longer works.
    pub fn exchange(&mut self, text: &str) -> Result<()> {
        writeln!(self.reader.get_mut(), "{text}").context("cannot send on the established connection")?;
        let mut line = String::new();
        self.reader.read_line(&mut line).context("no reply on the established connection")?;
        ensure!(line.trim_end() == text, "sent {text:?} on the established connection and received {line:?}");
        Ok(())
    }
}

/// A UDP client with a fixed source port, so that the kernel treats all its datagrams as one flow.
#[derive(Debug)]
pub struct UdpClient {
    socket: UdpSocket,
    to: SocketAddr,
}

impl UdpClient {
    /// Opens a socket.
    ///
    /// # Errors
    /// Returns an error if there is no route to the address.
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

    /// Sends a datagram and waits for the reply.
    ///
    /// # Errors
    /// Returns an error if the datagram is refused (ICMP) or times out.
    pub fn ask(&self) -> Result<Reply> {
        self.socket.send(b"who?\n").with_context(|| format!("UDP to {}", self.to))?;
        let mut datagram = [0; 1500];
        let bytes = self.socket.recv(&mut datagram).with_context(|| format!("UDP to {}", self.to))?;
        Reply::parse(&String::from_utf8_lossy(&datagram[..bytes]))
    }
}

/// Sends one datagram from a new source port and waits for the reply.
///
/// # Errors
/// Same as [`UdpClient::ask`].
pub fn udp(from: &Namespace, to: SocketAddr) -> Result<Reply> {
    UdpClient::open(from, to)?.ask()
}

/// Returns true if a connection was actively refused (TCP reset or ICMP port unreachable) instead of timing
/// out. A datagram that a rule on the sending host rejects fails with `EPERM`, which also counts as refused.
#[must_use]
pub fn is_refusal(error: &anyhow::Error) -> bool {
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    let refusals = [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::PermissionDenied];
    cause.is_some_and(|cause| refusals.contains(&cause.kind()))
}

/// Parses `address:port` or `[address]:port`.
///
/// # Errors
/// Returns an error if the text has a different form.
pub fn socket_address(text: &str) -> Result<SocketAddr> {
    text.parse().map_err(|_| anyhow!("`{text}` is not an address with a port"))
}

/// Returns the socket address of an IP address and a port.
#[must_use]
pub fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}
