//! Conformance scenarios of connection tracking: packets that belong to no connection, and connections that begin
//! before their Service exists.

use std::{
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use model::primitives::quantity::Timestamp;
use nix::{
    errno::Errno,
    libc,
    sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
    },
};
use node_agent::conntrack::{Cleaner, KernelFlows, plan::Depth};

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Bench, Build, Spot,
    Spot::{A, C, Client, D, Node},
    ask::PATIENCE,
    node::{
        BOTH,
        Claim::{Reach, Silence},
        TCP,
    },
    segments::{self, Observer},
};

pub const SCENARIOS: &[Scenario] = &[
    scenario(
        "An address of the Service range that no Service has is dropped on the node",
        "F032",
        unassigned,
    ),
    scenario(
        "A segment of the endpoint above the window does not end the connection",
        "F041",
        outside_of_window,
    )
    .stands_for("C6"),
    scenario(
        "A connection that begins before its Service opens with the next SYN segment",
        "F041",
        before_service,
    ),
];

/// Time for delayed acknowledgements, and for the answers to a segment outside of the window.
const SETTLE: Duration = Duration::from_millis(200);
/// Time after the first retransmission of a SYN segment, which is due after one second. The next one is due after three
/// seconds.
const RETRANSMISSION: Duration = Duration::from_millis(1200);
/// Time by which a connection opens that is answered at its second retransmission.
const RETRANSMITTED: Duration = Duration::from_millis(5000);

fn outside_of_window(b: &mut Bench) {
    let web = b.service("web", 1).load_balancer_ip(b.outer(1)).tcp(80, &[A]).external_local();
    b.set(&[&web]);
    for (from, to) in [(C, b.vip(1)), (D, b.vip(1)), (Client, b.outer(1))] {
        let observer = Observer::new(&b.hosts, A, b.family);
        let mut connection = Connection::open(b, from, to);
        connection.echo("before");
        thread::sleep(SETTLE);
        let last = observer.last(8080).expect("the endpoint receives segments");
        segments::send_above_window(&b.hosts, A, &last);
        thread::sleep(SETTLE);
        connection.echo("after");
    }
}

fn unassigned(b: &mut Bench) {
    b.desired.networks.services = ["10.96.0.0/16", "fd96::/16"].map(|net| net.parse().unwrap()).into();
    let web = b.service("web", 1).both(80, &[A]);
    b.set(&[&web]);
    let observer = Observer::new(&b.hosts, Client, b.family);
    b.expect(&[Client, C, D, Node], BOTH, b.vip(1), 80, Reach(&[A]));
    b.expect(&[C, D, Node], BOTH, b.vip(9), 80, Silence);
    assert!(!observer.has_seen(b.vip(9)), "the packet leaves by the default route");
    // Addresses outside of the range are not affected.
    b.expect(&[C, D, Node], TCP, b.outer(9), 80, Silence);
    assert!(observer.has_seen(b.outer(9)), "the packet is left to the node");
}

fn before_service(b: &mut Bench) {
    for (number, from) in [(1, C), (2, D), (3, Node)] {
        let to = SocketAddr::new(b.vip(number), 80);
        let begun = Instant::now();
        let pending = b.hosts.at(from).run(|| begin(to, None));
        // A SYN segment between the update of the kernel and the removal of the flow would be refused.
        thread::sleep(RETRANSMISSION);
        assert!(pending.peer_addr().is_err(), "no Service has {to} yet");
        let web = b.service(&format!("web-{number}"), number).tcp(80, &[A]);
        b.set(&[&web]);
        clean(b, &web);
        let took = opened(&pending, begun);
        assert!(took.is_some_and(|took| took < RETRANSMITTED), "{from:?} to {to}: {took:?}");
        // The port is used again, as by a later connection of the same client.
        let own = pending.local_addr().unwrap();
        close(pending);
        let begun = Instant::now();
        let later = b.hosts.at(from).run(|| begin(to, Some(own)));
        assert!(opened(&later, begun).is_some_and(|took| took < RETRANSMITTED), "{from:?} from {own}");
        close(later);
    }
}

/// Removes the flows that began before a Service, as the agent does after an update of the kernel.
fn clean(b: &mut Bench, service: &Build) {
    let mut cleaner = Cleaner::new(Box::new(KernelFlows::default()));
    let program = b.desired.programs.get(&service.key()).map(|desired| Arc::clone(&desired.program));
    cleaner.follow([(service.key(), program)], Depth::Changes);
    let (is_tracked, networks) = (b.backend.is_tracked(), &b.desired.networks);
    let cleaned = b.hosts.at(Node).run(|| {
        if is_tracked {
            cleaner.run(networks, Instant::now(), Timestamp::from_unix_seconds(0), 0)
        } else {
            cleaner.run_for_relays(networks, Instant::now(), 0)
        }
    });
    cleaned.expect("the conntrack table is cleaned");
}

/// Sends the first segment of a connection without waiting for an answer. `own` is the address and port of the
/// client; the kernel chooses if `None`.
fn begin(to: SocketAddr, own: Option<SocketAddr>) -> TcpStream {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None).unwrap();
    if let Some(own) = own {
        setsockopt(&socket, sockopt::ReuseAddr, &true).unwrap();
        bind(socket.as_raw_fd(), &SockaddrStorage::from(own)).unwrap();
    }
    let begun = connect(socket.as_raw_fd(), &SockaddrStorage::from(to));
    assert_eq!(begun, Err(Errno::EINPROGRESS));
    TcpStream::from(socket)
}

/// Waits until a connection is open, and returns the time since it was begun; `None` if it does not open.
fn opened(stream: &TcpStream, begun: Instant) -> Option<Duration> {
    while begun.elapsed() < PATIENCE {
        if stream.peer_addr().is_ok() {
            return Some(begun.elapsed());
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Closes a connection by a reset, so that its port is free at once.
fn close(stream: TcpStream) {
    setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 }).unwrap();
    drop(stream);
    thread::sleep(SETTLE);
}

/// Connection to an echo server.
struct Connection {
    reader: BufReader<TcpStream>,
    from: Spot,
}

impl Connection {
    fn open(b: &Bench, from: Spot, to: IpAddr) -> Self {
        let stream = b.hosts.at(from).run(|| {
            TcpStream::connect_timeout(&SocketAddr::new(to, 80), PATIENCE).expect("the connection opens")
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connection = Self { reader: BufReader::new(stream), from };
        let mut banner = String::new();
        connection.reader.read_line(&mut banner).expect("the server sends its name");
        connection
    }

    /// Sends a line and asserts that the server echoes it.
    fn echo(&mut self, word: &str) {
        let line = format!("{word}\n");
        let sent = self.reader.get_mut().write_all(line.as_bytes());
        let mut echoed = String::new();
        let read = sent.and_then(|()| self.reader.read_line(&mut echoed));
        assert!(read.is_ok() && echoed == line, "{word}, from {:?}: {read:?} {echoed:?}", self.from);
    }
}
