//! Server state shared by all handlers, and the start and stop of the background tasks.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use model::{
    cluster::config::ClusterConfig,
    observed::dns_servers::{DnsServerProblem, DnsServers},
    primitives::{name::Name, quantity::Position},
};
use store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    base::{
        assets::Assets,
        clock_and_random::Source,
        config::Settings,
        error::{Answer, Code, Problem},
    },
    security::{Authenticator, Caller, account::Account, authority::Authority, vault::Vault},
    state::announced_cache::AnnouncedCache,
    state::plan_cache::PlanCache,
    state::{
        idempotency::Idempotency,
        leadership::Leadership,
        lineage::Lineage,
        object_view::View,
        observations::Observations,
        overview_cache::OverviewCache,
        paging::{PAGE_BYTES_MAX, Pages},
        published::{Hub, Published},
        queries::NodeQueries,
        render_pool::RenderPool,
        response_budget::{RequestClass, RequestPermit, ResponseBudget},
        series::SeriesBook,
    },
    stream::{node_feed::Feeding, watching::Watching},
    telemetry::metrics::Metrics,
    write::{audit::AuditLog, refusal::problem, writer::Writer},
};

/// Maximum number of open feeds (streams of state to node agents): two for each node of the largest supported
/// cluster, because the previous feed of a reconnecting agent may still be open.
pub(crate) const FEEDS_MAX: usize = 2048;
/// Maximum number of open watches of all clients together.
pub const WATCHES_MAX: usize = 1024;
/// Maximum number of concurrent backups; each one holds the whole state in memory.
pub(crate) const BACKUPS_MAX: usize = 1;
/// Maximum time that a request waits until this server has reached a position (epoch and revision) that
/// another control server has already returned. Replication takes milliseconds; a server that needs longer is
/// probably cut off from the store, and the client should use another server.
const BEHIND_PATIENCE: Duration = Duration::from_secs(5);
/// `Retry-After` if this server has not reached the requested position, in seconds.
const BEHIND_RETRY_SECS: u32 = 1;
/// `Retry-After` if too many watches are open, in seconds.
const WATCH_RETRY_SECS: u32 = 10;
/// State of the server that every handler and task shares.
pub struct ServerState {
    pub(crate) settings: Settings,
    pub(crate) cluster: Arc<ClusterConfig>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) leadership: Leadership,
    pub(crate) vault: Arc<Vault>,
    /// Certificate authority for agent certificates; `None` if the server runs without TLS.
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) hub: Arc<Hub>,
    /// Detector for an older copy of the store.
    pub(crate) lineage: Lineage,
    pub(crate) feeding: Arc<Feeding>,
    pub(crate) watching: Watching,
    pub(crate) writer: Writer,
    /// Reports of the agents, and data merged from them.
    pub(crate) observations: Arc<Observations>,
    pub(crate) queries: Arc<NodeQueries>,
    pub(crate) plans: PlanCache,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) overview: Arc<OverviewCache>,
    /// Announced addresses, which DNS servers follow.
    pub(crate) announced: AnnouncedCache,
    /// Reports of the DNS servers, which are not stored.
    pub(crate) dns_servers: Mutex<DnsServers>,
    pub(crate) pages: Pages,
    pub(crate) idempotency: Arc<Idempotency>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) metrics: Arc<Metrics>,
    /// Cache of the files of the status page, with their compressed forms.
    pub(crate) assets: Arc<Assets>,
    /// Time series of the last hour, for charts.
    pub(crate) series: SeriesBook,
    /// True if the last group commit (several writes in one transaction) failed; the readiness check reads
    /// this flag.
    pub(crate) has_failed: Arc<AtomicBool>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) feeds: Arc<Semaphore>,
    pub(crate) watches: Arc<Semaphore>,
    /// Limits on requests in progress and on unsent response bytes.
    pub(crate) responses: Arc<ResponseBudget>,
    /// Threads that render large responses.
    pub(crate) renders: RenderPool,
    pub(crate) backups: Arc<Semaphore>,
    /// Token that is cancelled at shutdown to end feeds and watches.
    pub(crate) stop_streams: CancellationToken,
    pub(crate) stop_writer: CancellationToken,
}

impl ServerState {
    /// Returns a view of the newest published state, combined with the current reports of agents.
    pub(crate) fn view(&self) -> View<'_> {
        self.view_of(self.hub.load())
    }

    /// Returns the number of DNS servers that have not been silent for an hour.
    pub(crate) fn dns_server_count(&self) -> usize {
        self.dns_servers.lock().unwrap_or_else(PoisonError::into_inner).count(self.source.now())
    }

    /// Returns the DNS servers that have problems now, with their problems.
    pub(crate) fn dns_server_problems(&self) -> Vec<(Name, Vec<DnsServerProblem>)> {
        self.dns_servers.lock().unwrap_or_else(PoisonError::into_inner).problems(self.source.now())
    }

    /// Returns a view of the given state, combined with the current reports of agents.
    pub(crate) fn view_of(&self, published: Arc<Published>) -> View<'_> {
        View::new(published, &self.observations, self.source.now())
    }
}

impl ServerState {
    /// Counts an open watch of a caller until the returned permits are dropped.
    ///
    /// # Errors
    /// Returns a problem if the caller, or all callers together, have too many open watches.
    pub(crate) fn open_watch(
        &self,
        caller: &Caller,
    ) -> Result<(OwnedSemaphorePermit, RequestPermit), Problem> {
        let all = Arc::clone(&self.watches).try_acquire_owned().ok();
        let own = self.responses.enter(caller.account(), RequestClass::Watch).ok();
        all.zip(own).ok_or_else(|| {
            Problem::new(Code::TooManyRequests, "too many watches are open").retry_after(WATCH_RETRY_SECS)
        })
    }

    /// Renders a response that may be large on a thread outside the runtime's workers. Handlers of reads whose
    /// cost depends on the number of objects use this function.
    ///
    /// # Errors
    /// Returns a problem if the caller has not read its earlier responses, or the problem of `render`.
    pub(crate) async fn render(
        self: &Arc<Self>,
        caller: &Caller,
        render: impl FnOnce() -> Answer + Send + 'static,
    ) -> Answer {
        let account = caller.account().clone();
        let check = |responses: &ResponseBudget, account: &Account| {
            let room = responses.check_room(account, PAGE_BYTES_MAX as u64);
            room.map_err(|exceeded| exceeded.problem(account))
        };
        check(&self.responses, &account)?;
        let (responses, own) = (Arc::clone(&self.responses), account.clone());
        let render = move || {
            // Earlier requests of the caller have been answered meanwhile.
            check(&responses, &own)?;
            render()
        };
        self.renders.run(&account, render).await
    }

    /// Waits until this server has published the state at `position`, which another control server may have
    /// published before.
    ///
    /// # Errors
    /// Returns a problem with code `Behind` if the position is not reached within [`BEHIND_PATIENCE`], or if the
    /// store is not shared and the position is newer than the state.
    pub(crate) async fn reach(&self, position: Position) -> Result<(), Problem> {
        let present = self.hub.load().position();
        if position <= present || (self.store.is_shared() && self.hub.reach(position, BEHIND_PATIENCE).await)
        {
            return Ok(());
        }
        let detail =
            format!("this control server is at {}, not yet at {position}", self.hub.load().position());
        let problem = Problem::new(Code::Behind, detail).hint("try again, or use another control server");
        Err(problem.retry_after(BEHIND_RETRY_SECS))
    }

    /// Returns true if changes after a position may be sent to a client that holds it. False if the position may belong to
    /// another history, because this server's store is an older copy.
    pub(crate) fn may_resume(&self, held: Position) -> bool {
        self.store.is_shared() || self.lineage.may_resume(held)
    }

    /// Records the position that the agent of a node holds. Only agents are believed to be ahead of the store: of other
    /// clients, everybody with a token could claim it.
    pub(crate) fn observe_position(&self, node: &Name, held: Position) {
        let present = self.hub.load().position();
        if !self.store.is_shared() && self.lineage.observe(held, present) {
            tracing::error!(
                %node,
                %held,
                %present,
                "the store is an older copy: the agent of the node has seen later changes, which are lost. Start the server \
                 with the newest database, or once with --new-epoch"
            );
        }
    }

    /// Waits until the published state includes every commit of the store, including those of other servers.
    /// Returns immediately if the store cannot be shared with other servers.
    pub(crate) async fn confirm(&self) -> Result<(), Problem> {
        if self.store.is_shared() {
            let confirmed = self.writer.confirm().await;
            // A confirmation names no objects, so the problem does not depend on the caller.
            confirmed.map_err(|error| problem(error, Caller::server().access()))?;
        }
        Ok(())
    }

    /// Runs `decide` (a check before a write) on the published state. If it fails and the store is shared, runs it
    /// once more on a state that includes every commit of the store, because the client may have read a newer
    /// state from another control server.
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
}
