//! The write path: one task that admits, commits and publishes; everybody else only asks it.
//!
//! ```text
//! handlers ──▶ bounded queue ──▶ [ admit each on the state so far ] ──▶ one store commit ──▶ publish ──▶ answer each
//!                                          a group                        (fsync once)
//! ```
//! Every answer of a group waits for the commit, refusals too: a refusal may rest on a write of the same group, and must
//! not be told if that write never happened. When the store fails, nobody knows whether the group is there: all are told
//! so, and nothing is written before the state has been read again.
//!
//! Where other processes write to the same store, this task also follows what they commit (`follow`), and a group that was
//! decided on a state that they have moved on from is decided again (`group`).

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use model::{
    admission::admit::{Entropy, Outcome, Refusal, Request, admit},
    cluster::{config::ClusterConfig, history::Origin},
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
    state::{convergence::Convergence, published::Hub},
    telemetry::metrics::Metrics,
    write::{
        audit::AuditLog,
        caller::{self, Caller},
    },
};

mod follow;
mod group;

/// Writes that may wait. More than this is a client that does not wait for answers; it is told to come back.
const QUEUE_MAX: usize = 4096;
/// Writes in one group; beyond this the share of the fsync that each pays is already negligible.
const GROUP_WRITES_MAX: usize = 256;
/// Bytes of the bodies in one group; leaves room for the stored form, which spells out defaults.
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pause before a store that failed is read again.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a store said that others had written, and they had not: it must not be asked without end.
const NOTHING_NEW_PAUSE: Duration = Duration::from_millis(20);

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
    /// Other control servers wrote first, time after time. Nothing was changed.
    Contended,
    /// The store failed.
    Unavailable,
}

/// One write that waits.
#[derive(Debug)]
struct Pending {
    /// What to write; nothing where only the state is to be confirmed.
    request: Option<Request>,
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
    /// True if the last group commit failed.
    pub(crate) has_failed: Arc<AtomicBool>,
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
        self.put(Origin::server(), None, (Some(request), entropy, bytes)).await
    }

    /// Asks for a write that somebody wants and waits until it is durable. `bytes` is the size of the body that asks.
    pub(crate) async fn write_for(
        &self,
        origin: Origin,
        request: Request,
        entropy: Entropy,
        bytes: usize,
    ) -> Result<Written, WriteError> {
        self.put(origin, caller::current(), (Some(request), entropy, bytes)).await
    }

    /// Waits until the published state is one that the store held after this was called, whoever writes to it.
    pub(crate) async fn confirm(&self) -> Result<Position, WriteError> {
        let nothing = Entropy { now: Timestamp::from_unix_seconds(0), seed: 0 };
        self.put(Origin::server(), None, (None, nothing, 0)).await.map(|written| written.position)
    }

    async fn put(
        &self,
        origin: Origin,
        caller: Option<Arc<Caller>>,
        (request, entropy, bytes): (Option<Request>, Entropy, usize),
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

/// Waits until others may have written to the store, but not before a time.
async fn moved(store: &dyn Store, at: Position, from: Instant) -> Result<(), store::StoreError> {
    tokio::time::sleep_until(from).await;
    store.moved(at).await
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

fn answer_all(group: Vec<Pending>, answer: impl Fn() -> Result<Written, WriteError>) {
    for pending in group {
        let _ = pending.reply.send(answer());
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
