//! The whole cluster at one revision, with the indices that make every lookup of a write O(log n).
//!
//! The maps are persistent: a clone shares everything, so readers keep a snapshot while writers make the next.

use std::{ops::Bound, sync::Arc};

use imbl::OrdMap;

use crate::{
    name::{Name, Namespace},
    quantity::Revision,
    resource::{Kind, Object, ObjectKey},
};

/// The whole cluster at one revision.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    revision: Revision,
    objects: OrdMap<ObjectKey, Arc<Object>>,
}

impl Snapshot {
    /// Builds the state and its indices from what a store holds.
    #[must_use]
    pub fn from_objects(revision: Revision, objects: impl IntoIterator<Item = Arc<Object>>) -> Self {
        let objects = objects.into_iter().map(|object| (object.key(), object)).collect();
        Self { revision, objects }
    }

    /// The revision of the last change.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// The objects of a kind in the order of their keys, in one namespace or in all, after a key if one is given.
    pub fn list<'a>(
        &'a self,
        kind: Kind,
        namespace: Option<&'a Namespace>,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        let first_name = Name::parse("0").expect("a digit is a name");
        let start = after.map_or_else(
            || Bound::Included(ObjectKey { kind, namespace: namespace.cloned(), name: first_name }),
            |key| Bound::Excluded(key.clone()),
        );
        let range = self.objects.range((start, Bound::Unbounded));
        range
            .skip_while(move |(key, _)| key.kind < kind)
            .take_while(move |(key, _)| {
                key.kind == kind && namespace.is_none_or(|wanted| key.namespace.as_ref() == Some(wanted))
            })
            .map(|(_, object)| object)
    }

    /// How many objects of a kind there are.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.list(kind, None, None).count()
    }
}
