//! A group of writes: decided on the published state, committed, published, answered.
//!
//! A decision counts only on the state that the store holds. Where that is another one, because another control server
//! was faster, the others' commits are learned and the group is decided again from the beginning. A group that changes
//! nothing rests on the state as well: on a store that is shared, the head is compared before anybody is answered.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use model::{
    admission::admit::{Admitted, Outcome, admit},
    cluster::{
        change::{Change, ChangeKind, Commit},
        history::{Origin, Revised, RevisionEntry},
        snapshot::Snapshot,
    },
    primitives::{quantity::Position, violation::Violation},
};
use store::{AuditRecord, CommitError};

use super::{Context, Pending, WriteError, Written, answer_all, follow};
use crate::base::error_chain::Chain;
use crate::{state::published::Step, telemetry::metrics::Call, write::caller::Caller};

/// Times that a group is decided again because others were faster. Each time somebody else's write succeeded; who loses so
/// often meets writers that are much nearer to the store, and is better told than kept waiting.
const REDECISIONS_MAX: u32 = 16;
/// The longest pause before a group is decided again, after the first times; it grows with each.
const BACKOFF_STEP: Duration = Duration::from_millis(4);
/// The longest pause at all.
const BACKOFF_MAX: Duration = Duration::from_millis(64);

/// A group as it was decided on one state.
struct Decided {
    at: Position,
    steps: Vec<Step>,
    history: Vec<RevisionEntry>,
    audit: Vec<AuditRecord>,
    audited: Vec<Arc<Caller>>,
    /// In the order of the group.
    answers: Vec<Result<Written, WriteError>>,
}

/// Decides, commits, publishes and answers a group; says whether the state is in doubt after it.
pub(super) async fn carry_out(context: &Context, group: Vec<Pending>) -> bool {
    let started = Instant::now();
    for attempt in 0..=REDECISIONS_MAX {
        let decided = decide(context, &group);
        let has_steps = !decided.steps.is_empty();
        match settle(context, &decided).await {
            Ok(()) => {
                if has_steps {
                    context.has_failed.store(false, Ordering::Relaxed);
                }
                conclude(context, group, decided, started);
                return false;
            }
            Err(CommitError::Stale { current }) => {
                tracing::debug!(at = %decided.at, %current, attempt, "another control server was faster");
                context.metrics.commit_conflicts.inc();
                if let Err(error) = follow::catch_up(context).await {
                    tracing::error!(error = %Chain(&error), "what others have written cannot be read");
                    answer_all(group, || Err(WriteError::Unavailable));
                    return true;
                }
                tokio::time::sleep(backoff(attempt)).await;
            }
            Err(error) => {
                let size = group.len();
                tracing::error!(error = %Chain(&error), writes = size, "a group was not committed");
                context.metrics.commit_failures.inc();
                context.has_failed.store(matches!(error, CommitError::Unavailable(_)), Ordering::Relaxed);
                answer_all(group, || Err(refuse(&error, size)));
                // A group that the store found too large, or that changes nothing, leaves the published state in no doubt.
                return has_steps && !matches!(error, CommitError::TooLarge { .. });
            }
        }
    }
    tracing::warn!(writes = group.len(), "other control servers were faster, time after time");
    answer_all(group, || Err(WriteError::Contended));
    false
}

/// Admits each write on the state that those before it lead to.
fn decide(context: &Context, group: &[Pending]) -> Decided {
    let published = context.hub.load();
    let at = published.position();
    let mut working = published.snapshot.clone();
    let (mut steps, mut history, mut audit) = (Vec::new(), Vec::new(), Vec::new());
    let (mut audited, mut answers) = (Vec::new(), Vec::new());
    for Pending { request, entropy, origin, caller, bytes: _, reply: _ } in group {
        let Some(request) = request else {
            let position = Position { epoch: at.epoch, revision: working.revision() };
            answers.push(Ok(Written { position, outcomes: Vec::new() }));
            continue;
        };
        let answer = match admit(&working, &context.cluster, request, entropy) {
            Err(refusal) => Err(WriteError::Refused(refusal)),
            // Here, because only the state that it is decided on says what goes besides what the write names.
            Ok(Admitted { outcomes, .. }) if !refused(caller.as_deref(), &outcomes).is_empty() => {
                Err(WriteError::Forbidden(refused(caller.as_deref(), &outcomes)))
            }
            Ok(Admitted { snapshot, changes, outcomes }) => {
                let revision = snapshot.revision();
                if !changes.is_empty() {
                    let commit = Commit { revision, at: entropy.now, changes };
                    history.push(entry_of(&working, &commit, origin.clone()));
                    if let Some(caller) = caller {
                        caller.accept(revision, &outcomes);
                        audit.push(context.audit.accepted(caller, entropy.now, revision));
                        audited.push(Arc::clone(caller));
                    }
                    steps.push(Step { before: working, after: snapshot.clone(), commit });
                }
                working = snapshot;
                Ok(Written { position: Position { epoch: at.epoch, revision }, outcomes })
            }
        };
        answers.push(answer);
    }
    Decided { at, steps, history, audit, audited, answers }
}

/// What the maker of a write may not do of what it does; the server itself may do everything.
fn refused(caller: Option<&Caller>, outcomes: &[Outcome]) -> Vec<Violation> {
    caller.map(|caller| caller.refused(outcomes)).unwrap_or_default()
}

/// What history keeps of a commit that was decided on a state.
fn entry_of(before: &Snapshot, commit: &Commit, origin: Origin) -> RevisionEntry {
    let revised = |change: &Change| {
        let key = change.object.key();
        let after = match change.kind {
            ChangeKind::Added | ChangeKind::Modified => Some(Arc::clone(&change.object)),
            ChangeKind::Deleted => None,
        };
        Revised { before: before.get(&key).cloned(), after, key }
    };
    let objects = commit.changes.iter().map(revised).collect();
    RevisionEntry { revision: commit.revision, at: commit.at, origin, objects }
}

/// Makes a group durable if the store is where it was decided.
async fn settle(context: &Context, decided: &Decided) -> Result<(), CommitError> {
    let Decided { at, steps, history, audit, audited: _, answers: _ } = decided;
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

fn conclude(context: &Context, group: Vec<Pending>, decided: Decided, started: Instant) {
    let Decided { at: _, steps, history: _, audit: _, audited, answers } = decided;
    audited.iter().for_each(|caller| caller.note_audited());
    context.metrics.group(answers.len(), steps.len(), started.elapsed());
    follow::publish(context, steps);
    for (pending, answer) in group.into_iter().zip(answers) {
        // A client that went away does not take back its write.
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

/// A random pause, so that those who meet do not meet again and again; none the first time.
fn backoff(attempt: u32) -> Duration {
    let longest = BACKOFF_STEP.saturating_mul(attempt).min(BACKOFF_MAX);
    let thousandths = u32::try_from(RandomState::new().hash_one(attempt) % 1000).unwrap_or_default();
    longest * thousandths / 1000
}
