//! Many simulated agents in one process. Each uses the real control protocol (registers its node, reads its
//! feed of cluster state, sends reports) but programs no kernel, so that a server with hundreds of nodes can
//! be tested on one machine.
//!
//! ```text
//! Herd ── one thread in a namespace ── one task per agent ──┬─ POST /v1/nodes              once
//!                                                           ├─ GET  /v1/nodes/N/state      one stream, resumed after a cut
//!                                                           └─ PUT  /v1/nodes/N/report     on changes, and every few seconds
//! ```
//! Agents resume from a given position (epoch and revision), as a real agent does after a restart with its
//! stored state, so that the server need not send the full state to each of them. Simulated agents do not
//! respond to queries of the server, so that plans and explanations list them as nodes without a response.

mod agent;
mod large;
mod objects;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use model::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Position},
};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

pub use large::{Large, Options};

use crate::{cluster::control::http_builder, host::netns::Namespace};

/// Maximum number of agents in one process. Each agent needs a connection, and thus a file descriptor, in
/// this process and in the server.
pub const HERD_MAX: usize = 2_000;
/// Maximum number of concurrent requests of all simulated agents, so that registrations do not overload a starting
/// server.
const REQUESTS_MAX: usize = 32;

/// Behavior of a simulated agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Reports everything that it has received as verified.
    Converges,
    /// Reports that everything is verified except these Services, which the simulated kernel rejects.
    Refuses(BTreeSet<ServiceKey>),
    /// Receives everything but reports only its start position (epoch and revision) as verified.
    Lags,
    /// Sends one report and then no more.
    IsSilent,
}

/// Parameters of a simulated agent.
#[derive(Debug, Clone)]
pub struct Member {
    /// Name of the agent's Node.
    pub node: Name,
    /// Networks of the agent's interface `eth0`, with its own addresses.
    pub networks: Vec<IpNet>,
    /// Failure zone of the agent's Node.
    pub zone: Option<String>,
    /// Behavior at the start.
    pub behaviour: Behaviour,
}

/// Simulated agents, all run by one thread. Dropping the value ends them.
#[derive(Debug)]
pub struct Herd {
    behaviours: BTreeMap<Name, watch::Sender<Behaviour>>,
    heard: AcceptedReports,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Verified position (epoch and revision) in the last report of each agent that the control server accepted.
/// The agents record it here, because queries to the server for it would cause more load than all agents do.
#[derive(Debug, Clone, Default)]
struct AcceptedReports(Arc<Mutex<BTreeMap<Name, Position>>>);

impl AcceptedReports {
    fn note(&self, node: &Name, verified: Position) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone(), verified);
    }

    fn at(&self, wanted: Position) -> usize {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.values().filter(|verified| **verified >= wanted).count()
    }
}

impl Herd {
    /// Creates the Node objects of all simulated agents at the control server with the URL `base`.
    pub fn register(namespace: &Namespace, base: &str, members: &[Member]) -> Result<()> {
        ensure!(members.len() <= HERD_MAX, "a herd has at most {HERD_MAX} agents, not {}", members.len());
        namespace.inside(|| runtime()?.block_on(register_all(base, members)))
    }

    /// Starts the agents. At the start, each agent already has the state of the cluster at `position` (epoch
    /// and revision) and receives only later changes.
    ///
    /// # Errors
    /// Returns an error if there are too many members, or if the thread or the HTTP client cannot be created.
    pub fn start(
        namespace: &Namespace,
        base: &str,
        position: Position,
        members: Vec<Member>,
    ) -> Result<Self> {
        ensure!(members.len() <= HERD_MAX, "a herd has at most {HERD_MAX} agents, not {}", members.len());
        let (stop, stopped) = watch::channel(false);
        let behaviours: BTreeMap<_, _> = members
            .iter()
            .map(|member| (member.node.clone(), watch::channel(member.behaviour.clone()).0))
            .collect();
        let told: Vec<_> = members.iter().map(|member| behaviours[&member.node].subscribe()).collect();
        let (runtime, client, base) = (runtime()?, client()?, base.to_owned());
        let heard = AcceptedReports::default();
        let noted = heard.clone();
        let thread = namespace.spawn("herd", move || {
            let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
            let mut tasks = JoinSet::new();
            for (member, told) in members.into_iter().zip(told) {
                let (client, requests) = (client.clone(), Arc::clone(&requests));
                let control = agent::Control { client, base: base.clone(), requests, heard: noted.clone() };
                let agent = agent::SimulatedAgent::new(control, member, told, position);
                tasks.spawn_on(agent.run(), runtime.handle());
            }
            runtime.block_on(until_stopped(stopped));
            // Ends the streams and tasks.
            runtime.shutdown_background();
        })?;
        Ok(Self { behaviours, heard, stop, thread: Some(thread) })
    }

    /// Returns the number of agents whose last accepted report contains the position (epoch and revision)
    /// `position` or a later one as verified.
    #[must_use]
    pub fn verified(&self, position: Position) -> usize {
        self.heard.at(position)
    }

    /// Changes the behavior of an agent from now on.
    ///
    /// # Errors
    /// Returns an error if there is no such agent.
    pub fn behave(&self, node: &str, behaviour: Behaviour) -> Result<()> {
        let name = Name::parse(node).map_err(|why| anyhow::anyhow!("`{node}`: {why}"))?;
        let told = self.behaviours.get(&name).with_context(|| format!("the herd has no {node}"))?;
        told.send_replace(behaviour);
        Ok(())
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported already.
            let _ = thread.join();
        }
    }
}

async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error means that the herd was dropped, which has the same effect.
    let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
}

async fn register_all(base: &str, members: &[Member]) -> Result<()> {
    let (client, requests) = (client()?, Arc::new(Semaphore::new(REQUESTS_MAX)));
    let mut tasks = JoinSet::new();
    for member in members {
        let (client, base, member) = (client.clone(), base.to_owned(), member.clone());
        let requests = Arc::clone(&requests);
        tasks.spawn(async move {
            let _permit = requests.acquire().await.context("the semaphore is never closed")?;
            agent::register(&client, &base, &member).await
        });
    }
    while let Some(registered) = tasks.join_next().await {
        registered.context("a registration panicked")??;
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")
}

fn client() -> Result<reqwest::Client> {
    // Uncompressed: the compression cost per feed is not under test here.
    http_builder()?.no_gzip().build().context("cannot create an HTTP client")
}
