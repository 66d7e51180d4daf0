//! Start and stop of the server: loads the state, starts the background tasks, and ends them in order.

use ::base::chain;
use model::{
    primitives::{quantity::Position, secret::Secret},
    wire::feed::NetworkState,
};
use std::{
    collections::BTreeMap,
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
    base::{
        clock_and_random::Source,
        config::{Settings, oidc::OidcSettings, webhooks::WebhookSettings},
    },
    context::server_state::{BACKUPS_MAX, FEEDS_MAX, ServerState, WATCHES_MAX},
    security::{
        AuthPolicy, Authenticator,
        authority::Authority,
        oidc::{FlowKey, Verifier},
        peer_key,
        vault::{self, Vault},
    },
    state::{
        announced_cache::AnnouncedCache, commit_traces::CommitTraces, convergence::Convergence,
        health_state::HealthState, leadership::Leadership, lineage::Lineage, node_reports::Nodes,
        observations::Observations, overview_cache::OverviewCache, overview_trigger::OverviewTrigger,
        paging::Pages, plan_cache::PlanCache, published::Hub, queries::NodeQueries, render_pool::RenderPool,
        response_budget::ResponseBudget, series::SeriesBook,
    },
    stream::{node_feed::Feeding, watching::Watching},
    tasks::{
        acme, address_retry::AddressRetry, assigner::Assigner, health_judge::HealthJudge, leader_task,
        overview, sampler, webhooks,
    },
    telemetry::metrics::Metrics,
    write::{
        audit::AuditLog,
        writer::{Context, Writer},
    },
};
impl ServerState {
    /// Loads the store and starts the background tasks.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub async fn start(
        settings: Settings,
        store: Arc<dyn Store>,
        source: Arc<dyn Source>,
    ) -> Result<Running, StoreError> {
        let (receivers, statuses) = (settings.webhooks.clone(), store.statuses().await?);
        let peer_key = peer_key::obtain(&*store, &*source).await?;
        let vault = Vault::open(Arc::clone(&store)).await?;
        let authority = match &settings.tls {
            Some(_) => Some(Arc::new(Authority::obtain(&vault, &*source).await?)),
            None => None,
        };
        let has_page_login = settings.oidc.as_ref().is_some_and(|oidc| oidc.page.is_some());
        let flow_key = if has_page_login { Some(FlowKey::obtain(&vault, &*source).await?) } else { None };
        let authenticator = authenticator(&settings, (&vault, &statuses), flow_key);
        let constants = constants(&settings, peer_key);
        let cluster = Arc::new(settings.cluster.clone());
        let hub = Arc::new(Hub::new(store.load().await?, constants, Arc::clone(&cluster)));
        let (metrics, has_failed) = (Arc::new(Metrics::new()), Arc::new(AtomicBool::new(false)));
        let (stop_writer, convergence) = (CancellationToken::new(), Arc::new(Convergence::default()));
        let audit = Arc::new(AuditLog::of(&*store).await?);
        let traces = Arc::new(CommitTraces::new(settings.tracer.clone()));
        let context = Context {
            hub: Arc::clone(&hub),
            store: Arc::clone(&store),
            cluster: Arc::clone(&cluster),
            metrics: Arc::clone(&metrics),
            convergence: Arc::clone(&convergence),
            audit: Arc::clone(&audit),
            has_failed: Arc::clone(&has_failed),
            traces: Arc::clone(&traces),
        };
        let (writer, writer_task) = Writer::start(context, stop_writer.clone());
        let trigger = Arc::new(OverviewTrigger::default());
        let overview = Arc::new(OverviewCache::new(source.now(), Arc::clone(&trigger)));
        let health = HealthState::new(settings.health_guard_percent);
        let observations = Observations::new(Nodes::of(&statuses), health, convergence, trigger);
        let observations = Arc::new(observations.with_start(source.now()));
        let app = Arc::new(Self {
            responses: Arc::new(ResponseBudget::new(settings.responses)),
            settings,
            cluster,
            leadership: Leadership::of(&*store),
            store,
            vault,
            authority,
            feeding: Arc::new(Feeding::new(hub.load(), traces)),
            watching: Watching::new(hub.load()),
            lineage: Lineage::new(hub.load().position()),
            hub,
            writer,
            queries: Arc::new(NodeQueries::new(&source.secret())),
            plans: PlanCache::default(),
            authenticator,
            observations,
            overview,
            announced: AnnouncedCache::default(),
            dns_servers: Mutex::default(),
            pages: Pages::default(),
            idempotency: Arc::default(),
            audit,
            metrics,
            assets: Arc::default(),
            series: SeriesBook::default(),
            has_failed,
            source,
            feeds: Arc::new(Semaphore::new(FEEDS_MAX)),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            renders: RenderPool::new(),
            backups: Arc::new(Semaphore::new(BACKUPS_MAX)),
            stop_streams: CancellationToken::new(),
            stop_writer,
        });
        let housekeeping = tokio::spawn(housekeeping(Arc::clone(&app)));
        let pacer = tokio::spawn(pacer(Arc::clone(&app), [app.hub.subscribe(), app.hub.subscribe()]));
        let assigner = tokio::spawn(leader_task::run::<Assigner>(Arc::clone(&app)));
        let waiting = tokio::spawn(leader_task::run::<AddressRetry>(Arc::clone(&app)));
        let health = tokio::spawn(leader_task::run::<HealthJudge>(Arc::clone(&app)));
        let audit = tokio::spawn(keep_audit(Arc::clone(&app)));
        let vault = tokio::spawn(vault::follow(Arc::downgrade(&app.vault)));
        // Computed once now, so that problems that exist at the start get a start time before it.
        app.overview.current(&app).await;
        let overview = tokio::spawn(overview::run(Arc::clone(&app)));
        let series = tokio::spawn(sampler::run(Arc::clone(&app)));
        let outgoing = tokio::spawn(outgoing(Arc::clone(&app), receivers));
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
            outgoing,
            pacer,
        })
    }
}

/// Runs the tasks that send requests to other servers.
async fn outgoing(app: Arc<ServerState>, receivers: WebhookSettings) {
    let acme = acme::run(Arc::clone(&app), app.settings.acme.clone());
    tokio::join!(webhooks::run(app, receivers), acme);
}

/// Returns the data for all nodes that does not change while the server runs.
fn constants(settings: &Settings, peer_key: Secret) -> NetworkState {
    let service_cidrs = settings.cluster.service_cidrs().iter().copied().collect();
    NetworkState { peer_key: Some(peer_key), service_cidrs, ..NetworkState::default() }
}

fn authenticator(
    settings: &Settings,
    (vault, statuses): (&Arc<Vault>, &BTreeMap<String, Vec<u8>>),
    flow_key: Option<FlowKey>,
) -> Arc<Authenticator> {
    let policy = AuthPolicy { is_required: settings.is_auth_required, is_secure: settings.tls.is_some() };
    let oidc = verifier(settings.oidc.clone(), flow_key);
    Arc::new(Authenticator::of(Arc::clone(vault), policy, statuses, oidc))
}

/// Creates the verifier of ID tokens. Without its HTTP client, only the users of OpenID Connect are locked out.
fn verifier(settings: Option<OidcSettings>, flow_key: Option<FlowKey>) -> Option<Verifier> {
    let log = |error: &String| tracing::error!(error, "OpenID Connect is disabled: no HTTP client");
    Verifier::new(settings?, flow_key).inspect_err(log).ok()
}

/// Interval at which queued audit log entries are written to the store. Entries of accepted writes are not
/// queued: each is committed with its write.
const AUDIT_FLUSH: Duration = Duration::from_secs(1);

/// Interval at which expired audit log entries are deleted from the store.
const AUDIT_TRIM: Duration = Duration::from_secs(3600);

/// Interval at which reported data of deleted Nodes, Services and addresses is dropped.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// Running server: its shared state and the handles of its background tasks.
pub struct Running {
    /// State that handlers and background tasks share.
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
    /// Webhooks, and orders at ACME servers.
    outgoing: JoinHandle<()>,
    pacer: JoinHandle<()>,
}

impl Running {
    /// Ends all feeds (state streams to agents) and watches (change streams to clients), so that their
    /// connections can close.
    pub fn stop_streams(&self) {
        self.app.stop_streams.cancel();
    }

    /// Commits the queued writes, then stops the background tasks.
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
            outgoing,
            pacer,
        } = self;
        outgoing.abort();
        overview.abort();
        pacer.abort();
        series.abort();
        waiting.abort();
        vault.abort();
        health.abort();
        app.stop_streams.cancel();
        assigner.abort();
        app.stop_writer.cancel();
        if writer.await.is_err() {
            tracing::error!("the writer task panicked");
        }
        housekeeping.abort();
        audit.abort();
        app.audit.flush_all(&*app.store, app.source.now()).await;
    }
}

/// Runs the two pacers, which forward published states to feeds and to watches at a limited rate.
async fn pacer(app: Arc<ServerState>, [to_feeds, to_watches]: [watch::Receiver<Position>; 2]) {
    let feeds = app.feeding.pacer.run(&app.hub, to_feeds, (&app.feeds, FEEDS_MAX));
    let watches = app.watching.pacer.run(&app.hub, to_watches, (&app.watches, WATCHES_MAX));
    tokio::join!(feeds, watches);
}

async fn keep_audit(app: Arc<ServerState>) {
    let mut turn = tokio::time::interval(AUDIT_FLUSH);
    let mut old = tokio::time::interval(AUDIT_TRIM);
    loop {
        tokio::select! {
            _ = turn.tick() => app.audit.flush(&*app.store, app.source.now()).await,
            _ = old.tick() => {
                if let Err(error) = app.store.drop_old_audit(app.source.now()).await {
                    tracing::warn!(error = chain(&error), "cannot delete expired entries of the audit log");
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
        app.pages.forget_old(app.source.now());
        app.feeding.batches.forget();
        app.queries.forget_closed();
        app.plans.forget_old(app.source.now());
        app.authenticator.keep_uses(&*app.store).await;
        app.observations.forget_deleted(&*app.store, &published, app.source.now()).await;
    }
}
