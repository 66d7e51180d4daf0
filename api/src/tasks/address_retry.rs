//! Task that retries the allocation of a load balancer address for each Service that has none, for example when
//! the quarantine of a released address ends, that lets cooldowns of blocks end, and that gives blocks to Nodes which an
//! earlier write left without one. The task submits a request only if a retry may succeed; the writer
//! allocates the address.

use std::sync::Arc;

use model::{
    admission::admit::{Operation, RETRIES_MAX, Request, next_block_change},
    cluster::snapshot::{PendingService, Snapshot},
    kinds::resource::Kind,
    primitives::quantity::{Position, Revision, Timestamp},
};

use super::leader_task::LeaderTask;
use crate::{context::server_state::ServerState, security::Caller, state::published::Published};

/// State of the task that retries the allocation of load balancer addresses.
pub(crate) struct AddressRetry {
    app: Arc<ServerState>,
    seen: Position,
    /// Last Service that the previous request covered; the next request continues after it. `None` if the
    /// next request starts with the first Service.
    after: Option<PendingService>,
    /// True if the next run retries the Services without an address although no quarantine has ended. `None`
    /// before the first run as the leader, which sets it to true if such Services exist: an older version
    /// with other allocation rules may have left them.
    is_owed: Option<bool>,
    /// State of the blocks at the last request: if it is unchanged, another request gives no block.
    tried: Option<BlockLack>,
}

/// Number of Nodes without a block, and number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockLack {
    lacking: usize,
    blocks: usize,
}

impl BlockLack {
    fn of(snapshot: &Snapshot) -> Self {
        Self { lacking: snapshot.lacking_block_count(), blocks: snapshot.count(Kind::Block) }
    }
}

impl LeaderTask for AddressRetry {
    fn new(app: Arc<ServerState>) -> Self {
        Self { app, seen: Position::default(), after: None, is_owed: None, tried: None }
    }

    fn seen(&mut self) -> &mut Position {
        &mut self.seen
    }

    async fn triggered(_: &ServerState) {
        // Reports do not affect addresses.
        std::future::pending().await
    }

    fn apply_changes(&mut self, _: &Published, _: Revision) -> Option<()> {
        Some(())
    }

    fn begin_anew(&mut self, _: &Published) {}

    fn apply_triggers(&mut self) {}

    async fn tick(&mut self, leads: bool) {
        if leads {
            self.retry().await;
        }
    }

    async fn decide(&mut self) {}

    fn discard(&mut self) {
        self.after = None;
    }
}

impl AddressRetry {
    /// Submits one request to allocate addresses to Services without one. Does so only if a quarantine, a cooldown of a
    /// block or the grace period of a lost Node has ended, one request cannot cover all of these Services, Nodes lack blocks that a request may give, or `is_owed` is true.
    async fn retry(&mut self) {
        let published = self.app.hub.load();
        let snapshot = &published.snapshot;
        let is_owed = *self.is_owed.get_or_insert_with(|| snapshot.pending_count() > 0);
        let lack = BlockLack::of(snapshot);
        let is_block_due = lack.lacking > 0 && self.tried != Some(lack);
        let is_due = is_owed || is_block_due || snapshot.pending_count() > RETRIES_MAX;
        if !(is_due || ends_by(snapshot, self.app.source.now())) {
            self.after = None;
            return;
        }
        let next = last_of_turn(snapshot, self.after.as_ref());
        let operations = vec![Operation::RetryPending { after: self.after.take() }];
        let request = Request { operations, ..Request::default() };
        let entropy = self.app.source.draw();
        if self.app.writer.write(&Caller::server(), request, entropy, 0).await.is_err() {
            tracing::debug!("a retry of pending Services was not written; it will be repeated");
        } else {
            self.is_owed = Some(false);
            self.tried = Some(lack);
        }
        self.after = next;
    }
}

fn ends_by(snapshot: &Snapshot, now: Timestamp) -> bool {
    snapshot.next_quarantine_end().into_iter().chain(next_block_change(snapshot)).any(|end| end <= now)
}

/// Returns the last Service that a request starting after `after` covers; `None` if the request covers all
/// remaining Services without an address.
fn last_of_turn(snapshot: &Snapshot, after: Option<&PendingService>) -> Option<PendingService> {
    snapshot.pending(after).nth(RETRIES_MAX - 1).cloned()
}
