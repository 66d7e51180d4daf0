//! What was asked for, by whom, and what became of it: accepted, refused and failed alike.
//!
//! ```text
//! writer ── a write that changes something ──▶ in the transaction of its commit ──▶ store
//! around each request ── everything else ──▶ waiting, bounded ── once a second, a bounded number ──▶ store
//! ```
//! What changed nothing waits, and is kept apart from what did: however many requests are refused, they neither push out
//! the others nor hold up a write. A crash may lose what waits.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use http::{Method, StatusCode};
use model::{
    bgp::listing::Part,
    cluster::history::Origin,
    primitives::quantity::{Revision, Timestamp},
};
use serde::{Deserialize, Serialize};
use store::{AUDIT_BODY_BYTES_MAX, AuditRecord, Store, StoreError};
use utoipa::ToSchema;

use crate::{
    base::{error::Code, error_chain::Chain},
    write::caller::{Caller, Deed},
};

/// Entries that wait for the store; of a flood of refusals the rest is counted only. Some megabytes.
const WAITING_MAX: usize = 1000;
/// Entries that go to the store at a time, once a second: a few milliseconds of the one who writes.
const FLUSHED_MAX: usize = 200;
/// What paths begin with that change nothing of what anybody asked for: agents' reports and answers.
const PASSED_OVER: &str = "/v1/nodes/{node}/";
/// Path of confirmations, which change the state in force on a node.
pub(crate) const CONFIRM_PATH: &str = "/v1/nodes/{node}/confirm";
/// What among these does change a machine.
const FIXES: &str = "/v1/nodes/{node}/fixes";
/// A question with a body; to apply a plan is another path.
const QUESTION: &str = "/v1/plan";
/// Bytes of a path that an entry keeps; longer ones are of requests that no route serves.
const PATH_BYTES_MAX: usize = 2048;

/// One request that would change something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEntry {
    /// Rises with every request.
    number: u64,
    /// When it was answered.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who asked, and why.
    #[serde(flatten)]
    origin: Origin,
    /// The HTTP method.
    method: String,
    /// The path.
    path: String,
    /// What it was about, as kind and name; the first hundred at most.
    objects: Vec<String>,
    /// How many objects it was about.
    objects_total: usize,
    /// What became of it.
    decision: Decision,
    /// The HTTP status.
    status: u16,
    /// The machine word of the problem, when it was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Code>)]
    code: Option<String>,
    /// The revision of the state that holds it, when it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
    /// Whether it was only tried.
    dry_run: bool,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Decision {
    /// It was done, or was so already.
    Accepted,
    /// It was not done.
    Refused,
    /// The server failed; whether it was done may be unknown.
    Failed,
}

/// The audit log: numbers, and the entries that wait for the store.
#[derive(Debug, Default)]
pub(crate) struct AuditLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    waiting: VecDeque<Waiting>,
    next: u64,
    /// Entries that found no room.
    left_out: u64,
}

#[derive(Debug, Clone)]
struct Waiting {
    entry: AuditEntry,
    /// Whether it changed nothing.
    is_passing: bool,
}

/// How a request was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    /// When.
    pub(crate) at: Timestamp,
    /// The HTTP method.
    pub(crate) method: Method,
    /// The path.
    pub(crate) path: String,
    /// The status of the answer.
    pub(crate) status: StatusCode,
    /// The machine word of the problem, if it is one.
    pub(crate) code: Option<Code>,
}

impl AuditLog {
    /// Goes on where a store ends.
    pub(crate) async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let newest = store.audit(None, 1).await?.pop();
        let next = newest.map_or(0, |record| record.number + 1);
        Ok(Self(Mutex::new(Log { next, ..Log::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // An entry is in or not; a panicking holder leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of a write that is about to be committed.
    pub(crate) fn accepted(&self, caller: &Caller, at: Timestamp, revision: Revision) -> AuditRecord {
        let (method, path) = caller.request();
        let deed = Deed { revision: Some(revision), ..caller.deed() };
        let status = if deed.is_creation { StatusCode::CREATED } else { StatusCode::OK };
        let answered = Answered { at, method, path, status, code: None };
        let mut log = self.lock();
        let number = log.take_number();
        drop(log);
        record(&Waiting { entry: entry(number, caller.origin(), deed, answered), is_passing: false })
    }

    /// Remembers a request, unless it is of a route that changes nothing, or is in the store with what it wrote.
    pub(crate) fn add(&self, route: &str, caller: &Caller, answered: Answered) {
        // That an agent, or who pretends to be one, reaches for what is not its own is told all the same.
        let is_passed_over = route.starts_with(PASSED_OVER)
            && route != CONFIRM_PATH
            && route != FIXES
            && answered.code != Some(Code::Forbidden);
        let is_stored = caller.is_audited() && answered.status.is_success();
        if is_passed_over || (route == QUESTION && answered.code != Some(Code::Forbidden)) || is_stored {
            return;
        }
        let mut log = self.lock();
        let number = log.take_number();
        let deed = caller.deed();
        let is_passing = !(deed.is_done && answered.status.is_success());
        let room = if is_passing { WAITING_MAX } else { WAITING_MAX * 2 };
        let entry = entry(number, caller.origin(), deed, answered);
        if log.waiting.len() < room {
            log.waiting.push_back(Waiting { entry, is_passing });
        } else {
            log.left_out += 1;
        }
    }

    /// Brings what waits to the store; at most so much that no write waits long.
    pub(crate) async fn flush(&self, store: &dyn Store) {
        let (entries, left_out): (Vec<_>, u64) = {
            let mut log = self.lock();
            let entries = log.waiting.iter().take(FLUSHED_MAX).cloned().collect();
            (entries, std::mem::take(&mut log.left_out))
        };
        if left_out > 0 {
            tracing::warn!(left_out, "more requests were refused than the audit log keeps");
        }
        let Some(last) = entries.last().map(|waiting| waiting.entry.number) else { return };
        let records: Vec<_> = entries.iter().map(record).collect();
        match store.put_audit(&records).await {
            // In the store before they leave here, so that a listing misses none.
            Ok(()) => self.lock().waiting.retain(|waiting| waiting.entry.number > last),
            Err(error) => tracing::warn!(error = %Chain(&error), "the audit log cannot be kept; it waits"),
        }
    }

    /// Brings all that waits to the store, at the end.
    pub(crate) async fn flush_all(&self, store: &dyn Store) {
        for _ in 0..(WAITING_MAX * 2).div_ceil(FLUSHED_MAX) {
            self.flush(store).await;
        }
    }

    /// Lists entries, the newest first, after one if one is given.
    pub(crate) async fn list(
        &self,
        store: &dyn Store,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Part<AuditEntry, u64>, StoreError> {
        let is_meant = |entry: &&AuditEntry| after.is_none_or(|after| entry.number < after);
        let entries = |log: &Log| -> Vec<AuditEntry> {
            log.waiting.iter().map(|waiting| &waiting.entry).filter(is_meant).cloned().collect()
        };
        // Before the store is asked: what leaves here meanwhile is there.
        let waiting = entries(&self.lock());
        // One more tells whether there is more.
        let stored = store.audit(after, limit + 1).await?;
        let mut all = stored.iter().map(decode).collect::<Result<BTreeMap<_, _>, _>>()?;
        all.extend(waiting.into_iter().map(|entry| (entry.number, entry)));
        let has_more = all.len() > limit;
        let items: Vec<_> = all.into_values().rev().take(limit).collect();
        let more_after = items.last().filter(|_| has_more).map(|last| last.number);
        Ok(Part { items, more_after })
    }
}

impl Log {
    fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}

fn entry(number: u64, origin: Origin, deed: Deed, answered: Answered) -> AuditEntry {
    let Answered { at, method, mut path, status, code } = answered;
    let Deed { objects, objects_total, revision, is_dry_run, is_creation: _, is_done: _, message: _ } = deed;
    let decision = match status {
        status if status.is_success() => Decision::Accepted,
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
    }
}

/// The stored form; names that do not fit are only counted.
fn record(Waiting { entry, is_passing }: &Waiting) -> AuditRecord {
    let mut entry = entry.clone();
    let body = loop {
        let body = serde_json::to_vec(&entry).expect("an entry has string keys only");
        if body.len() <= AUDIT_BODY_BYTES_MAX || entry.objects.is_empty() {
            break body;
        }
        entry.objects.truncate(entry.objects.len() / 2);
    };
    AuditRecord { number: entry.number, at: entry.at, is_passing: *is_passing, body }
}

fn decode(record: &AuditRecord) -> Result<(u64, AuditEntry), StoreError> {
    let entry = serde_json::from_slice(&record.body).map_err(|error| StoreError::Unreadable {
        key: format!("audit entry {}", record.number),
        reason: error.to_string(),
    })?;
    Ok((record.number, entry))
}
