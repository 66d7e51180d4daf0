//! Fixture cluster for benchmarks: one node with any number of Services, each with its own endpoints.
//!
//! Most Services are the *filling*: they receive no traffic, and bring tables, maps and memory to realistic sizes.
//! A few additional Services are *live*: their endpoints are addresses of a workload that responds.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::{
        control::number,
        deployment::{Cluster, Options},
    },
    host::wait,
};
use serde_json::{Value, json};

/// Service port of all Services.
pub const PORT: u16 = 80;
/// Target port of all endpoints.
pub const TARGET_PORT: u16 = 8080;
/// Name of the client workload.
pub const CLIENT: &str = "asking";
/// Name of the workload that serves the live Services.
pub const BACKEND: &str = "answering";
/// Maximum number of endpoints per Service. Limited by the live Services, whose endpoints are the addresses
/// from `.101` on in the network of one workload.
pub const ENDPOINTS_MAX: u8 = 100;
/// Maximum number of Services, whose addresses must fit in `SERVICE_CIDR`, a /16.
pub const SERVICES_MAX: u32 = 60_000;

/// Service address range of the control server of a [`Cluster`].
const SERVICE_CIDR: &str = "10.96.0.0/16";
/// First endpoint address of the filling (Services without traffic), in `10.128.0.0/9`, which has no other use.
const FILLING: u32 = u32::from_be_bytes([10, 128, 0, 0]);
/// Last octet of the first endpoint address of the live Services.
const LIVE_HOST: u8 = 101;
/// Number of objects per request; the server accepts up to 5,000 objects and 8 MiB.
const BATCH: usize = 1_000;
/// Timeout for a node to converge: iptables needs minutes for tens of thousands of Services.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1_800);

/// Size and proxy mode of a fixture cluster.
#[derive(Debug, Clone)]
pub struct Size {
    /// Proxy mode of the node.
    pub mode: &'static str,
    /// Number of Services in the filling, which receives no traffic.
    pub services: u32,
    /// Number of endpoints of each Service.
    pub endpoints: u8,
    /// Number of live Services, whose endpoints respond, in addition to the filling.
    pub live: u32,
}

/// Cluster of one node with many Services.
#[derive(Debug)]
pub struct Estate {
    /// Lab cluster whose only node is `node1`.
    pub cluster: Cluster,
    /// Time at which the cluster was started.
    pub begun: Instant,
    size: Size,
    filled: u32,
    /// Node name in the endpoints of the filling (Services without traffic); `None` if they name no node.
    filling_node: Option<&'static str>,
}

impl Estate {
    /// Starts a node with a client and a backend workload, creates the live Services without endpoints and
    /// the filling, and waits until the node has converged.
    ///
    /// # Errors
    /// Returns an error if the size is too large, a binary is not built, or the server rejects an object.
    pub fn start(size: Size) -> Result<Self> {
        ensure!(
            size.services + size.live <= SERVICES_MAX,
            "there are addresses for at most \
                                                            {SERVICES_MAX} Services"
        );
        ensure!(size.endpoints <= ENDPOINTS_MAX, "a live Service has at most {ENDPOINTS_MAX} endpoints");
        let options = Options { nodes: 1, modes: vec![size.mode], ..Options::default() };
        let mut cluster = Cluster::start(&options)?;
        cluster.topology.add_workload(CLIENT, "node1", 2)?;
        cluster.topology.add_workload(BACKEND, "node1", 3)?;
        let (node, backend) = (cluster.place("node1")?.clone(), cluster.place(BACKEND)?.clone());
        for endpoint in 0..size.endpoints {
            let address = live_address(endpoint);
            node.ip(&[format!("route add {address}/32 dev work3")])?;
            backend.ip(&[format!("addr add {address}/32 dev eth0")])?;
        }
        cluster.topology.serve(BACKEND, TARGET_PORT)?;
        // Connections to a missing Service fail at once, every time, instead of by silence.
        node.run("sysctl", &["-qw", "net.ipv4.icmp_ratelimit=0"])?;
        node.ip(&[format!("route add unreachable {SERVICE_CIDR}")])?;
        let mut estate = Self { cluster, begun: Instant::now(), size, filled: 0, filling_node: None };
        estate.apply((0..estate.size.live).flat_map(|number| live_objects(number, 0)).collect())?;
        estate.fill(estate.size.services)?;
        Ok(estate)
    }

    /// Sets the node name in filling endpoints that are created from now on. An endpoint without a node name
    /// may be local to any node, so each node programs one more set element for it.
    #[must_use]
    pub fn filling_on(mut self, node: &'static str) -> Self {
        self.filling_node = Some(node);
        self
    }

    /// Extends the filling (Services without traffic) to this number of Services and waits as
    /// [`Self::wait_converged`] does.
    ///
    /// # Errors
    /// Returns an error if the server rejects an object or the node does not converge.
    pub fn fill(&mut self, services: u32) -> Result<()> {
        let (endpoints, node) = (self.size.endpoints, self.filling_node);
        let objects = (self.filled..services).flat_map(|number| filling_objects(number, endpoints, node));
        self.apply(objects.collect())?;
        self.filled = self.filled.max(services);
        self.size.services = self.filled;
        self.wait_converged()
    }

    /// Returns the proxy mode and the numbers of Services and endpoints.
    #[must_use]
    pub fn size(&self) -> &Size {
        &self.size
    }

    /// Waits until the node has converged: its kernel contains the current state, confirmed by reading it
    /// back.
    ///
    /// # Errors
    /// Returns an error on timeout.
    pub fn wait_converged(&self) -> Result<()> {
        wait::until_within(PATIENCE, "the node to converge", || {
            let status = self.cluster.api.get_json("/v1/status")?;
            ensure!(number(&status, "/nodes/converged")? == 1, "status: {status:#}");
            Ok(())
        })
    }

    /// Returns the address and port of a live Service.
    ///
    /// # Errors
    /// Returns an error if there is no such Service.
    pub fn live_frontend(&self, number: u32) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.cluster.cluster_ip(&format!("default/{}", live_name(number)), 0)?, PORT))
    }

    /// API path of the Services of the default namespace.
    pub const SERVICES: &str = "/v1/namespaces/default/services";

    /// Returns the API path of a live Service.
    #[must_use]
    pub fn live_service_path(number: u32) -> String {
        format!("{}/{}", Self::SERVICES, live_name(number))
    }

    /// Builds a live Service with a requested address.
    #[must_use]
    pub fn live_service(number: u32, address: IpAddr) -> Value {
        let mut service = service_object(&live_name(number));
        service["spec"]["clusterIPs"] = json!([address]);
        service
    }

    /// Returns the API path of the endpoints of a live Service.
    #[must_use]
    pub fn live_path(number: u32) -> String {
        format!("/v1/namespaces/default/endpointsets/{}", live_name(number))
    }

    /// Builds a merge patch that sets the number of endpoints of a live Service.
    #[must_use]
    pub fn live_patch(endpoints: u8) -> Value {
        json!({"spec": {"endpoints": live_endpoints(endpoints)}})
    }

    fn apply(&self, objects: Vec<Value>) -> Result<()> {
        for batch in objects.chunks(BATCH) {
            self.cluster.apply_objects(batch).context("filling")?;
        }
        Ok(())
    }
}

fn live_name(number: u32) -> String {
    format!("live-{number:05}")
}

fn live_address(endpoint: u8) -> IpAddr {
    Ipv4Addr::new(10, 1, 1, LIVE_HOST + endpoint).into()
}

fn live_endpoints(count: u8) -> Vec<Value> {
    (0..count).map(|endpoint| json!({"address": live_address(endpoint)})).collect()
}

fn live_objects(number: u32, endpoints: u8) -> [Value; 2] {
    service_objects(&live_name(number), live_endpoints(endpoints))
}

fn filling_objects(number: u32, endpoints: u8, node: Option<&str>) -> [Value; 2] {
    let first = FILLING + number * u32::from(endpoints);
    let addresses = (first..first + u32::from(endpoints)).map(Ipv4Addr::from);
    service_objects(
        &format!("filling-{number:05}"),
        addresses.map(|address| endpoint_object(address, node)).collect(),
    )
}

/// Builds the JSON of an endpoint in an EndpointSet, with the name of its node if given.
pub(crate) fn endpoint_object(address: Ipv4Addr, node: Option<&str>) -> Value {
    node.map_or_else(|| json!({"address": address}), |node| json!({"address": address, "node": node}))
}

fn service_object(name: &str) -> Value {
    json!({"kind": "Service", "metadata": {"name": name}, "spec": {
        "ports": [{"port": PORT, "targetPort": TARGET_PORT}],
    }})
}

fn service_objects(name: &str, endpoints: Vec<Value>) -> [Value; 2] {
    [
        service_object(name),
        json!({"kind": "EndpointSet", "metadata": {"name": name}, "spec": {
            "service": name, "endpoints": endpoints,
        }}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_the_filling_are_all_different() {
        let [_, last_of_first] = filling_objects(0, 10, None);
        let [_, second] = filling_objects(1, 10, Some("node2"));
        assert_eq!(last_of_first["spec"]["endpoints"][9]["address"], "10.128.0.9");
        assert_eq!(second["spec"]["endpoints"][0], json!({"address": "10.128.0.10", "node": "node2"}));
        let [_, most] = filling_objects(SERVICES_MAX - 1, ENDPOINTS_MAX, None);
        assert_eq!(most["spec"]["endpoints"][99]["address"], "10.219.141.127");
    }
}
