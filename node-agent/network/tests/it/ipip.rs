//! IPIP between nodes. Packets in the tunnel need the guest, because the kernel of this machine may have no IPIP; the guest has no
//! nf_tables for them, so the protection is tested on this machine.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use network::{
    desired::{DesiredNetwork, Encapsulation, TunnelKind},
    plan::workload_mtu,
    routes::{
        handover::{KEEP_TIME, SWITCH_DELAY},
        keeper::{self, RouteKeeper, RoutePass, TunnelPermit},
    },
};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

use crate::{
    attach::Machine,
    capture::{Capture, Seen},
    support::{Namespace, Site, desired_v4, name, run},
    traffic::Pod,
};

/// Protocol number of IPv4 in IP.
const IPIP: u8 = 4;
/// Port of the workloads.
const PORT: u16 = 7;
/// Maximum time for a packet, also if other guests use the machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Environment variable that `lab/guest.sh` sets in the guest.
const GUEST: &str = "TIDEGATE_GUEST";

/// Runs `work` in the guest: starts the test with the full name `test` again there.
fn in_guest(test: &str, work: impl FnOnce()) {
    if std::env::var_os(GUEST).is_some() {
        return work();
    }
    let mut guest = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/guest.sh"));
    guest.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let output = guest.stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // The script fails if no test passed.
    assert!(output.status.success(), "{test} failed in the guest: {}\n{text}", output.status);
}

fn load(module: &str) {
    run("modprobe", &["-q", "-d", "/run/modules", module]);
}

/// Node of a site with a workload, whose interface the test itself makes.
struct Node<'a> {
    own: &'static str,
    namespace: &'a Namespace,
    keeper: RouteKeeper,
    pod: Namespace,
    address: Ipv4Addr,
    workloads: BTreeMap<IpAddr, u32>,
}

impl<'a> Node<'a> {
    fn start(own: &'static str, number: u8, namespace: &'a Namespace, mtu: u32) -> Self {
        let pod = Namespace::new(&format!("on-{own}"));
        let address = Ipv4Addr::new(10, 9, number, 5);
        namespace
            .ip(&format!("link add pod0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {}", pod.name));
        namespace.ip("addr add 169.254.1.1/32 dev pod0");
        namespace.ip("link set pod0 up");
        pod.ip(&format!("addr add {address}/32 dev eth0"));
        pod.ip("link set eth0 up");
        pod.ip("route add 169.254.1.1 dev eth0 scope link");
        pod.ip("route add default via 169.254.1.1");
        let index = namespace.inside(|| nix::net::if_::if_nametoindex("pod0").unwrap());
        let workloads = BTreeMap::from([(address.into(), index)]);
        Self { own, namespace, keeper: open(own, namespace), pod, address, workloads }
    }

    /// Makes a pass at a time.
    fn pass(&mut self, desired: &DesiredNetwork, now: Instant) -> RoutePass {
        let Self { namespace, keeper, workloads, .. } = self;
        namespace.inside(|| {
            let observed = keeper.observe(desired, workloads).unwrap();
            keeper.apply(observed, TunnelPermit::Allowed, now).unwrap()
        })
    }

    /// Makes a pass that has no failure, and returns the number of changes.
    fn settle(&mut self, desired: &DesiredNetwork, now: Instant) -> u64 {
        let passed = self.pass(desired, now);
        assert!(passed.rejected.is_empty() && passed.failure.is_none(), "{passed:?}");
        passed.writes
    }

    /// Replaces the keeper by that of a new process.
    fn restart(&mut self) {
        self.keeper = open(self.own, self.namespace);
    }

    fn bind(&self, port: u16) -> UdpSocket {
        let address = SocketAddr::from((self.address, port));
        let socket = self.pod.inside(|| UdpSocket::bind(address).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn has(&self, device: &str) -> bool {
        self.namespace.ip("-o link").contains(device)
    }
}

fn open(own: &str, namespace: &Namespace) -> RouteKeeper {
    namespace.inside(|| RouteKeeper::open(name(own)).unwrap())
}

/// Sends a datagram between workloads, and one back.
fn exchange(from: &Node<'_>, to: &Node<'_>, bytes: usize) {
    let (client, server) = (from.bind(0), to.bind(PORT));
    client.send_to(&vec![0x55; bytes], (to.address, PORT)).unwrap();
    let mut buffer = vec![0; 4096];
    let routes = |node: &Node<'_>| node.namespace.ip("route show proto 116");
    let lost = |which: &str| format!("{which} was lost: {} {}", routes(from), routes(to));
    let received = server.recv_from(&mut buffer);
    let (length, source) = received.unwrap_or_else(|error| panic!("{error}: {}", lost("the request")));
    assert_eq!((length, source.ip()), (bytes, IpAddr::from(from.address)));
    server.send_to(&buffer[..length], source).unwrap();
    let length = client.recv(&mut buffer);
    assert_eq!(length.unwrap_or_else(|error| panic!("{error}: {}", lost("the reply"))), bytes);
}

/// Sends bytes over a TCP connection between workloads, and the same back.
fn converse(from: &Node<'_>, to: &Node<'_>) {
    let bytes: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let address = SocketAddr::from((to.address, PORT));
    let listener = to.pod.inside(|| TcpListener::bind(address).unwrap());
    let mut client = from.pod.inside(|| TcpStream::connect_timeout(&address, PATIENCE).unwrap());
    let (mut server, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from(from.address));
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    std::thread::scope(|scope| {
        let length = bytes.len();
        scope.spawn(move || {
            let mut received = vec![0; length];
            server.read_exact(&mut received).unwrap();
            server.write_all(&received).unwrap();
        });
        client.write_all(&bytes).unwrap();
        let mut echoed = vec![0; length];
        client.read_exact(&mut echoed).unwrap();
        assert_eq!(echoed, bytes);
    });
}

/// Returns the captured packets between the nodes and between workloads.
fn of_site(capture: &Capture) -> Vec<Seen> {
    let is_of_site = |address: IpAddr| {
        let text = address.to_string();
        ["192.0.2.", "198.51.100.", "10.9."].iter().any(|prefix| text.starts_with(prefix))
    };
    let packets = capture.packets().into_iter();
    packets.filter(|seen| is_of_site(seen.source) && is_of_site(seen.destination)).collect()
}

/// F156: across a router that knows nothing of workload addresses, TCP flows in both directions in protocol 4, and packets of
/// the largest size are not fragmented. Packets on one segment are not encapsulated. A kernel without IPIP is a failure with the
/// remedy; changes of other programs are repaired, a restart writes nothing, a change to VXLAN loses no packet, and the
/// removal leaves the device `tunl0` of the module and everything else as before.
#[test]
fn f156_workloads_talk_in_protocol_4_across_a_router_that_knows_none_of_them() {
    in_guest("ipip::f156_workloads_talk_in_protocol_4_across_a_router_that_knows_none_of_them", || {
        let site = Site::new();
        let state = desired_v4(Encapsulation::CrossSubnet, TunnelKind::Ipip);
        without_module(&site, &state);
        load("ipip");
        let mut nodes = [("a", 1, &site.a), ("b", 2, &site.b), ("c", 3, &site.c)]
            .map(|(own, number, namespace)| Node::start(own, number, namespace, 1480));
        beside_another_program(&mut nodes[0], &state);
        let before = nodes.each_ref().map(|node| node.namespace.settled_listing());
        assert!(before.iter().all(|listing| listing.contains("tunl0")), "{before:?}");
        traffic(&site, &mut nodes, &state);
        drift(&mut nodes[0], &state);
        change_of_tunnel(&site, &mut nodes, &state);

        let [mut a, b, c] = nodes;
        a.workloads.clear();
        assert!(a.settle(&DesiredNetwork::default(), Instant::now()) >= 4);
        for node in [&b, &c] {
            assert!(node.namespace.inside(|| keeper::cleanup().unwrap()) >= 4);
        }
        let after = [&a, &b, &c].map(|node| node.namespace.settled_listing());
        assert_eq!(after, before);
    });
}

/// Input: a kernel without IPIP. Output: the failure names the module and the remedy, and the routes without a tunnel are there.
fn without_module(site: &Site, state: &DesiredNetwork) {
    let mut keeper = open("a", &site.a);
    let passed = site.a.inside(|| {
        let observed = keeper.observe(state, &BTreeMap::new()).unwrap();
        keeper.apply(observed, TunnelPermit::Allowed, Instant::now()).unwrap()
    });
    let failure = passed.failure.expect("the kernel has no IPIP yet");
    assert!(failure.contains("no IPIP tunnels") && failure.contains("modprobe ipip"), "{failure}");
    let routes = site.a.ip("route show proto 116");
    assert!(routes.contains("10.9.2.0/26 via 192.0.2.2") && !routes.contains("10.9.3.0"), "{routes}");
    site.a.inside(|| keeper::cleanup().unwrap());
}

/// Input: a device of another program that receives all IPIP packets. Output: the failure names it, and no device is created
/// before it is down.
fn beside_another_program(a: &mut Node<'_>, state: &DesiredNetwork) {
    a.namespace.ip("link set tunl0 up");
    let failure = a.pass(state, Instant::now()).failure.expect("another program uses tunl0");
    assert!(failure.contains("tunl0") && failure.contains("Vxlan"), "{failure}");
    assert!(!a.has("tg-ipip"));
    a.namespace.ip("link set tunl0 down");
    a.namespace.inside(|| keeper::cleanup().unwrap());
}

fn traffic(site: &Site, nodes: &mut [Node<'_>; 3], state: &DesiredNetwork) {
    let now = Instant::now();
    for node in nodes.iter_mut() {
        let passed = node.pass(state, now);
        assert!(passed.failure.is_none() && passed.rejected.is_empty(), "{passed:?}");
        assert_eq!(workload_mtu(&name(node.own), &name("pods"), state, &passed.uplinks), 1480);
        assert_eq!(node.settle(state, now), 0);
        node.restart();
        assert_eq!(node.settle(state, now), 0, "a new process recognizes its objects");
    }
    let [a, b, c] = nodes;
    let routes = a.namespace.ip("route show proto 116");
    for expected in [
        "10.9.2.0/26 via 192.0.2.2 dev eth0",
        "10.9.3.0/26  encap ip id 0 src 0.0.0.0 dst 198.51.100.3 ttl 0 tos 0 dev tg-ipip scope link",
    ] {
        assert!(routes.contains(expected), "{expected}: {routes}");
    }
    let device = a.namespace.ip("-d link show tg-ipip");
    assert!(device.contains("mtu 1480") && device.contains("ipip external"), "{device}");
    let known = site.router.ip("route");
    assert!(!known.contains("10.9."), "{known}");

    let capture = Capture::open(&site.router);
    converse(a, c);
    converse(c, a);
    let packets = of_site(&capture);
    assert!(packets.len() > 1 && packets.iter().all(|seen| seen.protocol == IPIP), "{packets:?}");

    // A datagram that fills the interface of the workload, which sets the flag not to fragment it.
    let capture = Capture::open(&site.router);
    exchange(a, c, 1480 - 28);
    let packets = of_site(&capture);
    let is_full = |seen: &Seen| seen.protocol == IPIP && seen.length == 1500 && !seen.is_fragment;
    assert!(!packets.is_empty() && packets.iter().all(is_full), "{packets:?}");

    // The node itself reaches workloads behind the tunnel.
    let (client, server) = (a.namespace.inside(|| UdpSocket::bind(("192.0.2.1", 0)).unwrap()), c.bind(PORT));
    client.send_to(b"node", (c.address, PORT)).unwrap();
    let source = server.recv_from(&mut [0; 16]).unwrap().1;
    assert_eq!(source.ip().to_string(), "192.0.2.1");

    let capture = Capture::open(&site.router);
    exchange(a, b, 100);
    let packets = of_site(&capture);
    assert!(!packets.is_empty() && packets.iter().all(|seen| seen.protocol != IPIP), "{packets:?}");
}

/// Input: changes of other programs. Output: each is repaired by the next pass, which is followed by one without changes.
fn drift(a: &mut Node<'_>, state: &DesiredNetwork) {
    let now = Instant::now();
    for change in [
        "route del 10.9.3.0/26 metric 7440",
        "link set tg-ipip mtu 1400",
        "link set tg-ipip down",
        "link del tg-ipip",
    ] {
        a.namespace.ip(change);
        assert!(a.settle(state, now) > 0, "{change}");
        assert_eq!(a.settle(state, now), 0, "{change}");
        assert!(a.namespace.ip("route show 10.9.3.0/26").contains("dev tg-ipip"), "{change}");
        assert!(a.namespace.ip("link show tg-ipip").contains("mtu 1480"), "{change}");
    }
}

/// Input: a change to VXLAN that reaches one node before the other, first without the module. Output: packets pass after each
/// step, and the former device goes in the end.
fn change_of_tunnel(site: &Site, nodes: &mut [Node<'_>; 3], state: &DesiredNetwork) {
    let [a, _, c] = nodes;
    let vxlan = desired_v4(Encapsulation::CrossSubnet, TunnelKind::Vxlan);
    let mut now = Instant::now();
    for _ in 0..2 {
        let failure = a.pass(&vxlan, now).failure.expect("the kernel has no VXLAN yet");
        assert!(failure.contains("modprobe vxlan"), "{failure}");
        exchange(a, c, 100);
        now += 2 * KEEP_TIME;
    }
    load("vxlan");
    for (target, former, current) in [(&vxlan, "tg-ipip", "tg-vx"), (state, "tg-vx", "tg-ipip")] {
        now += KEEP_TIME;
        for delay in [Duration::ZERO, SWITCH_DELAY, KEEP_TIME + SWITCH_DELAY] {
            // One node is late.
            for (own, node_delay) in [("a", Duration::ZERO), ("c", SWITCH_DELAY / 2)] {
                let node = if own == "a" { &mut *a } else { &mut *c };
                node.settle(target, now + delay + node_delay);
                assert!(node.has(current));
                exchange(a, c, 100);
                exchange(c, a, 100);
            }
        }
        for node in [&*a, &*c] {
            assert!(!node.has(former), "{}", node.own);
        }
        now += 2 * KEEP_TIME;
        assert_eq!((a.settle(target, now), c.settle(target, now)), (0, 0));
    }
    let capture = Capture::open(&site.router);
    exchange(a, c, 100);
    assert!(of_site(&capture).iter().all(|seen| seen.protocol == IPIP));
}

/// Sends a packet of protocol 4 from an address of a namespace.
fn send_ipip(namespace: &Namespace, source: &str, destination: &str) {
    let [from, to] = [source, destination].map(|text| text.parse::<Ipv4Addr>().unwrap());
    // The kernel fills in the length and the checksum of the outer header.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, IPIP, 0, 0];
    packet.extend(from.octets().into_iter().chain(to.octets()));
    packet.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 2, 1, 10, 9, 1, 0]);
    let flags = SockFlag::SOCK_CLOEXEC;
    let open = || socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw).unwrap();
    let raw = namespace.inside(open);
    let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
    assert_eq!(sendto(raw.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap(), packet.len());
}

/// F156: packets of protocol 4 from a machine that is no node, and from a workload, are dropped, and those of a node arrive. A kernel
/// without IPIP is a failure that names the module; the routes without a tunnel are there.
#[test]
fn f156_protocol_4_of_workloads_and_strangers_is_dropped() {
    let site = Site::new();
    let state = desired_v4(Encapsulation::CrossSubnet, TunnelKind::Ipip);
    let mut a = Machine::start("a", &site.a);
    let passed = a.run(|engine| {
        engine.desire(state.clone());
        engine.pass().unwrap().unwrap()
    });
    assert!(site.a.ip("route show proto 116").contains("10.9.2.0/26 via 192.0.2.2"));
    let has_device = site.a.ip("-o link").contains("tg-ipip");
    match passed.failure {
        None => assert!(has_device),
        Some(failure) => assert!(!has_device && failure.contains("modprobe ipip"), "{failure}"),
    }

    // Counters behind the rules of the agent, whose chain has the priority -10.
    let rules = "add table inet seen
        add chain inet seen input { type filter hook input priority 0; }
        add counter inet seen stranger
        add counter inet seen node
        add rule inet seen input meta l4proto 4 ip saddr 192.0.2.254 counter name stranger
        add rule inet seen input meta l4proto 4 ip saddr 192.0.2.2 counter name node";
    site.a.inside(|| run("nft", &[rules]));
    let seen = |counter: &str| {
        let text = site.a.inside(|| run("nft", &["list", "counter", "inet", "seen", counter]));
        !text.contains("packets 0 ")
    };
    site.router.ip("addr add 192.0.2.2/24 dev br0");
    send_ipip(&site.router, "192.0.2.254", "192.0.2.1");
    send_ipip(&site.router, "192.0.2.2", "192.0.2.1");
    let end = Instant::now() + Duration::from_secs(5);
    while !seen("node") {
        assert!(Instant::now() < end, "a packet of a node is dropped");
    }
    assert!(!seen("stranger"), "a packet of a stranger is accepted");

    let pod = Pod::start(&mut a, "on-a");
    let own = pod.attached.addresses[0].to_string();
    let capture = Capture::open(&site.router);
    send_ipip(&pod.namespace, &own, "198.51.100.3");
    send_ipip(&pod.namespace, &own, "192.0.2.254");
    let last = pod.namespace.inside(|| UdpSocket::bind((own.as_str(), 0)).unwrap());
    last.send_to(b"last", ("198.51.100.3", PORT)).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    let mut packets = Vec::new();
    while !packets.iter().any(|seen: &Seen| seen.port == PORT) {
        assert!(Instant::now() < end, "{packets:?}");
        packets.extend(of_site(&capture));
    }
    assert!(packets.iter().all(|seen| seen.protocol != IPIP), "{packets:?}");

    // Without workload networks, nothing of the agent stays.
    a.run(|engine| engine.detach(&crate::attach::key("on-a"), 0)).unwrap();
    a.run(|engine| {
        engine.desire(DesiredNetwork::default());
        engine.pass().unwrap()
    });
    let tables = site.a.inside(|| run("nft", &["list", "tables"]));
    assert_eq!(tables.trim(), "table inet seen");
}
