//! Composition root: starts all parts of the agent and stops them in order.

use std::{net::SocketAddr, sync::Arc};

use announce::{self, ownership::io_traits::OnExit};
use anyhow::Context as _;
use bfd_runner::Bfd;
use futures::{FutureExt as _, future::join_all};
use kernel::links::follow::Follower;
use model::{kinds::node::ProxyMode, primitives::name::Name};
use rustls::RootCertStore;
use speaker::{
    peering::{Leave, Speaker},
    routing::{Routing, show, speaker::Speakers},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, spawn_blocking},
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{
        Agent, Beginning, Kernel,
        thread::{self, BATCHES_WAITING_MAX},
    },
    ask::{self, Answerer, ERRANDS_WAITING_MAX, QUESTIONS_WAITING_MAX},
    config::Config,
    control::{self, Control},
    enrol,
    feed::{self, FeedOptions, HEARTBEAT_INTERVAL, Outlets, ReceivedQuery, questions::Listener, register},
    hold::{self, Guard},
    journal::{Journal, lock::StateDirLock},
    notify::Notifier,
    report::{self, Reporter, Sources},
    server::{self, ServedSources},
    service_status,
    tally::Tally,
};

/// Minimum and maximum delay before reconnecting to control.
const RECONNECT_FLOOR: std::time::Duration = std::time::Duration::from_millis(100);
const RECONNECT_CAP: std::time::Duration = std::time::Duration::from_secs(10);

/// Properties of a started agent, passed to the caller of [`run`].
#[derive(Debug)]
pub struct Ready {
    /// Address of the status server.
    pub listen: SocketAddr,
    /// Active proxy mode, as set in the Node object or by default.
    pub mode: ProxyMode,
}

/// Runs an agent until `stop` is cancelled, then syncs the journal and leaves the kernel unchanged. `ready`
/// fires when the journal's state has been programmed and the status server accepts connections.
///
/// # Errors
/// Returns an error if the state directory or the listener is unavailable, or if the loop fails.
pub async fn run(
    config: Config,
    kernel: Kernel,
    stop: CancellationToken,
    ready: oneshot::Sender<Ready>,
) -> anyhow::Result<()> {
    let Config {
        apis,
        enrolment,
        node,
        state_dir,
        listen,
        workload_cidrs,
        addresses,
        labels,
        zone,
        proxy,
        state_guard_percent,
        announcing: announce_config,
        allow_fixes,
        log: _,
        log_format: _,
    } = config;
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("--listen {listen} cannot be bound"))?;
    let listen = listener.local_addr()?;
    let shown_dir = state_dir.display().to_string();
    std::fs::create_dir_all(&state_dir).with_context(|| format!("--state-dir {shown_dir} cannot be made"))?;
    let lock = StateDirLock::acquire(&state_dir)
        .with_context(|| format!("--state-dir {shown_dir} cannot be used"))?;
    let (journal, state) = Journal::open(&state_dir, &node, lock)
        .with_context(|| format!("--state-dir {shown_dir} cannot be used"))?;
    let control = Arc::new(Control::new(apis, control::client(RootCertStore::empty())?));
    let place = enrol::IdentityLocation { node: node.clone(), state_dir };
    let kept = enrol::start(Arc::clone(&control), place, enrolment, stop.clone())?;
    let held = state.position();
    let tally = Tally::default();
    let mode = proxy.mode.as_str();
    let beginning =
        Beginning { node: node.clone(), kernel, defaults: proxy, journal, state, tally: tally.clone() };
    // Opening a backend may block, and may need a runtime of its own.
    let agent = spawn_blocking(move || Agent::new(beginning, std::time::Instant::now())).await?;
    let mut agent = agent.with_context(|| format!("--mode {mode} cannot be used"))?;
    let (loop_end, feed_end) = hold::link();
    agent.guard_by(Guard::new(state_guard_percent, loop_end));
    let (announcing, messages) = announce::channel();
    let (follower, links) = Follower::open().context("the interfaces of the machine cannot be listed")?;
    // Ends when the last receiver of interface updates is dropped.
    let _follower = tokio::spawn(follower.run());
    let bfd = Bfd::start().context("BFD cannot be started")?;
    let speaker = Speaker::start(&node, bfd.share(), links.clone()).context("BGP cannot be started")?;
    let speaker = Arc::new(speaker);
    let announcer =
        announce::start::start(node.clone(), announce_config, bfd, links.clone(), &announcing, messages)
            .context("addresses cannot be announced")?;
    agent.announce_by(announcing.clone());
    let routing = Routing::new(Box::new(Speakers::new(Arc::clone(&speaker))));
    let routes = show::start(routing.decided(), speaker.shown());
    agent.route_by(routing);
    let checks = health::start(node.clone(), tally.health.clone()).context("endpoints cannot be checked")?;
    agent.check_by(checks.checking);
    let (batches, received) = mpsc::channel(BATCHES_WAITING_MAX);
    let (errands, carried) = mpsc::channel(ERRANDS_WAITING_MAX);
    let running = thread::spawn(agent, received, carried).context("the loop's thread cannot be made")?;
    let (beats, status) = (running.beats.clone(), running.status.clone());
    let told = tokio::spawn(service_status::tell(Notifier::of_environment(), beats, status, stop.clone()));

    let boot_id = uuid::Uuid::new_v4().to_string();
    let registration = register::Registration { addresses, workload_cidrs, labels, zone };
    let options = feed_options(&node, &registration);
    let (is_known, known) = watch::channel(false);
    let (questions, asked) = mpsc::channel(QUESTIONS_WAITING_MAX * control.urls.len());
    let listening = hear_questions(&control, &options, &questions, &stop);
    let outlets = Outlets { batches, questions, is_known, link: feed_end, tally: tally.clone() };
    let follow = feed::follow(Arc::clone(&control), options, held, outlets, stop.clone());
    let settled = stop.clone().run_until_cancelled_owned(kept.settled());
    let feed = tokio::spawn(settled.then(|_| follow));
    let check = register::warn_of_ignored_flags(Arc::clone(&control), node.clone(), registration);
    let check = kept.settled().then(|()| check);
    let check = tokio::spawn(stop.clone().run_until_cancelled_owned(check));
    let answerer = Answerer {
        control: Arc::clone(&control),
        node: node.clone(),
        status: running.status.clone(),
        allow_fixes,
    };
    let answers = tokio::spawn(ask::run(answerer, asked, errands, stop.clone()));
    let reporter = Reporter {
        control: Arc::clone(&control),
        node: node.clone(),
        boot_id: boot_id.clone(),
        tally: tally.clone(),
        announcing: announcing.clone(),
    };
    let announced = announcer.shown;
    let sources = Sources {
        status: running.status.clone(),
        links,
        announced: announced.clone(),
        routes: routes.clone(),
        checked: checks.shown.clone(),
        is_known: known,
    };
    let report = tokio::spawn(report::run(reporter, sources, stop.clone()));
    let status = running.status.clone();
    let shown = ServedSources {
        node: node.clone(),
        boot_id,
        status: running.status,
        announced,
        routes,
        checked: checks.shown,
        tally,
        enrolled: kept.shown.clone(),
        control,
    };
    let server = tokio::spawn(server::run(listener, shown, stop.clone()));

    if running.first_turn.await.is_ok() {
        // The receiver may be gone.
        let mode = status.borrow().mode;
        let _gone = ready.send(Ready { listen, mode });
    }
    // The loop ends when the feed ends, which happens on stop, or on a fault of its own.
    let ended = spawn_blocking(move || running.thread.join()).await?;
    stop.cancel();
    let on_exit = announce_config.on_exit;
    stop_speaking(speaker, on_exit, &node).await;
    spawn_blocking(move || {
        announcing.leave(on_exit);
        // The panic message was already printed by the thread.
        let _ended = announcer.thread.join();
    })
    .await?;
    let (feed, report, server, check, answers) = tokio::join!(feed, report, server, check, answers);
    told.await?;
    feed?;
    listening.await?;
    answers?;
    report?;
    check?;
    server?.context("the server failed")?;
    match ended {
        Ok(outcome) => outcome.context("the saved state could not be synced"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Returns the options of the feed with the intervals of this program.
fn feed_options(node: &Name, registration: &register::Registration) -> FeedOptions {
    FeedOptions {
        node: node.clone(),
        registration: registration.clone(),
        heartbeat_interval: HEARTBEAT_INTERVAL,
        reconnect_floor: RECONNECT_FLOOR,
        reconnect_cap: RECONNECT_CAP,
    }
}

/// Starts tasks that receive queries from the control servers other than the one that sends the state.
fn hear_questions(
    control: &Arc<Control>,
    options: &FeedOptions,
    questions: &mpsc::Sender<ReceivedQuery>,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let listeners = control.servers().filter(|_| control.has_several()).map(|server| Listener {
        control: Arc::clone(control),
        server,
        node: options.node.clone(),
        heartbeat_interval: options.heartbeat_interval,
        reconnect_floor: options.reconnect_floor,
        reconnect_cap: options.reconnect_cap,
        questions: questions.clone(),
    });
    let all = join_all(listeners.map(Listener::listen).collect::<Vec<_>>());
    let stop = stop.clone();
    tokio::spawn(async move {
        let _stopped = stop.run_until_cancelled(all).await;
    })
}

/// Closes the BGP sessions, either for a graceful restart or with an administrative shutdown. The loop has
/// ended, so this is the only user of the speaker.
async fn stop_speaking(speaker: Arc<Speaker>, on_exit: OnExit, node: &Name) {
    let how = match on_exit {
        OnExit::Keep => Leave::Restart,
        OnExit::Handover => Leave::Shutdown(format!("the agent of node {node} is stopped")),
    };
    if let Some(speaker) = Arc::into_inner(speaker) {
        speaker.leave(how).await;
    }
}
