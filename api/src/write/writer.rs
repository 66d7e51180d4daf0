//! Writer: one task that admits, commits and publishes all writes.
//!
//! ```text
//! handlers ──▶ bounded queue ──▶ [ admit each on the state so far ] ──▶ one store commit ──▶ publish ──▶ answer each
//!                                          a group                        (fsync once)
//! ```
//! The queued writes, up to a limit, form a group with one commit. Every response of a group waits for the
//! commit, including rejections: a rejection may depend on a write of the same group, and must not be sent if
//! that write was not committed. If the store fails, it is unknown if the group was committed: all callers
//! receive an error, and no write is accepted before the state has been reloaded.
//!
//! If other processes share the store, this task also reads their commits (`follow`). A group that was
//! admitted on a state which another process has changed meanwhile is admitted again on the newest state
//! (`group`).

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use model::{
    admission::admit::{Entropy, Outcome, Refusal, Request, admit},
    cluster::config::ClusterConfig,
    primitives::{
        quantity::{Position, Timestamp},
        violation::Violation,
    },
};
use store::Store;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    security::Caller,
    state::{commit_traces::CommitTraces, convergence::Convergence, published::Hub},
    telemetry::metrics::Metrics,
    write::audit::AuditLog,
};

mod follow;
mod group;

/// Maximum number of queued writes. Further writes are rejected with `Retry-After`.
const QUEUE_MAX: usize = 4096;
/// Maximum number of writes that are committed as one group. In a larger group the cost of the fsync per write
/// would hardly be lower.
const GROUP_WRITES_MAX: usize = 256;
/// Maximum total size in bytes of the request bodies of one group. The stored form, which includes defaults, is
/// larger and must still fit a transaction.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pause before the state is loaded again from a store that has failed.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a change notification of the store that brought no new commit, to avoid a busy loop.
const NOTHING_NEW_PAUSE: Duration = Duration::from_millis(20);

/// Result of an accepted write.
#[derive(Debug)]
pub(crate) struct Written {
    /// Position of the state that includes the write.
    pub(crate) position: Position,
    /// Outcome of the write for each object.
    pub(crate) outcomes: Vec<Outcome>,
}

/// Reason why a write failed or was rejected.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// Admission (the validation against the current state) rejected the write.
    Refused(Refusal),
    /// The caller lacks permissions for objects that the write would prune. Contains one violation for each
    /// kind and namespace of these objects.
    Forbidden(Vec<Violation>),
    /// The queue of the writer is full.
    Busy,
    /// The write exceeds the maximum size of a transaction. Contains the message for the client.
    TooLarge(String),
    /// Other control servers committed first in every attempt. The write changed nothing.
    Contended,
    /// The store failed; the write may or may not have been committed.
    Unavailable,
}

/// Queued request with the channel for its result.
#[derive(Debug)]
struct PendingService {
    /// Request to process. `None` stands for a caller that only waits until the published state includes every
    /// commit of the store.
    request: Option<Request>,
    entropy: Entropy,
    caller: Caller,
    bytes: usize,
    queued_at: SystemTime,
    reply: oneshot::Sender<Result<Written, WriteError>>,
}

/// Handle by which other tasks submit writes to the writer task.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<PendingService>,
}

/// State that the writer task needs.
pub(crate) struct Context {
    /// Holder of the published state, which the writer replaces.
    pub(crate) hub: Arc<Hub>,
    /// Store to which groups of writes are committed.
    pub(crate) store: Arc<dyn Store>,
    /// Address ranges and limits of the cluster.
    pub(crate) cluster: Arc<ClusterConfig>,
    /// Metrics of the server.
    pub(crate) metrics: Arc<Metrics>,
    /// Times of recent commits, from which the convergence of nodes is measured.
    pub(crate) convergence: Arc<Convergence>,
    /// Audit log, which numbers the entries of writes.
    pub(crate) audit: Arc<AuditLog>,
    /// True if the last commit failed; the readiness check reads it.
    pub(crate) has_failed: Arc<AtomicBool>,
    /// Spans and trace contexts of recorded commits, which feeds pass on.
    pub(crate) traces: Arc<CommitTraces>,
}

impl Writer {
    /// Starts the writer task. After `stop` is cancelled, the task processes the queued writes and ends.
    pub(crate) fn start(context: Context, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        (Self { queue }, tokio::spawn(run(context, waiting, stop)))
    }

    /// Submits a write of `caller` and waits until it is durable. `bytes` is the size of the request body.
    pub(crate) async fn write(
        &self,
        caller: &Caller,
        request: Request,
        entropy: Entropy,
        bytes: usize,
    ) -> Result<Written, WriteError> {
        self.put(caller.clone(), (Some(request), entropy, bytes)).await
    }

    /// Waits until the published state is at least as new as the store was at the time of the call, including
    /// commits of other servers. Returns the position of the published state.
    pub(crate) async fn confirm(&self) -> Result<Position, WriteError> {
        let nothing = Entropy { now: Timestamp::from_unix_seconds(0), seed: 0 };
        self.put(Caller::server(), (None, nothing, 0)).await.map(|written| written.position)
    }

    async fn put(
        &self,
        caller: Caller,
        (request, entropy, bytes): (Option<Request>, Entropy, usize),
    ) -> Result<Written, WriteError> {
        let (reply, answer) = oneshot::channel();
        let queued_at = SystemTime::now();
        match self.queue.try_send(PendingService { request, entropy, caller, bytes, queued_at, reply }) {
            Ok(()) => answer.await.unwrap_or(Err(WriteError::Unavailable)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(WriteError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(WriteError::Unavailable),
        }
    }

    /// Returns the number of writes in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

async fn run(context: Context, mut waiting: mpsc::Receiver<PendingService>, stop: CancellationToken) {
    let mut in_doubt = false;
    let mut follow_from = Instant::now();
    loop {
        if in_doubt {
            in_doubt = !follow::reload(&context).await;
        }
        let at = context.hub.load().position();
        let first = tokio::select! {
            biased;
            first = waiting.recv() => first,
            () = stop.cancelled() => {
                waiting.close();
                waiting.recv().await
            }
            () = tokio::time::sleep(RELOAD_PAUSE), if in_doubt => continue,
            moved = moved(&*context.store, at, follow_from), if !in_doubt => {
                follow_from = Instant::now() + follow::pause_after(&context, moved).await;
                continue;
            }
        };
        let Some(first) = first else { return };
        let group = drain(first, &mut waiting);
        if in_doubt {
            answer_all(group, || Err(WriteError::Unavailable));
        } else {
            in_doubt = group::carry_out(&context, group).await;
        }
    }
}

/// Waits until time `from`, and then until other servers may have written to the store after position `at`.
async fn moved(store: &dyn Store, at: Position, from: Instant) -> Result<(), store::StoreError> {
    tokio::time::sleep_until(from).await;
    store.moved(at).await
}

fn drain(first: PendingService, waiting: &mut mpsc::Receiver<PendingService>) -> Vec<PendingService> {
    let mut bytes = first.bytes;
    let mut group = vec![first];
    while group.len() < GROUP_WRITES_MAX && bytes < GROUP_BYTES_MAX {
        let Ok(next) = waiting.try_recv() else { break };
        bytes += next.bytes;
        group.push(next);
    }
    group
}

fn answer_all(group: Vec<PendingService>, answer: impl Fn() -> Result<Written, WriteError>) {
    for pending in group {
        let _ = pending.reply.send(answer());
    }
}

/// Simulates a write on the newest state without queueing, storing or publishing it.
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
