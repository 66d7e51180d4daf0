//! What is to be done once for all servers: fold the log into the objects, drop what is old, sweep what was left behind, and
//! let etcd forget its own history. The leader does it; two at once do no harm, because each step compares `base`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::sleep};

use super::{Core, fold, options::EtcdOptions, past::Past, read, trim};
use crate::StoreError;

/// How often it is looked whether there is something to do.
const LOOK: Duration = Duration::from_secs(1);
/// How long a commit stays unfolded at most while the leader is there: a start reads it twice until then.
const FOLD_AGE: Duration = Duration::from_secs(60);
/// Bytes of the log that wait to be folded before that is done.
const FOLD_BYTES: usize = 8 * 1024 * 1024;
/// How often it is looked for pieces of commits that were never made.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// What the keeper remembers from look to look.
struct Keeper {
    fold_after: usize,
    folded_at: Instant,
    swept_at: Option<Instant>,
    past: Past,
}

/// Runs until the store is dropped.
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
                    tracing::debug!(error = %crate::error::Chain(&error), "the log was not folded");
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

    /// Notes a revision of etcd, and lets etcd drop what is older than one of a while ago.
    async fn forget(&mut self, core: &Core, at: i64) -> Result<(), StoreError> {
        // A user who may not ask is forgotten for by time alone.
        let room = core.link.room().await.ok();
        let Some(revision) = self.past.note(Instant::now(), at, room) else { return Ok(()) };
        tracing::debug!(revision, used = room.map(|room| room.used), "etcd forgets what was before");
        match core.link.compact(revision).await {
            // Somebody else has dropped more.
            Ok(()) | Err(super::link::Failure::Compacted { .. }) => Ok(()),
            Err(failure) => Err(read::reading(failure)),
        }
    }
}
