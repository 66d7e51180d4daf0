//! What sources and the engine say to each other. Both channels carry whole states, of which only the newest counts, so that
//! neither side can miss anything; maps are persistent, so that a state costs what differs from the one before.

use imbl::OrdMap;
use model::kinds::resource::{Object, ObjectKey};
use serde_json::Value;

/// What a source wants Tidegate to have.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The objects, whole. Nothing else of this source is to exist.
    pub objects: OrdMap<ObjectKey, Object>,
    /// Whether the source has been read to its end since it was last lost. While it has not, nothing is removed.
    pub is_complete: bool,
}

/// What Tidegate says of the objects of a source.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The published form of each, with its status.
    pub objects: OrdMap<ObjectKey, Value>,
    /// Why an object that is wanted is not there: the refusal in words.
    pub refused: OrdMap<ObjectKey, String>,
}
