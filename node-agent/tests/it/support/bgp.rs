//! BGP test network: speakers of Tidegate in namespaces, and a BGP neighbor that the test controls message by
//! message.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use bgp::{
    Capability, Family, Message, Open,
    export::Route,
    wire::{self, Context, HEADER_BYTES},
};
use ipnet::IpNet;
use model::{
    bgp::{
        report::{BgpSession, BgpSessionState},
        settings::{BgpNeighbour, BgpRemote, BgpState},
    },
    kinds::bgp_peer::{BgpFamily, PeerAsn},
    primitives::{name::Name, secret::Secret},
};
use node_agent::{
    bfd::Bfd,
    bgp::{AdvertisedRoute, Leave, NeighbourKey, Speaker},
    links::{Link, Links},
};
use tokio::sync::watch;

use super::{
    Namespace,
    bfd::{Pair, eventually},
};

pub const OURS: u32 = 65_001;
pub const THEIRS: u32 = 65_002;
/// Addresses of the interface `eth0` with their prefix lengths, as the agent finds them.
pub const LINK: [(&str, u8); 2] = [("192.0.2.1", 24), ("2001:db8::1", 64)];
pub const THEIR_LINK: [(&str, u8); 2] = [("192.0.2.2", 24), ("2001:db8::2", 64)];

/// BGP speaker of Tidegate in a namespace.
pub struct Node {
    pub speaker: Speaker,
    pub bfd: Bfd,
    links: watch::Sender<Links>,
}

impl Node {
    /// Starts a speaker in a namespace whose interface `eth0` has index 2 and these addresses.
    pub fn start(namespace: &Namespace, node: &str, addresses: &[(&str, u8)]) -> Self {
        let (sender, links) = watch::channel(Links::default());
        let (speaker, bfd) = namespace.run(|| {
            let bfd = Bfd::start().unwrap();
            (Speaker::start(&name(node), bfd.share(), links).unwrap(), bfd)
        });
        let node = Self { speaker, bfd, links: sender };
        node.set_addresses(2, addresses);
        node
    }

    /// Replaces the index and the addresses of `eth0` that the speaker uses.
    pub fn set_addresses(&self, index: u32, addresses: &[(&str, u8)]) {
        let addresses = addresses.iter().map(|(address, length)| (address.parse().unwrap(), *length));
        let link = Link { name: "eth0".to_owned(), mac: None, is_up: true, addresses: addresses.collect() };
        self.links.send_replace(Links { by_index: [(index, link)].into_iter().collect() });
    }

    pub fn configure<const N: usize>(&self, asn: u32, peers: [(&str, BgpNeighbour); N]) {
        self.speaker.configure(Some(&state(asn, peers)));
    }

    /// Returns the session with the peer `peer`. For a neighbor that was accepted dynamically, the name is
    /// `peer@address`.
    pub fn session(&self, peer: &str) -> Option<BgpSession> {
        let shown = self.speaker.shown().borrow().clone();
        shown.neighbours.get(&key(peer)).map(|shown| shown.session.clone())
    }

    pub fn told(&self, peer: &str, prefix: &str) -> Option<AdvertisedRoute> {
        let shown = self.speaker.shown().borrow().clone();
        shown.neighbours.get(&key(peer))?.told.get(&net(prefix)).cloned()
    }

    /// Waits until the session with a peer satisfies a condition and returns the session.
    pub fn wait(&self, peer: &str, what: &str, holds: impl Fn(&BgpSession) -> bool) -> BgpSession {
        let is_so = || self.session(peer).is_some_and(|session| holds(&session));
        eventually(&format!("{peer}: {what}"), is_so, || format!("{:#?}", self.session(peer)));
        self.session(peer).unwrap()
    }

    pub fn wait_established(&self, peer: &str) -> BgpSession {
        self.wait(peer, "established", is_established)
    }

    pub fn change(&self, peer: &str, prefixes: &[&str], route: Option<&Route>) {
        let changes = prefixes.iter().map(|prefix| (name(peer), net(prefix), route.cloned()));
        self.speaker.change(changes.collect());
    }

    pub fn leave(self, how: Leave) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.speaker.leave(how));
    }
}

/// Creates two namespaces on one link and starts a speaker without peers in each.
pub fn two(test: &str) -> (Pair, Node, Node) {
    let pair = Pair::new(test);
    let one = Node::start(&pair.ours, "one", &LINK);
    let other = Node::start(&pair.theirs, "other", &THEIR_LINK);
    (pair, one, other)
}

pub fn them(addresses: (&str, &str)) -> BgpNeighbour {
    neighbour(OURS, addresses.1, THEIRS)
}

pub fn us(addresses: (&str, &str)) -> BgpNeighbour {
    neighbour(THEIRS, addresses.0, OURS)
}

pub fn med(med: u32) -> Route {
    Route { med: Some(med), ..Route::default() }
}

pub fn is_established(session: &BgpSession) -> bool {
    session.state == BgpSessionState::Established
}

pub fn name(text: &str) -> Name {
    Name::try_from(text.to_owned()).unwrap()
}

pub fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn key(text: &str) -> NeighbourKey {
    match text.split_once('@') {
        None => NeighbourKey { peer: name(text), address: None },
        Some((peer, address)) => NeighbourKey { peer: name(peer), address: Some(address.parse().unwrap()) },
    }
}

/// Builds the BGP settings of a node with an AS number and peers. The BGP Identifier is derived from the AS
/// number.
pub fn state<const N: usize>(asn: u32, peers: [(&str, BgpNeighbour); N]) -> BgpState {
    BgpState {
        asn,
        router_id: Ipv4Addr::from(asn),
        is_draining: false,
        peers: peers.into_iter().map(|(peer, neighbour)| (name(peer), neighbour)).collect(),
        advertisements: Default::default(),
        blocks: Default::default(),
    }
}

/// Builds the configuration of a directly connected neighbor with another AS number (eBGP), with short
/// timers.
pub fn neighbour(local_asn: u32, remote: &str, peer_asn: u32) -> BgpNeighbour {
    BgpNeighbour {
        remote: BgpRemote::Address(remote.parse().unwrap()),
        peer_asn: PeerAsn::Number(peer_asn),
        local_asn,
        port: 179,
        source_address: None,
        device: None,
        hold_time: 9,
        keepalive_time: None,
        connect_time: 1,
        password: None,
        ttl: 1,
        ttl_security: None,
        passive: false,
        families: BTreeSet::from([BgpFamily::IPv4, BgpFamily::IPv6]),
        graceful_restart: None,
        role: None,
        bfd: None,
        max_prefixes: 1_000_000,
        route_reflector_client: false,
    }
}

pub fn password(text: &str) -> Option<Secret> {
    Some(Secret::new(text.to_owned()))
}

/// BGP neighbor that the test controls message by message, in a session for which OPEN and KEEPALIVE have
/// already been exchanged.
pub struct Puppet {
    pub stream: TcpStream,
    pub context: Context,
}

impl Puppet {
    /// Connects to a speaker from an address in a namespace, and establishes the session.
    pub fn connect(namespace: &Namespace, from: &str, to: &str, asn: u32) -> Self {
        let stream = connect(namespace, from, to, Duration::from_secs(20)).expect("somebody listens");
        Self::greet(stream, asn)
    }

    /// Establishes a session on an open connection.
    pub fn greet(mut stream: TcpStream, asn: u32) -> Self {
        let open = Open {
            asn,
            hold_time: 90,
            router_id: Ipv4Addr::from(asn),
            capabilities: vec![
                Capability::MultiProtocol(Family::Ipv4Unicast),
                Capability::MultiProtocol(Family::Ipv6Unicast),
                Capability::FourOctetAs(asn),
            ],
        };
        let context = Context { four_octet_as: true, is_external: true, ..Context::default() };
        stream.write_all(&wire::encode(&Message::Open(open), &Context::default()).unwrap()).unwrap();
        stream.write_all(&wire::encode(&Message::Keepalive, &context).unwrap()).unwrap();
        Self { stream, context }
    }

    pub fn send(&mut self, message: &Message) -> std::io::Result<()> {
        self.stream.write_all(&wire::encode(message, &self.context).unwrap())
    }

    /// Returns the next message from the speaker, or `None` at the end of the connection.
    pub fn receive(&mut self) -> Option<Message> {
        let mut frame = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut frame).ok()?;
        let header: &[u8; HEADER_BYTES] = frame.first_chunk().unwrap();
        let length = wire::frame_length(header, &self.context).unwrap();
        frame.resize(length, 0);
        self.stream.read_exact(&mut frame[HEADER_BYTES..]).ok()?;
        Some(wire::decode(&frame, &self.context).unwrap().message)
    }
}

/// Connects from an address in a namespace. While the port is closed, retries for at most the time
/// `patience`; then returns `None`.
pub fn connect(namespace: &Namespace, from: &str, to: &str, patience: Duration) -> Option<TcpStream> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connected = tokio::time::timeout(patience, async {
                loop {
                    let socket = if from.is_ipv4() {
                        tokio::net::TcpSocket::new_v4().unwrap()
                    } else {
                        tokio::net::TcpSocket::new_v6().unwrap()
                    };
                    socket.bind(SocketAddr::new(from, 0)).unwrap();
                    match socket.connect(SocketAddr::new(to, 179)).await {
                        Ok(stream) => return stream.into_std().unwrap(),
                        Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    }
                }
            });
            let stream = connected.await.ok()?;
            stream.set_nonblocking(false).unwrap();
            Some(stream)
        })
    })
}

/// Listens at an address in a namespace.
pub fn listen(namespace: &Namespace, at: &str) -> TcpListener {
    let at: IpAddr = at.parse().unwrap();
    namespace.run(|| TcpListener::bind(SocketAddr::new(at, 179)).unwrap())
}
