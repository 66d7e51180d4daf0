//! A complete cluster on a [`Topology`]: one control server, an agent on each node, and helpers for tests.

use std::{
    collections::BTreeMap,
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::{
    cluster::{
        control::{Http, number, string},
        etcd,
    },
    host::{netns::Namespace, scratch::Scratch, shell, wait},
    network::{
        client::{self, Reply},
        topology::{self, Topology},
    },
    processes::{
        binaries,
        process::{Plan, Process},
    },
};

/// Address at which every agent serves its status API, inside the namespace of its node.
const AGENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7441);

/// Parameters of a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of nodes, each with an agent.
    pub nodes: u8,
    /// Value of the server's `--service-cidr`: the ranges of cluster IPs.
    pub service_cidr: String,
    /// Value of the server's `--node-port-range`.
    pub node_port_range: String,
    /// Proxy modes, assigned to the nodes in rotation.
    pub modes: Vec<&'static str>,
    /// True if nodes and the external client also get addresses in [`topology::LAN_V4`], the network of the
    /// load balancer addresses in the project's requirements document.
    pub lan: bool,
    /// Further command-line arguments of the control server.
    pub server_arguments: Vec<String>,
    /// Further command-line arguments of every agent.
    pub agent_arguments: Vec<String>,
    /// Environment variables of the control server and of every agent, in addition to the inherited ones.
    pub environment: Vec<(String, String)>,
    /// Number of etcd members next to the control server that form its store; 0 selects SQLite.
    pub members: u8,
    /// Directory with the binary of the control server, if it is one of an older version.
    pub older_server: Option<PathBuf>,
    /// Directory with the binary of the agents, if it is one of an older version.
    pub older_agent: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            service_cidr: "10.96.0.0/16,fd00:96::/112".to_owned(),
            node_port_range: "30000-32767".to_owned(),
            modes: vec!["nftables"],
            lan: false,
            server_arguments: Vec::new(),
            agent_arguments: Vec::new(),
            environment: Vec::new(),
            members: 0,
            older_server: None,
            older_agent: None,
        }
    }
}

/// Running cluster. Dropping it ends every process, removes every namespace and deletes all files. After a
/// panic, it first writes the last lines of the logs to stderr.
#[derive(Debug)]
pub struct Cluster {
    /// Agent processes by node name.
    pub agents: BTreeMap<String, Process>,
    /// Process of the control server.
    pub server: Process,
    /// Processes of the etcd members; empty for a SQLite store.
    pub members: Vec<Process>,
    /// Client of the control server, connecting from the server's namespace.
    pub api: Http,
    /// Network of the cluster.
    pub topology: Topology,
    modes: Vec<&'static str>,
    agent_arguments: Vec<String>,
    environment: Vec<(String, String)>,
    older_agent: Option<PathBuf>,
    directory: Scratch,
}

impl Cluster {
    /// Starts all processes and waits until every agent has reported convergence.
    ///
    /// # Errors
    /// Returns an error if a binary is not built or does not become ready.
    pub fn start(options: &Options) -> Result<Self> {
        let mut cluster = Self::start_control(options)?;
        let names: Vec<_> = cluster.topology.nodes.keys().cloned().collect();
        for name in &names {
            cluster.start_agent(name)?;
        }
        for name in &names {
            cluster.wait_agent_ready(name)?;
        }
        cluster.wait_converged()?;
        Ok(cluster)
    }

    /// Starts the network and the control server, but no agents.
    ///
    /// # Errors
    /// Same as [`Self::start`].
    pub fn start_control(options: &Options) -> Result<Self> {
        let directory = Scratch::new("lab")?;
        let topology = Topology::new(options.nodes)?;
        if options.lan {
            topology.join_lan()?;
        }
        let members = etcd::start_beside(&topology.control, options.members, directory.path())?;
        let store = match options.members {
            0 => format!("sqlite:{}", directory.path().join("control.sqlite").display()),
            count => etcd::url_beside(count),
        };
        let mut arguments = words(&[
            &format!("--listen={}", topology::CONTROL),
            &format!("--store={store}"),
            &format!("--service-cidr={}", options.service_cidr),
            &format!("--node-port-range={}", options.node_port_range),
            &format!("--allow-external-ip={}", topology::EXTERNAL_CIDRS),
            "--insecure",
            // Tests take away everything on purpose.
            "--guard-vips-percent=100",
            "--guard-endpoints-percent=100",
            "--health-guard-percent=100",
        ]);
        let is_set = |argument: &String| argument.starts_with("--default-health-check=");
        if options.older_server.is_none() && !options.server_arguments.iter().any(is_set) {
            // Endpoints of many tests have no server, and connections are counted. Version 0.1.0 has no default.
            arguments.push("--default-health-check=none".to_owned());
        }
        arguments.extend_from_slice(&options.server_arguments);
        let mut server = Process::start(Plan {
            label: "tidegate-api".to_owned(),
            namespace: topology.control.clone(),
            program: binaries::find_in(options.older_server.as_deref(), "tidegate-api")?,
            arguments,
            environment: options.environment.clone(),
            log: directory.path().join("control.log"),
        })?;
        let api = Http::new(&topology.control, topology::CONTROL);
        server.wait_ready(|| api.get("/readyz")?.success().map(drop))?;
        let Options { modes, agent_arguments, environment, older_agent, .. } = options.clone();
        Ok(Self {
            agents: BTreeMap::new(),
            server,
            members,
            api,
            topology,
            modes,
            agent_arguments,
            environment,
            older_agent,
            directory,
        })
    }

    /// Starts the agent of a node.
    ///
    /// # Errors
    /// Returns an error if the binary is not built.
    pub fn start_agent(&mut self, node: &str) -> Result<()> {
        let machine = self.topology.nodes.get(node).with_context(|| format!("there is no node {node}"))?;
        let turn = usize::from(machine.index.saturating_sub(1)) % self.modes.len().max(1);
        let mode = self.modes.get(turn).copied().unwrap_or("nftables");
        let addresses = topology::node_addresses(machine.index).map(|address| address.to_string()).join(",");
        let mut arguments = words(&[
            &format!("--api={}", self.api.url()),
            &format!("--node={node}"),
            &format!("--mode={mode}"),
            &format!("--state-dir={}", self.state_directory(node).display()),
            &format!("--listen={AGENT}"),
            &format!("--workload-cidr={}", topology::workload_cidrs(machine.index).join(",")),
            &format!("--address={addresses}"),
        ]);
        arguments.extend_from_slice(&self.agent_arguments);
        let process = Process::start(Plan {
            label: format!("tidegate-agent of {node}"),
            namespace: machine.namespace.clone(),
            program: binaries::find_in(self.older_agent.as_deref(), "tidegate-agent")?,
            arguments,
            environment: self.environment.clone(),
            log: self.directory.path().join(format!("{node}.log")),
        })?;
        self.agents.insert(node.to_owned(), process);
        Ok(())
    }

    /// Returns the directory in which the agent of a node stores its journal: the last state of the cluster,
    /// with which it can start without a control server.
    #[must_use]
    pub fn state_directory(&self, node: &str) -> PathBuf {
        self.directory.path().join(format!("{node}.state"))
    }

    /// Returns the names of all files in the directory of the cluster. Its subdirectories, such as those of
    /// agents and etcd members, are listed but not searched.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.directory.path())? {
            files.push(entry?.file_name().to_string_lossy().into_owned());
        }
        files.sort();
        Ok(files)
    }

    /// Returns the disk usage of the directories of the control server, the agents and the etcd members in
    /// KiB, without log files.
    pub fn files_kib(&self) -> Result<u64> {
        let directory = self.directory.path().display().to_string();
        let listing = shell::run("du", &["-k", "-s", "--exclude=*.log", &directory])?;
        let kib = listing.split_whitespace().next().context("`du` printed nothing")?;
        Ok(kib.parse()?)
    }

    /// Waits until the agent of a node reports that it is healthy.
    ///
    /// # Errors
    /// Returns an error on timeout.
    pub fn wait_agent_ready(&mut self, node: &str) -> Result<()> {
        let http = self.agent(node)?;
        let process = self.agents.get_mut(node).with_context(|| format!("no agent was started on {node}"))?;
        process.wait_ready(|| http.get("/healthz")?.success().map(drop))
    }

    /// Returns an HTTP client of the status server of a node's agent.
    ///
    /// # Errors
    /// Returns an error if the node does not exist.
    pub fn agent(&self, node: &str) -> Result<Http> {
        Ok(Http::new(self.topology.place(node)?, AGENT))
    }

    /// Returns the response of a node's agent to `GET /v1/state`.
    ///
    /// # Errors
    /// Returns an error if the agent does not respond.
    pub fn agent_state(&self, node: &str) -> Result<Value> {
        self.agent(node)?.get_json("/v1/state")
    }

    /// Returns a counter of a node's agent. `name` is the field name in a report, such as
    /// `kernelTransactions`.
    ///
    /// # Errors
    /// Returns an error if the agent does not respond or has no such counter.
    pub fn agent_counter(&self, node: &str, name: &str) -> Result<u64> {
        number(&self.agent_state(node)?, &format!("/counters/{name}"))
    }

    /// Kills the control server (SIGKILL) and restarts it.
    ///
    /// # Errors
    /// Returns an error if the server does not become ready again.
    pub fn restart_control(&mut self) -> Result<()> {
        self.server.kill();
        self.start_control_again()
    }

    /// Starts the control server again after it has ended, and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if the server does not become ready again.
    pub fn start_control_again(&mut self) -> Result<()> {
        self.server.start_again()?;
        let api = self.api.clone();
        self.server.wait_ready(|| api.get("/readyz")?.success().map(drop))
    }

    /// Starts the agent of a node again after it has ended, and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if the agent does not become ready again.
    pub fn start_agent_again(&mut self, node: &str) -> Result<()> {
        self.agents
            .get_mut(node)
            .with_context(|| format!("no agent was started on {node}"))?
            .start_again()?;
        self.wait_agent_ready(node)
    }

    /// Applies objects given as YAML documents, and returns the result of the apply request.
    ///
    /// # Errors
    /// Returns an error if the server rejects them.
    pub fn apply(&self, yaml: &str) -> Result<Value> {
        let answer =
            self.api.send("POST", "/v1/apply", &[("content-type", "application/yaml")], yaml.to_owned())?;
        Ok(answer.success().with_context(|| format!("applying\n{yaml}"))?.json())
    }

    /// Applies objects given as JSON in one request, and returns the result of the request.
    ///
    /// # Errors
    /// Returns an error if the server rejects them.
    pub fn apply_objects(&self, objects: &[Value]) -> Result<Value> {
        Ok(self.api.send_json("POST", "/v1/apply", &Value::from(objects))?.success()?.json())
    }

    /// Returns an API object by its path below `/v1`, such as `namespaces/default/services/web`.
    ///
    /// # Errors
    /// Returns an error if the object does not exist.
    pub fn object(&self, path: &str) -> Result<Value> {
        self.api.get_json(&format!("/v1/{path}"))
    }

    /// Returns a Service by `namespace/name`.
    ///
    /// # Errors
    /// Returns an error if the Service does not exist.
    pub fn service(&self, key: &str) -> Result<Value> {
        let (namespace, name) =
            key.split_once('/').with_context(|| format!("`{key}` is not `namespace/name`"))?;
        self.object(&format!("namespaces/{namespace}/services/{name}"))
    }

    /// Returns the cluster IP of a Service in an address family: 0 is the primary, 1 the secondary family.
    ///
    /// # Errors
    /// Returns an error if the Service has none.
    pub fn cluster_ip(&self, key: &str, family: usize) -> Result<IpAddr> {
        Ok(string(&self.service(key)?, &format!("/spec/clusterIPs/{family}"))?.parse()?)
    }

    /// Returns the node port of a port of the Service `key`; `port` is the index in `spec.ports`.
    ///
    /// # Errors
    /// Returns an error if the Service has no such port, or if the port has no node port.
    pub fn node_port(&self, key: &str, port: usize) -> Result<u16> {
        Ok(u16::try_from(number(&self.service(key)?, &format!("/spec/ports/{port}/nodePort"))?)?)
    }

    /// Waits until every node has verified the newest state of the Service by reading its kernel objects
    /// back.
    pub fn wait_verified(&self, key: &str) -> Result<()> {
        let expected = self.agents.len() as u64;
        wait::until(&format!("Service {key} verified on {expected} nodes"), || {
            let service = self.service(key)?;
            let (total, verified) =
                (number(&service, "/status/nodes/total")?, number(&service, "/status/nodes/verified")?);
            ensure!(total == expected && verified == expected, "status: {:#}", service["status"]);
            Ok(())
        })
    }

    /// Waits until every node has verified in its kernel all changes up to the newest write.
    ///
    /// # Errors
    /// Returns the status of the server on timeout.
    pub fn wait_converged(&self) -> Result<()> {
        let expected = self.agents.len() as u64;
        wait::until(&format!("{expected} nodes to converge"), || {
            let status = self.api.get_json("/v1/status")?;
            ensure!(number(&status, "/nodes/converged")? == expected, "status: {status:#}");
            Ok(())
        })
    }

    /// Returns the namespace of `client`, `control`, a node or a workload.
    ///
    /// # Errors
    /// Returns an error if there is no namespace of this name.
    pub fn place(&self, name: &str) -> Result<&Namespace> {
        self.topology.place(name)
    }

    /// Opens a TCP connection from the location `from`, such as `client`, and returns the reply of the
    /// backend.
    ///
    /// # Errors
    /// Returns an error if the connection is refused or times out.
    pub fn tcp(&self, from: &str, to: impl ToString) -> Result<Reply> {
        client::tcp(self.place(from)?, client::socket_address(&to.to_string())?)
    }

    /// Sends a UDP datagram from the location `from`, such as `client`, and returns the reply of the backend.
    ///
    /// # Errors
    /// Returns an error if the datagram is refused or times out.
    pub fn udp(&self, from: &str, to: impl ToString) -> Result<Reply> {
        client::udp(self.place(from)?, client::socket_address(&to.to_string())?)
    }

    /// Opens many TCP connections, one after another, from the location `from`. Returns the number of replies
    /// of each backend.
    ///
    /// # Errors
    /// Returns the error of the first connection that fails.
    pub fn spread(&self, from: &str, to: SocketAddr, connections: usize) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for number in 1..=connections {
            let reply =
                self.tcp(from, to).with_context(|| format!("connection {number} of {connections}"))?;
            *counts.entry(reply.backend).or_default() += 1;
        }
        Ok(counts)
    }

    /// Connects repeatedly from the location `from` until each of `backends` has replied. One connection per
    /// backend is not enough, because the backend of each connection is chosen at random.
    ///
    /// # Errors
    /// Returns an error if a backend outside of `backends` replies, a connection fails, or one of `backends`
    /// never replies.
    pub fn expect_backends(&self, from: &str, to: SocketAddr, backends: &[&str]) -> Result<()> {
        // With at most 6 backends, the probability of missing one in 200 draws is below 1e-15.
        const CONNECTIONS_MAX: usize = 200;
        let mut missing: Vec<_> = backends.to_vec();
        for number in 0..CONNECTIONS_MAX {
            if missing.is_empty() && number >= 5 * backends.len() {
                return Ok(());
            }
            let reply = self.tcp(from, to)?;
            ensure!(
                backends.contains(&reply.backend.as_str()),
                "{} replied, which is not one of {backends:?}",
                reply.backend
            );
            missing.retain(|backend| *backend != reply.backend);
        }
        Err(anyhow!("{missing:?} never replied in {CONNECTIONS_MAX} connections to {to}"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "--- tidegate-api ---\n{}", self.server.log_tail());
            for (node, agent) in &self.agents {
                let _ = writeln!(stderr, "--- tidegate-agent of {node} ---\n{}", agent.log_tail());
            }
        }
    }
}

fn words(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}
