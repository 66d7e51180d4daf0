//! Mirrors Services, EndpointSlices, Nodes, MetalLB's resources, HTTP routing and network policy of a Kubernetes cluster to
//! Tidegate, and writes addresses and conditions back.
//!
//! ```text
//!  API server ──watch──▶ Change ──▶ ClusterState (pure) ──▶ DesiredObjects ──▶ engine
//!      ▲                              │ WriteBackInput
//!      └── status, events ◀── plan (pure) ◀── ObservedObjects ◀── engine
//! ```
//!
//! Invariants: incomplete listings are never used (a listing replaces the known objects only after all its
//! pages have been received); objects of the cluster are changed only in `status`.

mod certificates;
mod lease;
pub mod nodes;
pub mod resource;
mod secrets;
pub mod state;
mod watch;
pub mod write_back;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Translation of Kubernetes and MetalLB objects.
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
    state::{ClusterState, Id, needed},
    translate::{ClusterName, Mode, Settings},
};
use crate::{
    engine::outlet::Outlet,
    engine::progress::Progress,
    wanted::{DesiredObjects, ObservedObjects},
};

/// Maximum number of queued changes; while the queue is full, no more changes are read from the API server.
const CHANGES_MAX: usize = 1024;

/// Arguments of `tidegate-sync kubernetes`.
#[derive(Debug, Clone, clap::Args)]
pub struct KubernetesArguments {
    /// Kubeconfig file; by default that of the environment (KUBECONFIG), or the pod's service account
    #[arg(long, env = "TIDEGATE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig file
    #[arg(long, env = "TIDEGATE_KUBE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Name of the cluster, if several clusters are mirrored to one Tidegate; objects are named CLUSTER--NAME
    #[arg(long, env = "TIDEGATE_CLUSTER", value_name = "NAME")]
    pub cluster: Option<ClusterName>,
    /// Role of Tidegate in the cluster
    #[arg(long, env = "TIDEGATE_KUBE_MODE", default_value = "load-balancer",
        value_parser = PossibleValuesParser::new(Mode::WORDS).try_map(|word| word.parse::<Mode>()))]
    pub mode: Mode,
    /// Handle only Services of this load balancer class; by default those without a class
    #[arg(long, env = "TIDEGATE_LOAD_BALANCER_CLASS", value_name = "CLASS")]
    pub load_balancer_class: Option<String>,
    /// Ignore MetalLB's resources; pools and advertisements are then configured in Tidegate
    #[arg(long, env = "TIDEGATE_NO_METALLB")]
    pub no_metallb: bool,
    /// Read the Secrets that BGPPeers reference as passwordSecret, by name; a Role must allow `get` of each.
    /// By default such peers are disabled
    #[arg(long, env = "TIDEGATE_PASSWORD_SECRETS", conflicts_with = "no_metallb")]
    pub password_secrets: bool,
    /// Handle Gateways, HTTPRoutes and Ingresses whose class has the controller tidegate.io/gateway, and read the Secrets with
    /// certificates that they name; further permissions are necessary
    #[arg(long, env = "TIDEGATE_GATEWAYS")]
    pub gateways: bool,
    /// Service of the cluster whose load balancer addresses are written to the status of Gateways and Ingresses [default: the
    /// Service with the namespace and name of the Gateway or of the class]
    #[arg(long, env = "TIDEGATE_PUBLISH_SERVICE", value_name = "NAMESPACE/NAME", requires = "gateways",
        value_parser = service_id)]
    pub publish_service: Option<Id>,
    /// Create a Workload for each pod with an address of its own; further permissions are necessary
    #[arg(long, env = "TIDEGATE_PODS")]
    pub pods: bool,
    /// Handle NetworkPolicies, and create a Workload for each pod as with --pods; further permissions are necessary
    #[arg(long, env = "TIDEGATE_NETWORK_POLICIES")]
    pub network_policies: bool,
    /// Do not update Tidegate's Nodes; by default they get labels, zones and pod networks of the cluster's
    /// nodes
    #[arg(long, env = "TIDEGATE_NO_NODES")]
    pub no_nodes: bool,
    /// Work only while holding a Lease, so that several adapters can stand by
    #[arg(long, env = "TIDEGATE_LEADER_ELECTION")]
    pub leader_election: bool,
    /// Namespace of the Lease [default: that of the context or the pod]
    #[arg(long, env = "TIDEGATE_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of the Lease
    #[arg(long, env = "TIDEGATE_LEASE_NAME", value_name = "NAME", default_value = "tidegate-sync")]
    pub lease_name: String,
    /// Holder identity for the Lease [default: unique name from host name, process id and time]
    #[arg(long, env = "TIDEGATE_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
}

/// Parses `NAMESPACE/NAME`.
fn service_id(text: &str) -> Result<Id, String> {
    let (namespace, name) = text.split_once('/').ok_or("must have the form NAMESPACE/NAME")?;
    Ok(Id { namespace: namespace.to_owned(), name: name.to_owned() })
}

impl KubernetesArguments {
    /// Returns the default name of the source: `kubernetes`, or `kubernetes-CLUSTER` if a cluster name is
    /// configured.
    #[must_use]
    pub fn default_source(&self) -> String {
        self.cluster
            .as_ref()
            .map_or_else(|| "kubernetes".to_owned(), |cluster| format!("kubernetes-{cluster}"))
    }
}

/// Channels between the Kubernetes adapter and the engine, with the status that both share.
pub struct AdapterChannels {
    /// Sender of the desired objects.
    pub wanted: channel::Sender<DesiredObjects>,
    /// Newest state of the objects on the server.
    pub observed: channel::Receiver<ObservedObjects>,
    /// Sender of the node data that is merged into Tidegate's Nodes.
    pub nodes: channel::Sender<Nodes>,
    /// Status and metrics shared with the HTTP server.
    pub progress: Arc<Progress>,
    /// Signal on which the adapter stops.
    pub stop: CancellationToken,
}

/// Mirrors a cluster, and copies data of the cluster's nodes to Tidegate's Nodes, until the Lease is lost or
/// the process is stopped.
///
/// # Errors
/// Returns an error if the cluster is not configured or another adapter has taken over.
pub async fn run(arguments: KubernetesArguments, outlet: Outlet) -> anyhow::Result<()> {
    let Outlet { wanted, observed, control, progress, stop } = outlet;
    let (nodes, nodes_receiver) = channel::channel(Nodes::default());
    let keep = async {
        nodes::keep(control, nodes_receiver).await;
        // The node channel closes during shutdown, which takes a moment.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = follow(arguments, AdapterChannels { wanted, observed, nodes, progress, stop }) => ended,
        () = keep => Ok(()),
    }
}

/// Mirrors a cluster through the given channels, until the Lease is lost or the process is stopped. When the
/// process is stopped, the Lease is released.
///
/// # Errors
/// Returns an error if the cluster is not configured or another adapter has taken over.
pub async fn follow(arguments: KubernetesArguments, ports: AdapterChannels) -> anyhow::Result<()> {
    let config = config(&arguments).await?;
    let namespace = arguments.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    tracing::info!(server = %config.cluster_url, mode = ?arguments.mode, "following a cluster");
    let client = Client::try_from(config).context("cannot create a client of the API server")?;
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
            bail!("the lease {} was lost or cannot be renewed; restart to stand by", arguments.lease_name)
        }
    }
    // All work has been dropped at this point, so the next holder cannot conflict with it.
    if arguments.leader_election {
        election.release().await;
    }
    Ok(())
}

async fn config(arguments: &KubernetesArguments) -> anyhow::Result<Config> {
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
            .context("no cluster configured: give --kubeconfig, or run in a pod with a service account"),
    }
}

/// Returns the message of an API server error, or the root cause of a transport error.
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

/// Returns the reason of a failed request with its remedy, if the remedy is known.
fn described(reason: &str) -> String {
    match remedy(reason) {
        Some(remedy) => format!("{reason}: {remedy}"),
        None => reason.to_owned(),
    }
}

/// Returns the remedy of a certificate error that users can correct.
fn remedy(reason: &str) -> Option<&'static str> {
    let remedies = [
        (
            "CaUsedAsEndEntity",
            "the API server serves its CA certificate itself; create a serving certificate signed by this CA, and \
             keep the CA in `certificate-authority-data`",
        ),
        (
            "UnknownIssuer",
            "`certificate-authority-data` of the kubeconfig file is not the CA of the API server's certificate",
        ),
        (
            "NotValidForName",
            "the certificate of the API server lacks the name or address in `server` of the kubeconfig file; set \
             `tls-server-name`, or add it to the certificate",
        ),
        ("Expired", "renew the certificate of the API server, and check the clock of this machine"),
    ];
    remedies.into_iter().find(|(word, _)| reason.contains(word)).map(|(_, remedy)| remedy)
}

/// Log of failed listings. All kinds fail for the same reason if the API server cannot be reached, so that each
/// reason is logged once per [`FailureLog::PAUSE`].
#[derive(Debug, Default)]
struct FailureLog {
    last: Option<(String, Instant)>,
}

impl FailureLog {
    /// Minimum time between two log lines with the same reason.
    const PAUSE: Duration = Duration::from_secs(60);

    fn record(&mut self, change: &state::Change) {
        let state::Change::Failed(reason) = change else { return };
        let is_repeated =
            self.last.as_ref().is_some_and(|(last, at)| last == reason && at.elapsed() < Self::PAUSE);
        if !is_repeated {
            tracing::warn!("the API server cannot be read: {}; retrying", described(reason));
            self.last = Some((reason.clone(), Instant::now()));
        }
    }
}

/// Returns an identity that is unique to this process.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}_{}", host.trim(), std::process::id(), jiff::Timestamp::now().as_nanosecond())
}

/// Runs the tasks of the active adapter: watches the cluster, derives Tidegate objects, and writes statuses
/// back to the cluster. Ends when a receiver of the results is closed.
async fn work(client: Client, arguments: &KubernetesArguments, identity: String, ports: AdapterChannels) {
    let AdapterChannels { wanted, observed, nodes, progress, stop: _ } = ports;
    let settings = Settings {
        cluster: arguments.cluster.clone(),
        mode: arguments.mode,
        class: arguments.load_balancer_class.clone(),
    };
    let mut watched = needed(!arguments.no_metallb, !arguments.no_nodes);
    watched.extend(Resource::HTTP.into_iter().filter(|_| arguments.gateways));
    watched
        .extend(of_policy(arguments).into_iter().filter(|kind| !watched.contains(kind)).collect::<Vec<_>>());
    let secret = arguments.password_secrets.then_some(Resource::Secret);
    let certificate = arguments.gateways.then_some(Resource::CertificateSecret);
    let (sender, changes) = mpsc::channel(CHANGES_MAX);
    let (published, published_receiver) = channel::channel(state::WriteBackInput::default());
    let (names, names_receiver) = channel::channel(None);
    let (certificates, certificates_receiver) = channel::channel(None);
    let ends = Ends { wanted, published, nodes, names, certificates, progress };
    let secrets = async {
        match secret {
            Some(_) => secrets::follow(client.clone(), names_receiver, sender.clone()).await,
            None => std::future::pending().await,
        }
    };
    let certificate_secrets = async {
        match certificate {
            Some(_) => {
                certificates::follow(client.clone(), certificates_receiver, sender.clone()).await;
            }
            None => std::future::pending().await,
        }
    };
    let watches = watched.iter().map(|resource| watch::follow(client.clone(), *resource, sender.clone()));
    let watches = futures::future::join_all(watches);
    let state = ClusterState::new(settings, watched.iter().copied().chain(secret).chain(certificate))
        .with_publisher(arguments.publish_service.clone());
    tokio::select! {
        _ = watches => {}
        () = secrets => {}
        () = certificate_secrets => {}
        () = keep(state, changes, ends) => {}
        () = write_back::run(client.clone(), identity, published_receiver, observed) => {}
    }
}

/// Returns the kinds that network policy needs.
fn of_policy(arguments: &KubernetesArguments) -> Vec<Resource> {
    let KubernetesArguments { pods, network_policies, .. } = arguments;
    match (network_policies, pods) {
        (true, _) => [Resource::Namespace].into_iter().chain(Resource::POLICY).collect(),
        (false, true) => vec![Resource::Pod],
        (false, false) => Vec::new(),
    }
}

/// Senders for the results that are derived from the cluster state.
struct Ends {
    wanted: channel::Sender<DesiredObjects>,
    published: channel::Sender<state::WriteBackInput>,
    nodes: channel::Sender<Nodes>,
    /// Names of the Secrets to read.
    names: channel::Sender<Option<BTreeSet<Id>>>,
    /// Names of the Secrets with certificates to read.
    certificates: channel::Sender<Option<BTreeSet<Id>>>,
    progress: Arc<Progress>,
}

/// Applies the changes of the cluster to `state`, and sends the derived results. Sends no objects before all
/// watched kinds have been listed once, because the translation of a Service depends on objects of other
/// kinds, such as pools.
async fn keep(mut state: ClusterState, mut changes: mpsc::Receiver<(Resource, state::Change)>, ends: Ends) {
    let mut said = Vec::new();
    let mut failures = FailureLog::default();
    complain(&state, &mut said, &ends.progress);
    while let Some((resource, change)) = changes.recv().await {
        failures.record(&change);
        state.apply(resource, change);
        while let Ok((resource, change)) = changes.try_recv() {
            failures.record(&change);
            state.apply(resource, change);
        }
        complain(&state, &mut said, &ends.progress);
        let secrets = state.secrets();
        for (sender, named) in [(&ends.names, secrets.as_ref()), (&ends.certificates, state.certificates())] {
            sender.send_if_modified(|names| {
                let is_changed = names.as_ref() != named;
                if is_changed {
                    *names = named.cloned();
                }
                is_changed
            });
        }
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

/// Reports the problems of the cluster state if they differ from the ones last reported (`said`).
fn complain(state: &ClusterState, said: &mut Vec<String>, progress: &Progress) {
    let unread = state.unread().map(|kind| match kind {
        Resource::Secret => {
            "Secrets of BGPPeers have not been read; nothing is written until then. The log names the \
             unreadable ones"
                .to_owned()
        }
        Resource::CertificateSecret => {
            "Secrets with certificates have not been read; nothing is written until then. The log names the \
             unreadable ones"
                .to_owned()
        }
        Resource::Service
        | Resource::EndpointSlice
        | Resource::Node
        | Resource::Namespace
        | Resource::Pod
        | Resource::NetworkPolicy
        | Resource::IpAddressPool
        | Resource::L2Advertisement
        | Resource::BgpAdvertisement
        | Resource::BgpPeer
        | Resource::BfdProfile
        | Resource::Community
        | Resource::IngressClass
        | Resource::Ingress
        | Resource::GatewayClass
        | Resource::Gateway
        | Resource::HttpRoute
        | Resource::GrpcRoute
        | Resource::TlsRoute
        | Resource::ReferenceGrant => {
            let reason = state.failure(kind).map(described).map(|reason| format!(" ({reason})"));
            let reason = reason.unwrap_or_default();
            format!("{kind:?} has not been listed completely{reason}; nothing is written until then")
        }
    });
    let doubted = state.doubted().into_iter().map(|(kind, count)| {
        format!(
            "REMOVALS HELD: the cluster lists none of its previous {kind:?} objects, and did not delete \
             them; {count} are kept. If this is intended, restart the adapter"
        )
    });
    let complaints: Vec<String> = unread.chain(doubted).collect();
    if complaints != *said {
        complaints
            .iter()
            .filter(|line| line.starts_with("REMOVALS HELD"))
            .for_each(|line| tracing::error!("{line}"));
        progress.complain(complaints.clone());
        *said = complaints;
    }
}
