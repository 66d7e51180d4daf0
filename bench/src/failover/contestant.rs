//! Failover systems that the benchmark compares, and the failures that it injects. Each system lets one of
//! three nodes carry the traffic of an address.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::{Context, Result};
use lab::network::topology::{self, Topology};
use serde::{Deserialize, Serialize};

/// Number of nodes that can own the address (carry its traffic).
pub const NODES: u8 = 3;
/// Address that the client sends to: in the network of the nodes, but assigned to none of them.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 17, 8, 240);
/// UDP port of the address.
pub const PORT: u16 = 53;
/// Port of the backend. The backend runs next to the control server, outside the nodes, and never fails.
pub const BACKEND_PORT: u16 = 8080;

/// Destination of the client's datagrams.
pub const TARGET: SocketAddr = SocketAddr::V4(SocketAddrV4::new(ADDRESS, PORT));

/// Failover system under test, running in its own network.
pub trait FailoverContestant {
    /// Returns the name of the failover system in the results.
    fn name(&self) -> &'static str;
    /// Returns a description of the system's configuration.
    fn settings(&self) -> String;
    /// Returns the network in which the system runs.
    fn topology(&self) -> &Topology;
    /// Waits until one node owns the address and all others are ready to take over, as in long-term operation
    /// without failures.
    ///
    /// # Errors
    /// Returns an error on timeout.
    fn wait_settled(&mut self) -> Result<()>;
    /// Kills (SIGKILL) the announcing process of a node.
    ///
    /// # Errors
    /// Returns an error if the process does not run.
    fn kill_agent(&mut self, node: &str) -> Result<()>;
    /// Restarts the announcing process of a node.
    ///
    /// # Errors
    /// Returns an error if the process does not start.
    fn start_agent(&mut self, node: &str) -> Result<()>;
}

/// Failure of the node that owns the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// Power loss: the announcing process is killed and the link is cut.
    NodeVanishes,
    /// Link failure: both ends lose the carrier signal, and the announcing process keeps running.
    LinkCut,
    /// Process failure: the announcing process is killed; the kernel and the links of the node keep working.
    AgentKilled,
}

impl Failure {
    /// Every failure, in the order of the results.
    pub const ALL: [Self; 3] = [Self::NodeVanishes, Self::LinkCut, Self::AgentKilled];

    /// Returns the name of the failure in the results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeVanishes => "node-vanishes",
            Self::LinkCut => "link-cut",
            Self::AgentKilled => "agent-killed",
        }
    }

    const fn kills(self) -> bool {
        matches!(self, Self::NodeVanishes | Self::AgentKilled)
    }

    const fn cuts(self) -> bool {
        matches!(self, Self::NodeVanishes | Self::LinkCut)
    }

    /// Injects the failure on a node: kills the announcing process, cuts the link, or both.
    ///
    /// # Errors
    /// Returns an error if the node has failed already.
    pub fn strike(self, contestant: &mut dyn FailoverContestant, node: &str) -> Result<()> {
        // In this order the announcing process cannot react to the loss of the link.
        if self.kills() {
            contestant.kill_agent(node)?;
        }
        if self.cuts() {
            set_link(contestant.topology(), node, "down")?;
        }
        Ok(())
    }

    /// Reverts the failure. Returns before the node has fully recovered.
    ///
    /// # Errors
    /// Returns an error if a killed process does not start.
    pub fn repair(self, contestant: &mut dyn FailoverContestant, node: &str) -> Result<()> {
        if self.cuts() {
            set_link(contestant.topology(), node, "up")?;
        }
        if self.kills() {
            contestant.start_agent(node)?;
        }
        Ok(())
    }
}

/// Sets the switch port of a node up or down, so that the node's interface gains or loses its carrier signal.
fn set_link(topology: &Topology, node: &str, state: &str) -> Result<()> {
    let machine = topology.nodes.get(node).with_context(|| format!("there is no node {node}"))?;
    let port = topology::fabric_port(machine.index);
    topology.place("fabric")?.ip(&[format!("link set {port} {state}")])
}
