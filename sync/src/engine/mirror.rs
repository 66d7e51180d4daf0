//! Local copy of the source's objects on the server, as of the last event. No I/O.

use std::sync::Arc;

use imbl::OrdMap;
use model::{
    admission::decode::{Expect, decode},
    kinds::resource::{Object, ObjectKey},
    primitives::{
        name::{Label, Name},
        quantity::Revision,
    },
};
use serde_json::Value;

/// Object on the server that belongs to the source, with its published form.
#[derive(Debug, Clone)]
pub struct Own {
    /// Object as decoded from the server's response.
    pub object: Arc<Object>,
    /// Object as stored by the server, including its status; null for Workloads.
    pub published: Value,
}

/// Objects of a source as they are on the server, as far as the adapter has observed them.
#[derive(Debug, Default)]
pub struct Mirror {
    objects: OrdMap<ObjectKey, Own>,
    is_listed: bool,
}

/// Decodes an object as the server publishes it. Returns its key and state, or `None` if the object does not
/// belong to `source`.
#[must_use]
pub fn own(source: &Label, published: Value) -> Option<(ObjectKey, Own)> {
    let object = match decode(&published, &Expect::default()) {
        Ok(object) => object,
        Err(violations) => {
            // A newer server may use unknown fields; an object that cannot be decoded cannot be compared
            // either.
            tracing::warn!(?violations, "cannot decode an object of the control server");
            return None;
        }
    };
    let is_own = object.metadata.apply_set.as_ref().map(Name::as_str) == Some(source.as_str());
    // A source may have tens of thousands of Workloads, and no source reads their status.
    let published = if object.as_workload().is_some() { Value::Null } else { published };
    is_own.then(|| (object.key(), Own { object: Arc::new(object), published }))
}

impl Mirror {
    /// True if the complete listing has been received.
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns all objects of the source on the server, by key.
    #[must_use]
    pub const fn objects(&self) -> &OrdMap<ObjectKey, Own> {
        &self.objects
    }

    /// Returns the object with this key, if the server has it.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Own> {
        self.objects.get(key)
    }

    /// Replaces all known objects with the objects of a complete listing, and returns the previous ones.
    pub fn list(&mut self, objects: OrdMap<ObjectKey, Own>) -> OrdMap<ObjectKey, Own> {
        self.is_listed = true;
        std::mem::replace(&mut self.objects, objects)
    }

    /// Stores the state of an object. Returns `false` if the stored state is the same or newer, because
    /// responses to writes and watch events can overtake each other.
    pub fn put(&mut self, key: ObjectKey, own: Own) -> bool {
        let revision = own.object.metadata.revision();
        let is_news = self.revision(&key).is_none_or(|known| known < revision);
        if is_news {
            self.objects.insert(key, own);
        }
        is_news
    }

    /// Removes an object that was deleted at revision `at`. Returns `false` if the object is unknown or has
    /// been recreated since.
    pub fn remove(&mut self, key: &ObjectKey, at: Revision) -> bool {
        let is_news = self.revision(key).is_some_and(|known| known <= at);
        if is_news {
            self.objects.remove(key);
        }
        is_news
    }

    /// Stores a newer status of an object with unchanged spec. Returns `false` if the status is the same.
    pub fn show(&mut self, key: &ObjectKey, published: Value) -> bool {
        let Some(known) = self.objects.get_mut(key) else { return false };
        let version = "/metadata/resourceVersion";
        if known.published == published || known.published.pointer(version) != published.pointer(version) {
            return false;
        }
        known.published = published;
        true
    }

    fn revision(&self, key: &ObjectKey) -> Option<Revision> {
        self.objects.get(key).map(|own| own.object.metadata.revision())
    }
}
