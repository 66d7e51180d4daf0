//! Test network with a node in userspace mode, and target servers with a behavior that each test defines.

use std::{
    io::{self, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use model::program::Route;
use node_agent::dataplane::{
    BackendOptions, Dataplane as _, DesiredState, Scope,
    userspace::{Limits, UserspaceBackend},
};

use super::{
    Namespace,
    net::Topology,
    programs::{key, verified},
};

/// Maximum time to wait for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Creates a topology and a userspace backend on its node that relays the Services of `desired`.
pub fn relaying(test: &str, desired: &DesiredState, limits: Limits) -> (Topology, UserspaceBackend) {
    let topology = Topology::new(test);
    let mut backend = open(&topology.node, limits);
    verified(&backend.apply(desired, &Scope::Everything));
    (topology, backend)
}

pub fn open(node: &Namespace, limits: Limits) -> UserspaceBackend {
    node.run(|| UserspaceBackend::open(BackendOptions::default().masquerade_mark, limits).unwrap())
}

/// Applies `change` to each route of the Service `service` in the desired state.
pub fn change(desired: &mut DesiredState, service: &str, mut change: impl FnMut(&mut Route)) {
    let service = desired.programs.get_mut(&key(service)).unwrap();
    Arc::make_mut(&mut service.program).frontends.iter_mut().map(|(_, route)| route).for_each(&mut change);
}

/// TCP server that passes each connection to a closure on a separate thread. It stops accepting when dropped.
pub struct TcpServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TcpServer {
    pub fn start(
        namespace: &Namespace,
        port: u16,
        serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = namespace.run(|| listen(port));
        listener.set_nonblocking(true).unwrap();
        let (stop, serve) = (Arc::new(AtomicBool::new(false)), Arc::new(serve));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE * 4)).unwrap();
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

/// Opens a listening socket, with retries: a child process that another test starts holds copies of all
/// sockets until `exec`, so that a closed port may seem to be open for a moment.
fn listen(port: u16) -> TcpListener {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(Duration::from_millis(10));
            }
            bound => return bound.unwrap(),
        }
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Opens a TCP connection from a namespace.
pub fn connect(namespace: &Namespace, ip: &str, port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::new(ip.parse().unwrap(), port);
    let stream = namespace.run(move || TcpStream::connect_timeout(&address, PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE * 4))?;
    Ok(stream)
}

/// Opens a connected UDP socket in a namespace.
pub fn udp(namespace: &Namespace, ip: &str, port: u16) -> UdpSocket {
    let address = SocketAddr::new(ip.parse().unwrap(), port);
    let any: SocketAddr = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = namespace.run(|| UdpSocket::bind(any).unwrap());
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a line on a connection, and returns true if the same line comes back.
pub fn echoes(stream: &mut TcpStream, line: &str) -> bool {
    let mut answer = vec![0; line.len()];
    stream.write_all(line.as_bytes()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == line.as_bytes()
}

/// Sends all bytes of a connection back until the client has closed its sending direction.
pub fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = stream.try_clone()?;
    io::copy(&mut reader, &mut stream)?;
    Ok(())
}

/// Returns the byte at `position` of a long transfer. The pattern repeats every 251 bytes, which is coprime
/// to all buffer sizes, so that a lost or repeated buffer is detected.
pub fn pattern(position: usize) -> u8 {
    u8::try_from(position % 251).unwrap()
}

/// Sends the first `length` bytes of the transfer that [`pattern`] defines.
pub fn send_pattern(stream: &mut impl Write, length: usize) -> io::Result<()> {
    let chunk: Vec<u8> = (0..251 * 256).map(pattern).collect();
    let mut sent = 0;
    while sent < length {
        let part = &chunk[..chunk.len().min(length - sent)];
        stream.write_all(part)?;
        sent += part.len();
    }
    Ok(())
}

/// Reads until the end of the stream, checks each byte against [`pattern`], and returns the number of bytes.
pub fn read_pattern(stream: &mut impl Read) -> io::Result<usize> {
    let (mut buffer, mut position) = (vec![0; 64 << 10], 0);
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(position);
        }
        for byte in &buffer[..length] {
            assert_eq!(*byte, pattern(position), "byte {position}");
            position += 1;
        }
    }
}

/// Waits until `holds` returns true. The first argument describes the condition in errors.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE * 4;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
