//! Packets between workloads of different nodes, and captures of them.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use attach_socket::AttachedWorkload;
use network::desired::Encapsulation;

use crate::{
    attach::{Machine, request},
    capture::{Capture, Seen},
    support::{Namespace, Site, desired},
};

/// UDP port of the workloads.
const PORT: u16 = 7;

/// Workload with its namespace.
pub(crate) struct Pod {
    pub(crate) namespace: Namespace,
    pub(crate) attached: AttachedWorkload,
}

impl Pod {
    pub(crate) fn start(machine: &mut Machine<'_>, id: &str) -> Self {
        let namespace = Namespace::new(id);
        let attached = machine.run(|engine| engine.attach(request(id, &namespace), 0)).unwrap();
        Self { namespace, attached }
    }
}

/// Sends a datagram of a size between workloads and returns the source address that the receiver sees. The reply must
/// arrive.
pub(crate) fn exchange(from: &Pod, to: &Pod, is_v6: bool, bytes: usize) -> IpAddr {
    let address =
        |pod: &Pod| *pod.attached.addresses.iter().find(|address| address.is_ipv6() == is_v6).unwrap();
    let bind = |pod: &Pod, port| {
        let socket = pod.namespace.inside(|| UdpSocket::bind(SocketAddr::new(address(pod), port)).unwrap());
        socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        socket
    };
    let (server, client) = (bind(to, PORT), bind(from, 0));
    let datagram = vec![0x55; bytes];
    client.send_to(&datagram, (address(to), PORT)).unwrap();
    let mut buffer = vec![0; 4096];
    let (length, source) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(length, bytes);
    server.send_to(&buffer[..length], source).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), bytes);
    source.ip()
}

fn of_workloads(packets: &std::collections::BTreeSet<Seen>) -> Vec<&Seen> {
    packets
        .iter()
        .filter(|packet| {
            packet.source.to_string().starts_with("10.9.") || packet.source.to_string().starts_with("fd09")
        })
        .collect()
}

/// Workloads on one segment exchange packets without encapsulation and with their own addresses; those in different subnets
/// through a router that has no route to them, in VXLAN-GPE. (F157, F158)
#[test]
fn f157_f158_packets_on_a_segment_are_unchanged_and_a_router_without_routes_carries_the_others() {
    let site = Site::new();
    let state = desired(Encapsulation::CrossSubnet);
    let [mut a, mut b, mut c] = [("a", &site.a), ("b", &site.b), ("c", &site.c)].map(|(own, namespace)| {
        let mut machine = Machine::start(own, namespace);
        machine.desire(state.clone());
        machine
    });
    let [pod_a, pod_b, pod_c] =
        [(&mut a, "on-a"), (&mut b, "on-b"), (&mut c, "on-c")].map(|(machine, id)| Pod::start(machine, id));

    let capture = Capture::open(&site.router);
    assert_eq!(exchange(&pod_a, &pod_b, false, 1400), pod_a.attached.addresses[0]);
    let packets = capture.packets();
    let workloads = of_workloads(&packets);
    assert!(
        workloads
            .iter()
            .any(|packet| packet.destination == pod_b.attached.addresses[0] && packet.port == PORT)
    );
    assert!(packets.iter().all(|packet| packet.port != 4790), "{packets:?}");

    let capture = Capture::open(&site.router);
    assert_eq!(exchange(&pod_a, &pod_c, false, 1400), pod_a.attached.addresses[0]);
    assert_eq!(exchange(&pod_c, &pod_b, true, 1400), pod_c.attached.addresses[1]);
    let packets = capture.packets();
    assert_eq!(of_workloads(&packets), Vec::<&Seen>::new());
    let nodes: [IpAddr; 2] = ["192.0.2.1", "198.51.100.3"].map(|text| text.parse().unwrap());
    let tunnel = |packet: &&Seen| packet.port == 4790 && nodes == [packet.source, packet.destination];
    assert!(packets.iter().any(|packet| tunnel(&packet)), "{packets:?}");

    // Two workloads of one node, and a packet of the largest size: 1464 bytes less the headers of IP and UDP.
    let neighbor = Pod::start(&mut a, "also-on-a");
    assert_eq!(exchange(&pod_a, &neighbor, true, 1200), pod_a.attached.addresses[1]);
    assert_eq!(exchange(&pod_a, &pod_c, false, 1464 - 28), pod_a.attached.addresses[0]);
}

/// A node itself, such as its health checks, reaches a workload behind the tunnel.
#[test]
fn a_node_reaches_workloads_in_another_subnet() {
    let site = Site::new();
    let state = desired(Encapsulation::CrossSubnet);
    let [mut a, mut c] =
        [("a", &site.a), ("c", &site.c)].map(|(own, namespace)| Machine::start(own, namespace));
    a.desire(state.clone());
    c.desire(state);
    let pod = Pod::start(&mut c, "on-c");
    let address = SocketAddr::new(pod.attached.addresses[0], PORT);
    let server = pod.namespace.inside(|| UdpSocket::bind(address).unwrap());
    server.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let client = site.a.inside(|| UdpSocket::bind(("192.0.2.1", 0)).unwrap());
    client.send_to(b"node", address).unwrap();
    assert_eq!(server.recv_from(&mut [0; 16]).unwrap().1.ip().to_string(), "192.0.2.1");
}

/// Packets of a workload to an address outside of all networks have the address of the node as source, except to the networks
/// that the settings name; a machine that is no node cannot send into the tunnel. A table that another program has removed
/// comes back, and a new process writes nothing.
#[test]
fn outgoing_packets_are_masqueraded_and_the_tunnel_is_closed_to_others() {
    let site = Site::new();
    let mut state = desired(Encapsulation::CrossSubnet);
    let settings = state.networks.values_mut().next().unwrap();
    settings.nat_outgoing = true;
    settings.nat_except = ["203.0.113.0/24".parse().unwrap()].into();
    let mut a = Machine::start("a", &site.a);
    a.desire(state);
    assert_eq!(a.restart("boot", 0), 0);
    let pod = Pod::start(&mut a, "on-a");
    site.router.ip("addr add 203.0.113.9/24 dev br0");
    site.router.ip("route add 10.9.1.0/26 via 192.0.2.1");
    for (destination, expected) in [("192.0.2.254", "192.0.2.1"), ("203.0.113.9", "10.9.1.0")] {
        let seen = source_at(&pod, &site.router, destination.parse().unwrap());
        assert_eq!(seen.to_string(), expected, "{destination}");
    }

    // A packet from the router, which is no node, and one from a node.
    site.router.ip("addr add 192.0.2.2/24 dev br0");
    for (source, is_accepted) in [("192.0.2.254", false), ("192.0.2.2", true)] {
        let before = received(&site.a);
        let socket = site.router.inside(|| UdpSocket::bind((source, 0)).unwrap());
        // VXLAN-GPE with the VNI of the network, and an inner packet of IPv4.
        let mut packet = vec![0x0c, 0, 0, 1, 0, 0, 116, 0];
        packet.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 2, 1, 10, 9, 1, 0]);
        socket.send_to(&packet, ("192.0.2.1", 4790)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(received(&site.a) > before, is_accepted, "{source}");
    }

    site.a.inside(|| crate::support::run("nft", &["delete", "table", "inet", "tidegate-network"]));
    assert_eq!(a.run(|engine| engine.pass().unwrap().unwrap().writes), 1);
    // The frequent check of the table alone repairs it too; the next pass counts the change.
    site.a.inside(|| crate::support::run("nft", &["delete", "table", "inet", "tidegate-network"]));
    assert!(!a.run(|engine| engine.check_table()));
    assert!(a.run(|engine| engine.check_table()));
    assert_eq!(a.run(|engine| engine.pass().unwrap().unwrap().writes), 1);
    site.a.inside(|| crate::support::run("nft", &["flush", "chain", "inet", "tidegate-network", "tunnel"]));
    assert_eq!(a.run(|engine| engine.pass().unwrap().unwrap().writes), 1);
    assert_eq!(a.run(|engine| engine.pass().unwrap().unwrap().writes), 0);
    assert!(site.a.inside(|| network::cleanup::cleanup().unwrap()) > 3);
    let tables = site.a.inside(|| crate::support::run("nft", &["list", "tables"]));
    assert_eq!(tables, "");
}

/// Returns the source address of a datagram of a workload that arrives in a namespace.
fn source_at(pod: &Pod, namespace: &Namespace, destination: IpAddr) -> IpAddr {
    let server = namespace.inside(|| UdpSocket::bind((destination, PORT)).unwrap());
    server.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let client = pod.namespace.inside(|| UdpSocket::bind((pod.attached.addresses[0], 0)).unwrap());
    client.send_to(b"ping", (destination, PORT)).unwrap();
    server.recv_from(&mut [0; 16]).unwrap().1.ip()
}

/// Returns the number of packets that the tunnel device has received or dropped.
pub(crate) fn received(namespace: &Namespace) -> u64 {
    let text = namespace.ip("-s -s -o link show tg-vx");
    let words: Vec<_> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "RX:").unwrap();
    words[at..].iter().filter_map(|word| word.trim_end_matches('\\').parse::<u64>().ok()).take(6).sum()
}
