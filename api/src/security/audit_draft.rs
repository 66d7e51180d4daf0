//! Data for the audit log entry of a request while the request is processed. The handler and the writer record the
//! objects and the result; the writer or the middleware creates the entry from them.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use http::Method;
use model::{
    admission::admit::{Operation, Outcome, Request},
    primitives::quantity::Revision,
};

/// Maximum number of objects that an audit entry lists. Further ones are only counted.
pub(crate) const OBJECTS_NAMED_MAX: usize = 100;

/// Audit data of a request in progress. The data remain available if the handler fails, panics or times out.
#[derive(Debug)]
pub(crate) struct AuditDraft {
    /// HTTP method of the request.
    pub(crate) method: Method,
    /// Path of the request, without the query string.
    pub(crate) path: String,
    is_stored: AtomicBool,
    outcome: Mutex<AuditOutcome>,
}

/// Objects and result of a request, for its audit entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditOutcome {
    /// Objects of the request as kind and name, at most [`OBJECTS_NAMED_MAX`].
    pub(crate) objects: Vec<String>,
    /// Number of all objects of the request.
    pub(crate) objects_total: usize,
    /// Revision that contains the change; `None` if no change was committed.
    pub(crate) revision: Option<Revision>,
    /// True if the request was a dry run.
    pub(crate) is_dry_run: bool,
    /// True if the request creates one object.
    pub(crate) is_creation: bool,
    /// True if the request had an effect other than a change of stored objects, such as a logout.
    pub(crate) is_done: bool,
    /// Reason of the change from the request body; used if the request has no header `X-Change-Message`.
    pub(crate) message: Option<String>,
}

impl AuditDraft {
    /// Creates the audit data of a request, without objects.
    pub(crate) fn new(method: Method, path: String) -> Self {
        Self { method, path, is_stored: AtomicBool::default(), outcome: Mutex::default() }
    }

    /// Records that the audit entry was committed together with the write.
    pub(crate) fn record_stored(&self) {
        self.is_stored.store(true, Ordering::Release);
    }

    /// Returns true if the audit entry was committed together with the write.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Acquire)
    }

    /// Records the objects of a write request.
    pub(crate) fn record_request(&self, request: &Request, is_dry_run: bool) {
        let mut outcome = self.lock();
        outcome.objects_total = request.operations.len();
        outcome.objects = request.operations.iter().filter_map(named).take(OBJECTS_NAMED_MAX).collect();
        outcome.is_dry_run = is_dry_run;
        outcome.is_creation = matches!(request.operations.as_slice(), [Operation::Create(_)]);
    }

    /// Records `name` as the only object of the request. Used if the request writes no configuration object
    /// but, for example, a token, a role or a backup.
    pub(crate) fn record_object(&self, name: String) {
        self.record_objects(vec![name]);
    }

    /// Records several objects as [`Self::record_object`] does one.
    pub(crate) fn record_objects(&self, names: Vec<String>) {
        let mut outcome = self.lock();
        outcome.is_done = true;
        outcome.objects_total = names.len();
        outcome.objects = names;
    }

    /// Records the reason of the change from the request body, for requests without the header
    /// `X-Change-Message`.
    pub(crate) fn record_message(&self, message: String) {
        self.lock().message = Some(message);
    }

    /// Records the result of an accepted write, including the objects it pruned.
    pub(crate) fn record_accepted(&self, revision: Revision, outcomes: &[Outcome]) {
        let mut outcome = self.lock();
        outcome.revision = Some(revision);
        if outcomes.len() > outcome.objects_total {
            outcome.objects_total = outcomes.len();
            let names = outcomes.iter().map(|outcome| outcome.object.key().to_string());
            outcome.objects = names.take(OBJECTS_NAMED_MAX).collect();
        }
    }

    /// Returns a copy of the data recorded so far.
    pub(crate) fn outcome(&self) -> AuditOutcome {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, AuditOutcome> {
        // Changes are single assignments; a panicking holder leaves at worst incomplete audit text.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns kind and name of the object that an operation writes; `None` for a retry of address allocation.
fn named(operation: &Operation) -> Option<String> {
    match operation {
        Operation::Create(object)
        | Operation::Apply(object)
        | Operation::Replace { object, .. }
        | Operation::Restore { object, .. } => Some(object.key().to_string()),
        Operation::Delete { key, .. } => Some(key.to_string()),
        Operation::SetAnnouncer { address, .. } => Some(format!("Address {address}")),
        Operation::SetNodeLost { node, .. } => Some(format!("Node {node}")),
        Operation::SetEndpointHealth { service, .. } => Some(format!("Service {service}")),
        Operation::SetAttachments { node, .. } => Some(format!("Attachments of Node {node}")),
        Operation::SetIssuance { certificate, .. } => Some(format!("Certificate {certificate}")),
        Operation::RetryPending { .. } => None,
    }
}
