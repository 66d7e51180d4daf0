//! Keeps Tidegate equal to Services, EndpointSlices, Nodes and MetalLB's resources of a Kubernetes cluster, and writes addresses
//! and conditions back.
//!
//! ```text
//!  API server ──watch──▶ Change ──▶ State (pure) ──▶ Wanted ──▶ engine
//!      ▲                              │ Published
//!      └── status, events ◀── plan (pure) ◀── Observed ◀── engine
//! ```
//!
//! What must not happen: a list that was not read to its end counts (it is swapped in whole); an object of the cluster is
//! changed except in `status`.

mod lease;
pub mod nodes;
pub mod resource;
mod secrets;
pub mod state;
mod watch;
pub mod write_back;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

/// What objects of Kubernetes and MetalLB mean here.
pub use ::translate::kubernetes as translate;
use anyhow::{Context as _, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::sync::{mpsc, watch as channel};
use tokio_util::sync::CancellationToken;

use self::{
    lease::Election,
    nodes::Nodes,
    resource::Resource,
    state::{Id, State, needed},
    translate::{ClusterName, Mode, Settings},
};
use crate::{
    engine::progress::Progress,
    run::Outlet,
    wanted::{Observed, Wanted},
};

/// Changes that wait to be looked at; the watches wait beyond them.
const CHANGES_MAX: usize = 1024;

/// Arguments of `tidegate-sync kubernetes`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// A kubeconfig file; without one, that of the environment (KUBECONFIG), or the service account of the pod
    #[arg(long, env = "TIDEGATE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig file
    #[arg(long, env = "TIDEGATE_KUBE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// The name of the cluster, where several feed one Tidegate: its objects are named CLUSTER--NAME
    #[arg(long, env = "TIDEGATE_CLUSTER", value_name = "NAME")]
    pub cluster: Option<ClusterName>,
    /// What Tidegate is to the cluster
    #[arg(long, env = "TIDEGATE_KUBE_MODE", default_value = "load-balancer",
        value_parser = PossibleValuesParser::new(Mode::WORDS).try_map(|word| word.parse::<Mode>()))]
    pub mode: Mode,
    /// Give addresses to Services of this class only; without it, to those without a class
    #[arg(long, env = "TIDEGATE_LOAD_BALANCER_CLASS", value_name = "CLASS")]
    pub load_balancer_class: Option<String>,
    /// Do not read MetalLB's resources; pools and advertisements are made in Tidegate then
    #[arg(long, env = "TIDEGATE_NO_METALLB")]
    pub no_metallb: bool,
    /// Read the Secrets that BGPPeers name as passwordSecret, by name; a Role has to allow `get` of each of them. Otherwise such
    /// peers are disabled
    #[arg(long, env = "TIDEGATE_PASSWORD_SECRETS", conflicts_with = "no_metallb")]
    pub password_secrets: bool,
    /// Leave Tidegate's Nodes alone; otherwise they get the labels, zones and pod networks of the cluster's
    #[arg(long, env = "TIDEGATE_NO_NODES")]
    pub no_nodes: bool,
    /// Work only while holding a Lease, so that several adapters can stand by
    #[arg(long, env = "TIDEGATE_LEADER_ELECTION")]
    pub leader_election: bool,
    /// The namespace of the Lease; that of the context or of the pod when left out
    #[arg(long, env = "TIDEGATE_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// The name of the Lease
    #[arg(long, env = "TIDEGATE_LEASE_NAME", value_name = "NAME", default_value = "tidegate-sync")]
    pub lease_name: String,
    /// Who holds the Lease; the name of the host and a number when left out
    #[arg(long, env = "TIDEGATE_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
}

impl Arguments {
    /// The name of the source when nobody gives one.
    #[must_use]
    pub fn default_source(&self) -> String {
        self.cluster
            .as_ref()
            .map_or_else(|| "kubernetes".to_owned(), |cluster| format!("kubernetes-{cluster}"))
    }
}

/// What the adapter tells others, and what it is told.
pub struct Ports {
    /// What Tidegate is to have.
    pub wanted: channel::Sender<Wanted>,
    /// What Tidegate says of it.
    pub observed: channel::Receiver<Observed>,
    /// What the cluster says of its nodes.
    pub nodes: channel::Sender<Nodes>,
    /// How it is going.
    pub progress: Arc<Progress>,
    /// Somebody asks for the end.
    pub stop: CancellationToken,
}

/// Keeps Tidegate equal to a cluster until the Lease is lost or somebody asks for the end.
///
/// # Errors
/// The cluster cannot be found, or another adapter has taken over.
pub async fn run(arguments: Arguments, outlet: Outlet) -> anyhow::Result<()> {
    let Outlet { wanted, observed, control, progress, stop } = outlet;
    let (nodes, nodes_receiver) = channel::channel(Nodes::default());
    let keep = async {
        nodes::keep(control, nodes_receiver).await;
        // No more is heard of nodes because the end has begun, which takes a moment.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = follow(arguments, Ports { wanted, observed, nodes, progress, stop }) => ended,
        () = keep => Ok(()),
    }
}

/// Follows a cluster until the Lease is lost or somebody asks for the end; the Lease is given back then.
///
/// # Errors
/// The cluster cannot be found, or another adapter has taken over.
pub async fn follow(arguments: Arguments, ports: Ports) -> anyhow::Result<()> {
    let config = config(&arguments).await?;
    let namespace = arguments.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    tracing::info!(server = %config.cluster_url, mode = ?arguments.mode, "following a cluster");
    let client = Client::try_from(config).context("cannot make a client of the API server")?;
    let identity = arguments.identity.clone().unwrap_or_else(identity);
    let stop = ports.stop.clone();
    let work = work(client.clone(), &arguments, identity.clone(), ports);
    let election = Election::new(client, &namespace, arguments.lease_name.clone(), identity);
    if arguments.leader_election {
        tokio::select! {
            () = election.win() => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
        () = election.hold(), if arguments.leader_election => {
            bail!("the lease {} is another's, or cannot be renewed; start again to stand by", arguments.lease_name)
        }
    }
    // The work was dropped, so whoever is next meets nobody.
    if arguments.leader_election {
        election.release().await;
    }
    Ok(())
}

async fn config(arguments: &Arguments) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    match &arguments.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path);
            let file = file.with_context(|| format!("--kubeconfig {}", path.display()))?;
            let config = Config::from_custom_kubeconfig(file, &options).await;
            config.with_context(|| format!("--kubeconfig {}", path.display()))
        }
        None if options.context.is_some() => Config::from_kubeconfig(&options).await.context("--context"),
        None => Config::infer()
            .await
            .context("no cluster: give --kubeconfig, or run in a pod with a service account"),
    }
}

/// A refusal of the API server in its own words, or the innermost cause of what prevented an answer.
fn words(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("{} ({})", status.message, status.code);
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// A name that no other process has.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}_{}", host.trim(), std::process::id(), jiff::Timestamp::now().as_nanosecond())
}

/// Watches, works out what follows, and writes back, until nobody wants to know.
async fn work(client: Client, arguments: &Arguments, identity: String, ports: Ports) {
    let Ports { wanted, observed, nodes, progress, stop: _ } = ports;
    let settings = Settings {
        cluster: arguments.cluster.clone(),
        mode: arguments.mode,
        class: arguments.load_balancer_class.clone(),
    };
    let watched = needed(!arguments.no_metallb, !arguments.no_nodes);
    let secret = arguments.password_secrets.then_some(Resource::Secret);
    let (sender, changes) = mpsc::channel(CHANGES_MAX);
    let (published, published_receiver) = channel::channel(state::Published::default());
    let (names, names_receiver) = channel::channel(None);
    let ends = Ends { wanted, published, nodes, names, progress };
    let secrets = async {
        match secret {
            Some(_) => secrets::follow(client.clone(), names_receiver, sender.clone()).await,
            None => std::future::pending().await,
        }
    };
    let watches = watched.iter().map(|resource| watch::follow(client.clone(), *resource, sender.clone()));
    let watches = futures::future::join_all(watches);
    let state = State::new(settings, watched.iter().copied().chain(secret));
    tokio::select! {
        _ = watches => {}
        () = secrets => {}
        () = keep(state, changes, ends) => {}
        () = write_back::run(client.clone(), identity, published_receiver, observed) => {}
    }
}

/// Where what follows from the cluster goes.
struct Ends {
    wanted: channel::Sender<Wanted>,
    published: channel::Sender<state::Published>,
    nodes: channel::Sender<Nodes>,
    /// The Secrets to read.
    names: channel::Sender<Option<BTreeSet<Id>>>,
    progress: Arc<Progress>,
}

/// Takes changes one after the other. Nothing is wanted before everything has been read once: what a Service means depends on
/// the pools that there are.
async fn keep(mut state: State, mut changes: mpsc::Receiver<(Resource, state::Change)>, ends: Ends) {
    let mut said = Vec::new();
    complain(&state, &mut said, &ends.progress);
    while let Some((resource, change)) = changes.recv().await {
        state.apply(resource, change);
        while let Ok((resource, change)) = changes.try_recv() {
            state.apply(resource, change);
        }
        complain(&state, &mut said, &ends.progress);
        let named = state.secrets();
        ends.names.send_if_modified(|names| {
            let is_changed = *names != named;
            *names = named;
            is_changed
        });
        let new = state.wanted();
        if new.is_complete {
            ends.wanted.send_replace(new);
            let new = state.published();
            ends.nodes.send_if_modified(|nodes| {
                let is_changed = nodes.diff(&new.nodes).next().is_some();
                nodes.clone_from(&new.nodes);
                is_changed
            });
            ends.published.send_replace(new);
        }
    }
}

/// Says what is not as it should be, when that has changed.
fn complain(state: &State, said: &mut Vec<String>, progress: &Progress) {
    let unread = state.unread().map(|kind| match kind {
        Resource::Secret => {
            "Secrets of BGPPeers have not been read; nothing is written before. The log says which may not be read".to_owned()
        }
        Resource::Service
        | Resource::EndpointSlice
        | Resource::Node
        | Resource::Namespace
        | Resource::IpAddressPool
        | Resource::L2Advertisement
        | Resource::BgpAdvertisement
        | Resource::BgpPeer
        | Resource::BfdProfile
        | Resource::Community => {
            format!("{kind:?} has not been read to its end; nothing is written before")
        }
    });
    let doubted = state.doubted().into_iter().map(|(kind, count)| {
        format!(
            "HELD BACK: the cluster lists nothing of the {kind:?} that it had and did not delete; {count} are kept. If that is \
             meant, start the adapter again"
        )
    });
    let complaints: Vec<String> = unread.chain(doubted).collect();
    if complaints != *said {
        complaints.iter().filter(|line| line.starts_with("HELD")).for_each(|line| tracing::error!("{line}"));
        progress.complain(complaints.clone());
        *said = complaints;
    }
}
