//! Compared paths from a client machine over a node to a backend machine: through Tidegate, through another
//! proxy, and with plain routes only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use lab::{
    host::netns::Namespace,
    network::topology::Topology,
    processes::{
        haproxy::Haproxy,
        nginx::{Nginx, Serves},
    },
};

use super::backend::Backend;
use crate::fixture_cluster::{BACKEND, CLIENT, Estate, PORT, Size, TARGET_PORT};

/// Name of the node in the network of each path.
const NODE: &str = "node1";
/// Listening address of relays, in the Service range of the fixture cluster.
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// Number of endpoints of each Service that receives no traffic.
const ENDPOINTS: u8 = 2;
/// Source port range of the clients; the kernel's default omits half of the ports.
const LOCAL_PORTS: &str = "1024 65535";
/// Conntrack timeout of closed connections on the node in seconds, short so that connections of earlier
/// measurements do not fill the table.
const REMEMBERED_SECS: &str = "1";

/// Measured path from a client to the backend; its network and processes are removed when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPath {
    /// Name of the path in the results.
    pub(super) name: String,
    /// Description of the configuration of the path.
    pub(super) settings: String,
    /// Number of Services on the node; 0 for paths without Tidegate.
    pub(super) services: u32,
    /// Namespace of the clients.
    pub(super) client: Namespace,
    /// Address to which the clients connect.
    pub(super) target: SocketAddr,
    _backend: Backend,
    _way: PathResources,
}

/// Processes and namespaces that carry the path.
#[derive(Debug)]
#[expect(dead_code, reason = "kept for their destructors")]
enum PathResources {
    Estate(Box<Estate>),
    Routes(Topology),
    Haproxy(Haproxy, Topology),
    Nginx(Nginx, Topology),
}

/// Proxy process that relays connections between client and backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relay {
    /// HAProxy in TCP mode.
    Haproxy,
    /// nginx with its stream module.
    Nginx,
}

/// Starts Tidegate in a proxy mode with a number of Services, one of which leads to the backend.
pub(super) fn tidegate(mode: &'static str, services: u32) -> Result<ConnectionPath> {
    let size = Size { mode, services: services - 1, endpoints: ENDPOINTS, live: 1 };
    let mut estate = Estate::start(size)?;
    estate.cluster.topology.stop_serving(BACKEND);
    let backend = Backend::start(estate.cluster.place(BACKEND)?, TARGET_PORT)?;
    let headers = [("content-type", "application/merge-patch+json")];
    let body = Estate::live_patch(1).to_string();
    estate.cluster.api.send("PATCH", &Estate::live_path(0), &headers, body)?.success()?;
    estate.wait_converged()?;
    prepare(&estate.cluster.topology)?;
    let (client, target) = (estate.cluster.place(CLIENT)?.clone(), estate.live_frontend(0)?);
    let (name, settings) = named(mode);
    Ok(ConnectionPath {
        name,
        settings,
        services,
        client,
        target,
        _backend: backend,
        _way: PathResources::Estate(Box::new(estate)),
    })
}

fn named(mode: &str) -> (String, String) {
    let last = "the measured Service is the last one by name";
    (
        format!("tidegate-{mode}"),
        format!("Tidegate, {mode} mode, {ENDPOINTS} endpoints per filling Service; {last}"),
    )
}

/// Starts the network with plain routes instead of a proxy.
pub(super) fn direct() -> Result<ConnectionPath> {
    let (topology, backend, client, answering) = machines()?;
    Ok(ConnectionPath {
        name: "direct".to_owned(),
        settings: "address of the backend, routed by the node, without rules and connection tracking"
            .to_owned(),
        services: 0,
        client,
        target: SocketAddr::new(answering, TARGET_PORT),
        _backend: backend,
        _way: PathResources::Routes(topology),
    })
}

/// Starts the network with HAProxy or nginx as a TCP relay on the node.
pub(super) fn relay(relay: Relay) -> Result<ConnectionPath> {
    let (topology, backend, client, answering) = machines()?;
    let node = topology.place(NODE)?.clone();
    node.ip(&[format!("addr add {RELAY}/32 dev lo")])?;
    let answering = SocketAddr::new(answering, TARGET_PORT);
    let (name, settings, way) = match relay {
        Relay::Haproxy => {
            let running = Haproxy::start(&node, &haproxy(answering))?;
            ("haproxy", "HAProxy, TCP mode, one thread per CPU", PathResources::Haproxy(running, topology))
        }
        Relay::Nginx => {
            let running = Nginx::start(&node, "the relay", &Serves::Connections(nginx(answering)))?;
            ("nginx", "nginx, stream module, one worker per CPU", PathResources::Nginx(running, topology))
        }
    };
    let target = SocketAddr::new(RELAY.into(), PORT);
    Ok(ConnectionPath {
        name: name.to_owned(),
        settings: settings.to_owned(),
        services: 0,
        client,
        target,
        _backend: backend,
        _way: way,
    })
}

/// Starts a network of one node with two workloads, one of which runs the backend.
fn machines() -> Result<(Topology, Backend, Namespace, IpAddr)> {
    let mut topology = Topology::new(1)?;
    topology.add_workload(CLIENT, NODE, 2)?;
    topology.add_workload(BACKEND, NODE, 3)?;
    prepare(&topology)?;
    let answering = topology.workloads.get(BACKEND).context("the workload was just added")?;
    let [address, _] = answering.addresses;
    let backend = Backend::start(&answering.namespace, TARGET_PORT)?;
    let client = topology.place(CLIENT)?.clone();
    Ok((topology, backend, client, address))
}

/// Applies the kernel settings (client ports, conntrack timeouts) that all compared paths (proxies and plain
/// routes) share.
pub(crate) fn prepare(topology: &Topology) -> Result<()> {
    let node = topology.place(NODE)?;
    for place in [node, topology.place(CLIENT)?] {
        place.sysctl("net/ipv4/ip_local_port_range", LOCAL_PORTS)?;
    }
    for state in ["time_wait", "close", "fin_wait", "last_ack"] {
        node.sysctl(&format!("net/netfilter/nf_conntrack_tcp_timeout_{state}"), REMEMBERED_SECS)?;
    }
    Ok(())
}

fn haproxy(to: SocketAddr) -> String {
    format!(
        "defaults\n  mode tcp\n  timeout connect 3s\n  timeout client 30s\n  timeout server 30s\n\
         listen relay\n  bind {RELAY}:{PORT}\n  server answering {to}\n"
    )
}

fn nginx(to: SocketAddr) -> String {
    format!("server {{ listen {RELAY}:{PORT}; proxy_connect_timeout 3s; proxy_pass {to}; }}")
}

/// Returns the versions of the tested software.
pub(super) fn versions() -> Result<Vec<String>> {
    Ok(vec![format!("tidegate {}", env!("CARGO_PKG_VERSION")), Haproxy::version()?, Nginx::version()?])
}
