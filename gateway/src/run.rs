//! Start of all parts of the gateway, and its end.

use std::{
    collections::BTreeSet, fs::DirBuilder, future::pending, os::unix::fs::DirBuilderExt as _, path::Path,
    pin::pin, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use base::service_manager::Notifier;
use daemon::status;
use model::{
    http::{HttpObjectKey, HttpState},
    primitives::quantity::Revision,
};
use replica::Follower;
use tokio::{
    net::TcpListener,
    process::Command,
    signal::unix::{Signal, SignalKind, signal},
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use crate::{
    args::Args,
    gate::GateTimes,
    handover::{self, InheritedSockets, OpenSockets, Predecessor, Successor},
    keys::{self, Certificates, RingBuilder},
    listen::{End, Front, Listeners, from_process},
    metrics::Metrics,
    proxy::{COPIES_MAX, Proxy, ProxyOptions},
    serve::{RecentCounts, StatusReporter, host_name},
    state::{self, NoValues, RouteSink, SharedState},
    upstream::Upstream,
};

/// Program and version in requests to control servers.
const USER_AGENT: &str = concat!("tidegate-gateway/", env!("CARGO_PKG_VERSION"));
/// Maximum time from the first byte of the head of a request to its end.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the gateway until SIGTERM or SIGINT, and then until its requests have ended.
///
/// # Errors
/// Returns the error that stops the process, with its remedy.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(directory) = &args.state_dir {
        create(directory);
    }
    let (predecessor, mut inherited) = args.state_dir.as_deref().and_then(predecessor).unzip();
    let inherited = inherited.get_or_insert_default();
    let status_listener = match inherited.remove(&args.status_listen) {
        Some(socket) => from_process(socket),
        None => TcpListener::bind(args.status_listen).await,
    };
    let status_listener = status_listener.with_context(|| {
        format!("cannot listen on {}: choose another --status-listen", args.status_listen)
    })?;
    let client = args.control.client(USER_AGENT)?;
    let metrics = Arc::new(Metrics::default());
    let served: Arc<BTreeSet<HttpObjectKey>> = Arc::new(args.serve.iter().cloned().collect());
    let (sender, states) = watch::channel(restored(&args, &served, &metrics));
    let builder = RingBuilder::new(Arc::clone(&metrics));
    let key_client = args.control.client(USER_AGENT)?;
    let (keys, certificates) =
        keys::follow(key_client, states.clone(), Arc::clone(&served), args.state_dir.clone(), builder);
    let reporter = reporter(&args, &states, &served, certificates.clone(), &metrics)?;
    let front = Arc::new(front(&args, states.clone(), &metrics, certificates));
    let (opened, is_open) = watch::channel(None);
    let sockets = OpenSockets::default();
    sockets.insert(args.status_listen, &status_listener);
    let listeners = Listeners {
        addresses: args.address.clone(),
        states: states.clone(),
        front: Arc::clone(&front),
        inherited: std::mem::take(inherited),
        sockets: sockets.clone(),
        opened,
    };
    let sink = RouteSink { served, states: sender, metrics: Arc::clone(&metrics) };
    let follower = Follower { client, kinds: &state::KINDS, sink };
    tracing::info!(address = ?args.address, "started");
    let notifier = Notifier::of_environment();
    notifier.say("READY=1");
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let succession =
        Succession { directory: args.state_dir.as_deref(), predecessor, is_open, sockets, states };
    let (mut following, mut reading_keys) = (pin!(follower.run()), pin!(keys.run()));
    let successor = tokio::select! {
        () = &mut following => None,
        () = &mut reading_keys => None,
        () = reporter.run() => None,
        () = listeners.run() => None,
        served = status::serve(status_listener, status::routes(metrics)) => { served?; None }
        successor = succession.run() => Some(successor?),
        () = start_successors(args.state_dir.is_some(), signal(SignalKind::hangup())?) => None,
        () = feed_watchdog(&notifier) => None,
        _ = terminated.recv() => None,
        _ = interrupted.recv() => None,
    };
    let is_last = successor.is_none();
    if let Some(successor) = successor {
        notifier.say(&format!("MAINPID={}", successor.pid));
        tracing::info!(pid = %successor.pid, "a new process has taken over");
        successor.release();
        front.end.leaving.cancel();
        front.connections.close();
        tokio::select! {
            () = &mut following => {}
            () = &mut reading_keys => {}
            () = front.connections.wait() => {}
            () = sleep(seconds(args.drain_timeout)) => {}
            _ = terminated.recv() => {}
        }
    } else {
        notifier.say("STOPPING=1");
    }
    front.end.stop.cancel();
    front.connections.close();
    let goodbye = async {
        if is_last {
            reporter.say_goodbye().await;
        }
    };
    let drain = timeout(seconds(args.drain_timeout), front.connections.wait());
    let (drained, ()) = tokio::join!(drain, goodbye);
    if drained.is_err() {
        tracing::warn!(connections = front.connections.len(), "some requests did not end in time");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Creates the state directory if it does not exist. Requests do not depend on it, so that the gateway starts without it.
fn create(directory: &Path) {
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        tracing::warn!(%error, directory = %directory.display(), "cannot create the state directory; nothing is kept for a restart");
    }
}

/// Creates the sender of the reports to the control servers.
fn reporter(
    args: &Args,
    states: &watch::Receiver<SharedState>,
    served: &Arc<BTreeSet<HttpObjectKey>>,
    certificates: Certificates,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<StatusReporter> {
    Ok(StatusReporter {
        client: args.control.client(USER_AGENT)?,
        servers: args.control.api.len(),
        name: args.name.clone().or_else(host_name),
        started_at: base::clock::wall_clock(),
        served: Arc::clone(served),
        states: states.clone(),
        certificates,
        metrics: Arc::clone(metrics),
        counts: RecentCounts::default(),
    })
}

const fn seconds(count: u32) -> Duration {
    Duration::from_secs(count as u64)
}

/// Takes the sockets of the process that uses the state directory, if there is one.
fn predecessor(directory: &Path) -> Option<(Predecessor, InheritedSockets)> {
    let taken = handover::take(directory);
    taken.inspect_err(|error| tracing::warn!(%error, "the old process hands over no sockets")).ok().flatten()
}

/// Place of this process between the one before and the one after it.
struct Succession<'a> {
    directory: Option<&'a Path>,
    predecessor: Option<Predecessor>,
    /// Revision of the state whose sockets are open.
    is_open: watch::Receiver<Option<Revision>>,
    sockets: OpenSockets,
    states: watch::Receiver<SharedState>,
}

impl Succession<'_> {
    /// Replaces the old process, and keeps the state on disk until a new process is ready.
    ///
    /// # Errors
    /// Returns an error if the old process goes on, so that this one has to end.
    async fn run(self) -> anyhow::Result<Successor> {
        let Some(directory) = self.directory else { return pending().await };
        if let Some(predecessor) = self.predecessor {
            match predecessor.replace(self.is_open).await {
                Ok(()) => tracing::info!("took over from the old process"),
                Err(error) if handover::is_offered(directory) => {
                    return Err(error).context("the old process has not handed over its work, and goes on");
                }
                Err(error) => tracing::warn!(%error, "the old process ended during the handover"),
            }
        }
        let offer = async {
            match handover::offer(directory, &self.sockets, &self.states).await {
                Ok(successor) => successor,
                Err(error) => {
                    tracing::warn!(%error, "no new process can take over the sockets");
                    pending().await
                }
            }
        };
        tokio::select! {
            successor = offer => Ok(successor),
            () = state::journal(directory).keep(self.states.clone(), state::parts) => pending().await,
        }
    }
}

/// Starts a new process of the program at the same path with each SIGHUP.
async fn start_successors(has_directory: bool, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        if !has_directory {
            tracing::warn!("no new process is started: a handover needs --state-dir");
            continue;
        }
        let mut words = std::env::args_os();
        let program = words.next().unwrap_or_default();
        tracing::info!(program = %program.display(), "starting a new process");
        // The watchdog of the service manager waits for the messages of the new process when that is the main one.
        let child = Command::new(program).args(words).env_remove("WATCHDOG_PID").spawn();
        let ended = match child {
            Ok(mut child) => child.wait().await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(status) => tracing::warn!(%status, "the new process ended; this one goes on"),
            Err(error) => tracing::warn!(%error, "cannot start a new process; this one goes on"),
        }
    }
}

fn front(
    args: &Args,
    states: watch::Receiver<SharedState>,
    metrics: &Arc<Metrics>,
    certificates: Certificates,
) -> Front {
    let options = ProxyOptions {
        trusted: args.trusted_proxy.clone(),
        response_timeout: seconds(args.response_timeout),
        idle: seconds(args.idle_timeout),
        access_log: args.access_log,
    };
    let upstream = Upstream::new(seconds(args.connect_timeout));
    let copies = Arc::new(Semaphore::new(COPIES_MAX));
    let proxy = Proxy { states, upstream, options, metrics: Arc::clone(metrics), copies };
    Front {
        proxy: Arc::new(proxy),
        metrics: Arc::clone(metrics),
        certificates,
        slots: Arc::new(Semaphore::new(usize::try_from(args.connections).unwrap_or(usize::MAX))),
        times: GateTimes { head: HEAD_TIMEOUT, idle: seconds(args.idle_timeout) },
        connections: TaskTracker::new(),
        end: End::new(),
    }
}

/// Sends a message to the service manager's watchdog at its interval, which a blocked runtime would not.
async fn feed_watchdog(notifier: &Notifier) {
    let Some(interval) = notifier.watchdog_interval() else { return std::future::pending().await };
    loop {
        notifier.say("WATCHDOG=1");
        tokio::time::sleep(interval).await;
    }
}

/// Returns the last state on disk, if there is one.
fn restored(args: &Args, served: &Arc<BTreeSet<HttpObjectKey>>, metrics: &Metrics) -> SharedState {
    let directory = args.state_dir.as_ref()?;
    match state::journal(directory).load::<NoValues>() {
        Ok(stored) => {
            let (snapshot, NoValues {}) = stored?;
            tracing::info!(revision = snapshot.revision().0, "routing by the last state on disk");
            metrics.set_revision(snapshot.revision());
            Some(Arc::new(HttpState::new(Arc::clone(served), snapshot)))
        }
        Err(error) => {
            tracing::warn!(%error, directory = %directory.display(), "the state on disk is unusable; waiting for a control server");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_created() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        create(&directory);
        create(&directory);
        assert!(directory.is_dir());
    }
}
