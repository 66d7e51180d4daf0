//! Source `docker`: containers of a Docker engine, or of Podman's compatible socket, that request a Service
//! by labels.
//!
//! Events only name the containers and networks to inspect; objects are made from the results of the
//! inspection. The event stream is opened before the first full listing, and everything is listed again
//! periodically. While the engine is unreachable, the last known state stays. The Workload of a removed
//! container is first marked as ended, so that its address receives no new connections, and then removed.

mod container;
mod elsewhere;
mod environment;
mod networks;
mod parse;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
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
    environment::EnvironmentFiles,
    parse::{AddressKind, ending_signal},
    plan::{Elsewhere, EngineState, Host, translate},
};
use crate::engine::outlet::Outlet;

/// Timeout of engine requests, in seconds.
const TIMEOUT_SECS: u64 = 60;
/// Maximum number of queued engine events. If the queue is full, no more events are read from the engine's
/// stream.
const EVENTS_MAX: usize = 1024;
/// Maximum number of containers read from one engine; the listing fails if there are more.
const CONTAINERS_MAX: usize = 5000;
/// Maximum number of containers and networks that are inspected concurrently.
const LOOKS_MAX: usize = 8;
/// Delay after the first event during which further events are collected, so that they cause one update.
const COLLECT: Duration = Duration::from_millis(30);
/// Delay of the second full listing, which finds changes missed before the engine had opened the event
/// stream.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// Interval at which all containers and networks are listed again, in case an event was missed.
const RESYNC: Duration = Duration::from_secs(30);
/// Maximum time without new connections for a container that received a stop signal and still runs; somewhat
/// longer than the time after which an engine kills the container.
const ENDING_FOR: Duration = Duration::from_secs(15);
/// Time for which the Workload of a removed container is published as ended.
const FADING_FOR: Duration = Duration::from_secs(3);
/// Delay before the next attempt to reach the engine.
const PAUSE: Duration = Duration::from_secs(1);

/// Arguments of `tidegate-sync docker`: connection to the engine, and address settings.
#[derive(Debug, Clone, Args)]
pub struct DockerArguments {
    /// Socket of the engine
    #[arg(long, env = "DOCKER_HOST", hide_env_values = true, value_name = "SOCKET", default_value = "unix:///var/run/docker.sock", value_parser = parse_socket)]
    pub socket: PathBuf,
    /// Node that runs the containers [default: the host name]
    #[arg(long, env = "TIDEGATE_NODE", hide_env_values = true, value_name = "NAME", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Addresses of the machine for published ports and for containers in the host network; at most one per
    /// address family
    #[arg(
        long,
        env = "TIDEGATE_NODE_ADDRESS",
        hide_env_values = true,
        value_name = "ADDRESS,…",
        value_delimiter = ','
    )]
    pub node_address: Vec<IpAddr>,
    /// Network whose addresses are used for containers in several networks; the label tidegate.network takes
    /// precedence
    #[arg(long, env = "TIDEGATE_NETWORK", hide_env_values = true, value_name = "NAME")]
    pub network: Option<String>,
    /// Namespace of the created objects, unless a container specifies one
    #[arg(long, env = "TIDEGATE_NAMESPACE", hide_env_values = true, value_name = "NAME", value_parser = Namespace::parse, default_value = "default")]
    pub namespace: Namespace,
    /// Address of a container to use, unless its label tidegate.address specifies one
    #[arg(long, env = "TIDEGATE_ADDRESS", hide_env_values = true, value_enum, default_value = "auto")]
    pub address: AddressKind,
    /// Directory in which to keep a file NAMESPACE.env with the environment variables of the Services, for
    /// `docker run --env-file`, for each namespace with containers and for --namespace [default: no files]
    #[arg(long, env = "TIDEGATE_ENV_DIR", hide_env_values = true, value_name = "DIR")]
    pub env_dir: Option<PathBuf>,
}

fn parse_socket(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("must be the path of a socket, such as unix:///var/run/docker.sock".to_owned())
    }
}

impl DockerArguments {
    /// Returns the configured Node name, or the host name.
    ///
    /// # Errors
    /// Returns an error if the host name is not a valid Node name.
    pub fn node(&self) -> anyhow::Result<Name> {
        if let Some(node) = &self.node {
            return Ok(node.clone());
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("cannot read the host name; give --node")?;
        Name::parse(name.trim())
            .map_err(|error| anyhow!("the host name {:?} {error}; give --node", name.trim()))
    }
}

/// Mirrors the containers of the engine until the process ends.
///
/// # Errors
/// Returns an error if a flag is invalid.
pub async fn run(arguments: DockerArguments, outlet: Outlet) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.env_dir {
        let files = EnvironmentFiles {
            directory: directory.clone(),
            namespace: arguments.namespace.clone(),
            wanted: outlet.wanted.subscribe(),
            control: Arc::clone(&outlet.control),
            stop: outlet.stop.clone(),
        };
        tokio::spawn(files.keep());
    }
    let host = Host {
        node: arguments.node()?,
        addresses: arguments.node_address,
        namespace: arguments.namespace,
        network: arguments.network,
        address: arguments.address,
    };
    let mut state = AdapterState {
        host,
        outlet,
        engine: EngineState::default(),
        ending: BTreeMap::new(),
        fading: BTreeMap::new(),
        elsewhere: Elsewhere::default(),
    };
    loop {
        let cause = match session(&arguments.socket, &mut state).await {
            Ok(()) => "the engine closed the event stream".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        tracing::warn!(cause, "lost the connection to the engine; keeping its last known state");
        state.outlet.wanted.send_modify(|wanted| wanted.is_complete = false);
        state.outlet.progress.complain(vec![format!("engine: {cause}")]);
        tokio::time::sleep(PAUSE).await;
    }
}

struct AdapterState {
    host: Host,
    outlet: Outlet,
    engine: EngineState,
    /// Deadline by container id. Until the deadline, a container that received a stop signal gets no new
    /// connections.
    ending: BTreeMap<String, Instant>,
    /// Workloads of removed containers that are still published as ended, with the time of removal.
    fading: BTreeMap<ObjectKey, (Object, Instant)>,
    elsewhere: Elsewhere,
}

/// Containers that must be inspected again because an event named them, and a flag to list the networks
/// again.
#[derive(Default)]
struct Stale {
    containers: BTreeSet<String>,
    networks: bool,
}

async fn session(socket: &std::path::Path, state: &mut AdapterState) -> anyhow::Result<()> {
    let socket = socket.to_str().context("the socket path is not valid UTF-8")?;
    let docker =
        Docker::connect_with_unix(socket, TIMEOUT_SECS, API_DEFAULT_VERSION)?.negotiate_version().await?;
    let version = docker.version().await?.version.unwrap_or_default();
    state.engine.major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    let (mut events, _guard) = events(docker.clone());
    state.look_elsewhere().await;
    state.look_at_everything(&docker).await?;
    tracing::info!(version, containers = state.engine.containers.len(), "connected to the engine");
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

/// Opens the event stream of the engine in a background task, so that the stream is open before the first
/// listing. Returns the received events, and a guard that ends the task when it is dropped.
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

impl AdapterState {
    fn hear(&mut self, event: EventMessage, stale: &mut Stale) {
        let action = event.action.unwrap_or_default();
        let actor = event.actor.unwrap_or_default();
        let attributes = actor.attributes.unwrap_or_default();
        let id = actor.id.unwrap_or_default();
        match event.typ {
            // Health checks run all the time; their results are separate events.
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

    /// Returns true if `signal`, sent to the container `id`, is meant to stop the container.
    fn is_end(&self, id: &str, signal: &str) -> bool {
        let Some(number) = ending_signal(signal) else { return false };
        let own = self.engine.containers.get(id).and_then(|container| container.stop_signal.as_deref());
        own.and_then(ending_signal) == Some(number) || matches!(number, 2 | 3 | 9 | 15)
    }

    async fn look_at_everything(&mut self, docker: &Docker) -> anyhow::Result<()> {
        let options = ListContainersOptions { all: true, ..ListContainersOptions::default() };
        let listed = docker.list_containers(Some(options)).await.context("cannot list the containers")?;
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
                        "cannot parse the engine's description of a container"
                    );
                    is_complete = false;
                }
                Err(error) => {
                    return Err(anyhow::Error::from(error).context("cannot inspect a container"));
                }
            }
        }
        let is_unknown = |network: &str| !self.engine.networks.contains_key(network);
        let mut used = self.engine.containers.values().flat_map(|container| container.networks.values());
        if stale.networks || used.any(|attachment| is_unknown(&attachment.network_id)) {
            let networks = docker
                .list_networks(None::<ListNetworksOptions>)
                .await
                .context("cannot list the networks")?;
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

    /// Publishes the objects derived from the last known state of the engine. `is_complete` is true if all
    /// containers and networks have been read, so that objects may be removed.
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
        // Only changed entries are touched, so that the difference is cheap to compute.
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
            tracing::debug!(complaint, "a container cannot be served as requested");
        }
        self.outlet.progress.complain(translation.complaints);
        self.outlet.progress.show_networks(networks::report(&self.engine, &self.elsewhere));
    }
}

/// Returns the Workload of a removed container with the phase Succeeded and without addresses, so that it
/// receives no new connections.
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
