//! Network path from a client, over a node with a ruleset, to a backend that has every endpoint address.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use lab::{
    host::{netns::Namespace, wait},
    network::topology::Topology,
};

use super::{
    listing::Listing,
    ruleset::Ruleset,
    served::{self, BenchService},
    tool::Tool,
};
use crate::{
    connections::{backend::Backend, client, contestant},
    fixture_cluster::{BACKEND, CLIENT, PORT, TARGET_PORT},
};

const NODE: &str = "node1";
/// Duration of a client run that checks if an address replies.
const ASKED: Duration = Duration::from_millis(100);

/// Forwarding node with two workloads behind it: client and backend.
#[derive(Debug)]
pub(super) struct ForwardingNode {
    pub(super) node: Namespace,
    pub(super) client: Namespace,
    _backend: Backend,
    _topology: Topology,
}

impl ForwardingNode {
    pub(super) fn new() -> Result<Self> {
        let mut topology = Topology::new(1)?;
        topology.add_workload(CLIENT, NODE, 2)?;
        topology.add_workload(BACKEND, NODE, 3)?;
        contestant::prepare(&topology)?;
        let answering = topology.workloads.get(BACKEND).context("the workload was just added")?;
        let [address, _] = answering.addresses;
        let network = served::ENDPOINTS;
        answering.namespace.ip(&[format!("route add local {network} dev lo")])?;
        let node = topology.place(NODE)?.clone();
        node.ip(&[format!("route add {network} via {address} dev work3 onlink")])?;
        let backend = Backend::start(&answering.namespace, TARGET_PORT)?;
        let client = topology.place(CLIENT)?.clone();
        Ok(Self { node, client, _backend: backend, _topology: topology })
    }

    /// Removes a ruleset and waits until the kernel has freed most of its memory, which is `kib` KiB if
    /// known.
    pub(super) fn clear(&self, tool: &Tool, ruleset: &Ruleset, kib: Option<u64>) -> Result<()> {
        tool.remove(&self.node, &ruleset.table(), kib)
    }

    /// Checks that a client opens at least one connection to an address and that none fails.
    pub(super) fn answers(&self, target: SocketAddr) -> Result<()> {
        wait::until("an answer", || {
            let seen = client::connect(&self.client, target, 1, ASKED)?;
            // On a very busy machine, the time can be over before the first attempt.
            ensure!(seen.failed > 0 || !seen.latencies_us.is_empty(), "no connection was attempted yet");
            Ok(seen)
        })
        .and_then(|seen| {
            ensure!(seen.failed == 0, "{target} did not respond: {:?}", seen.first_failure);
            Ok(())
        })
    }

    /// Returns the listing of the ruleset's table as it is in the kernel.
    pub(super) fn listing(&self, ruleset: &Ruleset) -> Result<Listing> {
        let table = ruleset.table();
        let words: Vec<_> = ["list", "table"].into_iter().chain(table.split(' ')).collect();
        Listing::parse(&self.node.run("nft", &words)?)
    }
}

/// Returns the virtual address and port of a Service.
pub(super) fn frontend(service: &BenchService) -> SocketAddr {
    SocketAddr::new(service.address.into(), PORT)
}
