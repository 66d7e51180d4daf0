//! Tidegate as failover system under test: a control server, three agents with mutual failure detection, and
//! one load balancer Service with one address.

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::{
        control::number,
        deployment::{Cluster, Options},
    },
    host::wait,
    network::{
        echo::EchoServer,
        topology::{CONTROL, Topology},
    },
};
use serde_json::{Value, json};

use super::contestant::{ADDRESS, BACKEND_PORT, FailoverContestant, NODES, PORT};

/// Interval of the keepalive messages between the candidate nodes of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepaliveInterval {
    /// Default interval of the agents.
    Default,
    /// Interval of 50 ms; three missed packets count as a failure.
    Tuned,
}

/// Tidegate running on three nodes.
#[derive(Debug)]
pub struct TidegateCluster {
    pace: KeepaliveInterval,
    cluster: Cluster,
    _backend: EchoServer,
}

impl TidegateCluster {
    /// Starts Tidegate with a Service whose address is [`ADDRESS`].
    ///
    /// # Errors
    /// Returns an error if a binary is not built or does not become ready, or if the server rejects an
    /// object.
    pub fn start(pace: KeepaliveInterval) -> Result<Self> {
        let agent_arguments = match pace {
            KeepaliveInterval::Default => Vec::new(),
            KeepaliveInterval::Tuned => {
                vec!["--peer-interval-ms=50".to_owned(), "--peer-multiplier=3".to_owned()]
            }
        };
        let cluster = Cluster::start(&Options { nodes: NODES, agent_arguments, ..Options::default() })?;
        let backend = EchoServer::start(&cluster.topology.control, "backend", BACKEND_PORT)?;
        cluster.apply_objects(&objects())?;
        cluster.wait_verified("default/web")?;
        Ok(Self { pace, cluster, _backend: backend })
    }
}

impl FailoverContestant for TidegateCluster {
    fn name(&self) -> &'static str {
        match self.pace {
            KeepaliveInterval::Default => "tidegate-default",
            KeepaliveInterval::Tuned => "tidegate-tuned",
        }
    }

    fn settings(&self) -> String {
        let pace = match self.pace {
            KeepaliveInterval::Default => "every 250 ms, three missed packets are a failure (default)",
            KeepaliveInterval::Tuned => "every 50 ms, three missed packets are a failure",
        };
        format!("Tidegate, nftables mode, L2; the candidates monitor each other by BFD {pace}")
    }

    fn topology(&self) -> &Topology {
        &self.cluster.topology
    }

    fn wait_settled(&mut self) -> Result<()> {
        self.cluster.wait_converged()?;
        wait::until("one agent to own the address and all others to stand by", || {
            let address = self.cluster.object(&format!("addresses/{ADDRESS}"))?;
            roles_are_settled(&address)?;
            self.cluster.agents.keys().try_for_each(|node| peers_are_up(&self.cluster.agent_state(node)?))
        })
    }

    fn kill_agent(&mut self, node: &str) -> Result<()> {
        self.cluster.agents.get_mut(node).with_context(|| format!("there is no node {node}"))?.kill();
        Ok(())
    }

    fn start_agent(&mut self, node: &str) -> Result<()> {
        self.cluster.agents.get_mut(node).with_context(|| format!("there is no node {node}"))?.start_again()
    }
}

fn objects() -> [Value; 4] {
    [
        json!({ "kind": "AddressPool", "metadata": { "name": "outside" }, "spec": { "addresses": [ADDRESS] } }),
        json!({ "kind": "Advertisement", "metadata": { "name": "outside" }, "spec": { "type": "L2" } }),
        json!({ "kind": "Service", "metadata": { "name": "web" }, "spec": {
            "type": "LoadBalancer",
            "ports": [{ "protocol": "UDP", "port": PORT, "targetPort": BACKEND_PORT }],
        } }),
        json!({ "kind": "EndpointSet", "metadata": { "name": "web" }, "spec": {
            "service": "web",
            "endpoints": [{ "address": CONTROL.ip() }],
        } }),
    ]
}

/// Returns an error unless the Address object lists all nodes as candidates, and the agents that apply its
/// newest assignment report one owner and otherwise standbys.
fn roles_are_settled(address: &Value) -> Result<()> {
    let epoch = number(address, "/spec/announcement/epoch")?;
    let candidates = address["spec"]["announcement"]["candidates"].as_array().map_or(0, Vec::len);
    let nodes = address["status"]["nodes"].as_object().context("no node has reported a status")?;
    let following = nodes.values().filter(|node| node["epoch"] == epoch);
    let mut roles: Vec<_> = following.filter_map(|node| node["role"].as_str()).collect();
    roles.sort_unstable();
    ensure!(candidates == usize::from(NODES) && roles == ["Owner", "Standby", "Standby"], "{address:#}");
    Ok(())
}

/// Returns an error unless the state reported by an agent lists every other node as a peer that is up.
fn peers_are_up(state: &Value) -> Result<()> {
    let peers = state["peers"].as_array().context("the agent has no peers")?;
    let up = peers.iter().filter(|peer| peer["state"] == "Up").count();
    ensure!(up + 1 == usize::from(NODES), "{peers:?}");
    Ok(())
}
