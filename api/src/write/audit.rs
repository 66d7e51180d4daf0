//! Audit log of every request that may change something, with author and result: accepted, rejected or failed.
//!
//! ```text
//! writer ── a write that changes something ──▶ in the transaction of its commit ──▶ store
//! middleware ── every other request ──▶ bounded queue ── once a second, a bounded number ──▶ store
//! ```
//! Entries of requests that changed nothing are queued and stored separately, so that a flood of rejected
//! requests neither evicts the other entries nor delays a write. A crash may lose queued entries.
//!
//! Requests without valid credentials are counted for each source and minute: the first one has an entry, and one
//! more entry has the number of the others.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ::base::chain;
use http::{Method, StatusCode};
use model::{
    bgp::listing::ListPage,
    cluster::history::Origin,
    kinds::resource::ObjectKey,
    primitives::quantity::{Revision, Timestamp},
};
use serde::{Deserialize, Serialize};
use store::{AUDIT_BODY_BYTES_MAX, AuditPool, AuditRecord, Store, StoreError};
use utoipa::ToSchema;

use crate::{
    base::error::Code,
    security::{
        Caller, Identity,
        account::network_of,
        audit_draft::{AuditDraft, AuditOutcome},
    },
};

/// Number of queued entries at which further entries of requests that changed nothing are dropped and
/// counted. Other entries are dropped only at twice this number, which uses a few megabytes.
const WAITING_MAX: usize = 1000;
/// Number of queued entries at which entries of requests without valid credentials are dropped and counted.
const ANONYMOUS_WAITING_MAX: usize = WAITING_MAX / 2;
/// Time in seconds for which the requests without valid credentials of one source share an entry.
const ANONYMOUS_SECS: i64 = 60;
/// Maximum number of sources that are counted separately; the others are counted together.
const SOURCES_MAX: usize = 256;
/// Maximum number of queued entries written to the store at a time, once a second. The write occupies the store
/// for a few milliseconds.
const FLUSHED_MAX: usize = 200;
/// Prefix of the routes of agents' reports and replies, which are audited only if they are forbidden.
const PASSED_OVER: &str = "/v1/nodes/{node}/";
/// Path of confirmations, which are audited because they change the state in force on a node.
pub(crate) const CONFIRM_PATH: &str = "/v1/nodes/{node}/confirm";
/// Path of requests to change settings of a node's machine (fixes). They are audited, although the path has
/// the prefix of the agents' own routes.
const FIXES: &str = "/v1/nodes/{node}/fixes";
/// Paths of requests that change nothing in the store: the preview of a write, and the reports of DNS servers and gateways. They
/// are audited only if they are forbidden.
const WITHOUT_CHANGE: [&str; 3] =
    ["/v1/plan", "/v1/dns/servers/{server}/report", "/v1/http/gateways/{gateway}/report"];
/// Number of entries that are read from the store at once to find those that a filter matches.
const EXAMINED_AT_ONCE: usize = 1000;
/// Maximum number of entries that are examined for one page of a filtered listing, which takes some ten milliseconds.
const EXAMINED_MAX: usize = 5000;
/// Maximum length in bytes of the path in an entry. The paths of all routes are shorter.
const PATH_BYTES_MAX: usize = 2048;

/// Entry of the audit log for one request that may change something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEntry {
    /// Sequence number of the entry, which increases with every audited request.
    pub(crate) number: u64,
    /// Time of the response (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Author and reason of the request.
    #[serde(flatten)]
    origin: Origin,
    /// HTTP method, for example `PUT`.
    method: String,
    /// Path of the request, without the query string. At most 2048 bytes.
    path: String,
    /// Objects of the request as kind and name, for example `Service default/web`. The first 100 at most.
    objects: Vec<String>,
    /// Total number of objects of the request, including those not listed in `objects`.
    objects_total: usize,
    /// Result of the request.
    decision: Decision,
    /// HTTP status code of the response.
    status: u16,
    /// Error code of the response. Absent if the request was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Code>)]
    code: Option<String>,
    /// Revision created by the request. Absent if no revision was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
    /// True if the request was a dry run and changed nothing.
    dry_run: bool,
    /// Number of earlier requests that this entry stands for as well: requests without valid credentials from
    /// the same source within a minute. Absent for a single request.
    #[serde(default, skip_serializing_if = "is_zero")]
    repeated: u64,
}

// Serde determines the signature.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Result of an audited request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Decision {
    /// The request succeeded, or the requested state already existed.
    Accepted,
    /// The request was rejected and changed nothing.
    Refused,
    /// The server failed. The change may or may not have taken effect.
    Failed,
}

/// Conditions that an audit entry must meet to be listed; those that are absent are met by all entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct AuditFilter {
    /// Name of the author.
    pub(crate) author: Option<String>,
    /// One of the objects of the entry, as kind and name, in upper or lower case.
    pub(crate) object: Option<String>,
    /// Result of the request.
    pub(crate) decision: Option<Decision>,
}

impl AuditFilter {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn matches(&self, entry: &AuditEntry) -> bool {
        let has = |object: &String| {
            let is_named = entry.objects.iter().any(|each| each.eq_ignore_ascii_case(object));
            // The objects of a request that was rejected before it was decoded are not known, except the one in its path.
            let in_path = || {
                object_of_path(&entry.path).is_some_and(|key| key.to_string().eq_ignore_ascii_case(object))
            };
            is_named || (entry.objects.is_empty() && in_path())
        };
        self.author.as_ref().is_none_or(|author| *author == entry.origin.author)
            && self.object.as_ref().is_none_or(has)
            && self.decision.is_none_or(|decision| decision == entry.decision)
    }
}

/// Returns the object in the path of a request, such as `/v1/namespaces/shop/services/web`; `None` if there is none.
fn object_of_path(path: &str) -> Option<ObjectKey> {
    let rest = path.strip_prefix("/v1/")?;
    let (namespace, rest) = match rest.strip_prefix("namespaces/") {
        Some(rest) => rest.split_once('/')?,
        None => ("", rest),
    };
    let mut parts = rest.split('/');
    ObjectKey::parse_store_key(&format!("{}/{namespace}/{}", parts.next()?, parts.next()?))
}

/// Audit log: the sequence number of the last entry, and the queue of entries to be stored.
#[derive(Debug, Default)]
pub(crate) struct AuditLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    waiting: VecDeque<QueuedEntry>,
    next: u64,
    /// Requests without valid credentials within the last minute, by source; `None` for all further sources.
    anonymous: BTreeMap<Option<IpAddr>, RepeatedRequest>,
    /// Number of entries dropped since the last write to the store, because the queue was full.
    left_out: u64,
}

#[derive(Debug, Clone)]
struct QueuedEntry {
    entry: AuditEntry,
    pool: AuditPool,
}

/// Requests without valid credentials of one source, after the first of them.
#[derive(Debug)]
struct RepeatedRequest {
    /// Time of the first request, which has an entry of its own.
    since: Timestamp,
    /// Newest request, and the number of requests since the first one before it. `None` if there was no other.
    newest: Option<AuditEntry>,
}

/// Data of a request and its response from which an audit entry is created.
#[derive(Debug)]
pub(crate) struct AuditResponse {
    /// Time at which the response was sent.
    pub(crate) at: Timestamp,
    /// HTTP method of the request, for example `PUT`.
    pub(crate) method: Method,
    /// Path of the request, without the query string. At most 2048 bytes.
    pub(crate) path: String,
    /// HTTP status code of the response.
    pub(crate) status: StatusCode,
    /// Error code of the response, if it is a problem.
    pub(crate) code: Option<Code>,
}

impl AuditResponse {
    /// Returns true if the request was accepted. A redirect after a login is.
    fn is_accepted(&self) -> bool {
        self.status.is_success() || (self.status.is_redirection() && self.code.is_none())
    }
}

impl AuditLog {
    /// Creates the audit log, which continues the sequence numbers of the entries in `store`.
    pub(crate) async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let newest = store.audit(None, 1).await?.pop();
        let next = newest.map_or(0, |record| record.number + 1);
        Ok(Self(Mutex::new(Log { next, ..Log::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // Entries are added atomically; a panicking holder leaves no partial entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the audit entry of a write that is about to be committed, so that both are stored together.
    pub(crate) fn accepted(
        &self,
        origin: Origin,
        draft: &AuditDraft,
        (at, revision): (Timestamp, Revision),
    ) -> AuditRecord {
        let outcome = AuditOutcome { revision: Some(revision), ..draft.outcome() };
        let status = if outcome.is_creation { StatusCode::CREATED } else { StatusCode::OK };
        let (method, path) = (draft.method.clone(), draft.path.clone());
        let answered = AuditResponse { at, method, path, status, code: None };
        let mut log = self.lock();
        let number = log.next_number();
        drop(log);
        record(&QueuedEntry { entry: entry(number, origin, outcome, answered), pool: AuditPool::Changes })
    }

    /// Stores the audit entry of a change that a command of `tidegate-api` made to the store without a server. `command` stands
    /// in place of the path, and `objects` names the changed things with the details.
    ///
    /// # Errors
    /// Returns an error if the store cannot read its newest entry or cannot store the new one.
    pub(crate) async fn add_command(
        store: &dyn Store,
        origin: Origin,
        (command, objects): (&str, Vec<String>),
        (at, revision): (Timestamp, Revision),
    ) -> Result<(), StoreError> {
        let log = Self::of(store).await?;
        let draft = AuditDraft::new(Method::POST, command.to_owned());
        draft.record_objects(objects);
        let record = log.accepted(origin, &draft, (at, revision));
        store.put_audit(&[record]).await
    }

    /// Queues the audit entry of a request, unless the route is not audited or the entry was already committed
    /// with the write.
    pub(crate) fn add(&self, route: &str, caller: &Caller, answered: AuditResponse) {
        let Some(draft) = caller.draft() else { return };
        // A forbidden request to an agent route is recorded: it comes from an agent, or an impostor, that
        // uses a foreign resource.
        let is_of_agent = route.starts_with(PASSED_OVER) && route != CONFIRM_PATH && route != FIXES;
        let is_passed_over =
            (is_of_agent || WITHOUT_CHANGE.contains(&route)) && answered.code != Some(Code::Forbidden);
        let is_stored = draft.is_stored() && answered.status.is_success();
        if is_passed_over || is_stored {
            return;
        }
        let mut log = self.lock();
        let outcome = draft.outcome();
        let is_change = outcome.is_done && answered.is_accepted();
        let pool = match caller.access().identity() {
            // Logins and enrollments carry their credentials in the body.
            _ if is_change => AuditPool::Changes,
            Identity::Nobody => AuditPool::Anonymous,
            Identity::Anyone | Identity::Agent(_) | Identity::Token { .. } | Identity::User { .. } => {
                AuditPool::Passing
            }
        };
        let entry = entry(0, caller.origin(), outcome, answered);
        match pool {
            AuditPool::Anonymous => log.add_anonymous(entry),
            AuditPool::Changes | AuditPool::Passing => log.push(entry, pool),
        }
    }

    /// Writes at most [`FLUSHED_MAX`] queued entries to the store, so that writes of objects are not delayed.
    pub(crate) async fn flush(&self, store: &dyn Store, now: Timestamp) {
        let (entries, left_out): (Vec<_>, u64) = {
            let mut log = self.lock();
            log.end_anonymous(|since| {
                now.unix_seconds().saturating_sub(since.unix_seconds()) >= ANONYMOUS_SECS
            });
            let entries = log.waiting.iter().take(FLUSHED_MAX).cloned().collect();
            (entries, std::mem::take(&mut log.left_out))
        };
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "audit entries of rejected requests were dropped because the queue \
                                      was full"
            );
        }
        let Some(last) = entries.last().map(|waiting| waiting.entry.number) else { return };
        let records: Vec<_> = entries.iter().map(record).collect();
        match store.put_audit(&records).await {
            // Remove entries only after they are stored, so that a listing misses none.
            Ok(()) => self.lock().waiting.retain(|waiting| waiting.entry.number > last),
            Err(error) => tracing::warn!(
                error = chain(&error),
                "cannot store audit entries; they stay \
                                                                  queued"
            ),
        }
    }

    /// Writes all queued entries to the store at shutdown.
    pub(crate) async fn flush_all(&self, store: &dyn Store, now: Timestamp) {
        self.lock().end_anonymous(|_| true);
        for _ in 0..(WAITING_MAX * 2).div_ceil(FLUSHED_MAX) {
            self.flush(store, now).await;
        }
    }

    /// Returns the audit entries that a filter matches, newest first. If `after` is given, only those with a lower sequence
    /// number. The result has less than `limit` entries and a following page if [`EXAMINED_MAX`] entries were examined.
    pub(crate) async fn list(
        &self,
        store: &dyn Store,
        (after, filter): (Option<u64>, &AuditFilter),
        limit: usize,
    ) -> Result<ListPage<AuditEntry, u64>, StoreError> {
        let mut after = after;
        let (mut items, mut examined) = (Vec::new(), 0);
        loop {
            let page =
                self.page(store, after, if filter.is_empty() { limit } else { EXAMINED_AT_ONCE }).await?;
            examined += page.items.len();
            after = page.more_after;
            for entry in page.items.into_iter().filter(|entry| filter.matches(entry)) {
                if items.len() == limit {
                    let more_after = items.last().map(|last: &AuditEntry| last.number);
                    return Ok(ListPage { items, more_after });
                }
                items.push(entry);
            }
            if after.is_none() || filter.is_empty() || examined >= EXAMINED_MAX {
                return Ok(ListPage { items, more_after: after });
            }
        }
    }

    /// Returns audit entries, newest first. If `after` is given, only those with a lower sequence number.
    async fn page(
        &self,
        store: &dyn Store,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ListPage<AuditEntry, u64>, StoreError> {
        let is_meant = |entry: &&AuditEntry| after.is_none_or(|after| entry.number < after);
        let entries = |log: &Log| -> Vec<AuditEntry> {
            log.waiting.iter().map(|waiting| &waiting.entry).filter(is_meant).cloned().collect()
        };
        // Read the queue before the store: entries flushed in between are found in the store.
        let waiting = entries(&self.lock());
        // One extra entry shows if there is a next page.
        let stored = store.audit(after, limit + 1).await?;
        let mut all = stored.iter().map(decode).collect::<Result<BTreeMap<_, _>, _>>()?;
        all.extend(waiting.into_iter().map(|entry| (entry.number, entry)));
        let has_more = all.len() > limit;
        let items: Vec<_> = all.into_values().rev().take(limit).collect();
        let more_after = items.last().filter(|_| has_more).map(|last| last.number);
        Ok(ListPage { items, more_after })
    }
}

impl Log {
    fn push(&mut self, mut entry: AuditEntry, pool: AuditPool) {
        entry.number = self.next_number();
        let room = match pool {
            AuditPool::Changes => WAITING_MAX * 2,
            AuditPool::Passing => WAITING_MAX,
            AuditPool::Anonymous => ANONYMOUS_WAITING_MAX,
        };
        if self.waiting.len() < room {
            self.waiting.push_back(QueuedEntry { entry, pool });
        } else {
            self.left_out += 1;
        }
    }

    /// Queues the entry of a request without valid credentials if it is the first one of its source within
    /// [`ANONYMOUS_SECS`], and counts it otherwise.
    fn add_anonymous(&mut self, mut entry: AuditEntry) {
        let source = entry.origin.source.map(network_of);
        let is_known = self.anonymous.contains_key(&source) || self.anonymous.len() < SOURCES_MAX;
        match self.anonymous.entry(source.filter(|_| is_known)) {
            Entry::Vacant(place) => {
                place.insert(RepeatedRequest { since: entry.at, newest: None });
                self.push(entry, AuditPool::Anonymous);
            }
            Entry::Occupied(mut place) => {
                let newest = &mut place.get_mut().newest;
                entry.repeated = newest.as_ref().map_or(0, |before| before.repeated + 1);
                *newest = Some(entry);
            }
        }
    }

    /// Queues the counted requests without valid credentials whose first request has a time for which
    /// `is_over` returns true.
    fn end_anonymous(&mut self, is_over: impl Fn(Timestamp) -> bool) {
        for (_, RepeatedRequest { newest, .. }) in
            self.anonymous.extract_if(.., |_, repeated| is_over(repeated.since)).collect::<Vec<_>>()
        {
            if let Some(newest) = newest {
                self.push(newest, AuditPool::Anonymous);
            }
        }
    }

    fn next_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}

fn entry(number: u64, origin: Origin, outcome: AuditOutcome, answered: AuditResponse) -> AuditEntry {
    let is_accepted = answered.is_accepted();
    let AuditResponse { at, method, mut path, status, code } = answered;
    let AuditOutcome { objects, objects_total, revision, is_dry_run, is_creation: _, is_done: _, message: _ } =
        outcome;
    let decision = match status {
        _ if is_accepted => Decision::Accepted,
        status if status.is_server_error() => Decision::Failed,
        _ => Decision::Refused,
    };
    path.truncate(path.floor_char_boundary(PATH_BYTES_MAX));
    AuditEntry {
        number,
        at,
        origin,
        method: method.to_string(),
        path,
        objects,
        objects_total,
        decision,
        status: status.as_u16(),
        code: code.map(|code| format!("{code:?}")),
        revision: revision.filter(|_| decision == Decision::Accepted && !is_dry_run),
        dry_run: is_dry_run,
        repeated: 0,
    }
}

/// Encodes an entry for the store. Drops object names until the entry fits the size limit; `objects_total` still
/// counts them.
fn record(QueuedEntry { entry, pool }: &QueuedEntry) -> AuditRecord {
    let mut entry = entry.clone();
    let body = loop {
        let body = serde_json::to_vec(&entry).expect("an entry has string keys only");
        if body.len() <= AUDIT_BODY_BYTES_MAX || entry.objects.is_empty() {
            break body;
        }
        entry.objects.truncate(entry.objects.len() / 2);
    };
    AuditRecord { number: entry.number, at: entry.at, pool: *pool, body }
}

fn decode(record: &AuditRecord) -> Result<(u64, AuditEntry), StoreError> {
    let entry = serde_json::from_slice(&record.body).map_err(|error| StoreError::Unreadable {
        key: format!("audit entry {}", record.number),
        reason: error.to_string(),
    })?;
    Ok((record.number, entry))
}
