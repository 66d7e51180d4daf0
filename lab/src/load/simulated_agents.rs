//! Many agents in one process: each speaks the real protocol with a control server (registers its node, follows the feed,
//! reports), and programs nothing. So everything that the server then says of hundreds of nodes is its own roll-up of what
//! it was really told.
//!
//! ```text
//! Herd ── one thread in a namespace ── one task per agent ──┬─ POST /v1/nodes              once
//!                                                           ├─ GET  /v1/nodes/N/state      one stream, resumed after a cut
//!                                                           └─ PUT  /v1/nodes/N/report     at changes, and every few seconds
//! ```
//! Agents begin at a position that they are given, like an agent that comes back with its journal: the whole state need not be
//! sent to each of them. They answer no questions, so plans and explanations name them as nodes that did not answer.

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

use crate::{cluster::control::no_tls, host::netns::Namespace};

/// Agents in one herd: each holds a connection, and so does the server, in a process with the usual limit of files.
pub const HERD_MAX: usize = 2_000;
/// Requests of a herd that are under way at once; a server that is just starting is not drowned in registrations.
const REQUESTS_MAX: usize = 32;

/// What an agent of a herd does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// It has everything that it was told.
    Converges,
    /// It has everything but these Services, which its kernel refuses.
    Refuses(BTreeSet<ServiceKey>),
    /// It receives everything and stays with the state that it began with.
    Lags,
    /// It says nothing any longer; it has been heard once.
    IsSilent,
}

/// An agent of a herd.
#[derive(Debug, Clone)]
pub struct Member {
    /// The name of its Node.
    pub node: Name,
    /// The networks on its interface `eth0`, with its own addresses in them.
    pub networks: Vec<IpNet>,
    /// The failure zone of its Node.
    pub zone: Option<String>,
    /// What it does at first.
    pub behaviour: Behaviour,
}

/// Agents that run until this is dropped.
#[derive(Debug)]
pub struct Herd {
    behaviours: BTreeMap<Name, watch::Sender<Behaviour>>,
    heard: Heard,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// What control has taken of each agent: how far it said it was. Asking the server instead would cost it more than all agents.
#[derive(Debug, Clone, Default)]
struct Heard(Arc<Mutex<BTreeMap<Name, Position>>>);

impl Heard {
    fn note(&self, node: &Name, verified: Position) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone(), verified);
    }

    fn at(&self, wanted: Position) -> usize {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.values().filter(|verified| **verified >= wanted).count()
    }
}

impl Herd {
    /// Registers the nodes of all members, as their agents do when control does not know them.
    ///
    /// # Errors
    /// There are too many, or the server refuses one.
    pub fn register(namespace: &Namespace, base: &str, members: &[Member]) -> Result<()> {
        ensure!(members.len() <= HERD_MAX, "a herd has at most {HERD_MAX} agents, not {}", members.len());
        namespace.inside(|| runtime()?.block_on(register_all(base, members)))
    }

    /// Starts the agents; they have the state of `position` when they begin.
    ///
    /// # Errors
    /// There are too many, or there is no thread or HTTP client for them.
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
        let heard = Heard::default();
        let noted = heard.clone();
        let thread = namespace.spawn("herd", move || {
            let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
            let mut tasks = JoinSet::new();
            for (member, told) in members.into_iter().zip(told) {
                let (client, requests) = (client.clone(), Arc::clone(&requests));
                let control = agent::Control { client, base: base.clone(), requests, heard: noted.clone() };
                let agent = agent::Agent::new(control, member, told, position);
                tasks.spawn_on(agent.run(), runtime.handle());
            }
            runtime.block_on(until_stopped(stopped));
            // Streams and tasks end with it.
            runtime.shutdown_background();
        })?;
        Ok(Self { behaviours, heard, stop, thread: Some(thread) })
    }

    /// Agents of which control has taken a report that says that they have everything up to `position`.
    #[must_use]
    pub fn verified(&self, position: Position) -> usize {
        self.heard.at(position)
    }

    /// Changes what an agent does from now on.
    ///
    /// # Errors
    /// There is no such agent.
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
            // It has nothing to say that is not said elsewhere.
            let _ = thread.join();
        }
    }
}

async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error means that the herd is gone, which is the same.
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
    // Uncompressed: the server compresses each feed by itself, which is not what a herd is for.
    let client = reqwest::Client::builder().tls_backend_preconfigured(no_tls()?).no_proxy().no_gzip();
    client.build().context("no HTTP client")
}
