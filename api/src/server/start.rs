//! Composition of the server: state, then the tasks that work on it, then an orderly end.

use model::primitives::quantity::Position;
use std::{
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};
use store::{Store, StoreError};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    base::{clock_and_random::Source, config::Settings, error_chain::Chain},
    context::server_state::{BACKUPS_MAX, FEEDS_MAX, REQUESTS_MAX, ServerState, WATCHES_MAX},
    security::{
        Desk, Manners,
        ca::Authority,
        peer_key,
        vault::{self, Vault},
    },
    state::{
        convergence::Convergence, health_state::HealthDesk, kept_plans::Kept, leadership::Leadership,
        node_reports::Nodes, overview_cache::OverviewDesk, paging::Pages, pending_triggers::Newsroom,
        published::Hub, queries::Asks, series::SeriesBook,
    },
    stream::{node_feed::Feeding, watching::Watching},
    tasks::{address_retry, assigner::Assigner, health_judge::HealthJudge, overview, sampler},
    telemetry::metrics::Metrics,
    write::{
        audit::AuditLog,
        writer::{Context, Writer},
    },
};
impl ServerState {
    /// Reads the store and starts the tasks.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(
        settings: Settings,
        store: Arc<dyn Store>,
        source: Arc<dyn Source>,
    ) -> Result<Running, StoreError> {
        let statuses = store.statuses().await?;
        let peer_key = peer_key::obtain(&*store, &*source).await?;
        let vault = Vault::open(Arc::clone(&store)).await?;
        let authority = match &settings.tls {
            Some(_) => Some(Arc::new(Authority::obtain(&vault, &*source).await?)),
            None => None,
        };
        let manners = Manners { is_required: settings.is_auth_required, is_secure: settings.tls.is_some() };
        let desk = Desk::of(Arc::clone(&vault), manners, &statuses);
        let hub = Arc::new(Hub::new(store.load().await?, peer_key, settings.cluster.asn()));
        let nodes = Nodes::of(&statuses);
        let metrics = Arc::new(Metrics::new());
        let cluster = Arc::new(settings.cluster.clone());
        let stop_writer = CancellationToken::new();
        let convergence = Arc::new(Convergence::default());
        let audit = Arc::new(AuditLog::of(&*store).await?);
        let has_failed = Arc::new(AtomicBool::new(false));
        let context = Context {
            hub: Arc::clone(&hub),
            store: Arc::clone(&store),
            cluster: Arc::clone(&cluster),
            metrics: Arc::clone(&metrics),
            convergence: Arc::clone(&convergence),
            audit: Arc::clone(&audit),
            has_failed: Arc::clone(&has_failed),
        };
        let asks = Asks::new(&source.secret());
        let (writer, writer_task) = Writer::start(context, stop_writer.clone());
        let app = Arc::new(Self {
            health: HealthDesk::new(settings.health_guard_percent),
            settings,
            cluster,
            leadership: Leadership::of(&*store),
            store,
            vault,
            authority,
            feeding: Arc::new(Feeding::new(hub.load())),
            watching: Watching::new(hub.load()),
            hub,
            writer,
            nodes,
            asks,
            plans: Kept::default(),
            desk,
            traffic: Mutex::default(),
            announcements: Mutex::default(),
            bgp: Mutex::default(),
            newsroom: Newsroom::default(),
            overview: OverviewDesk::new(source.now()),
            pages: Pages::default(),
            idempotency: Arc::default(),
            audit,
            convergence,
            metrics,
            assets: Arc::default(),
            series: SeriesBook::default(),
            has_failed,
            source,
            feeds: Arc::new(Semaphore::new(FEEDS_MAX)),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            backups: Arc::new(Semaphore::new(BACKUPS_MAX)),
            stop_streams: CancellationToken::new(),
            stop_writer,
        });
        let housekeeping = tokio::spawn(housekeeping(Arc::clone(&app)));
        let beat = tokio::spawn(beat(Arc::clone(&app), [app.hub.subscribe(), app.hub.subscribe()]));
        let assigner = tokio::spawn(Assigner::new(Arc::clone(&app)).run());
        let waiting = tokio::spawn(address_retry::run(Arc::clone(&app)));
        let health = tokio::spawn(HealthJudge::new(Arc::clone(&app)).run());
        let audit = tokio::spawn(keep_audit(Arc::clone(&app)));
        let vault = tokio::spawn(vault::follow(Arc::downgrade(&app.vault)));
        // What is wrong at the start began before it.
        app.overview.current(&app).await;
        let overview = tokio::spawn(overview::run(Arc::clone(&app)));
        let series = tokio::spawn(sampler::run(Arc::clone(&app)));
        Ok(Running {
            app,
            writer: writer_task,
            housekeeping,
            assigner,
            waiting,
            health,
            audit,
            vault,
            overview,
            series,
            beat,
        })
    }
}

/// Time that requests which wrote nothing wait before the audit log of the store has them.
const AUDIT_FLUSH: Duration = Duration::from_secs(1);

/// Time between two looks for entries of the audit log that are too old.
const AUDIT_TRIM: Duration = Duration::from_secs(3600);

/// How often what belongs to deleted Nodes is forgotten.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// The server and its tasks.
pub struct Running {
    /// What handlers share.
    pub app: Arc<ServerState>,
    writer: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
    assigner: JoinHandle<()>,
    waiting: JoinHandle<()>,
    health: JoinHandle<()>,
    audit: JoinHandle<()>,
    vault: JoinHandle<()>,
    overview: JoinHandle<()>,
    series: JoinHandle<()>,
    beat: JoinHandle<()>,
}

impl Running {
    /// Ends the streams, so that connections can be closed.
    pub fn stop_streams(&self) {
        self.app.stop_streams.cancel();
    }

    /// Answers the writes that wait, then ends the tasks.
    pub async fn stop(self) {
        let Self {
            app,
            writer,
            housekeeping,
            assigner,
            waiting,
            health,
            audit,
            vault,
            overview,
            series,
            beat,
        } = self;
        overview.abort();
        beat.abort();
        series.abort();
        waiting.abort();
        vault.abort();
        health.abort();
        app.stop_streams.cancel();
        assigner.abort();
        app.stop_writer.cancel();
        if writer.await.is_err() {
            tracing::error!("the writer did not end in order");
        }
        housekeeping.abort();
        audit.abort();
        app.audit.flush_all(&*app.store).await;
    }
}

/// Tells the streams of new states.
async fn beat(app: Arc<ServerState>, [to_feeds, to_watches]: [watch::Receiver<Position>; 2]) {
    let feeds = app.feeding.beat.run(&app.hub, to_feeds, (&app.feeds, FEEDS_MAX));
    let watches = app.watching.beat.run(&app.hub, to_watches, (&app.watches, WATCHES_MAX));
    tokio::join!(feeds, watches);
}

async fn keep_audit(app: Arc<ServerState>) {
    let mut turn = tokio::time::interval(AUDIT_FLUSH);
    let mut old = tokio::time::interval(AUDIT_TRIM);
    loop {
        tokio::select! {
            _ = turn.tick() => app.audit.flush(&*app.store).await,
            _ = old.tick() => {
                if let Err(error) = app.store.drop_old_audit(app.source.now()).await {
                    tracing::warn!(error = %Chain(&error), "old entries of the audit log cannot be dropped");
                }
            }
        }
    }
}

async fn housekeeping(app: Arc<ServerState>) {
    let mut turn = tokio::time::interval(HOUSEKEEPING);
    loop {
        turn.tick().await;
        let published = app.hub.load();
        app.nodes.forget_deleted(&*app.store, &published.snapshot).await;
        app.pages.forget_old(app.source.now());
        app.feeding.batches.forget();
        app.asks.forget_closed();
        app.plans.forget_old(app.source.now());
        app.desk.keep_uses(&*app.store).await;
        app.forget_deleted(&published);
    }
}
