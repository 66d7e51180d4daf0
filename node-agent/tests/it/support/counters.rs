//! Test of the traffic counters for all proxy modes, on a node without a running agent loop.

use std::{
    io::{Read, Write},
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use model::{kinds::service::Protocol, program::Masquerade};
use node_agent::dataplane::Dataplane;

use super::{
    Namespace,
    drain::Node,
    net::Topology,
    programs::*,
    relay::{TcpServer, connect, echo, eventually, udp},
};

const VIP: &str = "10.96.0.9";
const TARGET: (&str, u16, u16) = ("10.1.1.2", 9000, 1);
/// Number of TCP connections that a client opens.
const CONNECTIONS: u64 = 5;
const HELD: u64 = 2;
const BYTES: usize = 20_000;
/// Number of UDP flows that a client opens.
const FLOWS: u64 = 4;
const DATAGRAMS: u64 = 3;
const DATAGRAM_BYTES: usize = 500;

/// Traffic counters of one protocol.
#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    connections: u64,
    packets: Option<u64>,
    bytes: Option<u64>,
    active: Option<u64>,
    inactive: Option<u64>,
}

/// Checks the traffic counters of the backend that `open` creates: the numbers of connections, flows, and
/// open connections are exactly those of the test, and the number of bytes is at least that of the test. A
/// new agent continues the counters of the kernel.
pub fn tell(topology: &Topology, open: impl Fn() -> Box<dyn Dataplane> + Send + Sync) {
    let _tcp = TcpServer::start(&topology.a, TARGET.1, echo);
    let _udp = UdpEcho::start(&topology.a, TARGET.1);
    let client = &topology.client;
    let frontends = [Protocol::Tcp, Protocol::Udp]
        .map(|protocol| (at(VIP, protocol, 7), forward(Masquerade::Always, &[TARGET])));
    let desired = desired(vec![("echo", program(&[VIP], &[], &frontends))]);
    topology.node.run(|| {
        let mut node = Node::begin(open(), desired.clone());
        // Flow bytes are counted from the first reading on.
        let before = [Protocol::Tcp, Protocol::Udp].map(|protocol| figures(&mut node, protocol).connections);
        assert_eq!(before, [0, 0]);
        let mut held: Vec<_> = (0..CONNECTIONS).map(|_| converse(client)).collect();
        held.truncate(usize::try_from(HELD).unwrap());
        let sockets: Vec<_> = (0..FLOWS).map(|_| ask(client)).collect();

        let mut tcp = Figures::default();
        eventually("every TCP connection is counted", || {
            tcp = figures(&mut node, Protocol::Tcp);
            let is_ended = tcp.inactive.is_none_or(|inactive| inactive == CONNECTIONS - HELD);
            tcp.connections == CONNECTIONS && tcp.active == Some(HELD) && is_ended
        });
        let carried = 2 * CONNECTIONS * BYTES as u64;
        assert!(tcp.bytes.is_some_and(|bytes| bytes >= carried), "{carried} bytes: {tcp:?}");
        // A relay sees no TCP packets. Each connection has three to open, four to close, and more.
        assert!(tcp.packets.is_none_or(|packets| packets >= CONNECTIONS * 6), "{tcp:?}");
        assert_eq!(tcp.packets.is_some(), node.backend.is_tracked());

        let (packets, bytes) = (2 * FLOWS * DATAGRAMS, 2 * FLOWS * DATAGRAMS * DATAGRAM_BYTES as u64);
        let mut datagrams = Figures::default();
        // A relay counts a reply after sending it, so the client may be faster.
        eventually("every UDP flow is counted with its datagrams", || {
            datagrams = figures(&mut node, Protocol::Udp);
            datagrams.connections == FLOWS
                && datagrams.packets == Some(packets)
                && datagrams.bytes.is_some_and(|found| found >= bytes)
        });
        // IPVS has no active UDP flows.
        let known = datagrams.active.unwrap_or(0) + datagrams.inactive.unwrap_or(0);
        assert_eq!(known, FLOWS, "{datagrams:?}");
        drop(sockets);

        if node.backend.is_tracked() {
            drop(node);
            node = Node::begin(open(), desired);
            let fresh = figures(&mut node, Protocol::Tcp);
            assert_eq!(fresh.connections, CONNECTIONS, "the kernel has counted them: {fresh:?}");
        }
        drop(converse(client));
        eventually("one more is counted", || {
            figures(&mut node, Protocol::Tcp).connections == CONNECTIONS + 1
        });
    });
}

fn figures(node: &mut Node, protocol: Protocol) -> Figures {
    let rows = node.backend.traffic().unwrap();
    let row = rows.iter().find(|row| row.protocol == protocol && row.target.address == address(TARGET.0));
    let mut figures = row.map_or_else(Figures::default, |row| Figures {
        connections: row.connections,
        packets: row.packets,
        bytes: row.bytes,
        active: row.active,
        inactive: row.inactive,
    });
    if node.backend.is_counted_by_flows() {
        assert!(node.cleaner.read_flows(&model::program::oracle::Networks::default()).unwrap());
        let flows = node.cleaner.flows().find(|(_, frontend, ..)| frontend.protocol == protocol);
        let flows = flows.map(|(_, _, _, flows)| *flows).unwrap_or_default();
        figures = Figures {
            packets: Some(flows.carried.packets),
            bytes: Some(flows.carried.bytes),
            active: Some(flows.active),
            inactive: Some(flows.inactive),
            ..figures
        };
    }
    figures
}

/// Opens a TCP connection and exchanges a fixed number of bytes on it. Returns the open connection.
fn converse(client: &Namespace) -> std::net::TcpStream {
    let mut stream = connect(client, VIP, 7).unwrap();
    stream.write_all(&[7; BYTES]).unwrap();
    stream.read_exact(&mut [0; BYTES]).unwrap();
    stream
}

/// Opens a UDP flow and exchanges a fixed number of datagrams on it. Returns the socket.
fn ask(client: &Namespace) -> UdpSocket {
    let socket = udp(client, VIP, 7);
    for _ in 0..DATAGRAMS {
        socket.send(&[7; DATAGRAM_BYTES]).unwrap();
        assert_eq!(socket.recv(&mut [0; DATAGRAM_BYTES]).unwrap(), DATAGRAM_BYTES);
    }
    socket
}

/// UDP server that sends each datagram back.
struct UdpEcho {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl UdpEcho {
    fn start(namespace: &Namespace, port: u16) -> Self {
        let socket = namespace.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = move || {
            let mut buffer = [0; 2 * DATAGRAM_BYTES];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    // The client may be gone.
                    let _gone = socket.send_to(&buffer[..length], from);
                }
            }
        };
        Self { stop, thread: Some(thread::spawn(serve)) }
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
