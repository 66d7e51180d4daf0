//! Packets that workloads and other machines may not send, and the order of the table and the tunnel device.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket},
    process::{Child, Command, Stdio},
    time::Duration,
};

use attach_socket::ProblemCode;
use network::desired::{DesiredNetwork, Encapsulation};

use crate::{
    attach::{Machine, request},
    capture::Capture,
    support::{Namespace, Site, desired, run},
    traffic::{Pod, exchange, received},
};

/// UDP port of VXLAN-GPE.
const TUNNEL_PORT: u16 = 4790;
/// UDP port that no rule concerns.
const OTHER_PORT: u16 = 4791;

fn bind(namespace: &Namespace, address: &str, port: u16) -> UdpSocket {
    let address = SocketAddr::new(address.parse().unwrap(), port);
    let socket = namespace.inside(|| UdpSocket::bind(address).unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Returns the sources from which datagrams reach a socket, up to the one with the text `last`.
fn sources_until(server: &UdpSocket, last: &str) -> Vec<IpAddr> {
    let mut sources = Vec::new();
    loop {
        let mut buffer = [0; 64];
        let (length, source) = server.recv_from(&mut buffer).unwrap();
        if &buffer[..length] == last.as_bytes() {
            return sources;
        }
        sources.push(source.ip());
    }
}

/// Input: a workload that gives itself the addresses of another workload, of the node and of a machine outside, without the
/// reverse path check of the kernel. Output: only packets from its own addresses arrive, in both families, and
/// neighbor discovery from its link-local address works.
#[test]
fn a_workload_sends_from_its_own_addresses_only() {
    let site = Site::new();
    let state = desired(Encapsulation::CrossSubnet);
    let [mut a, mut b] = [("a", &site.a), ("b", &site.b)].map(|(own, namespace)| {
        let mut machine = Machine::start(own, namespace);
        machine.desire(state.clone());
        machine
    });
    let (pod, other) = (Pod::start(&mut a, "on-a"), Pod::start(&mut b, "on-b"));
    let host = &pod.attached.host_interface;
    site.a.inside(|| {
        for interface in ["all", host] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"), "0").unwrap();
        }
    });
    for foreign in ["10.9.1.9/32", "10.9.2.9/32", "192.0.2.1/32", "203.0.113.7/32"] {
        pod.namespace.ip(&format!("addr add {foreign} dev eth0"));
    }
    for foreign in ["fd09:1::9/128", "fd09:3::1/128", "2001:db8::7/128"] {
        pod.namespace.ip(&format!("addr add {foreign} dev eth0 nodad"));
    }
    let own = pod.attached.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (index, foreign) in [
        (0, vec!["10.9.1.9", "10.9.2.9", "192.0.2.1", "203.0.113.7"]),
        (1, vec!["fd09:1::9", "fd09:3::1", "2001:db8::7"]),
    ] {
        let target = other.attached.addresses[index];
        let server = bind(&other.namespace, &target.to_string(), OTHER_PORT);
        for source in foreign {
            bind(&pod.namespace, source, 0).send_to(b"foreign", (target, OTHER_PORT)).unwrap();
        }
        bind(&pod.namespace, &own[index], 0).send_to(b"last", (target, OTHER_PORT)).unwrap();
        assert_eq!(sources_until(&server, "last"), Vec::<IpAddr>::new());
    }

    // The gateway is found by neighbor discovery too, from the link-local and the other address.
    pod.namespace.ip("-6 neigh del fe80::ecee:eeff:feee:eeee dev eth0");
    let on = |namespace: &Namespace, interface: &str| {
        let index = namespace.inside(|| nix::net::if_::if_nametoindex(interface)).unwrap();
        SocketAddrV6::new("fe80::ecee:eeff:feee:eeee".parse().unwrap(), OTHER_PORT, 0, index)
    };
    let server = site.a.inside(|| UdpSocket::bind(on(&site.a, host)).unwrap());
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    bind(&pod.namespace, "::", 0).send_to(b"last", on(&pod.namespace, "eth0")).unwrap();
    assert_eq!(sources_until(&server, "last"), Vec::<IpAddr>::new());
    pod.namespace.ip("-6 neigh flush dev eth0");
    exchange(&pod, &other, true, 100);
}

/// Input: datagrams to the tunnel port of another node from a workload, whose packets the node masquerades, and from a client of
/// a translated address. Output: none of them leaves the node, and others do.
#[test]
fn workloads_and_clients_do_not_reach_tunnel_ports_through_a_node() {
    let site = Site::new();
    let mut state = desired(Encapsulation::CrossSubnet);
    state.networks.values_mut().next().unwrap().nat_outgoing = true;
    let [mut a, mut c] = [("a", &site.a), ("c", &site.c)].map(|(own, namespace)| {
        let mut machine = Machine::start(own, namespace);
        machine.desire(state.clone());
        machine
    });
    c.run(|engine| engine.pass().unwrap());
    let pod = Pod::start(&mut a, "on-a");
    // Addresses as a proxy mode translates them.
    let rules = "table ip proxy {
        chain services { type nat hook prerouting priority -100;
            udp dport 53 dnat to 198.51.100.3:4790;
            udp dport 54 dnat to 198.51.100.3:4791; }
        chain masqueraded { type nat hook postrouting priority 100;
            udp dport 4790-4791 masquerade; }
        }";
    site.a.inside(|| run("nft", &[rules]));

    let [node, service]: [IpAddr; 2] = ["198.51.100.3", "192.0.2.1"].map(|text| text.parse().unwrap());
    let server = bind(&site.c, "198.51.100.3", OTHER_PORT);
    let before = received(&site.c);
    let capture = Capture::open(&site.router);
    let workload = bind(&pod.namespace, &pod.attached.addresses[0].to_string(), 0);
    let client = bind(&site.router, "192.0.2.254", 0);
    // VXLAN-GPE with the VNI of the network, and an inner packet of IPv4.
    let mut packet = vec![0x0c, 0, 0, 1, 0, 0, 116, 0];
    packet.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 2, 1, 10, 9, 3, 0]);
    // A machine that is no node of this cluster, but may be one of another.
    workload.send_to(&packet, ("192.0.2.254", TUNNEL_PORT)).unwrap();
    for (socket, address, other) in
        [(&workload, (node, TUNNEL_PORT), (node, OTHER_PORT)), (&client, (service, 53), (service, 54))]
    {
        socket.send_to(&packet, address).unwrap();
        socket.send_to(b"last", other).unwrap();
        assert_eq!(sources_until(&server, "last"), Vec::<IpAddr>::new());
    }
    let packets = capture.packets();
    assert!(packets.iter().any(|packet| packet.port == OTHER_PORT && packet.destination == node));
    assert!(packets.iter().all(|packet| packet.port != TUNNEL_PORT), "{packets:?}");
    assert_eq!(received(&site.c), before);
}

/// Table that another process owns, so that the agent cannot change it, until dropped.
struct ForeignTable(Child);

impl ForeignTable {
    fn create(namespace: &Namespace) -> Self {
        let arguments = ["netns", "exec", &namespace.name, "nft", "-i"];
        let mut child =
            Command::new("ip").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = "add table inet tidegate-network { flags owner; }\nlist tables\n";
        child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
        let mut shown = String::new();
        let mut output = [0; 256];
        while !shown.contains("table inet tidegate-network\n") {
            let length = child.stdout.as_mut().unwrap().read(&mut output).unwrap();
            assert!(length > 0, "nft has ended: {shown}");
            shown += &String::from_utf8_lossy(&output[..length]);
        }
        Self(child)
    }
}

impl Drop for ForeignTable {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Input: a table that the agent cannot write. Output: no tunnel device and no attachment; an existing device is removed by a new
/// process; all comes back with the table.
#[test]
fn without_the_table_no_tunnel_device_and_no_attachment_exists() {
    let site = Site::new();
    let state = desired(Encapsulation::CrossSubnet);
    let mut a = Machine::start("a", &site.a);
    let foreign = ForeignTable::create(&site.a);
    let pass = |machine: &mut Machine<'_>| {
        machine.run(|engine| {
            engine.desire(state.clone());
            engine.pass().unwrap().unwrap()
        })
    };
    let passed = pass(&mut a);
    assert!(passed.failure.unwrap().contains("tidegate-network"));
    assert!(!site.a.ip("-o link").contains("tg-vx"));
    assert!(site.a.ip("route show proto 116").contains("10.9.2.0/26 via 192.0.2.2"), "needs no tunnel");
    let pod = Namespace::new("pod");
    let problem = a.run(|engine| engine.attach(request("c1", &pod), 0)).unwrap_err();
    assert_eq!(problem.code, ProblemCode::NotReady, "{problem:?}");
    assert!(a.run(|engine| engine.status()).problem.is_some());

    drop(foreign);
    assert_eq!(pass(&mut a).failure, None);
    assert!(site.a.ip("-o link").contains("tg-vx"));
    a.run(|engine| engine.attach(request("c1", &pod), 0)).unwrap();

    // The device is there, but the table is of another program when the agent starts.
    site.a.inside(|| run("nft", &["delete", "table", "inet", "tidegate-network"]));
    let _foreign = ForeignTable::create(&site.a);
    a.restart("boot", 0);
    pass(&mut a);
    assert!(!site.a.ip("-o link").contains("tg-vx"));

    // Without networks, the table of the other program is in the way, which each pass says again.
    a.run(|engine| engine.detach(&crate::attach::key("c1"), 0)).unwrap();
    a.run(|engine| engine.desire(DesiredNetwork::default()));
    for _ in 0..3 {
        let passed = a.run(|engine| engine.pass().unwrap()).expect("is not idle");
        assert!(passed.failure.is_some());
    }
}
