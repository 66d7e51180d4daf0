//! A way from a machine that asks, over a node with a ruleset, to one that answers at every endpoint's address.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use lab::{netns::Namespace, topology::Topology};

use super::{
    listing::Listing,
    ruleset::Ruleset,
    served::{self, Served},
    tool::Tool,
};
use crate::{
    connections::{backend::Backend, contestant},
    estate::{BACKEND, CLIENT, PORT, TARGET_PORT},
};

const NODE: &str = "node1";

/// A node that forwards, and two workloads behind it.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) node: Namespace,
    pub(super) client: Namespace,
    _backend: Backend,
    _topology: Topology,
}

impl Way {
    pub(super) fn new() -> Result<Self> {
        let mut topology = Topology::new(1)?;
        topology.add_workload(CLIENT, NODE, 2)?;
        topology.add_workload(BACKEND, NODE, 3)?;
        contestant::prepare(&topology)?;
        let answering = topology.workloads.get(BACKEND).context("it was just added")?;
        let [address, _] = answering.addresses;
        let network = served::ENDPOINTS;
        answering.namespace.ip(&[format!("route add local {network} dev lo")])?;
        let node = topology.place(NODE)?.clone();
        node.ip(&[format!("route add {network} via {address} dev work3 onlink")])?;
        let backend = Backend::start(&answering.namespace, TARGET_PORT)?;
        let client = topology.place(CLIENT)?.clone();
        Ok(Self { node, client, _backend: backend, _topology: topology })
    }

    /// Removes the ruleset, and waits until the kernel has done so.
    pub(super) fn clear(&self, tool: &Tool, ruleset: &Ruleset) -> Result<()> {
        tool.load(&self.node, &format!("delete table {}\n", ruleset.table()))?;
        tool.wait_freed()
    }

    /// What is in the kernel.
    pub(super) fn listing(&self, ruleset: &Ruleset) -> Result<Listing> {
        let table = ruleset.table();
        let words: Vec<_> = ["list", "table"].into_iter().chain(table.split(' ')).collect();
        Listing::parse(&self.node.run("nft", &words)?)
    }
}

/// Where a Service is reached.
pub(super) fn frontend(service: &Served) -> SocketAddr {
    SocketAddr::new(service.address.into(), PORT)
}
