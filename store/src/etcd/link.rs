//! The connection to the members: one at a time, the next when it fails, nothing without a time limit.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use etcd_client::{
    Client, ConnectOptions, Error, GetOptions, GetResponse, KvClient, LeaseClient, MaintenanceClient, Txn,
    TxnResponse, WatchClient, WatchOptions, WatchStream,
};
use tokio::{
    sync::Mutex,
    time::{error::Elapsed, sleep, timeout},
};

use super::{figures::Counters, options::Reach, past::Room};
use crate::StoreError;

/// How long a connection may take to come about; members are near.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a connection is asked whether it lives, so that a stopped member is noticed.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How long a connection may take to say so.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one call may take: a disk that syncs slowly needs a second, and a stopped member never answers.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long something is asked again of one member after the other: an election among them takes a few seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);
/// Pauses between attempts.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Bytes of an answer that are read: a page of values that have the largest size, and room for their keys.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What came of a call.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No answer, or one that says that it may be otherwise in a moment. Whether it was carried out is unknown.
    #[error("{member}: {reason}")]
    Lost {
        /// The URL of the member.
        member: String,
        /// Why, without anything secret.
        reason: String,
    },
    /// It was not carried out, and would be refused again.
    #[error("{member}: {reason}")]
    Refused {
        /// The URL of the member.
        member: String,
        /// Why, without anything secret.
        reason: String,
    },
    /// What was to be read is older than etcd's own history.
    #[error("{member}: the revision was compacted")]
    Compacted {
        /// The URL of the member.
        member: String,
    },
}

impl Failure {
    /// As the error of an action.
    pub(super) fn during(self, action: &'static str) -> StoreError {
        StoreError::unavailable(action, self)
    }
}

/// All members.
pub(super) struct Link {
    members: Vec<Member>,
    current: AtomicUsize,
    connect: ConnectOptions,
    pub(super) counters: Counters,
}

struct Member {
    url: String,
    session: Mutex<Option<Session>>,
}

#[derive(Clone)]
struct Session {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
    maintenance: MaintenanceClient,
}

/// Pauses that grow, until patience ends.
pub(super) struct Retry {
    end: Instant,
    pause: Duration,
}

impl Retry {
    /// For as long as a call may be repeated.
    pub(super) fn new(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, pause: PAUSE_MIN }
    }

    /// Waits a moment; false when there is no more time.
    pub(super) async fn again(&mut self) -> bool {
        if Instant::now() + self.pause >= self.end {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

impl Link {
    /// Connects when it is first used.
    pub(super) fn new(Reach { members, connect }: Reach) -> Self {
        let members = members.into_iter().map(|url| Member { url, session: Mutex::new(None) }).collect();
        Self { members, current: AtomicUsize::new(0), connect, counters: Counters::default() }
    }

    /// Reads a range, linearizably unless the options say otherwise; asks again when there is no answer.
    pub(super) async fn get(&self, key: &str, options: &GetOptions) -> Result<GetResponse, Failure> {
        let mut retry = Retry::new(PATIENCE);
        loop {
            match self.get_once(key, options).await {
                Err(Failure::Lost { .. }) if retry.again().await => {}
                other => return other,
            }
        }
    }

    /// Carries out a transaction that may be carried out several times.
    pub(super) async fn repeat(&self, txn: &Txn) -> Result<TxnResponse, Failure> {
        let mut retry = Retry::new(PATIENCE);
        loop {
            match self.txn(txn.clone()).await {
                Err(Failure::Lost { .. }) if retry.again().await => {}
                other => return other,
            }
        }
    }

    /// Carries out a transaction, once.
    pub(super) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.kv.txn(txn)).await;
        self.judge(at, started, answer).await
    }

    async fn get_once(&self, key: &str, options: &GetOptions) -> Result<GetResponse, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.kv.get(key, Some(options.clone()))).await;
        self.judge(at, started, answer).await
    }

    /// Drops etcd's own history before a revision.
    pub(super) async fn compact(&self, revision: i64) -> Result<(), Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.kv.compact(revision, None)).await;
        self.judge(at, started, answer).await.map(|_| ())
    }

    /// How much of its database the member uses that answers.
    pub(super) async fn room(&self) -> Result<Room, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.maintenance.status()).await;
        let status = self.judge(at, started, answer).await?;
        // The name in the client library is not etcd's: `dbSizeInUse`.
        let [used, quota] = [status.raft_used_db_size(), status.db_size_quota()];
        let [used, quota] = [used, quota].map(|bytes| u64::try_from(bytes).unwrap_or(0));
        Ok(Room { used, quota })
    }

    /// Takes out a lease.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<i64, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let answer = timeout(CALL_TIMEOUT, session.lease.grant(seconds, None)).await;
        self.judge(at, started, answer).await.map(|granted| granted.id())
    }

    /// Renews a lease; false when it has ended.
    pub(super) async fn renew(&self, lease: i64, patience: Duration) -> Result<bool, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        // The first answer of the stream is what is asked for; an ended lease is an error of the client library.
        let answer = timeout(patience, session.lease.keep_alive(lease)).await;
        if let Ok(Err(Error::LeaseKeepAliveError(_))) = answer {
            return Ok(false);
        }
        self.judge(at, started, answer).await.map(|_| true)
    }

    /// Ends a lease.
    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.lease.revoke(lease)).await;
        self.judge(at, started, answer).await.map(|_| ())
    }

    /// Begins to watch a key.
    pub(super) async fn watch(&self, key: &str, options: WatchOptions) -> Result<WatchStream, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.watch.watch(key, Some(options))).await;
        self.judge(at, started, answer).await
    }

    /// The member that is used at present, and what it is used by.
    async fn session(&self) -> Result<(usize, Session), Failure> {
        let at = self.current.load(Ordering::Relaxed) % self.members.len();
        let member = &self.members[at];
        let mut slot = member.session.lock().await;
        if let Some(session) = &*slot {
            return Ok((at, session.clone()));
        }
        let started = Instant::now();
        let connected =
            timeout(CALL_TIMEOUT, Client::connect([&member.url], Some(self.connect.clone()))).await;
        // Released before the answer is judged: that may take the session out.
        let connected = match connected {
            Ok(Ok(client)) => {
                let session = Session {
                    kv: client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX),
                    lease: client.lease_client(),
                    watch: client.watch_client(),
                    maintenance: client.maintenance_client(),
                };
                *slot = Some(session.clone());
                Ok(Ok((at, session)))
            }
            Ok(Err(error)) => Ok(Err(error)),
            Err(elapsed) => Err(elapsed),
        };
        drop(slot);
        self.judge(at, started, connected).await
    }

    /// Says what came of a call, and turns to the next member when this one did not do its part.
    async fn judge<T>(
        &self,
        at: usize,
        started: Instant,
        answer: Result<Result<T, Error>, Elapsed>,
    ) -> Result<T, Failure> {
        let member = || self.members[at].url.clone();
        self.counters.called(started.elapsed());
        let (reason, may_pass) = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => (reason(&error), may_pass(&error)),
            Err(Elapsed { .. }) => ("it did not answer in time".to_owned(), true),
        };
        if reason.contains("required revision has been compacted") {
            return Err(Failure::Compacted { member: member() });
        }
        if !may_pass {
            return Err(Failure::Refused { member: member(), reason });
        }
        self.counters.failed();
        *self.members[at].session.lock().await = None;
        let next = (at + 1) % self.members.len();
        // Whoever came first has turned already.
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        tracing::debug!(member = member(), reason, "etcd did not answer");
        Err(Failure::Lost { member: member(), reason })
    }
}

/// Whether the same may succeed in a moment, or at another member.
fn may_pass(error: &Error) -> bool {
    use tonic_code::{
        ABORTED, CANCELLED, DATA_LOSS, DEADLINE_EXCEEDED, INTERNAL, UNAUTHENTICATED, UNAVAILABLE, UNKNOWN,
    };
    match error {
        Error::GRpcStatus(status) => {
            let code = i32::from(status.code());
            // etcd's words for a token from before a change of users or roles; a new connection gets a new one.
            let is_old_token = status.message().contains("revision of auth store is old");
            is_old_token
                || [
                    ABORTED,
                    CANCELLED,
                    DATA_LOSS,
                    DEADLINE_EXCEEDED,
                    INTERNAL,
                    UNAUTHENTICATED,
                    UNAVAILABLE,
                    UNKNOWN,
                ]
                .contains(&code)
        }
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => false,
        Error::IoError(_)
        | Error::TransportError(_)
        | Error::WatchError(_)
        | Error::Utf8Error(_)
        | Error::LeaseKeepAliveError(_)
        | Error::ElectError(_)
        | Error::EndpointError(_)
        | Error::EndpointsNotManaged
        | Error::Internal(_) => true,
    }
}

/// Codes of gRPC, which has them as numbers: the client library does not pass on their names.
mod tonic_code {
    pub(super) const CANCELLED: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const ABORTED: i32 = 10;
    pub(super) const INTERNAL: i32 = 13;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const DATA_LOSS: i32 = 15;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// The error in words. Of a status only its message: its metadata may hold tokens.
fn reason(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        Error::TransportError(error) => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        }
        Error::InvalidArgs(_)
        | Error::InvalidUri(_)
        | Error::InvalidMetadataValue(_)
        | Error::IoError(_)
        | Error::WatchError(_)
        | Error::Utf8Error(_)
        | Error::LeaseKeepAliveError(_)
        | Error::ElectError(_)
        | Error::EndpointError(_)
        | Error::EndpointsNotManaged
        | Error::Internal(_) => error.to_string(),
    }
}
