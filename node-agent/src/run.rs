//! Starts all parts of the agent, connects them, and stops them in order.

mod network;
mod tasks;

use std::{net::SocketAddr, path::Path, sync::Arc};

use announce::peer_keys::PeerIdentity;
use anyhow::Context as _;
use client::socket;
use model::{kinds::node::ProxyMode, primitives::name::Name};
use reqwest::Url;
use rustls::RootCertStore;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::{
    network::Network,
    tasks::{RunningAgent, Tasks},
};
use crate::{
    agent::{
        Agent, Beginning, Kernel,
        thread::{self, BATCHES_WAITING_MAX},
    },
    ask::{ERRANDS_WAITING_MAX, QUESTIONS_WAITING_MAX},
    config::Config,
    control::{self, Control},
    enrol,
    feed::{Outlets, ReceivedPart, register},
    hold::{self, Guard},
    journal::{Journal, lock::StateDirLock},
    peer_key,
    policy::PolicyThread,
    report::Ending,
    state::State,
    tally::Tally,
    workload_network::WorkloadNetwork,
};

/// Properties of an agent that has started, sent to the caller of [`run`].
#[derive(Debug)]
pub struct Ready {
    /// Listen address of the status server.
    pub listen: SocketAddr,
    /// Active proxy mode, as set in the Node object or by default.
    pub mode: ProxyMode,
}

/// Runs an agent until `stop` is canceled, then syncs the journal (the last state on disk) and leaves the
/// kernel unchanged. `ready` is sent when the journal's state has been programmed and the status server
/// accepts connections.
///
/// # Errors
/// Returns an error if the listener, the state directory, the proxy mode or another part cannot be opened or
/// started, or if the journal cannot be synced at the end.
pub async fn run(
    config: Config,
    kernel: Kernel,
    stop: CancellationToken,
    ready: oneshot::Sender<Ready>,
) -> anyhow::Result<()> {
    let Config { node, listen, proxy, announcing: announce_config, .. } = config;
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("--listen {listen} cannot be bound"))?;
    let listen = listener.local_addr()?;
    let (journal, state) = open_journal(&config.state_dir, &node)?;
    let tally = Tally::default();
    let policy = start_policy(&node, &state, &tally)?;
    let gate = policy.link.gate();
    let workload_network = WorkloadNetwork::start(&node, &config.state_dir, &state, gate, stop.clone());
    let identity = peer_key::open(&config.state_dir, &node);
    let control = connect(config.apis, config.is_api_default)?;
    let location = enrol::IdentityLocation { node: node.clone(), state_dir: config.state_dir };
    let certificate = enrol::start(Arc::clone(&control), location, config.enrolment, stop.clone())?;
    let held = received_part(&state);
    let mode = proxy.mode.as_str();
    let beginning =
        Beginning { node: node.clone(), kernel, defaults: proxy, journal, state, tally: tally.clone() };
    // Opening a backend may block, and may need a runtime of its own.
    let agent = spawn_blocking(move || Agent::new(beginning, std::time::Instant::now())).await?;
    let mut agent = agent.with_context(|| format!("--mode {mode} cannot be used"))?;
    let (loop_end, feed_end) = hold::link();
    agent.trace_by(config.telemetry.tracer.clone());
    agent.guard_by(Guard::new(config.state_guard_percent, loop_end));
    let peer_public_key = identity.as_ref().map(PeerIdentity::public_key);
    let network = Network::start(&mut agent, &node, identity, announce_config, &tally)?;
    let workload_network = attach_by(&mut agent, workload_network);
    agent.enforce_by(policy.link.clone());
    let (batches, batches_received) = mpsc::channel(BATCHES_WAITING_MAX);
    let (errands, errands_received) = mpsc::channel(ERRANDS_WAITING_MAX);
    let running = thread::spawn(agent, batches_received, errands_received)
        .context("the loop's thread cannot be made")?;

    let registration = register::Registration {
        addresses: config.addresses,
        workload_cidrs: config.workload_cidrs,
        labels: config.labels,
        zone: config.zone,
    };
    let running_agent = RunningAgent {
        node: node.clone(),
        boot_id: uuid::Uuid::new_v4().to_string(),
        peer_public_key,
        control,
        status: running.status.clone(),
        tally,
        stop: stop.clone(),
        telemetry: config.telemetry,
        refusals: workload_network.as_ref().map(|network| network.handle.refusals()).unwrap_or_default(),
        network_failure: network_failure(workload_network.as_ref()),
    };
    let (is_known, known) = watch::channel(false);
    let attachments = workload_network.as_ref().map(|workload_network| {
        running_agent.report_attachments(workload_network.handle.shown(), known.clone())
    });
    let (questions, asked) = mpsc::channel(QUESTIONS_WAITING_MAX * running_agent.control.urls.len());
    let outlets =
        Outlets { batches, questions, is_known, link: feed_end, tally: running_agent.tally.clone() };
    let (sessions_end, sessions_closed) = oneshot::channel();
    let ending = Ending { sessions_closed, on_exit: announce_config.on_exit };
    let tasks = Tasks {
        service_manager: running_agent.notify_service_manager(running.beats.clone()),
        listening: running_agent.hear_questions(&outlets.questions),
        answers: running_agent.answer(config.allow_fixes, asked, errands),
        report: running_agent.report(&network, known, ending),
        server: running_agent.serve(&network, &certificate, listener),
        check: running_agent.check_flags(&certificate, &registration),
        feed: running_agent.follow(&certificate, &registration, held, outlets),
    };

    if running.first_turn.await.is_ok() {
        // The receiver may be gone.
        let mode = running_agent.status.borrow().mode;
        let _gone = ready.send(Ready { listen, mode });
    }
    // The loop ends when the feed ends, which happens on stop, or on a fault of its own.
    let ended = spawn_blocking(move || running.thread.join()).await?;
    stop.cancel();
    network.stop(announce_config.on_exit, &node).await?;
    // The reporting task may have ended.
    let _ended = sessions_end.send(());
    tasks.join().await?;
    if let Some(attachments) = attachments {
        attachments.await?;
    }
    if let Some(workload_network) = workload_network {
        workload_network.join().await;
    }
    policy.join().await;
    match ended {
        Ok(outcome) => outcome.context("the saved state could not be synced"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Starts the thread of network policy with the policy of the state on disk, if there is one.
fn start_policy(node: &Name, state: &State, tally: &Tally) -> anyhow::Result<PolicyThread> {
    let first = state.position().map(|_| state.policy().clone());
    let started = PolicyThread::start(node.clone(), first, tally);
    started.context("the thread of network policy cannot be made")
}

fn received_part(state: &State) -> ReceivedPart {
    ReceivedPart {
        position: state.position(),
        has_workload_networks: state.has_workload_networks(),
        has_network_policy: state.has_network_policy(),
    }
}

/// Connects the workload network with the agent. Without it, the agent serves everything else.
fn attach_by(agent: &mut Agent, started: std::io::Result<WorkloadNetwork>) -> Option<WorkloadNetwork> {
    match started {
        Ok(workload_network) => {
            agent.attach_by(workload_network.desired.clone());
            Some(workload_network)
        }
        Err(error) => {
            warn!(%error, "the workload network cannot be used on this node");
            None
        }
    }
}

fn network_failure(workload_network: Option<&WorkloadNetwork>) -> watch::Receiver<Option<String>> {
    let absent = || watch::channel(None).1;
    workload_network.map_or_else(absent, |workload_network| workload_network.handle.failure())
}

/// Locks the state directory, creating it if necessary, and returns the journal with the state read from it.
fn open_journal(state_dir: &Path, node: &Name) -> anyhow::Result<(Journal, State)> {
    let dir = state_dir.display();
    std::fs::create_dir_all(state_dir).with_context(|| format!("--state-dir {dir} cannot be made"))?;
    let unusable = || format!("--state-dir {dir} cannot be used");
    let lock = StateDirLock::acquire(state_dir).with_context(unusable)?;
    Journal::open(state_dir, node, lock).with_context(unusable)
}

/// Creates the connections to the control servers, or to the socket of a server on this machine.
fn connect(urls: Vec<Url>, is_default: bool) -> anyhow::Result<Arc<Control>> {
    let client = match urls.first().and_then(socket::path_of) {
        Some(path) => control::socket_client(&path)?,
        None => control::client(RootCertStore::empty())?,
    };
    let mut control = Control::new(urls, client);
    if is_default {
        control.prefer_socket(Path::new(socket::PATH_DEFAULT))?;
    }
    Ok(Arc::new(control))
}
