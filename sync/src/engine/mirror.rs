//! What of a source is in Tidegate, as far as this process has heard. Nothing here does I/O.

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

/// An object of the source.
#[derive(Debug, Clone)]
pub struct Own {
    /// What was decoded.
    pub object: Arc<Object>,
    /// As the server shows it, with its status.
    pub published: Value,
}

/// The objects of a source that are in Tidegate.
#[derive(Debug, Default)]
pub struct Mirror {
    objects: OrdMap<ObjectKey, Own>,
    is_listed: bool,
}

/// Reads an object that the server shows, if it belongs to the source.
#[must_use]
pub fn own(source: &Label, published: Value) -> Option<(ObjectKey, Own)> {
    let object = match decode(&published, &Expect::default()) {
        Ok(object) => object,
        Err(violations) => {
            // A newer server may know more than this process; what cannot be read cannot be compared either.
            tracing::warn!(?violations, "an object of the control server cannot be read");
            return None;
        }
    };
    let is_own = object.metadata.apply_set.as_ref().map(Name::as_str) == Some(source.as_str());
    is_own.then(|| (object.key(), Own { object: Arc::new(object), published }))
}

impl Mirror {
    /// Whether everything has been heard once.
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// The objects.
    #[must_use]
    pub const fn objects(&self) -> &OrdMap<ObjectKey, Own> {
        &self.objects
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Own> {
        self.objects.get(key)
    }

    /// Takes everything there is; answers what it knew before.
    pub fn list(&mut self, objects: OrdMap<ObjectKey, Own>) -> OrdMap<ObjectKey, Own> {
        self.is_listed = true;
        std::mem::replace(&mut self.objects, objects)
    }

    /// Takes the state of an object; `false` when it is the known one, or an older one: answers to writes and the watch
    /// overtake each other.
    pub fn put(&mut self, key: ObjectKey, own: Own) -> bool {
        let revision = own.object.metadata.revision();
        let is_news = self.revision(&key).is_none_or(|known| known < revision);
        if is_news {
            self.objects.insert(key, own);
        }
        is_news
    }

    /// Forgets an object that is gone since a revision; `false` when it was not known, or has come again since.
    pub fn remove(&mut self, key: &ObjectKey, at: Revision) -> bool {
        let is_news = self.revision(key).is_some_and(|known| known <= at);
        if is_news {
            self.objects.remove(key);
        }
        is_news
    }

    /// Takes a newer status of an object whose intent is the known one; `false` when it is the same.
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
