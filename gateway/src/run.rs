//! Start of all parts of the gateway, and its end.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context as _;
use base::service_manager::Notifier;
use daemon::status;
use model::http::{HttpObjectKey, HttpState};
use replica::Follower;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{Semaphore, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    args::Args,
    gate::GateTimes,
    keys::{self, Certificates, RingBuilder},
    listen::{Front, Listeners},
    metrics::Metrics,
    proxy::{COPIES_MAX, Proxy, ProxyOptions},
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
    let status_listener = TcpListener::bind(args.status_listen).await;
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
    let front = Arc::new(front(&args, states.clone(), &metrics, certificates));
    let listeners =
        Listeners { addresses: args.address.clone(), states: states.clone(), front: Arc::clone(&front) };
    let sink = RouteSink { served, states: sender, metrics: Arc::clone(&metrics) };
    let follower = Follower { client, kinds: &state::KINDS, sink };
    let stop = CancellationToken::new();
    tracing::info!(address = ?args.address, "started");
    let notifier = Notifier::of_environment();
    notifier.say("READY=1");
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = follower.run() => {}
        () = keys.run() => {}
        () = listeners.run(stop.clone()) => {}
        served = status::serve(status_listener, status::routes(metrics)) => served?,
        () = keep(&args, states) => {}
        () = feed_watchdog(&notifier) => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    notifier.say("STOPPING=1");
    stop.cancel();
    front.connections.close();
    let drain = Duration::from_secs(args.drain_timeout.into());
    if tokio::time::timeout(drain, front.connections.wait()).await.is_err() {
        tracing::warn!(connections = front.connections.len(), "some requests did not end in time");
    }
    tracing::info!("stopped");
    Ok(())
}

fn front(
    args: &Args,
    states: watch::Receiver<SharedState>,
    metrics: &Arc<Metrics>,
    certificates: Certificates,
) -> Front {
    let seconds = |count: u32| Duration::from_secs(count.into());
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

async fn keep(args: &Args, states: watch::Receiver<SharedState>) {
    match &args.state_dir {
        Some(directory) => state::journal(directory).keep(states, state::parts).await,
        None => std::future::pending().await,
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
