//! Load generator for measurements: servers that use no CPU while idle, many short connections, and one long
//! connection.

use std::{
    io::{Read, Write},
    net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    libc::linger,
    sys::socket::{self, setsockopt, sockopt},
};

use super::Namespace;

/// Port on which servers send one byte and close the connection.
pub const SHORT_PORT: u16 = 9000;
/// Port on which servers send until the client closes.
pub const LONG_PORT: u16 = 9001;

/// Number of threads per server that accept connections.
const ACCEPTORS: usize = 4;
const CHUNK: usize = 128 << 10;

/// Servers in a namespace on the ports [`SHORT_PORT`] and [`LONG_PORT`], stopped when dropped.
pub struct Servers {
    listeners: Vec<TcpListener>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    pub fn start(namespace: &Namespace) -> Self {
        let mut servers = Self { listeners: Vec::new(), threads: Vec::new() };
        for (port, serve) in [(SHORT_PORT, answer as fn(TcpStream)), (LONG_PORT, send)] {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            let listener = namespace.run(|| TcpListener::bind(any).unwrap());
            for _ in 0..ACCEPTORS {
                let listener = listener.try_clone().unwrap();
                servers.threads.push(thread::spawn(move || {
                    while let Ok((stream, _)) = listener.accept() {
                        serve(stream);
                    }
                }));
            }
            servers.listeners.push(listener);
        }
        servers
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for listener in &self.listeners {
            // Wakes threads blocked in `accept` with an error.
            let _ = socket::shutdown(listener.as_raw_fd(), socket::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream) {
    let _ = stream.write_all(b"!");
    // The client closes it.
    let _ = stream.read(&mut [0]);
}

fn send(mut stream: TcpStream) {
    let chunk = vec![0; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

/// Results of many short connections from several concurrent clients.
pub struct Short {
    pub connections_per_second: f64,
    /// Time from the first packet to the first byte of the reply for each connection, ascending.
    pub latencies: Vec<Duration>,
}

/// Opens `connections` short connections from `clients` concurrent clients, to the destinations `to` in turn.
pub fn short(from: &Namespace, to: &[SocketAddr], connections: usize, clients: usize) -> Short {
    let begun = Instant::now();
    let each = connections.div_ceil(clients);
    let client =
        || from.run(|| to.iter().cycle().take(each).map(|address| ask(*address)).collect::<Vec<_>>());
    let mut latencies: Vec<Duration> = thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let elapsed = begun.elapsed();
    latencies.sort();
    Short { connections_per_second: latencies.len() as f64 / elapsed.as_secs_f64(), latencies }
}

fn ask(address: SocketAddr) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let latency = begun.elapsed();
    // After a reset neither side nor the node keeps connection state.
    setsockopt(&stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
    latency
}

/// Opens a connection, receives `bytes` bytes on it, and returns the rate in bytes per second.
pub fn long(from: &Namespace, to: SocketAddr, bytes: usize) -> f64 {
    from.run(|| {
        let mut stream = TcpStream::connect(to).unwrap();
        let mut buffer = vec![0; 2 * CHUNK];
        stream.read_exact(&mut buffer[..1]).unwrap();
        let (begun, mut left) = (Instant::now(), bytes);
        while left > 0 {
            let length = stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the flow ended {left} bytes early");
            left = left.saturating_sub(length);
        }
        let _ = stream.shutdown(Shutdown::Both);
        bytes as f64 / begun.elapsed().as_secs_f64()
    })
}
