//! Test cluster of a soak test: a node for each proxy mode that runs on any kernel, a router, clients at all
//! locations, and permanent Services.
//!
//! ```text
//!   outside ── router (FRR) ──┬── fabric ──┬── node1 (nftables)   web-1, spare-1, inside-1
//!                          client          ├── node2 (iptables)   web-2, spare-2, inside-2
//!                                          └── node3 (userspace)  web-3, spare-3, inside-3
//! ```
//! `web-N` and `spare-N` are workloads with backends; `outside`, `client` and `inside-N` are locations of clients.
//! There is no node in ipvs mode, because the kernels of test machines have no IPVS.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Memories;
use crate::{
    cluster::deployment::{Cluster, Options},
    fixtures::scene::BACKEND_PORT,
    host::{
        kernel, modes,
        netns::{self, Namespace},
        wait,
    },
    load::keep_alive::KeepAlive,
    network::topology::{fabric_addresses, node_addresses, workload_addresses},
    processes::routers::{Frr, RouterPlan, learned},
};

/// Proxy mode of each node, by index.
pub const MODES: [&str; 3] = modes::NATIVE;
/// Last octet of the first extra address of the workload `web-N`. Extra addresses are endpoints that have no
/// Workload object.
pub(super) const EXTRA_HOST: u8 = 101;
/// Number of extra addresses that each workload `web-N` has.
pub(super) const EXTRA_HOSTS: u8 = 16;
/// Number of objects per request; the server accepts up to 5,000.
const BATCH: usize = 500;
/// Number of concurrent clients, each of which changes a different object.
const ASKERS: u32 = 4;
const ASN: u32 = 64_512;
const ROUTER_ASN: u32 = 64_600;
const ROUTER: u8 = 1;
/// Conntrack timeout of idle TCP flows in seconds, instead of up to five days, so that each flow still
/// present at the end of the test is a leak.
const TCP_SECONDS: &str = "10";
/// Suffixes of the sysctls for the TCP timeouts of conntrack, by TCP state. The test can shorten them,
/// because none of its connections lasts for a second.
const TCP_CLOCKS: [&str; 9] = [
    "close_wait",
    "established",
    "fin_wait",
    "last_ack",
    "max_retrans",
    "syn_recv",
    "syn_sent",
    "time_wait",
    "unacknowledged",
];

/// Cluster of a soak test with the router and clients around it.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) router: Frr,
    pub(super) outside: Namespace,
    pub(super) cluster: Cluster,
    /// nftables ruleset and network state of each node before its agent started, by node name.
    pub(super) before_agents: BTreeMap<String, [String; 2]>,
}

impl Stage {
    /// Starts the cluster, the router and the clients. The only API objects are the Nodes.
    pub(super) fn start(members: u8) -> Result<Self> {
        let options = Options { nodes: 3, modes: MODES.to_vec(), members, ..Options::default() };
        let mut cluster = Cluster::start_control(&options)?;
        let router_place = cluster.topology.add_place("router", ROUTER)?;
        let outside = Namespace::new("outside")?;
        connect(&outside, &router_place, &cluster)?;
        let neighbours = (1..=3).map(|index| (node_addresses(index)[0], ASN)).collect();
        let plan = RouterPlan::new(ROUTER_ASN, Ipv4Addr::new(172, 17, 8, ROUTER), neighbours);
        let router = Frr::start(&router_place, &plan)?;
        for number in 1..=3_u8 {
            let node = format!("node{number}");
            cluster.add_place(&format!("inside-{number}"), &node, 50)?;
            cluster.add_place(&format!("web-{number}"), &node, 11)?;
            cluster.add_place(&format!("spare-{number}"), &node, 12)?;
            for workload in ["web", "spare"] {
                cluster.topology.serve(&format!("{workload}-{number}"), BACKEND_PORT)?;
            }
            let (node, web) = (cluster.place(&node)?, cluster.place(&format!("web-{number}"))?);
            for address in extra_addresses(number) {
                node.ip(&[format!("route add {address}/32 dev work11")])?;
                web.ip(&[format!("addr add {address}/32 dev eth0")])?;
            }
        }
        for machine in cluster.topology.nodes.values() {
            for clock in TCP_CLOCKS {
                let path = format!("net/netfilter/nf_conntrack_tcp_timeout_{clock}");
                machine.namespace.sysctl(&path, TCP_SECONDS)?;
            }
        }
        let before_agents = cluster.topology.nodes.iter().map(|(name, machine)| {
            let place = &machine.namespace;
            Ok((name.clone(), [kernel::ruleset(place)?, kernel::network(place)?]))
        });
        let before_agents = before_agents.collect::<Result<_>>()?;
        for node in ["node1", "node2", "node3"] {
            cluster.start_agent(node)?;
            cluster.wait_agent_ready(node)?;
        }
        cluster.wait_converged()?;
        Ok(Self { router, outside, cluster, before_agents })
    }

    /// Creates all permanent objects: address pools, Advertisements, Workloads, the Services to which clients
    /// connect, and `filling` further Services without clients. Waits until all nodes have programmed them.
    pub(super) fn fill(&self, filling: u32) -> Result<()> {
        self.apply(&around())?;
        self.apply(&live(&self.cluster)?)?;
        self.apply(&(0..filling).flat_map(filling_objects).collect::<Vec<_>>())?;
        self.cluster.wait_converged()?;
        let far = self.cluster.wait_load_balancer_ip("default/live-far")?;
        wait::until(&format!("three ways to {far}"), || {
            let routes = learned(&self.router.namespace)?;
            let route = routes.iter().find(|route| route["dst"] == far.to_string());
            let ways = route.map_or(0, |route| route["nexthops"].as_array().map_or(1, Vec::len));
            ensure!(ways == 3, "{routes:#?}");
            Ok(())
        })?;
        let near = self.cluster.wait_load_balancer_ip("default/live-near")?;
        self.cluster.wait_owner(near, |_| true).map(drop)
    }

    /// Fills the lists of past events that the control server keeps (removed Services, audit log, object
    /// changes) up to their limits. All objects are the same before and after.
    pub(super) fn make_memories(&self, filling: u32, memories: Memories) -> Result<()> {
        let Memories { removals, requests, trials, changes } = memories;
        self.make_removals(removals)?;
        self.make_requests(requests, "")?;
        self.make_requests(trials, "?dryRun=true")?;
        self.make_changes(filling, changes)?;
        self.cluster.wait_converged()
    }

    /// Creates and deletes `services` Services. The control server remembers removed Services, so that agents
    /// that are disconnected receive the removals later.
    fn make_removals(&self, services: u32) -> Result<()> {
        let made = |number| object("Service", &format!("gone-{number}"), json!({"ports": [{"port": 80}]}));
        let all: Vec<_> = (0..services).map(made).collect();
        // Each batch replaces the previous one; the empty last one deletes everything.
        for batch in all.chunks(BATCH).chain([&[][..]]) {
            let path = "/v1/apply?applySet=gone&prune=true&pruneLimit=5000&confirm=true";
            self.cluster.api.send_json("POST", path, &Value::from(batch))?.success()?;
        }
        Ok(())
    }

    /// Sends at least `requests` requests that each add or remove a label of a permanent EndpointSet. `query`
    /// is appended to the URL path.
    fn make_requests(&self, requests: u32, query: &str) -> Result<()> {
        let client = &self.cluster.topology.client;
        let ask = |asker: u32| {
            let client = KeepAlive::new(client, self.cluster.api.url())?;
            let path = format!("/v1/namespaces/default/endpointsets/{}{query}", filling_name(asker));
            for number in 0..requests.div_ceil(ASKERS).next_multiple_of(2) {
                let label = if number % 2 == 0 { json!("here") } else { Value::Null };
                client.merge_patch(&path, &json!({"metadata": {"labels": {"soak": label}}}))?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let askers: Vec<_> = (0..ASKERS).map(|asker| scope.spawn(move || ask(asker))).collect();
            askers.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| bail!("an asker panicked")))
        })
    }

    /// Makes at least `changes` changes of endpoint weights of permanent Services, the last of which restore
    /// the initial weights.
    fn make_changes(&self, filling: u32, changes: u32) -> Result<()> {
        let rounds = changes.div_ceil(filling.max(1)).next_multiple_of(2);
        for round in 0..rounds {
            let set = |number| {
                let endpoints = filling_endpoints(number);
                let other = endpoints.map(|(node, extra, weight)| (node, extra, weight + 1));
                endpoint_set(&filling_name(number), if round % 2 == 0 { &other } else { &endpoints })
            };
            self.apply(&(0..filling).map(set).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn apply(&self, objects: &[Value]) -> Result<()> {
        objects.chunks(BATCH).try_for_each(|batch| self.cluster.apply_objects(batch).map(drop))
    }

    /// Returns the namespace of the client at a location, such as `outside`.
    pub(super) fn place(&self, name: &str) -> Result<&Namespace> {
        if name == "outside" { Ok(&self.outside) } else { self.cluster.place(name) }
    }

    /// Returns the name of the backend behind each endpoint address.
    pub(super) fn backends(&self) -> BTreeMap<IpAddr, String> {
        let mut backends = BTreeMap::new();
        for number in 1..=3_u8 {
            for address in extra_addresses(number) {
                backends.insert(address.into(), format!("web-{number}"));
            }
            for (name, host) in [("web", 11), ("spare", 12)] {
                for address in workload_addresses(number, host) {
                    backends.insert(address, format!("{name}-{number}"));
                }
            }
        }
        backends
    }
}

/// Returns the additional addresses of the workload `web-N`, which serve as endpoints of permanent Services.
/// `number` is N.
pub(super) fn extra_addresses(number: u8) -> impl Iterator<Item = Ipv4Addr> {
    (EXTRA_HOST..EXTRA_HOST + EXTRA_HOSTS).map(move |host| Ipv4Addr::new(10, 1, number, host))
}

/// Connects the router with the external client and with the nodes, and adds routes in both directions.
fn connect(outside: &Namespace, router: &Namespace, cluster: &Cluster) -> Result<()> {
    netns::join((outside, "eth0"), (router, "eth1"))?;
    router.ip(&["addr add 198.51.100.1/30 dev eth1"])?;
    outside.ip(&["addr add 198.51.100.2/30 dev eth0", "route add default via 198.51.100.1"])?;
    let [via, _] = fabric_addresses(ROUTER);
    for machine in cluster.topology.nodes.values() {
        machine.namespace.ip(&[format!("route add 198.51.100.0/30 via {via}")])?;
    }
    let [first_node, _] = node_addresses(1);
    cluster.topology.client.ip(&[format!("route add 203.0.113.0/24 via {first_node}")])
}

/// Builds a Service with a health check node port. The first such Service makes agents allocate resources
/// that they keep after its removal.
pub(super) fn first_of_its_kind() -> Value {
    let spec = json!({
        "type": "LoadBalancer", "selector": {"app": "web"}, "externalTrafficPolicy": "Local", "loadBalancer": {"pool": "routed"},
        "ports": [{"port": 80}],
    });
    object("Service", "first", spec)
}

/// Builds the address pools and the Advertisements of their addresses.
fn around() -> Vec<Value> {
    let pool = |name: &str, addresses: &[&str], is_default: bool| {
        let spec = json!({"addresses": addresses, "autoAssign": is_default, "quarantineSeconds": 0});
        object("AddressPool", name, spec)
    };
    vec![
        pool("lan", &["172.17.8.211-172.17.8.249"], true),
        pool("routed", &["10.200.0.0/24"], false),
        object("Advertisement", "lan", json!({"addressPools": ["lan"]})),
        object("Advertisement", "routed", json!({"type": "BGP", "addressPools": ["routed"]})),
        object(
            "BgpPeer",
            "router",
            json!({
                "peerAddress": fabric_addresses(ROUTER)[0], "peerASN": ROUTER_ASN, "localASN": ASN, "connectTime": 1,
            }),
        ),
    ]
}

/// Builds the Services to which clients connect, and their Workloads.
fn live(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for number in 1..=3 {
        all.push(cluster.workload_record(&format!("web-{number}"), "web")?);
        all.push(cluster.workload_record(&format!("spare-{number}"), "web")?);
    }
    let ports = json!([
        {"name": "web", "port": 80, "targetPort": BACKEND_PORT},
        {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": BACKEND_PORT},
    ]);
    let balanced = |pool: &str| json!({"type": "LoadBalancer", "selector": {"app": "web"}, "loadBalancer": {"pool": pool}, "ports": ports});
    let checked = json!({"type": "Tcp", "port": BACKEND_PORT, "intervalMs": 1000, "timeoutMs": 900});
    let mut sticky = affinity();
    sticky["selector"] = json!({"app": "web"});
    sticky["ports"] = ports.clone();
    all.extend([
        object(
            "Service",
            "live-inside",
            json!({"ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"}, "ports": ports}),
        ),
        object(
            "Service",
            "live-node-port",
            json!({"type": "NodePort", "selector": {"app": "web"}, "ports": ports}),
        ),
        object("Service", "live-near", balanced("lan")),
        object("Service", "live-far", balanced("routed")),
        object(
            "Service",
            "live-checked",
            json!({"selector": {"app": "web"}, "ports": ports, "healthCheck": checked}),
        ),
        object("Service", "live-sticky", sticky),
        object("Service", LIVE_SET, json!({ "ports": ports })),
        endpoint_set(LIVE_SET, &[(1, 0, 1), (2, 0, 1), (3, 0, 1)]),
    ]);
    Ok(all)
}

/// Builds a session affinity with a timeout longer than the test, so that its kernel state must be removed
/// with the Service and does not just expire.
pub(super) fn affinity() -> Value {
    json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10_800}}})
}

/// Name of the Service with client traffic whose endpoints change continuously.
pub(super) const LIVE_SET: &str = "live-set";

/// Returns the name of a permanent Service without clients by its number.
pub(super) fn filling_name(number: u32) -> String {
    format!("filling-{number:04}")
}

fn filling_objects(number: u32) -> [Value; 2] {
    let name = filling_name(number);
    let spec = json!({"ports": [{"port": 80, "targetPort": BACKEND_PORT}]});
    [object("Service", &name, spec), endpoint_set(&name, &filling_endpoints(number))]
}

/// Returns the initial endpoints of a permanent Service without clients, each as node number, index of the
/// extra address on this node, and weight.
pub(super) fn filling_endpoints(number: u32) -> [(u8, u8, u16); 3] {
    let extra = u8::try_from(number % u32::from(EXTRA_HOSTS)).unwrap_or(0);
    [(1, extra, 1), (2, extra, 1), (3, extra, 1)]
}

/// Builds an EndpointSet for a Service. Each endpoint is given as node number, index of the extra address on
/// this node, and weight.
pub(super) fn endpoint_set(service: &str, endpoints: &[(u8, u8, u16)]) -> Value {
    object(
        "EndpointSet",
        service,
        json!({"service": service, "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()}),
    )
}

/// Builds an endpoint from a node number N, the index of an extra address of `web-N`, and a weight.
pub(super) fn endpoint(&(node, extra, weight): &(u8, u8, u16)) -> Value {
    let address = Ipv4Addr::new(10, 1, node, EXTRA_HOST + extra);
    json!({"address": address, "node": format!("node{node}"), "weight": weight})
}

pub(super) fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}});
    object["spec"] = spec;
    object
}

/// Returns the process ID of the relay that runs on a node in userspace mode, or `None` if there is none.
pub(super) fn relay(node: &Namespace) -> Result<Option<u32>> {
    let pids =
        crate::host::shell::run("ip", &["netns", "pids", node.name()]).context("processes of a node")?;
    let is_relay = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"relay")
    };
    Ok(pids.split_whitespace().filter_map(|word| word.parse().ok()).find(is_relay))
}
