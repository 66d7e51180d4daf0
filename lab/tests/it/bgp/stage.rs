//! Test network: a client behind two routers, both of which connect to all nodes of a cluster.
//!
//! ```text
//!                 ┌── router1 ──┐                   ┌── node1
//!   outside ══════╡             ╞═══ fabric ════════╪── node2
//!    (both)       └── router2 ──┘                   └── node3
//! ```
//! The client in the namespace `outside` has a link to both routers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::{
        control::string,
        deployment::{Cluster, Options},
    },
    host::{
        netns::{self, Namespace},
        wait,
    },
    network::{
        client::{self, at},
        steady_client::only_moved,
        topology::{TopologyNode, fabric_addresses, node_addresses},
    },
    processes::routers::{Frr, RouterPlan, learned},
};
use serde_json::{Value, json};

/// AS number of the nodes; `ROUTER_ASN` is that of the routers.
pub(crate) const ASN: u32 = 64_512;
pub(crate) const ROUTER_ASN: u32 = 64_600;
/// Ranges of the announced addresses, IPv4 and IPv6.
pub(crate) const POOL: [&str; 2] = ["10.200.0.0/24", "fd00:200::/120"];

/// Cluster, two routers, and a client behind the routers.
pub(crate) struct Stage {
    pub(crate) routers: Vec<Frr>,
    pub(crate) outside: Namespace,
    pub(crate) cluster: Cluster,
    /// Number of the node that has each fabric address. Includes link-local addresses, because routers prefer
    /// them as next hops.
    gateways: BTreeMap<IpAddr, u8>,
}

/// Settings of the BGP peers that differ between tests.
pub(crate) struct Peering {
    /// Fields added to the spec of every `BgpPeer`.
    pub(crate) peer: Value,
    /// Arguments of every agent.
    pub(crate) arguments: Vec<String>,
}

impl Default for Peering {
    fn default() -> Self {
        Self { peer: json!({}), arguments: Vec::new() }
    }
}

impl Stage {
    /// Starts a cluster of `nodes` nodes and the routers, and waits until both routers have BGP sessions with
    /// all nodes.
    pub(crate) fn new(nodes: u8, peering: &Peering) -> Self {
        let agent_arguments = peering.arguments.clone();
        let cluster = Cluster::start(&Options { nodes, agent_arguments, ..Options::default() }).unwrap();
        let outside = Namespace::new("outside").unwrap();
        outside.sysctl("net/ipv4/fib_multipath_hash_policy", "1").unwrap();
        outside.sysctl("net/ipv6/fib_multipath_hash_policy", "1").unwrap();
        let neighbours: Vec<_> = (1..=nodes).map(|index| (node_addresses(index)[0], ASN)).collect();
        let routers: Vec<_> = [1, 2]
            .into_iter()
            .map(|host| {
                let place = cluster.topology.add_place(&format!("router{host}"), host).unwrap();
                place.sysctl("net/ipv4/fib_multipath_hash_policy", "1").unwrap();
                place.sysctl("net/ipv6/fib_multipath_hash_policy", "1").unwrap();
                connect(&outside, &place, &cluster, host);
                let id = Ipv4Addr::new(172, 17, 8, host);
                let plan =
                    RouterPlan { bfd: Some((150, 3)), ..RouterPlan::new(ROUTER_ASN, id, neighbours.clone()) };
                Frr::start(&place, &plan).unwrap()
            })
            .collect();
        for (destination, family) in [("10.200.0.0/24", 0), ("fd00:200::/120", 1)] {
            let hops = [1, 2].map(|host| format!("nexthop via {}", uplinks(host)[family].0));
            outside.ip(&[format!("route add {destination} {} {}", hops[0], hops[1])]).unwrap();
        }
        let machines = cluster.topology.nodes.values();
        let gateways =
            machines.flat_map(|machine| addresses(machine).into_iter().map(|ip| (ip, machine.index)));
        let gateways = gateways.collect();
        let stage = Self { routers, outside, cluster, gateways };
        stage.add_objects(peering);
        stage.wait_established();
        stage
    }

    fn add_objects(&self, peering: &Peering) {
        let profile = json!({"receiveInterval": 150, "transmitInterval": 150, "detectMultiplier": 3});
        let mut objects = vec![
            object("AddressPool", "outside", &json!({"addresses": POOL})),
            object("BfdProfile", "fast", &profile),
            object("Advertisement", "outside", &json!({"type": "BGP"})),
        ];
        for host in [1, 2] {
            let mut spec = json!({
                "peerAddress": fabric_addresses(host)[0], "peerASN": ROUTER_ASN, "localASN": ASN, "bfdProfile": "fast",
                "connectTime": 1,
            });
            for (field, value) in peering.peer.as_object().into_iter().flatten() {
                spec[field] = value.clone();
            }
            objects.push(object("BgpPeer", &format!("router{host}"), &spec));
        }
        self.cluster.apply_objects(&objects).unwrap();
    }

    /// Waits until the BGP sessions of all nodes with both routers are established.
    #[track_caller]
    pub(crate) fn wait_established(&self) {
        for router in &self.routers {
            for machine in self.cluster.topology.nodes.values() {
                let node = node_addresses(machine.index)[0];
                wait::until(&format!("a session with {node}"), || {
                    ensure!(router.is_established(node)?, "{}", router.vtysh("show bgp summary")?);
                    Ok(())
                })
                .unwrap();
            }
        }
    }

    /// Creates a Service `web` with an endpoint on each of `nodes`. `spec` contains further fields of the
    /// Service. Returns its IPv4 and IPv6 load balancer addresses.
    pub(crate) fn add_web(&mut self, nodes: &[&str], spec: &Value) -> [IpAddr; 2] {
        for (host, node) in (11..).zip(nodes) {
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
        wait::until("an address of each family", || {
            let service = self.cluster.service("default/web")?;
            let one = |index: usize| -> Result<IpAddr> {
                Ok(string(&service, &format!("/status/loadBalancer/ingress/{index}/ip"))?.parse()?)
            };
            let mut both = [one(0)?, one(1)?];
            both.sort_unstable();
            Ok(both)
        })
        .unwrap()
    }

    /// Returns the numbers of the nodes that are next hops of the route to an address, read from the kernel
    /// of a router.
    pub(crate) fn ways(&self, router: &Frr, address: IpAddr) -> Result<BTreeSet<u8>> {
        let routes = learned(&router.namespace)?;
        let Some(route) = routes.iter().find(|route| route["dst"] == address.to_string()) else {
            return Ok(BTreeSet::new());
        };
        let hops = route["nexthops"].as_array().cloned().unwrap_or_else(|| vec![route.clone()]);
        let node = |hop: &Value| {
            let gateway = string(hop, "/gateway").or_else(|_| string(hop, "/via/host"))?;
            self.gateways.get(&gateway.parse()?).copied().with_context(|| format!("{gateway} is no node"))
        };
        hops.iter().map(node).collect()
    }

    /// Waits until the next hops of the route to an address are exactly `nodes`, on both routers.
    #[track_caller]
    pub(crate) fn wait_routed(&self, address: IpAddr, nodes: &[u8]) {
        let nodes: BTreeSet<_> = nodes.iter().copied().collect();
        for (router, number) in self.routers.iter().zip(1..) {
            wait::until(&format!("router{number} to reach {address} over {nodes:?}"), || {
                let ways = self.ways(router, address)?;
                ensure!(ways == nodes, "it does over {ways:?}\n{}", router.vtysh("show bgp summary")?);
                Ok(())
            })
            .unwrap();
        }
    }

    /// Waits until the BFD sessions of both routers with all nodes are up, because BFD reports no failure of
    /// a session that was never up.
    #[track_caller]
    pub(crate) fn wait_watched(&self) {
        for router in &self.routers {
            wait::until("BFD to be up with every node", || {
                let peers = router.show("bfd peers")?;
                let up = peers.as_array().into_iter().flatten().filter(|peer| peer["status"] == "up");
                ensure!(up.count() == self.cluster.topology.nodes.len(), "{peers:#}");
                Ok(())
            })
            .unwrap();
        }
    }

    /// Connects from the outside client to the Service at an address and returns the reply.
    pub(crate) fn ask(&self, address: IpAddr) -> Result<client::Reply> {
        client::tcp(&self.outside, self.at(address))
    }

    /// Waits until the outside client reaches an address.
    #[track_caller]
    pub(crate) fn wait_reached(&self, address: IpAddr) {
        wait::until(&format!("{address} to answer"), || self.ask(address)).unwrap();
    }

    /// Connects repeatedly from the outside client and returns the number of replies of each backend. One
    /// connection may be reset, because a router that reorders its next hops may send an established connection
    /// to a different node.
    pub(crate) fn spread(&self, address: IpAddr, connections: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let mut failures = Vec::new();
        for _ in 0..connections {
            match self.ask(address) {
                Ok(reply) => *counts.entry(reply.backend).or_default() += 1,
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
        only_moved(&failures, 1).unwrap();
        counts
    }

    /// Returns the socket address of the Service at an IP address.
    pub(crate) fn at(&self, address: IpAddr) -> SocketAddr {
        at(address, 80)
    }

    /// Sends a merge patch for the object at `path`, and asserts that the control server accepts it.
    pub(crate) fn patch(&self, path: &str, patch: &Value) {
        self.cluster.patch(path, patch).unwrap();
    }
}

/// Returns the fabric addresses of a node, including its link-local one.
fn addresses(machine: &TopologyNode) -> Vec<IpAddr> {
    let listing = machine.namespace.run("ip", &["-j", "address", "show", "dev", "eth0"]).unwrap();
    let listing: Value = serde_json::from_str(&listing).unwrap();
    let all = listing[0]["addr_info"].as_array().unwrap();
    all.iter().map(|one| one["local"].as_str().unwrap().parse().unwrap()).collect()
}

pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Returns the addresses of the link between router number `host` and the outside client, first IPv4, then
/// IPv6, each as a pair of the router's and the client's address.
pub(crate) fn uplinks(host: u8) -> [(String, String); 2] {
    [
        (format!("198.51.100.{}", host * 4 + 1), format!("198.51.100.{}", host * 4 + 2)),
        (format!("fd00:51:{host}::1"), format!("fd00:51:{host}::2")),
    ]
}

/// Connects router number `host` with the client, and adds a route back to the client on every node.
fn connect(outside: &Namespace, router: &Namespace, cluster: &Cluster, host: u8) {
    let [(router_v4, client_v4), (router_v6, client_v6)] = uplinks(host);
    let port = format!("up{host}");
    netns::join((outside, &port), (router, "eth1")).unwrap();
    router
        .ip(&[format!("addr add {router_v4}/30 dev eth1"), format!("addr add {router_v6}/64 dev eth1")])
        .unwrap();
    outside
        .ip(&[format!("addr add {client_v4}/30 dev {port}"), format!("addr add {client_v6}/64 dev {port}")])
        .unwrap();
    let [via_v4, via_v6] = fabric_addresses(host);
    for machine in cluster.topology.nodes.values() {
        let ways = [
            format!("route add 198.51.100.{}/30 via {via_v4}", host * 4),
            format!("route add fd00:51:{host}::/64 via {via_v6}"),
        ];
        machine.namespace.ip(&ways).unwrap();
    }
}
