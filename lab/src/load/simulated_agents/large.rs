//! Large cluster for the web page and benchmarks: a real control server with hundreds of simulated agents and
//! thousands of Services.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use model::primitives::quantity::{Position, Revision};
use serde_json::{Value, json};

use super::{Herd, objects};
use crate::{
    cluster::{
        control::{Http, string},
        machines,
    },
    host::{netns::Namespace, scratch::Scratch, wait},
    processes::{
        binaries,
        process::{Plan, Process},
    },
};

/// Listening address of the control server in its namespace: on the loopback address, where the server
/// requires neither TLS nor tokens.
const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7440);
/// Number of Services, with their endpoints, per request. The server accepts 5,000 objects and 8 MiB.
const BATCH: u32 = 500;

/// Timeout for the reports of hundreds of agents on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(240);

/// Parameters of a large cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of nodes with an agent.
    pub nodes: u16,
    /// Number of Services, with two to six endpoints each.
    pub services: u32,
    /// Further command-line arguments of the control server.
    pub arguments: Vec<String>,
    /// Control server binary; the default is the one of this build.
    pub program: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 500, services: 5_000, arguments: Vec::new(), program: None }
    }
}

/// Running large cluster: a control server with simulated agents. Dropping it ends its processes and removes
/// its namespace and files.
#[derive(Debug)]
pub struct Large {
    /// Simulated agents, one per node.
    pub herd: Herd,
    /// Process of the control server.
    pub server: Process,
    /// API client in the namespace of the control server.
    pub api: Http,
    /// Network namespace with the server and all agents.
    pub namespace: Namespace,
    /// Duration of each startup step, for display.
    pub times: Vec<(&'static str, Duration)>,
    options: Options,
    /// Position (epoch and revision) of the store after all objects were created.
    filled: Position,
    _directory: Scratch,
}

impl Large {
    /// Starts the server, creates all objects, starts all agents, and waits until the server has the status
    /// of each agent.
    ///
    /// # Errors
    /// Returns an error if a binary is not built or the server rejects a request.
    pub fn start(options: Options) -> Result<Self> {
        let mut laps = Laps::new();
        let directory = machines::directory()?;
        let namespace = Namespace::new("large")?;
        let mut server = Process::start(plan(&options, &namespace, &directory)?)?;
        let api = Http::new(&namespace, CONTROL);
        server.wait_ready(|| api.get("/readyz")?.success().map(drop))?;
        laps.end("server");
        let members = objects::members(options.nodes);
        Herd::register(&namespace, api.url(), &members)?;
        laps.end("nodes");
        let position = fill(&api, &options)?;
        laps.end("objects");
        let herd = Herd::start(&namespace, api.url(), position, members)?;
        let mut large = Self {
            herd,
            server,
            api,
            namespace,
            times: Vec::new(),
            options,
            filled: position,
            _directory: directory,
        };
        large.wait_verified(position, u64::from(large.options.nodes))?;
        laps.end("agents");
        // Lagging agents need a newer revision to lag behind.
        let touched = large.touch()?;
        large.wait_verified(touched, large.well_nodes())?;
        laps.end("settled");
        large.times = laps.times;
        Ok(large)
    }

    /// Returns the URL of the page and of the API.
    #[must_use]
    pub fn url(&self) -> &str {
        self.api.url()
    }

    /// Returns the namespace and name of the Service with number `number`, counted from 0.
    #[must_use]
    pub fn service(&self, number: u32) -> (&'static str, String) {
        objects::key(number)
    }

    /// Returns the name of the node with number `number`, counted from 0.
    #[must_use]
    pub fn node(&self, number: u16) -> String {
        objects::node_name(number)
    }

    /// Returns the number of nodes whose agents verify every change: all except the simulated faulty ones.
    #[must_use]
    pub fn well_nodes(&self) -> u64 {
        let nodes = self.options.nodes;
        u64::from(if nodes <= 2 * objects::UNWELL { nodes } else { nodes - objects::UNWELL })
    }

    /// Writes a change that affects no traffic, and returns the position (epoch and revision) of the store
    /// after it.
    pub fn touch(&self) -> Result<Position> {
        let (namespace, name) = objects::key(1);
        let path = format!("/v1/namespaces/{namespace}/services/{name}");
        let patch = json!({"spec": {"ports": [{"name": "http", "port": 8081, "targetPort": 8080}]}});
        let headers = [("content-type", "application/merge-patch+json")];
        let answer = self.api.send("PATCH", &path, &headers, patch.to_string())?;
        let answer = answer.success()?;
        let revision = answer.revision.context("a write has a revision")?;
        Ok(Position { revision: Revision(revision), ..self.filled })
    }

    /// Waits until at least `wanted` agents have reported the position (epoch and revision) `position` or a
    /// later one as verified.
    ///
    /// # Errors
    /// Returns an error on timeout.
    pub fn wait_verified(&self, position: Position, wanted: u64) -> Result<()> {
        wait::until_within(PATIENCE, &format!("{wanted} agents to have {position}"), || {
            let have = self.herd.verified(position) as u64;
            ensure!(have >= wanted, "{have} have");
            Ok(())
        })
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "--- tidegate-api ---\n{}", self.server.log_tail());
        }
    }
}

/// Stopwatch that measures the duration of consecutive steps.
struct Laps {
    begun: Instant,
    times: Vec<(&'static str, Duration)>,
}

impl Laps {
    fn new() -> Self {
        Self { begun: Instant::now(), times: Vec::new() }
    }

    fn end(&mut self, step: &'static str) {
        self.times.push((step, self.begun.elapsed()));
        self.begun = Instant::now();
    }
}

fn plan(options: &Options, namespace: &Namespace, directory: &Scratch) -> Result<Plan> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => binaries::find("tidegate-api")?,
    };
    let mut arguments = vec![
        format!("--listen={CONTROL}"),
        format!("--store=sqlite:{}", directory.path().join("control.sqlite").display()),
        "--service-cidr=10.96.0.0/12".to_owned(),
        // Simulated agents check no endpoints.
        "--default-health-check=none".to_owned(),
        // The initial bulk load exceeds the limits for regular changes.
        "--guard-vips-percent=100".to_owned(),
        "--guard-endpoints-percent=100".to_owned(),
    ];
    arguments.extend_from_slice(&options.arguments);
    Ok(Plan {
        label: "tidegate-api".to_owned(),
        namespace: namespace.clone(),
        program,
        arguments,
        environment: Vec::new(),
        log: directory.path().join("control.log"),
    })
}

/// Creates all API objects of the cluster. Returns the position (epoch and revision) of the store after the
/// last write.
fn fill(api: &Http, options: &Options) -> Result<Position> {
    let apply = |objects: Vec<Value>| -> Result<Position> {
        let answer = api.send_json("POST", "/v1/apply", &Value::Array(objects))?.success()?.json();
        let position = string(&answer, "/position")?;
        position.parse().map_err(|why| anyhow::anyhow!("position {position}: {why}"))
    };
    let mut position = apply(objects::settings())?;
    let numbers: Vec<u32> = (0..options.services).collect();
    for batch in numbers.chunks(BATCH as usize) {
        position = apply(batch.iter().flat_map(|&number| objects::service(number, options.nodes)).collect())?;
    }
    Ok(position)
}
