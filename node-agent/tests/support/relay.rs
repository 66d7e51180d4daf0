//! A node in userspace mode, and servers that do what a test says.

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
    BackendOptions, Dataplane as _, Desired, Scope,
    userspace::{Limits, UserspaceBackend},
};

use super::{
    Namespace,
    net::Topology,
    programs::{key, verified},
};

/// How long a test waits for something that must come.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A topology whose node relays what is desired.
pub fn relaying(test: &str, desired: &Desired, limits: Limits) -> (Topology, UserspaceBackend) {
    let topology = Topology::new(test);
    let mut backend = open(&topology.node, limits);
    verified(&backend.apply(desired, &Scope::Everything));
    (topology, backend)
}

pub fn open(node: &Namespace, limits: Limits) -> UserspaceBackend {
    node.run(|| UserspaceBackend::open(BackendOptions::default().masquerade_mark, limits).unwrap())
}

/// Changes the routes of a Service that is desired.
pub fn change(desired: &mut Desired, service: &str, mut change: impl FnMut(&mut Route)) {
    let service = desired.programs.get_mut(&key(service)).unwrap();
    Arc::make_mut(&mut service.program).frontends.iter_mut().map(|(_, route)| route).for_each(&mut change);
}

/// Serves each TCP connection to a port by a closure on a thread of its own; takes no more when dropped.
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

/// Listens. A process that another test starts holds every socket of this one until it runs its program: then a server that
/// has ended still seems to listen for a moment.
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

/// A TCP connection from a namespace.
pub fn connect(namespace: &Namespace, ip: &str, port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::new(ip.parse().unwrap(), port);
    let stream = namespace.run(move || TcpStream::connect_timeout(&address, PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE * 4))?;
    Ok(stream)
}

/// A UDP socket of a namespace, connected.
pub fn udp(namespace: &Namespace, ip: &str, port: u16) -> UdpSocket {
    let address = SocketAddr::new(ip.parse().unwrap(), port);
    let any: SocketAddr = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = namespace.run(|| UdpSocket::bind(any).unwrap());
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Says a line and waits for the same line.
pub fn echoes(stream: &mut TcpStream, line: &str) -> bool {
    let mut answer = vec![0; line.len()];
    stream.write_all(line.as_bytes()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == line.as_bytes()
}

/// Sends back what comes until the client has said all.
pub fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = stream.try_clone()?;
    io::copy(&mut reader, &mut stream)?;
    Ok(())
}

/// Byte `position` of a long transfer: a period that no buffer size shares.
pub fn pattern(position: usize) -> u8 {
    u8::try_from(position % 251).unwrap()
}

/// Sends so many bytes of the pattern.
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

/// Reads to the end; answers how many bytes came, all of which were the pattern.
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

/// Waits until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE * 4;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
