//! Channels between sources and the engine. Each message is a complete state, of which only the newest
//! counts, so a slow receiver misses no update. Maps are persistent: a new state costs only its difference
//! from the previous one.

use imbl::OrdMap;
use model::kinds::resource::{Object, ObjectKey};
use serde_json::Value;

/// Desired objects of a source, with the completeness of the reading.
#[derive(Debug, Clone, Default)]
pub struct DesiredObjects {
    /// Complete set of objects that should exist for this source.
    pub objects: OrdMap<ObjectKey, Object>,
    /// True if the source has been read completely since it was last lost. Until then nothing is removed.
    pub is_complete: bool,
}

/// State on the server of a source's objects, published to the source.
#[derive(Debug, Clone, Default)]
pub struct ObservedObjects {
    /// Object as stored by the server, including its status, by key.
    pub objects: OrdMap<ObjectKey, Value>,
    /// Rejection messages of desired objects that could not be written.
    pub refused: OrdMap<ObjectKey, String>,
}
