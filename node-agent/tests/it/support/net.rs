//! Test network of a node, two workloads behind the node and an outside client, with functions that open
//! connections.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket;

use super::{Namespace, enter};

/// Maximum time to wait for an expected reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// Links of the node to the client and to both workloads: the interface of the node, and the addresses of both ends in
/// IPv4 and in IPv6.
const LINKS: [(&str, [&str; 4]); 3] = [
    ("to-client", ["192.0.2.1/24", "192.0.2.2/24", "2001:db8::1/64", "2001:db8::2/64"]),
    ("to-a", ["10.1.1.1/24", "10.1.1.2/24", "fd01:1::1/64", "fd01:1::2/64"]),
    ("to-b", ["10.1.2.1/24", "10.1.2.2/24", "fd01:2::1/64", "fd01:2::2/64"]),
];

/// Network namespaces of a client, a node, and the workloads a and b behind the node.
///
/// ```text
/// client 192.0.2.2, 2001:db8::2 ── node 192.0.2.1, 2001:db8::1 ─┬─ a 10.1.1.2, fd01:1::2
///                                                               └─ b 10.1.2.2, fd01:2::2
/// ```
/// The client and the workloads have their default routes through the node, and the node has its own to the
/// client.
pub struct Topology {
    pub node: Namespace,
    pub client: Namespace,
    pub a: Namespace,
    pub b: Namespace,
    servers: Vec<Server>,
}

impl Topology {
    /// Creates the namespaces, and starts echo servers on TCP and UDP port 8080 of both workloads.
    pub fn new(test: &str) -> Self {
        let mut topology = Self::silent(test);
        for (namespace, name) in [(&topology.a, "a"), (&topology.b, "b")] {
            topology.servers.push(Server::start(namespace, name, 8080));
        }
        topology
    }

    /// Creates the namespaces without servers.
    pub fn silent(test: &str) -> Self {
        let [node, client, a, b] =
            Namespace::several(["n", "c", "a", "b"].map(|end| format!("{test}-{end}")));
        // Disables the rate limit of ICMP errors.
        for (setting, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/icmp_ratelimit", "0"),
            ("ipv6/icmp/ratelimit", "0"),
        ] {
            node.run(|| fs::write(format!("/proc/sys/net/{setting}"), value)).expect("the setting exists");
        }
        let mut scripts = Vec::new();
        let mut script = "link set lo up\n".to_owned();
        for (other, (device, addresses)) in [&client, &a, &b].into_iter().zip(LINKS) {
            let [v4, other_v4, v6, other_v6] = addresses;
            script += &format!("link add {device} type veth peer name eth0 netns {}\n", other.name());
            script += &up(device, v4, v6);
            let gateway = |address: &str| address.split('/').next().unwrap().to_owned();
            let routes = [v4, v6].map(|address| format!("route add default via {}\n", gateway(address)));
            scripts.push((
                other,
                ["link set lo up\n", &up("eth0", other_v4, other_v6), &routes.concat()].concat(),
            ));
        }
        // Packets to virtual addresses need a route before they are translated.
        script += "route add default via 192.0.2.2\nroute add default via 2001:db8::2\n";
        node.batch(&script);
        for (other, script) in scripts {
            other.batch(&script);
        }
        Self { node, client, a, b, servers: Vec::new() }
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.servers.clear();
        Namespace::delete_several([&mut self.node, &mut self.client, &mut self.a, &mut self.b]);
    }
}

/// Returns the `ip` commands that give addresses to an interface and activate it.
fn up(device: &str, v4: &str, v6: &str) -> String {
    format!("addr add {v4} dev {device}\naddr add {v6} dev {device} nodad\nlink set {device} up\n")
}

/// Server that replies `name source-address` on a TCP port, and `name source-address request` on a UDP port; stops
/// when dropped. Its threads use no CPU while idle, which counts above all in a guest VM.
pub struct Server {
    stop: Arc<AtomicBool>,
    sockets: [OwnedFd; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub fn start(namespace: &Namespace, name: &str, port: u16) -> Self {
        let (tcp, udp) = namespace.run(|| {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            (TcpListener::bind(any).unwrap(), UdpSocket::bind(any).unwrap())
        });
        let sockets = [tcp.try_clone().unwrap().into(), udp.try_clone().unwrap().into()];
        let stop = Arc::new(AtomicBool::new(false));
        let (name, other_name) = (name.to_owned(), name.to_owned());
        let (stopped, other_stopped) = (Arc::clone(&stop), Arc::clone(&stop));
        let threads = vec![
            thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    if let Ok((mut stream, peer)) = tcp.accept() {
                        let _ = stream.write_all(answer(&name, peer).as_bytes());
                    }
                }
            }),
            thread::spawn(move || {
                let mut buffer = [0; 64];
                // A socket that is shut down has no sender, which `recv_from` does not expect.
                while udp.peek(&mut buffer).is_ok_and(|_| !other_stopped.load(Ordering::Relaxed)) {
                    if let Ok((length, peer)) = udp.recv_from(&mut buffer) {
                        let request = String::from_utf8_lossy(&buffer[..length]);
                        let reply = format!("{} {request}", answer(&other_name, peer));
                        let _ = udp.send_to(reply.as_bytes(), peer);
                    }
                }
            }),
        ];
        Self { stop, sockets, threads }
    }
}

fn answer(name: &str, peer: SocketAddr) -> String {
    format!("{name} {}", peer.ip().to_canonical())
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for socket in &self.sockets {
            // Wakes the threads. A UDP socket without a peer reports an error, and is shut down nevertheless.
            let _ = socket::shutdown(socket.as_raw_fd(), socket::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Reply of a server: its name, and the source address of the request that the server observed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    pub name: String,
    pub source: IpAddr,
}

fn parse(text: &str) -> Answer {
    let mut words = text.split(' ');
    let (Some(name), Some(source)) = (words.next(), words.next()) else { panic!("{text:?} is no answer") };
    Answer { name: name.to_owned(), source: source.parse().unwrap() }
}

impl Namespace {
    /// Opens a TCP connection and returns the reply of the server.
    pub fn ask_tcp(&self, ip: &str, port: u16) -> io::Result<Answer> {
        let address = SocketAddr::new(ip.parse().unwrap(), port);
        self.run(move || ask_tcp(address))
    }

    /// Opens `times` TCP connections one after another, from one thread, and returns the replies.
    pub fn ask_tcp_often(&self, ip: &str, port: u16, times: usize) -> Vec<Answer> {
        let address = SocketAddr::new(ip.parse().unwrap(), port);
        self.run(move || (0..times).map(|_| ask_tcp(address).unwrap()).collect())
    }

    /// Sends a UDP request from a new source port and returns the reply of the server.
    pub fn ask_udp(&self, ip: &str, port: u16) -> io::Result<Answer> {
        self.udp(ip, port).ask(PATIENCE)
    }

    /// Creates a UDP client with a fixed source port.
    pub fn udp(&self, ip: &str, port: u16) -> UdpClient {
        let address = SocketAddr::new(ip.parse().unwrap(), port);
        let name = self.name().to_owned();
        thread::spawn(move || {
            enter(&name);
            let any: SocketAddr = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
            let socket = UdpSocket::bind(any).unwrap();
            socket.connect(address).unwrap();
            UdpClient(socket)
        })
        .join()
        .unwrap()
    }
}

fn ask_tcp(address: SocketAddr) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(parse(&text))
}

pub struct UdpClient(UdpSocket);

impl UdpClient {
    /// Sends datagrams repeatedly until a reply to one of them arrives, and returns the reply. Replies to earlier
    /// requests, which another endpoint may have sent, are discarded.
    ///
    /// # Errors
    /// Returns an error if the datagrams are rejected or no reply arrives within the time `patience`.
    pub fn ask(&self, patience: Duration) -> io::Result<Answer> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let request = format!("request-{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        let end = Instant::now() + patience;
        self.0.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut buffer = [0; 128];
        self.0.send(request.as_bytes())?;
        loop {
            match self.0.recv(&mut buffer) {
                Ok(length) => {
                    let text = std::str::from_utf8(&buffer[..length]).unwrap();
                    if text.ends_with(&format!(" {request}")) {
                        return Ok(parse(text));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                    self.0.send(request.as_bytes())?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
