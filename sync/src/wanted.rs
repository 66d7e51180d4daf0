//! Channels between sources and the engine. Both carry complete states, of which only the newest counts, so
//! that updates cannot be missed; maps are persistent, so that a state costs only its difference from the
//! previous one.

use imbl::OrdMap;
use model::kinds::resource::{Object, ObjectKey};
use serde_json::Value;

/// Desired objects of a source.
#[derive(Debug, Clone, Default)]
pub struct DesiredObjects {
    /// All objects of the source; no other objects of this source should exist.
    pub objects: OrdMap<ObjectKey, Object>,
    /// True if the source has been read completely since it was last lost. Until then nothing is removed.
    pub is_complete: bool,
}

/// Server state of the objects of a source.
#[derive(Debug, Clone, Default)]
pub struct ObservedObjects {
    /// Published form of each object, with its status.
    pub objects: OrdMap<ObjectKey, Value>,
    /// Rejection messages of desired objects that could not be written.
    pub refused: OrdMap<ObjectKey, String>,
}
