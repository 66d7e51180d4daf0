//! The write path: one task that admits, commits and publishes; everybody else only asks it.
//!
//! ```text
//! handlers ──▶ bounded queue ──▶ [ admit each on the state so far ] ──▶ one store commit ──▶ publish ──▶ answer each
//!                                          a group                        (fsync once)
//! ```
//! Every answer of a group waits for the commit, refusals too: a refusal may rest on a write of the same group, and must
//! not be told if that write never happened. When the store fails, nobody knows whether the group is there: all are told
//! so, and nothing is written before the state has been read again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    admit::{Admitted, Entropy, Outcome, Refusal, Request, admit},
    change::{Change, ChangeKind, Commit},
    config::ClusterConfig,
    history::{Origin, Revised, RevisionEntry},
    quantity::Position,
    snapshot::Snapshot,
    violation::Violation,
};
use store::{AuditRecord, CommitError, Store};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    audit::AuditLog,
    caller::{self, Caller},
    convergence::Convergence,
    hub::{Hub, Step},
    metrics::Metrics,
};

/// Writes that may wait. More than this is a client that does not wait for answers; it is told to come back.
const QUEUE_MAX: usize = 4096;
/// Writes in one group; beyond this the share of the fsync that each pays is already negligible.
const GROUP_WRITES_MAX: usize = 256;
/// Bytes of the bodies in one group; leaves room for the stored form, which spells out defaults.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pause before a store that failed is read again.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// What an accepted write did.
#[derive(Debug)]
pub(crate) struct Written {
    /// The position of the state that holds it.
    pub(crate) position: Position,
    /// What happened to each object.
    pub(crate) outcomes: Vec<Outcome>,
}

/// Why a write did not happen.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The state or the rules do not allow it.
    Refused(Refusal),
    /// Who asks may not do all that it does.
    Forbidden(Vec<Violation>),
    /// Too many writes wait.
    Busy,
    /// It is more than one transaction can hold.
    TooLarge(String),
    /// The store failed.
    Unavailable,
}

/// One write that waits.
#[derive(Debug)]
struct Pending {
    request: Request,
    entropy: Entropy,
    origin: Origin,
    /// Who asks, where it is somebody else than the server.
    caller: Option<Arc<Caller>>,
    bytes: usize,
    reply: oneshot::Sender<Result<Written, WriteError>>,
}

/// The way to the writer.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Pending>,
}

/// What the writer task works with.
pub(crate) struct Context {
    /// Where the state is published.
    pub(crate) hub: Arc<Hub>,
    /// Where it is kept.
    pub(crate) store: Arc<dyn Store>,
    /// The ranges of the cluster.
    pub(crate) cluster: Arc<ClusterConfig>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// When nodes have what.
    pub(crate) convergence: Arc<Convergence>,
    /// Numbers the entries of the audit log.
    pub(crate) audit: Arc<AuditLog>,
}

impl Writer {
    /// Starts the writer task. It ends after the last waiting write once `stop` is cancelled.
    pub(crate) fn start(context: Context, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        (Self { queue }, tokio::spawn(run(context, waiting, stop)))
    }

    /// Asks for a write of the server itself and waits until it is durable. `bytes` is the size of the body that asks.
    pub(crate) async fn write(
        &self,
        request: Request,
        entropy: Entropy,
        bytes: usize,
    ) -> Result<Written, WriteError> {
        self.put(Origin::server(), None, (request, entropy, bytes)).await
    }

    /// Asks for a write that somebody wants and waits until it is durable. `bytes` is the size of the body that asks.
    pub(crate) async fn write_for(
        &self,
        origin: Origin,
        request: Request,
        entropy: Entropy,
        bytes: usize,
    ) -> Result<Written, WriteError> {
        self.put(origin, caller::current(), (request, entropy, bytes)).await
    }

    async fn put(
        &self,
        origin: Origin,
        caller: Option<Arc<Caller>>,
        (request, entropy, bytes): (Request, Entropy, usize),
    ) -> Result<Written, WriteError> {
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Pending { request, entropy, origin, caller, bytes, reply }) {
            Ok(()) => answer.await.unwrap_or(Err(WriteError::Unavailable)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(WriteError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(WriteError::Unavailable),
        }
    }

    /// How many writes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

async fn run(context: Context, mut waiting: mpsc::Receiver<Pending>, stop: CancellationToken) {
    let mut in_doubt = false;
    loop {
        if in_doubt {
            in_doubt = !reload(&context).await;
        }
        let first = tokio::select! {
            biased;
            first = waiting.recv() => first,
            () = stop.cancelled() => {
                waiting.close();
                waiting.recv().await
            }
            () = tokio::time::sleep(RELOAD_PAUSE), if in_doubt => continue,
        };
        let Some(first) = first else { return };
        let group = drain(first, &mut waiting);
        if in_doubt {
            answer_all(group, || Err(WriteError::Unavailable));
        } else {
            in_doubt = commit_group(&context, group).await;
        }
    }
}

fn drain(first: Pending, waiting: &mut mpsc::Receiver<Pending>) -> Vec<Pending> {
    let mut bytes = first.bytes;
    let mut group = vec![first];
    while group.len() < GROUP_WRITES_MAX && bytes < GROUP_BYTES_MAX {
        let Ok(next) = waiting.try_recv() else { break };
        bytes += next.bytes;
        group.push(next);
    }
    group
}

/// Reads the state again after a failure left it in doubt.
async fn reload(context: &Context) -> bool {
    match context.store.load().await {
        Ok(loaded) => {
            tracing::info!(position = %loaded.position, "the store answers again; the state was read anew");
            context.hub.reload(loaded);
            true
        }
        Err(error) => {
            tracing::error!(error = %Chain(&error), "the store cannot be read");
            false
        }
    }
}

/// Admits, commits, publishes and answers a group; says whether the state is in doubt after it.
async fn commit_group(context: &Context, group: Vec<Pending>) -> bool {
    let started = Instant::now();
    let published = context.hub.load();
    let at = published.position();
    let mut working = published.snapshot.clone();
    let mut steps = Vec::new();
    let mut history = Vec::new();
    let mut audit = Vec::new();
    let mut audited = Vec::new();
    let mut answers = Vec::new();
    for Pending { request, entropy, origin, caller, bytes: _, reply } in group {
        let answer = match admit(&working, &context.cluster, &request, &entropy) {
            Err(refusal) => Err(WriteError::Refused(refusal)),
            // Here, because only the state that it is decided on says what goes besides what the write names.
            Ok(Admitted { outcomes, .. }) if !refused(caller.as_deref(), &outcomes).is_empty() => {
                Err(WriteError::Forbidden(refused(caller.as_deref(), &outcomes)))
            }
            Ok(Admitted { snapshot, changes, outcomes }) => {
                let revision = snapshot.revision();
                if !changes.is_empty() {
                    let commit = Commit { revision, at: entropy.now, changes };
                    history.push(entry_of(&working, &commit, origin));
                    if let Some(caller) = caller {
                        caller.accept(revision, &outcomes);
                        audit.push(context.audit.accepted(&caller, entropy.now, revision));
                        audited.push(caller);
                    }
                    steps.push(Step { before: working, after: snapshot.clone(), commit });
                }
                working = snapshot;
                Ok(Written { position: Position { epoch: at.epoch, revision }, outcomes })
            }
        };
        answers.push((reply, answer));
    }
    if let Err(error) = store_steps(context, at, &steps, Records { history: &history, audit: &audit }).await {
        let size = answers.len();
        for (reply, _) in answers {
            let _ = reply.send(Err(refuse(&error, size)));
        }
        // Only a group that the store found too large leaves a state that is surely the published one.
        return !matches!(error, CommitError::TooLarge { .. });
    }
    audited.iter().for_each(|caller| caller.note_audited());
    context.metrics.group(answers.len(), steps.len(), started.elapsed());
    if !steps.is_empty() {
        let revisions: Vec<_> = steps.iter().map(|step| step.commit.revision).collect();
        // Noted first: an agent may be faster than this task.
        context.convergence.note(&revisions, Instant::now());
        context.hub.publish(steps);
        context.convergence.concerns_nodes(context.hub.load().nodes_head().revision);
    }
    for (reply, answer) in answers {
        // A client that went away does not take back its write.
        let _ = reply.send(answer);
    }
    false
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

/// What is kept of a group for people.
#[derive(Debug, Clone, Copy)]
struct Records<'a> {
    history: &'a [RevisionEntry],
    audit: &'a [AuditRecord],
}

async fn store_steps(
    context: &Context,
    at: Position,
    steps: &[Step],
    Records { history, audit }: Records<'_>,
) -> Result<(), CommitError> {
    if steps.is_empty() {
        return Ok(());
    }
    let commits: Vec<Commit> = steps.iter().map(|step| step.commit.clone()).collect();
    let outcome = context.store.commit_with_records(at, &commits, history, audit).await;
    if let Err(error) = &outcome {
        tracing::error!(error = %Chain(error), commits = commits.len(), "a group was not committed");
        context.metrics.commit_failures.inc();
    }
    outcome
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

fn answer_all(group: Vec<Pending>, answer: impl Fn() -> Result<Written, WriteError>) {
    for pending in group {
        let _ = pending.reply.send(answer());
    }
}

/// An error with its causes on one line.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn std::error::Error + 'a));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// What a write would do, tried on the newest state. Nothing is queued, kept or published.
pub(crate) fn dry_run(
    hub: &Hub,
    cluster: &ClusterConfig,
    request: &Request,
    entropy: &Entropy,
) -> Result<Written, WriteError> {
    let published = hub.load();
    let admitted = admit(&published.snapshot, cluster, request, entropy).map_err(WriteError::Refused)?;
    Ok(Written { position: published.position(), outcomes: admitted.outcomes })
}
