//! What takes part: something that makes one of three nodes carry the traffic of an address, and how its nodes fail.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::{Context, Result};
use lab::network::topology::{self, Topology};
use serde::{Deserialize, Serialize};

/// Machines that could own the address.
pub const NODES: u8 = 3;
/// The address that the client asks: one of the nodes' network that none of them has.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 17, 8, 240);
/// Its UDP port.
pub const PORT: u16 = 53;
/// The port on which the backend answers; it is on the fabric, where the control server is too, and never fails.
pub const BACKEND_PORT: u16 = 8080;

/// Where the client sends its datagrams.
pub const TARGET: SocketAddr = SocketAddr::V4(SocketAddrV4::new(ADDRESS, PORT));

/// A way to make nodes fail over, running in a network of its own.
pub trait Contestant {
    /// What the results call it.
    fn name(&self) -> &'static str;
    /// What it is and how it is set, in words.
    fn settings(&self) -> String;
    /// Its network.
    fn topology(&self) -> &Topology;
    /// Waits until every node would take over, or owns, as after a long time without any failure.
    ///
    /// # Errors
    /// That does not happen.
    fn wait_settled(&mut self) -> Result<()>;
    /// Kills what announces the address on a node, without any warning.
    ///
    /// # Errors
    /// It does not run.
    fn kill_agent(&mut self, node: &str) -> Result<()>;
    /// Starts it again.
    ///
    /// # Errors
    /// It does not start.
    fn start_agent(&mut self, node: &str) -> Result<()>;
}

/// How the node that owns the address fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// Everything at once, as when it loses power: what announces is killed and the link is cut.
    NodeVanishes,
    /// The cable is cut: both ends lose the carrier, and what announces goes on.
    LinkCut,
    /// What announces is killed; the node's kernel and its links go on.
    AgentKilled,
}

impl Failure {
    /// All, in the order of the results.
    pub const ALL: [Self; 3] = [Self::NodeVanishes, Self::LinkCut, Self::AgentKilled];

    /// What the results call it.
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

    /// Makes a node fail.
    ///
    /// # Errors
    /// It is failed already.
    pub fn strike(self, contestant: &mut dyn Contestant, node: &str) -> Result<()> {
        // In this order nothing that announces can react to the loss of the link.
        if self.kills() {
            contestant.kill_agent(node)?;
        }
        if self.cuts() {
            set_link(contestant.topology(), node, "down")?;
        }
        Ok(())
    }

    /// Undoes it; what comes back needs its time.
    ///
    /// # Errors
    /// What was killed does not start.
    pub fn repair(self, contestant: &mut dyn Contestant, node: &str) -> Result<()> {
        if self.cuts() {
            set_link(contestant.topology(), node, "up")?;
        }
        if self.kills() {
            contestant.start_agent(node)?;
        }
        Ok(())
    }
}

/// Sets the switch's port of a node up or down; the node sees its carrier come and go.
fn set_link(topology: &Topology, node: &str, state: &str) -> Result<()> {
    let machine = topology.nodes.get(node).with_context(|| format!("there is no {node}"))?;
    let port = topology::fabric_port(machine.index);
    topology.place("fabric")?.ip(&[format!("link set {port} {state}")])
}
