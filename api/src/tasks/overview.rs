//! Cache of the overview, the document on the state of the cluster that `GET /v1/overview` returns. The
//! document is computed once for all clients, when its inputs have changed and a client requests or watches
//! it.
//!
//! ```text
//! commits ─────┐                      ┌─▶ GET /v1/overview, /v1/status
//! reports ─────┼─▶ at most every 250 ms ─▶ gather ─▶ model::overview ─▶ document ─▶ change line ─▶ every watcher
//! time (1 s) ──┘                      └─▶ each watcher that is behind: the difference to its document
//! ```
//! The change line is the serialized difference to the previous document. Without watchers the overview is
//! recomputed every 12 s if anything changed, so that the start times of problems are accurate for later
//! clients. A computation visits all Services, but recomputes only those whose inputs have changed
//! (`state::overview_services`). Clients that poll every ten seconds and the time series use the same document.

mod gather;
pub(crate) mod stream;
mod writes;

use crate::{
    context::server_state::ServerState,
    state::overview_cache::{Counts, Mark, OverviewCache, OverviewDocument, State},
};
use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use model::views::overview::{
    Overview,
    diff::{OverviewFrame, between},
};
use tokio::time::{Instant, MissedTickBehavior};

/// Minimum time between two documents. Four documents a second appear immediate to users and need little CPU time.
const PAUSE: Duration = Duration::from_millis(250);
/// Interval at which the task checks for changes that only the passing of time causes.
const TICK: Duration = Duration::from_secs(1);
/// Maximum age of the document while no client watches it: about a third of the time for which a problem counts as
/// new. The time series usually request the document earlier, every 10 s.
const PULSE: Duration = Duration::from_secs(12);

impl OverviewCache {
    /// Returns the current document, computed again if its inputs have changed; `None` if the server is stopping.
    pub(crate) async fn current(&self, app: &Arc<ServerState>) -> Option<Arc<OverviewDocument>> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        state.looked = Instant::now();
        let mark = self.mark(app);
        let known = self.newest.borrow().clone();
        if let (Some(known), Some(before)) = (known, &state.mark)
            && is_same(before, &mark)
        {
            state.known.memory.note_unchanged(mark.now);
            return Some(known);
        }
        let published = app.hub.load();
        let State { known, written, .. } = &mut *state;
        writes::follow(app, &published, &mut known.writes, written).await;
        let owned = Arc::clone(app);
        // Thousands of objects are visited: too long for an async worker thread.
        let worked = tokio::task::spawn_blocking(move || {
            let gathered = gather::gather(&owned, published, &mut state.known);
            (state, gathered)
        });
        let (mut state, (overview, counts, until)) = worked.await.ok()?;
        state.mark = Some(Mark { position: overview.position, until, ..mark });
        Some(self.show(&mut state, overview, counts))
    }

    /// Publishes a new document if `overview` differs from the newest document; otherwise only updates the
    /// counts of the newest document. Returns the document that is newest afterwards.
    fn show(&self, state: &mut State, overview: Overview, counts: Counts) -> Arc<OverviewDocument> {
        let known = self.newest.borrow().clone();
        let line = match &known {
            None => Bytes::new(),
            Some(known) => match between(&known.overview, &overview) {
                Some(change) => stream::json(&OverviewFrame::Change(Box::new(change))),
                None if known.counts == counts => return Arc::clone(known),
                None => return self.recount(known, counts),
            },
        };
        state.number += 1;
        let shown = Arc::new(OverviewDocument { number: state.number, overview, counts, line });
        self.newest.send_replace(Some(Arc::clone(&shown)));
        shown
    }

    /// Replaces the counts of the current document without notifying watchers.
    fn recount(&self, known: &Arc<OverviewDocument>, counts: Counts) -> Arc<OverviewDocument> {
        let OverviewDocument { number, overview, counts: _, line } = &**known;
        let shown = Arc::new(OverviewDocument {
            number: *number,
            overview: overview.clone(),
            counts,
            line: line.clone(),
        });
        self.newest.send_if_modified(|newest| {
            *newest = Some(Arc::clone(&shown));
            false
        });
        shown
    }

    /// Returns true if the last check of the inputs was at least [`PULSE`] ago. The task then checks them
    /// even though no client has requested the document.
    async fn is_unseen(&self) -> bool {
        self.state.lock().await.looked.elapsed() >= PULSE
    }

    fn mark(&self, app: &ServerState) -> Mark {
        let (position, now) = (app.hub.load().position(), app.source.now());
        let view = app.view();
        let nodes = view.table().views();
        Mark {
            position,
            news: self.trigger.changes(),
            is_leader: app.leadership.holds(),
            nodes: nodes.iter().map(|one| (one.is_reporting(), one.is_contested, one.is_lost)).collect(),
            now,
            dns_servers: app.dns_server_problems(),
            until: None,
        }
    }
}

/// Returns true if no input of the document has changed.
fn is_same(before: &Mark, now: &Mark) -> bool {
    let Mark { position, news, is_leader, nodes, now: at, dns_servers, until } = before;
    *position == now.position
        && *news == now.news
        && *is_leader == now.is_leader
        && *nodes == now.nodes
        && *dns_servers == now.dns_servers
        && (*at == now.now || until.is_none_or(|until| now.now < until))
}

/// Runs the task that keeps the overview current until the server stops.
pub(crate) async fn run(app: Arc<ServerState>) {
    let cache = &app.overview;
    let mut bell = app.hub.subscribe();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut is_due = cache.newest.receiver_count() > 0;
        tokio::select! {
            changed = bell.changed(), if is_due => if changed.is_err() { return },
            () = cache.trigger.recorded(), if is_due => {}
            _ = tick.tick() => is_due = is_due || cache.is_unseen().await,
        }
        if !is_due {
            continue;
        }
        let begun = Instant::now();
        if cache.current(&app).await.is_none() {
            return;
        }
        tokio::time::sleep_until(begun + PAUSE).await;
    }
}
