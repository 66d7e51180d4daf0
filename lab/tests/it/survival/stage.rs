//! Cluster of the test, its faults and their repair.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
    network::client::at,
    processes::binaries,
};
use serde_json::{Value, json};

use super::{
    flows::{Flows, Orders, serve},
    page::Fault,
};
use crate::addresses::stage::{POOL, addresses, advertisement, pool, wait_owner, wait_reached};

/// Number of connections of each manner and family that a fault meets.
pub(super) const EACH: usize = 16;
/// The same of the Service without survival.
pub(super) const EACH_PLAIN: usize = 2;
/// Number of connections of each manner and family that live through all faults.
pub(super) const LASTING: usize = 8;
/// Nodes that announce at first.
const EDGES: [&str; 2] = ["node1", "node2"];

pub(super) struct Stage {
    cluster: Cluster,
    orders: Orders,
    pub(super) web: Vec<SocketAddr>,
    pub(super) plain: Vec<SocketAddr>,
    /// Node that announces all addresses before a fault.
    failed: String,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.orders.end();
    }
}

impl Stage {
    pub(super) fn start() -> Self {
        let mut cluster = Cluster::start(&Options { nodes: 5, ..Options::default() }).unwrap();
        for node in EDGES {
            label(&cluster, node, true);
        }
        let edges = json!({"nodeSelectors": [{"matchLabels": {"edge": "yes"}}]});
        cluster.apply_objects(&[pool("lan", &POOL), advertisement("lan", &edges)]).unwrap();
        let orders = Orders::default();
        for (node, host) in [("node3", 13), ("node4", 14)] {
            add_endpoint(&mut cluster, node, host, &orders);
        }
        let add = |name: &str, survive: &str| {
            let spec = json!({
                "type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"},
                "ports": [{"port": 80, "targetPort": 8080}], "connections": {"survive": survive},
            });
            cluster.add_service(name, spec).unwrap();
            let all = addresses(&cluster, &format!("default/{name}")).unwrap();
            all.into_iter().map(|address| at(address, 80)).collect::<Vec<_>>()
        };
        let (web, plain) = (add("web", "Always"), add("plain", "Never"));
        let stage = Self { cluster, orders, web, plain, failed: String::new() };
        stage.wait_reached();
        stage
    }

    fn all(&self) -> Vec<SocketAddr> {
        [&self.web[..], &self.plain].concat()
    }

    fn wait_reached(&self) {
        let all: Vec<_> = self.all().iter().map(SocketAddr::ip).collect();
        wait_reached(&self.cluster, &all);
    }

    pub(super) fn open(&self, to: &[SocketAddr], each: usize) -> Flows {
        Flows::open(&self.cluster.topology.client, to, each, &self.orders)
    }

    /// Returns the node of an endpoint that a fault takes away.
    pub(super) fn lost_endpoint_node(&self, fault: Fault) -> Option<&'static str> {
        (fault == Fault::NodeCutAndEndpointsChanged).then_some("node3")
    }
}

/// Faults.
impl Stage {
    /// Causes the fault at the node that announces all addresses, and waits until another node does.
    pub(super) fn fail(&mut self, fault: Fault) {
        let first = self.failed.clone();
        let other = EDGES.into_iter().find(|node| *node != first).unwrap();
        match fault {
            Fault::AgentKilled => self.kill(&first),
            Fault::AgentTerminated => {
                self.cluster.agents.get_mut(&first).unwrap().terminate().unwrap();
            }
            Fault::AgentPaused => return self.pause(&first),
            Fault::NodeCut => self.cut(&first),
            Fault::NodeCutWithoutControl => {
                self.cluster.server.kill();
                self.cut(&first);
            }
            Fault::Drain => self.tidegate(&["drain", "node", &first]),
            Fault::Move => self.move_to(other),
            Fault::MoveToEndpoints => {
                label(&self.cluster, "node3", true);
                self.wait_standby("node3");
                self.move_to("node3");
                self.wait_owned_by("node3");
                self.move_to(&first);
                return self.wait_owned_by(&first);
            }
            Fault::EndpointAdded => {
                add_endpoint(&mut self.cluster, "node5", 15, &self.orders);
                self.move_to(other);
                self.cluster.wait_verified("default/web").unwrap();
            }
            Fault::EndpointDrained => {
                self.tidegate(&["drain", "workload", "web-14"]);
                self.move_to(other);
                self.cluster.wait_verified("default/web").unwrap();
            }
            Fault::NodeCutAndEndpointsChanged => {
                self.cut("node3");
                self.cut(&first);
                self.cluster.delete("namespaces/default/workloads/web-13").unwrap();
                add_endpoint(&mut self.cluster, "node4", 24, &self.orders);
            }
        }
        self.wait_owned_by(other);
    }

    /// Repairs the fault.
    pub(super) fn heal(&mut self, fault: Fault) {
        let failed = self.failed.clone();
        match fault {
            Fault::AgentKilled | Fault::AgentTerminated => {
                self.cluster.start_agent_again(&failed).unwrap();
            }
            Fault::NodeCut => self.plug(&failed),
            Fault::NodeCutWithoutControl => {
                self.cluster.start_control_again().unwrap();
                self.plug(&failed);
            }
            Fault::Drain => self.tidegate(&["undrain", "node", &failed]),
            Fault::MoveToEndpoints => label(&self.cluster, "node3", false),
            Fault::EndpointDrained => self.tidegate(&["undrain", "workload", "web-14"]),
            Fault::NodeCutAndEndpointsChanged => {
                self.plug("node3");
                self.plug(&failed);
            }
            Fault::AgentPaused | Fault::Move | Fault::EndpointAdded => {}
        }
        self.cluster.wait_converged().unwrap();
        for node in EDGES {
            self.wait_candidate(node);
        }
    }

    /// Moves all addresses to one node, which the next fault meets.
    pub(super) fn gather(&mut self) {
        let first = wait_owner(&self.cluster, self.web[0].ip());
        self.move_to(&first);
        let mac = self.cluster.place(&first).unwrap().mac("eth0").unwrap();
        for address in self.all() {
            self.wait_role(address, &first, &["Owner"]);
            let ip = address.ip().to_string();
            wait::until(&format!("the client to resolve {ip} to {first}"), || {
                self.cluster.tcp("client", address)?;
                let client = &self.cluster.topology.client;
                let learnt = client.run("ip", &["neigh", "show", &ip])?;
                if !learnt.contains(&mac) {
                    // Connections that another node forwards confirm its entry for ever; the owner alone answers the next question.
                    client.run("ip", &["neigh", "flush", "to", &ip])?;
                    bail!("{first} has {mac}, the client has {learnt}");
                }
                Ok(())
            })
            .unwrap();
        }
        self.failed = first;
    }

    fn move_to(&self, node: &str) {
        for address in self.all() {
            let address = address.ip().to_string();
            // Refused until the node has verified the latest change of the Service.
            wait::until("the move", || self.command(&["move", &address, node])).unwrap();
        }
    }

    fn kill(&mut self, node: &str) {
        self.cluster.agents.get_mut(node).unwrap().kill();
    }

    /// Cuts a node off, and kills its agent.
    fn cut(&mut self, node: &str) {
        self.cluster.topology.plug(node, false).unwrap();
        self.kill(node);
    }

    fn plug(&mut self, node: &str) {
        self.cluster.topology.plug(node, true).unwrap();
        self.cluster.start_agent_again(node).unwrap();
    }

    fn pause(&self, node: &str) {
        self.cluster.agents[node].pause().unwrap();
        for address in self.all() {
            self.cluster.wait_owner(address.ip(), |owner| owner != node).unwrap();
        }
        self.cluster.agents[node].go_on().unwrap();
        // The resumed node leaves the address to the other one, unless it answers before that.
        for address in self.all() {
            wait_owner(&self.cluster, address.ip());
        }
    }

    fn tidegate(&self, arguments: &[&str]) {
        self.command(arguments).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Result<()> {
        let program = binaries::find("tidegate")?.display().to_string();
        let arguments = [&["--api", self.cluster.api.url()], arguments].concat();
        self.cluster.place("control")?.run(&program, &arguments).map(drop)
    }

    fn wait_owned_by(&self, node: &str) {
        for address in self.all() {
            self.wait_role(address, node, &["Owner"]);
        }
    }

    fn wait_standby(&self, node: &str) {
        for address in self.all() {
            self.wait_role(address, node, &["Standby"]);
        }
    }

    fn wait_candidate(&self, node: &str) {
        for address in self.all() {
            self.wait_role(address, node, &["Owner", "Standby"]);
        }
    }

    fn wait_role(&self, address: SocketAddr, node: &str, wanted: &[&str]) {
        wait::until(&format!("{node} to be {wanted:?} of {address}"), || {
            let all = self.cluster.agent(node)?.get_json("/v1/announcements")?;
            let role = all[address.ip().to_string()]["role"].as_str().unwrap_or_default();
            ensure!(wanted.contains(&role), "{all:#}");
            Ok(())
        })
        .unwrap();
    }
}

/// Adds a server with its Workload behind a node.
fn add_endpoint(cluster: &mut Cluster, node: &str, host: u8, orders: &Orders) {
    let name = format!("web-{host}");
    cluster.add_place(&name, node, host).unwrap();
    serve(cluster.place(&name).unwrap(), node, orders);
    let record = cluster.workload_record(&name, "web").unwrap();
    cluster.apply_objects(&[record]).unwrap();
}

/// Adds or removes the label of nodes that announce.
fn label(cluster: &Cluster, node: &str, is_edge: bool) {
    let value = is_edge.then_some("yes");
    let patch: Value = json!({"metadata": {"labels": {"edge": value}}});
    cluster.patch(&format!("nodes/{node}"), &patch).unwrap();
}
