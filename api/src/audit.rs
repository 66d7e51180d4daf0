//! What was asked for, by whom, and what became of it: accepted, refused and failed alike.
//!
//! Held in memory: what was accepted is in the history, which is stored; what was refused changed nothing.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use http::{Method, StatusCode};
use model::{
    bgp_listing::Part,
    history::Origin,
    quantity::{Revision, Timestamp},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    caller::{Deed, OBJECTS_NAMED_MAX},
    error::Code,
};

/// Requests that are remembered; the oldest goes first. Some megabytes.
pub(crate) const ENTRIES_MAX: usize = 10_000;
/// What paths begin with that change nothing of what anybody asked for: agents' reports and answers.
const PASSED_OVER: &str = "/v1/nodes/{node}/";
/// What among these does change a machine.
const FIXES: &str = "/v1/nodes/{node}/fixes";
/// A question with a body; to apply a plan is another path.
const QUESTION: &str = "/v1/plan";
const _: () = assert!(OBJECTS_NAMED_MAX <= 1000, "an entry stays small");

/// One request that would change something.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEntry {
    /// Rises with every request since the server started.
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
    /// What it was about, as kind and name; the first hundred.
    objects: Vec<String>,
    /// How many objects it was about.
    objects_total: usize,
    /// What became of it.
    decision: Decision,
    /// The HTTP status.
    status: u16,
    /// The machine word of the problem, when it was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    /// The revision of the state that holds it, when it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Revision>,
    /// Whether it was only tried.
    dry_run: bool,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Decision {
    /// It was done, or was so already.
    Accepted,
    /// It was not done.
    Refused,
    /// The server failed; whether it was done may be unknown.
    Failed,
}

/// The requests that are remembered, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct AuditLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<AuditEntry>,
    next: u64,
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
    fn lock(&self) -> MutexGuard<'_, Log> {
        // An entry is in or not; a panicking holder leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a request, unless it is of a route that changes nothing.
    pub(crate) fn add(&self, route: &str, origin: Origin, deed: Deed, answered: Answered) {
        if route.starts_with(PASSED_OVER) && route != FIXES || route == QUESTION {
            return;
        }
        let Answered { at, method, path, status, code } = answered;
        let Deed { objects, objects_total, revision, is_dry_run, message: _ } = deed;
        let decision = match status {
            status if status.is_success() => Decision::Accepted,
            status if status.is_server_error() => Decision::Failed,
            _ => Decision::Refused,
        };
        let mut log = self.lock();
        let number = log.next;
        log.next += 1;
        log.entries.push_back(AuditEntry {
            number,
            at,
            origin,
            method: method.to_string(),
            path,
            objects,
            objects_total,
            decision,
            status: status.as_u16(),
            code,
            revision: revision.filter(|_| decision == Decision::Accepted && !is_dry_run),
            dry_run: is_dry_run,
        });
        if log.entries.len() > ENTRIES_MAX {
            log.entries.pop_front();
        }
    }

    /// Lists what is remembered, the newest first, after an entry if one is given.
    pub(crate) fn list(&self, after: Option<u64>, limit: usize) -> Part<AuditEntry, u64> {
        let log = self.lock();
        let mut rest =
            log.entries.iter().rev().filter(|entry| after.is_none_or(|after| entry.number < after));
        let items: Vec<_> = rest.by_ref().take(limit).cloned().collect();
        let more_after = items.last().filter(|_| rest.next().is_some()).map(|last| last.number);
        Part { items, more_after }
    }
}
