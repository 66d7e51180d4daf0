//! Tidegate as BGP implementation under test: a control server, one agent and two `BgpPeer`s. The creation of a
//! Service causes the announcement of its address.

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::{
        control::number,
        deployment::{Cluster, Options},
    },
    host::wait,
    network::topology::{CONTROL, node_addresses},
};
use serde_json::{Value, json};

use super::{
    announcer::{ASN, Announcer, HOLD_TIME, address, resident_kib},
    routers::{BFD, ROUTER_ASN, Routers},
};

const NODE: &str = "node1";
const PEERS: [&str; 2] = ["frr", "bird"];
/// Number of Services per request in the bulk run.
const BATCH: u32 = 500;

/// Tidegate on one announcing node, with its routers.
pub(super) struct TidegateRouter {
    routers: Routers,
    cluster: Cluster,
}

impl TidegateRouter {
    /// Starts Tidegate and waits until its BGP sessions are established.
    pub(super) fn start() -> Result<Self> {
        let cluster = Cluster::start(&Options { nodes: 1, ..Options::default() })?;
        let routers = Routers::start(&cluster.topology, node_addresses(1)[0])?;
        let mut tidegate = Self { routers, cluster };
        let (interval, multiplier) = BFD;
        tidegate.apply(&[
            json!({ "kind": "AddressPool", "metadata": { "name": "outside" }, "spec": { "addresses": ["10.200.0.0/15"] } }),
            json!({ "kind": "BfdProfile", "metadata": { "name": "paths" }, "spec": {
                "receiveInterval": interval, "transmitInterval": interval, "detectMultiplier": multiplier,
            } }),
            json!({ "kind": "Advertisement", "metadata": { "name": "outside" }, "spec": { "type": "BGP" } }),
        ])?;
        tidegate.set_peers(false)?;
        tidegate.wait_settled()?;
        Ok(tidegate)
    }

    fn apply(&self, objects: &[Value]) -> Result<()> {
        self.cluster.apply_objects(objects).map(drop)
    }

    fn set_peers(&mut self, is_disabled: bool) -> Result<()> {
        let peers = PEERS.iter().zip(Routers::addresses()).map(|(name, address)| {
            json!({ "kind": "BgpPeer", "metadata": { "name": name }, "spec": {
                "peerAddress": address, "peerASN": ROUTER_ASN, "localASN": ASN, "holdTime": HOLD_TIME,
                "bfdProfile": "paths", "disabled": is_disabled,
            } })
        });
        self.apply(&peers.collect::<Vec<_>>())
    }
}

impl Announcer for TidegateRouter {
    fn name(&self) -> &'static str {
        "tidegate"
    }

    fn settings(&self) -> String {
        let (interval, multiplier) = BFD;
        format!(
            "Tidegate, one node in nftables mode; an address is announced by POST of a Service with an endpoint to the control \
             server on another machine; hold time {HOLD_TIME} s, BFD {interval} ms × {multiplier}"
        )
    }

    fn routers(&self) -> &Routers {
        &self.routers
    }

    fn announce(&mut self, number: u32) -> Result<()> {
        self.apply(&objects(number))
    }

    fn withdraw(&mut self, number: u32) -> Result<()> {
        for path in [format!("services/b{number}"), format!("endpointsets/b{number}")] {
            self.cluster
                .api
                .send("DELETE", &format!("/v1/namespaces/default/{path}"), &[], String::new())?
                .success()?;
        }
        Ok(())
    }

    fn wait_settled(&mut self) -> Result<()> {
        self.routers.wait_established()?;
        self.routers.wait_watched()
    }

    fn plug(&mut self, in_place: bool) -> Result<()> {
        self.cluster.topology.plug(NODE, in_place)
    }

    fn prepare(&mut self, count: u32) -> Result<()> {
        self.set_peers(true)?;
        for first in (0..count).step_by(BATCH as usize) {
            let batch: Vec<_> = (first..(first + BATCH).min(count)).flat_map(objects).collect();
            self.apply(&batch)?;
        }
        wait::until_within(10 * wait::PATIENCE, "the node to verify everything", || {
            let status = self.cluster.api.get_json("/v1/status")?;
            ensure!(number(&status, "/nodes/converged")? == 1, "{status:#}");
            Ok(())
        })
    }

    fn open(&mut self) -> Result<()> {
        self.set_peers(false)
    }

    fn memory_kib(&self) -> Result<u64> {
        let agent = self.cluster.agents.get(NODE).and_then(lab::processes::process::Process::pid);
        resident_kib(agent.context("the agent is not running")?)
    }
}

/// Builds a Service with one endpoint, whose address is prefix `number`.
fn objects(number: u32) -> [Value; 2] {
    let name = format!("b{number}");
    [
        json!({ "kind": "Service", "metadata": { "name": name }, "spec": {
            "type": "LoadBalancer",
            // There are more Services than node ports.
            "allocateLoadBalancerNodePorts": false,
            "ports": [{ "port": 80, "targetPort": 8080 }],
            "loadBalancer": { "addresses": [address(number)] },
        } }),
        json!({ "kind": "EndpointSet", "metadata": { "name": name }, "spec": {
            "service": name,
            "endpoints": [{ "address": CONTROL.ip() }],
        } }),
    ]
}
