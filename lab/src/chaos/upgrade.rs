//! Test of an upgrade and of version skew: programs of an older version and of this one run one cluster, while clients open
//! connections.

use std::{
    collections::BTreeMap,
    io::Write,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    cluster::deployment::{Cluster, Options},
    host::modes,
    network::{client::at, steady_client::SteadyClient},
    processes::binaries,
};

/// Key of the Service that the clients use.
const SERVICE: &str = "default/web";
/// Port of that Service.
const PORT: u16 = 80;
/// Number of connections that each client opens between two steps.
const CONNECTIONS: usize = 20;
/// Names of the backends. The last ones are added when the versions differ.
const BACKENDS: [(&str, &str, u8); 5] = [
    ("web-1", "node1", 11),
    ("web-2", "node2", 12),
    ("web-3", "node3", 13),
    ("web-4", "node1", 14),
    ("web-5", "node2", 15),
];
/// Collections whose objects must have the same `spec` before and after the upgrade.
const COLLECTIONS: [&str; 4] = ["services", "workloads", "addresspools", "advertisements"];

/// Upgrades a cluster from the programs in `older` to those of this build: the control server first, then one agent after
/// another. Then starts a cluster whose agents are newer than the control server. Each step is written to `out`.
///
/// # Errors
/// Returns an error if a connection fails for another reason than a change of the announcing node, a node does not
/// converge, an object changes, or a command of one version fails with a server of the other.
pub fn run(older: &Path, out: &mut impl Write) -> Result<()> {
    let version = version_of(Some(older))?;
    writeln!(out, "older version: {version}; this version: {}", version_of(None)?)?;
    upgrade(older, out).context("upgrade")?;
    newer_agents(older, out).context("agents that are newer than the control server")
}

fn upgrade(older: &Path, out: &mut impl Write) -> Result<()> {
    let directory = Some(older.to_owned());
    let mut stage = UpgradeScene::start(&Options {
        modes: modes::NATIVE[..2].to_vec(),
        older_server: directory.clone(),
        older_agent: directory,
        ..Options::default()
    })?;
    stage.check(&BACKENDS[..2])?;
    let before = stage.specs()?;
    // The node of the inner client has no announced address of its own, and its rules stay when its agent restarts.
    let inside = SteadyClient::start(stage.cluster.place("inside")?, stage.cluster_ip);
    let outside = SteadyClient::start(stage.cluster.place("client")?, stage.vip);
    writeln!(out, "all programs are of the older version; two clients open connections")?;

    stage.cluster.server.terminate()?;
    stage.cluster.server.set_program(binaries::find("tidegate-api")?);
    stage.cluster.server.arguments_mut().push("--default-health-check=none".to_owned());
    stage.cluster.start_control_again()?;
    stage.cluster.wait_converged()?;
    ensure!(stage.specs()? == before, "objects differ after the upgrade of the control server");
    stage.add(BACKENDS[2])?;
    stage.check(&BACKENDS[..3])?;
    stage.command(Some(older), &["get", "services"])?;
    [&inside, &outside].iter().try_for_each(|client| client.wait(CONNECTIONS))?;
    writeln!(
        out,
        "control server upgraded; older agents and commands work with it, and a new endpoint serves"
    )?;

    let nodes: Vec<String> = stage.cluster.agents.keys().cloned().collect();
    for (index, node) in nodes.iter().enumerate() {
        let agent = stage.cluster.agents.get_mut(node).context("agents of the list exist")?;
        agent.terminate()?;
        agent.set_program(binaries::find("tidegate-agent")?);
        stage.cluster.start_agent_again(node)?;
        stage.cluster.wait_converged()?;
        if index == 0 {
            stage.add(BACKENDS[3])?;
            stage.check(&BACKENDS[..4])?;
        }
        [&inside, &outside].iter().try_for_each(|client| client.wait(CONNECTIONS))?;
        writeln!(out, "agent of {node} upgraded")?;
    }
    stage.add(BACKENDS[4])?;
    stage.check(&BACKENDS)?;
    // A node whose agent restarts hands its address over, and a connection in progress may move with it.
    outside.end(nodes.len() * 2).context("client outside of the cluster")?;
    inside.end(0).context("client inside the cluster")?;
    writeln!(out, "upgraded without a failed connection")?;
    Ok(())
}

fn newer_agents(older: &Path, out: &mut impl Write) -> Result<()> {
    let mut stage = UpgradeScene::start(&Options {
        modes: modes::NATIVE[..2].to_vec(),
        older_server: Some(older.to_owned()),
        ..Options::default()
    })?;
    stage.check(&BACKENDS[..2])?;
    stage.add(BACKENDS[2])?;
    stage.check(&BACKENDS[..3])?;
    stage.command(None, &["get", "services"])?;
    stage.command(None, &["status"])?;
    writeln!(out, "agents and commands of this version work with the older control server")?;
    Ok(())
}

/// Cluster with a Service of two endpoints, whose load balancer address is announced by ARP.
struct UpgradeScene {
    cluster: Cluster,
    cluster_ip: SocketAddr,
    vip: SocketAddr,
}

impl UpgradeScene {
    fn start(options: &Options) -> Result<Self> {
        let mut cluster = Cluster::start(options)?;
        cluster.add_place("inside", "node2", 50)?;
        for (name, node, host) in &BACKENDS[..2] {
            cluster.add_backend(name, node, *host, "web")?;
        }
        cluster.apply_objects(&[
            object("AddressPool", "lan", json!({"addresses": ["172.17.8.220-172.17.8.229"]})),
            object("Advertisement", "lan", json!({"addressPools": ["lan"]})),
        ])?;
        let ports = json!([{"port": PORT, "targetPort": 8080}]);
        cluster.add_service(
            "web",
            json!({"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports}),
        )?;
        let address: IpAddr = cluster.wait_load_balancer_ip(SERVICE)?;
        cluster.wait_owner(address, |_| true)?;
        let cluster_ip = at(cluster.cluster_ip(SERVICE, 0)?, PORT);
        Ok(Self { cluster, cluster_ip, vip: at(address, PORT) })
    }

    fn add(&mut self, (name, node, host): (&str, &str, u8)) -> Result<()> {
        self.cluster.add_backend(name, node, host, "web")?;
        self.cluster.wait_converged()
    }

    /// Checks that exactly these backends serve connections from inside and outside of the cluster.
    fn check(&self, backends: &[(&str, &str, u8)]) -> Result<()> {
        self.cluster.wait_verified(SERVICE)?;
        let names: Vec<_> = backends.iter().map(|(name, ..)| *name).collect();
        self.cluster.expect_backends("inside", self.cluster_ip, &names)?;
        self.cluster.expect_backends("client", self.vip, &names)
    }

    /// Returns the `spec` of each object by collection and name.
    fn specs(&self) -> Result<BTreeMap<String, Value>> {
        let mut specs = BTreeMap::new();
        for collection in COLLECTIONS {
            let list = self.cluster.object(collection)?;
            let items = list["items"].as_array().with_context(|| format!("{collection}: {list:#}"))?;
            for item in items {
                specs.insert(format!("{collection}/{}", item["metadata"]["name"]), item["spec"].clone());
            }
        }
        Ok(specs)
    }

    /// Runs `tidegate` of this version, or of the programs in `directory`.
    fn command(&self, directory: Option<&Path>, arguments: &[&str]) -> Result<String> {
        let program = binaries::find_in(directory, "tidegate")?;
        let arguments = [&["--api", self.cluster.api.url()], arguments].concat();
        self.cluster.place("control")?.run(&program.display().to_string(), &arguments)
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}});
    object["spec"] = spec;
    object
}

/// Returns the first line that the control server prints for `--version`.
fn version_of(directory: Option<&Path>) -> Result<String> {
    let program = binaries::find_in(directory, "tidegate-api")?;
    let output = crate::host::shell::run(&program.display().to_string(), &["--version"])?;
    Ok(output.lines().next().unwrap_or_default().to_owned())
}
