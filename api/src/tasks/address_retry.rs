//! Retry of pending load balancer addresses when time passes: quarantines end, and waiting Services get their
//! turn. The writer decides; this task only submits a request when there may be a decision to make.

use std::{sync::Arc, time::Duration};

use model::{
    admission::admit::{Operation, RETRIES_MAX, Request},
    cluster::snapshot::{PendingService, Snapshot},
    primitives::quantity::Timestamp,
};

use crate::context::server_state::ServerState;

/// Interval of checks: the resolution of quarantines. A check costs next to nothing.
const TURN: Duration = Duration::from_secs(1);

/// Runs until aborted; acts while this server is the leader. Services that are pending when leadership
/// begins, for example since an older version with other allocation rules, are retried at once.
pub(crate) async fn run(app: Arc<ServerState>) {
    let mut turn = tokio::time::interval(TURN);
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut after = None;
    let mut is_owed = false;
    let mut has_led = false;
    loop {
        turn.tick().await;
        let leads = app.leadership.holds();
        let begins = leads && !std::mem::replace(&mut has_led, leads);
        if !leads {
            after = None;
            continue;
        }
        let published = app.hub.load();
        let snapshot = &published.snapshot;
        is_owed = if begins { snapshot.pending_count() > 0 } else { is_owed };
        let is_due = is_owed || snapshot.pending_count() > RETRIES_MAX;
        if !(is_due || ends_by(snapshot, app.source.now())) {
            after = None;
            continue;
        }
        let next = last_of_turn(snapshot, after.as_ref());
        let request = Request { operations: vec![Operation::RetryPending { after }], ..Request::default() };
        if app.writer.write(request, app.source.draw(), 0).await.is_err() {
            tracing::debug!("a retry of pending Services was not written; it will be repeated");
        } else {
            is_owed = false;
        }
        after = next;
    }
}

fn ends_by(snapshot: &Snapshot, now: Timestamp) -> bool {
    snapshot.next_quarantine_end().is_some_and(|end| end <= now)
}

/// Returns the start of the next turn, or `None` if this turn reaches the end.
fn last_of_turn(snapshot: &Snapshot, after: Option<&PendingService>) -> Option<PendingService> {
    snapshot.pending(after).nth(RETRIES_MAX - 1).cloned()
}
