//! Addition and removal of entries in the indices of a snapshot.

use imbl::{OrdMap, OrdSet};

use crate::{
    cluster::quota::Usage,
    kinds::resource::Kind,
    primitives::{interval_set::IntervalSet, name::Namespace, non_empty_set::NonEmptySet},
};

/// Kind of an index update: addition or removal of an entry. The same function performs both, so that a
/// removal exactly reverts an addition.
#[derive(Clone, Copy)]
pub(super) enum Entry {
    Add,
    Remove,
}

impl Entry {
    pub(super) const fn count(self, count: &mut usize, by: usize) {
        match self {
            Self::Add => *count += by,
            Self::Remove => *count -= by,
        }
    }

    pub(super) fn usage(self, index: &mut OrdMap<Namespace, Usage>, namespace: &Namespace, by: &Usage) {
        match self {
            Self::Add if by.is_empty() => {}
            Self::Add => index.entry(namespace.clone()).or_default().add(by),
            Self::Remove => {
                let emptied = index.get_mut(namespace).is_some_and(|usage| {
                    usage.subtract(by);
                    usage.is_empty()
                });
                if emptied {
                    index.remove(namespace);
                }
            }
        }
    }

    pub(super) fn kind(
        self,
        index: &mut OrdMap<Namespace, OrdMap<Kind, usize>>,
        namespace: &Namespace,
        kind: Kind,
    ) {
        let mut counts = index.get(namespace).cloned().unwrap_or_default();
        let mut count = counts.get(&kind).copied().unwrap_or_default();
        self.count(&mut count, 1);
        match count {
            0 => counts.remove(&kind),
            count => counts.insert(kind, count),
        };
        match counts.is_empty() {
            true => index.remove(namespace),
            false => index.insert(namespace.clone(), counts),
        };
    }

    pub(super) fn set<K: Ord + Clone, V: Ord + Clone>(
        self,
        index: &mut OrdMap<K, NonEmptySet<V>>,
        key: K,
        value: V,
    ) {
        match self {
            Self::Add => NonEmptySet::add_at(index, key, value),
            Self::Remove => NonEmptySet::remove_at(index, &key, &value),
        }
    }

    pub(super) fn member<V: Ord + Clone>(self, index: &mut OrdSet<V>, value: V) {
        match self {
            Self::Add => index.insert(value),
            Self::Remove => index.remove(&value),
        };
    }

    pub(super) fn map<K: Ord + Clone, V: Clone>(self, index: &mut OrdMap<K, V>, key: K, holder: &V) {
        match self {
            Self::Add => {
                index.insert(key, holder.clone());
            }
            Self::Remove => {
                index.remove(&key);
            }
        }
    }

    pub(super) fn number<K: Ord + Clone>(self, index: &mut OrdMap<K, IntervalSet>, key: K, number: u128) {
        match self {
            Self::Add => {
                index.entry(key).or_default().insert(number);
            }
            Self::Remove => {
                let emptied = index.get_mut(&key).is_some_and(|taken| {
                    taken.remove(number);
                    taken.is_empty()
                });
                if emptied {
                    index.remove(&key);
                }
            }
        }
    }
}
