//! What other control servers commit to the same store, learned and published as if it were our own.
//!
//! ```text
//! store.moved ─▶ changes after our revision ─▶ head: still our epoch? ─▶ publish ─▶ again until nothing is new
//!                    │ no longer kept                │ another life of the store
//!                    └────────────▶ the whole state is read anew ◀┘
//! ```
//! The changes are read before the head: epochs only rise, so what was read before a head of our epoch is of our epoch.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use model::cluster::{change::Commit, snapshot::Snapshot};
use store::{ChangesError, StoreError};

use super::{Context, NOTHING_NEW_PAUSE, RELOAD_PAUSE};
use crate::base::error_chain::Chain;
use crate::{state::published::Step, telemetry::metrics::Call};

/// Commits of others read and published at once: bounds memory, and the time in which own writes wait.
const COMMITS_AT_ONCE: usize = 256;

/// Follows what others wrote after the store said that they may have; says how long to wait before it is asked again.
pub(super) async fn pause_after(context: &Context, moved: Result<(), StoreError>) -> Duration {
    let learned = match moved {
        Ok(()) => catch_up(context).await,
        Err(error) => Err(error),
    };
    match learned {
        Ok(true) => Duration::ZERO,
        Ok(false) => NOTHING_NEW_PAUSE,
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "what other control servers write cannot be followed");
            context.metrics.follow_failures.inc();
            RELOAD_PAUSE
        }
    }
}

/// Learns what others have committed, up to the present; says whether there was anything.
pub(super) async fn catch_up(context: &Context) -> Result<bool, StoreError> {
    let started = Instant::now();
    let mut is_anything_new = false;
    let mut is_behind = false;
    loop {
        let published = context.hub.load();
        let at = published.position();
        let call = context.store.changes(at.revision, COMMITS_AT_ONCE);
        let commits = match context.metrics.time(Call::Changes, call).await {
            Ok(commits) => commits,
            Err(ChangesError::Compacted { .. }) => return read_anew(context).await.map(|()| true),
            Err(ChangesError::Unavailable(error)) => return Err(error),
        };
        let head = context.metrics.time(Call::Head, context.store.head()).await?;
        if head.epoch != at.epoch || head.revision < at.revision {
            return read_anew(context).await.map(|()| true);
        }
        if commits.is_empty() {
            if head == at {
                if is_anything_new {
                    context.metrics.followed(started.elapsed());
                }
                return Ok(is_anything_new);
            }
            // Once it is a commit between the two questions; twice, the log and the head contradict each other.
            if is_behind {
                return read_anew(context).await.map(|()| true);
            }
            is_behind = true;
            continue;
        }
        is_behind = false;
        let count = u64::try_from(commits.len()).unwrap_or(u64::MAX);
        let Some(steps) = steps(&published.snapshot, commits) else {
            tracing::error!(%at, "the commits of others do not follow the published state; it is read anew");
            return read_anew(context).await.map(|()| true);
        };
        context.metrics.follow_commits.inc_by(count);
        publish(context, steps);
        is_anything_new = true;
    }
}

/// Commits with the states around them; `None` when they do not follow the state without a gap.
pub(super) fn steps(snapshot: &Snapshot, commits: impl IntoIterator<Item = Commit>) -> Option<Vec<Step>> {
    let mut working = snapshot.clone();
    let step = |commit: Commit| {
        let after = working.follow(&commit)?;
        let before = std::mem::replace(&mut working, after.clone());
        Some(Step { before, after, commit })
    };
    commits.into_iter().map(step).collect()
}

/// Publishes commits that the store holds.
pub(super) fn publish(context: &Context, steps: Vec<Step>) {
    if steps.is_empty() {
        return;
    }
    let revisions: Vec<_> = steps.iter().map(|step| step.commit.revision).collect();
    // Noted first: an agent may be faster than this task.
    context.convergence.note(&revisions, Instant::now());
    context.hub.publish(steps);
    context.convergence.concerns_nodes(context.hub.load().nodes_head().revision);
}

/// Reads the state again after a failure left it in doubt; says whether that succeeded.
pub(super) async fn reload(context: &Context) -> bool {
    match read_anew(context).await {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(error = %Chain(&error), "the store cannot be read");
            false
        }
    }
}

/// Reads the whole state and publishes it: as the commits that lead to it where these are known, so that nobody who follows
/// has to begin again, and else from nothing.
async fn read_anew(context: &Context) -> Result<(), StoreError> {
    let loaded = context.metrics.time(Call::Load, context.store.load()).await?;
    let published = context.hub.load();
    let (at, to) = (published.position(), loaded.position);
    let is_ahead = to.epoch == at.epoch && to.revision >= at.revision;
    let missed = || loaded.recent.iter().filter(|commit| commit.revision > at.revision).cloned();
    let steps = if is_ahead { steps(&published.snapshot, missed()) } else { None };
    let leads_there = |steps: &Vec<Step>| {
        let last = steps.last().map_or(&published.snapshot, |step| &step.after);
        last.revision() == to.revision
            && *last == Snapshot::from_objects(to.revision, loaded.objects.iter().map(Arc::clone))
    };
    match steps.filter(leads_there) {
        Some(steps) => {
            tracing::info!(%at, position = %to, "the state was read anew, and follows the one before");
            publish(context, steps);
        }
        None => {
            tracing::info!(%at, position = %to, "the state was read anew");
            context.hub.reload(loaded);
        }
    }
    Ok(())
}
