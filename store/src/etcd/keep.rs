//! Maintenance of the etcd store by its leading process. The leader folds the change log into the objects
//! (see `fold`), deletes entries of the log and the history beyond their retention limits, deletes pieces of
//! large values whose commit failed, and compacts etcd's own history. Two concurrent leaders are harmless,
//! because each step compares the etcd key `base`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::sleep};

use super::{Core, fold, options::EtcdOptions, past::Past, read, trim};
use crate::StoreError;

/// Interval at which the leader checks if maintenance is necessary.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum age of log entries before they are folded into the objects. Startup reads both the old object and
/// the log entry until then.
const FOLD_AGE: Duration = Duration::from_secs(60);
/// Number of log bytes not yet folded into the objects that triggers folding.
const FOLD_BYTES: usize = 8 * 1024 * 1024;
/// Interval of searches for orphaned pieces of large values.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// State of the maintenance task of the leader.
struct Keeper {
    fold_after: usize,
    folded_at: Instant,
    swept_at: Option<Instant>,
    past: Past,
}

/// Maintains the store whenever this process is the leader, until the store is dropped.
pub(super) async fn run(
    core: Arc<Core>,
    options: EtcdOptions,
    mut leads: watch::Receiver<bool>,
    mut alive: watch::Receiver<()>,
) {
    let work = async {
        while leads.wait_for(|leads| *leads).await.is_ok() {
            let mut keeper = Keeper {
                fold_after: options.fold_after,
                folded_at: Instant::now(),
                swept_at: None,
                past: Past::new(options.growth_bytes_max),
            };
            while *leads.borrow() {
                if let Err(error) = keeper.look(&core).await {
                    tracing::debug!(error = %crate::error::Chain(&error), "cannot fold the log");
                }
                sleep(LOOK).await;
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = alive.changed() => {}
    }
}

impl Keeper {
    async fn look(&mut self, core: &Core) -> Result<(), StoreError> {
        let base = fold::base(core).await?;
        let (head, at) = (base.head.position.revision, base.head.at);
        let waiting = head.0.saturating_sub(base.revision.0);
        let bytes = core.mirror.lock().await.as_ref().map_or(0, |known| known.bytes_after(base.revision));
        let is_due =
            waiting >= self.fold_after as u64 || bytes >= FOLD_BYTES || self.folded_at.elapsed() >= FOLD_AGE;
        if waiting > 0 && is_due {
            let base = fold::fold(core, base).await?;
            self.folded_at = Instant::now();
            trim::trim(core, &base).await?;
        }
        if self.swept_at.is_none_or(|swept| swept.elapsed() >= SWEEP_EVERY) {
            self.swept_at = Some(Instant::now());
            trim::sweep(core, head).await?;
        }
        self.forget(core, at).await
    }

    /// Records the current etcd revision `at`. If etcd's own history must be compacted because of its age or
    /// size (see [`Past`]), compacts it up to an older revision.
    async fn forget(&mut self, core: &Core, at: i64) -> Result<(), StoreError> {
        // Without permission for the status request, compaction is by age only.
        let room = core.link.room().await.ok();
        let Some(revision) = self.past.note(Instant::now(), at, room) else { return Ok(()) };
        tracing::debug!(revision, used = room.map(|room| room.used), "compacting etcd");
        match core.link.compact(revision).await {
            // Another process has compacted more.
            Ok(()) | Err(super::link::Failure::Compacted { .. }) => Ok(()),
            Err(failure) => Err(read::reading(failure)),
        }
    }
}
