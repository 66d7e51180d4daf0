//! Network of a test cluster: nodes on one switch (the fabric), workloads behind the nodes, and a client
//! outside of the cluster.
//!
//! ```text
//!                     fabric (a switch)  172.17.8.0/24  fd00:8::/64
//!      ┌───────────┬──────────┬──────────┬──────────┬───────────┐
//!   control       node1      node2      node3     client
//!   .10           .101       .102       .103      .200  (on the nodes' network, outside the cluster)
//!                 │          │          │
//!                 workloads  workloads  workloads
//!                 10.1.1.0/24 10.1.2.0/24 10.1.3.0/24   fd00:10:1::/64 fd00:10:2::/64 fd00:10:3::/64
//! ```
//! Each workload has its own link to its node and reaches everything through the node, even other workloads on
//! it. Therefore all traffic of workloads passes the rules of the node. If workloads were connected to a
//! bridge, replies between two of them would bypass these rules.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    host::netns::{self, Namespace},
    network::{echo::EchoServer, web::WebServer},
};

/// Maximum number of nodes in a lab; their addresses start at `.101`.
pub const NODES_MAX: u8 = 50;
/// Listening address of the control server.
pub const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(172, 17, 8, 10)), 7440);
/// External IPv4 address that the outside client reaches through the first node.
pub const EXTERNAL_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// External IPv6 address that the outside client reaches through the first node.
pub const EXTERNAL_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
/// Value of the server option `--allow-external-ip` that permits the external addresses.
pub const EXTERNAL_CIDRS: &str = "203.0.113.0/24,2001:db8::/64";

/// Network of the load balancer addresses in the project's requirements document. The address pool is
/// `172.25.1.100`–`172.25.1.200`; the nodes have addresses of this network outside of the pool.
pub const LAN_V4: &str = "172.25.1.0/24";

/// Namespaces and links of a lab network, without processes.
#[derive(Debug)]
pub struct Topology {
    /// Namespace of the switch that connects all machines.
    fabric: Namespace,
    /// Namespace of the control server.
    pub control: Namespace,
    /// Namespace of a client outside the cluster, on the fabric.
    pub client: Namespace,
    /// Nodes with agents, by name.
    pub nodes: BTreeMap<String, TopologyNode>,
    /// Workloads behind the nodes, by name.
    pub workloads: BTreeMap<String, Workload>,
}

/// Node of the cluster with its namespace and addresses.
#[derive(Debug)]
pub struct TopologyNode {
    /// Index of the node: 1 for `node1`.
    pub index: u8,
    /// Network namespace of the node.
    pub namespace: Namespace,
}

/// Workload with its addresses behind a node.
#[derive(Debug)]
pub struct Workload {
    /// Name of the node behind which the workload runs.
    pub node: String,
    /// Network namespace of the workload.
    pub namespace: Namespace,
    /// IPv4 and IPv6 address of the workload.
    pub addresses: [IpAddr; 2],
    servers: BTreeMap<u16, EchoServer>,
    web_servers: BTreeMap<u16, WebServer>,
}

impl Topology {
    /// Builds the fabric and the nodes, without workloads.
    ///
    /// # Errors
    /// Returns an error if the process is not root or the kernel rejects the request.
    pub fn new(nodes: u8) -> Result<Self> {
        ensure!((1..=NODES_MAX).contains(&nodes), "a lab has 1 to {NODES_MAX} nodes, not {nodes}");
        let fabric = Namespace::new("fabric")?;
        fabric.ip(&["link add switch type bridge", "link set switch up"])?;
        let control = plug_in(&fabric, "control", 10)?;
        let client = plug_in(&fabric, "client", 200)?;
        let mut machines = BTreeMap::new();
        for index in 1..=nodes {
            let name = format!("node{index}");
            let namespace = plug_in(&fabric, &name, 100 + index)?;
            make_router(&namespace, index, nodes)?;
            machines.insert(name, TopologyNode { index, namespace });
        }
        let [via_v4, via_v6] = fabric_addresses(101);
        client.ip(&[
            format!("route add {EXTERNAL_V4} via {via_v4}"),
            format!("route add {EXTERNAL_V6} via {via_v6}"),
        ])?;
        Ok(Self { fabric, control, client, nodes: machines, workloads: BTreeMap::new() })
    }

    /// Gives every node and the external client an additional address in the network [`LAN_V4`], on their
    /// existing interfaces.
    ///
    /// # Errors
    /// Returns an error if the kernel rejects the request.
    pub fn join_lan(&self) -> Result<()> {
        for machine in self.nodes.values() {
            machine.namespace.ip(&[format!("addr add {}/24 dev eth0", lan_address(machine.index))])?;
        }
        self.client.ip(&[format!("addr add {}/24 dev eth0", lan_address(250))])
    }

    /// Disconnects a node from the fabric (switch) by setting its link down, or reconnects it if `in_place`
    /// is true.
    ///
    /// # Errors
    /// Returns an error if the node does not exist.
    pub fn plug(&self, node: &str, in_place: bool) -> Result<()> {
        let machine = self.nodes.get(node).with_context(|| format!("there is no node {node}"))?;
        let state = if in_place { "up" } else { "down" };
        self.fabric.ip(&[format!("link set port{} {state}", 100 + machine.index)])
    }

    /// Adds a namespace on the fabric (switch), for example for a router. `host` is the last octet of its
    /// addresses, 1–9 or 201–250.
    ///
    /// # Errors
    /// Returns an error if the address is in use.
    pub fn add_place(&self, role: &str, host: u8) -> Result<Namespace> {
        ensure!(matches!(host, 1..=9 | 201..=250), "host {host} is reserved");
        let namespace = plug_in(&self.fabric, role, host)?;
        namespace.sysctl("net/ipv4/ip_forward", "1")?;
        namespace.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        Ok(namespace)
    }

    /// Adds a workload behind a node, without a server; `host` is the last octet of its addresses, 2–250.
    ///
    /// # Errors
    /// Returns an error if the node does not exist, or the name or address is in use.
    pub fn add_workload(&mut self, name: &str, node: &str, host: u8) -> Result<()> {
        ensure!(!self.workloads.contains_key(name), "workload {name} already exists");
        let machine = self.nodes.get(node).with_context(|| format!("there is no node {node}"))?;
        let [v4, v6] = workload_addresses(machine.index, host);
        let gateway = Ipv4Addr::new(10, 1, machine.index, 1);
        let namespace = Namespace::new(name)?;
        let port = format!("work{host}");
        netns::join((&machine.namespace, &port), (&namespace, "eth0"))?;
        machine.namespace.ip(&[
            format!("addr add {gateway}/32 dev {port}"),
            format!("addr add fe80::1/64 dev {port} nodad"),
            format!("route add {v4}/32 dev {port}"),
            format!("route add {v6}/128 dev {port}"),
        ])?;
        namespace.ip(&[
            format!("addr add {v4}/32 dev eth0"),
            format!("addr add {v6}/128 dev eth0 nodad"),
            format!("route add {gateway}/32 dev eth0"),
            format!("route add default via {gateway} dev eth0 src {v4}"),
            format!("route add default via fe80::1 dev eth0 src {v6}"),
        ])?;
        let workload = Workload {
            node: node.to_owned(),
            namespace,
            addresses: [v4, v6],
            servers: BTreeMap::new(),
            web_servers: BTreeMap::new(),
        };
        self.workloads.insert(name.to_owned(), workload);
        Ok(())
    }

    /// Starts an echo server in a workload that replies with the name of the workload.
    ///
    /// # Errors
    /// Returns an error if the workload does not exist or the port is in use.
    pub fn serve(&mut self, name: &str, port: u16) -> Result<()> {
        let workload =
            self.workloads.get_mut(name).with_context(|| format!("there is no workload {name}"))?;
        let server = EchoServer::start(&workload.namespace, name, port)?;
        workload.servers.insert(port, server);
        Ok(())
    }

    /// Starts a web server in a workload. Each page consists of the name of the workload.
    ///
    /// # Errors
    /// Returns an error if the workload does not exist or the port is in use.
    pub fn serve_pages(&mut self, name: &str, port: u16) -> Result<()> {
        let workload =
            self.workloads.get_mut(name).with_context(|| format!("there is no workload {name}"))?;
        let server = WebServer::start(&workload.namespace, name, port)?;
        workload.web_servers.insert(port, server);
        Ok(())
    }

    /// Stops all servers of a workload and closes their connections.
    pub fn stop_serving(&mut self, name: &str) {
        if let Some(workload) = self.workloads.get_mut(name) {
            workload.servers.clear();
            workload.web_servers.clear();
        }
    }

    /// Returns the namespace of `client`, `control`, a node or a workload.
    ///
    /// # Errors
    /// Returns an error if there is none of this name.
    pub fn place(&self, name: &str) -> Result<&Namespace> {
        match name {
            "client" => Ok(&self.client),
            "control" => Ok(&self.control),
            "fabric" => Ok(&self.fabric),
            _ => match (self.nodes.get(name), self.workloads.get(name)) {
                (Some(machine), _) => Ok(&machine.namespace),
                (None, Some(workload)) => Ok(&workload.namespace),
                (None, None) => bail!("the lab has no namespace called {name}"),
            },
        }
    }
}

/// Returns the addresses of the node with number `index` on the fabric (switch): IPv4, then IPv6.
#[must_use]
pub fn node_addresses(index: u8) -> [IpAddr; 2] {
    fabric_addresses(100 + index)
}

/// Returns the address in [`LAN_V4`] with the last octet `host`, which for a node is the node's index.
#[must_use]
pub fn lan_address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 25, 1, host)
}

/// Returns the name of a node's port on the switch.
#[must_use]
pub fn fabric_port(index: u8) -> String {
    port_of(100 + index)
}

/// Returns the workload networks of a node in the format of `--workload-cidr`.
#[must_use]
pub fn workload_cidrs(index: u8) -> [String; 2] {
    [format!("10.1.{index}.0/24"), format!("fd00:10:{index}::/64")]
}

/// Returns the addresses of a workload behind the node with number `index`: IPv4, then IPv6.
#[must_use]
pub fn workload_addresses(index: u8, host: u8) -> [IpAddr; 2] {
    let v4 = Ipv4Addr::new(10, 1, index, host);
    let v6 = Ipv6Addr::new(0xfd00, 0x10, decimal_as_hex(index), 0, 0, 0, 0, decimal_as_hex(host));
    [v4.into(), v6.into()]
}

/// Returns the addresses on the fabric (switch) that end with `host`: IPv4, then IPv6.
#[must_use]
pub fn fabric_addresses(host: u8) -> [IpAddr; 2] {
    let v6 = Ipv6Addr::new(0xfd00, 8, 0, 0, 0, 0, 0, decimal_as_hex(host));
    [Ipv4Addr::new(172, 17, 8, host).into(), v6.into()]
}

/// Returns the number whose hexadecimal digits are the decimal digits of `number` (0x101 for 101), so that
/// the last group of an IPv6 address looks like the last octet of its IPv4 counterpart.
fn decimal_as_hex(number: u8) -> u16 {
    let number = u16::from(number);
    number / 100 * 0x100 + number / 10 % 10 * 0x10 + number % 10
}

pub(crate) fn port_of(host: u8) -> String {
    format!("port{host}")
}

pub(crate) fn plug_in(fabric: &Namespace, role: &str, host: u8) -> Result<Namespace> {
    let namespace = Namespace::new(role)?;
    let port = port_of(host);
    netns::join((fabric, &port), (&namespace, "eth0"))?;
    fabric.ip(&[format!("link set {port} master switch")])?;
    let [v4, v6] = fabric_addresses(host);
    namespace.ip(&[format!("addr add {v4}/24 dev eth0"), format!("addr add {v6}/64 dev eth0 nodad")])?;
    Ok(namespace)
}

fn make_router(namespace: &Namespace, index: u8, nodes: u8) -> Result<()> {
    namespace.sysctl("net/ipv4/ip_forward", "1")?;
    namespace.sysctl("net/ipv6/conf/all/forwarding", "1")?;
    namespace.sysctl("net/ipv4/conf/all/send_redirects", "0")?;
    namespace.sysctl("net/ipv4/conf/default/send_redirects", "0")?;
    let others = (1..=nodes).filter(|&other| other != index);
    let routes: Vec<String> = others
        .flat_map(|other| {
            let [v4, v6] = node_addresses(other);
            let [cidr_v4, cidr_v6] = workload_cidrs(other);
            [format!("route add {cidr_v4} via {v4}"), format!("route add {cidr_v6} via {v6}")]
        })
        .collect();
    namespace.ip(&routes)?;
    // A default route, as on a real machine: the kernel needs a route before rules see a virtual address.
    let [gateway_v4, gateway_v6] = fabric_addresses(10);
    namespace
        .ip(&[format!("route add default via {gateway_v4}"), format!("route add default via {gateway_v6}")])
}
