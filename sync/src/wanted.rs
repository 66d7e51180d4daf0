//! States that a source and the engine exchange by channels. Each message is a complete state that replaces
//! the previous one, so a slow receiver may skip messages. The maps share unchanged entries with earlier
//! states, so a new state costs only its difference from the previous one.

use imbl::OrdMap;
use model::kinds::resource::{Object, ObjectKey};
use serde_json::Value;

/// Desired objects of a source, and whether the source has been read completely.
#[derive(Debug, Clone, Default)]
pub struct DesiredObjects {
    /// Complete set of objects that should exist for this source.
    pub objects: OrdMap<ObjectKey, Object>,
    /// True if the source has been read completely since the connection to it was last lost. Otherwise no
    /// objects are removed.
    pub is_complete: bool,
}

/// State on the server of the objects of a source, which the engine publishes to the source.
#[derive(Debug, Clone, Default)]
pub struct ObservedObjects {
    /// Objects as stored by the server, including their statuses, by key. Workloads are null.
    pub objects: OrdMap<ObjectKey, Value>,
    /// Rejection messages, by key of the desired object that could not be written. Without objects of which the server has a
    /// newer state, because their next write follows it.
    pub refused: OrdMap<ObjectKey, String>,
}
