//! The server put together: what every handler shares, and the tasks behind it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use model::{
    bgp::book::BgpBook,
    cluster::config::ClusterConfig,
    kinds::resource::{Kind, ObjectKey, ServiceKey},
    observed::{announcements::AnnouncementBook, traffic::TrafficBook},
    primitives::{name::Name, quantity::Position},
};
use store::{Store, StoreError};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    asks::Asks,
    assigner::{Assigner, Newsroom},
    audit::AuditLog,
    config::{Hosts, page::PageSettings},
    convergence::Convergence,
    entropy::Source,
    error::{Code, Problem},
    feed::Feeding,
    health_judge::{HealthDesk, HealthJudge},
    hub::{Hub, Published},
    idempotency::Idempotency,
    leadership::Leadership,
    metrics::Metrics,
    mutate,
    nodes::Nodes,
    overview::{self, OverviewDesk},
    paging::Pages,
    peer_key,
    plans::Kept,
    security::{
        Desk, Manners,
        ca::Authority,
        tls::TlsOptions,
        vault::{self, Vault},
    },
    series::{SeriesBook, sample},
    view::{Books, View},
    waiting,
    watch::Watching,
    web::Assets,
    writer::{Chain, Context, Writer},
};

/// Feeds at once: twice the largest cluster we aim at, because an agent that comes back may still hold its old one.
pub(crate) const FEEDS_MAX: usize = 2048;
/// Watches at once: people, scripts and adapters.
pub const WATCHES_MAX: usize = 1024;
/// Ordinary requests at once; more would only wait for the same two resources, the writer and the processors.
pub(crate) const REQUESTS_MAX: usize = 1024;
/// Backups at once: each holds the whole state in memory.
const BACKUPS_MAX: usize = 1;
/// Time that requests which wrote nothing wait before the audit log of the store has them.
const AUDIT_FLUSH: Duration = Duration::from_secs(1);
/// Time between two looks for entries of the audit log that are too old.
const AUDIT_TRIM: Duration = Duration::from_secs(3600);
/// Time that a request waits for a state that another control server has shown already. Following takes milliseconds; a
/// server that needs longer is cut off from the store, and another one should be asked.
const BEHIND_PATIENCE: Duration = Duration::from_secs(5);
/// When to come back to a server that is behind, in seconds.
const BEHIND_RETRY_SECS: u32 = 1;
/// How often what belongs to deleted Nodes is forgotten.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// What the server needs to know from its configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The ranges of the cluster.
    pub cluster: ClusterConfig,
    /// Whether the server listens off loopback without security.
    pub is_insecure: bool,
    /// Which `Host` headers are answered.
    pub hosts: Hosts,
    /// Percent of the checked endpoints that may leave service at once by their health; 100: all of them.
    pub health_guard_percent: u8,
    /// What this control server is called among those of its store.
    pub replica_name: String,
    /// How TLS is spoken; not at all when left out.
    pub tls: Option<TlsOptions>,
    /// Whether everybody has to prove who they are.
    pub is_auth_required: bool,
    /// How the status page is served.
    pub page: PageSettings,
    /// Whether what there is can be read below `/k8s/` in the words of Kubernetes.
    pub has_kubernetes_view: bool,
}

/// What every handler shares.
pub struct App {
    pub(crate) settings: Settings,
    pub(crate) cluster: Arc<ClusterConfig>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) leadership: Leadership,
    pub(crate) vault: Arc<Vault>,
    /// Signs certificates, where TLS is spoken.
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) feeding: Arc<Feeding>,
    pub(crate) watching: Watching,
    pub(crate) writer: Writer,
    pub(crate) nodes: Nodes,
    pub(crate) asks: Asks,
    pub(crate) plans: Kept,
    pub(crate) desk: Desk,
    traffic: Mutex<TrafficBook>,
    announcements: Mutex<AnnouncementBook>,
    bgp: Mutex<BgpBook>,
    pub(crate) newsroom: Newsroom,
    pub(crate) overview: OverviewDesk,
    pub(crate) health: HealthDesk,
    pub(crate) pages: Pages,
    pub(crate) idempotency: Arc<Idempotency>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) convergence: Arc<Convergence>,
    pub(crate) metrics: Arc<Metrics>,
    /// The files of the status page.
    pub(crate) assets: Arc<Assets>,
    /// How it went in the last hour.
    pub(crate) series: SeriesBook,
    /// Whether the store did not take the last group that it was given.
    pub(crate) has_failed: Arc<AtomicBool>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) feeds: Arc<Semaphore>,
    pub(crate) watches: Arc<Semaphore>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) backups: Arc<Semaphore>,
    /// Ends the streams.
    pub(crate) stop_streams: CancellationToken,
    stop_writer: CancellationToken,
}

/// The server and its tasks.
pub struct Running {
    /// What handlers share.
    pub app: Arc<App>,
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

impl App {
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
        let waiting = tokio::spawn(waiting::run(Arc::clone(&app)));
        let health = tokio::spawn(HealthJudge::new(Arc::clone(&app)).run());
        let audit = tokio::spawn(keep_audit(Arc::clone(&app)));
        let vault = tokio::spawn(vault::follow(Arc::downgrade(&app.vault)));
        // What is wrong at the start began before it.
        app.overview.current(&app).await;
        let overview = tokio::spawn(overview::run(Arc::clone(&app)));
        let series = tokio::spawn(sample::run(Arc::clone(&app)));
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

    /// The newest state with what is known of the nodes.
    pub(crate) fn view(&self) -> View<'_> {
        self.view_of(self.hub.load())
    }

    /// What went through, as the agents say.
    pub(crate) fn traffic(&self) -> MutexGuard<'_, TrafficBook> {
        // A report that panicked in the middle leaves figures that the next reports put right.
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the agents say of their parts in load balancer addresses.
    pub(crate) fn announcements(&self) -> MutexGuard<'_, AnnouncementBook> {
        // A report that panicked in the middle leaves parts that the next complete report puts right.
        self.announcements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the agents say of their BGP. Whoever needs the book of announcements as well takes that one first.
    pub(crate) fn bgp(&self) -> MutexGuard<'_, BgpBook> {
        // A report that panicked in the middle leaves routes that the next complete report puts right.
        self.bgp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A state with what is known of the nodes.
    pub(crate) fn view_of(&self, published: Arc<Published>) -> View<'_> {
        let books = Books { announcements: &self.announcements, bgp: &self.bgp, health: &self.health };
        View::new(published, &self.nodes, books, self.source.now())
    }
}

impl App {
    /// Waits for a state that another control server has shown, if there can be one; refuses when it does not come.
    pub(crate) async fn reach(&self, position: Position) -> Result<(), Problem> {
        let present = self.hub.load().position();
        if position <= present || (self.store.is_shared() && self.hub.reach(position, BEHIND_PATIENCE).await)
        {
            return Ok(());
        }
        let detail =
            format!("this control server is at {}, not yet at {position}", self.hub.load().position());
        let problem = Problem::new(Code::Behind, detail).hint("try again, or ask another control server");
        Err(problem.retry_after(BEHIND_RETRY_SECS))
    }

    /// Waits until the published state is the newest one, whoever writes to the store.
    pub(crate) async fn confirm(&self) -> Result<(), Problem> {
        if self.store.is_shared() {
            self.writer.confirm().await.map_err(mutate::problem)?;
        }
        Ok(())
    }

    /// Decides something about a write on the published state. A refusal is told only when it holds on a state that the
    /// store has confirmed: the client may have read a newer one at another control server.
    pub(crate) async fn decide<T>(
        &self,
        decide: impl Fn(&Published) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        match decide(&self.hub.load()) {
            Err(_) if self.store.is_shared() => {}
            decided => return decided,
        }
        self.confirm().await?;
        decide(&self.hub.load())
    }

    /// Forgets what was said of what is deleted.
    fn forget_deleted(&self, published: &Published) {
        let has_node = |name: &Name| {
            let key = ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() };
            published.snapshot.get(&key).is_some()
        };
        let has_service = |key: &ServiceKey| published.snapshot.service(key).is_some();
        let has_address = |address| published.snapshot.address(address).is_some();
        self.announcements().forget(has_node, has_address);
        self.bgp().forget(has_node);
        self.health.book().forget(has_node, has_service);
        self.traffic().forget(has_service, has_node, self.source.now());
    }
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
async fn beat(app: Arc<App>, [to_feeds, to_watches]: [watch::Receiver<Position>; 2]) {
    let feeds = app.feeding.beat.run(&app.hub, to_feeds, (&app.feeds, FEEDS_MAX));
    let watches = app.watching.beat.run(&app.hub, to_watches, (&app.watches, WATCHES_MAX));
    tokio::join!(feeds, watches);
}

async fn keep_audit(app: Arc<App>) {
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

async fn housekeeping(app: Arc<App>) {
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
