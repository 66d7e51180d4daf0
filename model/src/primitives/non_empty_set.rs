//! Persistent set with at least one member, for indices in which most keys have exactly one.
//!
//! A set of `imbl` reserves space for 16 members, so an index with a set for each of many keys would be mostly empty
//! space.

use std::{iter, ops::RangeInclusive, option};

use imbl::{OrdMap, OrdSet};

/// Persistent, ordered set with at least one member. A single member is stored in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonEmptySet<V: Ord + Clone>(Members<V>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Members<V: Ord + Clone> {
    One(V),
    /// At least two members, so that equal sets have the same form.
    Several(OrdSet<V>),
}

impl<V: Ord + Clone> NonEmptySet<V> {
    /// Adds a member to the set at a key of an index.
    pub fn add_at<K: Ord + Clone>(index: &mut OrdMap<K, Self>, key: K, value: V) {
        match index.get_mut(&key) {
            Some(set) => set.insert(value),
            None => drop(index.insert(key, Self(Members::One(value)))),
        }
    }

    /// Removes a member from the set at a key of an index, and the key with its last member.
    pub fn remove_at<K: Ord + Clone>(index: &mut OrdMap<K, Self>, key: &K, value: &V) {
        if index.get_mut(key).is_some_and(|set| set.remove(value) == MemberRemoval::Last) {
            index.remove(key);
        }
    }

    /// Returns the number of members.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the set is never empty")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Members::One(_) => 1,
            Members::Several(members) => members.len(),
        }
    }

    /// Returns the least member.
    #[must_use]
    pub fn first(&self) -> Option<&V> {
        self.iter().next()
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> Iter<'_, V> {
        let (one, several) = match &self.0 {
            Members::One(value) => (Some(value), None),
            Members::Several(members) => (None, Some(members)),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Returns the members in a range, in ascending order.
    pub fn range(&self, range: RangeInclusive<V>) -> impl Iterator<Item = &V> {
        let (one, several) = match &self.0 {
            Members::One(value) => (Some(value).filter(|value| range.contains(value)), None),
            Members::Several(members) => (None, Some(members.range(range))),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    fn insert(&mut self, value: V) {
        match &mut self.0 {
            Members::One(known) if *known == value => {}
            Members::One(known) => {
                self.0 = Members::Several([known.clone(), value].into_iter().collect());
            }
            Members::Several(members) => drop(members.insert(value)),
        }
    }

    fn remove(&mut self, value: &V) -> MemberRemoval {
        let Members::Several(members) = &mut self.0 else {
            return if self.first() == Some(value) { MemberRemoval::Last } else { MemberRemoval::Done };
        };
        members.remove(value);
        if let (1, Some(only)) = (members.len(), members.get_min()) {
            self.0 = Members::One(only.clone());
        }
        MemberRemoval::Done
    }
}

/// Outcome of the removal of a member.
#[derive(PartialEq, Eq)]
enum MemberRemoval {
    /// The set does not contain the member any more.
    Done,
    /// The member is the only one. The set is unchanged, and the caller has to drop it.
    Last,
}

/// Members of a [`NonEmptySet`] in ascending order.
pub type Iter<'a, V> = iter::Chain<option::IntoIter<&'a V>, iter::Flatten<option::IntoIter<&'a OrdSet<V>>>>;

impl<'a, V: Ord + Clone> IntoIterator for &'a NonEmptySet<V> {
    type Item = &'a V;
    type IntoIter = Iter<'a, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// An index has the members of plain sets, and equal indices are equal however they came about.
        #[test]
        fn agrees_with_plain_sets(steps in prop::collection::vec((0_u8..3, 0_u8..4, any::<bool>()), 0..40)) {
            let mut index = OrdMap::new();
            let mut plain: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
            for (key, value, is_insertion) in steps {
                let expected = plain.entry(key).or_default();
                if is_insertion {
                    NonEmptySet::add_at(&mut index, key, value);
                    expected.insert(value);
                } else {
                    NonEmptySet::remove_at(&mut index, &key, &value);
                    expected.remove(&value);
                }
            }
            plain.retain(|_, values| !values.is_empty());
            let mut fresh = OrdMap::new();
            for (key, value) in plain.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value))) {
                NonEmptySet::add_at(&mut fresh, *key, *value);
            }
            prop_assert_eq!(&index, &fresh);
            prop_assert!(index.keys().eq(plain.keys()));
            for (key, values) in &plain {
                let found = &index[key];
                prop_assert!(found.into_iter().eq(values));
                prop_assert_eq!((found.len(), found.first()), (values.len(), values.first()));
                prop_assert!(found.range(1..=2).eq(values.range(1..=2)));
            }
        }
    }

    #[test]
    fn a_single_member_takes_no_memory_of_its_own() {
        assert_eq!(size_of::<NonEmptySet<[usize; 2]>>(), size_of::<OrdSet<u8>>());
    }
}
