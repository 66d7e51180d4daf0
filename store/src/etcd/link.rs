//! Connection to one etcd member at a time, with failover to the next member and a time limit for each call.

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

/// Time limit for connecting to an etcd member. Members are expected to have a low latency.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of HTTP/2 keepalives, which detect stopped members.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Time limit for the acknowledgment of a keepalive.
pub(super) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit of one call. A member on a slow disk may take a second; a stopped member never responds.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum total time for attempts of one call at all members. A leader election in etcd takes a few seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);
/// Minimum delay between two attempts of a call.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Maximum size of a response in bytes: a page of values of maximum size, with a margin for keys.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Failure of a call to etcd.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The member did not respond, or returned a temporary error. The outcome of a write is unknown.
    #[error("{member}: {reason}")]
    Lost {
        /// URL of the member that was called.
        member: String,
        /// Description of the error, without secrets.
        reason: String,
    },
    /// The member rejected the call without effect; a retry would fail too.
    #[error("{member}: {reason}")]
    Refused {
        /// URL of the member that was called.
        member: String,
        /// Description of the error, without secrets.
        reason: String,
    },
    /// The requested etcd revision has been compacted.
    #[error("{member}: the revision was compacted")]
    Compacted {
        /// URL of the member that was called.
        member: String,
    },
}

impl Failure {
    /// Converts the failure to a store error that names the failed action.
    pub(super) fn during(self, action: &'static str) -> StoreError {
        StoreError::unavailable(action, self)
    }
}

/// Connection to the etcd cluster: uses one member at a time, and the next one after a failure.
pub(super) struct Link {
    members: Vec<Member>,
    current: AtomicUsize,
    connect: ConnectOptions,
    pub(super) counters: Counters,
}

struct Member {
    url: String,
    session: Mutex<Option<EtcdSession>>,
}

#[derive(Clone)]
struct EtcdSession {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
    maintenance: MaintenanceClient,
}

/// Retry delays with exponential backoff and a deadline.
pub(super) struct Retry {
    end: Instant,
    pause: Duration,
}

impl Retry {
    /// Starts a series of retries that stops once the time `patience` has passed since this call.
    pub(super) fn new(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, pause: PAUSE_MIN }
    }

    /// Waits before the next attempt and returns true, or returns false at once if the deadline would pass
    /// during the wait.
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
    /// Creates the link without connecting; a connection is opened on first use.
    pub(super) fn new(Reach { members, connect }: Reach) -> Self {
        let members = members.into_iter().map(|url| Member { url, session: Mutex::new(None) }).collect();
        Self { members, current: AtomicUsize::new(0), connect, counters: Counters::default() }
    }

    /// Reads a range of keys, with retries. The read is linearizable unless the options specify otherwise.
    pub(super) async fn get(&self, key: &str, options: &GetOptions) -> Result<GetResponse, Failure> {
        let mut retry = Retry::new(PATIENCE);
        loop {
            match self.get_once(key, options).await {
                Err(Failure::Lost { .. }) if retry.again().await => {}
                other => return other,
            }
        }
    }

    /// Executes a transaction that has the same effect if it is executed twice. Retries it at all members.
    pub(super) async fn repeat(&self, txn: &Txn) -> Result<TxnResponse, Failure> {
        let mut retry = Retry::new(PATIENCE);
        loop {
            match self.txn(txn.clone()).await {
                Err(Failure::Lost { .. }) if retry.again().await => {}
                other => return other,
            }
        }
    }

    /// Executes a transaction once, without retries.
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

    /// Compacts etcd's own history up to an etcd revision.
    pub(super) async fn compact(&self, revision: i64) -> Result<(), Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.kv.compact(revision, None)).await;
        self.judge(at, started, answer).await.map(|_| ())
    }

    /// Returns the size and the quota of the current member's database.
    pub(super) async fn room(&self) -> Result<Room, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.maintenance.status()).await;
        let status = self.judge(at, started, answer).await?;
        // The client library's name for etcd's `dbSizeInUse`.
        let [used, quota] = [status.raft_used_db_size(), status.db_size_quota()];
        let [used, quota] = [used, quota].map(|bytes| u64::try_from(bytes).unwrap_or(0));
        Ok(Room { used, quota })
    }

    /// Grants an etcd lease with the given time to live and returns its id.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<i64, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let answer = timeout(CALL_TIMEOUT, session.lease.grant(seconds, None)).await;
        self.judge(at, started, answer).await.map(|granted| granted.id())
    }

    /// Renews an etcd lease. Returns false if the lease has expired.
    pub(super) async fn renew(&self, lease: i64, patience: Duration) -> Result<bool, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        // The first response of the stream is the result; an expired lease is an error of the client library.
        let answer = timeout(patience, session.lease.keep_alive(lease)).await;
        if let Ok(Err(Error::LeaseKeepAliveError(_))) = answer {
            return Ok(false);
        }
        self.judge(at, started, answer).await.map(|_| true)
    }

    /// Revokes an etcd lease, which deletes its keys.
    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.lease.revoke(lease)).await;
        self.judge(at, started, answer).await.map(|_| ())
    }

    /// Opens a watch of a key.
    pub(super) async fn watch(&self, key: &str, options: WatchOptions) -> Result<WatchStream, Failure> {
        let (at, mut session) = self.session().await?;
        let started = Instant::now();
        let answer = timeout(CALL_TIMEOUT, session.watch.watch(key, Some(options))).await;
        self.judge(at, started, answer).await
    }

    /// Returns the index and the session of the member in use; connects to one if necessary.
    async fn session(&self) -> Result<(usize, EtcdSession), Failure> {
        let at = self.current.load(Ordering::Relaxed) % self.members.len();
        let member = &self.members[at];
        let mut slot = member.session.lock().await;
        if let Some(session) = &*slot {
            return Ok((at, session.clone()));
        }
        let started = Instant::now();
        let connected =
            timeout(CALL_TIMEOUT, Client::connect([&member.url], Some(self.connect.clone()))).await;
        // The lock is released before the result is evaluated, which may remove the session.
        let connected = match connected {
            Ok(Ok(client)) => {
                let session = EtcdSession {
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

    /// Converts the result of a call to the member with index `at`: returns the response, or the kind of
    /// failure. Switches to the next member after a temporary failure.
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
            Err(Elapsed { .. }) => ("no response in time".to_owned(), true),
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
        // A concurrent call may have switched already.
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        tracing::debug!(member = member(), reason, "call to etcd failed");
        Err(Failure::Lost { member: member(), reason })
    }
}

/// Returns true if the same call may succeed later, or at another member.
fn may_pass(error: &Error) -> bool {
    use tonic_code::{
        ABORTED, CANCELLED, DATA_LOSS, DEADLINE_EXCEEDED, INTERNAL, UNAUTHENTICATED, UNAVAILABLE, UNKNOWN,
    };
    match error {
        Error::GRpcStatus(status) => {
            let code = i32::from(status.code());
            // etcd's message for a token issued before a change of users or roles; a new connection gets a
            // new token.
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

/// gRPC status codes; the client library does not re-export them.
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

/// Describes an etcd error. Of a gRPC status, only the message is included, because the metadata may contain
/// tokens.
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
