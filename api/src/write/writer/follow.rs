//! Reader of the commits that other control servers make to a shared store, which are published like the server's
//! own commits.
//!
//! ```text
//! store.moved ─▶ changes after our revision ─▶ head: still our epoch? ─▶ publish ─▶ repeat until nothing is new
//!                    │ no longer kept                │ another epoch
//!                    └────────────▶ the whole state is reloaded ◀┘
//! ```
//! The call `store.moved` waits until another server may have written. If the store no longer has all changes
//! after the published revision, or another process has replaced its contents (a new epoch), the state is
//! reloaded.
//!
//! The changes are read before the store's newest position (`head`). Epochs only increase, so that the changes
//! belong to the published epoch if a head that is read after them does.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::base::chain;
use model::cluster::{change::Commit, snapshot::Snapshot};
use store::{ChangesError, StoreError};

use super::{Context, NOTHING_NEW_PAUSE, RELOAD_PAUSE};
use crate::{state::published::Step, telemetry::metrics::Call};

/// Maximum number of commits that are read and published at once. Limits the memory for them, and the time
/// for which the server's own writes must wait.
const COMMITS_AT_ONCE: usize = 256;

/// Reads new commits after a change notification. Returns the pause before the next read.
pub(super) async fn pause_after(context: &Context, moved: Result<(), StoreError>) -> Duration {
    let learned = match moved {
        Ok(()) => catch_up(context).await,
        Err(error) => Err(error),
    };
    match learned {
        Ok(true) => Duration::ZERO,
        Ok(false) => NOTHING_NEW_PAUSE,
        Err(error) => {
            tracing::warn!(error = chain(&error), "cannot read the commits of other control servers");
            context.metrics.follow_failures.inc();
            RELOAD_PAUSE
        }
    }
}

/// Reads and publishes the new commits of other servers. Returns true if there were any.
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
            // Seen once, this is a commit between the two calls; seen twice, log and head contradict each
            // other.
            if is_behind {
                return read_anew(context).await.map(|()| true);
            }
            is_behind = true;
            continue;
        }
        is_behind = false;
        let count = u64::try_from(commits.len()).unwrap_or(u64::MAX);
        let Some(steps) = steps(&published.snapshot, commits) else {
            tracing::error!(%at, "the commits of other servers do not continue the published state; \
                                  reloading the state");
            return read_anew(context).await.map(|()| true);
        };
        context.metrics.follow_commits.inc_by(count);
        publish(context, steps);
        is_anything_new = true;
    }
}

/// Pairs each commit with the snapshots before and after it. Returns `None` if a revision after that of the
/// snapshot is missing.
pub(super) fn steps(snapshot: &Snapshot, commits: impl IntoIterator<Item = Commit>) -> Option<Vec<Step>> {
    let mut working = snapshot.clone();
    let step = |commit: Commit| {
        let after = working.apply(&commit)?;
        let before = std::mem::replace(&mut working, after.clone());
        Some(Step { before, after, commit })
    };
    commits.into_iter().map(step).collect()
}

/// Publishes commits that are already in the store, and starts their convergence records.
pub(super) fn publish(context: &Context, steps: Vec<Step>) {
    if steps.is_empty() {
        return;
    }
    let revisions: Vec<_> = steps.iter().map(|step| step.commit.revision).collect();
    // Recorded first, because an agent may report before this task continues.
    context.convergence.record_revisions(&revisions, Instant::now());
    context.hub.publish(steps);
    context.convergence.concerns_nodes(context.hub.load().nodes_head().revision);
}

/// Loads the state again after a failed commit whose outcome is unknown. Returns false if the store cannot be
/// read.
pub(super) async fn reload(context: &Context) -> bool {
    match read_anew(context).await {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(error = chain(&error), "the store cannot be read");
            false
        }
    }
}

/// Loads the state from the store and publishes it. If the state continues the published one, and all commits
/// in between are available, publishes these commits, so that feeds (state streams to agents) and watches
/// continue. Otherwise replaces the published state; all feeds and watches then start over.
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
            && *last
                == Snapshot::from_objects(to.revision, loaded.objects.iter().map(Arc::clone))
                    .with_default_checks(last.default_checks().clone())
    };
    match steps.filter(leads_there) {
        Some(steps) => {
            tracing::info!(%at, position = %to, "reloaded the state, which continues the previous one");
            publish(context, steps);
        }
        None => {
            tracing::info!(%at, position = %to, "reloaded the state");
            context.hub.reload(loaded);
        }
    }
    Ok(())
}
