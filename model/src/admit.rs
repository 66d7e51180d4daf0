//! The one gate for every write: what is asked, against what is, gives what will be, or every reason why not.

use std::sync::Arc;

use crate::{
    change::Change,
    config::ClusterConfig,
    name::Name,
    quantity::{Revision, Timestamp},
    resource::{Object, ObjectKey},
    snapshot::Snapshot,
    violation::Violation,
};

/// Operations in one request; more belong into several.
pub const OPERATIONS_MAX: usize = 5000;
/// Members that a prune may remove without an explicit limit: this many, or a fifth of the set if that is more.
pub const PRUNE_FREE: usize = 5;

/// A write: all of it is accepted, as one revision, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What to do, in the order of the input.
    pub operations: Vec<Operation>,
    /// The set that owns the written objects afterwards.
    pub apply_set: Option<ApplySet>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Make an object that must not exist.
    Create(Object),
    /// Replace an object that must exist.
    Replace {
        /// Its new state. Allocated values that it leaves out are kept.
        object: Object,
        /// The revision it must still have; `None` overwrites whatever there is.
        if_revision: Option<Revision>,
    },
    /// Make or replace.
    Apply(Object),
    /// Remove an object that must exist.
    Delete {
        /// Which.
        key: ObjectKey,
        /// The revision it must still have; `None` removes whatever there is.
        if_revision: Option<Revision>,
    },
}

/// The set of objects that one source applies together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySet {
    /// Its name.
    pub name: Name,
    /// Remove the members that the request does not name.
    pub prune: bool,
    /// How many may be removed; the built-in bound when `None`.
    pub prune_limit: Option<usize>,
}

/// Time and randomness of one admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entropy {
    /// When the write is admitted.
    pub now: Timestamp,
    /// Unpredictable to clients; fixes uids and where allocation starts to look.
    pub seed: u64,
}

/// What an accepted write does.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The state after the write. Its revision is the next one if anything changes, else that of before.
    pub snapshot: Snapshot,
    /// What changes; empty when everything was so already.
    pub changes: Vec<Change>,
    /// What happened to each object named, then to each object pruned.
    pub outcomes: Vec<Outcome>,
}

/// What happened to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The verb.
    pub action: Action,
    /// The state after (for removals: the last state).
    pub object: Arc<Object>,
}

/// What happened to one object, as a word.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It is new.
    Created,
    /// It differs from before.
    Updated,
    /// It was so already.
    Unchanged,
    /// It was removed as asked.
    Deleted,
    /// It was removed because its apply set no longer names it.
    Pruned,
}

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// An object that must exist does not.
    NotFound(ObjectKey),
    /// An object that must not exist does.
    AlreadyExists(Arc<Object>),
    /// The precondition of the request (`If-Match`) names another revision than the current one.
    PreconditionFailed(Arc<Object>),
    /// The body's `metadata.resourceVersion` or `metadata.uid` is not the current one.
    Conflict(Arc<Object>),
    /// Fields that must change. In requests of several operations the pointers start with `/items/N`.
    Invalid(Vec<Violation>),
    /// The prune would remove more than allowed.
    PruneLimit {
        /// What it would remove.
        would_prune: Vec<ObjectKey>,
        /// How many it may.
        limit: usize,
    },
    /// More operations than [`OPERATIONS_MAX`].
    TooManyOperations(usize),
}

/// Admits a request on the state it will be committed on.
///
/// # Errors
/// Every reason that is known at once.
pub fn admit(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    request: &Request,
    entropy: &Entropy,
) -> Result<Admitted, Refusal> {
    let _ = (config, entropy);
    if request.operations.len() > OPERATIONS_MAX {
        return Err(Refusal::TooManyOperations(request.operations.len()));
    }
    Ok(Admitted { snapshot: snapshot.clone(), changes: Vec::new(), outcomes: Vec::new() })
}
