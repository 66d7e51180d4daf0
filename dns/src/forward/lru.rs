//! Map of limited size that forgets the least recently used entries.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Map with at most `entries_max` entries and `bytes_max` bytes. All operations take logarithmic time.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    slots: HashMap<K, Slot<V>>,
    /// Keys in the order of their last use.
    order: BTreeMap<u64, K>,
    /// Number of uses so far.
    uses: u64,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    size: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { slots: HashMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0, entries_max, bytes_max }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns an entry without using it.
    pub(crate) fn peek(&mut self, key: &K) -> Option<&mut V> {
        self.slots.get_mut(key).map(|slot| &mut slot.value)
    }

    /// Marks an entry as used, if it exists.
    pub(crate) fn touch(&mut self, key: &K) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if let Some(key) = self.order.remove(&slot.used) {
            self.uses += 1;
            slot.used = self.uses;
            self.order.insert(self.uses, key);
        }
    }

    /// Inserts or replaces an entry of `size` bytes, and removes the least recently used ones while the map is too
    /// large. Returns the number of removed entries.
    pub(crate) fn insert(&mut self, key: K, value: V, size: usize) -> usize {
        self.remove(&key);
        self.uses += 1;
        self.bytes += size;
        self.order.insert(self.uses, key.clone());
        self.slots.insert(key, Slot { value, size, used: self.uses });
        let mut removed = 0;
        while self.slots.len() > self.entries_max || self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            if let Some(slot) = self.slots.remove(&oldest) {
                self.bytes -= slot.size;
            }
            removed += 1;
        }
        removed
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(slot) = self.slots.remove(key) {
            self.order.remove(&slot.used);
            self.bytes -= slot.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The map contains the entries that were used last, within both limits.
        #[test]
        fn the_least_recently_used_entries_are_removed(steps in prop::collection::vec((0_u8..12, 0_usize..40, any::<bool>()), 0..80)) {
            let mut map = Lru::new(5, 100);
            // Entries from the least to the most recently used.
            let mut expected: Vec<(u8, usize)> = Vec::new();
            for (key, size, is_insertion) in steps {
                let known = expected.iter().position(|(other, _)| *other == key);
                if is_insertion {
                    map.insert(key, size, size);
                    known.map(|at| expected.remove(at));
                    expected.push((key, size));
                    while expected.len() > 5 || expected.iter().map(|(_, size)| size).sum::<usize>() > 100 {
                        expected.remove(0);
                    }
                } else {
                    map.touch(&key);
                    if let Some(at) = known {
                        let entry = expected.remove(at);
                        expected.push(entry);
                    }
                }
                prop_assert_eq!(map.len(), expected.len());
                for (key, size) in &expected {
                    prop_assert_eq!(map.peek(key).copied(), Some(*size));
                }
            }
        }
    }
}
