//! The source `docker`: containers of an engine that ask to be served, by labels. Podman's compatible socket is one too.
//!
//! Events only say what to look at; what counts is what a look finds. The stream of events is opened before the first look, and
//! everything is looked at again from time to time. While the engine is away, what it said last stays. A container that goes
//! is first shown as ended, so that its address takes no connections, and then removed.

mod container;
mod elsewhere;
mod networks;
mod parse;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use bollard::{
    API_DEFAULT_VERSION, Docker,
    errors::Error,
    models::{EventMessage, EventMessageTypeEnum},
    query_parameters::{EventsOptions, InspectContainerOptions, ListContainersOptions, ListNetworksOptions},
};
use clap::Args;
use futures::StreamExt as _;
use model::{
    kinds::{
        resource::{Kind, Object, ObjectKey, Spec},
        workload::WorkloadPhase,
    },
    primitives::name::{Name, Namespace},
};
use tokio::{sync::mpsc, task::AbortHandle, time::Instant};

use self::{
    container::{Container, Network},
    parse::{AddressKind, ending_signal},
    plan::{Elsewhere, Engine, Host, translate},
};
use crate::run::Outlet;

/// How long the engine may take for an answer, in seconds.
const TIMEOUT_SECS: u64 = 60;
/// Events that were not looked at yet; the engine waits beyond it.
const EVENTS_MAX: usize = 1024;
/// Containers of one engine that are looked at.
const CONTAINERS_MAX: usize = 5000;
/// Containers looked at side by side.
const LOOKS_MAX: usize = 8;
/// How long events are collected after the first.
const COLLECT: Duration = Duration::from_millis(30);
/// The second look after the first: what happened before the engine had opened the stream of events.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// How often everything is looked at without any event.
const RESYNC: Duration = Duration::from_secs(30);
/// How long a container that was told to end, and has not, takes no connections: somewhat longer than an engine waits before
/// it kills.
const ENDING_FOR: Duration = Duration::from_secs(15);
/// How long a container that is gone is shown as ended.
const FADING_FOR: Duration = Duration::from_secs(3);
/// Wait between attempts to reach the engine.
const PAUSE: Duration = Duration::from_secs(1);

/// Which engine, and how its containers are reached.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The socket of the engine
    #[arg(long, env = "DOCKER_HOST", hide_env_values = true, value_name = "SOCKET", default_value = "unix:///var/run/docker.sock", value_parser = parse_socket)]
    pub socket: PathBuf,
    /// The Node that the containers are on [default: the name of the machine]
    #[arg(long, env = "TIDEGATE_NODE", hide_env_values = true, value_name = "NAME", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// The machine's address, at which published ports and containers in its own network are reached; at most one of each
    /// family
    #[arg(
        long,
        env = "TIDEGATE_NODE_ADDRESS",
        hide_env_values = true,
        value_name = "ADDRESS,…",
        value_delimiter = ','
    )]
    pub node_address: Vec<IpAddr>,
    /// The network whose addresses are used of containers in several; a label tidegate.network wins
    #[arg(long, env = "TIDEGATE_NETWORK", hide_env_values = true, value_name = "NAME")]
    pub network: Option<String>,
    /// The namespace of what containers ask for, unless they name one
    #[arg(long, env = "TIDEGATE_NAMESPACE", hide_env_values = true, value_name = "NAME", value_parser = Namespace::parse, default_value = "default")]
    pub namespace: Namespace,
    /// Which address of a container is used, unless its label tidegate.address says
    #[arg(long, env = "TIDEGATE_ADDRESS", hide_env_values = true, value_enum, default_value = "auto")]
    pub address: AddressKind,
}

fn parse_socket(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("must be the path of a socket, such as unix:///var/run/docker.sock".to_owned())
    }
}

impl Arguments {
    /// The Node, as given or as the machine is called.
    ///
    /// # Errors
    /// The machine's name is no name of a Node.
    pub fn node(&self) -> anyhow::Result<Name> {
        if let Some(node) = &self.node {
            return Ok(node.clone());
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("the machine's name cannot be read; give --node")?;
        Name::parse(name.trim())
            .map_err(|error| anyhow!("the machine's name {:?} {error}; give --node", name.trim()))
    }
}

/// Follows the engine until the process ends.
///
/// # Errors
/// A flag is wrong.
pub async fn run(arguments: Arguments, outlet: Outlet) -> anyhow::Result<()> {
    let host = Host {
        node: arguments.node()?,
        addresses: arguments.node_address,
        namespace: arguments.namespace,
        network: arguments.network,
        address: arguments.address,
    };
    let mut state = State {
        host,
        outlet,
        engine: Engine::default(),
        ending: BTreeMap::new(),
        fading: BTreeMap::new(),
        elsewhere: Elsewhere::default(),
    };
    loop {
        let cause = match session(&arguments.socket, &mut state).await {
            Ok(()) => "the engine has ended the stream of events".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        tracing::warn!(cause, "the engine is not followed; what it said last stays");
        state.outlet.wanted.send_modify(|wanted| wanted.is_complete = false);
        state.outlet.progress.complain(vec![format!("engine: {cause}")]);
        tokio::time::sleep(PAUSE).await;
    }
}

struct State {
    host: Host,
    outlet: Outlet,
    engine: Engine,
    /// Until when containers that were told to end take no connections.
    ending: BTreeMap<String, Instant>,
    /// Workloads of containers that are gone, and since when.
    fading: BTreeMap<ObjectKey, (Object, Instant)>,
    elsewhere: Elsewhere,
}

/// What events have made stale.
#[derive(Default)]
struct Stale {
    containers: BTreeSet<String>,
    networks: bool,
}

async fn session(socket: &std::path::Path, state: &mut State) -> anyhow::Result<()> {
    let socket = socket.to_str().context("the path of the socket is not text")?;
    let docker =
        Docker::connect_with_unix(socket, TIMEOUT_SECS, API_DEFAULT_VERSION)?.negotiate_version().await?;
    let version = docker.version().await?.version.unwrap_or_default();
    state.engine.major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    let (mut events, _guard) = events(docker.clone());
    state.look_elsewhere().await;
    state.look_at_everything(&docker).await?;
    tracing::info!(version, containers = state.engine.containers.len(), "following the engine");
    let mut resync = tokio::time::interval_at(Instant::now() + SECOND_LOOK, RESYNC);
    loop {
        let mut stale = Stale::default();
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { return Ok(()) };
                state.hear(event?, &mut stale);
                tokio::time::sleep(COLLECT).await;
                while let Ok(event) = events.try_recv() {
                    state.hear(event?, &mut stale);
                }
                state.look_again(&docker, stale).await?;
            }
            _ = resync.tick() => {
                state.look_elsewhere().await;
                state.look_at_everything(&docker).await?;
            }
            () = tokio::time::sleep_until(state.next_end()), if !state.ending.is_empty() || !state.fading.is_empty() => {
                state.end();
                state.publish(true);
            }
        }
    }
}

struct Guard(AbortHandle);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens the stream of events; it is read at once, so that it is open before anything is looked at.
fn events(docker: Docker) -> (mpsc::Receiver<Result<EventMessage, Error>>, Guard) {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    let types = vec!["container".to_owned(), "network".to_owned()];
    let options =
        EventsOptions { filters: Some([("type".to_owned(), types)].into()), ..EventsOptions::default() };
    let task = tokio::spawn(async move {
        let mut events = std::pin::pin!(docker.events(Some(options)));
        while let Some(event) = events.next().await {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    });
    (receiver, Guard(task.abort_handle()))
}

impl State {
    fn hear(&mut self, event: EventMessage, stale: &mut Stale) {
        let action = event.action.unwrap_or_default();
        let actor = event.actor.unwrap_or_default();
        let attributes = actor.attributes.unwrap_or_default();
        let id = actor.id.unwrap_or_default();
        match event.typ {
            // Checks of health run all the time; what they find is an event of its own.
            Some(EventMessageTypeEnum::CONTAINER) if action.starts_with("exec_") => {}
            Some(EventMessageTypeEnum::CONTAINER) => {
                if action == "kill" && attributes.get("signal").is_some_and(|signal| self.is_end(&id, signal))
                {
                    self.ending.insert(id.clone(), Instant::now() + ENDING_FOR);
                } else if matches!(action.as_str(), "die" | "died" | "start" | "destroy" | "remove") {
                    self.ending.remove(&id);
                }
                stale.containers.insert(id);
            }
            Some(EventMessageTypeEnum::NETWORK) => match attributes.get("container") {
                Some(container) => {
                    stale.containers.insert(container.clone());
                }
                None => stale.networks = true,
            },
            Some(_) | None => {}
        }
    }

    /// Whether a signal is meant to end a container.
    fn is_end(&self, id: &str, signal: &str) -> bool {
        let Some(number) = ending_signal(signal) else { return false };
        let own = self.engine.containers.get(id).and_then(|container| container.stop_signal.as_deref());
        own.and_then(ending_signal) == Some(number) || matches!(number, 2 | 3 | 9 | 15)
    }

    async fn look_at_everything(&mut self, docker: &Docker) -> anyhow::Result<()> {
        let options = ListContainersOptions { all: true, ..ListContainersOptions::default() };
        let listed =
            docker.list_containers(Some(options)).await.context("the containers cannot be listed")?;
        let ids: BTreeSet<_> = listed.into_iter().filter_map(|container| container.id).collect();
        anyhow::ensure!(ids.len() <= CONTAINERS_MAX, "more than {CONTAINERS_MAX} containers");
        self.engine.containers.retain(|id, _| ids.contains(id));
        self.ending.retain(|id, _| ids.contains(id));
        self.look_again(docker, Stale { containers: ids, networks: true }).await
    }

    async fn look_again(&mut self, docker: &Docker, stale: Stale) -> anyhow::Result<()> {
        let looks = stale.containers.into_iter().map(|id| async move {
            let seen = docker.inspect_container(&id, None::<InspectContainerOptions>).await;
            (id, seen)
        });
        let mut looks = futures::stream::iter(looks).buffer_unordered(LOOKS_MAX);
        let mut is_complete = true;
        while let Some((id, seen)) = looks.next().await {
            match seen {
                Ok(seen) => {
                    self.engine.containers.insert(id, Container::of(seen));
                }
                Err(Error::DockerResponseServerError { status_code: 404, .. }) => {
                    self.engine.containers.remove(&id);
                    self.ending.remove(&id);
                }
                Err(Error::JsonDataError { message, .. }) => {
                    tracing::warn!(
                        container = id,
                        message,
                        "what the engine says of a container cannot be read"
                    );
                    is_complete = false;
                }
                Err(error) => {
                    return Err(anyhow::Error::from(error).context("a container cannot be looked at"));
                }
            }
        }
        let is_unknown = |network: &str| !self.engine.networks.contains_key(network);
        let mut used = self.engine.containers.values().flat_map(|container| container.networks.values());
        if stale.networks || used.any(|attachment| is_unknown(&attachment.network_id)) {
            let networks = docker
                .list_networks(None::<ListNetworksOptions>)
                .await
                .context("the networks cannot be listed")?;
            self.engine.networks = networks.into_iter().filter_map(Network::of).collect();
        }
        self.publish(is_complete);
        Ok(())
    }

    async fn look_elsewhere(&mut self) {
        if let Some(elsewhere) = elsewhere::look(&self.outlet.control, &self.host.node).await {
            self.elsewhere = elsewhere;
        }
    }

    fn next_end(&self) -> Instant {
        let fading = self.fading.values().map(|(_, since)| *since + FADING_FOR);
        self.ending.values().copied().chain(fading).min().unwrap_or_else(|| Instant::now() + RESYNC)
    }

    fn end(&mut self) {
        let now = Instant::now();
        self.ending.retain(|_, until| *until > now);
        self.fading.retain(|_, (_, since)| *since + FADING_FOR > now);
    }

    /// Has Tidegate know what is known of the engine.
    fn publish(&mut self, is_complete: bool) {
        self.engine.ending = self.ending.keys().cloned().collect();
        let translation = translate(&self.host, &self.engine, &self.elsewhere);
        let mut objects = translation.objects;
        self.fading.retain(|key, _| !objects.contains_key(key));
        let mut new = self.outlet.wanted.borrow().clone();
        let known: Vec<_> = new.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect();
        for (key, object) in known {
            if !objects.contains_key(&key) && key.kind == Kind::Workload && !is_faded(&object) {
                self.fading.insert(key, (faded(object), Instant::now()));
            }
        }
        objects.extend(self.fading.iter().map(|(key, (object, _))| (key.clone(), object.clone())));
        // Only what differs is touched, so that the difference is cheap to find.
        let gone: Vec<_> = new.objects.keys().filter(|key| !objects.contains_key(*key)).cloned().collect();
        for key in gone {
            new.objects.remove(&key);
        }
        for (key, object) in objects {
            if new.objects.get(&key) != Some(&object) {
                new.objects.insert(key, object);
            }
        }
        new.is_complete = is_complete;
        self.outlet.wanted.send_if_modified(|wanted| {
            let is_news = wanted.is_complete != new.is_complete || !wanted.objects.ptr_eq(&new.objects);
            *wanted = new;
            is_news
        });
        for complaint in &translation.complaints {
            tracing::debug!(complaint, "a container cannot be served as it asks");
        }
        self.outlet.progress.complain(translation.complaints);
        self.outlet.progress.show_networks(networks::report(&self.engine, &self.elsewhere));
    }
}

/// The Workload of a container that is gone.
fn faded(mut object: Object) -> Object {
    if let Spec::Workload(spec) = &mut object.spec {
        spec.phase = WorkloadPhase::Succeeded;
        spec.ready = false;
        spec.addresses.clear();
    }
    object
}

fn is_faded(object: &Object) -> bool {
    matches!(&object.spec, Spec::Workload(spec) if spec.addresses.is_empty() && spec.phase == WorkloadPhase::Succeeded)
}
