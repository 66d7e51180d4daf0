//! Test cluster with a node per proxy mode and a client behind each node, and access to the endpoint health
//! that the control server reports.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    host::{netns::Namespace, wait},
    network::client::at,
};
use serde_json::{Value, json};

/// Name of a Node that has no agent, so that the Node's endpoints are not checked.
pub(crate) const UNWATCHED: &str = "unwatched";

/// Nodes `node1`, `node2` and so on, each in one of the modes. The workloads `web-1`, `web-2` and so on are
/// distributed over the nodes in turn.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) modes: Vec<&'static str>,
    pub(crate) workloads: Vec<Workload>,
}

/// Workload in which test endpoints run.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) address: IpAddr,
    pub(crate) namespace: Namespace,
}

impl Stage {
    pub(crate) fn new(modes: &[&'static str], workloads: usize) -> Self {
        let nodes = u8::try_from(modes.len()).unwrap();
        let options = Options { nodes, modes: modes.to_vec(), ..Options::default() };
        let mut cluster = Cluster::start(&options).unwrap();
        for number in 1..=nodes {
            cluster.add_place(&format!("inside-{number}"), &format!("node{number}"), 50).unwrap();
        }
        let workloads = (0..workloads).map(|index| {
            let (name, node) = (format!("web-{}", index + 1), format!("node{}", index % modes.len() + 1));
            cluster.add_place(&name, &node, u8::try_from(11 + index).unwrap()).unwrap();
            let placed = &cluster.topology.workloads[&name];
            Workload { address: placed.addresses[0], namespace: placed.namespace.clone(), name, node }
        });
        let workloads = workloads.collect();
        Self { cluster, modes: modes.to_vec(), workloads }
    }

    /// Returns the namespace of the client behind the node with index `turn`.
    pub(crate) fn inside(&self, turn: usize) -> &Namespace {
        self.cluster.place(&format!("inside-{}", turn + 1)).unwrap()
    }

    pub(crate) fn virtual_address(&self, service: &str) -> SocketAddr {
        at(self.cluster.cluster_ip(&format!("default/{service}"), 0).unwrap(), 80)
    }
}

/// Builds a Service on port 80 with a health check.
pub(crate) fn service(name: &str, health_check: &Value) -> Value {
    let spec = json!({ "healthCheck": health_check, "ports": [{ "port": 80 }] });
    json!({ "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

/// Builds an EndpointSet of a Service, with one endpoint on each workload in `at`, all at port `port`.
pub(crate) fn endpoints(name: &str, service: &str, at: &[Workload], port: u16) -> Value {
    let endpoints: Vec<_> =
        at.iter().map(|one| json!({ "address": one.address, "node": one.node })).collect();
    let spec = json!({ "service": service, "endpoints": endpoints, "ports": [{ "port": port }] });
    json!({ "kind": "EndpointSet", "metadata": { "name": name }, "spec": spec })
}

/// Returns the health of the endpoint `to` that the control server reports.
pub(crate) fn endpoint(cluster: &Cluster, service: &str, to: SocketAddr) -> Result<Value> {
    let health = cluster.api.get_json(&format!("/v1/namespaces/default/services/{service}/health"))?;
    let all = health["endpoints"].as_array().cloned().unwrap_or_default();
    let (address, port) = (to.ip().to_string(), to.port());
    let found = all.into_iter().find(|one| one["address"] == address && one["port"] == port);
    found.ok_or_else(|| anyhow::anyhow!("{to} is not checked: {health:#}"))
}

/// Checks that the control server reports endpoint `to` with the expected state and share of traffic, and
/// returns the reported health.
///
/// # Errors
/// Returns an error if the state or the share of traffic is not the required one.
pub(crate) fn endpoint_in(
    cluster: &Cluster,
    service: &str,
    to: SocketAddr,
    state: &str,
    share: u64,
) -> Result<Value> {
    let endpoint = endpoint(cluster, service, to)?;
    ensure!(endpoint["state"] == state && endpoint["share"] == share, "{endpoint:#}");
    Ok(endpoint)
}

/// Waits until the control server reports the endpoint `to` in the state `state` with the share of traffic
/// `share` (in percent), and returns its health.
pub(crate) fn wait_for(cluster: &Cluster, service: &str, to: SocketAddr, state: &str, share: u64) -> Value {
    wait::until(&format!("{to} of {service} to be {state} with a share of {share} %"), || {
        endpoint_in(cluster, service, to, state, share)
    })
    .unwrap()
}

/// Returns true if all nodes with an agent have verified a Service. A Node without an agent verifies nothing.
pub(crate) fn is_verified(cluster: &Cluster, service: &str) -> Result<bool> {
    let status = &cluster.service(&format!("default/{service}"))?["status"]["nodes"];
    Ok(status["verified"] == cluster.agents.len() as u64)
}

pub(crate) fn wait_verified(cluster: &Cluster, service: &str) {
    let is_verified = || is_verified(cluster, service).unwrap();
    wait::until_true(&format!("{service} to be verified on all nodes"), is_verified).unwrap();
}
