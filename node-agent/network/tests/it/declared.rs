//! Declared interfaces in real kernels: a virtual machine behind a TAP interface, a machine behind another interface of the
//! node, and a container whose veth pair the agent creates.

use std::{
    fs,
    io::Read as _,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use model::{
    kinds::attachment::{AttachmentKind, InterfaceFaultReason, WorkloadKey},
    wire::workload_network::DeclaredInterface,
};
use network::{
    attach::engine::NetworkEngine,
    desired::{DesiredNetwork, Encapsulation},
};

use crate::{
    attach::Machine,
    support::{Namespace, Site, desired, name},
    traffic::Pod,
};

/// UDP port of the workloads.
const PORT: u16 = 7;
/// Link-layer address of the container.
const MAC: &str = "02:00:00:00:00:77";

fn key(text: &str) -> WorkloadKey {
    WorkloadKey::try_from(format!("default/{text}")).unwrap()
}

fn declare(kind: AttachmentKind, interface: &str, addresses: &[&str]) -> DeclaredInterface {
    DeclaredInterface {
        network: name("pods"),
        kind,
        name: interface.to_owned(),
        network_namespace: None,
        mac: None,
        uid: None,
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    }
}

/// Does one pass with the declared interfaces, as the thread does. Returns the number of changes.
fn follow(engine: &mut NetworkEngine, now: u64) -> u64 {
    engine.plan_declared(now).unwrap();
    let mut writes = 0;
    let mut pass = |engine: &mut NetworkEngine| {
        let passed = engine.pass().unwrap().unwrap_or_default();
        assert!(passed.rejected.is_empty() && passed.failure.is_none(), "{passed:?}");
        writes += passed.writes;
    };
    pass(engine);
    if engine.configure_declared(now).unwrap() {
        pass(engine);
    }
    writes
}

fn set(machine: &mut Machine<'_>, state: &DesiredNetwork, now: u64) -> u64 {
    let state = state.clone();
    machine.run(|engine| {
        engine.desire(state);
        follow(engine, now)
    })
}

/// Returns the reason why an interface is not configured.
fn fault(machine: &mut Machine<'_>, workload: &str) -> Option<(InterfaceFaultReason, String)> {
    let shown = machine.run(|engine| engine.shown_interfaces());
    shown[&key(workload)].fault.clone().map(|fault| (fault.reason, fault.message))
}

fn addresses(machine: &mut Machine<'_>, workload: &str) -> Vec<IpAddr> {
    machine.run(|engine| engine.shown_interfaces())[&key(workload)].addresses.clone()
}

/// Returns the kernel parameters of an interface, and the links, addresses and routes of the namespace, as text.
fn settings(namespace: &Namespace, interfaces: &[&str]) -> String {
    let directories = interfaces.iter().flat_map(|interface| {
        ["ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"]
            .map(|kind| format!("/proc/sys/net/{kind}/{interface}"))
    });
    let mut text = namespace.listing();
    text += &namespace
        .inside(|| directories.map(|directory| parameters(Path::new(&directory))).collect::<String>());
    text += &namespace.ip("neigh show nud permanent");
    // The queue of a link that was never up has another name than one that is down again.
    let known = [" qdisc noop ", " qdisc noqueue ", " qdisc fq_codel ", " qdisc pfifo_fast "];
    known.iter().fold(text, |text, qdisc| text.replace(qdisc, " "))
}

fn parameters(directory: &Path) -> String {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // The kernel does not show a secret.
    let read =
        |path: &std::path::PathBuf| Some(format!("{}={}", path.display(), fs::read_to_string(path).ok()?));
    files.iter().filter_map(read).collect()
}

/// Process that carries frames between a TAP interface of the node and one of another namespace, as a virtual machine does.
struct VirtualMachine {
    namespace: Namespace,
    process: Child,
}

impl VirtualMachine {
    fn start(node: &Namespace, interface: &str, addresses: &[&str]) -> Self {
        const PROGRAM: &str = r"
import ctypes, fcntl, os, select, struct, sys
def tap(namespace, name):
    with open('/run/netns/' + namespace) as place:
        assert ctypes.CDLL(None).setns(place.fileno(), 0x40000000) == 0
    device = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(device, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x1002))
    return device
ends = [tap(sys.argv[1], sys.argv[2]), tap(sys.argv[3], 'eth0')]
print('ready', flush=True)
while True:
    for end in select.select(ends, [], [])[0]:
        try:
            os.write(ends[1 - ends.index(end)], os.read(end, 65536))
        except OSError:
            pass
";
        let namespace = Namespace::new("vm");
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM, &node.name, interface, &namespace.name]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        configure(&namespace, addresses);
        Self { namespace, process }
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Gives the interface of a machine its addresses and the default routes over the node.
fn configure(namespace: &Namespace, addresses: &[&str]) {
    namespace.ip("link set eth0 up");
    for address in addresses {
        let is_v6 = address.contains(':');
        namespace.ip(&format!(
            "addr add {address}/{} dev eth0{}",
            if is_v6 { 128 } else { 32 },
            if is_v6 { " nodad" } else { "" }
        ));
    }
    namespace.ip("route add 169.254.1.1 dev eth0");
    namespace.ip("route add default via 169.254.1.1 dev eth0");
    namespace.ip("-6 route add default via fe80::ecee:eeff:feee:eeee dev eth0");
}

/// Sends datagrams until one is answered, in both families. The receiver must see the own address of the sender.
fn exchange(from: (&Namespace, &[IpAddr]), to: (&Namespace, &[IpAddr])) {
    for (source, target) in from.1.iter().zip(to.1) {
        let bind = |namespace: &Namespace, address: IpAddr, port| {
            let socket = namespace.inside(|| UdpSocket::bind(SocketAddr::new(address, port)).unwrap());
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            socket
        };
        let (client, server) = (bind(from.0, *source, 0), bind(to.0, *target, PORT));
        let mut buffer = [0; 64];
        // The first datagrams may be lost while an IPv6 address of a new link is tentative.
        let seen = (0..50).find_map(|_| {
            client.send_to(b"ping", (*target, PORT)).ok()?;
            server.recv_from(&mut buffer).ok()
        });
        let (_, seen) = seen.unwrap_or_else(|| panic!("{source} does not reach {target}"));
        assert_eq!(seen.ip(), *source);
        let replied = (0..50).any(|_| {
            server.send_to(b"pong", seen).unwrap();
            client.recv_from(&mut buffer).is_ok_and(|(_, peer)| peer.ip() == *target)
        });
        assert!(replied, "{target} does not answer {source}");
    }
}

fn taken(namespace: &Namespace, addresses: &[&str]) -> Vec<IpAddr> {
    assert!(namespace.ip("-o addr").contains(addresses[0]));
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

/// Input: a virtual machine behind a TAP interface, a machine behind another interface of the node, and a container, all of
/// them declared. Output: workloads of another node and they exchange packets with their own addresses; repairs of drift
/// and a restart; the end of the declarations leaves the node as it was. (F150, F159)
#[test]
fn f150_f159_declared_interfaces_carry_packets_and_their_end_restores_the_node() {
    let site = Site::new();
    let node = &site.a;
    let mut state = desired(Encapsulation::CrossSubnet);
    let mut a = Machine::start("a", node);
    let mut b = Machine::start("b", &site.b);
    b.desire(state.clone());
    let pod = Pod::start(&mut b, "on-b");
    let (vm_addresses, metal_addresses) = (["10.9.1.40", "fd09:1::28"], ["10.9.1.41", "fd09:1::29"]);
    let vm = VirtualMachine::start(node, "tap0", &vm_addresses);
    let metal = Namespace::new("metal");
    node.ip(&format!("link add host0 type veth peer name eth0 netns {}", metal.name));
    configure(&metal, &metal_addresses);
    let container = Namespace::new("container");
    let names = ["tap0", "host0"];
    set(&mut a, &state, 0);
    let before = (settings(node, &names), container.listing());

    state.interfaces.insert(key("vm"), declare(AttachmentKind::Tap, "tap0", &vm_addresses));
    let mac = metal.ip("-o link show eth0");
    let mac = mac.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let behind_host =
        DeclaredInterface { mac: Some(mac), ..declare(AttachmentKind::Host, "host0", &metal_addresses) };
    state.interfaces.insert(key("metal"), behind_host);
    let in_namespace = DeclaredInterface {
        network_namespace: Some(container.name.clone()),
        mac: Some(MAC.to_owned()),
        ..declare(AttachmentKind::Veth, "eth0", &[])
    };
    state.interfaces.insert(key("container"), in_namespace);
    assert!(set(&mut a, &state, 10) > 0);
    for workload in ["vm", "metal", "container"] {
        assert_eq!(fault(&mut a, workload), None, "{workload}");
    }
    assert!(container.ip("-o link show eth0").contains(MAC));
    let assigned = addresses(&mut a, "container");
    assert_eq!(assigned.len(), 2);

    let pod_end = (&pod.namespace, pod.attached.addresses.as_slice());
    let vm_end = (taken(&vm.namespace, &vm_addresses), &vm.namespace);
    let metal_end = (taken(&metal, &metal_addresses), &metal);
    let ends = [
        (vm_end.1, vm_end.0.as_slice()),
        (metal_end.1, metal_end.0.as_slice()),
        (&container, assigned.as_slice()),
    ];
    for (at, end) in ends.iter().enumerate() {
        exchange(pod_end, *end);
        exchange(*end, pod_end);
        exchange(*end, ends[(at + 1) % ends.len()]);
    }
    for (address, interface) in [("10.9.1.40", "tap0"), ("fd09:1::28", "tap0"), ("10.9.1.41", "host0")] {
        assert!(node.ip(&format!("route get {address}")).contains(&format!("dev {interface}")), "{address}");
    }
    // The node answers ARP for other addresses on the TAP interface only, behind which one machine is alone.
    let proxies = |interface: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/proxy_arp");
        node.inside(|| fs::read_to_string(path).unwrap()).trim().to_owned()
    };
    assert_eq!((proxies("tap0").as_str(), proxies("host0").as_str()), ("1", "0"));

    assert_eq!(a.run(|engine| follow(engine, 20)), 0, "a pass without a difference");
    let configured = settings(node, &names);
    for damage in [
        "addr del 169.254.1.1/32 dev tap0",
        "-6 addr del fe80::ecee:eeff:feee:eeee/64 dev host0",
        "route del 10.9.1.40 proto 116 metric 7440",
        "neigh del 10.9.1.41 dev host0",
        "link set host0 down",
    ] {
        node.ip(damage);
        assert!(a.run(|engine| follow(engine, 30)) > 0, "{damage}");
        assert_eq!(lines(&settings(node, &names)), lines(&configured), "{damage}");
    }
    node.inside(|| fs::write("/proc/sys/net/ipv4/conf/host0/rp_filter", "0").unwrap());
    assert!(a.run(|engine| follow(engine, 30)) > 0);
    assert_eq!(restart(&mut a, &state), 0, "a restart writes nothing");
    exchange(pod_end, ends[0]);

    state.interfaces.clear();
    set(&mut a, &state, 40);
    assert_eq!((lines(&settings(node, &names)), container.listing()), (lines(&before.0), before.1));
    assert!(!a.directory().join("interfaces.json").exists());
}

/// Returns the lines in order, because the kernel lists addresses and routes in the order of their addition.
fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Replaces the engine as a restart of the agent does, and returns the number of changes.
fn restart(machine: &mut Machine<'_>, state: &DesiredNetwork) -> u64 {
    machine.reopen("boot");
    set(machine, state, 50)
}

/// Input: a declared interface that does not exist yet, appears, is replaced and disappears. Output: it is configured at its
/// appearance each time; the fault names it meanwhile, and its addresses stay.
#[test]
fn f150_an_interface_is_configured_when_it_appears() {
    let node = Namespace::router("node");
    let mut machine = Machine::start("a", &node);
    let mut state = desired(Encapsulation::None);
    state.interfaces.insert(key("vm"), declare(AttachmentKind::Tap, "tap0", &[]));
    set(&mut machine, &state, 0);
    let assigned = addresses(&mut machine, "vm");
    for round in 0..2 {
        let (reason, message) = fault(&mut machine, "vm").unwrap();
        assert!(reason == InterfaceFaultReason::Missing && message.contains("tap0"), "{round}: {message}");
        assert!(!node.ip("route").contains("tap0"));
        node.ip("tuntap add dev tap0 mode tap");
        machine.run(|engine| follow(engine, 1));
        assert_eq!(fault(&mut machine, "vm"), None, "{round}");
        assert!(node.ip("route").contains(&format!("{} dev tap0", assigned[0])), "{round}");
        assert_eq!(addresses(&mut machine, "vm"), assigned, "{round}");
        node.ip("tuntap del dev tap0 mode tap");
        machine.run(|engine| follow(engine, 2));
    }
    // A link with the same name and another index is a new one.
    node.ip("tuntap add dev tap0 mode tap");
    machine.run(|engine| follow(engine, 3));
    node.ip("tuntap del dev tap0 mode tap");
    node.ip("tuntap add dev tap0 mode tap");
    let fresh = settings(&node, &["tap0"]);
    machine.run(|engine| follow(engine, 4));
    assert!(node.ip("route").contains("dev tap0"));
    let mut ended = state.clone();
    ended.interfaces.clear();
    set(&mut machine, &ended, 5);
    // The routes of the former link went with it.
    assert_eq!(lines(&settings(&node, &["tap0"])), lines(&fresh));
    // The addresses are in their cooldown, as those of a container are.
    set(&mut machine, &state, 6);
    assert_ne!(addresses(&mut machine, "vm"), assigned);
}

/// Input: interfaces that the node needs, and addresses that it cannot give. Output: each is refused with the reason, and nothing
/// of the node changes.
#[test]
fn interfaces_that_the_node_needs_and_foreign_addresses_are_refused() {
    let site = Site::new();
    let node = &site.a;
    node.ip("link add br0 type bridge");
    node.ip("link add port0 type veth peer name port1");
    node.ip("link set port0 master br0");
    node.ip("link add unnumbered type veth peer name far");
    node.ip("link set unnumbered up");
    node.ip("link set far up");
    node.ip("route add default dev unnumbered metric 5000");
    node.ip("link add own0 type veth peer name own1");
    node.ip("addr add 198.18.0.1/32 dev own0");
    let mut a = Machine::start("a", node);
    let mut state = desired(Encapsulation::CrossSubnet);
    set(&mut a, &state, 0);
    let interfaces = ["eth0", "lo", "own0", "port0", "port1", "unnumbered"];
    let before = settings(node, &interfaces);
    let table = node.inside(|| crate::support::run("nft", &["list", "table", "inet", "tidegate-network"]));
    let pod = Pod::start(&mut a, "pod");
    let used = pod.attached.addresses[0].to_string();
    let attached = settings(node, &interfaces);
    for (interface, addresses, reason) in [
        ("eth0", vec![], "default route"),
        ("own0", vec![], "198.18.0.1/32"),
        ("lo", vec![], "of the node"),
        ("port0", vec![], "bridge"),
        ("unnumbered", vec![], "default route"),
        ("tg-vx", vec![], "agent"),
        (pod.attached.host_interface.as_str(), vec![], "agent"),
        ("port1", vec!["10.9.2.9"], "of no block"),
        ("port1", vec![used.as_str()], "another workload"),
    ] {
        state.interfaces = [(key("x"), declare(AttachmentKind::Host, interface, &addresses))].into();
        assert_eq!(set(&mut a, &state, 1), 0, "{interface}");
        let (fault, message) = fault(&mut a, "x").unwrap();
        assert!(fault == InterfaceFaultReason::Refused && message.contains(reason), "{interface}: {message}");
        assert_eq!(lines(&settings(node, &interfaces)), lines(&attached), "{interface}");
        let now = node.inside(|| crate::support::run("nft", &["list", "table", "inet", "tidegate-network"]));
        assert_eq!(now, table, "{interface}");
    }
    // A card is no TAP interface; one that gets an address of the node later is restored.
    state.interfaces = [(key("x"), declare(AttachmentKind::Tap, "port1", &[]))].into();
    set(&mut a, &state, 1);
    assert!(fault(&mut a, "x").unwrap().1.contains("kind Host"));
    state.interfaces = [(key("x"), declare(AttachmentKind::Host, "port1", &[]))].into();
    set(&mut a, &state, 1);
    assert_eq!(fault(&mut a, "x"), None);
    node.ip("addr add 203.0.113.1/24 dev port1");
    a.run(|engine| follow(engine, 2));
    assert!(fault(&mut a, "x").unwrap().1.contains("203.0.113.1/24"));
    node.ip("addr del 203.0.113.1/24 dev port1");
    state.interfaces.clear();
    set(&mut a, &state, 3);
    a.run(|engine| engine.detach(&crate::attach::key("pod"), 3).unwrap());
    assert_eq!(lines(&settings(node, &interfaces)), lines(&before));
}

/// Input: a machine behind a declared interface that sends with the address of another workload. Output: the packets are
/// dropped, in both families.
#[test]
fn a_declared_workload_cannot_send_in_the_name_of_another() {
    let site = Site::new();
    let mut state = desired(Encapsulation::CrossSubnet);
    let mut a = Machine::start("a", &site.a);
    let mut b = Machine::start("b", &site.b);
    b.desire(state.clone());
    let pod = Pod::start(&mut b, "on-b");
    let metal = Namespace::new("metal");
    site.a.ip(&format!("link add host0 type veth peer name eth0 netns {}", metal.name));
    configure(&metal, &["10.9.1.41", "fd09:1::29", "10.9.1.42", "fd09:1::2a"]);
    let own = declare(AttachmentKind::Host, "host0", &["10.9.1.41", "fd09:1::29"]);
    state.interfaces.insert(key("metal"), own);
    set(&mut a, &state, 0);
    let parse = |address: &str| address.parse::<IpAddr>().unwrap();
    let own = ["10.9.1.41", "fd09:1::29"].map(parse);
    exchange((&metal, &own), (&pod.namespace, &pod.attached.addresses));
    for (foreign, target) in ["10.9.1.42", "fd09:1::2a"].map(parse).into_iter().zip(&pod.attached.addresses) {
        let server = pod.namespace.inside(|| UdpSocket::bind((*target, PORT)).unwrap());
        server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let client = metal.inside(|| UdpSocket::bind((foreign, 0)).unwrap());
        client.send_to(b"x", (*target, PORT)).unwrap();
        assert!(server.recv_from(&mut [0; 8]).is_err(), "{foreign}");
    }
}

/// Input: an agent that was killed with a configured interface, and its cleanup. Output: the former settings come back.
#[test]
fn cleanup_restores_declared_interfaces() {
    let node = Namespace::router("node");
    node.ip("tuntap add dev tap0 mode tap");
    let before = settings(&node, &["tap0"]);
    let boot = network::cleanup::boot().unwrap();
    let mut machine = Machine::start("a", &node);
    machine.reopen(&boot);
    let mut state = desired(Encapsulation::None);
    state.interfaces.insert(key("vm"), declare(AttachmentKind::Tap, "tap0", &[]));
    set(&mut machine, &state, 0);
    assert_ne!(settings(&node, &["tap0"]), before);
    let directory = machine.directory().to_owned();
    let restored = node.inside(|| {
        network::cleanup::cleanup().unwrap();
        network::cleanup::restore_interfaces(&directory).unwrap()
    });
    assert_eq!(restored, 1);
    assert_eq!(lines(&settings(&node, &["tap0"])), lines(&before));
    assert!(network::attach::declared::file::remove(&directory).unwrap());
}
