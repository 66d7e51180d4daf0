//! A cluster with two routers in front of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::ensure;
use lab::{
    client::{self, Reply, at},
    cluster::{Cluster, Options},
    control::string,
    netns::{self, Namespace},
    topology, wait,
};
use serde_json::{Value, json};

use crate::speakers::{Frr, Peering, Settings};

/// The AS of the nodes (what `tidegate-api` says when nothing else is said), and that of the routers.
const NODES_ASN: u32 = 64_512;
const ROUTERS_ASN: u32 = 64_601;
/// Addresses that are in no network of the lab: only routes lead to them.
const POOL: [&str; 2] = ["198.51.100.0/24", "2001:db8:51::/120"];

/// The client's own addresses, the same over both of its links.
pub(crate) const CLIENT_V4: &str = "10.99.0.9";
pub(crate) const CLIENT_V6: &str = "fd00:99::9";

/// ```text
///             ┌── 10.99.1.0/24 ── r1 172.17.8.1 ──┐
/// client .2 ──┤                                   ├── fabric ── node1 … (AS 64512)
///             └── 10.99.2.0/24 ── r2 172.17.8.2 ──┘
/// ```
/// The routers are of one AS and speak with every node, by IPv4 and watched by BFD. The client spreads its connections over both.
pub(crate) struct Stage {
    // Processes end before the namespaces that they are in.
    routers: Vec<Frr>,
    pub(crate) cluster: Cluster,
    pub(crate) client: Namespace,
    pub(crate) places: Vec<Namespace>,
    /// The nodes by their addresses on the fabric; routers prefer link-local ones.
    nodes: BTreeMap<IpAddr, String>,
}

impl Stage {
    /// Everything up, a pool, the peers watched by BFD, and an Advertisement to all of them.
    pub(crate) fn new(options: &Options) -> Self {
        Self::with(options, true)
    }

    /// As [`Self::new`]; with BFD or without.
    pub(crate) fn with(options: &Options, has_bfd: bool) -> Self {
        let cluster = Cluster::start(options).unwrap();
        let client = Namespace::new("outside").unwrap();
        client
            .ip(&[
                format!("addr add {CLIENT_V4}/32 dev lo"),
                format!("addr add {CLIENT_V6}/128 dev lo nodad"),
            ])
            .unwrap();
        let (mut routers, mut places) = (Vec::new(), Vec::new());
        for number in [1u8, 2] {
            let place = plug_in(&cluster, &client, number);
            routers.push(Frr::bgpd(place.name(), &settings(&cluster, number, has_bfd)));
            places.push(place);
        }
        let ways = |of: &dyn Fn(u8) -> String| format!("nexthop via {} nexthop via {}", of(1), of(2));
        client
            .ip(&[
                format!("route add default src {CLIENT_V4} {}", ways(&|number| format!("10.99.{number}.1"))),
                format!("route add ::/0 src {CLIENT_V6} {}", ways(&|number| format!("fd00:99:{number}::1"))),
            ])
            .unwrap();
        for machine in cluster.topology.nodes.values() {
            let back = [
                format!("route add 10.99.0.0/16 {}", ways(&|number| format!("172.17.8.{number}"))),
                format!("route add fd00:99::/32 {}", ways(&|number| format!("fd00:8::{number}"))),
            ];
            machine.namespace.ip(&back).unwrap();
        }
        let nodes = cluster.topology.nodes.iter();
        let nodes =
            nodes.flat_map(|(name, machine)| addresses(machine).into_iter().map(|ip| (ip, name.clone())));
        let nodes = nodes.collect();
        let stage = Self { routers, cluster, client, places, nodes };
        stage.cluster.apply_objects(&objects(has_bfd)).unwrap();
        stage
    }

    /// A dual-stack Service `web` with an endpoint on each of these machines; answers its addresses, IPv4 first.
    pub(crate) fn add_web(&mut self, nodes: &[&str], spec: &Value) -> [IpAddr; 2] {
        for (index, node) in nodes.iter().enumerate() {
            let host = 11 + u8::try_from(index).unwrap();
            self.cluster.add_backend(&format!("web-{node}"), node, host, "web").unwrap();
        }
        let mut whole = json!({
            "type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080}],
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            whole[field] = value.clone();
        }
        self.cluster.add_service("web", whole).unwrap();
        let address = |index: usize| {
            let service = self.cluster.service("default/web").unwrap();
            let ip = string(&service, &format!("/status/loadBalancer/ingress/{index}/ip")).unwrap();
            ip.parse::<IpAddr>().unwrap()
        };
        let mut addresses = [address(0), address(1)];
        addresses.sort();
        addresses
    }

    /// The nodes to which a router's kernel sends packets for an address.
    pub(crate) fn ways(&self, router: usize, address: IpAddr) -> BTreeSet<String> {
        let place = &self.places[router];
        let family = if address.is_ipv4() { "-4" } else { "-6" };
        let listing = place.run("ip", &[family, "-j", "route", "show", &address.to_string()]).unwrap();
        let routes: Value = serde_json::from_str(&listing).unwrap();
        let mut gateways = BTreeSet::new();
        for route in routes.as_array().into_iter().flatten() {
            gateways.extend(route["gateway"].as_str().map(str::to_owned));
            for hop in route["nexthops"].as_array().into_iter().flatten() {
                gateways.extend(hop["gateway"].as_str().map(str::to_owned));
            }
        }
        let node = |gateway: &String| {
            let named = self.nodes.get(&gateway.parse().unwrap());
            named.unwrap_or_else(|| panic!("{gateway} is no node of {:?}", self.nodes)).clone()
        };
        gateways.iter().map(node).collect()
    }

    /// Waits until both routers' kernels send packets for these addresses to these nodes and no others.
    #[track_caller]
    pub(crate) fn wait_ways(&self, addresses: &[IpAddr], nodes: &[&str]) {
        let nodes: BTreeSet<_> = nodes.iter().map(|&node| node.to_owned()).collect();
        for (router, address) in
            (0..self.places.len()).flat_map(|router| addresses.iter().map(move |a| (router, *a)))
        {
            let what = format!("router {} to send {address} to {nodes:?}", router + 1);
            let outcome = wait::until(&what, || {
                let ways = self.ways(router, address);
                ensure!(ways == nodes, "it sends to {ways:?}");
                Ok(())
            });
            outcome.unwrap_or_else(|error| panic!("{error:#}\n{}", self.said(router)));
        }
    }

    /// Waits until BFD watches every path of both routers: a path that never was is not missed.
    #[track_caller]
    pub(crate) fn wait_watched(&self) {
        for (router, frr) in self.routers.iter().enumerate() {
            let outcome = wait::until(&format!("BFD up on router {}", router + 1), || {
                let peers = frr.show("bfd peers");
                let up = peers.as_array().into_iter().flatten().filter(|peer| peer["status"] == "up").count();
                ensure!(up == self.cluster.topology.nodes.len(), "{peers:#}");
                Ok(())
            });
            outcome.unwrap();
        }
    }

    /// What a router says of its sessions.
    pub(crate) fn said(&self, router: usize) -> String {
        self.routers[router].vtysh(&["show bgp summary", "show bgp ipv4 unicast", "show bfd peers brief"])
    }

    /// Connects from the client behind the routers.
    pub(crate) fn tcp(&self, to: IpAddr) -> anyhow::Result<Reply> {
        client::tcp(&self.client, at(to, 80))
    }

    /// Makes so many connections; counts who answered.
    #[track_caller]
    pub(crate) fn spread(&self, to: IpAddr, connections: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..connections {
            *counts.entry(self.tcp(to).unwrap().backend).or_default() += 1;
        }
        counts
    }
}

/// A client that connects again and again; what fails is kept.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<String>>,
}

impl Traffic {
    pub(crate) fn start(from: &Namespace, to: SocketAddr) -> Self {
        let from = from.clone();
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&made));
        let thread = thread::spawn(move || {
            let mut failures = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match client::tcp(&from, to) {
                    Ok(_) => _ = count.fetch_add(1, Ordering::Relaxed),
                    Err(error) => failures.push(format!("{error:#}")),
                }
            }
            failures
        });
        Self { stop, made, thread }
    }

    /// Waits for so many further connections.
    pub(crate) fn wait(&self, connections: usize) {
        let until = self.made.load(Ordering::Relaxed) + connections;
        wait::until_true("further connections", || self.made.load(Ordering::Relaxed) >= until).unwrap();
    }

    /// Ends it; answers what failed.
    pub(crate) fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// The addresses of a machine on the fabric, its link-local one too.
fn addresses(machine: &topology::Machine) -> Vec<IpAddr> {
    let listing = machine.namespace.run("ip", &["-j", "address", "show", "dev", "eth0"]).unwrap();
    let listing: Value = serde_json::from_str(&listing).unwrap();
    let all = listing[0]["addr_info"].as_array().unwrap();
    all.iter().map(|one| one["local"].as_str().unwrap().parse().unwrap()).collect()
}

/// A router's namespace: on the fabric, and with a link to the client.
fn plug_in(cluster: &Cluster, client: &Namespace, number: u8) -> Namespace {
    let fabric = cluster.place("fabric").unwrap();
    let place = Namespace::new(&format!("r{number}")).unwrap();
    let (port, link) = (format!("port{number}"), format!("to-r{number}"));
    netns::join((fabric, &port), (&place, "eth0")).unwrap();
    fabric.ip(&[format!("link set {port} master switch")]).unwrap();
    netns::join((client, &link), (&place, "eth1")).unwrap();
    place
        .ip(&[
            format!("addr add 172.17.8.{number}/24 dev eth0"),
            format!("addr add fd00:8::{number}/64 dev eth0 nodad"),
            format!("addr add 10.99.{number}.1/24 dev eth1"),
            format!("addr add fd00:99:{number}::1/64 dev eth1 nodad"),
            format!("route add {CLIENT_V4}/32 via 10.99.{number}.2"),
            format!("route add {CLIENT_V6}/128 via fd00:99:{number}::2"),
        ])
        .unwrap();
    client
        .ip(&[
            format!("addr add 10.99.{number}.2/24 dev {link}"),
            format!("addr add fd00:99:{number}::2/64 dev {link} nodad"),
        ])
        .unwrap();
    place.sysctl("net/ipv4/ip_forward", "1").unwrap();
    place.sysctl("net/ipv6/conf/all/forwarding", "1").unwrap();
    for namespace in [&place, client] {
        // Ports count as well: connections of one client take different ways.
        namespace.sysctl("net/ipv4/fib_multipath_hash_policy", "1").unwrap();
        namespace.sysctl("net/ipv6/fib_multipath_hash_policy", "1").unwrap();
    }
    place
}

fn settings(cluster: &Cluster, number: u8, has_bfd: bool) -> Settings {
    let local = format!("172.17.8.{number}");
    let peering = |machine: &topology::Machine| Peering {
        keeps_routes: true,
        bfd: has_bfd.then_some(300),
        hold_time: 90,
        ..Peering::new(&local, &topology::node_addresses(machine.index)[0].to_string(), NODES_ASN)
    };
    let peerings = cluster.topology.nodes.values().map(peering).collect();
    Settings { asn: ROUTERS_ASN, router_id: local.clone(), peerings }
}

fn objects(has_bfd: bool) -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let peer = |number: u8| {
        let mut spec = json!({
            "peerAddress": format!("172.17.8.{number}"), "peerASN": ROUTERS_ASN, "connectTime": 1,
            "gracefulRestart": {"restartTime": 60},
        });
        if has_bfd {
            spec["bfdProfile"] = json!("steady");
        }
        object("BgpPeer", &format!("r{number}"), spec)
    };
    vec![
        object("AddressPool", "routed", json!({"addresses": POOL})),
        object(
            "BfdProfile",
            "steady",
            json!({"receiveInterval": 300, "transmitInterval": 300, "detectMultiplier": 5}),
        ),
        peer(1),
        peer(2),
        object("Advertisement", "routed", json!({"type": "BGP"})),
    ]
}
