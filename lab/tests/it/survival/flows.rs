//! Many established TCP connections at once: servers that echo or send, and a client that checks each line.
//!
//! All lines of a connection are consecutive numbers, so that a lost, repeated or foreign line is detected.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::{fixtures::scene::BACKEND_PORT, host::netns::Namespace, network::client::Reply};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximum time to wait for a line. Retransmissions after a failover take less.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two numbers of [`Manner::Stream`].
const PACE: Duration = Duration::from_millis(25);
/// Maximum time to wait for a readable socket, in milliseconds.
const TURN_MS: u8 = 10;

/// Direction and load of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Manner {
    /// Idle; the client speaks first after the fault.
    Echo,
    /// Idle; the server speaks first after the fault.
    Push,
    /// The client sends the next number after the echo of the last one.
    BusyEcho,
    /// The server sends a number every [`PACE`].
    Stream,
}

impl Manner {
    pub(super) const ALL: [Self; 4] = [Self::Echo, Self::Push, Self::BusyEcho, Self::Stream];

    const fn byte(self) -> u8 {
        match self {
            Self::Echo => b'e',
            Self::Push => b'p',
            Self::BusyEcho => b'b',
            Self::Stream => b's',
        }
    }

    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|manner| manner.byte() == byte)
    }

    /// True if the client speaks first.
    pub(super) const fn is_client_first(self) -> bool {
        match self {
            Self::Echo | Self::BusyEcho => true,
            Self::Push | Self::Stream => false,
        }
    }
}

/// Orders to all servers of a test.
#[derive(Debug, Clone, Default)]
pub(super) struct Orders {
    /// Number of pushes so far.
    pushes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Orders {
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// Complete lines of a stream.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Reads all available bytes. Returns the complete lines, or `None` if the connection has ended.
    fn read(&mut self, mut stream: &TcpStream) -> Option<Vec<String>> {
        let mut chunk = [0; 4096];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(bytes) => self.0.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        let end = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.0.drain(..end).collect();
        Some(String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect())
    }
}

/// Returns for each of the streams if it can be read, after at most [`TURN_MS`].
fn readable<'a>(streams: impl Iterator<Item = &'a TcpStream>) -> Vec<bool> {
    let mut waiting: Vec<_> = streams.map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN)).collect();
    if poll(&mut waiting, PollTimeout::from(TURN_MS)).is_err() {
        return vec![false; waiting.len()];
    }
    waiting.iter().map(|fd| fd.any().unwrap_or(false)).collect()
}

/// Connection at a server.
struct Served {
    stream: TcpStream,
    lines: Lines,
    manner: Option<Manner>,
    /// Number of pushes before the connection.
    pushes: u64,
    sent: u64,
    at: Instant,
}

/// Starts a server in a namespace that greets each client with its name and the address of the client. The first byte
/// of a client selects the [`Manner`].
pub(super) fn serve(namespace: &Namespace, name: &str, orders: &Orders) {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, BACKEND_PORT));
    let listener = namespace.inside(|| TcpListener::bind(everywhere)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (name, orders) = (name.to_owned(), orders.clone());
    thread::spawn(move || {
        let mut all: Vec<Served> = Vec::new();
        while !orders.is_over.load(Ordering::SeqCst) {
            let ready = readable(all.iter().map(|one| &one.stream));
            let pushes = orders.pushes.load(Ordering::SeqCst);
            let mut ready = ready.into_iter();
            all.retain_mut(|one| turn(one, ready.next().unwrap_or(false), pushes).is_some());
            while let Ok((mut stream, peer)) = listener.accept() {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                let greeting = format!("backend {name} port {BACKEND_PORT} saw {peer}\n");
                if stream.set_nonblocking(true).is_ok() && stream.write_all(greeting.as_bytes()).is_ok() {
                    let (lines, at) = (Lines::default(), Instant::now());
                    all.push(Served { stream, lines, manner: None, pushes, sent: 0, at });
                }
            }
        }
    });
}

/// Reads and sends. Returns `None` if the connection has ended.
fn turn(one: &mut Served, is_readable: bool, pushes: u64) -> Option<()> {
    let lines = if is_readable { one.lines.read(&one.stream)? } else { Vec::new() };
    let mut reply = String::new();
    for line in lines {
        match one.manner {
            None => one.manner = Manner::of_byte(*line.as_bytes().first()?),
            Some(_) => {
                reply.push_str(&line);
                reply.push('\n');
            }
        }
    }
    let is_due = match one.manner {
        Some(Manner::Push) => one.sent < pushes - one.pushes,
        Some(Manner::Stream) => one.at.elapsed() >= PACE,
        Some(Manner::Echo | Manner::BusyEcho) | None => false,
    };
    if is_due {
        (one.sent, one.at) = (one.sent + 1, Instant::now());
        reply.push_str(&one.sent.to_string());
        reply.push('\n');
    }
    one.stream.write_all(reply.as_bytes()).ok()
}

/// Connection of the client.
pub(super) struct Flow {
    stream: TcpStream,
    lines: Lines,
    pub(super) manner: Manner,
    pub(super) is_v4: bool,
    /// Name of the server.
    pub(super) server: String,
    /// True if the server sees the address of the client.
    pub(super) is_seen: bool,
    /// Number of pushes before the connection.
    pushes: u64,
    sent: u64,
    heard: u64,
    /// Number that must be heard for the connection to be alive.
    goal: u64,
    is_lost: bool,
}

impl Flow {
    fn open(to: SocketAddr, manner: Manner, pushes: u64) -> Self {
        let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.set_nodelay(true).unwrap();
        (&stream).write_all(&[manner.byte(), b'\n']).unwrap();
        let own = stream.local_addr().unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut lines, begun) = (Lines::default(), Instant::now());
        let mut heard = Vec::new();
        while heard.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "no greeting of {to}");
            readable([&stream].into_iter());
            heard = lines.read(&stream).expect("an open connection");
        }
        let Reply { backend: server, peer, .. } = Reply::parse(&heard.remove(0)).unwrap();
        let (is_seen, is_v4) = (peer == own, to.is_ipv4());
        let mut flow = Self {
            stream,
            lines,
            manner,
            is_v4,
            server,
            is_seen,
            pushes,
            sent: 0,
            heard: 0,
            goal: 0,
            is_lost: false,
        };
        flow.hear(&heard);
        flow
    }

    fn say(&mut self) {
        self.sent += 1;
        self.is_lost |= writeln!(&self.stream, "{}", self.sent).is_err();
    }

    fn hear(&mut self, lines: &[String]) {
        for line in lines {
            self.heard += 1;
            self.is_lost |= *line != self.heard.to_string();
        }
    }

    fn is_settled(&self) -> bool {
        self.is_lost || self.heard >= self.goal
    }
}

/// Established connections of a client, which a thread drives.
pub(super) struct Flows {
    orders: Orders,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Flow>>>,
    flows: Vec<Flow>,
}

/// Number of connections, and how many of them were lost, by IPv4 and by which side speaks first.
pub(super) type Losses = BTreeMap<(bool, bool), (usize, usize)>;

impl Flows {
    /// Opens `each` connections of each manner to each of the addresses.
    pub(super) fn open(client: &Namespace, to: &[SocketAddr], each: usize, orders: &Orders) -> Self {
        let pushes = orders.pushes.load(Ordering::SeqCst);
        let open = |to: &SocketAddr| {
            let all = Manner::ALL.into_iter().flat_map(|manner| std::iter::repeat_n(manner, each));
            all.map(|manner| Flow::open(*to, manner, pushes)).collect::<Vec<_>>()
        };
        let flows = client.inside(|| to.iter().flat_map(open).collect());
        Self { orders: orders.clone(), stop: Arc::default(), thread: None, flows }
    }

    /// Begins to send and receive.
    pub(super) fn start(&mut self) {
        let (mut flows, stop) = (std::mem::take(&mut self.flows), Arc::clone(&self.stop));
        stop.store(false, Ordering::SeqCst);
        self.thread = Some(thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let busy = |flow: &&mut Flow| flow.manner == Manner::BusyEcho && flow.sent == flow.heard;
                flows.iter_mut().filter(busy).for_each(Flow::say);
                hear(&mut flows);
            }
            flows
        }));
    }

    /// Ends the load, exchanges a line on every connection, and returns the connections that are lost: those that end, and
    /// those without the line after `patience`. They are removed.
    pub(super) fn check(&mut self, patience: Duration) -> (Losses, Vec<String>) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            self.flows = thread.join().unwrap();
        }
        let pushes = self.orders.pushes.load(Ordering::SeqCst) + 1;
        for flow in &mut self.flows {
            if flow.manner == Manner::Echo {
                flow.say();
            }
            flow.goal = match flow.manner {
                Manner::Echo | Manner::BusyEcho => flow.sent,
                Manner::Push => pushes - flow.pushes,
                // One number may have been on its way.
                Manner::Stream => flow.heard + 2,
            };
        }
        self.orders.pushes.store(pushes, Ordering::SeqCst);
        let begun = Instant::now();
        while begun.elapsed() < patience && !self.flows.iter().all(Flow::is_settled) {
            hear(&mut self.flows);
        }
        let mut losses = Losses::new();
        let mut named = Vec::new();
        for flow in &self.flows {
            let counts = losses.entry((flow.is_v4, flow.manner.is_client_first())).or_default();
            counts.0 += 1;
            if flow.is_lost || !flow.is_settled() {
                counts.1 += 1;
                let how = if flow.is_lost { "ended" } else { "stalled" };
                let client = flow.stream.local_addr().map(|at| at.to_string()).unwrap_or_default();
                named.push(format!("{client} {:?} to {}: {how}", flow.manner, flow.server));
            }
        }
        self.flows.retain(|flow| !flow.is_lost && flow.is_settled());
        (losses, named)
    }

    /// Closes the connections for which `stays` returns false.
    pub(super) fn retain(&mut self, stays: impl Fn(&Flow) -> bool) {
        self.flows.retain(|flow| stays(flow));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter()
    }
}

fn hear(flows: &mut [Flow]) {
    let ready = readable(flows.iter().map(|flow| &flow.stream));
    for (flow, _) in flows.iter_mut().zip(ready).filter(|(flow, is_ready)| *is_ready && !flow.is_lost) {
        match flow.lines.read(&flow.stream) {
            Some(lines) => flow.hear(&lines),
            None => flow.is_lost = true,
        }
    }
}
