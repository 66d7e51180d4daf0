//! Processing of a group of writes. The group is decided: each write is validated against the published state
//! and the writes before it, and its changes are computed. Then the group is committed and published, and the
//! callers get their results.
//!
//! A decision is valid only for the current state of the store. If another control server has committed first, its
//! commits are read and the group is decided again from the beginning. The results of a group without changes
//! depend on the state as well: on a shared store they are sent only if the store has not changed since.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use ::base::chain;
use model::{
    admission::admit::{AdmittedWrite, admit},
    cluster::{
        change::{Change, ChangeKind, Commit},
        history::{Origin, RevisedObject, RevisionEntry},
        snapshot::Snapshot,
    },
    primitives::{quantity::Position, trace_parent::TraceParent},
};
use store::{AuditRecord, CommitError};

use super::{Context, PendingService, WriteError, Written, answer_all, follow};
use crate::{
    security::{Caller, audit_draft::AuditDraft},
    state::published::Step,
    telemetry::metrics::Call,
};

/// Maximum number of times a group is decided again because another control server has committed first. A
/// server that loses so often reaches the store much more slowly than the others; its clients should get an
/// error instead of waiting.
const REDECISIONS_MAX: u32 = 16;
/// Amount by which the upper limit of the random pause grows with each conflict.
const BACKOFF_STEP: Duration = Duration::from_millis(4);
/// Upper limit of the random pause before a group is decided again.
const BACKOFF_MAX: Duration = Duration::from_millis(64);

/// Decisions about a group of writes, made on the state at one position.
struct DecidedGroup {
    at: Position,
    steps: Vec<Step>,
    history: Vec<RevisionEntry>,
    audit: Vec<AuditRecord>,
    /// Audit data of the requests with an entry in `audit`, which are marked as stored after the commit.
    audited: Vec<Arc<AuditDraft>>,
    /// Result of each write, in the order of the group.
    answers: Vec<Result<Written, WriteError>>,
    /// Commits whose requests are recorded in traces.
    traced: Vec<TracedCommit>,
}

/// Commit of a request that is recorded in a trace.
struct TracedCommit {
    position: Position,
    parent: TraceParent,
    queued_at: SystemTime,
}

/// Decides, commits and publishes a group of writes, and sends the results to the callers. Returns true if the
/// outcome of the commit is unknown, so that the state must be loaded again.
pub(super) async fn carry_out(context: &Context, group: Vec<PendingService>) -> bool {
    let started = Instant::now();
    for attempt in 0..=REDECISIONS_MAX {
        let decided = decide(context, &group);
        let has_steps = !decided.steps.is_empty();
        match settle(context, &decided).await {
            Ok(()) => {
                if has_steps {
                    context.has_failed.store(false, Ordering::Relaxed);
                }
                finish(context, group, decided, started);
                return false;
            }
            Err(CommitError::Stale { current }) => {
                tracing::debug!(at = %decided.at, %current, attempt, "another control server committed \
                                                                      first");
                context.metrics.commit_conflicts.inc();
                if let Err(error) = follow::catch_up(context).await {
                    tracing::error!(
                        error = chain(&error),
                        "cannot read the commits of other control \
                                                             servers"
                    );
                    answer_all(group, || Err(WriteError::Unavailable));
                    return true;
                }
                tokio::time::sleep(backoff(attempt)).await;
            }
            Err(error) => {
                let size = group.len();
                tracing::error!(error = chain(&error), writes = size, "cannot commit a group");
                context.metrics.commit_failures.inc();
                context.has_failed.store(matches!(error, CommitError::Unavailable(_)), Ordering::Relaxed);
                answer_all(group, || Err(refuse(&error, size)));
                // A group that is too large for the store, or changes nothing, leaves the published state
                // certain.
                return has_steps && !matches!(error, CommitError::TooLarge { .. });
            }
        }
    }
    tracing::warn!(writes = group.len(), "other control servers committed first in every attempt");
    answer_all(group, || Err(WriteError::Contended));
    false
}

/// Decides each write of a group in order: validates it against the state that results from the previous
/// writes, and computes its changes.
fn decide(context: &Context, group: &[PendingService]) -> DecidedGroup {
    let published = context.hub.load();
    let at = published.position();
    let mut working = published.snapshot.clone();
    let (mut steps, mut history, mut audit) = (Vec::new(), Vec::new(), Vec::new());
    let (mut audited, mut answers, mut traced) = (Vec::new(), Vec::new(), Vec::new());
    for PendingService { request, entropy, caller, bytes: _, queued_at, reply: _ } in group {
        let Some(request) = request else {
            let position = Position { epoch: at.epoch, revision: working.revision() };
            answers.push(Ok(Written { position, outcomes: Vec::new() }));
            continue;
        };
        let admitted = admit(&working, &context.cluster, request, entropy).map_err(WriteError::Refused);
        let answer = admitted.and_then(|admitted| permit(caller, admitted));
        let answer = answer.map(|AdmittedWrite { snapshot, changes, outcomes }| {
            let revision = snapshot.revision();
            let before = std::mem::replace(&mut working, snapshot.clone());
            if !changes.is_empty() {
                let commit = Commit { revision, at: entropy.now, changes };
                let origin = caller.origin();
                if let Some(draft) = caller.draft() {
                    draft.record_accepted(revision, &outcomes);
                    audit.push(context.audit.accepted(origin.clone(), draft, (entropy.now, revision)));
                    audited.push(Arc::clone(draft));
                }
                if let Some(parent) = caller.trace() {
                    let position = Position { epoch: at.epoch, revision };
                    traced.push(TracedCommit { position, parent, queued_at: *queued_at });
                }
                history.push(entry_of(&before, &commit, origin));
                steps.push(Step { before, after: snapshot, commit });
            }
            Written { position: Position { epoch: at.epoch, revision }, outcomes }
        });
        answers.push(answer);
    }
    DecidedGroup { at, steps, history, audit, audited, answers, traced }
}

/// Returns the write if the caller has the permissions for the objects that it prunes. This check needs the
/// current state, on which the pruned objects depend. The permissions for the objects named in the request
/// were checked before the write was queued, so that a rejected caller learns nothing about the state.
fn permit(caller: &Caller, admitted: AdmittedWrite) -> Result<AdmittedWrite, WriteError> {
    let violations = caller.access().prunes_refused(&admitted.outcomes);
    if violations.is_empty() { Ok(admitted) } else { Err(WriteError::Forbidden(violations)) }
}

/// Returns the history entry of a commit: author and reason, and the objects before and after.
fn entry_of(before: &Snapshot, commit: &Commit, origin: Origin) -> RevisionEntry {
    let revised = |change: &Change| {
        let key = change.object.key();
        let after = match change.kind {
            ChangeKind::Added | ChangeKind::Modified => Some(Arc::clone(&change.object)),
            ChangeKind::Deleted => None,
        };
        RevisedObject { before: before.get(&key).cloned(), after, key }
    };
    let objects = commit.changes.iter().map(revised).collect();
    RevisionEntry { revision: commit.revision, at: commit.at, origin, objects }
}

/// Commits a decided group if the store is still at the position on which the group was decided; otherwise
/// returns [`CommitError::Stale`]. If the group has no changes, only checks the position, and only of a
/// shared store.
async fn settle(context: &Context, decided: &DecidedGroup) -> Result<(), CommitError> {
    let DecidedGroup { at, steps, history, audit, audited: _, answers: _, traced: _ } = decided;
    if !steps.is_empty() {
        let commits: Vec<Commit> = steps.iter().map(|step| step.commit.clone()).collect();
        let call = context.store.commit_with_records(*at, &commits, history, audit);
        return context.metrics.time(Call::Commit, call).await;
    }
    if !context.store.is_shared() {
        return Ok(());
    }
    let current = context.metrics.time(Call::Head, context.store.head()).await?;
    if current == *at { Ok(()) } else { Err(CommitError::Stale { current }) }
}

fn finish(context: &Context, group: Vec<PendingService>, decided: DecidedGroup, started: Instant) {
    let DecidedGroup { at: _, steps, history: _, audit: _, audited, answers, traced } = decided;
    audited.iter().for_each(|draft| draft.record_stored());
    context.metrics.group(answers.len(), steps.len(), started.elapsed());
    let start =
        |TracedCommit { position, parent, queued_at }| context.traces.start(position, parent, queued_at);
    // The spans end when the commits are published.
    let _spans: Vec<_> = traced.into_iter().map(start).collect();
    follow::publish(context, steps);
    for (pending, answer) in group.into_iter().zip(answers) {
        // A write stays committed even if its client has disconnected.
        let _ = pending.reply.send(answer);
    }
}

fn refuse(error: &CommitError, group_size: usize) -> WriteError {
    match error {
        CommitError::TooLarge { .. } if group_size == 1 => WriteError::TooLarge(error.to_string()),
        CommitError::TooLarge { .. }
        | CommitError::Stale { .. }
        | CommitError::Malformed(_)
        | CommitError::Unavailable(_) => WriteError::Unavailable,
    }
}

/// Returns the random pause before an attempt, which keeps competing servers from colliding repeatedly. No pause
/// before the first attempt.
fn backoff(attempt: u32) -> Duration {
    let longest = BACKOFF_STEP.saturating_mul(attempt).min(BACKOFF_MAX);
    let thousandths = u32::try_from(RandomState::new().hash_one(attempt) % 1000).unwrap_or_default();
    longest * thousandths / 1000
}
