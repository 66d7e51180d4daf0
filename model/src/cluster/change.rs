//! Result of a commit, from which the change log and the watch events are written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::resource::{Object, ObjectKey},
    primitives::quantity::{Revision, Timestamp},
};

/// Changes of one accepted write, applied together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Revision that the write creates.
    pub revision: Revision,
    /// Time at which the write was accepted.
    pub at: Timestamp,
    /// Changes, at least one, in the order of [`Kind::ALL`](crate::kinds::resource::Kind::ALL) and then of the keys.
    pub changes: Vec<Change>,
}

/// Change of one object by a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Type of the change: added, modified or deleted.
    pub kind: ChangeKind,
    /// New state of the object. For a deletion, the last state with the revision of the deletion.
    pub object: Arc<Object>,
}

/// Change of one object, as a watch reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectChange {
    /// The object was created or changed.
    Put(Arc<Object>),
    /// The object with this key was deleted.
    Removed(ObjectKey),
}

/// Type of a change of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeKind {
    /// The object was created.
    Added,
    /// An existing object was changed.
    Modified,
    /// The object was deleted.
    Deleted,
}

/// Effect of a request on one object.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The object was created.
    Created,
    /// The object was changed.
    Updated,
    /// The object already had the requested state.
    Unchanged,
    /// The object was deleted by the request.
    Deleted,
    /// The object was deleted because its apply set no longer contains it.
    Pruned,
}
