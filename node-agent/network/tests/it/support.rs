//! Network namespaces of nodes, and states for them.

use std::{
    fs::File,
    net::IpAddr,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use model::primitives::name::Name;
use network::desired::{Block, DesiredNetwork, Encapsulation, NetworkSettings, TunnelKind};
use nix::sched::{CloneFlags, setns};

static SEQUENCE: AtomicUsize = AtomicUsize::new(0);

/// Network namespace, deleted when dropped.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new(role: &str) -> Self {
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tgn-{}-{sequence}-{role}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip("link set lo up");
        namespace
    }

    /// Creates a namespace that forwards packets.
    pub(crate) fn router(role: &str) -> Self {
        let namespace = Self::new(role);
        namespace.inside(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        });
        namespace
    }

    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// Runs `ip` with the words of a line in the namespace, and returns its output.
    pub(crate) fn ip(&self, line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().collect();
        run("ip", &[&["-n", &self.name], words.as_slice()].concat())
    }

    /// Runs a closure on a thread inside the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                setns(File::open(self.path()).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    }

    /// Returns the links, addresses, routes and rules of the namespace as text.
    pub(crate) fn listing(&self) -> String {
        let parts =
            ["-o link", "-o addr", "route show table all", "-6 route show table all", "rule", "-6 rule"];
        parts.map(|part| self.ip(part)).concat()
    }
}

impl Namespace {
    /// Returns the listing of a namespace of a node after its interface has carrier and a link-local address.
    pub(crate) fn settled_listing(&self) -> String {
        loop {
            let listing = self.listing();
            let is_settled = listing.contains("inet6 fe80")
                && ["tentative", "NO-CARRIER"].iter().all(|word| !listing.contains(word));
            if is_settled {
                return listing;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}

/// Runs a program, which must succeed, and returns its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Three nodes: a and b on one segment, c in another subnet. The router between the subnets knows no workload.
///
/// ```text
///  a 192.0.2.1 ──┐
///                ├─ bridge of the router, 192.0.2.254 ── 198.51.100.254 ── 198.51.100.3 c
///  b 192.0.2.2 ──┘
/// ```
pub(crate) struct Site {
    pub(crate) a: Namespace,
    pub(crate) b: Namespace,
    pub(crate) c: Namespace,
    pub(crate) router: Namespace,
}

impl Site {
    pub(crate) fn new() -> Self {
        let router = Namespace::router("router");
        router.ip("link add br0 type bridge");
        router.ip("link set br0 up");
        router.ip("addr add 192.0.2.254/24 dev br0");
        let [a, b, c] = ["a", "b", "c"].map(Namespace::router);
        for (node, port, address) in
            [(&a, "pa", "192.0.2.1"), (&b, "pb", "192.0.2.2"), (&c, "pc", "198.51.100.3")]
        {
            node.ip(&format!("link add eth0 type veth peer name {port} netns {}", router.name));
            node.ip(&format!("addr add {address}/24 dev eth0"));
            node.ip("link set eth0 up");
            router.ip(&format!("link set {port} up"));
        }
        router.ip("link set pa master br0");
        router.ip("link set pb master br0");
        router.ip("addr add 198.51.100.254/24 dev pc");
        for node in [&a, &b] {
            node.ip("route add default via 192.0.2.254");
        }
        c.ip("route add default via 198.51.100.254");
        Self { a, b, c, router }
    }
}

/// Returns a name.
pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Returns the state of the nodes of a [`Site`], each with a block of each family.
pub(crate) fn desired(encapsulation: Encapsulation) -> DesiredNetwork {
    let mut desired = DesiredNetwork::default();
    let settings = NetworkSettings {
        cidrs: ["10.9.0.0/16", "fd09::/16"].map(|cidr| cidr.parse().unwrap()).into(),
        nat_outgoing: false,
        nat_except: std::collections::BTreeSet::new(),
        encapsulation,
        tunnel: TunnelKind::Vxlan,
        reserved: Vec::new(),
        cooldown: Duration::from_secs(60),
        mtu: None,
    };
    desired.networks.insert(name("pods"), settings);
    for (node, number, address) in [("a", 1, "192.0.2.1"), ("b", 2, "192.0.2.2"), ("c", 3, "198.51.100.3")] {
        let block = Block { network: name("pods"), node: name(node), is_draining: false };
        for range in [format!("10.9.{number}.0/26"), format!("fd09:{number}::/122")] {
            desired.blocks.insert(range.parse().unwrap(), block.clone());
        }
        desired.nodes.insert(name(node), vec![address.parse::<IpAddr>().unwrap()]);
    }
    desired
}

/// Returns the state of the nodes of a [`Site`] with IPv4 blocks and a tunnel.
pub(crate) fn desired_v4(encapsulation: Encapsulation, tunnel: TunnelKind) -> DesiredNetwork {
    let mut desired = desired(encapsulation);
    desired.blocks.retain(|range, _| range.addr().is_ipv4());
    for settings in desired.networks.values_mut() {
        settings.cidrs.retain(|range| range.addr().is_ipv4());
        settings.tunnel = tunnel;
    }
    desired
}
