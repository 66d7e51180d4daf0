//! Client connections on the test bed: opens many at a time and collects their results.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    time::Duration,
};

use futures::{StreamExt, stream};
use model::kinds::service::Protocol;
use nix::sys::{
    socket::{AddressFamily, SockaddrStorage, bind, connect, setsockopt, sockopt},
    time::{TimeVal, TimeValLike},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{TcpSocket, UdpSocket},
    time::{Instant, timeout, timeout_at},
};

use super::{Hosts, Spot, servers::sctp_socket};

/// Time to wait for an expected reply: several repetitions of a lost SYN, because the machine and the guest VM can be
/// busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// Time to wait if no reply is expected.
pub const SILENCE: Duration = Duration::from_millis(350);
/// Interval at which a datagram without reply is sent again.
const RESEND: Duration = Duration::from_millis(250);
/// Maximum number of connections that one host opens at the same time.
const AT_ONCE: usize = 48;

/// Connection that a host of the test bed opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub from: Spot,
    /// Source address; the kernel chooses if `None`.
    pub source: Option<IpAddr>,
    pub to: IpAddr,
    pub protocol: Protocol,
    pub port: u16,
}

/// Result of a connection, as the client observes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heard {
    /// Reply from a server. Contains the name of the server, and the source address and port of the client as
    /// the server observed them.
    Answer { name: String, source: IpAddr, port: u16 },
    /// The client received a TCP reset or ICMP port unreachable.
    Refused,
    /// The client's own kernel rejected the packet.
    Prohibited,
    /// No reply arrived within the time to wait.
    Silence,
    /// Any other result. Contains a description.
    Odd(String),
}

impl Hosts {
    /// Opens connections at the same time, each with its own time to wait, and returns the results in the
    /// same order.
    pub fn ask(&self, asks: &[(Ask, Duration)]) -> Vec<Heard> {
        let mut by_host: BTreeMap<Spot, Vec<usize>> = BTreeMap::new();
        for (index, (ask, _)) in asks.iter().enumerate() {
            by_host.entry(ask.from).or_default().push(index);
        }
        let mut heard = vec![Heard::Silence; asks.len()];
        let answers = std::thread::scope(|scope| {
            let threads: Vec<_> = by_host
                .into_iter()
                .map(|(spot, indices)| {
                    scope.spawn(move || self.at(spot).run(|| ask_from_here(asks, &indices)))
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for (index, answer) in answers {
            heard[index] = answer;
        }
        heard
    }
}

/// Opens the connections of `asks` at the given `indices`, all of them from one host, and returns each result
/// with its index. Must be called on a thread in the namespace of this host. The runtime is single-threaded,
/// because a socket belongs to the namespace of the thread that creates it.
fn ask_from_here(asks: &[(Ask, Duration)], indices: &[usize]) -> Vec<(usize, Heard)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        stream::iter(indices)
            .map(|&index| async move {
                let (ask, patience) = asks[index];
                (index, one(ask, patience).await)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    })
}

async fn one(ask: Ask, patience: Duration) -> Heard {
    let answer = match ask.protocol {
        Protocol::Tcp => {
            timeout(patience, tcp(ask)).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
        }
        Protocol::Udp => udp(ask, patience).await,
        Protocol::Sctp => tokio::task::spawn_blocking(move || sctp(ask, patience)).await.unwrap(),
    };
    match answer {
        Ok(text) => parse(&text),
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> Heard {
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    if is(&[ErrorKind::ConnectionRefused]) {
        Heard::Refused
    } else if is(&[ErrorKind::PermissionDenied]) {
        Heard::Prohibited
    } else if is(&[ErrorKind::TimedOut, ErrorKind::WouldBlock])
        || error.raw_os_error() == Some(nix::libc::EINPROGRESS)
    {
        Heard::Silence
    } else {
        Heard::Odd(error.to_string())
    }
}

fn parse(text: &str) -> Heard {
    let words: Vec<_> = text.lines().next().unwrap_or_default().split(' ').collect();
    let [name, source, port] = words[..] else { return Heard::Odd(format!("{text:?}")) };
    Heard::Answer { name: name.to_owned(), source: source.parse().unwrap(), port: port.parse().unwrap() }
}

async fn tcp(ask: Ask) -> io::Result<String> {
    let to = SocketAddr::new(ask.to, ask.port);
    let socket = if ask.to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = ask.source {
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let stream = socket.connect(to).await?;
    // Closed by a reset: a port in TIME_WAIT could not be reused soon.
    stream.set_zero_linger()?;
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text).await?;
    Ok(text)
}

async fn udp(ask: Ask, patience: Duration) -> io::Result<String> {
    let any: IpAddr = if ask.to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind(SocketAddr::new(ask.source.unwrap_or(any), 0)).await?;
    socket.connect(SocketAddr::new(ask.to, ask.port)).await?;
    let end = Instant::now() + patience;
    let mut buffer = [0; 256];
    loop {
        if let Err(error) = socket.send(b"?").await {
            if error.kind() != ErrorKind::PermissionDenied {
                return Err(error);
            }
            // A rejection on the local host fails the send call and is also reported to the socket.
            return match timeout(SILENCE.min(patience), socket.recv(&mut buffer)).await {
                Ok(Err(refused)) => Err(refused),
                _ => Err(error),
            };
        }
        match timeout_at(end.min(Instant::now() + RESEND), socket.recv(&mut buffer)).await {
            Ok(received) => return Ok(String::from_utf8_lossy(&buffer[..received?]).into_owned()),
            Err(_) if Instant::now() >= end => return Err(ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
}

fn sctp(ask: Ask, patience: Duration) -> io::Result<String> {
    let family = if ask.to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = sctp_socket(family).ok_or_else(|| io::Error::other("this kernel has no SCTP"))?;
    let limit = TimeVal::milliseconds(patience.as_millis().try_into().unwrap());
    setsockopt(&socket, sockopt::SendTimeout, &limit)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
    if let Some(source) = ask.source {
        bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(source, 0)))?;
    }
    connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(ask.to, ask.port)))?;
    let mut buffer = [0; 256];
    let length = std::fs::File::from(socket).read(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}
