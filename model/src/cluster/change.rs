//! What a commit did: the entries of the store's change log and of every watch.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::resource::Object,
    primitives::quantity::{Revision, Timestamp},
};

/// Everything that one accepted write changed; its objects change together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The revision that the write made.
    pub revision: Revision,
    /// When it was accepted.
    pub at: Timestamp,
    /// At least one change, in the order of their keys' effect.
    pub changes: Vec<Change>,
}

/// One object that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// Its new state; for a deletion the last state, with the revision of the deletion.
    pub object: Arc<Object>,
}

/// How an object changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeKind {
    /// It did not exist before.
    Added,
    /// It existed before.
    Modified,
    /// It does not exist after.
    Deleted,
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
