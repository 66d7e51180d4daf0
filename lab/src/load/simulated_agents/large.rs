//! A large cluster: a real control server with hundreds of agents of a herd and thousands of Services, for the page and for
//! benchmarks.

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
    cluster::control::{Http, string},
    host::{netns::Namespace, scratch::Scratch, wait},
    network::machines,
    processes::{
        binaries,
        process::{Plan, Process},
    },
};

/// Where the control server listens, inside its namespace: on loopback, where it serves without TLS and tokens.
const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7440);
/// Services in one request with their endpoints; the server takes 5,000 objects and 8 MiB.
const BATCH: u32 = 2_000;

/// How long hundreds of agents may take to be heard where a machine is busy with other tests as well.
const PATIENCE: Duration = Duration::from_secs(240);

/// How large.
#[derive(Debug, Clone)]
pub struct Options {
    /// Nodes with an agent.
    pub nodes: u16,
    /// Services, with two to six endpoints each.
    pub services: u32,
    /// Further arguments of the control server.
    pub arguments: Vec<String>,
    /// The program of the control server; that of this build when left out.
    pub program: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 500, services: 5_000, arguments: Vec::new(), program: None }
    }
}

/// A large cluster that runs. Dropping it ends and removes everything.
#[derive(Debug)]
pub struct Large {
    /// Its agents.
    pub herd: Herd,
    /// The control server.
    pub server: Process,
    /// A client of the control server, in its namespace.
    pub api: Http,
    /// Where everything of it is.
    pub namespace: Namespace,
    /// How long each part of bringing it up took, to be printed.
    pub times: Vec<(&'static str, Duration)>,
    options: Options,
    /// The position of all objects.
    filled: Position,
    _directory: Scratch,
}

impl Large {
    /// Brings up the server, all objects and all agents, and waits until the server knows of each agent how far it is.
    ///
    /// # Errors
    /// A binary is not built, or something is refused.
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
        // What lags needs something to lag behind.
        let touched = large.touch()?;
        large.wait_verified(touched, large.well_nodes())?;
        laps.end("settled");
        large.times = laps.times;
        Ok(large)
    }

    /// The address of the page, and of the API.
    #[must_use]
    pub fn url(&self) -> &str {
        self.api.url()
    }

    /// The namespace and name of a Service, by its number from 0.
    #[must_use]
    pub fn service(&self, number: u32) -> (&'static str, String) {
        objects::key(number)
    }

    /// The name of a node, by its number from 0.
    #[must_use]
    pub fn node(&self, number: u16) -> String {
        objects::node_name(number)
    }

    /// Nodes that have everything and say so.
    #[must_use]
    pub fn well_nodes(&self) -> u64 {
        let nodes = self.options.nodes;
        u64::from(if nodes <= 2 * objects::UNWELL { nodes } else { nodes - objects::UNWELL })
    }

    /// Writes something that changes no packet's way; gives the position that holds it.
    ///
    /// # Errors
    /// It is refused.
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

    /// Waits until control has taken reports of so many agents that say that they have everything up to a position.
    ///
    /// # Errors
    /// One never has.
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

/// Times between steps.
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
        // What is brought up at once is more than anybody would change at once.
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

/// Writes all objects; gives the position that holds them.
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
